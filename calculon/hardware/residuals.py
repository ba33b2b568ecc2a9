"""Residuals of a calibrated system (``calibration.fits[].spreads`` of its file): the basis of prediction intervals."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from calculon.base.errors import Problem
from calculon.base.frozen import dataclass
from calculon.declarations.decode import decode_part
from calculon.declarations.fields import declare, spec_fields

TRAINING = "training"
"""Name of the part that covers whole iterations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Range of measured over predicted times of a part.

    Attributes:
        part: ``mem1``, ``matrix.bfloat16``, ``networks[0]``, or :data:`TRAINING`.
        low, high: Ends of the range: a row is outside with probability `1 - level`, half of it on each side.
        level: Share of rows of new groups inside the range.
        start, end: Range of operation sizes in bytes or FLOP, from `start` to below `end`.
        edition: Edition that predicted the times of whole iterations; empty for other parts.
    """

    part: str = ""
    low: float = declare("measured over predicted time", above=0)
    high: float = declare("measured over predicted time", above=0)
    level: float = declare("share of unseen rows inside", above=0, below=1)
    start: float = declare("smallest size of an operation", key="from", at_least=0, default=0.0)
    end: float = declare(
        "size that all operations are below", key="below", at_least=0, default=math.inf
    )
    edition: str = declare("edition of whole iterations", default="")

    def problems(self, path: str) -> list[Problem]:
        """Return the problem of a range with its ends in the wrong order."""
        if self.low <= self.high:
            return []
        return [Problem(f"{path}.low", f"at most high ({self.high:g})", f"{self.low:g}")]

    @property
    def operations(self) -> str:
        """Sizes that the range covers: ``all``, ``small`` or ``large``."""
        if self.end < math.inf:
            return "small"
        return "large" if self.start > 0 else "all"


@dataclass(frozen=True, slots=True)
class Residuals:
    """Spreads of a system file; other keys under ``calibration`` are free."""

    spreads: tuple[Spread, ...] = ()

    @classmethod
    def decode(cls, raw: object, path: str, problems: list[Problem], scale: float) -> "Residuals":
        """Read the spreads of a calibration; skip other keys, and null, the end of an open range."""
        known = {one.key for one in spec_fields(Spread)}
        found = []
        for part, place, one in _stated(raw, path):
            values = {
                key: one[key] for key in known & set(one) if key != "below" or one[key] is not None
            }
            wrong: list[Problem] = []
            spread = decode_part(Spread, values, place, wrong)
            problems += wrong
            if spread is not None and not wrong:
                found.append(replace(spread, part=part))
        return cls(tuple(found))

    @classmethod
    def schema(cls) -> dict[str, Any]:
        """Return the JSON Schema of the raw value: anything."""
        return {}


def _stated(raw: object, path: str) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Yield part, path and object of everything that looks like a spread: other tools may add fits of any form."""
    fits = raw.get("fits") if isinstance(raw, Mapping) else None
    for i, fit in enumerate(fits if isinstance(fits, list) else ()):
        part = fit.get("part") if isinstance(fit, Mapping) else None
        spreads = fit.get("spreads") if isinstance(part, str) else None
        for j, one in enumerate(spreads if isinstance(spreads, list) else ()):
            if isinstance(one, Mapping):
                yield str(part), f"{path}.fits[{i}].spreads[{j}]", one
