"""Charts by kind of result, for ``.plot()``, notebooks and ``calculon plot``."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from calculon.advise.answer import Answer
from calculon.advise.runs.fleet import FleetAnswer
from calculon.advise.runs.goodput_by_size import goodput_by_size
from calculon.advise.runs.training_run import TrainingRun
from calculon.advise.sensitivity_result import Sensitivity
from calculon.advise.waterfall import Waterfall
from calculon.base.errors import Infeasible, Problem, SpecError, nearest
from calculon.declarations.origin import titled
from calculon.declarations.plan_words import plan_words
from calculon.documents.charts.batch_chart import batch_curves
from calculon.documents.charts.breakdown import breakdown
from calculon.documents.charts.budget_chart import budget
from calculon.documents.charts.goodput_chart import goodput_curves
from calculon.documents.charts.pareto_chart import pareto
from calculon.documents.charts.run_days_chart import run_days
from calculon.documents.charts.scaling_chart import Point, Series, count_point, scaling
from calculon.documents.charts.schedule_chart import schedule
from calculon.documents.charts.serving_frontier_chart import serving_frontier
from calculon.documents.charts.sweep_chart import sweep_curves
from calculon.documents.charts.tornado_chart import tornado
from calculon.documents.charts.waterfall_chart import waterfall
from calculon.documents.comparison import Comparison
from calculon.documents.estimate_result import result_of
from calculon.documents.pareto import pareto_of_search, pareto_of_table
from calculon.documents.result import Result
from calculon.documents.schedule_passes import passes
from calculon.documents.served_frontier import frontier_in
from calculon.documents.waterfalls import waterfall_data
from calculon.estimate.estimate import Estimate
from calculon.estimate.evaluate import Evaluation
from calculon.render.canvas import require_library
from calculon.render.chart import Chart
from calculon.search.deployments.deployment_search import DeploymentSearch
from calculon.search.search_result import SearchResult
from calculon.search.sweep.sweep_result import Sweep
from calculon.serving.by_batch import ByBatch, by_batch
from calculon.serving.serve import Served

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def _labeled(one: Estimate, label: str = "") -> Result:
    """Convert an estimate into a result named after its execution, if that has a name."""
    known = one.origin
    plan = titled(known.name, known.changes) if known else ""
    return replace(result_of(one), label=label or plan or one.model.name)


def _plans(one: Answer) -> Chart:
    """Return the parts of the best plan, after the parts of the user's plan."""
    mine = one.mine.estimate if one.mine is not None else None
    found = {"mine": mine, "best": one.best}
    shown = [_labeled(plan, name) for name, plan in found.items() if plan is not None]
    if not shown:
        raise Infeasible("nothing", "no plan fits, so there is nothing to draw")
    return breakdown(shown)


def _changes_of_mine(one: Answer) -> Chart:
    """Return the changes from the user's plan to the best."""
    if one.waterfall is None:
        raise Infeasible("nothing", "the result has no two plans to compare")
    return waterfall([waterfall_data(one.waterfall)])


def _counts(one: Answer) -> Chart:
    """Return rate and efficiency of the best plan for each processor count."""
    points = []
    for count in one.counts:
        if count.best is None:
            points.append(Point(count.num_procs, words=count.reason))
        else:
            fields = count.best.execution
            words = plan_words(fields, one.question.preset.usual(fields))
            points.append(count_point(count.num_procs, words, count.best.stats))
    if all(point.rate is None for point in points):
        raise Infeasible("nothing", "no plan fits on any of these processor counts")
    label = f"{one.question.model.name} on {one.question.system.name}"
    return scaling([Series(label, points, f"{one.found.edition}, {one.question.preset.name}")])


def _front(one: SearchResult, x: str, y: str) -> Chart:
    """Return the executions of a result, with their Pareto front."""
    drawn = pareto_of_search(one, x, y)
    return pareto(replace(drawn, complete=len(drawn.optimal) < len(one)))


def _schedule(one: Estimate, microbatches: int | None = None) -> Chart:
    return schedule(passes(one, microbatches))


Maker = Callable[..., Chart | None]
"""Function that returns a chart of a result; None if there is nothing to draw."""

_KINDS: dict[type, dict[str, Maker]] = {
    Estimate: {
        "breakdown": lambda one: breakdown([_labeled(one)]),
        "schedule": _schedule,
    },
    Answer: {
        "breakdown": _plans,
        "scaling": _counts,
        "waterfall": _changes_of_mine,
    },
    Comparison: {"breakdown": lambda one: breakdown(one.results)},
    Evaluation: {"scatter": lambda one, x, y: pareto(pareto_of_table(one, x, y))},
    SearchResult: {"pareto": _front},
    FleetAnswer: {"budget": lambda one: budget(one.to_dict())},
    Sensitivity: {"tornado": lambda one: tornado(one.to_dict())},
    TrainingRun: {
        "campaign": run_days,
        "goodput": lambda one, **sizes: goodput_curves(goodput_by_size(one, **sizes).to_dict()),
    },
    Waterfall: {"waterfall": lambda one: waterfall([waterfall_data(one)])},
    ByBatch: {"batch": batch_curves},
    DeploymentSearch: {"frontier": lambda one: serving_frontier(frontier_in(one))},
    Served: {"batch": lambda one: batch_curves(by_batch(one))},
    Sweep: {"curves": sweep_curves},
}
"""Kinds of charts, by kind of result."""

_OPTIONS = {
    "schedule": ("microbatches",),
    "scatter": ("x", "y"),
    "pareto": ("x", "y"),
    "curves": ("x", "y", "by"),
    "goodput": ("procs", "mtbf"),
}
"""Arguments of the kinds that have any."""


def chart(
    result: Any, kind: str, own: Mapping[type, Mapping[str, Maker]] | None = None, /, **options: Any
) -> Chart:
    """Return a chart of a result; see :func:`calculon.base.display.draw_result`.

    Args:
        own: Kinds of charts by result that an application adds or replaces.

    Raises:
        SpecError: For an unknown kind, and for options that a kind does not have.
        Infeasible: If there is nothing to draw.
    """
    kinds = {**_of(_KINDS, result), **_of(own or {}, result)}
    if kind not in kinds:
        wanted = "one of " + ", ".join(kinds)
        raise SpecError("plot", Problem("kind", wanted, repr(kind), nearest(str(kind), [*kinds])))
    known = _OPTIONS.get(kind, ())
    if strange := [name for name in options if name not in known]:
        wanted = f"an argument of {kind}: {', '.join(known)}" if known else f"none for {kind}"
        raise SpecError("plot", Problem(strange[0], wanted, "an argument of this name"))
    found = kinds[kind](result, **options)
    if found is None:
        raise Infeasible("nothing", "there is nothing to draw")
    return found


def _of(several: Mapping[type, Mapping[str, Maker]], result: Any) -> Mapping[str, Maker]:
    """Return the kinds of charts of a result."""
    return next((kinds for known, kinds in several.items() if isinstance(result, known)), {})


def picture(result: Any, kind: str, **options: Any) -> "Figure":
    """Return a matplotlib figure of a result."""
    require_library()
    from calculon.render.matplotlib_charts import draw

    return draw(chart(result, kind, **options))
