"""The families of kernels that a system file is fitted to."""

from collections.abc import Callable, Mapping
from importlib import import_module

import pandas as pd

from calculon.calibrate.kernels.fitted_part import FittedPart
from calculon.hardware.system import System

Fit = Callable[[Mapping[str, pd.DataFrame], str, System], FittedPart | None]
"""From tables by name, a processor's name in them and a system with its peaks: a part, if there are rows for one."""

FAMILIES: Mapping[str, tuple[str, ...]] = {
    "products": ("gemm", "sources"),
    "attention": ("attention",),
    "memory_bound": ("memory_bound", "launches"),
    "launches": ("launches",),
    "collectives": ("collectives",),
    "serving": (),
}
"""Modules of this room with a function ``fit``, in the order in which their parts are merged, and the tables that they
cannot do without."""

COLUMNS: Mapping[str, tuple[str, ...]] = {
    "gemm": (
        "source",
        "gpu",
        "dtype",
        "kernel",
        "batch",
        "m",
        "n",
        "k",
        "layout",
        "time_s",
        "tflops",
    ),
    "attention": (
        "source",
        "gpu",
        "dtype",
        "kernel",
        "pass",
        "causal",
        "batch",
        "heads_q",
        "heads_kv",
        "seq_q",
        "seq_kv",
        "dim_qk",
        "dim_v",
        "time_s",
    ),
    "memory_bound": ("source", "gpu", "op", "pass", "impl", "dtype", "rows", "cols", "time_s"),
    "collectives": (
        "source",
        "gpu",
        "op",
        "nodes",
        "num_gpus",
        "link",
        "bytes",
        "time_s",
        "library",
    ),
    "launches": ("gpu", "what", "time_s"),
    "moe": (
        "source",
        "gpu",
        "dtype",
        "tokens",
        "hidden",
        "ffn",
        "topk",
        "experts",
        "tp",
        "ep",
        "time_s",
    ),
    "sources": ("source", "certainty"),
}
"""Columns that the fits read of each table."""


def fits(tables: Mapping[str, pd.DataFrame]) -> list[Fit]:
    """Return the fits of the families whose tables are there."""
    room = __name__.rpartition(".")[0]
    return [
        import_module(f"{room}.{name}").fit
        for name, needed in FAMILIES.items()
        if all(one in tables for one in needed)
    ]
