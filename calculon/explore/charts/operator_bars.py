"""Where the time of a block goes: its operators, the longest first, each with its passes."""

from collections.abc import Mapping, Sequence
from typing import Any

from calculon.documents.operator_page import PASSES
from calculon.render.bars import COLORS
from calculon.render.chart_axes import time_unit
from calculon.render.texts import counted, seconds

MOST = 14
"""Operators with a bar of their own."""

EXPOSED = "exposed collectives"

WORK_COLORS = {
    "forward": COLORS["blue"],
    "activation_grad": COLORS["purple"],
    "weight_grad": COLORS["orange"],
    "recompute": COLORS["sky"],
}
"""Colours of the passes."""


def operator_time(operator: Mapping[str, Any], work: str) -> float:
    """Return the seconds of an operator in a pass, or of :data:`EXPOSED` in all of them."""
    if work == EXPOSED:
        return float(sum(sent["exposed"] for sent in operator["collectives"]))
    return float(operator["time"][work])


def whole_time(operator: Mapping[str, Any]) -> float:
    """Return all seconds of an operator: its passes, and what is exposed of its collectives."""
    return sum(operator_time(operator, work) for work in (*PASSES, EXPOSED))


def by_time(operators: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the operators that take time, the longest first."""
    return sorted((one for one in operators if whole_time(one)), key=whole_time, reverse=True)


def operator_bars(
    operators: Sequence[Mapping[str, Any]], names: Sequence[str], links: Sequence[str]
) -> dict[str, Any]:
    """Return the chart.

    Parameters
    ----------
    operators : sequence of mapping
        Operators of a block of one kind, sorted by :func:`by_time`.
    names, links : sequence of str
        What each is called, and the address to which a click on it leads.
    """
    shown, rest = operators[:MOST], operators[MOST:]
    labels, total = list(names[:MOST]), sum(map(whole_time, operators))
    unit, factor = time_unit(max(map(whole_time, operators), default=0.0))
    if rest:
        labels.append(counted(len(rest), "other"))
    data = []
    for work in (*PASSES, EXPOSED):
        times = [operator_time(one, work) for one in shown]
        if rest:
            times.append(sum(operator_time(one, work) for one in rest))
        if not any(times):
            continue
        texts = seconds(times, total)
        data.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": PASSES.get(work, work),
                "y": labels,
                "x": [time * factor for time in times],
                "customdata": [
                    [text, link] for text, link in zip(texts, [*links[:MOST], ""], strict=False)
                ],
                "hovertemplate": "%{y}, %{data.name}: %{customdata[0]}<extra></extra>",
                "marker": {"color": WORK_COLORS.get(work, COLORS["vermilion"])},
            }
        )
    layout = {
        "height": 100 + 24 * len(labels),
        "barmode": "stack",
        "bargap": 0.25,
        "xaxis": {"title": {"text": f"time of a microbatch in {unit}"}, "rangemode": "tozero"},
        "yaxis": {"autorange": "reversed", "automargin": True},
        "legend": {
            "orientation": "h",
            "y": 1.01,
            "yanchor": "bottom",
            "x": 0,
            "traceorder": "normal",
        },
    }
    return {"data": data, "layout": layout}
