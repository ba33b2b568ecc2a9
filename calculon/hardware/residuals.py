"""How far the parts of a calibrated system were from what was measured: ``calibration.fits[].spreads`` of its file."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from calculon.errors import Problem
from calculon.spec.fields import Declaration, shown

TRAINING = "training"
"""The part that stands for whole iterations."""

_FACTOR = Declaration(help="measured over predicted time", above=0)
_LEVEL = Declaration(help="share of unseen rows inside", above=0, below=1)
_SIZE = Declaration(help="bound of the sizes", at_least=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Between which multiples of its predicted times a part was measured.

    Attributes
    ----------
    part : str
        ``mem1``, ``matrix.bfloat16``, ``networks[0]``, or :data:`TRAINING`.
    low, high : float
        Measured over predicted time: a row is below `low` or above `high` with a probability of `1 - level`, half of
        it on each side.
    level : float
        Share of the rows of new groups that is inside.
    start, end : float
        Sizes of operations that it holds for, in bytes or FLOP: from `start` to below `end`.
    edition : str
        Edition of the times that were predicted, where they are of whole iterations; else empty.
    """

    part: str
    low: float
    high: float
    level: float
    start: float = 0.0
    end: float = math.inf
    edition: str = ""

    @property
    def operations(self) -> str:
        """Which operations it is about: ``all``, ``small`` or ``large``."""
        if self.end < math.inf:
            return "small"
        return "large" if self.start > 0 else "all"


@dataclass(frozen=True, slots=True)
class Residuals:
    """What a system file says under ``calibration``, as far as estimates need it."""

    spreads: tuple[Spread, ...] = ()

    @classmethod
    def decode(cls, raw: object, path: str, problems: list[Problem], scale: float) -> "Residuals":
        """Read the spreads of a calibration; anything else under its key is free, and skipped."""
        found = []
        for part, place, one in _stated(raw, path):
            before = len(problems)
            low, high, level = (
                _number(declaration, one.get(key), f"{place}.{key}", problems)
                for key, declaration in (("low", _FACTOR), ("high", _FACTOR), ("level", _LEVEL))
            )
            start = _number(_SIZE, one.get("from", 0), f"{place}.from", problems)
            end = one.get("below")
            end = math.inf if end is None else _number(_SIZE, end, f"{place}.below", problems)
            edition = one.get("edition", "")
            if not isinstance(edition, str):
                problems.append(Problem(f"{place}.edition", "the name of one", shown(edition)))
            if len(problems) == before and low > high:
                problems.append(Problem(f"{place}.low", f"at most high ({high:g})", f"{low:g}"))
            if len(problems) == before:
                found.append(
                    Spread(
                        part=part,
                        low=low,
                        high=high,
                        level=level,
                        start=start,
                        end=end,
                        edition=edition,
                    )
                )
        return cls(tuple(found))

    @classmethod
    def schema(cls) -> dict[str, Any]:
        """Return the JSON Schema of the raw value: anything."""
        return {}


def _stated(raw: object, path: str) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Yield part, path and object of everything that looks like a spread."""
    fits = raw.get("fits") if isinstance(raw, Mapping) else None
    for i, fit in enumerate(fits if isinstance(fits, list) else ()):
        part = fit.get("part") if isinstance(fit, Mapping) else None
        spreads = fit.get("spreads") if isinstance(part, str) else None
        for j, one in enumerate(spreads if isinstance(spreads, list) else ()):
            if isinstance(one, Mapping):
                yield str(part), f"{path}.fits[{i}].spreads[{j}]", one


def _number(declaration: Declaration, value: Any, place: str, problems: list[Problem]) -> float:
    """Return a number, or add to the problems and return anything."""
    if value is None:
        problems.append(Problem(place, declaration.wanted(float), shown(value)))
    elif problem := declaration.problem(float, value, place):
        problems.append(problem)
    else:
        return float(value)
    return math.nan
