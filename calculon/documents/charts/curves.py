"""A statistic over a quantity, with a line for each value of another."""

from collections.abc import Iterator, Sequence

from calculon.base.frozen import dataclass
from calculon.declarations.named_values import PUBLISHED
from calculon.render.canvas import wrapped
from calculon.render.chart import (
    SERIES,
    Axis,
    Chart,
    Floats,
    Line,
    Panel,
    Texts,
    categories,
    line_look,
)
from calculon.render.chart_axes import (
    Quantity,
    by_factors,
    count_axis,
    log_axis,
    value_axis,
    widened,
)

MOST = 20
"""Distinguishable lines."""

_MARKED = 40  # points of a line up to which each has a marker
_SPREAD = 20.0  # ratio of values from which their axis is logarithmic


@dataclass(frozen=True, slots=True)
class Curve:
    """One line: its label, and a value at each of its ascending places; None where nothing can run."""

    label: str
    places: Sequence[float]
    values: Sequence[float | None]


@dataclass(frozen=True, slots=True)
class Curves:
    """The content of the chart.

    Attributes
    ----------
    title, plan : str
        Model and system; the execution if there is only one.
    x, y : str
        Text of the horizontal axis; name of the statistic.
    names : sequence of str
        Names of the places, from 0 on, if these are not numbers.
    curves : sequence of Curve
        At least one.
    by : str
        Names of the quantities in which the curves differ.
    editions : sequence of str
        Editions of the cost model.
    """

    title: str
    x: str
    y: str
    curves: Sequence[Curve]
    names: Texts = ()
    by: str = ""
    editions: Texts = (PUBLISHED,)
    plan: str = ""


def curves(content: Curves) -> Chart:
    """Return the curves, with crosses at the bottom at places where nothing can run."""
    quantity = Quantity(content.y)
    values = [v * quantity.factor for one in content.curves for v in one.values if v is not None]
    places = sorted({place for one in content.curves for place in one.places})
    x = _place_axis(content, places)
    y = value_axis(quantity.title, quantity.unit, values, ratio=_SPREAD)
    differ = f"one line per {content.by}" if content.by and len(content.curves) > 1 else ""
    return Chart(
        title=content.title or f"{quantity.title} over {content.x}",
        subtitle="; ".join(filter(None, (content.plan, differ))),
        terms=content.editions,
        rows=((Panel(x=x, y=y, marks=[*_lines(content, y, quantity.factor)], height=3.7),),),
        width=6.4,
    )


def _place_axis(content: Curves, places: Floats) -> Axis:
    """Return the horizontal axis: names, counts, or numbers, logarithmic if these grow by factors."""
    if content.names:
        names = [wrapped(name, 18) for name in content.names]
        return categories(names, label=content.x, down=False)
    if all(float(place).is_integer() for place in places):
        return count_axis(content.x, places)
    if by_factors(places):
        return log_axis(content.x, "", places)
    return Axis(label=content.x, limits=widened(places))


def _lines(content: Curves, y: Axis, factor: float) -> Iterator[Line]:
    """Yield the line of each curve and its crosses, which are a little higher for each curve."""
    missing = False
    for number, one in enumerate(content.curves):
        found = [(x, v) for x, v in zip(one.places, one.values, strict=True) if v is not None]
        color, marker, _ = line_look(number)
        *_, dash = line_look(number // len(SERIES))  # dashes distinguish lines of one colour
        yield Line(
            name=one.label if len(content.curves) > 1 else "",
            x=[place for place, _ in found],
            y=[value * factor for _, value in found],
            color=color,
            dash="none" if content.names else dash,
            marker=marker if len(found) <= _MARKED else "",
        )
        nowhere = [x for x, value in zip(one.places, one.values, strict=True) if value is None]
        if nowhere:
            missing = True
            foot = y.value(0.015 + 0.018 * (number % len(SERIES)))
            yield _crosses("", color, nowhere, [foot] * len(nowhere))
    if missing:
        yield _crosses("cannot run", "grey")


def _crosses(name: str, color: str, x: Floats = (), y: Floats = ()) -> Line:
    return Line(name=name, x=x, y=y, color=color, dash="none", marker="thin cross", sizes=(3.5,))
