"""Rows of one launcher under the names of another, which starts the same code with the same settings.

A :class:`Spelling` says what a setting of the first is called in the second, which values it has there, and what it is
there where nothing is said. Rows are shared; only names are written twice.
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
    """A setting that says what another one says.

    Attributes:
        name: What it is called.
        here: Returns the value of the other setting, given this one's and all that is read; None for nothing.
        there: Returns this one's value, given the other's.
    """

    name: str
    here: Here = _as_it_is
    there: There = _as_it_is


@dataclass(frozen=True, slots=True)
class Spelling:
    """The names of a setting.

    Attributes:
        names: In the order in which they count; the first is written. None where it cannot be said.
        default: Value of the setting where none of them is stated; None for nothing.
        absent: Value under the first name that takes back the default; None where rows always say it, where it counts.
    """

    names: tuple[Name, ...]
    default: Any = None
    absent: Any = None


def opposite(name: str) -> Name:
    """Return the name of a switch that is on where the other one is off."""
    return Name(name, lambda value, _: _switch(value, wanted=False), lambda _: False)


def choice(name: str, values: Mapping[Any, Any]) -> Name:
    """Return a name with other values: those under it, and what they are for the other setting.

    Of several values that are one for the other setting, the first is written. Values that are not listed stay.
    """
    theirs = first_names(values)
    return Name(
        name,
        lambda value, _: values.get(value, value) if _hashable(value) else value,
        lambda value: theirs.get(value, value) if _hashable(value) else value,
    )


def when(name: str, wanted: Any, on: Any = True) -> Name:
    """Return a name one of whose values says that the other setting is `on`; the rest says nothing of it."""
    return Name(name, lambda value, _: on if value == wanted else None, lambda _: wanted)


def renamed(row: Row, spelled: Callable[[str], Spelling]) -> Row:
    """Return a row under other names.

    Args:
        row: A row.
        spelled: Returns the names of a setting.
    """
    spellings = {name: spelled(name) for name in row.settings}

    def read(one: Reading) -> Fields:
        try:
            return row.read(_Renamed(one, spellings, spelled))
        except SpecError as error:
            raise SpecError(error.file, [_reworded(p, spelled) for p in error.problems]) from None

    def write(one: Writing) -> Fields:
        return dict(_written(one, row.write(one), spellings, spelled))

    names = (name.name for spelling in spellings.values() for name in spelling.names)
    return Row(row.fields, tuple(dict.fromkeys(names)), read, write, row.subject)


_FLAG = re.compile(r"--[a-z][a-z0-9-]+")


def _reworded(problem: Problem, spelled: Callable[[str], Spelling]) -> Problem:
    """Return a problem in the names of this launcher."""

    def name(found: re.Match[str]) -> str:
        names = spelled(found[0]).names
        return names[0].name if names else found[0]

    texts = (problem.field, problem.expected, problem.found)
    field, expected, found = (_FLAG.sub(name, text) for text in texts)
    hint = "" if problem.hint == "Megatron-LM needs it" else problem.hint
    return Problem(field, expected, found, hint)


def _written(
    one: Writing,
    settings: Fields,
    spellings: Mapping[str, Spelling],
    spelled: Callable[[str], Spelling],
) -> Iterator[tuple[str, Any]]:
    """Yield settings under their other names, with what has to be said where nothing is said."""
    for name, value in settings.items():
        spelling = spellings.get(name) or spelled(name)
        for first in spelling.names[:1]:
            yield first.name, first.there(value)
    for name, spelling in spellings.items():
        if spelling.absent is not None and name not in settings:
            yield spelling.names[0].name, spelling.absent


class _Renamed(Reading):
    """Settings under other names, as a row asks for them."""

    def __init__(
        self,
        one: Reading,
        spellings: Mapping[str, Spelling],
        spelled: Callable[[str], Spelling],
    ) -> None:
        self.one, self.spellings, self.spelled = one, spellings, spelled
        self.parsed, self.asked_procs = one.parsed, one.asked_procs
        self.execution, self.model, self.campaign = one.execution, one.model, one.campaign
        self.lost, self.notes = one.lost, one.notes
        self.used = _Used(self)
        self.lenient = one.lenient

    def setting(self, *names: str) -> Setting | None:
        """Return the first of some settings that is stated, under its other names, or by default."""
        found = [self._stated(name) for name in names]
        return next((setting for setting in found if setting is not None), None)

    def spelling(self, name: str) -> Spelling:
        """Return the names of a setting."""
        return self.spellings.get(name) or self.spelled(name)

    def _stated(self, name: str) -> Setting | None:
        spelling, stated = self.spelling(name), None
        for there in spelling.names:
            setting = self.one.setting(there.name)
            if setting is not None and setting.value is not None and stated is None:
                value = _plain(there.here(setting.value, self.one))
                stated = Setting(setting.name, value, setting.place)
        if stated is None and spelling.default is not None:
            first = spelling.names[0].name if spelling.names else name
            stated = Setting(first, spelling.default)
        return None if stated is None or stated.value is None else stated

    def not_modelled(self, name: str, effect: str) -> None:
        """Say that the value of a setting changes the result, but not here; and how."""
        for there in self.spelling(name).names:
            self.one.not_modelled(there.name, effect)


class _Used(set[str]):
    """Names that a row says it has read: those of the other launcher are noted."""

    def __init__(self, reading: _Renamed) -> None:
        super().__init__()
        self.reading = reading

    def update(self, *names: Iterable[str]) -> None:
        for name in chain(*names):
            self.reading.one.used.update(one.name for one in self.reading.spelling(name).names)

    def add(self, name: str) -> None:
        self.update((name,))

    def __ior__(self, names: Iterable[str]) -> "_Used":  # type: ignore[override,misc]
        self.update(names)
        return self


def _plain(value: Any) -> Any:
    """Return a value as a flag of a command has it: nothing for what is off, and one value for a list of one."""
    if value is False or value == []:
        return None
    if isinstance(value, list) and len(value) == 1 and not isinstance(value[0], list):
        return value[0]
    return value


def _switch(value: Any, *, wanted: bool) -> Any:
    """Return a switch for one value of another; any other value as it is, which no row takes."""
    return (value is wanted) or None if isinstance(value, bool) else value


def _hashable(value: Any) -> bool:
    return not isinstance(value, (list, dict))
