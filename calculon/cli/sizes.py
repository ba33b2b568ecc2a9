"""Message sizes on the command line: ``4096``, ``64MB``, ``1.5GiB``."""

import argparse
import re
from fractions import Fraction

from calculon.base.errors import Problem
from calculon.base.units import scaled

_DECIMAL = {f"{prefix}B": 1000**power for power, prefix in enumerate(("", "k", "M", "G", "T", "P"))}
_BINARY = {f"{prefix}iB": 1024**power for power, prefix in enumerate("KMGTP", 1)}
UNITS = _DECIMAL | _BINARY
"""Bytes of each unit."""

LARGEST = 2**60
_WANTED = "a size such as 4096, 64MB or 1.5GiB"
_SIZE = re.compile(r"(\d+(?:\.\d+)?) ?([A-Za-z]*)")


def size(text: str) -> int:
    """Return the bytes of a size; units are case-insensitive.

    >>> size("4096"), size("64MB"), size("1.5 GiB")
    (4096, 64000000, 1610612736)

    Raises:
        argparse.ArgumentTypeError: For any other text.
    """
    found = _SIZE.fullmatch(text.strip())
    if not found:
        raise _refused(text)
    number, unit = found.groups()
    known = {name.lower(): factor for name, factor in UNITS.items()}
    if unit and unit.lower() not in known:
        # "64M" is ambiguous between powers of 1000 and 1024, so it is refused with both spellings.
        letter = unit.upper().removesuffix("I")
        both = f"{letter}B" in UNITS and f"{letter}iB" in UNITS
        meant = f"write {letter}B (powers of 1000) or {letter}iB (powers of 1024)" if both else ""
        raise _refused(text, meant or "units are " + ", ".join(UNITS))
    # Fractions keep 0.1 GB exact, so that only true fractions of a byte are refused.
    exact = Fraction(number) * known[unit.lower() or "b"]
    if exact.denominator != 1 or not 1 <= exact <= LARGEST:
        hint = f"a whole number of bytes is needed, 1 to {size_text(LARGEST)}"
        raise _refused(text, hint)
    return int(exact)


def _refused(text: str, hint: str = "") -> argparse.ArgumentTypeError:
    return argparse.ArgumentTypeError(Problem("", _WANTED, repr(text), hint))


def size_text(value: float) -> str:
    """Format a size with the unit that makes it shortest, in powers of 1024 or of 1000.

    >>> size_text(2**30), size_text(64_000_000), size_text(1.5 * 2**30), size_text(100)
    ('1 GiB', '64 MB', '1.5 GiB', '100 B')
    """
    ways = [
        scaled(value, "B", binary=binary, digits=digits)
        for digits in (0, 1, 3)
        for binary in (True, False)
    ]
    factors = UNITS | {"EiB": 2**60, "EB": 10**18}
    for text in ways:
        number, unit = text.split()
        if float(number) * factors[unit] == value:
            return text
    return ways[-2]
