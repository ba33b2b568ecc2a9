"""Executions by two statistics, and those that no other one beats in both."""

from collections.abc import Callable, Sequence

import numpy as np

from calculon.apps.report.pictures.pareto import Pareto
from calculon.errors import Problem, SpecError
from calculon.search.objective import SENSES, Objective
from calculon.search.search_counts import pareto_front
from calculon.units import Array

COUNTED = ("num_procs",)
"""Numbers of the execution that can be an axis."""

DEGREES = ("tensor_par", "pipeline_par", "data_par")
"""Fields that name an execution in a picture."""

Axis = tuple[str, float]
"""A statistic or a number of the execution, and the sign that makes more of it better."""


def front(
    title: str,
    y: Axis,
    x: Axis,
    parts: Sequence[Callable[[str], Array]],
    editions: Sequence[str],
    *,
    complete: bool,
) -> Pareto:
    """Return one statistic against another.

    Parameters
    ----------
    title : str
        What the executions are.
    y, x : Axis
        The vertical and the horizontal axis (:func:`axis`).
    parts : sequence of callable
        Return a column of a table of executions by name; rows without both values are left out.
    editions : sequence of str
        Editions of the cost model.
    complete : bool
        The rows are all executions, not only the front.
    """

    def column(name: str) -> Array:
        return np.concatenate([part(name) for part in parts])

    columns = np.stack([column(x[0]), column(y[0])]).astype(float)
    rows = np.flatnonzero(np.isfinite(columns).all(axis=0))
    columns = columns[:, rows]
    scores = np.stack([columns[1] * y[1], columns[0] * x[1]])
    unbeaten = pareto_front(scores, np.arange(len(rows)))
    unbeaten = unbeaten[np.argsort(columns[0, unbeaten], kind="stable")]
    degrees = np.stack([column(name)[rows][unbeaten] for name in DEGREES], axis=1)
    names = [".".join(f"{degree:.0f}" for degree in row) for row in degrees.tolist()]
    return Pareto(title, x[0], y[0], columns, unbeaten, names, complete, editions)


def axis(text: str, where: str) -> Axis:
    """Read ``STATISTIC[:max|min]``, or a number of the execution; errors name the argument `where`.

    Raises
    ------
    SpecError
        For an unknown statistic or sense.
    """
    name, colon, sense = text.partition(":")
    if name not in COUNTED:
        objective = Objective.parse(text, where)
        return objective.statistic.name, 1.0 if objective.sense == "max" else -1.0
    if colon and sense not in SENSES:
        raise SpecError(where, Problem(name, "max or min after the colon", repr(sense)))
    return name, 1.0 if sense == "max" else -1.0
