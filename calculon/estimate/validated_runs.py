"""Prediction intervals of training steps from measured runs, and properties of a prediction that no run has.

The interval is computed by :mod:`calculon.estimate.source_errors` over the sources of ``validation/``.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from calculon.architecture.parameters import parameter_count
from calculon.base.distinct_rows import distinct
from calculon.base.frozen import dataclass
from calculon.base.units import Array
from calculon.declarations.execution import Execution
from calculon.declarations.model import Model
from calculon.declarations.named_values import (
    PRESETS,
    PRODUCT_FIELDS,
    PUBLISHED,
    SPLIT_WEIGHTS,
    product_type,
)
from calculon.declarations.statistics import LEVEL, TIER1
from calculon.editions import find_edition
from calculon.estimate.exceeded_runs import ExceededRun, exceeded_runs, published
from calculon.estimate.interval import Sides, assumed_sides, kernel_sides
from calculon.estimate.memory_error import MeasuredMemory, measured_memory
from calculon.estimate.memory_limit import errors_of
from calculon.estimate.nearest_runs import (
    called,
    distance,
    fitted,
    nearest,
    outside,
    relatives,
    same_processor,
)
from calculon.estimate.run_table import (
    BITS_16,
    Run,
    Runs,
    about,
    framework,
    kind,
    runs,
)
from calculon.estimate.source_errors import FEWEST
from calculon.estimate.user_evidence import (
    OwnEvidence,
    concatenated,
    current_evidence,
    likeness,
    narrowed,
)
from calculon.hardware.residuals import TRAINING, Spread
from calculon.hardware.system import System
from calculon.plan.columns import field_of
from calculon.plan.plan import Plan

__all__ = ["Run", "RunEvidence", "Runs", "about", "belief", "factors", "runs"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEvidence:
    """Evidence of measured runs about a prediction.

    Attributes:
        level: Probability that the measured time is between `low` and `high`.
        low, high: Seconds of a step.
        nearest: Nearest measured runs (:func:`distance`), nearest first.
        outside: Properties of the execution that no measured run has.
        above: Fastest comparable run of the same model, and of its class, if the prediction exceeds them.
        fitted: Values of the execution that were fitted only to models of another size.
        memory: Error of predicted memory; None if no run measured memory.
        basis: Evidence for the interval, in one line.
    """

    level: float
    low: float
    high: float
    nearest: tuple[Run, ...]
    outside: tuple[str, ...]
    above: tuple[ExceededRun, ...]
    fitted: tuple[str, ...]
    memory: MeasuredMemory | None
    basis: str

    def to_dict(self) -> dict[str, Any]:
        """Return plain data; runs have their short processor name and error, but not their parts."""
        runs = [
            {**asdict(run), "processor": run.processor, "error": run.error} for run in self.nearest
        ]
        for run in runs:
            del run["parts"]
        lists = {"nearest": runs, "outside": list(self.outside), "fitted": list(self.fitted)}
        return {**asdict(self), **lists, "above": [asdict(run) for run in self.above]}


def factors(
    model: Model, system: System, plan: Plan, stats: Mapping[str, Any]
) -> tuple[Array, Array]:
    """Return measured over predicted time at both ends of the interval of each execution.

    Residuals of whole iterations from a user's calibration take precedence over validated runs. For a processor with
    runs of fewer than :data:`VALIDATED` sources, the interval is for a new processor instead of a new source, and the
    residuals of its kernels are added in quadrature, or the residuals of other processors' kernels if its own were not
    measured (:mod:`calculon.estimate.interval`). The faster end never means an MFU above 100 %.

    Args:
        model, system: Model and system of all executions.
        plan (with n rows): The executions.
        stats (shape (n,)): Their statistics by name; times are needed only for processors without validation, and
            :data:`AT_PEAK` only to limit the faster end.

    Returns:
        low, high (shape (n,)): Not-a-number in rows of edition ``sc23``, and everywhere without enough runs.
    """
    some = runs()
    # Few plans differ in the columns that decide their interval: compute it once for each combination.
    columns = [getattr(plan, name) for name in _DECISIVE]
    named, row_of, _ = distinct([np.broadcast_to(column, len(plan)) for column in columns])
    ends = np.array([_ends(some, model, system, codes) for codes in named.tolist()])[row_of].T
    published = field_of("edition").declaration.choices.index(PUBLISHED)
    ends = np.where((plan.malformed < 0) & (plan.edition != published), ends, np.nan)
    if whole_iterations(system):
        return _possible(ends, stats)
    for number, codes in enumerate(named.tolist()):
        rows = np.flatnonzero((row_of == number) & np.isfinite(ends[1]))
        if len(rows) and not _validated(some, system):
            # Independent errors add up in quadrature, separately below and above the median.
            sides = kernel_sides(system, _datatype(codes)) or assumed_sides()
            down, up = sides.of({name: _rows(stats[name], rows) for name in Sides.statistics})
            low, middle, high = ends[:, rows]
            ends[0, rows] = middle - np.hypot(middle - low, down)
            ends[2, rows] = middle + np.hypot(high - middle, up)
        if len(rows) and (own := current_evidence()):
            ends[:, rows] = _narrowed(ends[:, rows], some, own, model, system, codes)
    return _possible(ends, stats)


AT_PEAK = "mfu_causal"
"""Time of the model's arithmetic at the peak rate of all processors, as a fraction of the time of a step."""


