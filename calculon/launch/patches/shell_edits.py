"""Candidate edits that change one flag of a shell script, the most natural first.

A flag is a word with its values, anywhere in a script: in a command, a list, or a string. The reader of the script
decides if an edit has the wanted effect (:mod:`calculon.launch.patches.patch`).
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from calculon.base.frozen import dataclass
from calculon.launch.difference import Change
from calculon.launch.patches.spans import fills_lines, line_start, replaced, without
from calculon.launch.texts.shell_quotes import NAME, word_of

_FLAG = re.compile(r"(?<![\w.$/{-])(?:--|\+{1,2})?[A-Za-z_][\w.-]*")
_VALUE = re.compile(
    r""""(?:[^"\\\n]|\\.)*"|'[^'\n]*'|(?:\$\{[^}\n]*\}|\$\(\([^\n]*?\)\)|[^\s"'`;|&()\\#])+"""
)
_GAP = re.compile(r"(?:[ \t]|\\\n)+")
_REFERENCE = re.compile(rf"\"?\$(?:({NAME})|\{{({NAME})\}})\"?")
_LITERAL = re.compile(r"""(["']?)([\w.+-]*)\1""")
_DEFAULT = re.compile(rf"(\"?\$\{{{NAME}:?-)([\w.+-]+)(\}}\"?)")
_BEGINS = re.compile(r"[ \t]*(?:--|\+{0,2}[A-Za-z_]\w*(?:\.\w+)+=)")
_PASSED = re.compile(r"[ \t]*(?:--|#|\+{0,2}[A-Za-z_]\w*(?:\.\w+)+=|\"?\$)")
_SOURCES = re.compile(r"^[ \t]*(?:source|\.)[ \t]", re.MULTILINE)
_DEEPEST = 3
"""Longest chain of variables that are defined by each other."""


@dataclass(frozen=True, slots=True)
class _Flag:
    """A flag in a text: start and end of its name, its values, and true if ``=`` joins them."""

    start: int
    name_end: int
    values: tuple[tuple[int, int], ...]
    joined: bool

    @property
    def end(self) -> int:
        return self.values[-1][1] if self.values else self.name_end


class ShellEdits:
    """Candidate edits of a script.

    Attributes:
        named: Function from a word of the script to the name of its setting.
    """

    def __init__(self, named: Callable[[str], str]) -> None:
        self.named = named

    def edits(self, text: str, change: Change, group: Iterable[str]) -> Iterator[str]:
        """Yield candidate texts of a script with one change.

        Args:
            text: The script.
            change: Change to make.
            group: Settings that a new one should follow, the nearest first.
        """
        # Only environment variables are written in capitals.
        if change.name.isupper():
            yield from _variable_edits(text, change)
            return
        flags = self._flags(text, change.name, change.before)
        if change.kind == "drop":
            for one in flags:
                yield without(text, one.start, one.end)
            # A flag may be repeated, for example in branches: then all occurrences must go together.
            yield _without_all(text, flags)
        elif change.kind == "change" and flags:
            for one in flags:
                yield from self._changed(text, one, change.after)
        else:
            yield from self._added(text, change, group)

    def _flags(self, text: str, name: str, value: Any) -> list[_Flag]:
        """Return the flags with a name, the last first; a switch may be followed by an explicit value."""
        counts = {1 if value is None or not isinstance(value, (list, tuple)) else len(value)}
        counts = {0, 1} if isinstance(value, bool) else counts
        wanted = self.named(name)
        places = [found for found in _FLAG.finditer(text) if self.named(found[0]) == wanted]
        return [self._flag(text, at, n) for at in reversed(places) for n in sorted(counts)]

    def _flag(self, text: str, match: re.Match[str], count: int) -> _Flag:
        at, values = match.end(), list[tuple[int, int]]()
        if text.startswith("=", at):
            value = _VALUE.match(text, at + 1)
            return _Flag(*match.span(), (value.span() if value else (at + 1, at + 1),), joined=True)
        for _ in range(count):
            gap = _GAP.match(text, at)
            value = _VALUE.match(text, gap.end()) if gap else None
            if value is None:
                break
            values.append(value.span())
            at = value.end()
        return _Flag(*match.span(), tuple(values), joined=False)

    def _changed(self, text: str, flag: _Flag, after: Any) -> Iterator[str]:
        """Yield candidate texts with a new value of a flag: in the variable that it refers to, or in the flag."""
        if len(flag.values) == 1 and not isinstance(after, (bool, list, tuple)):
            start, end = flag.values[0]
            yield from _redefined(text, text[start:end], word_of(after), _DEEPEST)
            yield replaced(text, start, end, _like(text[start:end], word_of(after)))
        else:
            name = text[flag.start : flag.name_end]
            yield replaced(text, flag.start, flag.end, _said(name, after, joined=flag.joined))

    def _added(self, text: str, change: Change, group: Iterable[str]) -> Iterator[str]:
        """Yield candidate texts with a new flag: after the lines around a flag of its group, or after that flag."""
        for name in group:
            for anchor in self._flags(text, name, None):
                new = _said(change.name, change.after, joined=anchor.joined)
                yield from _in_lines(text, anchor.end, new)
            for value in (None, True):
                for anchor in self._flags(text, name, value):
                    new = _said(change.name, change.after, joined=anchor.joined)
                    yield replaced(text, anchor.end, anchor.end, f" {new}")


