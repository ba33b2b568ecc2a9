"""Days against money: whole runs on several machines and numbers of processors, and what limits allow."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from calculon.base.errors import Infeasible
from calculon.declarations.origin import stated_name
from calculon.render.canvas import (
    BLACK,
    GREY,
    MARKERS,
    SERIES,
    drawing,
    figure,
    logarithmic_ticks,
    note_edition,
    wrapped,
)
from calculon.render.texts import token_count

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Document = Mapping[str, Any]

_AXES = (400.0, 200.0)
"""About the width and the height of the axes, in points."""

_MARK, _LINE, _LETTER = 3.5, 4.0, 4.0
"""Points: half a mark, half a line, and a letter of the texts beside marks."""

_Box = tuple[float, float, float, float]
"""Left, lower, right and upper end."""

_WIDEST = 48
"""Letters of an entry of the legend up to which two stand side by side."""

_LEAST = 0.15
"""Range of the axis of money to both sides, as a part of the middle, where all runs cost about as much."""

_FACTOR = 4.0
"""Ratio of the longest to the shortest run from which the axis of days is logarithmic."""

_WORDS = {"usd": "USD", "processor_hours": "Processor-hours"}

_SIGHT = 0.3
"""How far beyond the points a limit is drawn, as a part of their range."""


def draw(document: Document) -> "Figure":
    """Draw a point for each machine and number of processors, a line through those that no other beats in both.

    Points that miss a limit are hollow. The cheapest that meets them is ringed, with the interval of its days.

    Parameters
    ----------
    document : mapping
        :meth:`calculon.advise.runs.fleet.FleetAnswer.to_dict`.

    Raises
    ------
    Infeasible
        When no plan fits, and when no price is known of several machines.
    """
    money = document["money"]
    points = [one for one in document["points"] if one.get(money) is not None]
    if not points:
        reason = (
            "no plan fits on any of these counts"
            if money
            else "no price is known of these machines; --price states one"
        )
        raise Infeasible("nothing", reason)
    unit, factor = _unit(money, max(one[money] for one in points))
    asked = document["question"]
    with drawing():
        picture = figure(6.4, 4.8)
        axes = picture.subplots()
        _series(axes, document, points, factor)
        _front(axes, document, factor)
        _best(axes, document, factor)
        _scale(axes, points, [one[money] * factor for one in points])
        lines = _limits(axes, points, factor)
        _names(axes, document, points, factor, lines)
        axes.set_xlabel("Days of the whole run, with failures")
        axes.set_ylabel(f"{unit}, not from 0" if axes.get_ylim()[0] > 0 else unit)
        tokens = token_count(document["tokens"])
        model = stated_name(asked["model"])
        axes.set_title(f"{tokens} tokens of {model}: the best plan on each number of processors")
        note_edition(axes, [asked["edition"]])
        widest = max(len(label) for label in axes.get_legend_handles_labels()[1])
        picture.legend(loc="outside lower center", ncols=2 if widest <= _WIDEST else 1)
    return picture


def _systems(document: Document) -> list[str]:
    return list(dict.fromkeys(one["system"] for one in document["points"]))


def _unit(money: str, largest: float) -> tuple[str, float]:
    """Return the unit of money that suits the largest, and its factor."""
    words = _WORDS[money]
    if largest >= 1e6:
        return f"Million {words}" if money == "usd" else f"{words} (million)", 1e-6
    if largest >= 1e4:
        return f"Thousand {words}" if money == "usd" else f"{words} (thousand)", 1e-3
    return words, 1.0


def _series(axes: "Axes", document: Document, points: Sequence[Document], factor: float) -> None:
    """Draw the points of each machine in the order of their processors."""
    money, prices = document["money"], {one["system"]: one for one in document["prices"]}
    for number, system in enumerate(_systems(document)):
        own = sorted(
            (one for one in points if one["system"] == system), key=lambda one: one["num_procs"]
        )
        label = f"{system}: {_price(prices.get(system))}" if money == "usd" else system
        look: dict[str, Any] = {
            "color": SERIES[number % len(SERIES)],
            "marker": MARKERS[number % len(MARKERS)],
        }
        if not own:
            axes.plot([], [], label=wrapped(f"{label}, not drawn", 80), ls="none", **look)
            continue
        x, y = [one["days"] for one in own], [one[money] * factor for one in own]
        for one, *place in zip(own, x, y, strict=True):
            filled: dict[str, Any] = {} if one["meets"] else {"markerfacecolor": "white"}
            axes.plot(*([value] for value in place), ls="none", ms=5.5, **look, **filled)
        axes.plot([], [], label=wrapped(label, 80), ls="none", ms=5.5, **look)
    if any(not one["meets"] for one in points):
        hollow: dict[str, Any] = {"color": GREY, "marker": "o", "markerfacecolor": "white"}
        axes.plot([], [], label="misses a limit", ls="none", ms=5.5, **hollow)


def _price(price: Document | None) -> str:
    """Say the price of a machine."""
    if price is None or price["usd"] is None:
        return "no price"
    said = [f"{price['usd']:,.2f} USD/h", price["kind"].replace("_", " "), price["date"]]
    return ", ".join(filter(None, said))


def _front(axes: "Axes", document: Document, factor: float) -> None:
    """Draw a line through the points that no other beats in days and money."""
    money = document["money"]
    front = [document["points"][place] for place in document["frontier"]]
    if len(front) < 2:
        return
    x, y = [one["days"] for one in front], [one[money] * factor for one in front]
    axes.plot(x, y, color=GREY, lw=1.4, drawstyle="steps-post", zorder=1.5, label="frontier")


_Line = tuple[float | None, float | None]
"""A vertical line at some days, or a horizontal one at an amount of money."""


def _limits(axes: "Axes", points: Sequence[Document], factor: float) -> list[_Line]:
    """Draw the deadline and the budget where they are in sight, else only name them; return those that are drawn."""
    limits = {one["field"]: one["limit"] for point in points for one in point["limits"]}
    look: dict[str, Any] = {"color": BLACK, "lw": 1.2}
    ends = (*axes.get_xlim(), *axes.get_ylim())
    found: list[_Line] = []
    if "deadline" in limits:
        days = limits["deadline"]
        words = f"deadline {float(f'{days:.3g}'):,g} d"
        if _in_sight(days, *ends[:2]):
            axes.axvline(days, label=words, **look)
            found.append((days, None))
        else:
            axes.plot([], [], label=f"{words}, not in sight", **look)
    if "budget_usd" in limits:
        usd = limits["budget_usd"]
        words = f"budget {token_count(usd)} USD"
        if _in_sight(usd * factor, *ends[2:]):
            axes.axhline(usd * factor, ls="--", label=words, **look)
            found.append((None, usd * factor))
        else:
            axes.plot([], [], ls="--", label=f"{words}, not in sight", **look)
    return found


def _in_sight(value: float, low: float, high: float) -> bool:
    """Tell whether a limit is near enough to the points to be drawn."""
    return value > 0 and low - _SIGHT * (high - low) <= value <= high + _SIGHT * (high - low)


def _best(axes: "Axes", document: Document, factor: float) -> None:
    """Ring the best point that meets the limits, or the one that misses them by least."""
    place = document["nearest"]
    if place is None:
        return
    one = document["points"][place]
    value = one[document["money"]]
    if value is None:
        return
    words = "best" if document["best"] is not None else "nearest to the limits"
    words += f": {one['num_procs']:,} x {one['system']}"
    y = value * factor
    ring: dict[str, Any] = {"marker": "o", "ms": 13, "mfc": "none", "mec": BLACK, "mew": 1.3}
    axes.plot([one["days"]], [y], ls="none", label=words, zorder=4, **ring)
    if one["days_low"] is not None:
        ends = [one["days_low"], one["days_high"]]
        bar: dict[str, Any] = {"color": BLACK, "lw": 3, "alpha": 0.25, "solid_capstyle": "butt"}
        axes.plot(ends, [y, y], label="interval of its days", zorder=1.2, **bar)


def _scale(axes: "Axes", points: Sequence[Document], money: Sequence[float]) -> None:
    """Scale days by powers where they differ much, and money so that small differences look small."""
    days = [one["days"] for one in points]
    if max(days) > _FACTOR * min(days):
        axes.set_xscale("log", base=10)
        logarithmic_ticks(axes.xaxis, (1.0, 2.0, 3.0, 5.0, 7.0))
    axes.margins(0.08, 0.1)
    low, high = min(money), max(money)
    if high - low < _LEAST * high:
        middle = (low + high) / 2
        axes.set_ylim((1 - _LEAST) * middle, (1 + _LEAST) * middle)


def _names(
    axes: "Axes",
    document: Document,
    points: Sequence[Document],
    factor: float,
    lines: Sequence[_Line],
) -> None:
    """Write the processors of the best point, of those of the front, and of others where there is room."""
    from matplotlib.patheffects import withStroke

    money, rows = document["money"], document["points"]
    first = dict.fromkeys((document["nearest"], *document["frontier"]))
    named = [rows[place] for place in first if place is not None]
    order = [one for one in named if one.get(money) is not None]
    order += [one for one in points if one not in order]
    place = _places(axes)
    marks = [place(one["days"], one[money] * factor) for one in points]
    taken = [(x - _MARK, y - _MARK, x + _MARK, y + _MARK) for x, y in marks]
    for days, value in lines:
        across, up = place(days or points[0]["days"], value or 0.0)
        taken.append(
            (across - 1, 0.0, across + 1, _AXES[1]) if days else (0.0, up - 1, _AXES[0], up + 1)
        )
    look: dict[str, Any] = {"textcoords": "offset points", "fontsize": 7, "color": "#222222"}
    halo = [withStroke(linewidth=2.0, foreground="white")]
    for one in order:
        text, at = f"{one['num_procs']:,}", (one["days"], one[money] * factor)
        found = _room(place(*at), text, taken)
        if found is None:
            continue
        offset, box = found
        taken.append(box)
        side = "left" if offset[0] > 0 else "right"
        axes.annotate(text, at, xytext=offset, ha=side, va="center", path_effects=halo, **look)


def _places(axes: "Axes") -> Callable[[float, float], tuple[float, float]]:
    """Return what turns values into about their places, in points."""
    low, high = axes.get_xlim()
    bottom, top = axes.get_ylim()
    logarithmic = axes.get_xscale() == "log"

    def place(x: float, y: float) -> tuple[float, float]:
        across = math.log(x / low, high / low) if logarithmic else (x - low) / (high - low)
        return across * _AXES[0], (y - bottom) / (top - bottom) * _AXES[1]

    return place


def _room(
    at: tuple[float, float], text: str, taken: Sequence[_Box]
) -> tuple[tuple[float, float], _Box] | None:
    """Return where beside a mark a text fits, and the box that it takes; None where it fits nowhere."""
    width = _LETTER * len(text)
    for across, up in ((7, 6), (7, -6), (-7, 6), (-7, -6), (9, 0), (-9, 0)):
        left = at[0] + across - (width if across < 0 else 0)
        box = left, at[1] + up - _LINE, left + width, at[1] + up + _LINE
        if not any(_overlap(box, other) for other in taken):
            return (across, up), box
    return None


def _overlap(one: _Box, other: _Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
