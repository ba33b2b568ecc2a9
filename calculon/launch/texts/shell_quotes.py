"""Quotes, escapes and substitutions inside a word of a shell script."""

import re
import shlex
from collections.abc import Sequence

NAME = r"[A-Za-z_]\w*"
FIRST_OPEN = 0xF0000
"""First of the private-use characters of Unicode that stand for open values."""

ANSI_QUOTED = re.compile(r"\$'((?:[^'\\]|\\.)*)'", re.DOTALL)
"""A text with backslash escapes as in C."""
_ESCAPE = re.compile(
    r"\\(?:([0-7]{1,3})|(x[0-9a-fA-F]{1,2}|u[0-9a-fA-F]{1,4}|U[0-9a-fA-F]{1,8})|(.))", re.DOTALL
)
_ESCAPES = dict(zip("abefnrtv", "\a\b\x1b\f\n\r\t\v", strict=True))
_PARAMETER = re.compile(rf"\$({NAME}|[0-9@*#?$!])")


def unescaped(text: str) -> str:
    """Return a text in ``$'...'`` with its escapes replaced."""
    return _ESCAPE.sub(_escaped_character, text)


def _escaped_character(match: re.Match[str]) -> str:
    octal, hexadecimal, letter = match.groups()
    if letter:
        return _ESCAPES.get(letter, letter if letter in "\\'\"?" else match[0])
    number = int(octal, 8) if octal else int(hexadecimal[1:], 16)
    is_character = number < FIRST_OPEN and not 0xD800 <= number <= 0xDFFF
    return chr(number) if is_character else "\N{REPLACEMENT CHARACTER}"


def split(text: str, *, comments: bool = False) -> list[str]:
    """Return the words of a text; without a closing quote, split at blanks."""
    try:
        return shlex.split(text, comments=comments)
    except ValueError:
        return text.split()


def resplit(pieces: Sequence[str]) -> list[str]:
    """Split words at spaces, as in an unquoted expansion; a space at either end separates words, too."""
    found: list[str] = []
    for number, piece in enumerate(pieces):
        parts = piece.split()
        if piece[:1].isspace() and number == 0:
            parts.insert(0, "")
        if piece[-1:].isspace() and number == len(pieces) - 1:
            parts.append("")
        found += parts or ([""] if len(pieces) == 1 else [])
    return found or [""]


def quote_end(word: str, at: int) -> int:
    """Return the position of the closing quote."""
    quote, end = word[at], at + 1
    while end < len(word) and word[end] != quote:
        if quote == '"' and word[end] == "\\":
            end += 1
        elif quote == '"' and word.startswith(("$(", "${"), end):
            end = substitution(word, end)[1] - 1
        end += 1
    return end


BRACKETS = {"(": ")", "{": "}"}


def after_bracket(text: str, at: int) -> int:
    """Return the position after the bracket that closes the one at a position; 0 if none does."""
    opening, closing, depth = text[at], BRACKETS[text[at]], 0
    for end in range(at, len(text)):
        depth += (text[end] == opening) - (text[end] == closing)
        if not depth:
            return end + 1
    return 0


def substitution(word: str, at: int) -> tuple[str, int]:
    """Return the substitution that begins at a position, and the position after it."""
    if word[at] == "`":
        end = word.find("`", at + 1)
        end = len(word) if end < 0 else end + 1
        return word[at:end], end
    if word[at + 1 : at + 2] in BRACKETS:
        end = after_bracket(word, at + 1) or len(word)
        return word[at:end], end
    found = _PARAMETER.match(word, at)
    return (found[0], found.end()) if found else ("$", at + 1)


def word_of(value: object) -> str:
    """Return a value as one word of a script, quoted if necessary.

    >>> word_of(8), word_of("a b"), word_of(False)
    ('8', "'a b'", 'false')
    """
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text if re.fullmatch(r"[\w.,:/+=-]+", text) else f"'{text}'"
