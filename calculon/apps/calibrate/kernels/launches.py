"""What launching kernels costs, of measured launches: on the device, and on the host by mode."""

from collections.abc import Mapping

import pandas as pd

from calculon.apps.calibrate.kernels.fitted_part import FittedPart
from calculon.hardware.system import System

LEAST = "smallest bf16 product in a CUDA graph: 5th percentile"
"""What stands in the table for the least time of a kernel on a processor."""

HOST = {
    "compile": "Triton CompiledKernel.run, 19 arguments",
    "graph": "add of two 1024-element tensors in a CUDA graph of 2000",
}
"""What stands in the table for the time of the host by mode; hosts differ less than modes, so one counts for all."""

EAGER = 10e-6
"""Seconds of the host for an operator in PyTorch's eager mode, autograd included: 5 to 25 us are reported of training
loops (Python, dispatcher, autograd, allocator, launch); models in Python modules without compilation take up to 45 us
(launches.csv, low certainty). No table of a machine was found."""


def fit(tables: Mapping[str, pd.DataFrame], gpu: str, system: System) -> FittedPart | None:
    """Return the launches of a processor; None where its least kernel was not measured."""
    table = tables["launches"]
    of_what = table.set_index("what")["time_s"]
    own = table[(table["gpu"] == gpu) & (table["what"] == LEAST)]["time_s"]
    if own.empty:
        return None
    host = {mode: float(of_what[what]) for mode, what in HOST.items()}
    seconds = {"kernel": float(own.iloc[0]), "eager": EAGER, **host}
    launch = {name: float(f"{value:.2g}") for name, value in seconds.items()}
    return FittedPart(
        fragment={"ext": {"launch": launch}},
        sources={
            "ext.launch.kernel": f"{LEAST} (systems/measured/launches.csv)",
            **{
                f"ext.launch.{mode}": f"{what} (systems/measured/launches.csv), on another host"
                for mode, what in HOST.items()
            },
        },
        assumed=[
            "ext.launch.eager: 10 us for an operator of PyTorch with its autograd; 5 to 25 us are reported, and no "
            "table was found"
        ],
        rows=pd.DataFrame(columns=["group", "measured", "predicted", "held_out"]),
    )
