"""Rows of settings: of one field each (a number, a switch, a name), of several fields, and of none."""

from collections.abc import Callable, Mapping
from typing import Any

from calculon.launch.dialect import Fields, Reading, Row, Writing

Harmless = Mapping[str, tuple[tuple[Any, ...], str]]
"""Settings whose value alone decides whether they change the result: values that do not, and how others do."""


def row(
    fields: str,
    settings: tuple[str, ...],
    read: Callable[[Reading], Fields],
    write: Callable[[Writing], Fields],
) -> Row:
    """Return the row of fields of the execution that are named in one text: ``"zero_stage dp_shard"``."""
    return Row(tuple(fields.split()), settings, read, write)


def number(setting: str, name: str, default: int = 1, *others: str) -> Row:
    """Return the row of a whole number that is a field as it is; left out where it is the default."""
    return Row(
        fields=(name,),
        settings=(setting, *others),
        read=lambda one: {name: one.count(setting, *others, default=default)},
        write=lambda one: {} if one[name] == default else {setting: one[name]},
    )


def switch(setting: str, name: str, on: Any = True, off: Any = False) -> Row:
    """Return the row of a switch that is a field with two values; left out where it is off."""
    return Row(
        fields=(name,),
        settings=(setting,),
        read=lambda one: {name: on if one.switch(setting) else off},
        write=lambda one: {setting: True} if one[name] == on else {},
    )


def named(setting: str, name: str, ours: Mapping[Any, Any], default: Any) -> Row:
    """Return the row of a field with names: those of the launcher, and ours; left out where it is its default.

    Where several names of the launcher are one value of ours, the first is written.
    """
    theirs: Fields = {}
    for there, here in ours.items():
        theirs.setdefault(here, there)

    def read_name(one: Reading) -> Fields:
        found = one.setting(setting)
        if found is None:
            return {name: ours[default]}
        return {name: ours[one.choice(found, ours)]}

    def write_name(one: Writing) -> Fields:
        if one[name] not in theirs:
            raise one.refuse(name, ", ".join(map(str, theirs)))
        return {} if one[name] == ours[default] else {setting: theirs[one[name]]}

    return Row((name,), (setting,), read_name, write_name)


def only_with(harmless: Harmless) -> Row:
    """Return the row of settings without field that are told as not modelled where their value matters."""

    def read_values(one: Reading) -> Fields:
        for name, (values, effect) in harmless.items():
            found = one.setting(name)
            if found is not None and found.value not in values:
                one.not_modelled(name, effect)
        return {}

    return Row((), tuple(harmless), read_values, lambda one: {}, "campaign")
