"""A user's launch file with the settings of another plan: only differences change, all other bytes stay.

The language of a file proposes edits, which are tried in order: the first one counts after which the launcher's reader
finds the new value, and every other setting unchanged. Finally the complete file is read back.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Protocol

from calculon.base.errors import Problem, SpecError
from calculon.base.frozen import dataclass
from calculon.declarations.fields import shown
from calculon.launch.dialect import Dialect, Parsed, read
from calculon.launch.difference import PROCESSORS, Change, Difference, fields_of_settings
from calculon.launch.patches.configurations import Json, Python, Toml, Yaml
from calculon.launch.patches.entries import ConfigurationEdits, Language
from calculon.launch.patches.processor_edits import processor_edits
from calculon.launch.patches.shell_edits import ShellEdits

LANGUAGES: Mapping[str, Callable[[], Language]] = {
    "json": Json,
    "python": Python,
    "toml": Toml,
    "yaml": Yaml,
}

_LENGTH = "seq_length"


class Edits(Protocol):
    """Candidate edits of a setting."""

    def edits(self, text: str, change: Change, group: Mapping[str, int]) -> Iterator[str]:
        """Yield candidate texts with one change, the most natural first."""


@dataclass(frozen=True, slots=True)
class Patch:
    """A changed launch file.

    Attributes:
        text: Text of the file.
        notes: Changes that the user has to make, because the file does not state the setting.
    """

    text: str
    notes: tuple[str, ...] = ()


def patched(
    text: str,
    file: str,
    between: Difference,
    wanted: Mapping[str, Any],
    variables: Mapping[str, str] | None = None,
) -> Patch:
    """Return a launch file with the settings of another execution.

    Args:
        text, file: Contents and name of the file.
        between: Changes from the file's execution to the other one.
        wanted: All fields of the other execution, with its sequence length.
        variables: Values of environment variables for reading the file.

    Raises:
        SpecError: If a change cannot be placed in the file, or the changed file means something else.
    """
    # Edits assume line feeds; the original line ends are restored at the end.
    if "\r\n" in text:
        result = patched(text.replace("\r\n", "\n"), file, between, wanted, variables)
        return Patch(result.text.replace("\n", "\r\n"), result.notes)
    patching = _Patching(between, text, file, int(wanted["num_procs"]), variables or {})
    wanted = patching.without_length(wanted)
    if not patching.moves_processors and not patching.unlike(text, wanted):
        return Patch(text)
    if between.refused:
        raise SpecError(file, between.refused)
    # Prefer to keep redundant settings of the user; remove them only if the launcher objects.
    for spares in (True, False):
        result = patching.made(spares=spares)
        wrong = patching.unlike(result.text, wanted) + patching.refused(result.text)
        if not wrong:
            return result
    raise SpecError(file, wrong)


def edits_of(dialect: Dialect, text: str, file: str) -> Edits:
    """Return the candidate edits for the language of a file."""
    language = dialect.language(text, file)
    if language == "shell":
        return ShellEdits(dialect.named)
    return ConfigurationEdits(LANGUAGES[language](), dialect)


class _Patching:
    """A file that is being changed to another execution."""

    def __init__(
        self,
        between: Difference,
        text: str,
        file: str,
        num_procs: int,
        variables: Mapping[str, str],
    ) -> None:
        self.dialect, self.file, self.variables = between.dialect, file, variables
        self.text, self.num_procs = text, num_procs
        self.own = self.parse(text)
        self.stated = {name: one.value for name, one in self.own.settings.items()}
        self.written = between.written
        moved = [one.before for one in between.changes if one.name == PROCESSORS]
        self.moves_processors = bool(moved)
        self.changes = [one for one in between.changes if one.name != PROCESSORS]
        self.goal: dict[str, Change] = {}
        count = self.own.num_procs
        self.own_procs = count if isinstance(count, int) else int((*moved, num_procs)[0])
        self.known = {one.expected for one in self.dialect.refused(text, self.own_procs)}

    def parse(self, text: str) -> Parsed:
        """Parse a text of the launcher."""
        return self.dialect.parse(text, self.file, self.variables)

    def without_length(self, wanted: Mapping[str, Any]) -> Mapping[str, Any]:
        """Keep the sequence length open if the file does not state it; return the fields that the file must state."""
        before = fields_of_settings(self.dialect, self.stated, self.own_procs)
        if before is None or before.get(_LENGTH) != 0:
            return wanted
        for change in [one for one in self.changes if one.kind == "add"]:
            settings = self.stated | {change.name: change.after}
            after = fields_of_settings(self.dialect, settings, self.own_procs)
            if after is not None and after[_LENGTH] and {**after, _LENGTH: 0} == before:
                self.changes.remove(change)
        return {**wanted, _LENGTH: 0}

    def made(self, *, spares: bool) -> Patch:
        """Return the text with all changes; SpecError if a change cannot be placed.

        Args:
            spares: True to keep settings that make no difference, such as a degree of 1.
        """
        edits = edits_of(self.dialect, self.text, self.file)
        keys = {one.name: key for key, one in self.own.settings.items()}
        self.goal = {keys.get(one.name, one.name): one for one in self.changes}
        group = self._group()
        text, notes = self._with_processors()
        for key, change in self.goal.items():
            before = self.parse(text)
            if _is_made(change, key, before) or (spares and self._is_idle(key, change)):
                continue
            tried = edits.edits(text, change, group)
            found = self._first(tried, before, partial(_is_made, change, key))
            if found is None:
                raise SpecError(self.file, Problem(change.name, "a place in the file", "none"))
            text = found
        return Patch(self._with_needed(text, edits), notes)

    def _with_needed(self, text: str, edits: Edits) -> str:
        """Return a text with new requirements of its settings, such as environment variables."""
        settings = self.parse(text).settings
        needed = self.dialect.needed({name: one.value for name, one in settings.items()})
        for name, value in needed.items():
            change = Change("drop" if value is None else "change", name, None, value)
            texts = (
                (text, *edits.edits(text, change, self._group())) if self.refused(text) else (text,)
            )
            # A requirement is only added if it resolves a refusal: users may meet it outside the file.
            text = min(texts, key=lambda one: len(self.refused(one)))
        return text

    def _group(self) -> dict[str, int]:
        """Return the file's settings of its execution: 0 for degrees, which come first, 1 for all others."""
        rows = [row for row in self.dialect.rows if row.subject == "execution"]
        names = [name for row in rows for name in row.settings if name in self.stated]
        return {name: int(name not in rows[0].settings) for name in names}

    def _is_idle(self, key: str, change: Change) -> bool:
        """Return true if the file means the same without a setting, or with either of its two values.

        Examples are a degree of 1 that is to be removed, and a degree that follows from others.
        """
        other = {name: value for name, value in self.stated.items() if name != key}
        if change.kind != "drop":
            if self.written.get(key, change.before) == change.before:
                return False
            other[key] = self.written[key]
        both = (
            fields_of_settings(self.dialect, one, self.own_procs) for one in (self.stated, other)
        )
        return next(both) == next(both)

    def _with_processors(self) -> tuple[str, tuple[str, ...]]:
        """Return the text with the new number of processors if it states them, and otherwise a note."""
        stated = self.own.num_procs
        if stated == self.num_procs or not self.moves_processors:
            return self.text, ()
        if isinstance(stated, int):
            tried = processor_edits(self.text, stated, self.num_procs)
            found = self._first(tried, self.own, lambda new: new.num_procs == self.num_procs)
            if found is not None:
                return found, ()
        where = (
            f"runs on {stated:,}" if isinstance(stated, int) else "does not state its processors"
        )
        return self.text, (f"{self.file} {where}: start it on {self.num_procs:,} processors",)

    def _first(
        self, tried: Iterable[str], before: Parsed, is_made: Callable[[Parsed], bool]
    ) -> str | None:
        """Return the first candidate that makes a change and leaves every other setting unchanged.

        For a configuration whose settings refer to the changed one, accept the first candidate that makes the change.
        """
        second = None
        for text in tried:
            try:
                after = self.parse(text)
            except SpecError:  # a candidate is only a guess at the user's layout
                continue
            if not is_made(after):
                continue
            if self._leaves_the_rest(before, after):
                return text
            if second is None and after.num_procs in (before.num_procs, self.num_procs):
                second = text
        return None if self.dialect.language(self.text, self.file) == "shell" else second

    def _leaves_the_rest(self, before: Parsed, after: Parsed) -> bool:
        """Return true if every setting is unchanged, or has its wanted value."""
        if after.num_procs not in (before.num_procs, self.num_procs):
            return False
        for key in {*before.settings, *after.settings}:
            old, new = before.settings.get(key), after.settings.get(key)
            same = old is not None and new is not None and old.value == new.value
            if not same and not (key in self.goal and _is_made(self.goal[key], key, after)):
                return False
        return True

    def unlike(self, text: str, wanted: Mapping[str, Any]) -> list[Problem]:
        """Return problems with fields of a text that differ from the other execution."""
        asked = None if self.parse(text).num_procs == self.num_procs else self.num_procs
        try:
            launch = read(self.dialect, text, self.file, num_procs=asked, variables=self.variables)
        except SpecError as error:
            return list(error.problems)
        said = launch.execution
        return [
            Problem(name, shown(wanted[name]), shown(said[name]))
            for name in self.dialect.fields
            if said[name] != wanted[name]
        ]

    def refused(self, text: str) -> list[Problem]:
        """Return the launcher's refusals of a text that do not apply to the original file."""
        found = self.dialect.refused(text, self.num_procs)
        return [one for one in found if one.expected not in self.known]


def _is_made(change: Change, key: str, parsed: Parsed) -> bool:
    """Return true if the settings have the value of a change."""
    found = parsed.settings.get(key)
    if found is None or change.kind == "drop":
        return found is None and change.kind == "drop"
    return bool(_plain(found.value) == _plain(change.after))


def _plain(value: Any) -> Any:
    """Normalize a value: a list with one element is equal to the element."""
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value] if len(value) != 1 else _plain(value[0])
    return value
