"""Plans by two statistics, and those that no other one beats in both."""

from collections.abc import Mapping, Sequence
from typing import Any

from calculon.base.frozen import dataclass
from calculon.base.records import Column
from calculon.render.bars import COLORS
from calculon.render.frontier import Axis

GREY = "#8a929c"

_LONGEST = 40
"""Characters of the words of a statistic beside its axis; of others its name is shorter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A plan.

    Attributes
    ----------
    x, y : float
        Its statistics, in their own units.
    words : str
        The plan, and both statistics, in words.
    name : str
        What it has in common with the cell and the row of its split.
    link : str
        The address of the page with this plan.
    """

    x: float
    y: float
    words: str
    name: str
    link: str


def plans_chart(
    x: Column,
    y: Column,
    front: Sequence[Point],
    splits: Sequence[Point],
    shown: Point | None = None,
    best: Point | None = None,
) -> Mapping[str, Any]:
    """Return the chart.

    Parameters
    ----------
    x, y : Column
        The statistics.
    front : sequence of Point
        Plans that no other one beats in both, in the order of `x`.
    splits : sequence of Point
        The best plan of each split.
    shown, best : Point, optional
        The plan of the page, and the best of all.
    """
    every = [*front, *splits, *(one for one in (shown, best) if one is not None)]
    across = Axis.of(x.name, x.unit, [one.x for one in every])
    up = Axis.of(y.name, y.unit, [one.y for one in every])
    sizes = [
        axis.scale(values)
        for axis, values in ((across, [o.x for o in every]), (up, [o.y for o in every]))
    ]
    traces = [
        ("each split", splits, {"color": GREY, "size": 8, "opacity": 0.75}, "markers"),
        ("unbeaten", front, {"color": COLORS["blue"], "size": 9}, "lines+markers"),
        (
            "best",
            [best] if best else [],
            {"color": COLORS["orange"], "size": 15, "symbol": "star"},
            "markers",
        ),
        (
            "shown",
            [shown] if shown else [],
            {
                "color": COLORS["vermilion"],
                "size": 16,
                "symbol": "circle-open",
                "line": {"width": 2},
            },
            "markers",
        ),
    ]
    data = [_points(*trace, sizes) for trace in traces if trace[1]]
    layout = {
        "height": 380,
        "hovermode": "closest",
        "xaxis": _axis(x, across, [one.x for one in every]),
        "yaxis": {**_axis(y, up, [one.y for one in every]), "automargin": True},
        "legend": {"orientation": "h", "y": 1.01, "yanchor": "bottom", "x": 0},
    }
    return {"data": data, "layout": layout}


def _points(
    name: str,
    points: Sequence[Point],
    marker: Mapping[str, Any],
    mode: str,
    sizes: Sequence[tuple[float, str]],
) -> dict[str, Any]:
    (across, _), (up, _) = sizes
    return {
        "type": "scatter",
        "name": name,
        "mode": mode,
        "x": [one.x / across for one in points],
        "y": [one.y / up for one in points],
        "customdata": [[one.link, one.name, one.words] for one in points],
        "marker": {**marker, "line": {"width": 0, **marker.get("line", {})}},
        "line": {"shape": "linear", "width": 1, "dash": "dot", "color": COLORS["blue"]},
        "hovertemplate": "%{customdata[2]}<extra></extra>",
    }


def _axis(one: Column, axis: Axis, values: Sequence[float]) -> dict[str, Any]:
    """Return an axis; with round numbers of one digit where equal ratios take equal lengths."""
    size, unit = axis.scale(values)
    words = one.help if len(one.help) <= _LONGEST else one.name.replace("_", " ")
    found = {"title": {"text": f"{words} ({unit})" if unit else words}, "zeroline": False}
    if not axis.ratios:
        return found
    ticks = axis.ticks([value / size for value in values])
    return {**found, "type": "log", "tickvals": ticks, "ticktext": [f"{tick:,g}" for tick in ticks]}
