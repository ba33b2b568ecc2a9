"""The optional fields of an execution, their values and what these need, as declared."""

from collections.abc import Collection, Mapping
from itertools import islice, product
from math import prod
from typing import Any

import calculon
from calculon.declarations.named_values import DATATYPE_BYTES, MATMUL_BYTES, exchanged_bytes
from calculon.plan.columns import DEFAULTS, FIELDS, field_of
from calculon.plan.mesh import DEGREES
from calculon.plan.plan import Plan
from calculon.plan.rules.all_rules import check

OPTIONAL = {f.name: f for f in FIELDS if f.declaration.optional}

ADDED = tuple(name for name, f in OPTIONAL.items() if f.declaration.searched == "option")
"""Fields that only the corrected edition has, and that a search is widened in."""

FIXED = tuple(name for name, f in OPTIONAL.items() if f.declaration.searched == "fixed")
"""Those that a search is restricted in alone."""


def missing(name: str) -> dict[str, tuple[Any, ...]]:
    """Return what a field needs of other optional ones, where their default is not enough."""
    return {
        other: tuple(islice(values, 9))
        for other, values in field_of(name).declaration.needs.items()
        if other in OPTIONAL and DEFAULTS[other] not in values
    }


def all_needs(name: str) -> dict[str, Collection[Any]]:
    """Return what a field needs of others, and what those of them need that do not have their default."""
    found = dict(field_of(name).declaration.needs)
    for other, values in list(found.items()):
        if other in OPTIONAL and DEFAULTS[other] not in values:
            found = all_needs(other) | found
    return found


REPLICATING = tuple(name for name in ADDED if "zero_stage" in missing(name))
"""Fields that mean something in some forms of data parallelism alone."""


def others(name: str, system: calculon.System, datatype: str) -> tuple[Any, ...]:
    """Return the values of a field, its default apart, that executions on a system can have."""
    bound = DATATYPE_BYTES[datatype]
    if name in ("dispatch_dtype", "combine_dtype"):  # fewer bytes than products have
        return tuple(v for v in field_of(name).others if exchanged_bytes(v, bound) < bound)
    if name == "fp8_recipe":
        return tuple(v for v in field_of(name).others if v in system.recipes)
    if name != "matmul_dtype":
        return field_of(name).others
    known = system.matmul_types
    return tuple(v for v in field_of(name).others if v in known and MATMUL_BYTES[v] <= bound)


def fitting(
    model: calculon.Model, system: calculon.System, row: Mapping[str, Any], name: str, value: Any
) -> dict[str, Any]:
    """Return an execution with a value of an optional field, and what this needs beside it.

    Networks and degrees stay, but for what it needs, with as many processors more; sharding and chunks are those with
    which no rule is broken.
    """
    changed = dict(row) | {"edition": "corrected", "preset": "published", name: value}
    for other, values in all_needs(name).items():
        if changed.get(other, DEFAULTS.get(other)) not in values:
            changed[other] = next(iter(values))
    if changed.get("context_par", 1) > 1:
        changed["attn_impl"] = "flash"
    if name == "cp_kv_replicate":
        changed |= {"context_par": 4, "context_par_net": 1}  # more ranks than there are heads
    if value == "a2a_p2p":
        changed["cp_a2a_size"] = 2
    changed["num_procs"] = prod(changed.get(degree, 1) for degree in DEGREES)
    forms = product((row["optimizer_sharding"], not row["optimizer_sharding"]), (1, 2))
    tried = [
        changed | {"optimizer_sharding": sharding, "pipeline_interleaving": chunks}
        for sharding, chunks in forms
    ]
    faults = check(model, system, Plan.from_records(tried))
    for one, fault in zip(tried, faults, strict=True):
        if not fault:
            return one
    raise AssertionError(f"no execution with {name}={value}")
