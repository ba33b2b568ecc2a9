"""The rate and the efficiency of the best plan over numbers of processors."""

from collections.abc import Mapping, Sequence
from typing import Any

from calculon.base.frozen import dataclass
from calculon.base.units import Unit
from calculon.documents.frontier import Axis
from calculon.render.bars import COLORS
from calculon.render.chart_axes import Quantity, by_factors, thinned

GREY = "#888888"  # on light and on dark alike

RATE = "sample_rate"

_ACROSS = 0.36
"""Share of the height that efficiencies have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CountPoint:
    """The best plan on a number of processors.

    Attributes
    ----------
    num_procs : int
        Processors.
    rate, efficiency : float or None
        Samples per second, and useful arithmetic at peak rate over the time; None where no plan can run.
    words : str
        The plan with its figures, or why there is none.
    link : str
        The address of the page on this number.
    """

    num_procs: int
    rate: float | None = None
    efficiency: float | None = None
    words: str
    link: str = ""


def scaling_lines(points: Sequence[CountPoint]) -> dict[str, Any] | None:
    """Return rates above and efficiencies below, over processors; None where no plan can run on any number of them.

    A dotted line is proportional to the processors; numbers without a plan have a cross.
    """
    ordered = sorted(points, key=lambda one: one.num_procs)
    good = [one for one in ordered if one.rate is not None]
    if not good:
        return None
    rate, efficiency = Quantity(RATE), Quantity("total_efficiency")
    counts = [one.num_procs for one in ordered]
    ratios = by_factors(counts)
    data = [
        *_ideal(good),
        _line(good, [one.rate for one in good], "y"),
        _line(good, [(one.efficiency or 0.0) * efficiency.factor for one in good], "y2"),
        *_crosses([one for one in ordered if one.rate is None]),
    ]
    layout = {
        "height": 420,
        "hovermode": "closest",
        "xaxis": {
            "title": {"text": "processors"},
            "anchor": "y2",
            "zeroline": False,
            **({"type": "log"} if ratios else {"rangemode": "tozero"}),
            **_ticks(thinned(counts)),
        },
        "yaxis": {
            "title": {"text": rate.unit or rate.words},
            "domain": [_ACROSS + 0.06, 1],
            "automargin": True,
            **(_logarithmic(data) if ratios else {"rangemode": "tozero"}),
        },
        "yaxis2": {
            "title": {"text": f"total efficiency, {efficiency.unit}"},
            "domain": [0, _ACROSS],
            "rangemode": "tozero",
            "automargin": True,
        },
        "legend": {"orientation": "h", "y": 1.01, "yanchor": "bottom", "x": 0},
    }
    return {"data": data, "layout": layout}


def _ticks(values: Sequence[float]) -> dict[str, Any]:
    return {"tickvals": list(values), "ticktext": [f"{value:,g}" for value in values]}


def _logarithmic(data: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return an axis of the rates with numbers of one digit, where equal ratios take equal lengths."""
    rates = [rate for trace in data if trace.get("yaxis") != "y2" for rate in trace["y"]]
    ticks = Axis(RATE, Unit("samples/s"), ratios=True).ticks(rates)
    return {"type": "log", **_ticks(ticks)}


def _points(several: Sequence[CountPoint]) -> dict[str, Any]:
    """Return what all traces of points share."""
    return {
        "type": "scatter",
        "x": [one.num_procs for one in several],
        "customdata": [[one.link, str(one.num_procs), one.words] for one in several],
        "hovertemplate": "%{x:,d} processors: %{customdata[2]}<extra></extra>",
    }


def _line(good: Sequence[CountPoint], values: Sequence[float | None], axis: str) -> dict[str, Any]:
    return {
        **_points(good),
        "mode": "lines+markers",
        "name": "best plan",
        "showlegend": axis == "y",
        "y": list(values),
        "yaxis": axis,
        "marker": {"color": COLORS["blue"], "size": 9},
        "line": {"color": COLORS["blue"], "width": 2},
    }


def _ideal(good: Sequence[CountPoint]) -> list[dict[str, Any]]:
    """Return the rate that grows in proportion to the processors from the fewest that can run."""
    if len(good) < 2:
        return []
    first, last = good[0], good[-1]
    rate = first.rate or 0.0
    return [
        {
            "type": "scatter",
            "mode": "lines",
            "name": "proportional to the processors",
            "x": [first.num_procs, last.num_procs],
            "y": [rate, rate * last.num_procs / first.num_procs],
            "line": {"color": GREY, "width": 1.5, "dash": "dot"},
            "hoverinfo": "skip",
        }
    ]


def _crosses(bad: Sequence[CountPoint]) -> list[dict[str, Any]]:
    """Return marks of numbers on which no plan can run, at the foot."""
    if not bad:
        return []
    return [
        {
            **_points(bad),
            "mode": "markers",
            "name": "no plan can run",
            "y": [0.0] * len(bad),
            "cliponaxis": False,
            "yaxis": "y2",
            "marker": {"symbol": "x", "size": 9, "color": GREY},
        }
    ]
