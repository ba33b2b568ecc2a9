"""Cached results for a state of the page, computed as by the commands: question, plan, best plans."""

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import field, replace
from functools import cached_property, wraps
from typing import Any, TypeVar

from calculon import inputs
from calculon.advise.answer import (
    Answer,
    BaselinePlan,
    baseline_fields,
    baseline_plan,
    plans_on,
    space_of,
)
from calculon.advise.ask import Question, ask
from calculon.advise.elasticities import Case
from calculon.advise.infeasibility import InfeasibilityReport, infeasibility_report
from calculon.advise.replanned import CapacitySweep, Replanner, capacity_sweep
from calculon.advise.sensitivity import sensitivity
from calculon.advise.sensitivity_result import Sensitivity
from calculon.advise.shorthand import read_baseline
from calculon.advise.stage_needs import StageNeed, needs_of, stage_needs
from calculon.advise.why import Why, why
from calculon.base.errors import Infeasible, SpecError
from calculon.base.frozen import dataclass
from calculon.declarations.decode import SpecWarning
from calculon.declarations.execution import Execution
from calculon.declarations.named_values import CORRECTED
from calculon.declarations.short_names import QUESTION_WORDS
from calculon.documents.charts.schedule_chart import Gantt
from calculon.documents.estimate_result import result_of
from calculon.documents.result import Result
from calculon.documents.schedule_passes import passes
from calculon.editions import find_edition
from calculon.estimate.estimate import Estimate
from calculon.estimate.operator_passes import OperatorPass, operator_passes
from calculon.estimate.operators import Block, block
from calculon.explore.allowed_inputs import MODEL, SYSTEM, AllowedInputs
from calculon.explore.machine.machine_controls import CAPACITY
from calculon.explore.page_state import State
from calculon.explore.plan_choices import STATED, Choices, Outcome, choices
from calculon.explore.request_tracking import Pending, count_searched
from calculon.explore.result_cache import ResultCache
from calculon.hardware.figures import Figure, figures_of
from calculon.hardware.system import System
from calculon.inputs import Changed
from calculon.plan.plan import NAMES, all_fields
from calculon.search.best_first import count_space
from calculon.search.search_result import SearchResult

T = TypeVar("T")

TIME = "total_time"

AMPLE = 2**20
"""GiB of tier-1 memory in which every plan fits."""

_FOLLOW = ("data_par", "edition", *QUESTION_WORDS)
"""Plan fields that follow from the question and the other degrees."""


@dataclass(frozen=True)
class DisplayedPlan:
    """Plan that a page shows.

    Attributes:
        estimate: Estimate of the plan; None if it is infeasible.
        fields: Fields of its execution, as far as they can be read.
        problem: Reason why it cannot run.
    """

    estimate: Estimate | None
    fields: Mapping[str, Any]
    problem: str = ""

    @property
    def legal(self) -> bool:
        """True if the plan violates no rule; it may still exceed the memory."""
        return len(self.fields) == len(NAMES)

    @cached_property
    def result(self) -> Result | None:
        """Estimate as plain data, from which pages are made."""
        return None if self.estimate is None else result_of(self.estimate)

    @cached_property
    def brief(self) -> Result | None:
        """Like `result`, but without slow details such as stages and process groups."""
        return None if self.estimate is None else result_of(self.estimate, details=False)


def cached_method(compute: Callable[[Any, State], T]) -> Callable[[Any, State], T]:
    """Cache the result of a method per question and plan."""

    @wraps(compute)
    def answered(answers: "Answers", state: State) -> T:
        return answers.cached((compute.__name__, state.key), lambda: compute(answers, state))

    return answered


