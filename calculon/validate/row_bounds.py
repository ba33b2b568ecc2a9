"""Uncertainty of predictions of measured rows: 90 % intervals of step times, and probability of fitting in memory."""

from typing import Any, NamedTuple

import numpy as np

from calculon.base.units import Array
from calculon.declarations.execution import Execution
from calculon.declarations.model import Model
from calculon.declarations.named_values import PUBLISHED
from calculon.declarations.statistics import TIER1
from calculon.editions import EDITIONS
from calculon.estimate.interval import Sides
from calculon.estimate.memory_limit import errors_of
from calculon.estimate.validated_runs import AT_PEAK, factors
from calculon.plan.plan import Plan
from calculon.validate.measured_and_predicted import Comparison, Result
from calculon.validate.predict import Case


class RowBounds(NamedTuple):
    """Uncertainty of each row of a study; not-a-number for a row without a prediction.

    Attributes:
        low, high (shape (rows,)): Ends of the prediction interval of the step time, divided by the predicted time.
        fits (shape (rows,)): Probability that the execution fits in tier-1 memory.
    """

    low: Array
    high: Array
    fits: Array


def row_bounds(result: Result) -> RowBounds:
    """Return the uncertainty of all rows of a study; deployments and edition ``sc23`` have none."""
    found = RowBounds(*(np.full(len(result.rows), np.nan) for _ in RowBounds._fields))
    if result.edition == PUBLISHED or result.study.serves:
        return found
    predicted = result.own.prediction
    groups: dict[tuple[Model, str], list[int]] = {}
    for i, case in enumerate(predicted.cases):
        if not predicted.reasons[i]:
            groups.setdefault((case.model, case.system.name), []).append(i)
    for (model, _), rows in groups.items():
        system = predicted.cases[rows[0]].system
        plan = Plan.from_records(
            {**predicted.cases[i].execution, "edition": result.edition} for i in rows
        )
        stats = {name: predicted.values[name][rows] for name in (*Sides.statistics, AT_PEAK)}
        found.low[rows], found.high[rows] = factors(model, system, plan, stats)
        usable = EDITIONS[result.edition].machine(system).usable[0]
        for i in rows:
            needed = predicted.values[TIER1][i]
            found.fits[i] = _fits(predicted.cases[i], needed, usable)
    return found


def _fits(case: Case, needed: float, usable: float) -> float:
    """Return the probability that an execution fits; rows themselves are evaluated with unlimited memory."""
    execution = Execution(**case.execution)
    errors = errors_of(case.model, execution.preset, execution.zero_stage)
    return np.nan if errors is None else float(errors.fits(np.array(needed), usable))


def bound_records(result: Result, one: Comparison) -> list[dict[str, Any]]:
    """Return ``low`` and ``high`` in the unit of a quantity, and ``fits``, for each of its rows; None if unknown."""
    bounds = row_bounds(result)
    place = {row.number: i for i, row in enumerate(result.rows)}
    rows = [place[row.number] for row in one.rows]
    ends = (
        (bounds.low, bounds.high)
        if one.quantity.is_step
        else (np.full_like(bounds.low, np.nan),) * 2
    )
    columns = (*(end[rows] * one.estimated for end in ends), bounds.fits[rows])
    return [
        dict(zip(("low", "high", "fits"), map(_known, row), strict=True))
        for row in zip(*(column.tolist() for column in columns), strict=True)
    ]


def _known(value: float) -> float | None:
    return None if np.isnan(value) else value
