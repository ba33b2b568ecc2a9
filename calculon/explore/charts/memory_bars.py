"""The memory of every pipeline stage by kind, against what there is."""

from collections.abc import Sequence
from typing import Any

from calculon.advise.stage_needs import StageNeed
from calculon.base.units import GIB
from calculon.declarations.statistics import KINDS_OF_MEMORY
from calculon.render.bars import COLORS

KIND_COLORS = {
    "weights": "#2d71c7",
    "activations": "#37a15e",
    "checkpoints": "#2b7f79",
    "activation gradients": "#c97001",
    "weight gradients": "#0b96c6",
    "optimizer state": "#7656d8",
    "gathered weights": "#d55299",
    "gradients being reduced": "#9e48ab",
    "fragments": "#868a91",
    "reserved": "#6b6f76",
}
"""The colour of each kind of memory: the same in every plan.

Each has a contrast of 3 to the grounds of the page, light and dark; neighbours differ in hue, for any kind of colour
vision, and are apart by a line in the colour of the ground.
"""

assert {*KIND_COLORS} == {*KINDS_OF_MEMORY}


def kinds_of(stages: Sequence[StageNeed]) -> list[str]:
    """Return the kinds of tier-1 memory that any stage has, always in the same order."""
    return [kind for kind in KINDS_OF_MEMORY if any(one.parts[0].get(kind) for one in stages)]


def memory_bars(stages: Sequence[StageNeed]) -> dict[str, Any]:
    """Return the tier-1 memory of stages, GiB, as stacked bars below a line of what is usable."""
    kinds = kinds_of(stages)
    numbers = [one.stage for one in stages]
    series = {kind: [one.parts[0].get(kind, 0.0) / GIB for one in stages] for kind in kinds}
    data = [
        {
            "type": "bar",
            "orientation": "h",
            "name": kind,
            "y": numbers,
            "x": sizes,
            "marker": {"color": KIND_COLORS[kind]},
            "hovertemplate": f"stage %{{y}}: {kind} %{{x:.1f}} GiB<extra></extra>",
        }
        for kind, sizes in series.items()
    ]
    there = stages[0].available[0] / GIB
    line = {
        "type": "line",
        "xref": "x",
        "yref": "paper",
        "x0": there,
        "x1": there,
        "y0": 0,
        "y1": 1,
    }
    title = f"GiB (dashed: {there:.1f} usable)"
    several = len(stages) > 1
    axis: dict[str, Any] = {"autorange": "reversed", "automargin": True}
    if several:
        axis |= {"title": {"text": "stage"}, "dtick": max(1, len(stages) // 16)}
    else:
        axis["visible"] = False
    layout = {
        "barmode": "stack",
        "height": min(520, 90 + 26 * len(stages)),
        "xaxis": {"title": {"text": title}, "rangemode": "tozero"},
        "yaxis": axis,
        "showlegend": False,
        "shapes": [line | {"line": {"color": COLORS["vermilion"], "width": 2, "dash": "dash"}}],
    }
    return {"data": data, "layout": layout}
