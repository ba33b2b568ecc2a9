"""Units: the types used in annotations, the prefixes used in files, and numbers as text.

An annotation such as ``time: Seconds`` is the only declaration of a quantity's unit: tables, documentation and plots
read it from there (:func:`unit_of`).
"""

import math
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin

from calculon.base.frozen import dataclass

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[tuple[Any, ...], np.dtype[Any]]
    """Values of the cost model: a numpy array whose last axis is *execution*."""
else:
    # Help, completion and the catalog read declarations but compute nothing, so they should not wait for numpy.
    class Array:
        """Values of the cost model: a numpy array whose last axis is *execution*."""


@dataclass(frozen=True, slots=True)
class Unit:
    """Physical unit: its symbol, and whether it is printed in powers of 1024."""

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
    """Return the :class:`Unit` of an annotation, or an empty unit."""
    if get_origin(annotation) is Annotated:
        for extra in get_args(annotation)[1:]:
            if isinstance(extra, Unit):
                return extra
    return _NO_UNIT


def scaled(
    value: float, unit: str = "", *, binary: bool = False, digits: int = 3, error: float = 0.0
) -> str:
    """Format a quantity with the prefix that leaves one to three digits before the decimal point.

    It has `digits` decimals, or the digits that its error supports, if given.

    >>> scaled(1_008_038_707_200)
    '1.008 T'
    >>> scaled(79.55 * GIB, "B", binary=True, digits=2)
    '79.55 GiB'
    >>> scaled(0, "B", binary=True)
    '0.000 B'
    >>> scaled(5.628e14, "FLOP/s", error=6e13)
    '560 TFLOP/s'
    """
    base, prefixes = (1024.0, _BINARY) if binary else (1000.0, _DECIMAL)
    step = 0
    # Rounded first, so that 999.9996 becomes "1.000 k" and not "1000.000".
    while round(abs(value), digits) >= base and step < len(prefixes) - 1 and math.isfinite(value):
        value /= base
        error /= base
        step += 1
    text = known(value, error) if error else f"{value:.{digits}f}"
    return f"{text} {prefixes[step]}{unit}".rstrip()


def gib(size: float) -> str:
    """Format a size of memory with one decimal: in GiB unless it is too small or too large to read.

    >>> gib(61.81 * GIB), gib(0.02 * GIB), gib(0)
    ('61.8 GiB', '20.5 MiB', '0.0 GiB')
    """
    if size == 0 or 0.05 * GIB <= abs(size) < 100_000 * GIB:
        return f"{size / GIB:,.1f} GiB"
    return scaled(size, "B", binary=True, digits=1)


def chance(probability: float) -> str:
    """Format a probability; near 0 or 1 as a bound.

    >>> chance(0.834), chance(0.9999), chance(0.001)
    ('83 %', '>99 %', '<1 %')
    """
    if 0.005 <= probability < 0.995:
        return f"{100 * probability:.0f} %"
    return ">99 %" if probability > 0.5 else "<1 %"


def duration(seconds: float, error: float = 0.0) -> str:
    """Format a time in a suitable unit, with the digits that its error (seconds) supports, at most four.

    >>> duration(131.9), duration(0.0123456), duration(3.2e-5), duration(0)
    ('131.9 s', '12.35 ms', '32.00 us', '0 s')
    >>> duration(131.9, 15), duration(0.0123456, 0.001)
    ('132 s', '12.3 ms')
    """
    if seconds == 0:
        return "0 s"
    rounded = float(f"{abs(seconds):.4g}")
    factor, unit = (1e6, "us") if rounded < 1e-3 else (1e3, "ms") if rounded < 1 else (1.0, "s")
    value = seconds * factor
    return f"{known(value, error * factor) if error else significant(value)} {unit}"


CHECKED = "2026"
"""Year in which prices were last checked; older prices are marked."""


def aged(date: str) -> str:
    """Return the date of a price, marked if it is old.

    >>> aged("2026-07"), aged("2025-10")
    ('2026-07', '2025-10, old')
    """
    return f"{date}, old" if date and date[:4] < CHECKED else date


def between(low: str, high: str) -> str:
    """Join the ends of an interval; a common unit is written once.

    >>> between("5.7 s", "7.1 s"), between("950 ms", "1.2 s"), between("9,200", "11,500")
    ('5.7 to 7.1 s', '950 ms to 1.2 s', '9,200 to 11,500')
    """
    unit = high.partition(" ")[2]
    return f"{low.removesuffix(f' {unit}') if unit else low} to {high}"


def amount(value: float, unit: str) -> str:
    """Format an amount with three digits and its unit; dollars from a thousand on with a prefix.

    >>> amount(35.33, "d"), amount(2.5e6, "USD")
    ('35.3 d', '2.50 M USD')
    """
    money = unit == "USD" and abs(value) >= KILO
    return f"{scaled(value, digits=2) if money else f'{value:,.3g}'} {unit}"


def significant(value: float, digits: int = 4) -> str:
    """Format a number with `digits` significant digits and no exponent.

    >>> significant(23.2912), significant(1234567.0), significant(0.05)
    ('23.29', '1234567', '0.05000')
    """
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    before = math.floor(math.log10(abs(value))) + 1
    return f"{value:.{max(0, digits - before)}f}"


def decimals_of(error: float) -> int:
    """Return the number of decimals for a number with this error; negative if it rounds to tens or more.

    An error of 1.00 to 3.54, times a power of ten, is quoted with two digits, a larger one with one digit.

    Source: Particle Data Group, "Review of Particle Physics", introduction, section 5.3 (rounding).

    >>> decimals_of(0.7), decimals_of(0.12), decimals_of(1200.0)
    (1, 2, -2)
    """
    power = math.floor(math.log10(error))
    return (1 if error / 10.0**power < 3.545 else 0) - power


def known(value: float, error: float, *, most: int = 4) -> str:
    """Format a number with the digits that its error supports, at least two and at most `most`.

    >>> known(5.993, 0.7), known(699832.0, 80000.0), known(10935.0, 1200.0)
    ('6.0', '700,000', '10,900')
    """
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    decimals = known_decimals(value, error, most=most)
    return f"{round(value, decimals):,.{max(0, decimals)}f}"


def known_decimals(value: float, error: float, *, most: int = 4) -> int:
    """Return the number of decimals that :func:`known` writes; negative if it rounds to tens or more."""
    before = math.floor(math.log10(abs(value))) + 1
    wanted = decimals_of(error) if 0 < error < math.inf else most - before
    return min(max(wanted, 2 - before), most - before)
