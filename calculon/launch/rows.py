"""Rows of settings: of one field each (a number, a switch, a name), of several fields, and of none."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from calculon.launch.dialect import Fields, Reading, Row, Subject, Writing

V = TypeVar("V")

Harmless = Mapping[str, tuple[tuple[Any, ...], str]]
"""Settings whose value alone decides whether they change the result: values that do not, and how others do."""


def nothing(_: Writing) -> Fields:
    """Return no settings: the writer of a row that is only read."""
    return {}


def row(
    fields: str,
    settings: str,
    read: Callable[[Reading], Fields],
    write: Callable[[Writing], Fields] = nothing,
    subject: Subject = "execution",
) -> Row:
    """Return a row whose fields and settings are each named in one text: ``"zero_stage dp_shard"``."""
    return Row(tuple(fields.split()), tuple(settings.split()), read, write, subject)


def by_name(names: Mapping[V, str]) -> dict[str, V]:
    """Return our values by the launcher's names, given those of each value in a text."""
    return {name: value for value, text in names.items() for name in text.split()}


def first_names(values: Mapping[Any, V]) -> dict[V, Any]:
    """Return the launcher's names by our values; of several names of one value the first."""
    names: dict[V, Any] = {}
    for there, here in values.items():
        names.setdefault(here, there)
    return names


def number(setting: str, name: str, default: int = 1, *others: str) -> Row:
    """Return the row of a whole number that is a field as it is; left out where it is the default."""
    return row(
        name,
        " ".join((setting, *others)),
        lambda one: {name: one.count(setting, *others, default=default)},
        lambda one: {} if one[name] == default else {setting: one[name]},
    )


def switch(setting: str, name: str, on: Any = True, off: Any = False) -> Row:
    """Return the row of a switch that is a field with two values; left out where it is off."""
    return row(
        name,
        setting,
        lambda one: {name: on if one.switch(setting) else off},
        lambda one: {setting: True} if one[name] == on else {},
    )


def named(setting: str, name: str, ours: Mapping[Any, Any], default: Any) -> Row:
    """Return the row of a field with names: those of the launcher, and ours; left out where it is its default."""
    theirs = first_names(ours)

    def read_name(one: Reading) -> Fields:
        return {name: ours[one.choice(one.stated(setting, default=default), ours)]}

    def write_name(one: Writing) -> Fields:
        if one[name] not in theirs:
            raise one.refuse(name, ", ".join(map(str, theirs)))
        return {} if one[name] == ours[default] else {setting: theirs[one[name]]}

    return row(name, setting, read_name, write_name)


def only_with(harmless: Harmless) -> Row:
    """Return the row of settings without field that are told as not modelled where their value matters."""

    def read_values(one: Reading) -> Fields:
        for name, (values, effect) in harmless.items():
            found = one.setting(name)
            if found is not None and found.value not in values:
                one.not_modelled(name, effect)
        return {}

    return row("", " ".join(harmless), read_values, subject="campaign")
