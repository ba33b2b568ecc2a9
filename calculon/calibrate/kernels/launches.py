"""What launching kernels costs, of measured launches: on the device, and on the host by mode."""

from collections.abc import Mapping

import pandas as pd

from calculon.base.errors import Problem, SpecError
from calculon.calibrate.kernels.fitted_part import FittedPart
from calculon.hardware.system import System

LEAST = "smallest bf16 product in a CUDA graph: 5th percentile"
"""What stands in the table for the least time of a kernel on a processor."""

HOST = {
    "eager": "eager inference, host-bound: 53.7 ms for 1185 kernels",
    "compile": "Triton CompiledKernel.run, 19 arguments",
    "graph": "add of two 1024-element tensors in a CUDA graph of 2000",
}
"""What stands in the table for the time of the host by mode; hosts differ less than modes, so one counts for all.

That of eager mode is a model of Python modules, with dispatcher, allocator and launch; its certainty is low.
"""


def fit(tables: Mapping[str, pd.DataFrame], gpu: str, system: System) -> FittedPart | None:
    """Return the launches of a processor; None where its least kernel was not measured."""
    if "launches" not in tables:
        return None
    table = tables["launches"]
    of_what = table.set_index("what")["time_s"]
    own = table[(table["gpu"] == gpu) & (table["what"] == LEAST)]["time_s"]
    if own.empty:
        return None
    if missing := [what for what in HOST.values() if what not in of_what.index]:
        problem = Problem("what", "a row of each time of the host", f"none of '{missing[0]}'")
        raise SpecError("launches.csv", problem)
    of_what = of_what[~of_what.index.duplicated()]
    host = {mode: float(of_what[what]) for mode, what in HOST.items()}
    seconds = {"kernel": float(own.iloc[0]), **host}
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
            "ext.launch.eager: one figure of an inference, for every host and for training with its autograd; loops "
            "with less Python around their kernels launch one in 5 to 25 us"
        ],
        rows=pd.DataFrame(columns=["group", "measured", "predicted", "held_out"]),
    )
