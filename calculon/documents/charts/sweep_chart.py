"""Chart of a statistic of a sweep over one quantity, with a curve for each value of another."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from calculon.base.errors import Infeasible, Problem, SpecError, nearest
from calculon.base.frozen import dataclass
from calculon.base.units import Array
from calculon.declarations.named_values import PUBLISHED
from calculon.documents.pareto import axis, terms
from calculon.render.canvas import wrapped
from calculon.render.chart import DASHES, SERIES, Axis, Chart, Line, Panel, dots, line_look
from calculon.render.chart_axes import Quantity, count_axis, log_axis, value_axis, widened
from calculon.search.sweep.sweep_result import Sweep

MOST = 20
"""Maximum number of distinguishable curves."""

_MARKED = 40
"""Number of points of a curve up to which each has a marker."""

_FAR = 20.0
"""Ratio of the largest to the smallest value from which on the vertical axis is logarithmic."""


@dataclass(frozen=True, slots=True)
class Curve:
    """Curve: its label, and a value at each of its positions, in order; None if nothing can run."""

    label: str
    places: Sequence[float]
    values: Sequence[float | None]


def sweep_curves(result: Sweep, x: str, y: str, by: str | None) -> Chart:
    """Return a statistic by a column, with a curve for each value of another column (:meth:`calculon.Sweep.plot`)."""
    if not result.feasible.any():
        raise Infeasible("nothing", f"none of {len(result):,} rows can run")
    statistic, sign = axis(y, "y")
    x = x or _widest(result)
    across, names = _places(_column(result, x, "x"))
    apart = [by] if by else [name for name in result.axes if name != x] if by is None else []
    groups = _groups(result, apart)
    if len(groups) > MOST:
        text = ", ".join(apart)
        hint = f"by=COLUMN draws the best row of each of its values, such as by={apart[0]!r}"
        problem = Problem("by", f"at most {MOST} curves", f"{len(groups):,} of {text}", hint)
        raise SpecError("plot", problem)
    values = result[statistic]
    drawn = []
    for label, rows in groups.items():
        ends = _best(across[rows], values[rows], sign)
        drawn.append(Curve(label, [*ends], [*ends.values()]))
    title = " on ".join(_only(result[name]) for name in ("model", "system") if _only(result[name]))
    return curves_chart(
        title,
        with_unit(x, result.units),
        statistic,
        drawn,
        names=names,
        by=", ".join(apart),
        terms=terms(result.evaluation.plan),
    )


def curves_chart(
    title: str,
    x: str,
    statistic: str,
    curves: Sequence[Curve],
    *,
    names: Sequence[str] = (),
    by: str = "",
    terms: Sequence[str] = (PUBLISHED,),
) -> Chart:
    """Return the curves; a cross at the bottom marks a position at which a curve cannot run.

    Args:
        title: Model and machine.
        x: Text of the horizontal axis.
        curves: At least one.
        names: Names of the positions, counted from 0, if they are not numbers.
        by: Column whose values distinguish the curves.
        terms: Editions of the model.
    """
    quantity = Quantity(statistic)
    values = [v * quantity.factor for one in curves for v in one.values if v is not None]
    y = value_axis(quantity.title, quantity.unit, values, ratio=_FAR)
    marks = [
        mark
        for number, one in enumerate(curves if len(curves) > 1 else [replace(curves[0], label="")])
        for mark in _marks(one, number, quantity.factor, y, named=bool(names))
    ]
    places = sorted({place for one in curves for place in one.places})
    panel = Panel(x=_places_axis(x, places, names), y=y, marks=marks, height=3.8)
    return Chart(
        title=f"{title}: {quantity.words}" if title else quantity.title,
        subtitle=f"curves: {by}" if by and len(curves) > 1 else "",
        terms=terms,
        rows=((panel,),),
        width=6.4,
    )


def _marks(one: Curve, number: int, factor: float, y: Axis, *, named: bool) -> Iterator[Line]:
    """Yield a curve and its crosses, which are offset from the previous curve's; names are not joined by a line."""
    color, marker, _ = line_look(number)
    found = [(x, v * factor) for x, v in zip(one.places, one.values, strict=True) if v is not None]
    yield Line(
        name=one.label,
        x=[x for x, _ in found],
        y=[v for _, v in found],
        color=color,
        dash="none" if named else DASHES[number // len(SERIES) % len(DASHES)],
        marker=marker if len(found) <= _MARKED else "",
    )
    missing = [x for x, v in zip(one.places, one.values, strict=True) if v is None]
    if missing:
        low, high = y.limits or (0.0, 1.0)
        # Offsets keep crosses of several curves apart.
        share = 0.015 + 0.018 * (number % len(SERIES))
        foot = low * (high / low) ** share if y.scale == "log" else low + share * (high - low)
        look = {"name": "cannot run", "color": color, "sizes": (3.5,)}
        yield dots([(x, foot) for x in missing], "thin cross", **look)


def _places_axis(label: str, places: Sequence[float], names: Sequence[str]) -> Axis:
    """Return the horizontal axis: names in order, counts, or numbers (logarithmic if they grow by factors)."""
    if names:
        ticks = [(place, wrapped(name, 18)) for place, name in enumerate(names)]
        return Axis(label=label, limits=(-0.3, len(names) - 0.7), ticks=ticks)
    if all(float(x).is_integer() for x in places):
        return count_axis(label, places)
    if grows_by_factors(places):
        return log_axis(label, "", places)
    return Axis(label=label, limits=widened(places))


def grows_by_factors(places: Sequence[float]) -> bool:
    """Return True if the spacing of ascending positions increases strongly, as in geometric series.

    >>> grows_by_factors([1.5, 3.0, 6.0, 12.0, 24.0]), grows_by_factors([1.5, 2.0, 2.5, 3.0])
    (True, False)
    """
    if len(places) < 3 or places[0] <= 0:
        return False
    first, last = places[1] - places[0], places[-1] - places[-2]
    return places[-1] >= 10 * places[0] and last > 4 * first


def _column(result: Sweep, name: str, argument: str) -> Array:
    try:
        return result[name]
    except KeyError:
        known = (*result.asked, *result.fields)
        problem = Problem(argument, "a column", repr(name), nearest(str(name), known))
        raise SpecError("plot", problem) from None


def _widest(result: Sweep) -> str:
    """Return the swept column with the most values; numbers are preferred to names."""
    if not result.axes:
        wanted = "a column; no input has several values"
        raise SpecError("plot", Problem("x", wanted, "none"))
    return max(
        result.axes, key=lambda name: (result[name].dtype.kind in "if", _count(result[name]))
    )


def _count(column: Array) -> int:
    return len(set(map(str, column.tolist())))


def _places(column: Array) -> tuple[Array, list[str]]:
    """Return numbers unchanged; for other values the index of each row's value, and the values."""
    if column.dtype.kind in "if":
        return column.astype(float), []
    texts = [_word(value) for value in column.tolist()]
    names = list(dict.fromkeys(texts))
    return np.array([names.index(text) for text in texts], float), names


def _word(value: Any) -> str:
    """Write a value as a label."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,.6g}" if isinstance(value, float) else str(value)


def _groups(result: Sweep, names: Sequence[str]) -> dict[str, Array]:
    """Return the rows of each curve by label."""
    columns = [[_word(value) for value in _column(result, name, "by").tolist()] for name in names]
    groups: dict[str, list[int]] = {}
    for row in range(len(result)):
        groups.setdefault(", ".join(column[row] for column in columns), []).append(row)
    return {label: np.array(rows) for label, rows in groups.items()}


def _best(places: Array, values: Array, sign: float) -> dict[float, float | None]:
    """Return the best value at each position, ascending; None if nothing can run."""
    best: dict[float, float | None] = {}
    for place in np.unique(places).tolist():
        scores = sign * values[places == place]
        finite = scores[np.isfinite(scores)]
        best[place] = float(sign * finite.max()) if len(finite) else None
    return best


def _only(column: Array) -> str:
    """Return the only value of a column; empty if there are several."""
    return str(column[0]) if _count(column) == 1 else ""


def with_unit(name: str, units: Mapping[str, str]) -> str:
    """Return the name of a column with its unit."""
    unit = units.get(name, "")
    return f"{name} ({unit})" if unit and unit != "fraction" else name
