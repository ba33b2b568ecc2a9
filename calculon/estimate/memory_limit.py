"""Infeasible and uncertain executions: predicted memory exceeds the system by more or less than its error.

Predicted memory has an error (:mod:`calculon.estimate.memory_error`). Except in the published edition, an execution
that is predicted to exceed tier-1 memory is infeasible only if it fits with a probability below
:data:`~calculon.declarations.statistics.MAY_FIT`. Otherwise it is uncertain, and is evaluated like any other.
"""

from collections.abc import Iterator
from itertools import product

import numpy as np

from calculon.base.units import Array
from calculon.cost.batch import Batch
from calculon.declarations.model import Model
from calculon.declarations.named_values import PUBLISHED, SPLIT_WEIGHTS
from calculon.declarations.statistics import MAY_FIT
from calculon.estimate.memory_error import MemoryErrors
from calculon.estimate.run_table import runs
from calculon.plan.columns import field_of
from calculon.plan.rules.all_rules import check_memory


def errors_of(model: Model, preset: str, zero_stage: str) -> MemoryErrors | None:
    """Return the distribution of measured over predicted memory for a class of executions.

    Args:
        model, preset, zero_stage: Properties of the class.

    Returns:
        None if too few sources measured memory.
    """
    split = zero_stage in SPLIT_WEIGHTS
    return runs().memory_errors(preset, splits_weights=split, experts=model.has_experts)


def fits(batch: Batch) -> Array:
    """Return the probability that executions of a batch fit in tier-1 memory; not-a-number if unknown."""
    needed, usable = batch.capacity.proc_mem_tier1_cap_req, batch.system.usable[0]
    result = np.array(np.nan)
    if batch.edition.name == PUBLISHED:
        return result
    for preset, zero_stage, rows in _classes(batch):
        errors = errors_of(batch.model, preset, zero_stage)
        known = np.nan if errors is None else errors.fits(needed, usable)
        result = np.where(rows, known, result)
    return result


def memory_codes(codes: Array, batch: Batch) -> Array:
    """Mark rows of a batch that do not fit in memory, allowing for the memory error of tier 1.

    Args:
        codes (shape (n,)): Codes of :data:`~calculon.plan.rules.all_rules.REASONS`; rows with 0 are checked.
        batch: The batch of these rows.
    """
    needed, tolerance = batch.capacity, np.array(1.0)
    tier1, tier2 = needed.proc_mem_tier1_cap_req, needed.proc_mem_tier2_cap_req
    # The tolerance needs the measured runs: skip it in the usual case that all executions fit.
    if batch.edition.name != PUBLISHED and (tier1 > batch.system.usable[0]).any():
        tolerance = _tolerance(batch)
    return check_memory(codes, tier1, tier2, batch.system, tolerance)


def _tolerance(batch: Batch) -> Array:
    """Return the ratio of predicted to usable memory above which executions fit with less than `MAY_FIT`."""
    result = np.array(1.0)
    for preset, zero_stage, rows in _classes(batch):
        errors = errors_of(batch.model, preset, zero_stage)
        result = np.where(
            rows, 1.0 if errors is None else max(1.0, 1 / errors.capacity_ratio(MAY_FIT)), result
        )
    return result


def _classes(batch: Batch) -> Iterator[tuple[str, str, Array]]:
    """Yield the presets and ZeRO stages of a batch, each with a mask of their executions."""
    columns = batch.schedule.columns
    presets, stages = columns.preset, columns.zero_stage
    for preset, stage in product(np.unique(presets).tolist(), np.unique(stages).tolist()):
        names = (_named("preset", preset), _named("zero_stage", stage))
        yield *names, (presets == preset) & (stages == stage)


def _named(name: str, code: int) -> str:
    return str(field_of(name).declaration.choices[code])
