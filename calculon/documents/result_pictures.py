"""Pictures of results, as ``calculon plot`` draws them."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from calculon.advise.answer import Answer
from calculon.advise.runs.fleet import FleetAnswer
from calculon.advise.runs.goodput_by_size import goodput_by_size
from calculon.advise.runs.training_run import TrainingRun
from calculon.advise.sensitivity_result import Sensitivity
from calculon.advise.waterfall import Waterfall
from calculon.base.errors import Infeasible, Problem, SpecError, nearest
from calculon.declarations.origin import titled
from calculon.declarations.plan_words import plan_words
from calculon.documents import drawn_charts
from calculon.documents.charts.scaling_chart import Point, Series, count_point
from calculon.documents.comparison import Comparison
from calculon.documents.estimate_result import result_of
from calculon.documents.front import axis, front, front_of, terms
from calculon.documents.result import Result
from calculon.documents.run_pictures import run_days
from calculon.documents.schedule_passes import passes
from calculon.documents.served_frontier import frontier_in
from calculon.documents.sweep_curves import curves
from calculon.documents.waterfalls import fall_alone
from calculon.estimate.estimate import Estimate
from calculon.estimate.evaluate import Evaluation
from calculon.render.canvas import require_library
from calculon.render.chart import Chart
from calculon.search.deployments.deployments_found import DeploymentSearch
from calculon.search.search_result import SearchResult
from calculon.search.sweep.sweep_result import Sweep
from calculon.serving.by_batch import ByBatch, by_batch
from calculon.serving.serve import Served

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def _labelled(one: Estimate, label: str = "") -> Result:
    """Return an estimate under a name: that of its execution, as far as it has one."""
    known = one.origin
    plan = titled(known.name, known.changes) if known else ""
    return replace(result_of(one), label=label or plan or one.model.name)


def _plans(one: Answer) -> list[Result]:
    """Return the best plan, and before it one's own."""
    mine = one.mine.estimate if one.mine is not None else None
    found = {"mine": mine, "best": one.best}
    shown = [_labelled(plan, name) for name, plan in found.items() if plan is not None]
    if not shown:
        raise Infeasible("nothing", "no plan fits, so that there is nothing to draw")
    return shown


def _changes_of_mine(one: Answer) -> Any:
    """Return the changes from one's own plan to the best."""
    if one.waterfall is None:
        raise Infeasible("nothing", "there are no two plans to lead from one to the other")
    return [fall_alone(one.waterfall)]


def _counts(one: Answer) -> list[Series]:
    """Return rate and efficiency of the best plan on each number of processors."""
    points = []
    for count in one.counts:
        if count.best is None:
            points.append(Point(count.num_procs, words=count.reason))
        else:
            fields = count.best.execution
            words = plan_words(fields, one.question.preset.usual(fields))
            points.append(count_point(count.num_procs, words, count.best.stats))
    if all(point.rate is None for point in points):
        raise Infeasible("nothing", "no plan fits on any of these numbers of processors")
    label = f"{one.question.model.name} on {one.question.system.name}"
    return [Series(label, points, f"{one.found.edition}, {one.question.preset.name}")]


def _scatter(one: Evaluation, x: str, y: str) -> Any:
    if not one.feasible.any():
        raise Infeasible("nothing", f"none of {len(one):,} executions can run")
    title = f"{int(one.feasible.sum()):,} of {len(one):,} executions"
    return front(title, axis(y, "y"), axis(x, "x"), [one.column], terms(one.plan), complete=True)


def _front(one: SearchResult, x: str, y: str) -> Any:
    """Return the executions of a result."""
    drawn = front_of(one, x, y)
    return replace(drawn, complete=len(drawn.front) < len(one))


def _curves(one: Sweep, x: str, y: str, by: str | None) -> Any:
    return curves(one, x, y, by, terms(one.evaluation.plan))


Content = Callable[..., Any]

_KINDS: dict[type, dict[str, Content]] = {
    Estimate: {
        "breakdown": lambda one: [_labelled(one)],
        "schedule": passes,
    },
    Answer: {
        "breakdown": _plans,
        "scaling": _counts,
        "waterfall": _changes_of_mine,
    },
    Comparison: {"breakdown": lambda one: list(one.results)},
    Evaluation: {"scatter": _scatter},
    SearchResult: {"pareto": _front},
    FleetAnswer: {"budget": FleetAnswer.to_dict},
    Sensitivity: {"tornado": Sensitivity.to_dict},
    TrainingRun: {
        "campaign": run_days,
        "goodput": lambda one, **sizes: goodput_by_size(one, **sizes).to_dict(),
    },
    Waterfall: {"waterfall": lambda one: [fall_alone(one)]},
    ByBatch: {"batch": ByBatch.to_dict},
    DeploymentSearch: {"frontier": frontier_in},
    Served: {"batch": lambda one: by_batch(one).to_dict()},
    Sweep: {"curves": _curves},
}
"""The kinds of pictures of each result: functions that return their content."""

_OPTIONS = {
    "schedule": ("microbatches",),
    "scatter": ("x", "y"),
    "pareto": ("x", "y"),
    "curves": ("x", "y", "by"),
    "goodput": ("procs", "mtbf"),
}
"""The arguments of kinds that have some."""

Kind = TypeVar("Kind")


def chosen(kinds: Mapping[str, Kind], kind: str, options: Mapping[str, Any]) -> Kind:
    """Return one of the kinds of charts of a result; SpecError for another kind, and for options that it lacks."""
    if kind not in kinds:
        wanted = "one of " + ", ".join(kinds)
        raise SpecError("plot", Problem("kind", wanted, repr(kind), nearest(str(kind), [*kinds])))
    known = _OPTIONS.get(kind, ())
    if strange := [name for name in options if name not in known]:
        wanted = f"an argument of {kind}: {', '.join(known)}" if known else f"none for {kind}"
        raise SpecError("plot", Problem(strange[0], wanted, "an argument of this name"))
    return kinds[kind]


def chart(result: Any, kind: str, **options: Any) -> Chart:
    """Return a chart of a result: see :func:`calculon.base.display.drawn`."""
    content = chosen(kinds_of(result), kind, options)
    return drawn_charts.specified(kind, content(result, **options))


def kinds_of(result: Any) -> Mapping[str, Content]:
    """Return the kinds of charts of a result."""
    return next(kinds for known, kinds in _KINDS.items() if isinstance(result, known))


def picture(result: Any, kind: str, **options: Any) -> "Figure":
    """Return a picture of a result, drawn by matplotlib."""
    require_library()
    content = chosen(kinds_of(result), kind, options)
    return drawn_charts.drawn(kind, content(result, **options))
