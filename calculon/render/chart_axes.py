"""Axes of charts: statistics with their units, and ticks of counts and logarithmic scales."""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

from calculon.base.records import Column, columns
from calculon.base.units import GIB
from calculon.declarations.run_figures import RUN_FIGURES
from calculon.declarations.statistics import CorrectedStats
from calculon.render.chart import Axis, plain

SHORT = {
    "sample_rate": "sample rate",
    "total_time": "iteration time",
    "total_efficiency": "efficiency",
    "compute_efficiency": "compute efficiency",
    "system_efficiency": "system efficiency",
    "proc_mem_tier1_cap_req": "memory per processor",
    "proc_mem_tier2_cap_req": "host memory per processor",
    "mfu": "MFU, full attention",
    "mfu_causal": "MFU, causal attention",
    "hfu": "HFU",
    "model_flops_per_second_per_proc": "model arithmetic per processor",
    "tokens_per_second_per_proc": "tokens per processor",
    "num_procs": "processors",
    "batch_size": "batch, sequences",
}
"""Axis labels that are shorter than the declared descriptions."""

_LONGEST = 40
"""Maximum length of a description used as an axis label; the name of the statistic replaces longer ones."""

_MAX_TICKS, _MAX_COUNTS = 9, 10
"""Maximum number of ticks of a logarithmic axis, and of counts that each get their own tick."""


class Quantity:
    """Statistic, or number of the execution, on an axis: its label, unit, and the factor that converts to the unit."""

    def __init__(self, name: str):
        self.name = name
        every = (*columns(CorrectedStats), *RUN_FIGURES.values())
        declared: Column | None = next((c for c in every if c.name == name), None)
        long = declared is None or len(declared.help) > _LONGEST
        plain = name.replace("_", " ") if declared is None or long else declared.help
        self.words = SHORT.get(name, plain)
        symbol = declared.unit.symbol if declared else ""
        self.unit, self.factor = {
            "B": ("GiB", 1 / GIB),
            "B/s": ("GB/s", 1e-9),
            "FLOP": ("TFLOP", 1e-12),
            "FLOP/s": ("TFLOP/s", 1e-12),
            "fraction": ("%", 100.0),
        }.get(symbol, (symbol, 1.0))

    @property
    def title(self) -> str:
        """Label with an initial capital."""
        return self.words[0].upper() + self.words[1:]

    @property
    def label(self) -> str:
        """Label with the unit, as written at an axis."""
        return f"{self.title} ({self.unit})" if self.unit else self.title


def time_unit(largest: float) -> tuple[str, float]:
    """Return the unit that suits a time, and its number per second."""
    units = ((1e-3, "µs", 1e6), (1.0, "ms", 1e3), (float("inf"), "s", 1.0))
    return next((unit, factor) for limit, unit, factor in units if largest < limit)


def by_factors(values: Sequence[float]) -> bool:
    """Return True if ascending values grow by factors rather than by equal steps.

    >>> by_factors([8, 16, 32, 64]), by_factors([8, 16, 24, 32, 40, 48])
    (True, False)
    """
    if len(values) < 2 or values[0] <= 0 or values[-1] < 4 * values[0]:
        return False
    # The median ratio: one irregular step, such as the last, does not decide.
    ratios = sorted(b / a for a, b in pairwise(values))
    return ratios[len(ratios) // 2] > 1.4


def thinned(values: Sequence[float], most: int = 10) -> list[float]:
    """Return at most `most` of the ascending values, including the first and last, evenly spaced in logarithm."""
    if len(values) <= most:
        return list(values)
    ratio = (values[-1] / values[0]) ** (1 / (most - 1))
    kept = [values[0]]
    for value in values[1:-1]:
        # 0.999 absorbs rounding; 0.7 lets the last gap be slightly narrower than the others.
        if value >= kept[-1] * ratio * 0.999 and values[-1] >= value * ratio * 0.7:
            kept.append(value)
    return [*kept, values[-1]]


def count_axis(label: str, values: Sequence[float]) -> Axis:
    """Return the axis of counts: logarithmic if they grow by factors, with ticks at the values."""
    ordered = sorted(set(values))
    if by_factors(ordered):
        ticks = tuple((value, f"{value:,.0f}") for value in thinned(ordered))
        return Axis(label=label, scale="log", limits=widened(ordered, log=True), ticks=ticks)
    limits = widened(ordered)
    if len(ordered) > _MAX_COUNTS:
        return Axis(label=label, limits=limits)
    return Axis(label=label, limits=limits, ticks=[(n, f"{n:,.0f}") for n in ordered])


def widened(
    values: Sequence[float], padding: float = 0.05, *, log: bool = False
) -> tuple[float, float]:
    """Return the ends of an axis with a margin around the values, as a share of their range."""
    low, high = min(values), max(values)
    if log:
        factor = (high / low) ** padding if high > low else 1.5
        return low / factor, high * factor
    margin = padding * (high - low) or 0.5
    return low - margin, high + margin


def value_axis(
    label: str,
    unit: str,
    values: Sequence[float],
    *,
    ratio: float = math.inf,
    padding: float = 0.06,
) -> Axis:
    """Return an axis that starts at 0, or a logarithmic axis if largest over smallest value exceeds `ratio`."""
    low, high = min(values), max(values)
    if low > 0 and ratio * low < high:
        return log_axis(label, unit, values, padding=padding)
    start = 0.0 if low >= 0 else low - padding * (high - low)
    return Axis(label=label, unit=unit, limits=(start, high + padding * (high - start) or 1.0))


def log_axis(
    label: str,
    unit: str,
    values: Sequence[float],
    *,
    padding: float = 0.06,
    most: int = _MAX_TICKS,
    form: Callable[[float], str] = plain,
) -> Axis:
    """Return a logarithmic axis around values, with a limited number of ticks."""
    low, high = widened(values, padding, log=True)
    ticks = tuple((tick, form(tick)) for tick in log_ticks(low, high, most))
    return Axis(label=label, unit=unit, scale="log", limits=(low, high), ticks=ticks)


def log_ticks(low: float, high: float, most: int = _MAX_TICKS) -> list[float]:
    """Return round ticks between two numbers: digits 1, 2 and 5, digits 1 and 3, or powers of ten, as many as fit.

    >>> log_ticks(0.8, 60), log_ticks(1e-6, 1)
    ([1.0, 2.0, 5.0, 10.0, 20.0, 50.0], [1e-06, 1e-05, 0.0001, 0.001, 0.01, 0.1, 1.0])
    """
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    step = max(1, -(-len(powers) // most))
    for digits in ((1, 1.5, 2, 3, 4, 5, 7), (1, 2, 3, 5), (1, 2, 5), (1, 3), (1,)):
        every = [float(f"{digit}e{power}") for power in powers for digit in digits]
        inside = [tick for tick in every if low <= tick <= high * (1 + 1e-9)]  # rounded products
        if len(inside) <= most - 2 or (digits == (1, 3) and len(inside) <= most):
            return inside
    return [tick for tick in inside if round(math.log10(tick)) % step == 0]
