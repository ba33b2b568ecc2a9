"""Latency, efficiency and ramp of a network: fitted to collectives, and written into a system file."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.optimize import least_squares, nnls

from calculon.base.frozen import dataclass
from calculon.base.units import Array
from calculon.calibrate.readers import Row, too_few
from calculon.calibrate.steps import rounded
from calculon.hardware.extension import STEP_LATENCY

# A network's latency, efficiency and ramp from measured times.

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


LEAST_SIZES = 3
"""Distinct sizes that any fit needs."""

LEAST_SPAN = 16.0
"""Ratio of the largest to the smallest size that separates latency from bandwidth."""


LONGER = 0.1
"""Share by which a message may take longer than larger ones: clocks and protocols explain that much."""


IMPLAUSIBLE = 0.2
"""Efficiency below which units or the base are more likely wrong than the network is slow."""


def fit_network(
    rows: Sequence[Row], peak: float, *, ramp: bool
) -> tuple[dict[str, float], Array, list[str]]:
    """Return latency, efficiency and ramp (if any), the rows left out, and notes on both.

    Args:
        rows: Collectives of one network.
        peak: Its bandwidth in bytes/s.
        ramp: Whether there may be a ramp: edition ``sc23`` knows none.

    Raises:
        SpecError: For sizes that are too few, or too near each other.
    """
    part, file = rows[0].part, rows[0].file
    sizes, seconds = (
        np.array([getattr(row, name) for row in rows]) for name in ("size", "seconds")
    )
    if (span := sizes.max() / sizes.min()) < LEAST_SPAN:
        why = "as ratio of the largest to the smallest size, to tell latency from bandwidth"
        raise too_few(file, part, rounded(span, 3), LEAST_SPAN, why)
    slow = disturbed(sizes, seconds)
    sizes, seconds = sizes[~slow], seconds[~slow]
    distinct = len(np.unique(sizes))
    if distinct < LEAST_SIZES:
        raise too_few(file, part, distinct, LEAST_SIZES, "different sizes whose times rise, to fit")
    line = (fit_link if ramp else fit_line)(sizes, seconds, 1 / peak)
    efficiency = min(1.0, rounded(1 / (line.slope * peak), 6))
    values = {"efficiency": efficiency, "latency": rounded(line.latency, 6)}
    values |= {"ramp": rounded(line.ramp, 6)} if line.root else {}
    notes = []
    if efficiency < IMPLAUSIBLE:
        notes.append(
            f"{part}: only {efficiency:.0%} of the bandwidth; is the base that of this machine, and are times right?"
        )
    if slow.any():
        first = rows[int(slow.argmax())]
        count = "1 row took" if slow.sum() == 1 else f"{slow.sum()} rows took"
        where = f"{first.name}, {first.place}"
        notes.append(
            f"{part}: {count} longer than two larger messages, and did not count (first: {where})"
        )
    if ramp:
        form = _chosen_form(distinct, sizes.max() / sizes.min(), "ramp" in values)
        notes.append(f"{part}: fitted by {form}")
    return values, slow, notes


def disturbed(sizes: Array, seconds: Array) -> Array:
    """Return which rows took longer than two larger ones, by more than :data:`LONGER`: no rising time explains them."""
    found = np.zeros(len(sizes), bool)
    fastest = [np.inf, np.inf]  # the two shortest times of larger messages
    order = np.argsort(-sizes)
    for rows in np.split(order, np.flatnonzero(np.diff(sizes[order])) + 1):
        found[rows] = fastest[1] * (1 + LONGER) < seconds[rows]
        fastest = sorted([*fastest, *seconds[rows].tolist()])[:2]
    return found


def _chosen_form(distinct: int, span: float, ramp: bool) -> str:
    """Return the fitted parameters in words, and the reason for no more."""
    if ramp:
        return (
            "latency, efficiency and ramp; edition sc23 ignores the ramp (--no-ramp fits without)"
        )
    if distinct >= RAMP_SIZES and span >= RAMP_SPAN:
        return "latency and efficiency; there is no ramp"
    needed = f"{RAMP_SIZES} sizes over a ratio of {RAMP_SPAN:,.0f}"
    return f"latency and efficiency; a ramp needs {needed}, not {distinct} over {rounded(span, 3):,.4g}"


def write_network(document: dict[str, Any], number: int, values: Mapping[str, float]) -> None:
    """Put the fitted values of a network into a system document; a ramp is under ``ext``.

    A network of a known kind gets the step latency of this kind explicitly, so that its fitted latency counts and not
    the latencies of the kind; what it stated of single operations was measured elsewhere.
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
