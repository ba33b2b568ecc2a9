"""Changes that turn a launch file into another execution, in its launcher's settings and the file's spelling."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, Literal

from calculon.base.errors import Problem, SpecError
from calculon.base.frozen import dataclass
from calculon.declarations.execution import Execution
from calculon.declarations.fields import optional_defaults, shown
from calculon.declarations.model import Model
from calculon.declarations.presets import find_preset
from calculon.launch.dialect import (
    Dialect,
    Fields,
    Parsed,
    Reading,
    Row,
    Setting,
    nearest_settings,
    plain,
)

Kind = Literal["change", "add", "drop"]

PROCESSORS = "processors"
"""Name of the change of the number of processors, which every launcher spells differently."""


@dataclass(frozen=True, slots=True)
class Change:
    """A setting that differs between two executions.

    Attributes:
        kind: ``change``, ``add`` or ``drop``.
        name: Name of the setting in the file.
        before, after: Values; None if not stated.
        place: Place in the file, such as ``run.sh:12``; empty if not stated.
    """

    kind: Kind
    name: str
    before: Any
    after: Any
    place: str = ""

    def __str__(self) -> str:
        between = " " if self.name.startswith("-") else ": "
        if self.kind == "change":
            return f"change {_written(self.name, self.before, between)} to {plain(self.after)}"
        value = self.after if self.kind == "add" else self.before
        return f"{self.kind} {_written(self.name, value, between)}"

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-serializable dict, with the text of the change."""
        return {
            "kind": self.kind,
            "name": self.name,
            "before": self.before,
            "after": self.after,
            "place": self.place,
            "words": str(self),
        }


def _written(name: str, value: Any, between: str) -> str:
    """Return a setting as in its file; a command-line switch is its name alone."""
    return name if value is True and between == " " else f"{name}{between}{plain(value)}"


