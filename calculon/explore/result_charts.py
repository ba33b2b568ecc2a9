"""The page's charts for notebooks, made from existing results."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from calculon.advise.answer import Answer
from calculon.advise.ask import Question, ask
from calculon.advise.sensitivity_result import Sensitivity
from calculon.advise.stage_needs import StageNeed, needs_of
from calculon.base.errors import Problem, SpecError
from calculon.base.frozen import dataclass
from calculon.base.records import Column
from calculon.base.units import Array, Unit
from calculon.declarations.plan_words import plan_words
from calculon.documents import result_pictures
from calculon.documents.charts.capacity_chart import capacity_chart
from calculon.documents.charts.pareto_chart import Pareto, PlanPoint, plans_chart
from calculon.documents.pareto import COUNTED, axis, pareto_of_search, pareto_of_table
from calculon.documents.result_pages import usual_of
from calculon.documents.result_pictures import Maker
from calculon.estimate.estimate import Estimate, estimate
from calculon.estimate.evaluate import Evaluation
from calculon.explore.allowed_inputs import AllowedInputs
from calculon.explore.answers import TIME, Answers, DisplayedPlan
from calculon.explore.machine.both_machines import digits_of
from calculon.explore.page_state import State
from calculon.explore.search.found_plans import plan_point
from calculon.explore.views import KINDS
from calculon.hardware.system import System
from calculon.plan.plan import NAMES, all_fields
from calculon.render.chart import Chart
from calculon.render.chart_axes import SHORT
from calculon.search.objective import known_statistic
from calculon.search.search_result import SearchResult


@dataclass(frozen=True)
class FixedAnswers(Answers):
    """Fixed provider of results: one estimate, or the result of a plan.

    Attributes:
        estimate: The shown plan.
        whole: Result of which it is the best plan.
    """

    estimate: Estimate | None = None
    whole: Answer | None = None

    def _shown(self) -> Estimate:
        assert self.estimate is not None
        return self.estimate

    def system(self, state: State) -> System:
        """Return the machine of the plan."""
        return self._shown().system

    def question(self, state: State) -> Question:
        """Return the question of the plan."""
        if self.whole is not None:
            return self.whole.question
        one = self._shown()
        plan = one.execution
        return ask(one.model, plan.num_procs, one.system, preset=plan.preset, batch=plan.batch_size)

    def best_plans(self, state: State) -> SearchResult:
        """Return the plans among which it is the best."""
        assert self.whole is not None
        return self.whole.found

    def stages(self, state: State) -> tuple[StageNeed, ...]:
        """Return the memory of every stage, in any edition."""
        return needs_of(self._shown())

    def plan(self, state: State) -> DisplayedPlan:
        """Return the plan, or the user's plan of the result if the state has one."""
        one = self._shown()
        if state.plan:
            assert self.whole is not None
            mine = self.whole.mine
            assert mine is not None
            fields = {} if mine.execution is None else all_fields(mine.execution)
            return DisplayedPlan(mine.estimate, fields, mine.problem)
        return DisplayedPlan(one, all_fields(one.execution))


def _state(one: Estimate, plan: Mapping[str, Any], options: Mapping[str, Any]) -> State:
    stated = {name: str(value) for name, value in options.items()}
    return State(
        model=one.model.name,
        system=one.system.name,
        procs=one.execution.num_procs,
        plan=plan,
        options=stated,
    )


def _part(name: str) -> Maker:
    """Return a function that makes a part's chart for an estimate or for the best plan of a result."""

    def make(one: Estimate | Answer, **options: Any) -> Chart | None:
        whole = one if isinstance(one, Answer) else None
        found = one.best if isinstance(one, Answer) else one
        own = whole is not None and whole.mine is not None
        if found is None or (name == _OF_BOTH and not own):
            return None
        # Any stated field selects the user's plan instead of the best one.
        plan = {"tensor_par": 1} if name == _OF_BOTH else {}
        part = KINDS[name].make(
            _state(found, plan, options), FixedAnswers(AllowedInputs(), estimate=found, whole=whole)
        )
        return None if part is None else part.chart

    return make


_OF_BOTH = "against"
"""Name of the part that leads from the user's plan to the best."""


