"""The optional fields of an execution, their values and what these need, as declared."""

from collections.abc import Collection, Mapping
from itertools import product
from typing import Any

import calculon
from calculon.plan.columns import DEFAULTS, FIELDS, field_of
from calculon.plan.plan import Plan
from calculon.plan.rules.check import check
from calculon.spec.execution import DATATYPE_BYTES, MATMUL_BYTES

OPTIONAL = {f.name: f for f in FIELDS if f.declaration.optional}

ADDED = tuple(name for name, f in OPTIONAL.items() if f.declaration.searched == "option")
"""Fields that only the corrected edition has, and that a search is widened in."""

FIXED = tuple(name for name, f in OPTIONAL.items() if f.declaration.searched == "fixed")
"""Those that a search is restricted in alone."""


def missing(name: str) -> dict[str, tuple[Any, ...]]:
    """Return what a field needs of other optional ones, where their default is not enough."""
    return {
        other: tuple(values)
        for other, values in field_of(name).declaration.needs.items()
        if other in OPTIONAL and DEFAULTS[other] not in values
    }


REPLICATING = tuple(name for name in ADDED if "zero_stage" in missing(name))
"""Fields that mean something in some forms of data parallelism alone."""


def others(name: str, system: calculon.System, datatype: str) -> tuple[Any, ...]:
    """Return the values of a field, its default apart, that executions on a system can have."""
    if name != "matmul_dtype":
        return field_of(name).others
    known, bound = system.matmul_types, DATATYPE_BYTES[datatype]
    return tuple(v for v in field_of(name).others if v in known and MATMUL_BYTES[v] <= bound)


def fitting(
    model: calculon.Model, system: calculon.System, row: Mapping[str, Any], name: str, value: Any
) -> dict[str, Any]:
    """Return an execution with a value of an optional field, and what this needs beside it.

    Of degrees and networks nothing is changed; sharding and chunks are those with which no rule is broken.
    """
    changed = dict(row) | {"edition": "corrected", "preset": "published", name: value}
    for other, values in field_of(name).declaration.needs.items():
        if changed.get(other, DEFAULTS.get(other)) not in values:
            changed[other] = _first(values)
    tried = product((row["optimizer_sharding"], not row["optimizer_sharding"]), (1, 2))
    for sharding, chunks in tried:
        one = changed | {"optimizer_sharding": sharding, "pipeline_interleaving": chunks}
        if not check(model, system, Plan.from_records([one]))[0]:
            return one
    raise AssertionError(f"no execution with {name}={value}")


def _first(values: Collection[Any]) -> Any:
    return next(iter(values))
