"""Labels of plan fields and of their values, as the controls show them."""

from collections.abc import Mapping
from typing import Any

from calculon.declarations.axes import AXIS
from calculon.explore.serving.served_words import SERVED_FIELDS
from calculon.plan.columns import field_of
from calculon.plan.plan import NAMES

_FIELDS = ({name: field_of(name) for name in NAMES}, SERVED_FIELDS)
"""Fields of an execution, and of a deployment and its requests, by name."""


def label(name: str) -> str:
    """Return the label of a control, a field or another word.

    >>> label("zero_stage"), label("tp_user_buffers"), label("batch")
    ('Sharding (ZeRO)', 'TP user buffers', 'batch')
    """
    for fields in _FIELDS:
        if name in fields and (control := fields[name].declaration.control):
            return control
    first, *others = name.split("_")
    return " ".join((first.upper() if first in AXIS else first, *others))


def value_words(name: str, value: Any) -> str:
    """Return the label of a field's value.

    >>> value_words("zero_stage", "1"), value_words("p2p_overlap", False), value_words("tensor_par", 1024)
    ('ZeRO-1', 'off', '1,024')
    """
    declared = next(fields[name] for fields in _FIELDS if name in fields).declaration
    if value in declared.words:
        return declared.words[value]
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, int):
        return f"{value:,}"
    if name == "zero_stage" and isinstance(declared.mark, Mapping):
        return declared.mark.get(value, str(value))
    return str(value).replace("_", " ").replace("+", " + ")


def change_words(name: str, before: Any, after: Any) -> str:
    """Return a change of a field in words: its label and both values.

    >>> change_words("pipeline_interleaving", 20, 10)
    'Chunks per stage 20 → 10'
    """
    return f"{label(name)} {value_words(name, before)} → {value_words(name, after)}"
