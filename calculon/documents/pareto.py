"""Pareto fronts of executions over two statistics."""

from collections.abc import Callable, Sequence

import numpy as np

from calculon.base.errors import Infeasible, Problem, SpecError
from calculon.base.units import Array
from calculon.declarations.axes import PUBLISHED_DEGREES
from calculon.declarations.named_values import EDITION_NAMES, PUBLISHED
from calculon.documents.charts.pareto_chart import Pareto
from calculon.estimate.evaluate import Evaluation
from calculon.plan.plan import Plan
from calculon.search.objective import SENSES, Objective
from calculon.search.search_counts import pareto_front
from calculon.search.search_result import SearchResult

COUNTED = ("num_procs",)
"""Numbers of the execution that can be an axis."""

Axis = tuple[str, float]
"""A statistic or number of the execution, and the sign that turns it into "larger is better"."""


def pareto_points(
    title: str,
    y: Axis,
    x: Axis,
    parts: Sequence[Callable[[str], Array]],
    editions: Sequence[str],
    *,
    complete: bool,
) -> Pareto:
    """Return one statistic against another, with the Pareto front.

    Args:
        title: Description of the executions.
        y, x: The vertical and the horizontal axis (:func:`axis`).
        parts: Functions that return a column of a table of executions by name; rows lacking a value are left out.
        editions: Editions of the cost model.
        complete: The rows are all executions, not the front alone.
    """

    def column(name: str) -> Array:
        return np.concatenate([part(name) for part in parts])

    columns = np.stack([column(x[0]), column(y[0])]).astype(float)
    # Infeasible rows have NaN as statistics.
    rows = np.flatnonzero(np.isfinite(columns).all(axis=0))
    columns = columns[:, rows]
    scores = np.stack([columns[1] * y[1], columns[0] * x[1]])
    unbeaten = pareto_front(scores, np.arange(len(rows)))
    # A stable sort keeps the rank order of ties.
    unbeaten = unbeaten[np.argsort(columns[0, unbeaten], kind="stable")]
    degrees = np.stack([column(name)[rows][unbeaten] for name in PUBLISHED_DEGREES], axis=1)
    names = [".".join(f"{degree:.0f}" for degree in row) for row in degrees.tolist()]
    return Pareto(title, x[0], y[0], columns, unbeaten, names, complete, editions)


def axis(text: str, where: str) -> Axis:
    """Parse ``STATISTIC[:max|min]``, or a number of the execution; errors name the argument `where`.

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


def pareto_of_search(one: SearchResult, x: str, y: str) -> Pareto:
    """Return the front of a search's executions; by default over the search's own objectives.

    Raises:
        SpecError: For an unknown statistic.
        Infeasible: If nothing was found.
    """
    asked = [f"{o.statistic.name}:{o.sense}" for o in one.objectives]
    several = len(asked) > 1
    # A search with one objective is drawn against memory, the usual trade-off.
    y, x = y or asked[0], x or (asked[-1] if several else "proc_mem_tier1_cap_req")
    space = one.space
    title = f"{space.model.name} on {space.num_procs:,} x {space.system.name}"
    if not len(one):
        raise Infeasible("nothing", f"{title}: no execution was found, so there is nothing to draw")
    return pareto_points(
        title, axis(y, "y"), axis(x, "x"), [one.evaluation.column], terms(one.plan), complete=True
    )


def pareto_of_table(one: Evaluation, x: str, y: str) -> Pareto:
    """Return the front of the executions of a table that can run.

    Raises:
        SpecError: For an unknown statistic.
        Infeasible: If none can run.
    """
    if not one.feasible.any():
        raise Infeasible("nothing", f"none of {len(one):,} executions can run")
    title = f"{int(one.feasible.sum()):,} of {len(one):,} executions"
    axes = axis(y, "y"), axis(x, "x")
    return pareto_points(title, *axes, [one.column], terms(one.plan), complete=True)


def terms(plan: Plan) -> Sequence[str]:
    """Return the editions of a table, each with its preset if all its rows share one."""
    return terms_among(plan.values("edition"), plan.values("preset"))


def terms_among(editions: Array, presets: Array) -> list[str]:
    """Return the editions of rows, each with its preset if all its rows share one (or have none)."""
    result = []
    for name in EDITION_NAMES:
        used = set(presets[editions == name].tolist()) - {""}
        alone = used if len(used) == 1 and name != PUBLISHED else ()
        result += [", ".join((name, *alone))] * bool((editions == name).any())
    return result
