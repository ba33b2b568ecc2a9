"""Parts of a text: their lines, and their removal."""

import re

_REST = re.compile(r"[ \t]*(\\|#.*|//.*)?")


def line_start(text: str, at: int) -> int:
    """Return the start of the line of a position."""
    return text.rfind("\n", 0, at) + 1


def line_end(text: str, at: int) -> int:
    """Return the end of the line of a position, before its line feed."""
    found = text.find("\n", at)
    return len(text) if found < 0 else found


def indentation(text: str, at: int) -> str:
    """Return blanks as wide as the text before a position in its line; tabs stay tabs."""
    return re.sub(r"[^\t]", " ", text[line_start(text, at) : at])


def replaced(text: str, start: int, end: int, new: str) -> str:
    """Return a text with the part between two positions replaced."""
    return text[:start] + new + text[end:]


def fills_lines(text: str, start: int, end: int) -> bool:
    """Return true if a part fills its lines, except for a comment or the mark of a continued line."""
    before, after = text[line_start(text, start) : start], text[end : line_end(text, end)]
    return not before.strip() and _REST.fullmatch(after) is not None


def without(text: str, start: int, end: int) -> str:
    """Return a text without a part, and without its lines if the part fills them.

    If the part ends a continued command, its line stays as an empty line, which ends the command instead.
    """
    if not fills_lines(text, start, end):
        return _without_words(text, start, end)
    begin, stop = line_start(text, start), line_end(text, end)
    # Without the trailing line, the backslash before it would join the next command to this one.
    ends_command = text[:begin].endswith("\\\n") and text[end:stop].strip() != "\\"
    return text[:begin] + text[stop if ends_command else stop + 1 :]


def _without_words(text: str, start: int, end: int) -> str:
    """Return a text without some words of a line, and without the blanks on one side."""
    left, right = text[:start], text[end:]
    if left[-1:] in (" ", "\t") and left[line_start(text, start) :].strip():
        return left.rstrip(" \t") + right
    return left + right.lstrip(" \t")
