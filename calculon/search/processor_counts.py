"""Processor counts as people write them: ``512,1024``, ``512:4096:256``, ``8:4096:x2``."""

import re

from calculon.errors import Problem, SpecError
from calculon.spec.fields import LARGEST_INTEGER, shown

MOST_COUNTS = 100_000
"""Counts that one text may stand for, so that a slip of the pen does not fill the memory."""

_PART = re.compile(r"(?P<first>\d+)(:(?P<last>\d+)(:(?P<times>x?)(?P<step>\d+))?)?")
_WANTED = "counts such as 512,1024 or an inclusive range: 512:4096:256, 8:4096:x2"


def parse_counts(text: str, name: str = "num_procs") -> tuple[int, ...]:
    """Read a list of counts and inclusive ranges, in the order written, each count once.

    Parameters
    ----------
    text : str
        Parts separated by commas: a count, ``FIRST:LAST:STEP``, ``FIRST:LAST:xFACTOR``, or ``FIRST:LAST`` with
        steps of 1. Blanks may stand around commas. The last count is included when a step meets it.
    name : str
        Name of the field or argument, for messages.

    Raises
    ------
    SpecError
        For anything else; for a count below 1 or above 2147483647; for a range that runs backwards or does not move.

    Examples
    --------
    >>> parse_counts("512,1024")
    (512, 1024)
    >>> parse_counts("512:1024:256")
    (512, 768, 1024)
    >>> parse_counts("8:100:x2, 7")
    (8, 16, 32, 64, 7)
    """
    counts: dict[int, None] = {}
    for part in text.split(","):
        for count in _part(part.strip(), text, name):
            counts[count] = None
            if len(counts) > MOST_COUNTS:
                found = f"more of them in {text!r}"
                raise SpecError(name, Problem("", f"at most {MOST_COUNTS:,} counts", found))
    return tuple(counts)


def _part(part: str, text: str, name: str) -> "range | list[int]":
    """Return the counts of one part between commas."""
    match = _PART.fullmatch(part)
    if match is None or not part.isascii():
        found = shown(text) if part == text else f"{shown(part)} in {shown(text)}"
        joined = re.sub(r"\s+", ",", re.sub(r"\s*:\s*", ":", part))
        hint = f"write {joined}" if joined != part and re.fullmatch(r"[\d:x,]+", joined) else ""
        raise SpecError(name, Problem("", _WANTED, found, hint))
    first = int(match["first"])
    last = int(match["last"] or first)
    step = int(match["step"] or 1)
    for count in (first, last):
        if not 1 <= count <= LARGEST_INTEGER:
            wanted = f"whole numbers from 1 to {LARGEST_INTEGER}"
            raise SpecError(name, Problem("", wanted, f"{count} in {shown(text)}"))
    if last < first:
        hint = f"write {last}:{first}" + (f":{match['times']}{step}" if match["step"] else "")
        raise SpecError(name, Problem("", "a range that ascends", shown(part), hint))
    if not match["times"]:
        if step < 1:
            raise SpecError(name, Problem("", "a step of at least 1", shown(part)))
        return range(first, last + 1, step)
    if step < 2:
        raise SpecError(name, Problem("", "a factor of at least 2 after x", shown(part)))
    counts = [first]
    while counts[-1] * step <= last:
        counts.append(counts[-1] * step)
    return counts
