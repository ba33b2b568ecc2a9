"""Network calibration: latency, efficiency and ramp fitted to collectives and written into a system file."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.optimize import least_squares, nnls

from calculon.base.frozen import dataclass
from calculon.base.units import Array
from calculon.calibrate.readers import Row, too_few
from calculon.calibrate.steps import rounded
from calculon.hardware.extension import STEP_LATENCY

HUBER = 0.1
"""Relative error above which a row counts linearly instead of squared, so that outliers do not dominate the fit."""

RAMP_SIZES, RAMP_SPAN = 6, 1024.0
"""Distinct sizes, and ratio of the largest to the smallest, needed to separate a ramp from latency and bandwidth."""

_NOTHING = 1e-4
"""Share of every row's time below which a ramp is rounding noise."""

_TINY = 1e-15


@dataclass(frozen=True, slots=True)
class Line:
    """Time of a message: ``latency + size * slope + root * sqrt(size)``, in seconds and bytes."""

    latency: float
    slope: float
    root: float = 0.0

    @property
    def ramp(self) -> float:
        """Ramp in seconds: the time of a message has the term ``2 * sqrt(ramp * size * slope)``."""
        return self.root**2 / (4 * self.slope)

    def at(self, sizes: Array) -> Array:
        """Return the times of messages of given sizes."""
        return self.latency + sizes * self.slope + self.root * np.sqrt(sizes)


def fit_link(sizes: Array, seconds: Array, least_slope: float) -> Line:
    """Return the line with the least loss, with a ramp if the sizes are numerous and spread widely enough."""
    distinct = np.unique(sizes)
    if len(distinct) >= RAMP_SIZES and distinct[-1] / distinct[0] >= RAMP_SPAN:
        bent = fit_line(sizes, seconds, least_slope, ramp=True)
        if (bent.root * np.sqrt(sizes) > _NOTHING * bent.at(sizes)).any():
            return bent
    return fit_line(sizes, seconds, least_slope)


def fit_line(sizes: Array, seconds: Array, least_slope: float, *, ramp: bool = False) -> Line:
    """Return the line with the least loss, with a slope of at least `least_slope` and no negative coefficient.

    The search starts from the line with the least squared relative error. Without `ramp` the line has no ramp.
    """
    columns = np.stack([np.ones_like(sizes), sizes, *([np.sqrt(sizes)] if ramp else [])], axis=1)
    least = np.array([0.0, least_slope, 0.0])[: columns.shape[1]]
    # Dividing by the measured times turns least squares into least squares of relative errors.
    rows = columns / seconds[:, None]
    scale = np.linalg.norm(rows, axis=0)  # brings seconds and seconds per byte to one scale
    # A vanishing coefficient is legal (a network without latency), so the bounds are inclusive.
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


MIN_SIZES = 3
"""Distinct sizes that every fit needs."""

MIN_SPAN = 16.0
"""Ratio of the largest to the smallest size that separates latency from bandwidth."""


LONGER = 0.1
"""Share by which a message may take longer than a larger one: clock jitter and protocol switches explain that much."""


IMPLAUSIBLE = 0.2
"""Efficiency below which wrong units or a wrong base system are more likely than a slow network."""


