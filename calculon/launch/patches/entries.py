"""Candidate edits that change one setting of a configuration, by the positions of settings in its text."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, Protocol

from calculon.base.frozen import dataclass
from calculon.launch.dialect import Dialect
from calculon.launch.difference import Change
from calculon.launch.patches.spans import (
    fills_lines,
    indentation,
    line_end,
    line_start,
    replaced,
    without,
)
from calculon.launch.texts.tree import TARGET

Names = tuple[str, ...]

ARGUMENT = "--"
"""Prefix of an argument of the training script in a comment of a configuration."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A setting in a text.

    Attributes:
        path: Names, the outermost first.
        start, value: Start of the name, and start and end of the value.
        comma: True if commas separate it from other settings.
        before: Prefix of the name of a new entry after it, such as ``cfg.model.``.
        refers: Name of the constant that is its value; empty for any other value.
    """

    path: Names
    start: int
    value: tuple[int, int]
    comma: bool = False
    before: str = field(default="", kw_only=True)
    refers: str = field(default="", kw_only=True)


class Language(Protocol):
    """A configuration language."""

    def entries(self, text: str) -> list[Entry]:
        """Return the settings of a text in order."""

    def value(self, value: Any, old: str) -> str:
        """Return a value as it is written in place of an old one; `old` is empty for a new setting."""

    def entry(self, name: str, value: Any, indent: str) -> str:
        """Return a new setting; for a mapping, its settings follow on further lines indented below `indent`."""

    def section(self, path: Names, value: Any, text: str) -> Iterator[str]:
        """Yield a text with a setting at its end, for a setting whose section is missing."""


class ConfigurationEdits:
    """Candidate edits of a configuration.

    Attributes:
        language: Language of the configuration.
        named, spelled, sections: As in :class:`calculon.launch.dialect.Dialect`.
    """

    def __init__(self, language: Language, dialect: Dialect) -> None:
        self.language, self.sections = language, dialect.sections
        self.named, self.spelled = dialect.named, dialect.spelled

    def edits(self, text: str, change: Change, group: Mapping[str, int]) -> Iterator[str]:
        """Yield candidate texts of a configuration with one change, the most natural first.

        Args:
            text: The configuration.
            change: Change to make.
            group: Settings that a new one should follow, with their distance from it.
        """
        entries = self.language.entries(text)
        found = self._of_name(entries, text, change)
        if change.kind == "drop":
            yield from (_removed(text, one) for one in found)
        elif change.kind == "change":
            for one in found:
                yield from self._changed(text, one, entries, change.after)
        else:
            yield from self._added(text, entries, change, group)

    def _of_name(self, entries: Sequence[Entry], text: str, change: Change) -> list[Entry]:
        """Return the entries that may be a setting: first those with its full name, then those with its last name."""
        wanted = self.named(change.name)
        spelled = self.spelled(change.name).rpartition(".")[2]
        last = {wanted.rpartition(".")[2], change.name.rpartition(".")[2], spelled}
        line = change.place.rpartition(":")[2]

        def rank(one: Entry) -> tuple[bool, bool]:
            here = line == str(text.count("\n", 0, one.start) + 1)
            return (self.named(".".join(one.path)) != wanted, not here)

        return sorted((one for one in entries if one.path[-1] in last), key=rank)

    def _changed(
        self, text: str, entry: Entry, entries: Sequence[Entry], after: Any
    ) -> Iterator[str]:
        """Yield candidate texts with a new value of an entry: in the constant that it refers to, or in the entry."""
        for constant in entries:
            if entry.refers and constant.path == (entry.refers,):
                yield self._with_value(text, constant, after)
        yield self._with_value(text, entry, after)

    def _with_value(self, text: str, entry: Entry, after: Any) -> str:
        start, end = entry.value
        new = self.language.value(after, text[start:end])
        # An empty value may touch the colon after its name: it needs a blank.
        gap = "" if text[start - 1 : start].isspace() or start != end else " "
        return replaced(text, start, end, f"{gap}{new}")

    def _added(
        self, text: str, entries: Sequence[Entry], change: Change, group: Mapping[str, int]
    ) -> Iterator[str]:
        """Yield candidate texts with a new entry, close to its group if its section exists."""
        for path in self._paths(entries, change.name):
            if len(path) == 1 and path[0].startswith(ARGUMENT):
                yield from self.language.section(path, change.after, text)
                continue
            for depth in range(len(path) - 1, -1, -1):
                siblings = [
                    one
                    for one in entries
                    if one.path[:-1] == path[:depth] and one.before != ARGUMENT
                ]
                value = self._nested(path, depth, change.after)
                for one in self._near(siblings, path[depth], group):
                    yield self._after(text, one, path[depth], value)
                # The deepest existing section is the right place; shallower ones would create a duplicate section.
                if siblings:
                    break
            yield from self.language.section(path, change.after, text)

    def _paths(self, entries: Sequence[Entry], name: str) -> Iterator[Names]:
        """Yield possible paths of a new setting: in sections of the file, or in its usual section."""
        *above, last = self.spelled(name).split(".")
        section = self.named(name).rpartition(".")[0]
        found: dict[Names, None] = {}
        for one in entries:
            if self.named(".".join(one.path)).rpartition(".")[0] == section:
                found[one.path[:-1]] = None
        found[tuple(above)] = None
        yield from ((*each, last) for each in found)

    def _nested(self, path: Names, depth: int, value: Any) -> Any:
        """Return a value nested in the names of its path from a depth on, with the constructors of new sections."""
        for end in range(len(path) - 1, depth, -1):
            made = self.sections.get(".".join(path[:end]))
            value = {**({TARGET: made} if made else {}), path[end]: value}
        return value

    def _near(self, siblings: Sequence[Entry], name: str, group: Mapping[str, int]) -> list[Entry]:
        """Return the entries that a new one may follow, the best first."""

        def rank(one: Entry) -> tuple[bool, int, int]:
            unlike = one.path[-1].partition("_")[0] != name.partition("_")[0]
            return unlike, group.get(self.named(".".join(one.path)), len(group)), -one.start

        return sorted(siblings, key=rank)

    def _after(self, text: str, other: Entry, name: str, value: Any) -> str:
        """Return a text with a new entry after another one, or before it if it is the last between commas."""
        own_line = not text[line_start(text, other.start) : other.start].strip(" \t-")
        indent = indentation(text, other.start)
        new = self.language.entry(f"{other.before}{name}", value, indent)
        if not other.comma:
            at = line_end(text, other.value[1])
            return replaced(text, at, at, f"\n{indent}{new}")
        comma = re.compile(r"\s*,").match(text, other.value[1])
        if comma is None:
            gap = f"\n{indent}" if own_line else " "
            return replaced(text, other.start, other.start, f"{new},{gap}")
        at = comma.end()
        if own_line and fills_lines(text, other.start, at):
            at = line_end(text, at)
            return replaced(text, at, at, f"\n{indent}{new},")
        return replaced(text, at, at, f" {new},")


def _removed(text: str, entry: Entry) -> str:
    """Return a text without an entry, and without the comma that separates it."""
    start, end = entry.start, entry.value[1]
    if entry.before == ARGUMENT:
        return without(text, start, end)
    if not entry.comma:
        return without(text, start, line_end(text, end))
    if comma := re.compile(r"[ \t]*,").match(text, end):
        return without(text, start, comma.end())
    before = text[:start].rstrip()
    if before.endswith(","):  # the last of several entries: remove the comma before it
        gap = text[len(before) : start]
        return without(before[:-1] + gap + text[start:], start - 1, end - 1)
    return without(text, start, end)