@dataclass(frozen=True, slots=True)
class Difference:
    """Changes that turn one execution of a launcher into another.

    Attributes:
        dialect: Dialect of the launcher.
        changes: Changes in the order in which settings are written.
        refused: Fields of the other execution that the launcher cannot express; they stay unchanged.
        written: Settings of the first execution as the launcher writes them, with the names of the file.
    """

    dialect: Dialect
    changes: tuple[Change, ...]
    refused: tuple[Problem, ...]
    written: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-serializable dict."""
        return {
            "format": self.dialect.name,
            "title": self.dialect.title,
            "changes": [one.to_dict() for one in self.changes],
            "refused": [
                {"field": one.field, "found": one.found, "expected": one.expected}
                for one in self.refused
            ],
        }


def difference(
    dialect: Dialect,
    mine: Mapping[str, Any],
    other: Mapping[str, Any],
    model: Model | None = None,
    stated: Mapping[str, Setting] | None = None,
) -> Difference:
    """Return the changes of settings that turn one execution into another.

    Args:
        dialect: Dialect of the launcher.
        mine, other: All fields of both executions.
        model: Model: some settings count its blocks.
        stated: Settings of the file of `mine` (:attr:`calculon.launch.dialect.Launch.stated`); by default the settings
            that the dialect writes for it.

    Raises:
        SpecError: If the dialect cannot express `mine` at all.
    """
    before, _, left_out = _said(dialect, mine, {}, model)
    # Fields that the launcher cannot express stay as they are in both executions, so they cause no change.
    sayable = {name: value for name, value in mine.items() if name not in left_out}
    try:
        after, of_model, refused = _said(dialect, other, sayable, model)
    except SpecError as error:  # no settings are near to it
        return Difference(dialect, (), error.problems)
    counts = int(mine["num_procs"]), int(other["num_procs"])
    changes = [*_processors(*counts)]
    written = before if stated is None else dialect.in_version_of(before, stated)
    if stated is None:
        changes += _written_changes(before, after)
    else:
        both = (written, dialect.in_version_of(after, stated))
        own, unsaid = _file_changes(dialect, both, of_model, stated, counts)
        changes += own
        refused = {one.field: one for one in unsaid} | refused
    return Difference(dialect, tuple(changes), tuple(refused.values()), written)


def _said(
    dialect: Dialect, execution: Mapping[str, Any], instead: Mapping[str, Any], model: Model | None
) -> tuple[Fields, Fields, dict[str, Problem]]:
    """Return the settings nearest to an execution, the settings of its model, and the fields that they miss.

    A field that cannot be written takes its value from `instead`, or else its usual value with the other fields.
    """
    own = {name for row in dialect.rows if row.subject == "execution" for name in row.settings}
    usual = optional_defaults(Execution) | find_preset(dialect.preset).usual(execution)
    fields, refused = dict(execution), dict[str, Problem]()
    left = {
        name: [other[name] for other in (instead, usual) if other.get(name, value) != value]
        for name, value in fields.items()
    }
    # Each round replaces the refused fields; it ends because every field has at most two alternatives.
    while True:
        try:
            found, unsaid = nearest_settings(dialect, fields, model)
        except SpecError as error:
            wrong = {one.field: one for one in error.problems if one.field in fields}
            others = {name: left[name].pop(0) for name in wrong if left[name]}
            if not others and (wrong or model is None):
                raise
            model = model if wrong else None  # the launcher cannot express its shape
            refused |= {name: wrong[name] for name in others if name not in refused}
            fields |= others
        else:
            refused |= {one.field: one for one in unsaid if one.field not in refused}
            said, of_model = (
                {name: found[name] for name in found if (name in own) == owned}
                for owned in (True, False)
            )
            return said, of_model, refused


def _processors(mine: int, other: int) -> Iterator[Change]:
    if mine != other:
        yield Change("change", PROCESSORS, mine, other)


def _written_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Change]:
    """Yield the changes between settings as the dialect writes them."""
    for name in dict.fromkeys((*before, *after)):
        old, new = before.get(name), after.get(name)
        if name not in before:
            yield Change("add", name, None, new)
        elif name not in after:
            yield Change("drop", name, old, None)
        elif old != new:
            yield Change("change", name, old, new)


def _file_changes(
    dialect: Dialect,
    both: tuple[Mapping[str, Any], Mapping[str, Any]],
    of_model: Mapping[str, Any],
    stated: Mapping[str, Setting],
    counts: tuple[int, int],
) -> tuple[Iterable[Change], list[Problem]]:
    """Return the changes of a file, which may spell settings differently or state settings that depend on each other.

    First only the settings that differ are changed. Rows whose fields still differ from the other execution are
    rewritten, and finally all rows. Fields that differ even then, because of other settings of the file, come second.
    """
    rows = [row for row in dialect.rows if row.subject == "execution"]
    names = _names(dialect, rows, stated, counts[0])
    kept = {name for row in dialect.rows if row.subject != "execution" for name in row.settings}
    wanted, _ = _read(rows, {**of_model, **both[1]}, counts[1])
    anew: set[int] = set()
    for _ in range(_ROUNDS):
        changes = _changes(names, both, stated, anew)
        changes = {
            name: one for name, one in changes.items() if name in both[1] or name not in kept
        }
        said, _ = _read(rows, _made(stated, changes), counts[1])
        if said is None:  # the settings contradict each other
            wrong = {i for i, own in enumerate(names) if changes.keys() & {*own}}
            # The changed rows were rewritten already and still contradict each other: rewrite all rows.
            wrong = wrong if wrong - anew else {*range(len(rows))}
        else:
            wrong = {i for i, row in enumerate(rows) if _differs(row.fields, said, wanted or {})}
        if wrong <= anew:
            break
        anew |= wrong
    unsaid = [
        Problem(name, f"{shown(said[name])}, given the other settings of the file", shown(value))
        for name, value in (wanted or {}).items()
        if said is not None and name in dialect.fields and said[name] != value
    ]
    return changes.values(), unsaid


def _names(
    dialect: Dialect, rows: Sequence[Row], stated: Mapping[str, Setting], processors: int
) -> list[tuple[str, ...]]:
    """Return the names of each row: the names that it writes, and names in the file that only this row reads."""
    own = {name for row in dialect.rows for name in row.settings}
    _, asked = _read(rows, {name: one.value for name, one in stated.items()}, processors)
    found = []
    for row, names in zip(rows, asked, strict=False):
        found.append((*row.settings, *(name for name in stated if name in names - own)))
    return found + [row.settings for row in rows[len(found) :]]


def _differs(names: Sequence[str], said: Fields, wanted: Fields) -> bool:
    return any(said[name] != wanted.get(name) for name in names)


_ROUNDS = 4


def _changes(
    rows: Sequence[Sequence[str]],
    both: tuple[Mapping[str, Any], Mapping[str, Any]],
    stated: Mapping[str, Setting],
    anew: Collection[int],
) -> dict[str, Change]:
    """Return the changes of a file by setting, given the names of each row; rows in `anew` are rewritten completely."""
    before, after = both
    result: dict[str, Change] = {}
    names = [n for n in (*before, *after) if (n in before) != (n in after) or before[n] != after[n]]
    again = {name for i in anew for name in rows[i]}
    names += [name for i in sorted(anew) for name in rows[i]]
    row_of = {name: row for row in rows for name in row}
    for name in dict.fromkeys(names):
        there = stated.get(name)
        if name in after and there is None:
            result[name] = Change("add", name, None, after[name])
        elif name in after and there is not None:
            if there.value != after[name]:
                result[name] = Change("change", there.name, there.value, after[name], there.place)
        elif there is not None:
            result[name] = _without(there, off=name not in again)
        elif name in before:
            # Neither file states the setting by this name: remove aliases of the same row instead.
            others = [
                other for other in row_of.get(name, ()) if other in stated and other not in after
            ]
            result |= {other: _without(stated[other], off=True) for other in others}
    return result


def _made(stated: Mapping[str, Setting], changes: Mapping[str, Change]) -> Fields:
    """Return the settings of a file after changes."""
    found = {name: one.value for name, one in stated.items() if name not in changes}
    return found | {name: one.after for name, one in changes.items() if one.kind != "drop"}


def _read(
    rows: Sequence[Row], settings: Mapping[str, Any], processors: int
) -> tuple[Fields | None, list[set[str]]]:
    """Return the fields of settings, None if the settings contradict each other, and the names that each row reads."""
    stated = {name: Setting(name, value) for name, value in settings.items()}
    reading = Reading(Parsed("settings", stated), processors)
    asked: list[set[str]] = []
    try:
        for row in rows:
            reading.used = set()
            reading.execution.update(row.read(reading))
            asked.append(reading.used)
    except SpecError:
        return None, asked
    return reading.execution, asked


def fields_of_settings(
    dialect: Dialect, settings: Mapping[str, Any], processors: int
) -> Fields | None:
    """Return the fields of an execution that settings determine; None if the settings contradict each other."""
    rows = [row for row in dialect.rows if row.subject == "execution"]
    return _read(rows, settings, processors)[0]


def _without(stated: Setting, *, off: bool) -> Change:
    """Return the change that removes a setting; a switch of a configuration is set to false: a base may set it."""
    if off and stated.value is True and not stated.name.startswith("-"):
        return Change("change", stated.name, True, False, stated.place)
    return Change("drop", stated.name, stated.value, None, stated.place)
