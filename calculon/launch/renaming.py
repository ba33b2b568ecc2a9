"""Rows of one launcher under the names of another one that starts the same code with the same settings.

A :class:`Alias` states the name of a setting in the second launcher, its values there, and its default there. Rows are
shared; only names are written twice.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

from calculon.base.errors import Problem, SpecError
from calculon.base.frozen import dataclass
from calculon.launch.dialect import Fields, Reading, Row, Setting, Writing
from calculon.launch.rows import first_names

Here = Callable[[Any, Reading], Any]
There = Callable[[Any], Any]


def _as_it_is(value: Any, _: Any = None) -> Any:
    return value


@dataclass(frozen=True, slots=True)
class Name:
    """A setting that expresses another one.

    name: Name of this setting.
        here: Function from this setting's value and the reading to the other setting's value; None if it says nothing.
        there: Function from the other setting's value to this one's.
        there: Returns this one's value, given the other's.
    """

    name: str
    here: Here = _as_it_is
    there: There = _as_it_is


@dataclass(frozen=True, slots=True)
class Alias:
    """Names of a setting in the second launcher.

    Attributes:
        names: Names in order of precedence; the first is written. Empty if the setting cannot be expressed.
        default: Value of the setting if none of them is stated; None for none.
        absent: Value under the first name that overrides the default; None if rows always state it when it matters.
    """

    names: tuple[Name, ...]
    default: Any = None
    absent: Any = None


def opposite(name: str) -> Name:
    """Return the name of a switch that is on if the other one is off."""
    return Name(name, lambda value, _: _switch(value, wanted=False), lambda _: False)


def choice(name: str, values: Mapping[Any, Any]) -> Name:
    """Return a name with other values: `values` maps them to the values of the other setting.

    If several values mean the same for the other setting, the first is written. Unlisted values are kept.
    """
    theirs = first_names(values)
    return Name(
        name,
        lambda value, _: values.get(value, value) if _hashable(value) else value,
        lambda value: theirs.get(value, value) if _hashable(value) else value,
    )


def when(name: str, wanted: Any, on: Any = True) -> Name:
    """Return a name with one value that means `on` for the other setting; its other values say nothing about it."""
    return Name(name, lambda value, _: on if value == wanted else None, lambda _: wanted)


def as_switch(value: Any, _: Any = None) -> Any:
    """Return a switch; some files state 1 or 0."""
    return bool(value) if value in (0, 1) else value


def renamed(row: Row, spelled: Callable[[str], Alias]) -> Row:
    """Return a row under other names.

    Args:
        row: Row to rename.
        spelled: Function from a setting to its names.
    """
    aliases = {name: spelled(name) for name in row.settings}

    def read(reading: Reading) -> Fields:
        try:
            return row.read(_Renamed(reading, aliases, spelled))
        except SpecError as error:
            raise SpecError(error.file, [_reworded(p, spelled) for p in error.problems]) from None

    def write(writing: Writing) -> Fields:
        return dict(_written(writing, row.write(writing), aliases, spelled))

    names = (name.name for alias in aliases.values() for name in alias.names)
    return Row(row.fields, tuple(dict.fromkeys(names)), read, write, row.subject)


_FLAG = re.compile(r"--[a-z][a-z0-9-]+")


def _reworded(problem: Problem, spelled: Callable[[str], Alias]) -> Problem:
    """Return a problem with the names of this launcher."""

    def name(match: re.Match[str]) -> str:
        names = spelled(match[0]).names
        return names[0].name if names else match[0]

    texts = (problem.field, problem.expected, problem.found)
    field, expected, found = (_FLAG.sub(name, text) for text in texts)
    # The hint names a launcher that the user does not run.
    hint = "" if problem.hint == "Megatron-LM needs it" else problem.hint
    return Problem(field, expected, found, hint)


def _written(
    writing: Writing,
    settings: Fields,
    aliases: Mapping[str, Alias],
    spelled: Callable[[str], Alias],
) -> Iterator[tuple[str, Any]]:
    """Yield settings under their other names, and explicit values where absence has a different meaning."""
    for name, value in settings.items():
        alias = aliases.get(name) or spelled(name)
        for first in alias.names[:1]:
            yield first.name, first.there(value)
    for name, alias in aliases.items():
        if alias.absent is not None and name not in settings:
            yield alias.names[0].name, alias.absent


class _Renamed(Reading):
    """Reading under other names: rows ask by their own names."""

    def __init__(
        self,
        reading: Reading,
        aliases: Mapping[str, Alias],
        spelled: Callable[[str], Alias],
    ) -> None:
        self.original, self.aliases, self.spelled = reading, aliases, spelled
        self.parsed, self.asked_procs = reading.parsed, reading.asked_procs
        self.execution, self.model, self.campaign = (
            reading.execution,
            reading.model,
            reading.campaign,
        )
        self.lost, self.notes = reading.lost, reading.notes
        self.used = _Used(self)
        self.lenient = reading.lenient

    def setting(self, *names: str) -> Setting | None:
        """Return the first of several settings that is stated, under its other names, or its default."""
        found = [self._stated(name) for name in names]
        return next((setting for setting in found if setting is not None), None)

    def alias(self, name: str) -> Alias:
        """Return the names of a setting."""
        return self.aliases.get(name) or self.spelled(name)

    def _stated(self, name: str) -> Setting | None:
        alias, stated = self.alias(name), None
        for there in alias.names:
            setting = self.original.setting(there.name)
            if setting is not None and setting.value is not None and stated is None:
                value = _plain(there.here(setting.value, self.original))
                stated = Setting(setting.name, value, setting.place)
        # All names are asked for even after a hit, so that every alias counts as read.
        if stated is None and alias.default is not None:
            first = alias.names[0].name if alias.names else name
            stated = Setting(first, alias.default)
        return None if stated is None or stated.value is None else stated

    def not_modelled(self, name: str, effect: str) -> None:
        """Record that the value of a setting changes the result but is not modeled, with its effect."""
        for there in self.alias(name).names:
            self.original.not_modelled(there.name, effect)


class _Used(set[str]):
    """Set of names that a row has read; it records the names of the other launcher."""

    def __init__(self, reading: _Renamed) -> None:
        super().__init__()
        self.reading = reading

    def update(self, *names: Iterable[str]) -> None:
        for name in chain(*names):
            # Rows add to this set under Megatron-LM's names; the report needs the names in the user's file.
            self.reading.original.used.update(one.name for one in self.reading.alias(name).names)

    def add(self, name: str) -> None:
        self.update((name,))

    def __ior__(self, names: Iterable[str]) -> "_Used":  # type: ignore[override,misc]
        self.update(names)
        return self


def _plain(value: Any) -> Any:
    """Return a value as a command-line flag would have it: None for off, and a single value for a list of one."""
    if value is False or value == []:
        return None
    if isinstance(value, list) and len(value) == 1 and not isinstance(value[0], list):
        return value[0]
    return value


def _switch(value: Any, *, wanted: bool) -> Any:
    """Return a switch that is on for one value of another switch; other values are kept, for the row to refuse."""
    return (value is wanted) or None if isinstance(value, bool) else value


def _hashable(value: Any) -> bool:
    return not isinstance(value, (list, dict))
