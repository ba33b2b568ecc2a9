"""Executions by two statistics, and those that no other one beats in both."""

from collections.abc import Callable, Sequence

import numpy as np

from calculon.base.errors import Infeasible, Problem, SpecError
from calculon.base.units import Array
from calculon.declarations.named_values import EDITION_NAMES, PUBLISHED
from calculon.documents.charts.pareto_chart import Pareto
from calculon.estimate.evaluate import Evaluation
from calculon.plan.plan import Plan
from calculon.search.objective import SENSES, Objective
from calculon.search.search_counts import pareto_front
from calculon.search.search_result import SearchResult

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

    Args:
        title: What the executions are.
        y, x: The vertical and the horizontal axis (:func:`axis`).
        parts: Return a column of a table of executions by name; rows without both values are left out.
        editions: Editions of the cost model.
        complete: The rows are all executions, not only the front.
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

    Raises:
        SpecError: For an unknown statistic or sense.
    """
    name, colon, sense = text.partition(":")
    if name not in COUNTED:
        objective = Objective.parse(text, where)
        return objective.statistic.name, 1.0 if objective.sense == "max" else -1.0
    if colon and sense not in SENSES:
        raise SpecError(where, Problem(name, "max or min after the colon", repr(sense)))
    return name, 1.0 if sense == "max" else -1.0


def front_of(one: SearchResult, x: str, y: str) -> Pareto:
    """Return the executions of a search; of a frontier by its own objectives where none are asked for.

    Raises:
        SpecError: For an unknown statistic.
        Infeasible: When nothing was found.
    """
    asked = [f"{o.statistic.name}:{o.sense}" for o in one.objectives]
    several = len(asked) > 1
    y, x = y or asked[0], x or (asked[-1] if several else "proc_mem_tier1_cap_req")
    space = one.space
    title = f"{space.model.name} on {space.num_procs:,} x {space.system.name}"
    if not len(one):
        raise Infeasible(
            "nothing", f"{title}: no execution was found, so that there is nothing to draw"
        )
    return front(
        title, axis(y, "y"), axis(x, "x"), [one.evaluation.column], terms(one.plan), complete=True
    )


def front_of_table(one: Evaluation, x: str, y: str) -> Pareto:
    """Return the executions of a table that can run.

    Raises:
        SpecError: For an unknown statistic.
        Infeasible: When none can run.
    """
    if not one.feasible.any():
        raise Infeasible("nothing", f"none of {len(one):,} executions can run")
    title = f"{int(one.feasible.sum()):,} of {len(one):,} executions"
    axes = axis(y, "y"), axis(x, "x")
    return front(title, *axes, [one.column], terms(one.plan), complete=True)


def terms(plan: Plan) -> Sequence[str]:
    """Return the editions of a table, each with its preset where all of its rows have the same."""
    return terms_among(plan.values("edition"), plan.values("preset"))


def terms_among(editions: Array, presets: Array) -> list[str]:
    """Return the editions of rows, each with its preset if all of its rows have the same, or none."""
    found = []
    for name in EDITION_NAMES:
        used = set(presets[editions == name].tolist()) - {""}
        alone = used if len(used) == 1 and name != PUBLISHED else ()
        found += [", ".join((name, *alone))] * bool((editions == name).any())
    return found
