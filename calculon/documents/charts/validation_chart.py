"""Predicted against measured, a panel for each study and quantity, with a band of errors."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from calculon.base.frozen import dataclass
from calculon.declarations.named_values import PUBLISHED
from calculon.render.chart import (
    Area,
    Axis,
    Chart,
    Line,
    Mark,
    Notes,
    Panel,
    categories,
    in_rows,
    plain,
)
from calculon.render.chart_axes import log_axis, log_ticks

BAND = 0.10
"""Relative error that the band shows."""

_WIDEST = 4
"""Panels in a row."""

MOST_ROWS = 16
"""Rows of a single panel that are drawn one below the other, each with its name."""

_FAR = 5.0
"""Ratio of the largest to the smallest value from which axes are logarithmic."""


@dataclass(frozen=True, slots=True)
class Pairs:
    """One quantity of one study.

    Attributes
    ----------
    title, quantity, unit : str
        The study, the measured quantity, and its unit.
    measured, estimated : sequence of float
        Pairs in this unit.
    score : mapping
        ``n``, ``mean`` absolute error and ``bias``, in percent.
    labels : sequence of str
        Names of the pairs; none if they are too many to be read.
    """

    title: str
    quantity: str
    unit: str
    measured: Sequence[float]
    estimated: Sequence[float]
    score: Mapping[str, Any]
    labels: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Validation:
    """All pairs, and the edition of the model."""

    pairs: Sequence[Pairs]
    edition: str = PUBLISHED


def validation(found: Validation) -> Chart:
    """Return a panel for each quantity; the line is perfect agreement, the band errors up to :data:`BAND`.

    A single quantity of few named rows has a row for each.
    """
    if len(found.pairs) == 1 and 1 < len(found.pairs[0].labels) <= MOST_ROWS:
        return _rows(found.pairs[0], found.edition)
    panels = in_rows([_scatter(one) for one in found.pairs], _WIDEST)
    return Chart(
        title="Predicted against measured",
        terms=[found.edition],
        rows=panels,
        width=max(4.2, 0.4 + 2.3 * len(panels[0])),
    )


def _rows(one: Pairs, edition: str) -> Chart:
    """Return measured and predicted on one line for each row, and the error in percent."""
    factor, unit = (1e3, "ms") if one.unit == "s" and max(one.measured) < 10 else (1.0, one.unit)
    places = range(len(one.labels))
    measured, estimated = ([v * factor for v in values] for values in (one.measured, one.estimated))
    both, label = [*measured, *estimated], one.quantity
    if 0 < _FAR * min(measured) < max(measured):
        x = log_axis(label, unit, [min(both) / 1.2, max(both) * 1.8], room=0.0, form=plain)
    else:
        x = Axis(label=label, unit=unit, limits=(0.0, 1.15 * max(both)))
    lines = [
        Line(x=[true, found], y=[place, place], color="silver", width=3.0)
        for place, true, found in zip(places, measured, estimated, strict=True)
    ]
    circle: dict[str, Any] = {"dash": "none", "marker": "circle", "y": places}
    ends = [max(pair) for pair in zip(measured, estimated, strict=True)]
    errors = [_signed(found / true - 1) for true, found in zip(measured, estimated, strict=True)]
    marks = [
        *lines,
        Line(name="measured", x=measured, color="grey", hollow=True, sizes=(7.0,), **circle),
        Line(name="predicted", x=estimated, **circle),
        Notes(x=ends, y=places, texts=errors),
    ]
    panel = Panel(x=x, y=categories(one.labels), marks=marks, height=0.8 + 0.3 * len(places))
    title = f"{one.title}: mean error {one.score['mean']:.1f} %"
    return Chart(title=title, terms=[edition], rows=((panel,),), width=7.2)


def _scatter(one: Pairs) -> Panel:
    """Return pairs on equal axes, logarithmic when they span much."""
    small = one.unit == "s" and max(one.measured) < 0.1
    unit, factor = ("ms", 1e3) if small else (one.unit, 1.0)
    measured, estimated = ([v * factor for v in values] for values in (one.measured, one.estimated))
    points = Line(
        name="an execution",
        x=measured,
        y=estimated,
        dash="none",
        marker="circle",
        sizes=(4.0 if len(measured) < 100 else 2.0,),
        words=one.labels if len(one.labels) == len(measured) else (),
    )
    lines = (
        f"{one.title}",
        f"{one.quantity} ({unit}), n = {one.score['n']:,}",
        f"mean error {one.score['mean']:.1f} %, bias {_signed(one.score['bias'] / 100)}",
    )
    axis = agreement_axis([*measured, *estimated])
    return Panel(
        title="\n".join(lines),
        x=replace(axis, label="Measured"),
        y=replace(axis, label="Predicted"),
        marks=[*agreement(axis, "predicted = measured"), points],
        height=2.6,
        square=True,
    )


def agreement_axis(values: Sequence[float]) -> Axis:
    """Return the axis of measured and of predicted values."""
    low, high = min(values), max(values)
    if low > 0 and high / low > _FAR:
        ends = low / 1.35, high * 1.35
        ticks = [(tick, plain(tick)) for tick in log_ticks(*ends, most=5)]
        return Axis(scale="log", limits=ends, ticks=ticks)
    margin = max(0.15 * (high - low), 1.5 * BAND * high)
    return Axis(limits=(max(0.0, low - margin), high + margin))


def agreement(axis: Axis, name: str) -> list[Mark]:
    """Return the band of small errors and the line of perfect agreement."""
    ends = axis.limits or (0.0, 1.0)
    lower, upper = ([end * (1 + sign * BAND) for end in ends] for sign in (-1, 1))
    band = f"within {100 * BAND:g} %"
    return [
        Area(name=band, x=ends, low=lower, high=upper, color="sky", opacity=0.3),
        Line(name=name, x=ends, y=ends, color="grey", width=0.9),
    ]


def _signed(share: float) -> str:
    return f"{100 * share:+.1f} %".replace("-", "\N{MINUS SIGN}")
