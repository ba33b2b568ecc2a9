"""The split into fitted and held-out rows, and the residuals of both."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from calculon.base.units import Array
from calculon.calibrate.measured_rows import Row

LARGE = 2**20
"""Bytes of a message above which bandwidth counts more than latency; these rows are also scored alone."""


def held_out(rows: Sequence[Row], share: float) -> Array:
    """Return which rows are held out: whole groups, chosen by a hash of their names, so always the same.

    Of g groups the nearest whole number to ``share * g`` is held out, at least one and never all; for a share of 0
    none.
    """
    groups = sorted({row.group for row in rows}, key=_rank)
    count = min(max(1, int(share * len(groups) + 0.5)), len(groups) - 1) if share > 0 else 0
    chosen = set(groups[:count])
    return np.array([row.group in chosen for row in rows])


def _rank(group: str) -> bytes:
    return hashlib.sha256(group.encode()).digest()


def residuals(names: Sequence[str], measured: Array, predicted: Array) -> dict[str, Any]:
    """Return the errors of named rows, relative to the measured value, in percent; a bias below 0 is too fast a file.

    Of the absolute errors mean, median and 90th percentile; the bias is the mean with signs. The worst row is named.
    """
    error = 100 * (predicted / measured - 1)
    size = np.abs(error)
    worst = int(size.argmax())
    figures = {
        "mape": size.mean(),
        "median": np.median(size),
        "p90": np.percentile(size, 90),
        "bias": error.mean(),
        "worst": error[worst],
    }
    rounded = {name: round(float(value), 3) for name, value in figures.items()}
    return {"n": len(names), **rounded, "worst_row": names[worst]}


def tabulated(
    part: str, rows: Sequence[Row], predicted: Array, held: Array, left: Array
) -> list[Mapping[str, Any]]:
    """Return a record for the fitted rows, one for those held out, and for collectives those of large messages.

    Rows that were left out of the fit have a record of their own.
    """
    message, seconds = (
        np.array([getattr(row, name) for row in rows]) for name in ("message", "seconds")
    )
    kinds = [("fitted", ~held & ~left), ("held out", held)]
    if message.any() and message.min() <= LARGE:
        kinds += [(f"{name}, above 1 MiB", which & (message > LARGE)) for name, which in kinds]
    records: list[Mapping[str, Any]] = []
    for name, which in [*kinds, ("left out", left)]:
        if which.any():
            names = [row.name for row, chosen in zip(rows, which, strict=True) if chosen]
            errors = residuals(names, seconds[which], predicted[which])
            records.append({"part": part, "rows": name} | errors)
    return records
