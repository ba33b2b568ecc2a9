"""How sure a prediction is: what its interval rests on, the nearest measured runs, and what no measured run has."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from calculon.apps.report.text_tables import Column, Table
from calculon.apps.report.texts import confirmed
from calculon.units import duration, scaled

BEST = "Above every measured run"
OUTSIDE = "Outside of what was measured"
FITTED = "Fitted to models of another size"
TIGHT = "Memory may not suffice"

_ERROR = 0.04
"""Relative error with which the numbers of runs are written: repeated ones differ by 2 to 4 %."""


def remarks(belief: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what makes a prediction less sure than its interval says, each with a label."""
    if belief["remark"]:
        yield BEST, belief["remark"]
    if belief["outside"]:
        yield OUTSIDE, "; ".join(belief["outside"])
    if belief["fitted"]:
        yield FITTED, "; ".join(belief["fitted"])
    if belief["memory"] and belief["memory"]["remark"]:
        yield TIGHT, belief["memory"]["remark"]


def memory_text(memory: Mapping[str, Any]) -> str:
    """Say how far predicted memory is from measured memory."""
    error, level = 100 * memory["error"], 10 * memory["level"]
    rows = f"{memory['runs']:,} measured rows of {memory['sources']} sources"
    return f"as measured within {error:.0f} % in {level:.0f} of 10 of {rows}"


def told_apart(ratios: Sequence[float], least: float) -> str:
    """Say how many executions cannot be told apart from the fastest.

    Parameters
    ----------
    ratios : sequence of float
        Time of each over that of the fastest, which is one of them.
    least : float
        Ratio from which the order is sure (:func:`~calculon.inspect.told_apart.least_ratio`).
    """
    alike = sum(ratio < least for ratio in ratios)
    if alike == 1:
        return f"The fastest is told apart from all others ({confirmed(least)})"
    return f"Not told apart from the fastest: {alike} of {len(ratios)}, itself included ({confirmed(least)})"


def nearest_table(runs: Sequence[Mapping[str, Any]]) -> Table:
    """List measured runs, nearest first."""
    columns = (
        Column("run", "nearest runs", cut=True),
        Column("processors", "processors", right=True),
        Column("parameters", "model", right=True),
        Column("split", "TP.PP.DP", right=True),
        Column("measured", "measured", right=True),
        Column("predicted", "predicted", right=True),
        Column("error", "error", right=True),
    )
    return Table(columns, [_cells(run) for run in runs])


def _cells(run: Mapping[str, Any]) -> dict[str, str]:
    table, sign, row = run["label"].rpartition("#")  # a row of a table is told by its number
    parameters, degrees = run["parameters"], ("tensor_par", "pipeline_par", "data_par")
    return {
        "run": f"{run['study']} {sign}{row if table else run['label']}",
        "processors": f"{run['num_procs']:,} {run['processor']}",
        "parameters": scaled(parameters, error=_ERROR * parameters),
        "split": ".".join(str(run[name]) for name in degrees),
        **{name: duration(run[name], _ERROR * run[name]) for name in ("measured", "predicted")},
        "error": f"{run['error']:+.0f} %",
    }
