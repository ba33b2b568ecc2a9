"""The families of kernels that a system file is fitted to."""

from collections.abc import Callable, Container, Mapping
from importlib import import_module

import pandas as pd

from calculon.apps.calibrate.kernels.fitted_part import FittedPart
from calculon.hardware.system import System

Fit = Callable[[Mapping[str, pd.DataFrame], str, System], FittedPart | None]
"""From tables by name, a processor's name in them and a system with its peaks: a part, if there are rows for one."""

FAMILIES = {
    "products": ("gemm", "sources"),
    "attention": ("attention",),
    "memory_bound": ("memory_bound", "launches"),
    "launches": ("launches",),
    "collectives": ("collectives",),
}
"""Modules of this room with a function ``fit``, in the order in which their parts are merged, and its tables."""


def fits(tables: Container[str]) -> dict[str, Fit]:
    """Return the fits whose tables are all there, by the name of their family."""
    room = __name__.rpartition(".")[0]
    return {
        name: import_module(f"{room}.{name}").fit
        for name, needed in FAMILIES.items()
        if all(table in tables for table in needed)
    }
