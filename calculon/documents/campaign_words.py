"""Formatting of amounts of whole runs: parts of their time, intervals, tokens, events."""

from collections.abc import Mapping, Sequence
from typing import Any

from calculon.base.units import MEGA, duration, known, scaled

DAY = 86400.0
MIN_DAYS = 2.0
"""Length from which on a run is written in days, not hours."""


def span(days: float, total: float) -> str:
    """Write a part of a time, in a unit that suits the total; both in days.

    >>> span(1.516, 95.3), span(0.004, 95.3), span(0.02, 0.5)
    ('1.5 d', '<0.1 d', '0.5 h')
    """
    factor, unit = (1.0, "d") if total >= MIN_DAYS else (24.0, "h")
    value = days * factor
    # Below 0.05 the value would round to 0.0, which means "none".
    return f"<0.1 {unit}" if 0 < value < 0.05 else f"{value:,.1f} {unit}"


def interval_words(seconds: float) -> str:
    """Write a time with three digits in a familiar unit.

    >>> interval_words(371.0), interval_words(45.2), interval_words(9000.0), interval_words(0.5)
    ('6.18 min', '45.2 s', '2.5 h', '500.0 ms')
    """
    if seconds < 1:
        return duration(seconds)
    for limit, factor, unit in ((120.0, 1.0, "s"), (7200.0, 60.0, "min"), (172800.0, 3600.0, "h")):
        if seconds < limit:
            return f"{seconds / factor:.3g} {unit}"
    return f"{seconds / DAY:,.3g} d"


def three_digits(value: float) -> str:
    """Write an amount with three digits, millions with a prefix.

    >>> three_digits(95.357), three_digits(28_123.0), three_digits(110_600_000.0)
    ('95.4', '28,100', '111 M')
    """
    rounded = float(f"{value:.3g}")
    # Below one million, thousands separators are easier to read than prefixes.
    number, _, prefix = scaled(rounded).partition(" ") if rounded >= MEGA else (rounded, "", "")
    return f"{known(float(number), 0.0, most=3)} {prefix}".rstrip()


def events(value: float) -> str:
    """Write an expected number of events.

    >>> events(739.7), events(6.13), events(0.087)
    ('740', '6.1', '0.087')
    """
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}"


def tokens_words(count: float) -> str:
    """Write a number of tokens.

    >>> tokens_words(15.6e12), tokens_words(252e6)
    ('15.6 T', '252 M')
    """
    number, _, prefix = scaled(count).partition(" ")
    return f"{number.rstrip('0').rstrip('.')} {prefix}".rstrip()


def ramp_days(parts: Sequence[Mapping[str, Any]]) -> float:
    """Return the days that a run loses to ramps, compared with the rate of its longest part throughout.

    >>> ramp_days([{"days": 1.0, "tokens": 1e9}, {"days": 8.0, "tokens": 16e9}])
    0.5
    """
    longest = max(parts, key=lambda part: part["days"])
    tokens, days = (sum(part[key] for part in parts) for key in ("tokens", "days"))
    return float(days - tokens * longest["days"] / longest["tokens"])
