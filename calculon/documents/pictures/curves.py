"""A statistic over one quantity, with a curve for each value of another."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from calculon.base.frozen import dataclass
from calculon.declarations.named_values import PUBLISHED
from calculon.render.canvas import (
    GREY,
    MARKERS,
    SERIES,
    STYLES,
    count_axis,
    drawing,
    figure,
    logarithmic_ticks,
    note_edition,
    plain_ticks,
    wrapped,
)
from calculon.render.chart_axes import Quantity

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST = 20
"""Curves that can be told apart."""

_MARKED = 40
"""Places on a curve up to which each has a mark."""

_ROOM = 1.06
"""Height of the axes over the largest value."""

_SPREAD = 20.0
"""Ratio of the largest to the smallest value from which the vertical axis is logarithmic."""


@dataclass(frozen=True, slots=True)
class Curve:
    """One curve: its label, and a value at each of its places, in their order; None where nothing can run."""

    label: str
    places: Sequence[float]
    values: Sequence[float | None]


@dataclass(frozen=True, slots=True)
class Curves:
    """The content of the picture.

    Attributes
    ----------
    title : str
        What it is about.
    x, y : str
        Text of the horizontal axis; name of the statistic.
    names : sequence of str
        What the places are called, from 0 on, where they are no numbers.
    curves : sequence of Curve
        At least one.
    by : str
        What the curves differ in.
    editions : sequence of str
        Editions of the model.
    """

    title: str
    x: str
    y: str
    curves: Sequence[Curve]
    names: Sequence[str] = ()
    by: str = ""
    editions: Sequence[str] = (PUBLISHED,)


def draw(content: Curves) -> "Figure":
    """Draw the curves; a cross at the foot of the axes is a place at which one cannot run."""
    y, several = Quantity(content.y), len(content.curves) > 1
    with drawing():
        picture = figure(6.4, 4.2)
        axes = picture.subplots()
        for number, one in enumerate(content.curves):
            found = [(x, v) for x, v in zip(one.places, one.values, strict=True) if v is not None]
            look: dict[str, Any] = {
                "color": SERIES[number % len(SERIES)],
                "marker": MARKERS[number % len(MARKERS)] if len(found) <= _MARKED else "",
            }
            x, values = [x for x, _ in found], [v * y.factor for _, v in found]
            line = STYLES[number // len(SERIES) % len(STYLES)] if not content.names else "none"
            axes.plot(x, values, label=one.label, linestyle=line, **look)
            _missing(axes, one, number, look["color"])
        if any(value is None for one in content.curves for value in one.values):
            axes.plot([], [], color=GREY, label="cannot run", **_CROSS)
        _scale(axes, content)
        axes.set_xlabel(content.x)
        axes.set_ylabel(y.label)
        axes.set_title(content.title)
        note_edition(axes, content.editions)
        handles, labels = axes.get_legend_handles_labels()
        if several or len(handles) > 1:
            widest = max(map(len, labels))
            columns = 1 if widest > 40 else 2 if widest > 18 else 4
            picture.legend(
                handles,
                [wrapped(label, 80) for label in labels],
                loc="outside lower center",
                ncols=columns,
                title=content.by or None,
                title_fontsize=8,
            )
    return picture


_CROSS: dict[str, Any] = {"marker": "x", "linestyle": "none", "markersize": 3.5}


def _missing(axes: "Axes", one: Curve, number: int, color: str) -> None:
    """Mark the places at which a curve has no value, at the foot of the axes, each curve a little higher."""
    places = [x for x, value in zip(one.places, one.values, strict=True) if value is None]
    height = 0.015 + 0.018 * (number % len(SERIES))
    across = axes.get_xaxis_transform()
    axes.plot(places, [height] * len(places), transform=across, color=color, **_CROSS)


def _scale(axes: "Axes", content: Curves) -> None:
    """Scale both axes: counts that grow by factors by powers, names in their order; values from 0 or by powers."""
    places = sorted({x for one in content.curves for x in one.places})
    if content.names:
        axes.set_xticks(range(len(content.names)), [wrapped(name, 18) for name in content.names])
        axes.margins(x=0.1)
    elif all(float(x).is_integer() for x in places):
        count_axis(axes, places)
    elif _grows_by_factors(places):
        axes.set_xscale("log", base=10)
        logarithmic_ticks(axes.xaxis, (1.0, 2.0, 5.0))
    values = [v for one in content.curves for v in one.values if v is not None]
    if min(values) > 0 and max(values) > _SPREAD * min(values):
        axes.set_yscale("log", base=10)
        plain_ticks(axes)
    elif min(values) >= 0 < max(values):
        axes.set_ylim(0, _ROOM * max(values) * Quantity(content.y).factor)


def _grows_by_factors(places: Sequence[float]) -> bool:
    """Tell whether ascending places are much further apart at the end than at the beginning.

    >>> _grows_by_factors([1.5, 3.0, 6.0, 12.0, 24.0]), _grows_by_factors([1.5, 2.0, 2.5, 3.0])
    (True, False)
    """
    if len(places) < 3 or places[0] <= 0:
        return False
    first, last = places[1] - places[0], places[-1] - places[-2]
    return places[-1] >= 10 * places[0] and last > 4 * first
