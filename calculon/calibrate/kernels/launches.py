"""Kernel-launch overhead from measured launches: on the device, and on the host by mode (eager, compile, graph)."""

from collections.abc import Mapping

import pandas as pd

from calculon.base.errors import Problem, SpecError
from calculon.calibrate.kernels.fitted_part import FittedPart
from calculon.hardware.system import System

LEAST = "smallest bf16 product in a CUDA graph: 5th percentile"
"""Entry of the table with the shortest time of a kernel on a processor."""

HOST = {
    "eager": "eager inference, host-bound: 53.7 ms for 1185 kernels",
    "compile": "Triton CompiledKernel.run, 19 arguments",
    "graph": "add of two 1024-element tensors in a CUDA graph of 2000",
}
"""Entries of the table with the host time by mode. Hosts differ less than modes, so one host's time is used for all.

The eager time comes from a model of Python modules with dispatcher, allocator and launch; its certainty is low.
"""


def fit(tables: Mapping[str, pd.DataFrame], gpu: str, system: System) -> FittedPart | None:
    """Return the launch overheads of a processor; None if its shortest kernel was not measured."""
    if "launches" not in tables:
        return None
    table = tables["launches"]
    times = table.set_index("what")["time_s"]
    shortest = table[(table["gpu"] == gpu) & (table["what"] == LEAST)]["time_s"]
    if shortest.empty:
        return None
    if missing := [what for what in HOST.values() if what not in times.index]:
        problem = Problem("what", "a row for each host time", f"none of '{missing[0]}'")
        raise SpecError("launches.csv", problem)
    times = times[~times.index.duplicated()]
    host = {mode: float(times[what]) for mode, what in HOST.items()}
    seconds = {"kernel": float(shortest.iloc[0]), **host}
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
            "ext.launch.eager: a single measurement of inference, used for every host and for training with autograd; "
            "loops with less Python per kernel launch one in 5 to 25 us"
        ],
        rows=pd.DataFrame(columns=["group", "measured", "predicted", "held_out"]),
    )
