"""What goes into a calibration, and what comes out of it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from calculon.apps.calibrate.held_out import Residuals, tabulated
from calculon.apps.calibrate.measured_rows import Row
from calculon.units import Array

MEMORY = "peak memory, not fitted"
"""What residuals of the memory are called, beside those of times."""


@dataclass(frozen=True, slots=True)
class Measurements:
    """The rows of one file, and what it says of device, software and source."""

    file: str
    rows: Sequence[Row]
    told: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Fitted:
    """One part of the system: its rows, which of them were held out, and the times of the new file.

    Attributes
    ----------
    held, left : array of bool
        The rows that were held out, and those of the others that did not count.
    unit : str
        Of the sizes: ``B`` or ``FLOP``; empty for whole steps, which have none.
    predicted : array
        Times of the rows on the new system, in seconds.
    time : callable or None
        The time of operations of some sizes on this part of the new system, where it depends on nothing else.
    memory : pair of arrays or None
        Measured and predicted peak memory in bytes, of steps that say it; the measured one else not-a-number.
    """

    part: str
    unit: str
    rows: Sequence[Row]
    held: Array
    left: Array
    predicted: Array
    time: Callable[[Array], Array] | None = None
    memory: tuple[Array, Array] | None = None

    @property
    def sizes(self) -> Array:
        """The sizes of the rows."""
        return np.array([row.size for row in self.rows])

    @property
    def seconds(self) -> Array:
        """The measured times of the rows."""
        return np.array([row.seconds for row in self.rows])

    def residuals(self) -> list[Mapping[str, Any]]:
        """Return the residuals of fitted rows, of those held out, and of those left out."""
        records = tabulated(self.part, self.rows, self.predicted, self.held, self.left)
        return records + [{"part": self.part} | dict(one) for one in self.memory_residuals()]

    def memory_residuals(self) -> list[Mapping[str, Any]]:
        """Return how far predicted peak memory is from what steps say; nothing where none does."""
        if self.memory is None or not (known := np.isfinite(self.memory[0])).any():
            return []
        names = [row.name for row, yes in zip(self.rows, known, strict=True) if yes]
        found = Residuals.between(names, *(one[known] for one in self.memory))
        return [{"rows": MEMORY} | found.record()]

    def each(self) -> list[Mapping[str, Any]]:
        """Return measured and predicted time and the error in percent of every row: fitted rows first."""
        records = [
            {
                "name": row.name,
                "rows": "held out" if held else "fitted",
                "measured": row.seconds,
                "predicted": time,
                "error": 100 * (time / row.seconds - 1),
            }
            for row, held, time in zip(self.rows, self.held, self.predicted.tolist(), strict=True)
        ]
        return sorted(records, key=lambda record: str(record["rows"]))


@dataclass(frozen=True, slots=True)
class Calibration:
    """A new system file: its document, what was fitted, and what is to be said about it."""

    document: dict[str, Any]
    parts: Sequence[Fitted]
    notes: Sequence[str]

    def residuals(self) -> list[Mapping[str, Any]]:
        """Return the residuals of all parts."""
        return [record for part in self.parts for record in part.residuals()]


def copied(value: Any) -> Any:
    """Return a document with no object in two places, where YAML has anchors: one may change without the other."""
    if isinstance(value, Mapping):
        return {key: copied(one) for key, one in value.items()}
    return [copied(one) for one in value] if isinstance(value, list) else value
