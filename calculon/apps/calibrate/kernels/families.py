"""The families of kernels that a system file is fitted to."""

from collections.abc import Callable, Mapping
from importlib import import_module

import pandas as pd

from calculon.apps.calibrate.kernels.fitted_part import FittedPart
from calculon.hardware.system import System

Fit = Callable[[Mapping[str, pd.DataFrame], str, System], FittedPart | None]
"""From tables by name, a processor's name in them and a system with its peaks: a part, if there are rows for one."""

FAMILIES: Mapping[str, tuple[str, ...]] = {
    "products": ("gemm", "sources"),
    "attention": ("attention",),
    "memory_bound": ("memory_bound", "launches"),
    "launches": ("launches",),
    "collectives": ("collectives",),
}
"""Modules of this room with a function ``fit``, in the order in which their parts are merged, and their tables."""


def fits(tables: Mapping[str, pd.DataFrame]) -> list[Fit]:
    """Return the fits of the families whose tables are there."""
    room = __name__.rpartition(".")[0]
    return [
        import_module(f"{room}.{name}").fit
        for name, needed in FAMILIES.items()
        if all(one in tables for one in needed)
    ]
