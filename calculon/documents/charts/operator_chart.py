"""Where the time of a block goes: its operators, the longest first, each with its passes."""

from collections.abc import Mapping, Sequence
from typing import Any

from calculon.documents.operator_page import PASSES
from calculon.render.chart import Axis, Bars, Chart, Panel, categories
from calculon.render.chart_axes import time_unit
from calculon.render.texts import counted, seconds

Operator = Mapping[str, Any]

MOST = 14
"""Operators with a bar of their own."""

EXPOSED = "exposed collectives"

WORK_COLORS = {
    "forward": "blue",
    "activation_grad": "purple",
    "weight_grad": "orange",
    "recompute": "sky",
    EXPOSED: "vermilion",
}
"""Colours of the passes."""


def operator_time(operator: Operator, work: str) -> float:
    """Return the seconds of an operator in a pass, or of :data:`EXPOSED` in all of them."""
    if work == EXPOSED:
        return float(sum(sent["exposed"] for sent in operator["collectives"]))
    return float(operator["time"][work])


def whole_time(operator: Operator) -> float:
    """Return all seconds of an operator: its passes, and the exposed time of its collectives."""
    return sum(operator_time(operator, work) for work in WORK_COLORS)


def by_time(operators: Sequence[Operator]) -> list[Operator]:
    """Return the operators that take time, the longest first."""
    return sorted((one for one in operators if whole_time(one)), key=whole_time, reverse=True)


def operator_bars(
    title: str,
    terms: str,
    operators: Sequence[Operator],
    names: Sequence[str],
    links: Sequence[str],
) -> Chart:
    """Return the chart.

    Parameters
    ----------
    title, terms : str
        Model, machine and plan, and the edition with its preset.
    operators : sequence of mapping
        Operators of a block of one kind, sorted by :func:`by_time`.
    names, links : sequence of str
        The name of each, and the address to which a click on it leads.
    """
    groups = [[one] for one in operators[:MOST]]
    labels, addresses = list(names[:MOST]), list(links[:MOST])
    if rest := list(operators[MOST:]):
        groups.append(rest)
        labels.append(counted(len(rest), "other"))
        addresses.append("")
    total = sum(map(whole_time, operators))
    unit, factor = time_unit(max(map(whole_time, operators), default=0.0))
    starts, marks = [0.0] * len(groups), []
    for work, color in WORK_COLORS.items():
        times = [sum(operator_time(one, work) for one in group) for group in groups]
        if not any(times):
            continue
        name = PASSES.get(work, work)
        texts = seconds(times, total)
        marks.append(
            Bars(
                name=name,
                at=range(len(groups)),
                starts=list(starts),
                lengths=[time * factor for time in times],
                color=color,
                words=[
                    f"{label}, {name}: {text}" for label, text in zip(labels, texts, strict=True)
                ],
                links=addresses,
            )
        )
        starts = [a + b * factor for a, b in zip(starts, times, strict=True)]
    panel = Panel(
        x=Axis(
            label="Time of a microbatch", unit=unit, limits=(0.0, 1.05 * max(starts, default=1.0))
        ),
        y=categories(labels),
        marks=marks,
        height=0.7 + 0.26 * len(labels),
    )
    return Chart(title=title, terms=[terms], rows=((panel,),))
