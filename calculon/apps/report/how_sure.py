"""How sure a prediction is: what its interval rests on, the nearest measured runs, and what no measured run has."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from calculon.apps.report.grids import grid, indented, styled
from calculon.apps.report.texts import heading
from calculon.inspect.validated_runs import short_name
from calculon.units import duration, scaled

TITLES = (
    "nearest measured runs",
    "processors",
    "model",
    "TP.PP.DP",
    "measured",
    "predicted",
    "error",
)

BEST = "Above every published run"
OUTSIDE = "Outside of what was measured"

_DIGITS = 0.02
"""Relative error with which times of runs are written: repeated ones differ by 2 to 4 %."""


def how_sure(belief: Mapping[str, Any]) -> Iterator[RenderableType]:
    """Yield the section of a belief (:class:`~calculon.inspect.validated_runs.Belief` as plain data)."""
    yield heading("How sure", belief["basis"])
    notes = [Text.assemble((f"{label}: ", "bold"), text) for label, text in remarks(belief)]
    yield indented(Group(*notes, *([nearest_table(runs)] if (runs := belief["nearest"]) else [])))


def remarks(belief: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what makes a prediction less sure than its interval says, each with a label."""
    if belief["remark"]:
        yield BEST, belief["remark"]
    if belief["outside"]:
        yield OUTSIDE, "; ".join(belief["outside"])


def nearest_table(runs: Sequence[Mapping[str, Any]]) -> Table:
    """List measured runs, nearest first."""
    table = grid("text", *["right"] * (len(TITLES) - 1))
    table.add_row(*styled(TITLES, "dim"))
    for run in runs:
        cells = run_cells(run)
        table.add_row(*cells[:-1], Text(cells[-1], "bold"))
    return table


def run_cells(run: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the cells of a run below the titles."""
    label = run["label"]
    name = label if label.startswith(run["study"]) else f"{run['study']}, {label}"
    times = (run["measured"], run["predicted"])
    return (
        name,
        f"{run['num_procs']:,} x {short_name(run['system'])}",
        scaled(run["parameters"], error=_DIGITS * run["parameters"]),
        f"{run['tensor_par']}.{run['pipeline_par']}.{run['data_par']}",
        *(duration(time, _DIGITS * time) for time in times),
        f"{run['error']:+.0f} %",
    )
