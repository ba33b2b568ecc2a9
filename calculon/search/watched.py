"""The columns that a rule reads, found by watching it: rules of a table and of a search are the same."""

from collections.abc import Mapping

import numpy as np

from calculon.base.units import Array
from calculon.declarations.model import Model
from calculon.hardware.system import System
from calculon.plan.columns import Columns, field_of, held, type_of
from calculon.plan.rules.all_rules import RULES
from calculon.plan.rules.rule import Requests, Rule


class _Watched(Columns):
    """One execution with a value in every column, which remembers what is read of it."""

    __slots__ = ("read",)

    def __init__(self, known: Mapping[str, Array]):
        super().__init__(known)
        self.read: set[str] = set()

    def __getattr__(self, name: str) -> Array:
        self.read.add(name)
        if name in self._columns:
            return self._columns[name].reshape(1)
        kind = field_of(name).annotation
        return np.zeros(1, np.int8) if kind is str else np.ones(1, bool if kind is bool else int)


def columns_read(
    rule: Rule, model: Model, system: System, known: Mapping[str, Array]
) -> frozenset[str]:
    """Return the columns that a rule reads of an execution of which some values are known."""
    columns = _Watched(known)
    rule.holds(Requests(model, system, columns))
    return frozenset(columns.read)


def allowed_values(
    name: str,
    values: tuple[object, ...],
    model: Model,
    system: System,
    constants: Mapping[str, Array],
) -> tuple[object, ...]:
    """Return the values of an optional field that an execution can have, whatever its other fields are.

    A model without experts, say, has no use for dispatchers.
    """
    about = (rule for rule in RULES if name in rule.about)
    alone = {name, *constants}
    rules = [rule for rule in about if columns_read(rule, model, system, constants) <= alone]
    column: Array = np.array([held(name, value) for value in values], type_of(name))
    requests = Requests(model, system, Columns({**constants, name: column}))
    good = np.ones(len(values), bool)
    for rule in rules:
        good &= rule.holds(requests)
    return tuple(value for value, one in zip(values, good.tolist(), strict=True) if one)
