"""Parse processor counts: ``1k``, ``512,1024``, ``512-2048``, ``512:4096:256``, ``8:4096:x2``."""

import re

from calculon.base.errors import Problem, SpecError
from calculon.declarations.fields import LARGEST_INTEGER, shown

MAX_COUNTS = 100_000
"""Most counts in one text, so that a typing error does not fill the memory."""

_COUNT = r"\d+(?:_\d+)*(?:\.\d+(?=[kK]))?[kK]?"
_PART = re.compile(
    rf"(?P<first>{_COUNT})(?:-(?P<doubled>{_COUNT})|:(?P<last>{_COUNT})(?::(?P<times>x?)(?P<step>{_COUNT}))?)?"
)
_WANTED = (
    "counts such as 512,1024 or an inclusive range: 512-4096 (doubled), 512:4096:256, 8:4096:x2"
)


def processor_counts(text: str, name: str = "num_procs") -> tuple[int, ...]:
    """Read a list of counts and inclusive ranges, in the order written, each count once.

    Args:
        text: Parts separated by commas: a count; ``FIRST-LAST``, which doubles; ``FIRST:LAST:STEP``,
            ``FIRST:LAST:xFACTOR``, or ``FIRST:LAST`` with steps of 1. A ``k`` after a number is 1024, underscores group
            digits, and blanks around commas are allowed. The last count is included if a step meets it.
        name: Name of the field or argument, for messages.

    Raises:
        SpecError: For anything else; for a count below 1 or above 2147483647; for a descending range or a step without
            effect.

    Examples:
        >>> processor_counts("512,1024")
        (512, 1024)
        >>> processor_counts("1k"), processor_counts("512-2048")
        ((1024,), (512, 1024, 2048))
        >>> processor_counts("512:1024:256")
        (512, 768, 1024)
        >>> processor_counts("8:100:x2, 7")
        (8, 16, 32, 64, 7)
    """
    counts: dict[int, None] = {}
    for part in text.split(","):
        for count in _part(part.strip(), text, name):
            counts[count] = None
            if len(counts) > MAX_COUNTS:
                found = f"more of them in {text!r}"
                raise SpecError(name, Problem("", f"at most {MAX_COUNTS:,} counts", found))
    return tuple(counts)


def is_counts(text: str) -> bool:
    """Return True if a text has the form of counts, with any values.

    >>> is_counts("512, 1k-4k"), is_counts("8:64:x2"), is_counts("h100"), is_counts("")
    (True, True, False, False)
    """
    return text.isascii() and all(_PART.fullmatch(part.strip()) for part in text.split(","))


def _part(part: str, text: str, name: str) -> "range | list[int]":
    """Return the counts of one part of a list separated by commas."""
    match = _PART.fullmatch(part)
    # In "1,024" the part 024 shows that the comma separates thousands rather than counts.
    grouped = part != text and re.fullmatch(r"0\d\d", part)
    if match is None or grouped or not part.isascii():
        found = shown(text) if part == text else f"{shown(part)} in {shown(text)}"
        raise SpecError(name, Problem("", _WANTED, found, _repair(part, text)))
    first, step = _number(match["first"], text, name), _number(match["step"] or "1", text, name)
    last = _number(match["doubled"] or match["last"] or match["first"], text, name)
    if last < first:
        hint = f"write {last}{part[len(match['first'])]}{first}"
        hint += f":{match['times']}{step}" if match["step"] else ""
        raise SpecError(name, Problem("", "a range that ascends", shown(part), hint))
    if not match["times"] and not match["doubled"]:
        if step < 1:
            raise SpecError(name, Problem("", "a step of at least 1", shown(part)))
        return range(first, last + 1, step)
    factor = 2 if match["doubled"] else step
    if factor < 2:
        raise SpecError(name, Problem("", "a factor of at least 2 after x", shown(part)))
    counts = [first]
    while counts[-1] * factor <= last:
        counts.append(counts[-1] * factor)
    return counts


def _number(text: str, whole: str, name: str) -> int:
    """Return a count; a step may be 0, since a later check has a better message for it."""
    digits = text.rstrip("kK")
    count = float(digits.replace("_", "")) * 1024 if digits != text else int(digits)
    least = 0 if re.search(rf":x?{re.escape(text)}", whole) else 1
    if count != int(count) or not least <= count <= LARGEST_INTEGER:
        wanted = f"whole numbers from 1 to {LARGEST_INTEGER}"
        found = text if digits != text else str(count)
        raise SpecError(name, Problem("", wanted, f"{found} in {shown(whole)}"))
    return int(count)


def _repair(part: str, text: str) -> str:
    """Return a hint with the correct notation of a list with misplaced blanks, dots or thousands separators."""
    if re.fullmatch(r"\d{1,3}(\s\d{3})+", text.strip()):
        return f"write {''.join(text.split())}"
    listed = re.sub(r"\s*([:,-])\s*", r"\1", text.strip().replace("..", "-"))
    joined = re.sub(r"\s+", ",", listed)
    if joined != text.strip() and is_counts(joined) and not re.search(r",0\d\d", joined):
        return f"write {joined}"
    if re.fullmatch(r"\d{1,3}(,\d{3})+", text):
        return f"commas separate counts; write {text.replace(',', '')}"
    if product := re.fullmatch(r"(\d{1,9})\s*[xX*]\s*(\d{1,9})", part):  # 128 nodes of 8
        return f"write {int(product[1]) * int(product[2])}"
    if re.fullmatch(r"\d+(\.\d+)?[eE]\d", part) and float(part).is_integer():
        return f"write {int(float(part))}"
    # A count together with a machine: 8xH100.
    machine = re.fullmatch(r"(\d+)\s*x?\s*(?i:(gpu|processor|chip|card)s?|[a-z]{1,4}\d.*)", part)
    return f"state only the number of processors: {machine[1]}" if machine else ""
