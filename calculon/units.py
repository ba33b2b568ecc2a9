"""Units: the names used in annotations, the prefixes used in files, and numbers as text.

An annotation such as ``time: Seconds`` is the one declaration of a quantity's unit: the tables, the
documentation and the plots read it from there (:func:`unit_of`).
"""

import math
from typing import Annotated, Any, get_args, get_origin

import numpy as np

from calculon.frozen import dataclass

Array = np.ndarray[tuple[Any, ...], np.dtype[Any]]
"""The values of the cost model: a numpy array whose last axis is *execution*."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A physical unit: its symbol, and whether it is printed in powers of 1024."""

    symbol: str
    binary: bool = False


Seconds = Annotated[Array, Unit("s")]
Bytes = Annotated[Array, Unit("B", binary=True)]
Flops = Annotated[Array, Unit("FLOP")]
BytesPerSecond = Annotated[Array, Unit("B/s")]
FlopsPerSecond = Annotated[Array, Unit("FLOP/s")]
SamplesPerSecond = Annotated[Array, Unit("samples/s")]
TokensPerSecond = Annotated[Array, Unit("tokens/s")]
Elements = Annotated[Array, Unit("elements")]
Count = Annotated[Array, Unit("")]
Fraction = Annotated[Array, Unit("fraction")]
FlopsPerByte = Annotated[Array, Unit("FLOP/B")]

MICRO, KILO, MEGA, GIGA, TERA = 1e-6, 1e3, 1e6, 1e9, 1e12
MIB = 2.0**20
GIB = 2.0**30

_NO_UNIT = Unit("")
_DECIMAL = ("", "k", "M", "G", "T", "P", "E", "Z", "Y")
_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "Zi", "Yi")


def unit_of(annotation: object) -> Unit:
    """Return the :class:`Unit` that an annotation carries, or the empty one."""
    if get_origin(annotation) is Annotated:
        for extra in get_args(annotation)[1:]:
            if isinstance(extra, Unit):
                return extra
    return _NO_UNIT


def scaled(value: float, unit: str = "", *, binary: bool = False, digits: int = 3) -> str:
    """Format a quantity with the prefix that leaves one to three digits before the point.

    >>> scaled(1_008_038_707_200)
    '1.008 T'
    >>> scaled(79.55 * GIB, "B", binary=True, digits=2)
    '79.55 GiB'
    >>> scaled(0, "B", binary=True)
    '0.000 B'
    """
    base, prefixes = (1024.0, _BINARY) if binary else (1000.0, _DECIMAL)
    step = 0
    while round(abs(value), digits) >= base and step < len(prefixes) - 1 and math.isfinite(value):
        value /= base
        step += 1
    return f"{value:.{digits}f} {prefixes[step]}{unit}".rstrip()


def duration(seconds: float) -> str:
    """Format a time with four significant digits and a suitable unit.

    >>> duration(131.9), duration(0.0123456), duration(3.2e-5), duration(0)
    ('131.9 s', '12.35 ms', '32.00 us', '0 s')
    """
    if seconds == 0:
        return "0 s"
    for limit, factor, unit in ((1e-3, 1e6, "us"), (1.0, 1e3, "ms")):
        if float(f"{abs(seconds):.4g}") < limit:
            return f"{significant(seconds * factor)} {unit}"
    return f"{significant(seconds)} s"


def significant(value: float, digits: int = 4) -> str:
    """Format a number with `digits` significant digits and no exponent.

    >>> significant(23.2912), significant(1234567.0), significant(0.05)
    ('23.29', '1234567', '0.05000')
    """
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    before = math.floor(math.log10(abs(value))) + 1
    return f"{value:.{max(0, digits - before)}f}"
