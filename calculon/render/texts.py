"""Formatting of headings, shares, times and sizes on pages."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from calculon.base.units import GIB, Unit, duration, scaled, significant
from calculon.declarations.named_values import PUBLISHED
from calculon.declarations.origin import stated_name


def edition_and_preset(asked: Mapping[str, Any]) -> str:
    """Return the edition of a question and, unless it is the published edition, the name of its preset."""
    published = asked["edition"] == PUBLISHED
    return str(asked["edition"]) + ("" if published else f", {stated_name(asked['preset'])}")


def percent(share: float) -> str:
    """Format a share of a total.

    >>> percent(0.4934), percent(0.0002), percent(0)
    ('49.3 %', '<0.1 %', '0.0 %')
    """
    return "<0.1 %" if 0 < share < 0.0005 else f"{share * 100:.1f} %"


def seconds(values: Iterable[float], largest: float) -> list[str]:
    """Format times in the one unit that suits the largest, so that a column can be compared at a glance.

    >>> seconds([65.0829, 0.00001, 0], 131.9)
    ['65.083 s', '<0.001 s', '0.000 s']
    >>> seconds([0.000012], 0.00034)
    ['12.000 us']
    """
    units = ((1e-3, 1e6, "us"), (1.0, 1e3, "ms"), (float("inf"), 1.0, "s"))
    factor, unit = next((factor, unit) for limit, factor, unit in units if largest < limit)
    return [
        f"<0.001 {unit}" if 0 < value * factor < 0.0005 else f"{value * factor:,.3f} {unit}"
        for value in values
    ]


def gib(size: float) -> str:
    """Format a size of memory: in GiB if that is readable, otherwise with a suitable unit.

    >>> gib(79.55 * GIB), gib(0), gib(8e10 * GIB), gib(1024)
    ('79.55 GiB', '0.00 GiB', '74.51 EiB', '1.00 KiB')
    """
    if size == 0 or 0.01 * GIB <= abs(size) < 100_000 * GIB:
        return f"{size / GIB:,.2f} GiB"
    return scaled(size, "B", binary=True, digits=2)


def gibibytes(size: float, decimals: int = 2) -> str:
    """Format a size in GiB without the unit, for columns.

    >>> gibibytes(79.55 * GIB), gibibytes(79.55 * GIB, 1), gibibytes(1.0)
    ('79.55', '79.5', '<0.01')
    """
    least = 10.0**-decimals
    small = 0 < size < least / 2 * GIB
    return f"<{least:.{decimals}f}" if small else f"{size / GIB:,.{decimals}f}"


def quantity(value: float, unit: Unit) -> str:
    """Format a value in the unit of its statistic.

    >>> quantity(0.0123456, Unit("s")), quantity(0.5, Unit("fraction")), quantity(2.0 * GIB, Unit("B", True))
    ('12.35 ms', '50.0 %', '2.00 GiB')
    """
    if unit.symbol == "s":
        return duration(value)
    if unit.symbol == "fraction":
        return percent(value)
    return gib(value) if unit.binary else scaled(value, unit.symbol)


def capacity(size: float) -> str:
    """Format the capacity of a memory, without zero decimals.

    >>> capacity(80 * GIB), capacity(8e10 * GIB)
    ('80 GiB', '74.51 EiB')
    """
    return gib(size).replace(".00 ", " ")


def bandwidth(rate: float) -> str:
    """Format a bandwidth in GB/s.

    >>> bandwidth(2048e9), bandwidth(22.5e9), bandwidth(3.27015e10)
    ('2,048 GB/s', '22.5 GB/s', '32.7 GB/s')
    """
    gigabytes = rate / 1e9
    return f"{gigabytes:,.0f} GB/s" if gigabytes >= 1000 else f"{gigabytes:.3g} GB/s"


def figure(value: float) -> str:
    """Format a rate: with a prefix if large, with thousands separators, or with four digits if small.

    >>> figure(15.526), figure(47698.4), figure(40_239_814.2)
    ('15.53', '47,698', '40.24 M')
    """
    if value >= 1e6:
        return scaled(value, digits=2)
    return f"{value:,.0f}" if value >= 10_000 else significant(value)


def level_text(interval: Mapping[str, Any]) -> str:
    """Format the level of a prediction interval, rounded down.

    >>> level_text({"level": 0.9}), level_text({"level": 6 / 7})
    ('90 %', '85 %')
    """
    return f"{math.floor(round(interval['level'] * 100, 6))} %"


def token_count(count: float) -> str:
    """Format an approximate number of tokens, or an amount of dollars.

    >>> token_count(15.6e12), token_count(252_003_000), token_count(2e9)
    ('15.6 T', '252 M', '2 G')
    """
    number, _, prefix = scaled(float(f"{count:.3g}")).partition(" ")
    return f"{number.rstrip('0').rstrip('.')} {prefix}".rstrip() if "." in number else number


def counted(number: int, noun: str) -> str:
    """Format a count with its noun.

    >>> counted(1, "replica"), counted(3072, "microbatch")
    ('1 replica', '3,072 microbatches')
    """
    plural = noun if number == 1 else f"{noun}es" if noun.endswith("ch") else f"{noun}s"
    return f"{number:,} {plural}"
