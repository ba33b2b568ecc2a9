"""A statistic over one quantity, with a curve for each value of another."""

from collections.abc import Iterator, Sequence

from calculon.base.frozen import dataclass
from calculon.declarations.named_values import PUBLISHED
from calculon.render.canvas import wrapped
from calculon.render.chart import DASHES, SERIES, Axis, Chart, Line, Panel, line_look
from calculon.render.chart_axes import Quantity, count_axis, log_axis, value_axis, widened

MOST = 20
"""Curves that a reader can distinguish."""

_MARKED = 40
"""Places on a curve up to which each has a marker."""

_FAR = 20.0
"""Ratio of the largest to the smallest value from which the vertical axis is logarithmic."""


@dataclass(frozen=True, slots=True)
class Curve:
    """One curve: its label, and a value at each of its places, in their order; None if nothing can run there."""

    label: str
    places: Sequence[float]
    values: Sequence[float | None]


@dataclass(frozen=True, slots=True)
class Curves:
    """Several curves.

    Attributes:
        title: Model and machine.
        x, y: Text of the horizontal axis; name of the statistic.
        curves: At least one.
        names: Names of the places, from 0 on, if they are no numbers.
        by: The column whose values the curves have.
        terms: Editions of the model.
    """

    title: str
    x: str
    y: str
    curves: Sequence[Curve]
    names: Sequence[str] = ()
    by: str = ""
    terms: Sequence[str] = (PUBLISHED,)


def curves(content: Curves) -> Chart:
    """Return the curves; a cross at the foot of the axes is a place at which one cannot run."""
    quantity = Quantity(content.y)
    values = [v * quantity.factor for one in content.curves for v in one.values if v is not None]
    y = value_axis(quantity.title, quantity.unit, values, ratio=_FAR)
    marks = [
        mark
        for number, one in enumerate(content.curves)
        for mark in _marks(content, one, number, quantity.factor, y)
    ]
    panel = Panel(x=_places_axis(content), y=y, marks=marks, height=3.8)
    by = f"curves: {content.by}" if content.by and len(content.curves) > 1 else ""
    title = f"{content.title}: {quantity.words}" if content.title else quantity.title
    return Chart(title=title, subtitle=by, terms=content.terms, rows=((panel,),), width=6.4)


def _marks(content: Curves, one: Curve, number: int, factor: float, y: Axis) -> Iterator[Line]:
    """Yield a curve, and its crosses a little higher than the ones of the curve before."""
    color, marker, _ = line_look(number)
    found = [(x, v * factor) for x, v in zip(one.places, one.values, strict=True) if v is not None]
    yield Line(
        name=one.label if len(content.curves) > 1 else "",
        x=[x for x, _ in found],
        y=[v for _, v in found],
        color=color,
        dash="none" if content.names else DASHES[number // len(SERIES) % len(DASHES)],
        marker=marker if len(found) <= _MARKED else "",
    )
    missing = [x for x, v in zip(one.places, one.values, strict=True) if v is None]
    if missing:
        low, high = y.limits or (0.0, 1.0)
        share = 0.015 + 0.018 * (number % len(SERIES))
        foot = low * (high / low) ** share if y.scale == "log" else low + share * (high - low)
        yield Line(
            name="cannot run",
            x=missing,
            y=[foot] * len(missing),
            color=color,
            dash="none",
            marker="thin cross",
            sizes=(3.5,),
        )


def _places_axis(content: Curves) -> Axis:
    """Return the horizontal axis: names in their order, counts, or numbers that may grow by factors."""
    places = sorted({x for one in content.curves for x in one.places})
    if content.names:
        ticks = [(place, wrapped(name, 18)) for place, name in enumerate(content.names)]
        ends = (-0.3, len(content.names) - 0.7)
        return Axis(label=content.x, limits=ends, ticks=ticks)
    if all(float(x).is_integer() for x in places):
        return count_axis(content.x, places)
    if grows_by_factors(places):
        return log_axis(content.x, "", places)
    return Axis(label=content.x, limits=widened(places))


def grows_by_factors(places: Sequence[float]) -> bool:
    """Return whether ascending places are much further apart at the end than at the beginning.

    >>> grows_by_factors([1.5, 3.0, 6.0, 12.0, 24.0]), grows_by_factors([1.5, 2.0, 2.5, 3.0])
    (True, False)
    """
    if len(places) < 3 or places[0] <= 0:
        return False
    first, last = places[1] - places[0], places[-1] - places[-2]
    return places[-1] >= 10 * places[0] and last > 4 * first
