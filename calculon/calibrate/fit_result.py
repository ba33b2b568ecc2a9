"""Inputs and results of a calibration: measurements, fitted parts, the new document."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from calculon.base.frozen import dataclass
from calculon.base.units import Array
from calculon.calibrate.readers import Row
from calculon.calibrate.solve import residuals, tabulated

MEMORY = "peak memory, not fitted"
"""Name of the residuals of memory, next to those of times."""


@dataclass(frozen=True, slots=True)
class Measurements:
    """The rows of one file, and its device, software and source."""

    file: str
    rows: Sequence[Row]
    about: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Fitted:
    """One part of the system: its rows, which of them were held out, and the times of the new file.

    Attributes:
        held, left: The rows that were held out, and those of the others that were left out of the fit.
        unit: Of the sizes: ``B`` or ``FLOP``; empty for whole steps, which have none.
        predicted: Times of the rows on the new system, in seconds.
        time: Time by size of operations on this part of the new system, where it depends on nothing else.
        memory: Measured and predicted peak memory in bytes; not-a-number for steps that state no measured one.
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
        """Return the residuals of fitted rows, of those held out, of those left out, and of stated peak memory."""
        records = tabulated(self.part, self.rows, self.predicted, self.held, self.left)
        if self.memory is not None and (known := np.isfinite(self.memory[0])).any():
            names = [row.name for row, yes in zip(self.rows, known, strict=True) if yes]
            errors = residuals(names, *(one[known] for one in self.memory))
            records.append({"part": self.part, "rows": MEMORY} | errors)
        return records

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
    """A new system file: its document, the fitted parts, and notes for the user."""

    document: dict[str, Any]
    parts: Sequence[Fitted]
    notes: Sequence[str]

    def residuals(self) -> list[Mapping[str, Any]]:
        """Return the residuals of all parts."""
        return [record for part in self.parts for record in part.residuals()]


def copied(value: Any) -> Any:
    """Return a deep copy without shared objects, which YAML anchors make: each may change without the others."""
    if isinstance(value, Mapping):
        return {key: copied(one) for key, one in value.items()}
    return [copied(one) for one in value] if isinstance(value, list) else value
