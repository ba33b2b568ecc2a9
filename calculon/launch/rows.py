"""Rows of settings: one field each (a number, a switch, a name), several fields, or none."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from calculon.launch.dialect import Fields, Reading, Row, Subject, Writing

V = TypeVar("V")

IgnoredValues = Mapping[str, tuple[tuple[Any, ...], str]]
"""Settings whose effect depends on the value: values without effect, and the effect of all others."""


def no_settings(_: Writing) -> Fields:
    """Return no settings: the writer of a row that is only read."""
    return {}


def row(
    fields: str,
    settings: str,
    read: Callable[[Reading], Fields],
    write: Callable[[Writing], Fields] = no_settings,
    subject: Subject = "execution",
) -> Row:
    """Return a row with its fields and settings as names in one text: ``"zero_stage dp_shard"``."""
    return Row(tuple(fields.split()), tuple(settings.split()), read, write, subject)


def by_name(names: Mapping[V, str]) -> dict[str, V]:
    """Return our values by the launcher's names, given a text with the names of each value."""
    return {name: value for value, text in names.items() for name in text.split()}


def first_names(values: Mapping[Any, V]) -> dict[V, Any]:
    """Return the launcher's names by our values; if several names have the same value, the first one."""
    names: dict[V, Any] = {}
    for there, here in values.items():
        # Several launcher names may share one of our values: the first name is the canonical one.
        names.setdefault(here, there)
    return names


def number(setting: str, name: str, default: int = 1, *others: str) -> Row:
    """Return the row of a field that is a whole number; not written at its default."""
    return row(
        name,
        " ".join((setting, *others)),
        lambda reading: {name: reading.count(setting, *others, default=default)},
        lambda writing: {} if writing[name] == default else {setting: writing[name]},
    )


def switch(setting: str, name: str, on: Any = True, off: Any = False) -> Row:
    """Return the row of a switch for a field with two values; not written if off."""
    return row(
        name,
        setting,
        lambda reading: {name: on if reading.switch(setting) else off},
        lambda writing: {setting: True} if writing[name] == on else {},
    )


def named(setting: str, name: str, ours: Mapping[Any, Any], default: Any) -> Row:
    """Return the row of a field whose values have other names in the launcher; not written at its default."""
    theirs = first_names(ours)

    def read_name(reading: Reading) -> Fields:
        return {name: ours[reading.choice(reading.stated(setting, default=default), ours)]}

    def write_name(writing: Writing) -> Fields:
        if writing[name] not in theirs:
            raise writing.refuse(name, ", ".join(map(str, theirs)))
        return {} if writing[name] == ours[default] else {setting: theirs[writing[name]]}

    return row(name, setting, read_name, write_name)


def ignored_values(ignored: IgnoredValues) -> Row:
    """Return the row of settings without a field, which are reported as not modeled unless their value is ignored."""

    def read_values(reading: Reading) -> Fields:
        for name, (values, effect) in ignored.items():
            found = reading.setting(name)
            if found is not None and found.value not in values:
                reading.not_modelled(name, effect)
        return {}

    return row("", " ".join(ignored), read_values, subject="campaign")
