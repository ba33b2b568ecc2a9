"""Columns that a rule depends on, found by recording its reads: tables and searches share one set of rules."""

from collections.abc import Mapping

import numpy as np

from calculon.base.units import Array
from calculon.declarations.model import Model
from calculon.hardware.system import System
from calculon.plan.columns import Columns, encoded, field_of, type_of
from calculon.plan.rules.all_rules import RULES
from calculon.plan.rules.rule import Requests, Rule


class _Watched(Columns):
    """Execution with a value in every column that records which columns are read."""

    __slots__ = ("read",)

    def __init__(self, known: Mapping[str, Array]):
        super().__init__(known)
        self.read: set[str] = set()

    def __getattr__(self, name: str) -> Array:
        self.read.add(name)
        # Values of unknown columns matter little: a rule that branches on them is probed with further candidates.
        if name in self._columns:
            return self._columns[name].reshape(1)
        kind = field_of(name).annotation
        return np.zeros(1, np.int8) if kind is str else np.ones(1, bool if kind is bool else int)


def columns_read(
    rule: Rule, model: Model, system: System, known: Mapping[str, Array]
) -> frozenset[str]:
    """Return the columns that a rule reads from an execution with some known values."""
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
    """Return the values of an optional field that are possible for any values of the other fields.

    For example, a model without experts excludes all dispatchers but the default.
    """
    about = (rule for rule in RULES if name in rule.about)
    alone = {name, *constants}
    rules = [rule for rule in about if columns_read(rule, model, system, constants) <= alone]
    column: Array = np.array([encoded(name, value) for value in values], type_of(name))
    requests = Requests(model, system, Columns({**constants, name: column}))
    good = np.ones(len(values), bool)
    for rule in rules:
        good &= rule.holds(requests)
    return tuple(value for value, one in zip(values, good.tolist(), strict=True) if one)
