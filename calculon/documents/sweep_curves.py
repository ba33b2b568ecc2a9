"""The curves of a sweep: a statistic over what was asked."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from calculon.base.errors import Infeasible, Problem, SpecError, nearest
from calculon.base.units import Array
from calculon.documents.charts.sweep_chart import MOST, Curve, Curves
from calculon.documents.front import axis
from calculon.search.sweep.sweep_result import Sweep


def curves(found: Sweep, x: str, y: str, by: str | None, editions: Sequence[str]) -> Curves:
    """Return a statistic over a column, with a curve for each value of another (:meth:`calculon.Sweep.plot`)."""
    if not found.feasible.any():
        raise Infeasible("nothing", f"none of {len(found):,} rows can run")
    statistic, sign = axis(y, "y")
    x = x or _widest(found)
    across, names = _places(_column(found, x, "x"))
    apart = [by] if by else [name for name in found.axes if name != x] if by is None else []
    groups = _groups(found, apart)
    if len(groups) > MOST:
        told = ", ".join(apart)
        hint = f"by=COLUMN draws the best row of each of its values, such as by={apart[0]!r}"
        problem = Problem("by", f"at most {MOST} curves", f"{len(groups):,} of {told}", hint)
        raise SpecError("plot", problem)
    values = found[statistic]
    drawn = []
    for label, rows in groups.items():
        ends = _best(across[rows], values[rows], sign)
        drawn.append(Curve(label, [*ends], [*ends.values()]))
    title = " on ".join(_only(found[name]) for name in ("model", "system") if _only(found[name]))
    return Curves(
        title, with_unit(x, found.units), statistic, drawn, names, ", ".join(apart), editions
    )


def _column(found: Sweep, name: str, argument: str) -> Array:
    try:
        return found[name]
    except KeyError:
        known = (*found.asked, *found.fields)
        problem = Problem(argument, "a column", repr(name), nearest(str(name), known))
        raise SpecError("plot", problem) from None


def _widest(found: Sweep) -> str:
    """Return the column of what was asked that has the most values, numbers before names."""
    if not found.axes:
        wanted = "a column, as nothing that was asked has several values"
        raise SpecError("plot", Problem("x", wanted, "none"))
    return max(found.axes, key=lambda name: (found[name].dtype.kind in "if", _count(found[name])))


def _count(column: Array) -> int:
    return len(set(map(str, column.tolist())))


def _places(column: Array) -> tuple[Array, list[str]]:
    """Return numbers as they are; of anything else the place of each row among the values, and these."""
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


def _groups(found: Sweep, names: Sequence[str]) -> dict[str, Array]:
    """Return the rows of each curve by its label."""
    columns = [[_word(value) for value in _column(found, name, "by").tolist()] for name in names]
    groups: dict[str, list[int]] = {}
    for row in range(len(found)):
        groups.setdefault(", ".join(column[row] for column in columns), []).append(row)
    return {label: np.array(rows) for label, rows in groups.items()}


def _best(places: Array, values: Array, sign: float) -> dict[float, float | None]:
    """Return the best value at each place, ascending; None where nothing can run."""
    best: dict[float, float | None] = {}
    for place in np.unique(places).tolist():
        scores = sign * values[places == place]
        finite = scores[np.isfinite(scores)]
        best[place] = float(sign * finite.max()) if len(finite) else None
    return best


def _only(column: Array) -> str:
    """Return the only value of a column; nothing where there are several."""
    return str(column[0]) if _count(column) == 1 else ""


def with_unit(name: str, units: Mapping[str, str]) -> str:
    """Return the name of a column with its unit."""
    unit = units.get(name, "")
    return f"{name} ({unit})" if unit and unit != "fraction" else name
