"""From one plan to another, one change at a time: a bar for each change between the times of both."""

from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import Any

from calculon.apps.report.bars import COLORS

_WIDTH = 30
"""Characters of a label in one line."""


def change_waterfall(
    ends: Sequence[tuple[str, float]],
    steps: Sequence[Mapping[str, Any]],
    texts: Sequence[str],
    per: str,
) -> dict[str, Any]:
    """Return a waterfall of times.

    Parameters
    ----------
    ends : sequence of (str, float)
        The plans at both ends: their names and seconds.
    steps : sequence of mapping
        The changes between them, as :meth:`calculon.Waterfall.to_dict` tells them.
    texts : sequence of str
        All of these times in words: first plan, changes, last plan.
    per : str
        What times are of.
    """
    (first, start), (last, end) = ends
    names = [first, *(step["change"] for step in steps), last]
    labels = ["<br>".join(wrap(name, _WIDTH)) for name in names]
    bars = {
        "type": "waterfall",
        "orientation": "h",
        "y": labels,
        "x": [start, *(step["seconds"] for step in steps), end],
        "measure": ["absolute", *("relative" for _ in steps), "total"],
        "text": list(texts),
        "textposition": "auto",
        "cliponaxis": False,
        "hovertemplate": "%{y}: %{text}<extra></extra>",
        "decreasing": {"marker": {"color": COLORS["green"]}},
        "increasing": {"marker": {"color": COLORS["vermilion"]}},
        "totals": {"marker": {"color": COLORS["blue"]}},
        "connector": {"line": {"width": 1, "color": "#8a8f98"}},
    }
    lines = sum(label.count("<br>") + 1 for label in labels)
    layout = {
        "height": 70 + 20 * len(labels) + 14 * lines,
        "margin": {"r": 60},
        "xaxis": {"title": {"text": f"seconds of a {per}"}, "rangemode": "tozero"},
        "yaxis": {"autorange": "reversed", "automargin": True},
        "showlegend": False,
    }
    return {"data": [bars], "layout": layout}