def _possible(ends: Array, stats: Mapping[str, Any]) -> tuple[Array, Array]:
    """Return both ends of intervals, the faster one limited by the peak rate of the processors."""
    low, high = np.exp(ends[0]), np.exp(ends[2])
    at_peak = np.asarray(stats.get(AT_PEAK, 0.0), float)
    # Comparisons with not-a-number are false: intervals of edition sc23 stay unknown.
    return np.where(at_peak > low, np.minimum(at_peak, high), low), high


def _narrowed(
    ends: Array,
    some: Runs,
    own: OwnEvidence,
    model: Model,
    system: System,
    codes: Sequence[int],
) -> Array:
    """Return lower ends, medians and upper ends of intervals that include measured steps of the user."""
    # In one table, features of published and of the user's runs have common codes.
    together = concatenated(some, own.steps)
    steps = together.contexts[:, len(some) :]
    weights = likeness(steps, _context(together, model, system, codes))
    errors = np.array([np.log(step.measured / step.predicted) for step in own.steps])
    context = _context(some, model, system, codes)
    low, middle, high = ends.tolist()
    found = [
        narrowed(one, some.by_source, context, errors, weights)
        for one in zip(low, middle, high, strict=True)
    ]
    return np.array(found).T


def _rows(values: Any, rows: Array) -> Array:
    """Return rows of a statistic, which may be a scalar."""
    column = np.atleast_1d(np.asarray(values, float))
    return column[rows]


VALIDATED = 2
"""Number of sources from which on a processor is validated: with a single source, its error and the error of the
processor cannot be separated."""


def _validated(some: Runs, system: System) -> bool:
    return some.sources(same_processor(some, system) & some.evidence) >= VALIDATED


_DECISIVE = ("preset", "zero_stage", *PRODUCT_FIELDS)


def _value_of(name: str, code: int) -> Any:
    return field_of(name).declaration.choices[code]


def _datatype(codes: Sequence[int]) -> str:
    return product_type(*map(_value_of, PRODUCT_FIELDS, codes[2:]))


def _ends(
    some: Runs, model: Model, system: System, codes: Sequence[int]
) -> tuple[float, float, float]:
    """Return lower end, median and upper end of the logarithm of measured over predicted time for a combination."""
    if own := whole_iterations(system):
        return math.log(min(one.low for one in own)), 0.0, math.log(max(one.high for one in own))
    errors = some.by_source if _validated(some, system) else some.by_processor
    if errors.count < FEWEST:
        return math.nan, math.nan, math.nan
    return errors.limits(_context(some, model, system, codes))


def _context(some: Runs, model: Model, system: System, codes: Sequence[int]) -> Array:
    """Return the features of an execution that runs may share, for a combination of codes."""
    return some.context(
        _value_of("preset", codes[0]),
        system.provenance.family,
        _datatype(codes),
        parameter_count(model),
        splits_weights=_value_of("zero_stage", codes[1]) in SPLIT_WEIGHTS,
        experts=model.has_experts,
    )


