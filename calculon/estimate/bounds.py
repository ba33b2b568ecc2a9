"""Prediction interval of the time for every row of a table of executions."""

import numpy as np

from calculon import inputs
from calculon.base.units import Array
from calculon.declarations.model import Model
from calculon.declarations.statistics import BOUNDS
from calculon.estimate.argument_order import takes_either_order
from calculon.estimate.evaluate import Evaluation
from calculon.estimate.validated_runs import factors
from calculon.hardware.system import System
from calculon.inputs import Source
from calculon.plan.plan import PUBLISHED_NAMES


@takes_either_order
def bounds(
    model: Source | Model, evaluation: Evaluation, system: Source | System
) -> dict[str, Array]:
    """Return the 90 % prediction interval of the measured time of each row.

    Args:
        model, system: Model and system for which the table was evaluated.
        found (with n rows): Result of :func:`calculon.evaluate`, or ``evaluation`` of a search.

    Returns:
        Arrays of shape (n,), under the names of :data:`~calculon.declarations.statistics.BOUNDS`: both ends of the
        interval in seconds; not-a-number in rows that are infeasible or of edition ``sc23``. Empty if all rows are of
        edition ``sc23``, which has no intervals.

    Examples:
        >>> import calculon
        >>> found = calculon.search("llama3-8B", "h100_80g_sxm", 64, 512, "bfloat16", fix={"tensor_par": 2})
        >>> sorted(calculon.bounds("llama3-8B", found.evaluation, "h100_80g_sxm"))
        ['total_time_high', 'total_time_low']
    """
    if evaluation.fields == PUBLISHED_NAMES:
        return {}
    columns = {name: np.full(len(evaluation), np.nan) for name in BOUNDS}
    rows = evaluation if evaluation.feasible.all() else evaluation.take(evaluation.feasible)
    if len(rows):
        stats = {name: rows[name] for name in rows.names}
        shape, machine = inputs.model(model), inputs.system(system)
        ends = factors(shape, machine, rows.plan, stats)
        for name, factor in zip(BOUNDS, ends, strict=True):
            columns[name][evaluation.feasible] = factor * rows["total_time"]
    return columns
