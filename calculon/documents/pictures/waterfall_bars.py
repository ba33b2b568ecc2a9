"""From one plan to another: a bar for each change between the times at both ends, and the memory beside it."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from calculon.base.frozen import dataclass
from calculon.base.units import GIB
from calculon.documents.waterfall_section import signed, steps_with_effect
from calculon.render.bars import COLORS
from calculon.render.canvas import BLACK, GREY, drawing, figure, wrapped
from calculon.render.chart_axes import time_unit
from calculon.render.digits import Digits

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SAVED, ADDED, WHOLE = COLORS["blue"], COLORS["vermilion"], "#4d4d4d"
"""Colours of what a change saves and adds, and of both ends; lengths and signs say the same."""


@dataclass(frozen=True, slots=True)
class Fall:
    """A waterfall to draw.

    Attributes
    ----------
    waterfall : mapping
        As plain data (:meth:`calculon.Waterfall.to_dict`).
    names : tuple of str
        What the plans at both ends are called.
    title, terms : str
        What both are plans of, and the edition with its preset.
    digits : Digits
        Those of the times.
    capacity : float or None
        Bytes of tier 1 that there are.
    """

    waterfall: Mapping[str, Any]
    names: tuple[str, str]
    title: str
    terms: str
    digits: Digits
    capacity: float | None = None

    @property
    def times(self) -> list[float]:
        """Seconds of the first plan and after each change with an effect."""
        return [
            self.waterfall["mine"]["seconds"],
            *(step["time_after"] for step in steps_with_effect(self.waterfall)),
        ]


def draw(falls: Sequence[Fall]) -> "Figure":
    """Draw a waterfall for each of several plans, one below the other.

    Parameters
    ----------
    falls : sequence of Fall
        At least one.
    """
    heights = [_HEAD + sum(_heights(one)) for one in falls]
    with drawing():
        picture = figure(_WIDTH, sum(heights))
        parts = picture.subfigures(len(falls), 1, squeeze=False, height_ratios=heights)[:, 0]
        for part, one in zip(parts, falls, strict=True):
            left, right = part.subplots(1, 2, sharey=True, width_ratios=(2.4, 1))
            _times(left, one)
            _memory(right, one)
            title = wrapped(f"{one.title}\nedition {one.terms}", _TITLE)
            part.suptitle(title, x=0.01, ha="left", fontsize=10)
    return picture


_WIDTH, _HEAD, _LINE, _GAP = 8.4, 1.15, 0.16, 0.17
"""Inches: the width of the picture, title and axis, a line of a label, and what is between labels."""

_LABEL = 34
"""Characters of a line of a label."""

_TITLE = 96
"""Characters of a line of the title."""

_NEAR = 0.2
"""Share of the time below which changes are so small that the axis does not start at 0."""

_FAR = 20
"""A capacity this many times the memory in use would leave nothing of the bars to be seen."""

_AROUND, _NUMBER, _THICK = 0.14, 0.32, 0.62
"""Room for the texts of times and of sizes, as shares of an axis; height of a bar, as a share of its row."""


def _labels(one: Fall) -> list[str]:
    steps = [step["change"] for step in steps_with_effect(one.waterfall)]
    return [wrapped(label, _LABEL) for label in (one.names[0], *steps, one.names[1])]


def _heights(one: Fall) -> list[float]:
    """Return the inches of each row."""
    return [_GAP + _LINE * (label.count("\n") + 1) for label in _labels(one)]


def _places(one: Fall) -> tuple[list[float], list[float]]:
    """Return the middle and the height of each row, in lines from the top."""
    heights = _heights(one)
    ends = [sum(heights[: i + 1]) for i in range(len(heights))]
    return [end - height / 2 for end, height in zip(ends, heights, strict=True)], heights


def _times(axes: "Axes", one: Fall) -> None:
    """Draw the times of both plans, and from one to the other what each change saves or adds."""
    unit, factor = time_unit(max(one.times))
    times = [time * factor for time in one.times]
    times.append(one.waterfall["best"]["seconds"] * factor)
    low, high = min(times), max(times)
    start = 0.0 if high - low >= _NEAR * high else max(0.0, low - 0.6 * (high - low))
    start = 0.0 if high == low else start
    places, heights = _places(one)
    for row, (place, height) in enumerate(zip(places, heights, strict=True)):
        thick = _THICK * min(height, _LINE * 2 + _GAP)
        if row in (0, len(places) - 1):
            ends, color = (start, times[row]), WHOLE
            text = one.digits.seconds([times[row] / factor], high / factor)[0]
        else:
            ends = (times[row - 1], times[row])
            color = SAVED if ends[1] <= ends[0] else ADDED
            change = (ends[1] - ends[0]) / factor
            text = signed(change, one.digits.seconds([abs(change)], high / factor)[0])
        axes.barh(place, max(ends) - min(ends), left=min(ends), height=thick, color=color)
        _note(axes, text, (max(ends), place))
        if row < len(places) - 1:  # where the next bar begins
            axes.plot([times[row]] * 2, [place, places[row + 1]], color=GREY, lw=0.7, zorder=0.5)
    room = (high - start) or high
    axes.set_xlim(start, high + 1.6 * _AROUND * room)
    total = sum(heights)
    axes.set_ylim(total, 0)
    axes.set_yticks(places, _labels(one))
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    per = {"step": "iteration"}.get(one.waterfall["per"], one.waterfall["per"])
    begins = "" if not start else ", not from 0"
    axes.set_xlabel(f"Time of {'an' if per == 'iteration' else 'a'} {per} ({unit}{begins})")


def _memory(axes: "Axes", one: Fall) -> None:
    """Draw what each plan on the way needs of tier 1, against the capacity."""
    points = [one.waterfall["mine"], *steps_with_effect(one.waterfall), one.waterfall["best"]]
    sizes = [point.get("bytes_after", point["bytes"]) / GIB for point in points]
    places, heights = _places(one)
    limit = None if one.capacity is None else one.capacity / GIB
    limit = limit if limit and limit < _FAR * max(sizes) else None
    widest = max([*sizes, limit or 0.0])
    for row, (place, height, size, point) in enumerate(
        zip(places, heights, sizes, points, strict=True)
    ):
        thick = _THICK * min(height, _LINE * 2 + _GAP)
        ends = row in (0, len(places) - 1)
        look: dict[str, Any] = {"color": WHOLE if ends else COLORS["sky"], "edgecolor": "white"}
        if not point["fits"]:
            look |= {"hatch": "////"}
        axes.barh(place, size, height=thick, **look)
        text = f"{size:.1f}" if ends else signed(point["bytes"], f"{abs(point['bytes']) / GIB:.1f}")
        beyond = limit if limit and 0 <= limit - size < _NUMBER * widest else size
        _note(axes, text + ("" if point["fits"] else " !"), (beyond, place))
    if limit:
        axes.axvline(limit, color=BLACK, lw=1.4, label="capacity")
        axes.legend(loc="lower right", bbox_to_anchor=(1, 1), borderpad=0, handlelength=1.2)
    axes.set_xlim(0, widest * 1.42)
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("Tier 1 of a processor (GiB)")


def _note(axes: "Axes", text: str, place: tuple[float, float]) -> None:
    """Write the size of a bar behind its end."""
    axes.annotate(text, place, xytext=(4, 0), textcoords="offset points", va="center", fontsize=8)
