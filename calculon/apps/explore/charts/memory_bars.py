"""The memory of every pipeline stage by kind, against what there is."""

from collections.abc import Sequence
from typing import Any

from calculon.apps.report.bars import COLORS
from calculon.planner.stage_needs import StageNeed
from calculon.units import GIB

_PALETTE = ("blue", "orange", "green", "vermilion", "purple", "sky")
_REST = "#888888"

MOST_KINDS = len(_PALETTE)
"""Kinds with a colour of their own; the smaller ones are one."""


def kinds_of(stages: Sequence[StageNeed]) -> list[str]:
    """Return the kinds of tier-1 memory, the largest sum first."""
    sums: dict[str, float] = {}
    for one in stages:
        for kind, size in one.parts[0].items():
            sums[kind] = sums.get(kind, 0.0) + size
    return sorted(sums, key=lambda kind: -sums[kind])


def memory_bars(stages: Sequence[StageNeed]) -> dict[str, Any]:
    """Return the tier-1 memory of stages, GiB, as stacked bars below a line of what is usable."""
    kinds = kinds_of(stages)
    numbers = [one.stage for one in stages]
    shown = kinds if len(kinds) <= MOST_KINDS else kinds[: MOST_KINDS - 1]
    series = {kind: [one.parts[0].get(kind, 0.0) / GIB for one in stages] for kind in shown}
    if rest := kinds[len(shown) :]:
        series["the rest"] = [
            sum(one.parts[0].get(kind, 0.0) for kind in rest) / GIB for one in stages
        ]
    colours = [*(COLORS[name] for name in _PALETTE[: len(shown)]), _REST]
    data = [
        {
            "type": "bar",
            "orientation": "h",
            "name": kind,
            "y": numbers,
            "x": sizes,
            "marker": {"color": colour},
            "hovertemplate": f"stage %{{y}}: {kind} %{{x:.1f}} GiB<extra></extra>",
        }
        for (kind, sizes), colour in zip(series.items(), colours, strict=False)
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
