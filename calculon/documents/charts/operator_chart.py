"""Chart of the time of a block's operators by pass, longest first."""

from collections.abc import Mapping, Sequence
from typing import Any

from calculon.documents.charts.breakdown import result_chart
from calculon.documents.operator_page import PASS_WORDS
from calculon.documents.result import Result
from calculon.render.chart import Axis, Bars, Chart, Panel, categories, stacked
from calculon.render.chart_axes import time_unit
from calculon.render.texts import counted, seconds

MOST = 14
"""Maximum number of operators with a separate bar."""

EXPOSED = "exposed collectives"

WORK_COLORS = {
    "forward": "blue",
    "activation_grad": "purple",
    "weight_grad": "orange",
    "recompute": "sky",
    EXPOSED: "vermilion",
}
"""Colors of the passes."""

_AROUND, _ROW = 0.9, 0.26
"""Inches: title and axis; a bar."""


def operator_time(operator: Mapping[str, Any], work: str) -> float:
    """Return the seconds of an operator in a pass, or of its :data:`EXPOSED` collectives in all passes."""
    if work == EXPOSED:
        return float(sum(sent["exposed"] for sent in operator["collectives"]))
    return float(operator["time"][work])


def whole_time(operator: Mapping[str, Any]) -> float:
    """Return the total seconds of an operator: its passes, and its exposed collectives."""
    return sum(operator_time(operator, work) for work in WORK_COLORS)


def by_time(operators: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the operators that take time, longest first."""
    return sorted((one for one in operators if whole_time(one)), key=whole_time, reverse=True)


def operator_chart(
    result: Result,
    operators: Sequence[Mapping[str, Any]],
    names: Sequence[str],
    links: Sequence[str],
) -> Chart:
    """Return the chart of operator times.

    Args:
        result: The plan.
        operators: Operators of a block of one kind, sorted by :func:`by_time`.
        names, links: Name of each operator, and the address that a click opens.
    """
    rest = operators[MOST:]
    labels = [*names[:MOST], *([counted(len(rest), "other")] if rest else [])]
    addresses = links[: len(labels)]  # the bar of all others opens the first of them
    total, longest = sum(map(whole_time, operators)), max(map(whole_time, operators), default=0.0)
    unit, factor = time_unit(longest)
    pieces = []
    for work, color in WORK_COLORS.items():
        times = [operator_time(one, work) for one in operators]
        if not any(times):
            continue
        shown = [*times[:MOST], *([sum(times[MOST:])] if rest else [])]
        name = PASS_WORDS.get(work, work)
        texts = zip(labels, seconds(shown, total), strict=True)
        pieces.append(
            Bars(
                name=name,
                at=range(len(labels)),
                lengths=[factor * time for time in shown],
                color=color,
                words=[f"{label}, {name}: {text}" for label, text in texts],
                links=addresses,
            )
        )
    panel = Panel(
        x=Axis(label="Time per microbatch", unit=unit, limits=(0.0, 1.04 * factor * longest)),
        y=categories(labels),
        marks=stacked(pieces),
        height=_AROUND + _ROW * len(labels),
    )
    return result_chart(result, panel)
