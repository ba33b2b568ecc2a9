"""Efficiency as a step function of operation size."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from calculon.base.errors import Problem
from calculon.base.frozen import dataclass
from calculon.base.units import Array, Fraction
from calculon.declarations.fields import Declaration, shown


def decode_rows(
    raw: object, path: str, problems: list[Problem], row: str, rules: Sequence[Declaration]
) -> list[tuple[float, ...]] | None:
    """Decode a list of at least one row of numbers, each checked by the rule of its column.

    Args:
        raw: The parsed list.
        path: Field of the list, for messages.
        problems: Receives all problems; if there are any, the result is None.
        row: Description of a row, such as ``pair [threshold, efficiency]``.
        rules: One rule per column.
    """
    if not isinstance(raw, (list, tuple)) or not raw:
        noun, _, columns = row.partition(" ")
        problems.append(Problem(path, f"a list of {noun}s {columns}", shown(raw)))
        return None
    before = len(problems)
    for i, one in enumerate(raw):
        place = f"{path}[{i}]"
        if not isinstance(one, (list, tuple)) or len(one) != len(rules):
            problems.append(Problem(place, f"a {row}", shown(one)))
            continue
        for j, (rule, value) in enumerate(zip(rules, one, strict=True)):
            if problem := rule.problem(float, value, f"{place}[{j}]"):
                problems.append(problem)
    return None if len(problems) > before else [tuple(map(float, one)) for one in raw]


def row_schema(*columns: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON Schema of a row from the schemas of its columns."""
    length = {"items": False, "minItems": len(columns), "maxItems": len(columns)}
    return {"type": "array", "prefixItems": list(columns), **length}


def rows_schema(*rules: Declaration) -> dict[str, Any]:
    """Return the JSON Schema of a list of at least one row."""
    row = row_schema(*(rule.schema(float) for rule in rules))
    return {"type": "array", "minItems": 1, "items": row}


_THRESHOLD = Declaration(help="smallest size of the step", at_least=0)
EFFICIENCY = Declaration(help="achieved share of the peak", above=0, at_most=1)


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """A step function: the efficiency of an operation of at least n FLOP or bytes.

    Attributes:
        sizes (shape (steps,)): Thresholds in SI units, ascending; the first is 0, so that every size is covered.
        efficiencies (shape (steps,)): Efficiency from each threshold on; shape (steps, rows) for a column of machines,
        and sizes then have rows as the last axis.
    """

    sizes: Array
    efficiencies: Array

    def at(self, size: Array) -> Fraction:
        """Return the efficiency of operations of the given sizes; a size equal to a threshold has reached it.

        >>> Curve(np.array([0.0, 1e9]), np.array([0.1, 0.6])).at(np.array([0.0, 9.9e8, 1e9]))
        array([0.1, 0.1, 0.6])
        """
        # The methods of arrays cost less than numpy's functions, and no other function is called as often.
        step = self.sizes[1:].searchsorted(size, side="right")
        if self.efficiencies.ndim == 1:
            return self.efficiencies.take(step)
        result: Fraction = self.efficiencies[step, np.arange(self.efficiencies.shape[1])]
        return result

    def padded(self, size: Array) -> Array:
        """Return size over efficiency of one machine, padded to a larger size if that takes less time.

        Unlike the plain ratio, which falls at thresholds, it never falls with the size.

        >>> Curve(np.array([0.0, 8.0]), np.array([0.2, 0.8])).padded(np.array([0.0, 1.0, 4.0, 8.0]))
        array([ 0.,  5., 10., 10.])
        """
        # Padding up to a threshold is worthwhile whenever the step is steeper than the size increase.
        at_threshold = self.sizes / self.efficiencies
        least = np.minimum.accumulate(np.append(at_threshold, np.inf)[::-1])[::-1]
        return np.minimum(size / self.at(size), least[self.sizes.searchsorted(size)])

    def scaled(self, factor: float, start: float = 0.0, end: float = np.inf) -> "Curve":
        """Return the curve with efficiencies multiplied by a factor for sizes in [`start`, `end`); they may exceed 1.

        >>> Curve(np.array([0.0, 8.0]), np.array([0.2, 0.6])).scaled(0.5, start=4.0)
        Curve(sizes=array([0., 4., 8.]), efficiencies=array([0.2, 0.1, 0.3]))
        """
        edges = np.array(sorted({*self.sizes.tolist(), start, *([end] if end < np.inf else [])}))
        inside = (edges >= start) & (edges < end)
        return Curve(edges, self.at(edges) * np.where(inside, factor, 1.0))

    @classmethod
    def decode(
        cls, raw: object, path: str, problems: list[Problem], scale: float
    ) -> "Curve | None":
        """Decode ``[[threshold, efficiency], ...]``, with thresholds that fall strictly to 0."""
        rules = (_THRESHOLD, EFFICIENCY)
        pairs = decode_rows(raw, path, problems, "pair [threshold, efficiency]", rules)
        if pairs is None:
            return None
        for i in range(1, len(pairs)):
            if pairs[i][0] >= pairs[i - 1][0]:
                wanted = f"a threshold below the one before it ({pairs[i - 1][0]:g})"
                hint = "list thresholds from the largest down to 0"
                problems.append(Problem(f"{path}[{i}][0]", wanted, f"{pairs[i][0]:g}", hint))
        if pairs[-1][0] != 0:
            wanted = "0 as the last threshold, so that every size is covered"
            problems.append(Problem(f"{path}[{len(pairs) - 1}][0]", wanted, f"{pairs[-1][0]:g}"))
        steps = np.array(pairs[::-1])
        return cls(steps[:, 0] * scale, steps[:, 1].copy())

    @classmethod
    def schema(cls) -> dict[str, Any]:
        """Return the JSON Schema of the raw list."""
        return rows_schema(_THRESHOLD, EFFICIENCY)
