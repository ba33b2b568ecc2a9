"""The charts of the page for notebooks: the same ones, made of results that are there already."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from calculon.apps.explore.answers import Answers, Shown
from calculon.apps.explore.charts.effect_bars import effect_bars
from calculon.apps.explore.charts.plans_chart import Point, plans_chart
from calculon.apps.explore.machine.effects_view import STATISTICS
from calculon.apps.explore.machine.knobs import labels
from calculon.apps.explore.offer import Offer
from calculon.apps.explore.page_state import State
from calculon.apps.explore.part import Figure
from calculon.apps.explore.search.found_plans import split_name
from calculon.apps.explore.views import KINDS
from calculon.apps.report.plans_table import figure
from calculon.apps.views.front import front_of
from calculon.errors import Infeasible, Problem, SpecError, nearest
from calculon.estimate import Estimate
from calculon.frozen import dataclass
from calculon.hardware.system import System
from calculon.plan.plan import NAMES
from calculon.planner.answer import Answer
from calculon.planner.ask import Question, ask
from calculon.planner.dependence import Sensitivity
from calculon.planner.stage_needs import StageNeed, needs_of
from calculon.search.objective import known_statistic
from calculon.search.search_result import SearchResult
from calculon.spec.plan_words import plan_words


@dataclass(frozen=True)
class Known(Answers):
    """The answers for one estimate, or for the answer of a plan.

    Attributes
    ----------
    estimate : Estimate
        The plan that is shown.
    whole : Answer or None
        What it is the best of.
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
        """Return what the plan answers."""
        if self.whole is not None:
            return self.whole.question
        one = self._shown()
        plan = one.execution
        return ask(one.model, plan.num_procs, one.system, preset=plan.preset, batch=plan.batch_size)

    def found(self, state: State) -> SearchResult:
        """Return the plans that it is the best of."""
        assert self.whole is not None
        return self.whole.found

    def stages(self, state: State) -> tuple[StageNeed, ...]:
        """Return the memory of every stage, in any edition."""
        return needs_of(self._shown())

    def plan(self, state: State) -> Shown:
        """Return the plan, or where the state has one of one's own that of the answer."""
        one = self._shown()
        if state.plan:
            assert self.whole is not None
            mine = self.whole.mine
            assert mine is not None
            fields = {} if mine.execution is None else _fields(mine.execution)
            return Shown(mine.estimate, fields, mine.problem)
        return Shown(one, _fields(one.execution), best=self.whole is not None)


def _fields(execution: Any) -> dict[str, Any]:
    return {name: getattr(execution, name) for name in NAMES}


def _state(one: Estimate, plan: Mapping[str, Any], options: Mapping[str, Any]) -> State:
    stated = {name: str(value) for name, value in options.items()}
    return State(
        model=one.model.name,
        system=one.system.name,
        procs=one.execution.num_procs,
        plan=plan,
        options=stated,
    )


def _part(name: str) -> Callable[..., Figure | None]:
    """Return what makes the chart of a part of the page for an estimate, or for the best of an answer."""

    def make(one: Estimate | Answer, **options: Any) -> Figure | None:
        whole = one if isinstance(one, Answer) else None
        found = one.best if isinstance(one, Answer) else one
        own = whole is not None and whole.mine is not None
        if found is None or (name == _OF_BOTH and not own):
            return None
        plan = {"tensor_par": 1} if name == _OF_BOTH else {}  # the page of one's own plan
        part = KINDS[name].make(
            _state(found, plan, options), Known(Offer(), estimate=found, whole=whole)
        )
        return None if part is None else part.figure

    return make


_OF_BOTH = "against"
"""The part that leads from a plan of one's own to the best."""


def _tornado(one: Sensitivity) -> Figure | None:
    return effect_bars(one.to_dict(), lambda path, value: "", {**labels(one.system), **STATISTICS})


def _front(one: SearchResult, x: str, y: str) -> Figure:
    """Return the best of each split, and the executions that no other one of the search beats in both statistics."""
    found = front_of(one, x, y)
    across, up = (known_statistic(name, "plot", whole_runs=True) for name in (found.x, found.y))
    columns = np.stack([one.evaluation[name] for name in (found.x, found.y)])
    ranks = np.flatnonzero(np.isfinite(columns).all(axis=0)).tolist()
    winners = list(one.winners())
    points: list[Point] = []
    splits: dict[str, Point] = {}
    for rank in ranks:
        fields, stats = winners[rank]
        values = columns[:, rank].tolist()
        words = plan_words(fields, one.space.preset.usual(fields))
        told = (figure(*pair, stats) for pair in zip((up, across), values[::-1], strict=True))
        name = split_name(fields["tensor_par"], fields["pipeline_par"])
        point = Point(
            x=values[0], y=values[1], words=f"{words}<br>{', '.join(told)}", name=name, link=""
        )
        points.append(point)
        splits.setdefault(name, point)
    unbeaten = [points[place] for place in found.front.tolist()]
    return plans_chart(across, up, unbeaten, list(splits.values()), best=next(iter(points), None))


_PLANS: Mapping[str, Callable[..., Figure | None]] = {
    "breakdown": _part("time"),
    "memory": _part("memory"),
    "traffic": _part("traffic"),
    "schedule": _part("schedule"),
    "operators": _part("block"),
    "roofline": _part("roofline"),
}
"""The charts of a plan by kind."""

_KINDS: Mapping[type, Mapping[str, Callable[..., Figure | None]]] = {
    Estimate: _PLANS,
    Answer: {**_PLANS, "waterfall": _part(_OF_BOTH)},
    SearchResult: {"pareto": _front},
    Sensitivity: {"tornado": _tornado},
}
"""The charts of each result by kind."""


_OPTIONS = {"schedule": ("microbatches",), "pareto": ("x", "y")}
"""The arguments of kinds that have some."""


def chart(result: Any, kind: str, **options: Any) -> Figure:
    """Return a chart of a result as plain data: ``data`` and ``layout``.

    Parameters
    ----------
    result : object
        What to draw.
    kind : str
        Kind of chart: those of ``plot`` that the page has, of plans also ``memory``, ``traffic``, ``operators`` and
        ``roofline``.
    options : object
        ``microbatches`` of a schedule, ``x`` and ``y`` of a search.

    Raises
    ------
    SpecError
        For another kind, and for options that there are not.
    Infeasible
        When there is nothing to draw.
    """
    kinds = next((kinds for known, kinds in _KINDS.items() if isinstance(result, known)), {})
    if kind not in kinds:
        wanted = "one of " + ", ".join(kinds) if kinds else "a picture that is not interactive"
        raise SpecError("plot", Problem("kind", wanted, repr(kind), nearest(str(kind), [*kinds])))
    known = _OPTIONS.get(kind, ())
    if strange := [name for name in options if name not in known]:
        wanted = f"an argument of {kind}: {', '.join(known)}" if known else f"none for {kind}"
        raise SpecError("plot", Problem(strange[0], wanted, "an argument of this name"))
    found = kinds[kind](result, **options)
    if found is None:
        raise Infeasible("nothing", "there is nothing to draw")
    return found