def _said(name: str, value: Any, *, joined: bool) -> str:
    """Return a flag with its value."""
    if value is True and not joined:
        return name
    words = value if isinstance(value, (list, tuple)) else [value]
    if joined:
        return f"{name}={','.join(map(word_of, words))}"
    return " ".join((name, *map(word_of, words)))


def _like(old: str, new: str) -> str:
    """Return a word in the form of another one: with its quotes, or as the default of a variable."""
    if default := _DEFAULT.fullmatch(old):
        return f"{default[1]}{new}{default[3]}"
    quote = old[:1] if old[:1] in ("'", '"') and new[:1] not in ("'", '"') else ""
    return f"{quote}{new}{quote}"


def _redefined(text: str, word: str, new: str, left: int) -> Iterator[str]:
    """Yield candidate texts with a new literal in a definition of the variable that a word refers to, last first."""
    reference = _REFERENCE.fullmatch(word)
    if reference is None or not left:
        return
    name = reference[1] or reference[2]
    for found in reversed(list(re.finditer(rf"(?<![\w$-]){name}=", text))):
        value = _VALUE.match(text, found.end())
        if value is None:
            continue
        if _LITERAL.fullmatch(value[0]) or _DEFAULT.fullmatch(value[0]):
            yield replaced(text, *value.span(), _like(value[0], new))
        else:
            yield from _redefined(text, value[0], new, left - 1)


def _without_all(text: str, flags: Sequence[_Flag]) -> str:
    """Return a text without flags, given the last first; the shortest reading of each flag is removed."""
    chosen = {one.start: one for one in reversed(flags)}
    for start in sorted(chosen, reverse=True):
        text = without(text, start, chosen[start].end)
    return text


def _in_lines(text: str, at: int, new: str) -> Iterator[str]:
    """Yield candidate texts with a new line for a flag: after the lines of flags around a position, or before them."""
    lines = text.split("\n")
    first = last = text.count("\n", 0, at)
    while last + 1 < len(lines) and _goes_on(lines[last], lines[last + 1]):
        last += 1
    while last > first and lines[last].lstrip().startswith("#"):
        last -= 1
    if not _BEGINS.match(lines[last]) and not _is_continued(lines[last]) and last == first:
        return  # the line contains more than flags
    alike = [line for line in lines[first : last + 1] if _BEGINS.match(line)]
    model = (alike or [lines[first]])[-1]
    indent = model[: len(model) - len(model.lstrip())]
    follows = last > 0 and _is_continued(lines[last - 1])
    if _is_continued(lines[last]) or not follows:
        mark = " \\" if _is_continued(lines[last]) else ""
        yield "\n".join([*lines[: last + 1], f"{indent}{new}{mark}", *lines[last + 1 :]])
    mark = " \\" if follows else ""
    yield "\n".join([*lines[:last], f"{indent}{new}{mark}", *lines[last:]])


def _is_continued(line: str) -> bool:
    return line.endswith("\\")


def _goes_on(line: str, following: str) -> bool:
    """Return true if the following line continues the same command, list or string."""
    if _is_continued(line):
        return following.strip() not in ("", '"', "'", ")", "\\")
    return _PASSED.match(following) is not None


def _variable_edits(text: str, change: Change) -> Iterator[str]:
    """Yield candidate texts with a new value of an environment variable."""
    statement = rf"^([ \t]*)(?:export[ \t]+)?{change.name}=\S*"
    stated = list(re.finditer(statement, text, re.MULTILINE))
    for found in reversed(stated):
        if change.kind == "drop" and fills_lines(text, *found.span()):
            yield replaced(text, *found.span(), f"{found[1]}unset {change.name}")
        elif change.kind == "drop":
            yield without(text, *found.span())
        else:
            start = found.start() + found[0].index("=") + 1
            yield replaced(text, start, found.end(), word_of(change.after))
    if change.kind != "drop":
        first = re.search(r"^(?![#\s]).", text, re.MULTILINE)
        at = line_start(text, first.start()) if first else len(text)
        new = f"export {change.name}={word_of(change.after)}\n"
        yield replaced(text, at, at, new)
        # A file that the script sources may set the variable: then the script's own value must come last.
        if _SOURCES.search(text):
            yield text + "\n" * (not text.endswith("\n")) + new