@dataclass(frozen=True)
class Answers:
    """All results that one or several pages need.

    Attributes:
        allowed: Models, systems and presets that may be requested.
        cache: Cache of results.
    """

    allowed: AllowedInputs
    cache: ResultCache = field(default_factory=ResultCache)

    def system(self, state: State) -> System:
        """Return the machine with the changes of the state."""
        source = Changed.of(self.allowed.source(SYSTEM, state.system), dict(state.machine))
        key = ("system", state.system, tuple(sorted(state.machine.items())))
        return self.cached(key, lambda: inputs.system(source))

    def figures(self, state: State) -> dict[str, Figure]:
        """Return every figure of the machine file by path, including curve points, prices and powers."""
        system = self.system(replace(state, machine={}))
        return self.cached(
            ("figures", state.system),
            lambda: figures_of(system, points=True, whole_runs=True, serving=True),
        )

    @cached_method
    def question(self, state: State) -> Question:
        """Return the question, including the user's plan.

        Raises:
            SpecError: For values that do not exist.
        """
        if state.plan:
            # The question without the user's plan is shared by all plans, so it is cached separately.
            asked = self.question(replace(state, plan={}))
            return replace(asked, mine=read_baseline(dict(state.plan), state.procs))
        words = {name: getattr(state, name) or None for name in ("preset", "batch", "seq", "dtype")}
        source = self.allowed.source(MODEL, state.model)
        model = self.cached(("model", state.model), lambda: inputs.model(source))
        tokens = state.tokens or None
        return ask(model, state.procs, self.system(state), **words, tokens_of_run=tokens)

    def best_plans(self, state: State) -> SearchResult:
        """Return the best plan of each parallel split and number of chunks, the overall best first."""
        asked = _search_state(state)
        return self.cached_search(
            ("found", asked.key),
            lambda: plans_on(self.question(asked), state.procs, count_searched),
        )

    def best_plans_on(self, state: State, question: Question, count: int) -> SearchResult:
        """Return the best plans for another processor count; the question keeps the batch of the state."""
        if count == state.procs:
            return self.best_plans(state)
        key = ("found on", _search_state(state).key, count)
        return self.cached_search(key, lambda: plans_on(question, count, count_searched))

    def executions(self, state: State) -> int:
        """Return an upper bound on the executions that a search for the best plan evaluates."""
        asked = _search_state(state)
        return self.cached_search(
            ("executions", asked.key),
            lambda: count_space(space_of(self.question(asked), state.procs)),
        )

    def cached_best_plans(self, state: State) -> SearchResult | None:
        """Return the best plans if they are cached, without starting a search; else None."""
        known = self.cache.known(("found", _search_state(state).key))
        return None if known is None else _found(known)

    @cached_method
    def plan(self, state: State) -> DisplayedPlan:
        """Return the plan that the page shows: the user's plan if there is one, else the best plan."""
        question = self.question(state)
        if not state.plan:
            found = self.best_plans(state)
            if not len(found):
                return DisplayedPlan(None, {}, "no plan fits")
            return DisplayedPlan(found[0], all_fields(found[0].execution))
        try:
            mine = baseline_plan(question, hints=False)
        except SpecError as error:
            return DisplayedPlan(None, baseline_fields(question, state.plan), str(error))
        assert mine is not None
        if mine.estimate is None:
            fields = {} if mine.execution is None else all_fields(mine.execution)
            return DisplayedPlan(
                None, fields or baseline_fields(question, state.plan), mine.problem
            )
        return DisplayedPlan(mine.estimate, all_fields(mine.estimate.execution))

    @cached_method
    def why(self, state: State) -> Why:
        """Return why the plan cannot run and how to fix it, or its bottleneck and the best single change."""
        question, fields = self.question(state), dict(self.plan(state).fields)
        return why(question.model, fields, question.system, preset=question.framework)

    def answer(self, state: State) -> Answer:
        """Return the best plans together with the user's plan, as ``calculon plan`` does."""
        shown = self.plan(state)
        execution = Execution(**shown.fields) if shown.legal else None
        return Answer(
            question=self.question(state),
            found=self.best_plans(state),
            fastest=None,
            counts=(),
            mine=BaselinePlan(shown.estimate, shown.problem, execution),
            unfit=None,
        )

    def best(self, state: State) -> DisplayedPlan:
        """Return the best plan, even if the page shows another."""
        return self.plan(replace(state, plan={}))

    def infeasibility_report(self, state: State) -> InfeasibilityReport:
        """Return why no plan fits, and which changes would help."""
        found = self.best_plans(state)
        return self.cached(
            ("unfit", _search_state(state).key),
            lambda: infeasibility_report(found.space, found.counts),
        )

    def usable(self, state: State) -> tuple[float, float]:
        """Return the usable bytes of both memory tiers."""
        return find_edition(CORRECTED).machine(self.system(state)).usable

    @cached_method
    def single_changes(self, state: State) -> tuple[Outcome, ...]:
        """Return the outcome of every single change of the plan."""
        found = self.choices(state)
        return () if found is None else found.singles()

    @cached_method
    def stages(self, state: State) -> tuple[StageNeed, ...]:
        """Return the memory of every stage, even above capacity; empty if the plan violates rules."""
        shown, question = self.plan(state), self.question(state)
        if shown.estimate is not None:
            return needs_of(shown.estimate)
        if not shown.legal:
            return ()
        return stage_needs(question.model, Execution(**shown.fields), question.system)

    def sensitivity(self, state: State) -> Sensitivity | None:
        """Return the sensitivity of a statistic of the plan; None if the plan cannot run.

        Raises:
            SpecError: For an unknown statistic or range.
        """
        one, framework = self.plan(state).estimate, self.question(state).framework
        if one is None:
            return None
        of, spread = state.option("of"), state.option("spread")
        again = bool(state.option("replan"))
        return self.cached(
            ("sensitivity", state.key, of, spread, again),
            lambda: sensitivity(
                one.model,
                one.execution,
                one.system,
                of=of,
                spread=spread,
                replan=again,
                preset=framework,
                # Cancels between searches if nobody waits any more.
                seen=lambda _: count_searched(),
            ),
        )

    def as_fast_as_changed(self, state: State, kept: Estimate) -> Sensitivity:
        """Return, for each machine figure, the value at which a plan is as fast as on the changed machine.

        Args:
            state: The page, with the changes of the machine.
            kept: The plan on the unchanged machine; it also runs on the changed one.
        """
        framework, machine = self.question(state).framework, self.system(state)
        return self.cached(
            ("break-even", state.key),
            lambda: sensitivity(
                kept.model,
                kept.execution,
                kept.system,
                against_system=machine,
                preset=framework,
            ),
        )

    def capacities(self, state: State) -> CapacitySweep | None:
        """Return the best plan by memory capacity; None if no capacity suffices."""
        others = {path: one for path, one in state.machine.items() if path != CAPACITY}
        # The sweep covers all capacities, so it must not depend on the current one.
        asked = replace(state, plan={}, machine=others)
        ample = replace(asked, machine={**others, CAPACITY: AMPLE})
        best = self.plan(asked).estimate or self.plan(ample).estimate
        if best is None:
            return None
        case = Case(best.model, best.execution, best.system, TIME)
        preset = self.question(asked).preset
        # One sweep covers all capacities, so it is cached without the current one.
        found = self.cached(
            ("capacities", asked.key), lambda: Replanner(case, preset).capacity_sweep()
        )
        capacity = self.system(state).mem1.capacity
        return capacity_sweep(capacity, found.withheld, found.steps, lambda time: -time)

    def schedule(self, state: State, microbatches: int) -> Gantt:
        """Return the pipeline schedule of the first microbatches of the shown, feasible plan."""
        return self.cached(
            ("schedule", state.key, microbatches),
            lambda: passes(self._estimate(state), microbatches),
        )

    @cached_method
    def block(self, state: State) -> Block:
        """Return the operators of one block of the shown, feasible plan."""
        found = self._estimate(state)
        return block(found.model, found.execution, found.system, edition=found.edition)

    @cached_method
    def operators(self, state: State) -> list[OperatorPass]:
        """Return the operator passes of the block with their roofline bounds."""
        return operator_passes(self.block(state))

    def _estimate(self, state: State) -> Estimate:
        result = self.plan(state).estimate
        assert result is not None
        return result

    def stated_fields(self, state: State, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields that a plan states itself: degrees, and values that differ from its framework."""
        question = self.question(replace(state, plan={}))
        usual = question.preset.usual(fields)
        arithmetic = question.arithmetic
        return {
            name: fields[name]
            for name in NAMES
            if name in fields
            and name not in _FOLLOW
            and (
                name in STATED
                or (name in usual and fields[name] != usual[name] and name not in arithmetic)
                or (name not in usual and name in state.plan)
            )
        }

    def stated(self, state: State) -> dict[str, Any]:
        """Return the fields that the page's plan states itself; for the best plan, the fields it would state."""
        shown = self.plan(state)
        return self.stated_fields(state, shown.fields) if shown.legal else dict(state.plan)

    @cached_method
    def choices(self, state: State) -> Choices | None:
        """Return the possible changes of the plan; None if there is no plan or too few fields are readable."""
        shown = self.plan(state)
        if not (shown.fields or state.plan):
            return None
        question = self.question(replace(state, plan={}))
        return choices(question, shown.fields, self.stated(state))

    def cached(self, key: Any, compute: Callable[[], T]) -> T:
        """Return a result that is computed once; the warnings of the computation are repeated on each call."""
        result: T = _found(self.cache(key, lambda: _with_warnings(compute)))
        return result

    def cached_search(self, key: Any, compute: Callable[[], T]) -> T:
        """Return a cached result of a long computation; raise ``Pending`` if it takes longer than a request waits."""
        result: T = _found(self.cache.search(key, lambda: _with_warnings(compute)))
        return result


class PendingAnswers(Answers):
    """Results during a search, when no plan is known yet."""

    def plan(self, state: State) -> DisplayedPlan:
        """Return an unknown plan."""
        return DisplayedPlan(None, dict(state.plan))

    def cached_search(self, key: Any, compute: Callable[[], T]) -> T:
        """Raise ``Pending``."""
        raise Pending(0)


def _search_state(state: State) -> State:
    """Return a state reduced to the inputs of the search for the best plan."""
    return replace(state, plan={}, tokens="")


_WARNINGS: ContextVar[list[str] | None] = ContextVar("warnings", default=None)
"""Warnings of the computation under way in this thread."""


def _add_warning(text: str) -> None:
    texts = _WARNINGS.get()
    if texts is not None and text not in texts:
        texts.append(text)


@contextmanager
def collect_warnings() -> Iterator[list[str]]:
    """Collect warnings issued in the context; :func:`route_warnings` must have been called before."""
    texts: list[str] = []
    token = _WARNINGS.set(texts)
    try:
        yield texts
    finally:
        _WARNINGS.reset(token)


def _found(kept: tuple[T, list[str]]) -> T:
    """Return a cached result and repeat its warnings."""
    result, texts = kept
    for text in texts:
        _add_warning(text)
    return result


def _with_warnings(compute: Callable[[], T]) -> tuple[T, list[str]]:
    with collect_warnings() as texts:
        return compute(), texts


class _WarningRouter:
    """Warning handler that routes spec warnings to the result under computation, and passes on all others."""

    def __init__(self, before: Callable[..., None]):
        self._before = before

    def __call__(
        self, message: Warning | str, category: type[Warning], *rest: Any, **more: Any
    ) -> None:
        if issubclass(category, SpecWarning) and _WARNINGS.get() is not None:
            # A context variable keeps the warnings of parallel requests apart, which Python's own filters cannot do.
            _add_warning(str(message))
        else:
            self._before(message, category, *rest, **more)


def route_warnings() -> None:
    """Route spec warnings to the results that cause them, separately for each thread."""
    warnings.simplefilter("always", SpecWarning)
    if not isinstance(warnings.showwarning, _WarningRouter):
        warnings.showwarning = _WarningRouter(warnings.showwarning)


__all__ = ["Answers", "DisplayedPlan", "Infeasible", "collect_warnings", "route_warnings"]
