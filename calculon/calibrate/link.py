"""A network's latency, efficiency and ramp from measured times."""

import numpy as np
from scipy.optimize import least_squares, nnls

from calculon.base.frozen import dataclass
from calculon.base.units import Array

HUBER = 0.1
"""Relative error above which a row counts linearly, not squared: outliers do not decide."""

RAMP_SIZES, RAMP_SPAN = 6, 1024.0
"""Distinct sizes, and ratio of the largest to the smallest, that separate a ramp from latency and bandwidth."""

_NOTHING = 1e-4
"""Share of the time of every row below which a ramp is rounding."""

_TINY = 1e-15


@dataclass(frozen=True, slots=True)
class Line:
    """Time of a message: ``latency + size * slope + root * sqrt(size)``, in seconds and bytes."""

    latency: float
    slope: float
    root: float = 0.0

    @property
    def ramp(self) -> float:
        """The ramp in seconds: that of ``2 * sqrt(ramp * size * slope)``."""
        return self.root**2 / (4 * self.slope)

    def at(self, sizes: Array) -> Array:
        """Return times by size."""
        return self.latency + sizes * self.slope + self.root * np.sqrt(sizes)


def fit_link(sizes: Array, seconds: Array, least_slope: float) -> Line:
    """Return the line with the least loss; with a ramp where there are enough sizes over a wide enough range."""
    distinct = np.unique(sizes)
    if len(distinct) >= RAMP_SIZES and distinct[-1] / distinct[0] >= RAMP_SPAN:
        bent = fit_line(sizes, seconds, least_slope, ramp=True)
        if (bent.root * np.sqrt(sizes) > _NOTHING * bent.at(sizes)).any():
            return bent
    return fit_line(sizes, seconds, least_slope)


def fit_line(sizes: Array, seconds: Array, least_slope: float, *, ramp: bool = False) -> Line:
    """Return the line with the least loss, of a slope of at least `least_slope` and nothing below 0.

    The start is the best line by relative errors. Without `ramp` there is none.
    """
    columns = np.stack([np.ones_like(sizes), sizes, *([np.sqrt(sizes)] if ramp else [])], axis=1)
    least = np.array([0.0, least_slope, 0.0])[: columns.shape[1]]
    rows = columns / seconds[:, None]
    scale = np.linalg.norm(rows, axis=0)  # brings seconds and seconds per byte to one scale
    columns, least = columns / scale, least * scale
    start = least + nnls(rows / scale, 1 - (rows / scale) @ least)[0]
    found = least_squares(
        lambda values: np.log(columns @ values / seconds),
        start,
        lambda values: columns / (columns @ values)[:, None],
        bounds=(least, np.inf),
        method="dogbox",  # which can end on a bound
        loss="huber",
        f_scale=HUBER,
        ftol=_TINY,
        xtol=_TINY,
        gtol=_TINY,
    )
    return Line(*(found.x / scale).tolist())
