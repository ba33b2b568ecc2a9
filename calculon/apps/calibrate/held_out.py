"""Which rows are held out, and how far the fitted file is from both kinds."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from calculon.apps.calibrate.measured_rows import Row
from calculon.units import Array

LARGE = 2**20
"""Bytes of a message above which bandwidth counts more than latency; scored apart."""


def held_out(rows: Sequence[Row], share: float) -> Array:
    """Return which rows are held out: whole groups, by a hash of their names: always the same.

    Of g groups the nearest whole number to ``share * g`` is held out, at least one and never all; for a share of 0
    none.
    """
    groups = sorted({row.group for row in rows}, key=_rank)
    count = min(max(1, int(share * len(groups) + 0.5)), len(groups) - 1) if share > 0 else 0
    chosen = set(groups[:count])
    return np.array([row.group in chosen for row in rows])


def _rank(group: str) -> bytes:
    return hashlib.sha256(group.encode()).digest()


@dataclass(frozen=True, slots=True)
class Residuals:
    """Errors of some rows, relative to the measured time, in percent; a bias below 0 is a file that is too fast."""

    n: int
    mape: float
    median: float
    p90: float
    bias: float
    worst: float
    worst_row: str

    @classmethod
    def of(cls, rows: Sequence[Row], predicted: Array) -> "Residuals":
        """Compare predicted times with those of the rows."""
        measured = np.array([row.seconds for row in rows])
        return cls.between([row.name for row in rows], measured, predicted)

    @classmethod
    def between(cls, names: Sequence[str], measured: Array, predicted: Array) -> "Residuals":
        """Compare predicted with measured values."""
        error = 100 * (predicted / measured - 1)
        size = np.abs(error)
        worst = int(size.argmax())
        return cls(
            len(names),
            float(size.mean()),
            float(np.median(size)),
            float(np.percentile(size, 90)),
            float(error.mean()),
            float(error[worst]),
            names[worst],
        )

    def record(self) -> dict[str, Any]:
        """Return plain values, rounded to what people read."""
        values = {name: round(getattr(self, name), 3) for name in _NUMBERS}
        return {"n": self.n, **values, "worst_row": self.worst_row}


_NUMBERS = ("mape", "median", "p90", "bias", "worst")


def tabulated(
    part: str, rows: Sequence[Row], predicted: Array, held: Array, left: Array
) -> list[Mapping[str, Any]]:
    """Return a record for the fitted rows, one for those held out, and for collectives those of large messages.

    Rows that were left out of the fit have a record of their own.
    """
    message = np.array([row.message for row in rows])
    kinds = [("fitted", ~held & ~left), ("held out", held)]
    if message.any() and message.min() <= LARGE:
        kinds += [(f"{name}, above 1 MiB", which & (message > LARGE)) for name, which in kinds]
    records: list[Mapping[str, Any]] = []
    for name, which in [*kinds, ("left out", left)]:
        if which.any():
            some = [row for row, chosen in zip(rows, which, strict=True) if chosen]
            records.append(
                {"part": part, "rows": name} | Residuals.of(some, predicted[which]).record()
            )
    return records
