"""Chart of predicted and measured values, a panel for each study and quantity, with an error band."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from calculon.base.frozen import dataclass
from calculon.base.units import GIGA
from calculon.declarations.named_values import PUBLISHED
from calculon.render.chart import Axis, Chart, Line, Notes, Panel, band, categories, dots, tiled
from calculon.render.chart_axes import log_axis, value_axis

BAND = 0.10
"""Relative error of the band."""

MAX_ROWS = 16
"""Maximum number of rows of a single panel that are drawn by name, one per line."""

_WIDEST, _MANY = 4, 100
"""Panels per row, and number of points from which on they are smaller."""

_LOG = 5
"""Ratio of values from which on an axis is logarithmic."""


@dataclass(frozen=True, slots=True)
class Pairs:
    """One quantity of one study.

    Attributes:
        title, quantity, unit: Study, measured quantity, and its unit.
        measured, estimated: Pairs of values in this unit.
        score: ``n``, ``mean`` absolute error and ``bias``, in percent.
        labels: Names of the pairs.
    """

    title: str
    quantity: str
    unit: str
    measured: Sequence[float]
    estimated: Sequence[float]
    score: Mapping[str, Any]
    labels: Sequence[str] = ()

    def within(self, limit: float) -> "Pairs":
        """Return the pairs with times below a limit in milliseconds, and bytes in GB."""
        largest = max(self.measured)
        unit, factor = self.unit, 1.0
        if unit == "s" and largest < limit:
            unit, factor = "ms", 1e3
        elif unit == "B":
            unit, factor = "GB", 1 / GIGA
        measured, estimated = (
            [factor * value for value in values] for values in (self.measured, self.estimated)
        )
        return replace(self, unit=unit, measured=measured, estimated=estimated)


def validation_chart(pairs: Sequence[Pairs], edition: str = PUBLISHED) -> Chart:
    """Return the panels of compared quantities; a single panel with few named rows is drawn row by row."""
    if len(pairs) == 1 and 1 < len(pairs[0].labels) <= MAX_ROWS:
        return _rows(pairs[0], edition)
    across = min(_WIDEST, len(pairs))
    return Chart(
        title="Predicted and measured",
        terms=[edition],
        rows=tiled([_panel(one.within(0.1)) for one in pairs], across),
        width=max(4.0, 0.4 + 2.3 * across),
    )


def _percent(value: float) -> str:
    """Write a signed percentage."""
    return f"{value:+.1f} %".replace("-", "\N{MINUS SIGN}")


def _rows(one: Pairs, edition: str) -> Chart:
    """Return measured and predicted values on one line per row, with the error."""
    one = one.within(10)
    places, measured, estimated = range(len(one.labels)), one.measured, one.estimated
    pairs = list(zip(measured, estimated, strict=True))
    errors = [_percent((found / true - 1) * 100) for true, found in pairs]
    words = [
        f"{label}: measured {true:,.4g} {one.unit}, predicted {found:,.4g} {one.unit} ({error})"
        for label, (true, found), error in zip(one.labels, pairs, errors, strict=True)
    ]
    points = dots(zip(estimated, places, strict=True), words=words)
    values = [*measured, *estimated]
    panel = Panel(
        x=value_axis(
            one.quantity[0].upper() + one.quantity[1:], one.unit, values, ratio=_LOG, padding=0.18
        ),
        y=categories(one.labels),
        marks=[
            Line(
                x=[x for true, found in pairs for x in (true, found, float("nan"))],
                y=[y for place in places for y in (place,) * 3],
                color="silver",
                width=3,
            ),
            replace(points, name="measured", x=measured, color="gray", sizes=(7.0,), hollow=True),
            replace(points, name=f"predicted (edition {edition})"),
            Notes(x=[max(pair) for pair in pairs], y=places, texts=errors),
        ],
        height=0.9 + 0.3 * len(places),
    )
    title = f"{one.title}: mean error {one.score['mean']:.1f} %"
    return Chart(title=title, rows=((panel,),), width=7.2)


def _panel(one: Pairs) -> Panel:
    """Return pairs on equal axes, logarithmic if they span a wide range."""
    both = [*one.measured, *one.estimated]
    low, high = min(both), max(both)
    if low > 0 and high / low > _LOG:
        # Equal limits on both axes keep the diagonal at 45 degrees.
        axis = log_axis("", one.unit, [low / 1.35, high * 1.35], padding=0.0, most=5)
    else:
        margin = max(0.15 * (high - low), 1.5 * BAND * high)
        axis = Axis(unit=one.unit, limits=(max(0.0, low - margin), high + margin))
    ends = axis.limits or (0.0, 1.0)
    words = [
        f"{label}: measured {true:,.4g} {one.unit}, predicted {found:,.4g} {one.unit}"
        for label, true, found in zip(
            one.labels or [one.title] * len(both), one.measured, one.estimated, strict=False
        )
    ]
    return Panel(
        title=f"{one.title}, n = {one.score['n']:,}\n"
        f"mean error {one.score['mean']:.1f} %, bias {_percent(one.score['bias'])}",
        x=replace(axis, label=f"Measured {one.quantity}"),
        y=replace(axis, label="Predicted", unit=""),
        marks=[
            band(ends, BAND, name=f"within {100 * BAND:.0f} %", color="sky", opacity=0.3),
            Line(name="predicted = measured", x=ends, y=ends, color="gray", width=0.9),
            dots(
                zip(one.measured, one.estimated, strict=True),
                name="an execution",
                sizes=(3.4 if len(one.measured) < _MANY else 1.6,),
                words=words,
            ),
        ],
        height=2.55,
        square=True,
    )
