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
"""Label of the memory residuals in the table of residuals."""


@dataclass(frozen=True, slots=True)
class Measurements:
    """Rows of one file, with the device, software and source that it names."""

    file: str
    rows: Sequence[Row]
    about: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Fitted:
    """A calibrated part of the system: its rows, the held-out ones, and their times on the new system.

    Attributes:
        held, left: Masks of the held-out rows, and of the remaining rows that were left out of the fit.
        unit: Unit of the sizes: ``B`` or ``FLOP``; empty for training steps, which have no size.
        predicted: Times of the rows on the new system in seconds.
        time: Time of an operation by its size on the new system; None if it depends on more than the size.
        memory: Measured and predicted peak memory in bytes; measured is not-a-number for steps that state none.
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
        """Sizes of the rows, in :attr:`unit`."""
        return np.array([row.size for row in self.rows])

    @property
    def seconds(self) -> Array:
        """Measured times of the rows."""
        return np.array([row.seconds for row in self.rows])

    def residuals(self) -> list[Mapping[str, Any]]:
        """Return the residuals of fitted, held-out and left-out rows, and of measured peak memory."""
        records = tabulated(self.part, self.rows, self.predicted, self.held, self.left)
        if self.memory is not None and (known := np.isfinite(self.memory[0])).any():
            names = [row.name for row, yes in zip(self.rows, known, strict=True) if yes]
            errors = residuals(names, *(one[known] for one in self.memory))
            records.append({"part": self.part, "rows": MEMORY} | errors)
        return records

    def each(self) -> list[Mapping[str, Any]]:
        """Return the measured time, predicted time and error in percent of every row; fitted rows come first."""
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
    """Result of a calibration: the new system document, the fitted parts, and notes for the user."""

    document: dict[str, Any]
    parts: Sequence[Fitted]
    notes: Sequence[str]

    def residuals(self) -> list[Mapping[str, Any]]:
        """Return the residuals of all parts."""
        return [record for part in self.parts for record in part.residuals()]


def copied(value: Any) -> Any:
    """Return a deep copy without shared objects (YAML anchors make them), so that each part can change alone."""
    if isinstance(value, Mapping):
        return {key: copied(one) for key, one in value.items()}
    return [copied(one) for one in value] if isinstance(value, list) else value
