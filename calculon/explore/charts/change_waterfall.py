"""From one plan to another, one change at a time: a bar for each change between the times of both."""

from collections.abc import Mapping
from textwrap import wrap
from typing import Any

from calculon.documents.waterfall_section import NAMES, steps_with_effect, waterfall_table
from calculon.render.bars import COLORS
from calculon.render.digits import Digits

_WIDTH = 30
"""Characters of a label in one line."""


def change_waterfall(
    waterfall: Mapping[str, Any], digits: Digits, names: tuple[str, str]
) -> dict[str, Any] | None:
    """Return a waterfall of times; None where no change has an effect.

    Parameters
    ----------
    waterfall : mapping
        The changes as plain data (:meth:`calculon.Waterfall.to_dict`).
    digits : Digits
        Those of the times.
    names : tuple of str
        What the plans at both ends are called.
    """
    steps = steps_with_effect(waterfall)
    if not steps:
        return None
    start, end = (waterfall[name]["seconds"] for name in NAMES)
    texts = [row["seconds"] for row in waterfall_table(waterfall, digits, names).rows]
    called = [names[0], *(step["change"] for step in steps), names[1]]
    labels = ["<br>".join(wrap(name, _WIDTH)) for name in called]
    bars = {
        "type": "waterfall",
        "orientation": "h",
        "y": labels,
        "x": [start, *(step["seconds"] for step in steps), end],
        "measure": ["absolute", *("relative" for _ in steps), "total"],
        "text": texts,
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
        "xaxis": {"title": {"text": f"seconds of a {waterfall['per']}"}, "rangemode": "tozero"},
        "yaxis": {"autorange": "reversed", "automargin": True},
        "showlegend": False,
    }
    return {"data": [bars], "layout": layout}