def _capacity(one: Sensitivity) -> Chart:
    """Return the benefit of more memory, if the plan was searched again."""
    if one.searched is None or one.statistic.name != TIME:
        wanted = f"a sensitivity of {TIME} with replan=True"
        found = "plans that were not searched again" if one.searched is None else one.statistic.name
        raise SpecError("plot", Problem("capacity", wanted, found))
    digits = digits_of(estimate(one.model, one.execution, one.system))
    title = f"{one.model.name} on {one.execution.num_procs:,} x {one.system.name}"
    steps = one.searched.staircase
    return capacity_chart(title, steps, one.system.mem1.capacity, digits)


PlanLabels = Callable[[int], tuple[Mapping[str, Any], Mapping[str, Any], Mapping[str, Any]]]
"""Function that returns a row's fields, its statistics, and the defaults of its framework."""


def _front(one: SearchResult, x: str, y: str) -> Chart:
    """Return the best of each split, and the Pareto front of a search in two statistics."""
    found = pareto_of_search(one, x, y)
    winners = list(one.winners())

    def told(row: int) -> Any:
        fields, stats = winners[row]
        return fields, stats, one.space.preset.usual(fields)

    return _by_two(found, one.evaluation, np.arange(len(one)), told)


def _scatter(one: Evaluation, x: str, y: str) -> Chart:
    """Return the best of each split in the vertical statistic, and the Pareto front of both statistics."""
    found, (name, sign) = pareto_of_table(one, x, y), axis(y, "y")

    def told(row: int) -> Any:
        fields = {name: one.plan.values(name)[row].item() for name in NAMES}
        return fields, {name: float(one[name][row]) for name in one.names}, usual_of(fields)

    return _by_two(found, one, np.argsort(-sign * one.column(name), kind="stable"), told)


def _by_two(data: Pareto, table: Evaluation, order: Array, labels_of: PlanLabels) -> Chart:
    """Return executions by two statistics: the best of each split, the Pareto front, and the overall best.

    Args:
        data: The statistics, and the front among the rows that have both.
        table: The executions.
        order: Rows of the table, best first.
        labels_of: Function that returns the labels of a row.
    """
    across, up = (_statistic(name) for name in (data.x, data.y))
    values = np.stack([table.column(name) for name in (data.x, data.y)]).astype(float)
    placed = np.isfinite(values).all(axis=0)
    # Rows without one of the statistics have no position on the chart.
    order = order[placed[order]]
    splits = np.stack([table.column(name)[order] for name in ("tensor_par", "pipeline_par")])
    _, first = np.unique(splits, axis=1, return_index=True)

    def point(row: int) -> PlanPoint:
        fields, stats, usual = labels_of(row)
        words = plan_words(fields, usual)
        return plan_point(across, up, tuple(values[:, row].tolist()), fields, stats, words)

    each = [point(row) for row in order[np.sort(first)].tolist()]
    unbeaten = [point(row) for row in np.flatnonzero(placed)[data.optimal].tolist()]
    return plans_chart(
        *(data.title, "; ".join(data.terms), (across.name, up.name)),
        front=unbeaten,
        splits=each,
        best=next(iter(each), None),
    )


def _statistic(name: str) -> Column:
    """Return a statistic, a figure of whole runs, or the processor count."""
    if name in COUNTED:
        unit, words = Unit(""), SHORT[name]
        return Column(name, unit, words, source="", nullable=False, path=(name,), index=None)
    return known_statistic(name, "plot", whole_runs=True)


_PLANS: Mapping[str, Maker] = {
    "breakdown": _part("time"),
    "memory": _part("memory"),
    "traffic": _part("traffic"),
    "schedule": _part("schedule"),
    "operators": _part("block"),
    "roofline": _part("roofline"),
}
"""The charts of a plan by kind."""

_KINDS: Mapping[type, Mapping[str, Maker]] = {
    Estimate: _PLANS,
    Answer: {
        **_PLANS,
        "waterfall": _part(_OF_BOTH),
        "heatmap": _part("search-splits"),
        "pareto": _part("search-front"),
        "capacity": _part("machine-capacity"),
    },
    Evaluation: {"scatter": _scatter},
    SearchResult: {"pareto": _front},
    Sensitivity: {"capacity": _capacity},
}
"""Charts of the page by kind; :func:`calculon.documents.result_pictures.chart` makes all others."""


def chart(result: Any, kind: str, **options: Any) -> Chart:
    """Return the page's chart of a result if it has one, else :func:`calculon.documents.result_pictures.chart`."""
    return result_pictures.chart(result, kind, _KINDS, **options)
