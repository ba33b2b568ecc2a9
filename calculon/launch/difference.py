"""What to change in a launch file to run another execution: in settings of its launcher, as the file writes them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from calculon.errors import Problem, SpecError
from calculon.frozen import dataclass
from calculon.launch.dialect import Dialect, Fields, Setting, plain, settings_of
from calculon.presets import find_preset
from calculon.spec.execution import Execution
from calculon.spec.fields import optional_defaults
from calculon.spec.model import Model

Kind = Literal["change", "add", "drop"]

PROCESSORS = "processors"
"""Name of the change of processors, which launchers say in their own ways."""


@dataclass(frozen=True, slots=True)
class Change:
    """A setting that another execution has otherwise.

    Attributes
    ----------
    kind : str
        ``change``, ``add`` or ``drop``.
    name : str
        The setting, as the file calls it.
    before, after : object
        Its values; None where it is not stated.
    place : str
        Where it stands: ``run.sh:12``; empty where it does not.
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
        """Return it as plain data, with its words."""
        return {
            "kind": self.kind,
            "name": self.name,
            "before": self.before,
            "after": self.after,
            "place": self.place,
            "words": str(self),
        }


def _written(name: str, value: Any, between: str) -> str:
    """Return a setting as its file has it; a switch of a command is its name alone."""
    return name if value is True and between == " " else f"{name}{between}{plain(value)}"


@dataclass(frozen=True, slots=True)
class Difference:
    """The changes that make one execution of a launcher another.

    Attributes
    ----------
    dialect : Dialect
        The launcher.
    changes : tuple of Change
        In the order in which its settings are written.
    refused : tuple of Problem
        Fields of the other execution that it cannot express; they are left as they are.
    """

    dialect: Dialect
    changes: tuple[Change, ...]
    refused: tuple[Problem, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
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
    """Return what to change in the settings of one execution to run another.

    Parameters
    ----------
    dialect : Dialect
        The launcher.
    mine, other : mapping
        All fields of both executions.
    model : Model, optional
        The model: some settings count its blocks.
    stated : mapping of str to Setting, optional
        The settings of the file that says `mine` (:attr:`calculon.launch.dialect.Launch.stated`);
        by default what the dialect writes for it.

    Raises
    ------
    SpecError
        Where the dialect cannot express `mine` at all.
    """
    usual = optional_defaults(Execution) | find_preset(dialect.preset).usual(mine)
    before, left_out = _said(dialect, mine, usual, model)
    sayable = {**mine, **{one.field: usual[one.field] for one in left_out}}
    after, refused = _said(dialect, other, sayable, model)
    changes = [*_processors(mine, other)]
    for name in dict.fromkeys((*before, *after)):
        if before.get(name) != after.get(name):
            both = before.get(name), after.get(name)
            changes += _changes(dialect, name, both, after, stated)
    return Difference(dialect, tuple(dict.fromkeys(changes)), refused)


def _said(
    dialect: Dialect, execution: Mapping[str, Any], instead: Mapping[str, Any], model: Model | None
) -> tuple[Fields, tuple[Problem, ...]]:
    """Return the settings of an execution without those of its model, and what it has that they cannot say.

    Fields that cannot be said have the values of `instead`.
    """
    own = {name for row in dialect.rows if row.subject == "execution" for name in row.settings}
    fields, refused = dict(execution), list[Problem]()
    while True:
        try:
            found = settings_of(dialect, fields, model)
        except SpecError as error:
            wrong = [one for one in error.problems if one.field in fields]
            new = [one for one in wrong if fields[one.field] != instead[one.field]]
            if not new and (wrong or model is None):
                raise
            model = model if wrong else None  # whose shape cannot be said
            refused += new
            fields |= {one.field: instead[one.field] for one in new}
        else:
            return {name: found[name] for name in found if name in own}, tuple(refused)


def _processors(mine: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[Change]:
    counts = mine["num_procs"], other["num_procs"]
    if counts[0] != counts[1]:
        yield Change("change", PROCESSORS, *counts)


def _changes(
    dialect: Dialect,
    name: str,
    both: tuple[Any, Any],
    after: Mapping[str, Any],
    stated: Mapping[str, Setting] | None,
) -> Iterator[Change]:
    """Yield what to do about a setting with two values, of which a file states some in its own way."""
    old, new = both
    if stated is None:
        kind: Kind = "add" if old is None else "drop" if new is None else "change"
        yield Change(kind, name, old, new)
        return
    there = stated.get(name)
    if there is not None and new is not None:
        if there.value != new:
            yield Change("change", there.name, there.value, new, there.place)
    elif new is not None:
        yield Change("add", name, None, new)
    elif there is not None:
        yield _without(there)
    else:
        for other in _beside(dialect, name):
            if other in stated and other not in after:
                yield _without(stated[other])


def _without(stated: Setting) -> Change:
    """Return the change that takes a setting back; one of a recipe, which may be stated elsewhere, is turned off."""
    if stated.value is True and not stated.name.startswith("-"):
        return Change("change", stated.name, True, False, stated.place)
    return Change("drop", stated.name, stated.value, None, stated.place)


def _beside(dialect: Dialect, name: str) -> Sequence[str]:
    """Return the names of the row of a setting, which may say the same."""
    rows = (row.settings for row in dialect.rows if row.subject == "execution")
    return tuple(other for names in rows if name in names for other in names if other != name)