def whole_iterations(system: System) -> list[Spread]:
    """Return the residuals of whole iterations in the calibration of a system."""
    return [
        one
        for one in system.calibration.spreads
        if one.part == TRAINING and one.edition != PUBLISHED
    ]


def belief(
    model: Model, system: System, execution: Execution, stats: Mapping[str, Any]
) -> RunEvidence | None:
    """Return the evidence of measured runs about a predicted training step; None in edition ``sc23``.

    Args:
        model, system, execution: The inputs of the prediction.
        stats: The statistics of the prediction.
    """
    some = runs()
    if execution.edition == PUBLISHED or some.by_source.count < FEWEST:
        return None
    low, high = factors(model, system, Plan.of(execution), stats)
    facts = about(model, system, execution)
    here, related = same_processor(some, system), relatives(some, system)
    own = whole_iterations(system)
    time = float(stats["total_time"])
    memory = errors_of(model, execution.preset, execution.zero_stage)
    usable = find_edition(execution.edition).machine(system).usable[0]
    return RunEvidence(
        level=min((one.level for one in own), default=LEVEL),
        low=float(low[0]) * time,
        high=float(high[0]) * time,
        nearest=nearest(some, distance(some, facts)),
        outside=tuple(outside(some, facts, execution, here)),
        above=exceeded_runs(published(), system, facts, float(stats[AT_PEAK])),
        fitted=tuple(fitted(some, facts, execution)),
        memory=None if memory is None else measured_memory(memory, float(stats[TIER1]), usable),
        basis=_basis(some, system, facts, here, related) + _outside(float(low[0]), float(high[0])),
    )


def _outside(low: float, high: float) -> str:
    """Return a remark if a prediction is outside its own interval due to measurements of a user; else empty."""
    if low <= 1 <= high:
        return ""
    return f"; the prediction is outside, because these took {'longer' if low > 1 else 'less time'}"


def _basis(
    some: Runs, system: System, facts: Mapping[str, Any], here: Array, related: Array
) -> str:
    """Return the evidence for an interval, in one line."""
    if whole_iterations(system):
        return f"whole iterations that {called(facts)} was calibrated on"
    text = _published_basis(some, system, facts, here, related)
    if own := current_evidence():
        count = len(own.steps)
        return f"{text}; {count:,} measured step{'s' * (count > 1)} of your own ({own.name})"
    return text


def _published_basis(
    some: Runs, system: System, facts: Mapping[str, Any], here: Array, related: Array
) -> str:
    """Return the evidence of published runs for an interval, in one line."""
    dense, software = facts["experts"] == 0, f"of {framework(facts['preset'])}"
    width = "16 bits" if facts["type"] in BITS_16 else facts["type"]
    names = {
        software: some.of_framework(facts["preset"]),
        f"on {called(facts)}": here,
        **({f"on its relative {lender}": related} if (lender := _lender(system)) else {}),
        f"in {width}": some.kinds == kind(facts["type"]),
        f"of {'dense' if dense else 'MoE'} models": (some.numbers("experts") == 0) == dense,
    }
    if facts["preset"] in PRESETS[:2]:  # presets that do not belong to a framework
        names.pop(software)
    known = some.evidence
    counts = ", ".join(f"{some.sources(rows & known)} {name}" for name, rows in names.items())
    text = f"{known.sum():,} measured steps of {some.by_source.count} sources ({counts})"
    if _validated(some, system):
        return text
    text = f"{text}; the spread between {some.by_processor.count} processors"
    if sides := kernel_sides(system, facts["type"]):
        return f"{text}; residuals of kernels of {_lender(system) or called(facts)}: {sides}"
    return (
        f"{text}; kernels of {called(facts)} were not measured, assumed within: {assumed_sides()}"
    )


def _lender(system: System) -> str:
    """Return the system whose kernels a system borrows, or an empty text."""
    return system.provenance.borrowed.get("kernels", "")
