"""Columns of a table of executions: from what people give to how a plan holds it."""

from typing import Any

import numpy as np

from calculon.spec.fields import LARGEST_INTEGER, SpecField
from calculon.units import Array


def column(values: Any) -> Array:
    """Lay out a column; a list of mixed types keeps them, so that an odd value does not change its neighbours."""
    if isinstance(values, (list, tuple)):
        types = set(map(type, values))
        if len(types) > 1 or types & {list, tuple}:
            return np.fromiter(values, object, len(values))
    return np.asarray(values)


def parse(field: SpecField, raw: Array) -> tuple[Array, Array]:
    """Return a column in its stored form, and a mask of impossible values (stored as a harmless one)."""
    if choices := field.declaration.choices:
        codes = np.full(raw.shape, -1, np.int8)
        for number, choice in enumerate(choices):
            numbered = choice.isdigit() and raw.dtype.kind in "iufO"
            codes[(raw == choice) | (raw == int(choice)) if numbered else raw == choice] = number
        return codes, codes < 0
    if field.annotation is bool:
        if raw.dtype == bool:
            return raw, np.zeros(raw.shape, bool)
        good = np.vectorize(lambda value: isinstance(value, (bool, np.bool_)), otypes=[bool])(raw)
        return _where(good, raw, np.zeros(raw.shape, bool)), ~good
    if raw.dtype.kind in "iuf":
        least = field.declaration.at_least
        good = (raw >= least) & (raw <= LARGEST_INTEGER) & (np.floor(raw) == raw)
    else:
        good = np.vectorize(
            lambda value: field.declaration.problem(int, value, "") is None, otypes=[bool]
        )(raw)
    return _where(good, raw, np.ones(raw.shape, np.int64)), ~good


def _where(good: Array, raw: Array, values: Array) -> Array:
    """Fill the good entries in; the others keep their value, and may be of any type."""
    values[good] = raw[good]
    return values