def fit_network(
    rows: Sequence[Row], peak: float, *, ramp: bool
) -> tuple[dict[str, float], Array, list[str]]:
    """Return latency, efficiency and ramp (if any), a mask of the rows left out, and notes.

    Args:
        rows: Collectives of one network.
        peak: Bandwidth of the network in bytes/s.
        ramp: True to allow a ramp; edition ``sc23`` ignores it.

    Raises:
        SpecError: For too few sizes, or sizes too close to each other.
    """
    part, file = rows[0].part, rows[0].file
    sizes, seconds = (
        np.array([getattr(row, name) for row in rows]) for name in ("size", "seconds")
    )
    if (span := sizes.max() / sizes.min()) < MIN_SPAN:
        why = "as the ratio of the largest to the smallest size, to separate latency from bandwidth"
        raise too_few(file, part, rounded(span, 3), MIN_SPAN, why)
    slow = disturbed(sizes, seconds)
    sizes, seconds = sizes[~slow], seconds[~slow]
    distinct = len(np.unique(sizes))
    if distinct < MIN_SIZES:
        raise too_few(file, part, distinct, MIN_SIZES, "different sizes whose times rise, to fit")
    line = (fit_link if ramp else fit_line)(sizes, seconds, 1 / peak)
    efficiency = min(1.0, rounded(1 / (line.slope * peak), 6))
    values = {"efficiency": efficiency, "latency": rounded(line.latency, 6)}
    values |= {"ramp": rounded(line.ramp, 6)} if line.root else {}
    notes = []
    if efficiency < IMPLAUSIBLE:
        notes.append(
            f"{part}: only {efficiency:.0%} of the bandwidth; is this the right base system, and are the times right?"
        )
    if slow.any():
        first = rows[int(slow.argmax())]
        count = "1 row took" if slow.sum() == 1 else f"{slow.sum()} rows took"
        where = f"{first.name}, {first.place}"
        notes.append(
            f"{part}: {count} longer than two larger messages and were left out (first: {where})"
        )
    if ramp:
        form = _chosen_form(distinct, sizes.max() / sizes.min(), "ramp" in values)
        notes.append(f"{part}: fitted by {form}")
    return values, slow, notes


def disturbed(sizes: Array, seconds: Array) -> Array:
    """Return a mask of rows that took longer than two larger ones by more than :data:`LONGER`.

    No time that rises with the size explains such a row: something disturbed the measurement.
    """
    result = np.zeros(len(sizes), bool)
    # Two larger messages must be faster, not one: a single fast outlier must not exclude every smaller message.
    fastest = [np.inf, np.inf]  # the two shortest times of larger messages
    order = np.argsort(-sizes)
    for rows in np.split(order, np.flatnonzero(np.diff(sizes[order])) + 1):
        result[rows] = fastest[1] * (1 + LONGER) < seconds[rows]
        fastest = sorted([*fastest, *seconds[rows].tolist()])[:2]
    return result


def _chosen_form(distinct: int, span: float, ramp: bool) -> str:
    """Describe the fitted parameters, and the reason if there is no ramp."""
    if ramp:
        return (
            "latency, efficiency and ramp; edition sc23 ignores the ramp (--no-ramp fits without)"
        )
    if distinct >= RAMP_SIZES and span >= RAMP_SPAN:
        return "latency and efficiency; the data show no ramp"
    needed = f"{RAMP_SIZES} sizes over a ratio of {RAMP_SPAN:,.0f}"
    return f"latency and efficiency; a ramp needs {needed}, not {distinct} over {rounded(span, 3):,.4g}"


def write_network(document: dict[str, Any], number: int, values: Mapping[str, float]) -> None:
    """Write the fitted values of a network into a system document; a ramp belongs under ``ext``.

    A network of a known kind gets the step latency of its kind explicitly: otherwise the latencies of the kind would
    replace the fitted latency. Stated figures of single operations are removed, as they come from other measurements.
    """
    document["networks"][number].update({k: v for k, v in values.items() if k != "ramp"})
    links: list[dict[str, Any]] = document.get("ext", {}).get("networks", [])
    if "ramp" in values:
        links = document.setdefault("ext", {}).setdefault("networks", links)
        links += [{} for _ in range(number + 1 - len(links))]
        links[number]["ramp"] = values["ramp"]
    elif number < len(links):
        links[number].pop("ramp", None)
    if number < len(links):
        links[number].pop("operations", None)
    if number < len(links) and (kind := links[number].get("kind")) in STEP_LATENCY:
        links[number].setdefault("step_latency", STEP_LATENCY[kind])
