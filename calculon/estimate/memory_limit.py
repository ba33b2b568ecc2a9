"""Executions that exceed the memory of a system: by more than the memory error, or perhaps not at all.

Predicted memory has an error (:mod:`calculon.estimate.memory_error`). In all editions but the published one an
execution that is predicted to exceed tier-1 memory is infeasible only if it fits with a probability below
:data:`~calculon.declarations.statistics.MAY_FIT`. Otherwise it is uncertain, and is evaluated like any other.
"""

import numpy as np

from calculon.base.units import Array
from calculon.cost.batch import Batch
from calculon.declarations.model import Model
from calculon.declarations.named_values import PUBLISHED, SPLIT_WEIGHTS
from calculon.declarations.statistics import MAY_FIT
from calculon.editions import EDITIONS
from calculon.estimate.memory_error import MemoryErrors
from calculon.estimate.run_table import runs
from calculon.hardware.system import System
from calculon.plan.choices import distinct
from calculon.plan.columns import Columns, field_of
from calculon.plan.plan import Plan
from calculon.plan.rules.all_rules import check_memory


def errors_of(model: Model, preset: str, zero_stage: str) -> MemoryErrors | None:
    """Return the distribution of measured over predicted memory of executions like these.

    Args:
        model, preset, zero_stage: Of the executions.

    Returns:
        None if too few sources measured memory.
    """
    split = zero_stage in SPLIT_WEIGHTS
    return runs().memory_errors(preset, splits_weights=split, experts=model.has_experts)


def fit_probabilities(model: Model, system: System, plan: Plan, needed: Array) -> Array:
    """Return the probability that executions fit in tier-1 memory.

    Args:
        model, system: Of all executions.
        plan (with n rows): The executions.
        needed (shape (n,)): Bytes of tier 1 that they need, as predicted.

    Returns:
        Array of shape (n,): not-a-number in rows of edition ``sc23``, and if too few runs measured memory.
    """
    named, row_of = _classes(plan, len(plan), ("edition", *_CLASS))
    found = np.full(len(plan), np.nan)
    for number, (edition, *kind) in enumerate(named):
        errors = None if edition == PUBLISHED else errors_of(model, *kind)
        if errors is not None:
            rows = row_of == number
            usable = np.broadcast_to(EDITIONS[edition].machine(system).usable[0], len(plan))
            found[rows] = errors.fits(needed[rows], usable[rows])
    return np.where(plan.malformed < 0, found, np.nan)


def memory_codes(codes: Array, batch: Batch) -> Array:
    """Mark rows of a batch whose memory does not fit, up to the memory error of tier 1.

    Args:
        codes (shape (n,)): Codes of :data:`~calculon.plan.rules.all_rules.REASONS`; rows with 0 are marked.
        batch: The batch of these rows.
    """
    needed, tolerance = batch.capacity, np.array(1.0)
    tier1, tier2 = needed.proc_mem_tier1_cap_req, needed.proc_mem_tier2_cap_req
    if batch.edition.name != PUBLISHED and (tier1 > batch.system.usable[0]).any():
        tolerance = _tolerance(batch, len(codes))
    return check_memory(codes, tier1, tier2, batch.system, tolerance)


def _tolerance(batch: Batch, length: int) -> Array:
    """Return the ratio of predicted to usable memory above which executions fit with less than `MAY_FIT`."""
    named, row_of = _classes(batch.schedule.columns, length, _CLASS)
    errors = [errors_of(batch.model, *kind) for kind in named]
    ratios = [1.0 if one is None else max(1.0, 1 / one.room(MAY_FIT)) for one in errors]
    return np.array(ratios)[row_of]


_CLASS = ("preset", "zero_stage")
"""Fields of an execution on which the memory error depends."""


def _classes(
    columns: Columns, length: int, names: tuple[str, ...]
) -> tuple[list[list[str]], Array]:
    """Return the distinct values of some named fields, and the number of each row among them."""
    values = [np.broadcast_to(getattr(columns, name), length) for name in names]
    codes, row_of, _ = distinct(values)
    named = [
        [
            str(field_of(name).declaration.choices[code])
            for name, code in zip(names, row, strict=True)
        ]
        for row in codes.tolist()
    ]
    return named, row_of
