"""What a state asks for, computed as the commands do: question, plan, best plans; each once, and kept."""

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
from calculon.explore.machine.knobs import CAPACITY
from calculon.explore.memo import Memo
from calculon.explore.offer import MODEL, SYSTEM, Offer
from calculon.explore.page_state import State
from calculon.explore.plan_choices import STATED, Choices, Outcome, choices
from calculon.explore.visits import Pending, seen
from calculon.hardware.figures import Figure, figures_of
from calculon.hardware.system import System
from calculon.inputs import Changed
from calculon.plan.plan import NAMES, all_fields
from calculon.search.best_first import count_space
from calculon.search.search_result import SearchResult

T = TypeVar("T")

TIME = "total_time"

AMPLE = 2**20
"""GiB of tier 1 in which everything fits that ever will."""

_FOLLOW = ("data_par", "edition", *QUESTION_WORDS)
"""Fields of a plan that the question and the other degrees say."""


@dataclass(frozen=True)
class Shown:
    """The plan of a page.

    Attributes:
        estimate: What it costs; None where it cannot run.
        fields: The fields of its execution, as far as they can be read.
        problem: Why it cannot run.
    """

    estimate: Estimate | None
    fields: Mapping[str, Any]
    problem: str = ""

    @property
    def legal(self) -> bool:
        """Whether it breaks no rule; its memory may not suffice."""
        return len(self.fields) == len(NAMES)

    @cached_property
    def result(self) -> Result | None:
        """The estimate as the plain data that pages are made of."""
        return None if self.estimate is None else result_of(self.estimate)

    @cached_property
    def brief(self) -> Result | None:
        """The same without what takes longer than the estimate, such as its stages and groups of ranks."""
        return None if self.estimate is None else result_of(self.estimate, details=False)


def once(compute: Callable[[Any, State], T]) -> Callable[[Any, State], T]:
    """Let a method compute its answer once for each question and plan."""

    @wraps(compute)
    def answered(answers: "Answers", state: State) -> T:
        return answers.kept((compute.__name__, state.key), lambda: compute(answers, state))

    return answered


@dataclass(frozen=True)
class Answers:
    """All that one page, or several, ask for.

    Attributes:
        offer: What may be asked for.
        memo: What was computed.
    """

    offer: Offer
    memo: Memo = field(default_factory=Memo)

    def system(self, state: State) -> System:
        """Return the machine, with what is changed of it."""
        source = Changed.of(self.offer.source(SYSTEM, state.system), dict(state.machine))
        key = ("system", state.system, tuple(sorted(state.machine.items())))
        return self.kept(key, lambda: inputs.system(source))

    def figures(self, state: State) -> dict[str, Figure]:
        """Return every figure of the machine as its file has it, by path: also points of curves, prices and powers."""
        system = self.system(replace(state, machine={}))
        return self.kept(
            ("figures", state.system),
            lambda: figures_of(system, points=True, whole_runs=True, serving=True),
        )

    @once
    def question(self, state: State) -> Question:
        """Return the question, with the plan of one's own.

        Raises:
            SpecError: For what has no such values.
        """
        if state.plan:
            asked = self.question(replace(state, plan={}))
            return replace(asked, mine=read_baseline(dict(state.plan), state.procs))
        words = {name: getattr(state, name) or None for name in ("preset", "batch", "seq", "dtype")}
        source = self.offer.source(MODEL, state.model)
        model = self.kept(("model", state.model), lambda: inputs.model(source))
        tokens = state.tokens or None
        return ask(model, state.procs, self.system(state), **words, tokens_of_run=tokens)

    def found(self, state: State) -> SearchResult:
        """Return the best plan of each split and number of chunks, the best of all first."""
        asked = _asked(state)
        return self.searched(
            ("found", asked.key), lambda: plans_on(self.question(asked), state.procs, seen)
        )

    def found_on(self, state: State, question: Question, count: int) -> SearchResult:
        """Return the same on another number of processors, for a question of the state with the batch that it has."""
        if count == state.procs:
            return self.found(state)
        key = ("found on", _asked(state).key, count)
        return self.searched(key, lambda: plans_on(question, count, seen))

    def executions(self, state: State) -> int:
        """Return how many executions a search for the best plan looks at, at most."""
        asked = _asked(state)
        return self.searched(
            ("executions", asked.key),
            lambda: count_space(space_of(self.question(asked), state.procs)),
        )

    def found_before(self, state: State) -> SearchResult | None:
        """Return the same where it was searched for before: nothing waits for a search."""
        known = self.memo.known(("found", _asked(state).key))
        return None if known is None else _found(known)

    @once
    def plan(self, state: State) -> Shown:
        """Return the plan that a page shows: one's own where it is stated, else the best."""
        question = self.question(state)
        if not state.plan:
            found = self.found(state)
            if not len(found):
                return Shown(None, {}, "no plan fits")
            return Shown(found[0], all_fields(found[0].execution))
        try:
            mine = baseline_plan(question, hints=False)
        except SpecError as error:
            return Shown(None, baseline_fields(question, state.plan), str(error))
        assert mine is not None
        if mine.estimate is None:
            fields = {} if mine.execution is None else all_fields(mine.execution)
            return Shown(None, fields or baseline_fields(question, state.plan), mine.problem)
        return Shown(mine.estimate, all_fields(mine.estimate.execution))

    @once
    def why(self, state: State) -> Why:
        """Return why the plan cannot run and what mends it, or what binds it and what single change is faster."""
        question, fields = self.question(state), dict(self.plan(state).fields)
        return why(question.model, fields, question.system, preset=question.framework)

    def answer(self, state: State) -> Answer:
        """Return the best plans and the plan of one's own beside them, as ``calculon plan`` answers."""
        shown = self.plan(state)
        execution = Execution(**shown.fields) if shown.legal else None
        return Answer(
            question=self.question(state),
            found=self.found(state),
            fastest=None,
            counts=(),
            mine=BaselinePlan(shown.estimate, shown.problem, execution),
            unfit=None,
        )

    def best(self, state: State) -> Shown:
        """Return the best plan, whichever is shown."""
        return self.plan(replace(state, plan={}))

    def infeasibility_report(self, state: State) -> InfeasibilityReport:
        """Return why no plan fits, and what would do."""
        found = self.found(state)
        return self.kept(
            ("unfit", _asked(state).key), lambda: infeasibility_report(found.space, found.counts)
        )

    def usable(self, state: State) -> tuple[float, float]:
        """Return the bytes of both tiers of memory that a plan may use."""
        return find_edition(CORRECTED).machine(self.system(state)).usable

    @once
    def single_changes(self, state: State) -> tuple[Outcome, ...]:
        """Return what every single change of the plan would do."""
        found = self.choices(state)
        return () if found is None else found.singles()

    @once
    def stages(self, state: State) -> tuple[StageNeed, ...]:
        """Return the memory of every stage of the plan, whether it is there or not; none where rules forbid it."""
        shown, question = self.plan(state), self.question(state)
        if shown.estimate is not None:
            return needs_of(shown.estimate)
        if not shown.legal:
            return ()
        return stage_needs(question.model, Execution(**shown.fields), question.system)

    def sensitivity(self, state: State) -> Sensitivity | None:
        """Return what a statistic of the plan depends on; None where the plan cannot run.

        Raises:
            SpecError: For another statistic or range than there are.
        """
        one, framework = self.plan(state).estimate, self.question(state).framework
        if one is None:
            return None
        of, spread = state.option("of"), state.option("spread")
        again = bool(state.option("replan"))
        return self.kept(
            ("sensitivity", state.key, of, spread, again),
            lambda: sensitivity(
                one.model,
                one.execution,
                one.system,
                of=of,
                spread=spread,
                replan=again,
                preset=framework,
                seen=lambda _: seen(),  # ends after a search where nobody waits
            ),
        )

    def as_fast_as_changed(self, state: State, kept: Estimate) -> Sensitivity:
        """Return at which value each figure of the machine in the file makes a plan as fast as the changed machine.

        Args:
            state: What says how the machine is changed.
            kept: The plan on the machine of the file; it runs on the changed one, too.
        """
        framework, machine = self.question(state).framework, self.system(state)
        return self.kept(
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
        """Return what capacity of memory buys, with the plan searched again; None where no capacity suffices."""
        others = {path: one for path, one in state.machine.items() if path != CAPACITY}
        asked = replace(state, plan={}, machine=others)
        ample = replace(asked, machine={**others, CAPACITY: AMPLE})
        best = self.plan(asked).estimate or self.plan(ample).estimate
        if best is None:
            return None
        case = Case(best.model, best.execution, best.system, TIME)
        preset = self.question(asked).preset
        found = self.kept(
            ("capacities", asked.key), lambda: Replanner(case, preset).capacity_sweep()
        )  # the same for every capacity
        capacity = self.system(state).mem1.capacity
        return capacity_sweep(capacity, found.withheld, found.steps, lambda time: -time)

    def schedule(self, state: State, microbatches: int) -> Gantt:
        """Return the passes of the first microbatches of the shown plan, which can run."""
        return self.kept(
            ("schedule", state.key, microbatches),
            lambda: passes(self._estimate(state), microbatches),
        )

    @once
    def block(self, state: State) -> Block:
        """Return the operators of a block of the shown plan, which can run."""
        found = self._estimate(state)
        return block(found.model, found.execution, found.system, edition=found.edition)

    @once
    def operators(self, state: State) -> list[OperatorPass]:
        """Return the passes over these operators beside the roofs of the machine."""
        return operator_passes(self.block(state))

    def _estimate(self, state: State) -> Estimate:
        found = self.plan(state).estimate
        assert found is not None
        return found

    def own(self, state: State, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Return what a plan states of its own: degrees, and what is not as its framework has it."""
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
        """Return what the plan of a page states of its own: that of the best plan where nothing is stated."""
        shown = self.plan(state)
        return self.own(state, shown.fields) if shown.legal else dict(state.plan)

    @once
    def choices(self, state: State) -> Choices | None:
        """Return what may be changed of the plan; None where there is none, or too little of it can be read."""
        shown = self.plan(state)
        if not (shown.fields or state.plan):
            return None
        question = self.question(replace(state, plan={}))
        return choices(question, shown.fields, self.stated(state))

    def kept(self, key: Any, compute: Callable[[], T]) -> T:
        """Return a result that is computed once, with the warnings of the computation told again each time."""
        found: T = _found(self.memo(key, lambda: _with_warnings(compute)))
        return found

    def searched(self, key: Any, compute: Callable[[], T]) -> T:
        """Return the same of what may take longer than a request waits, and then raises ``Pending``."""
        found: T = _found(self.memo.search(key, lambda: _with_warnings(compute)))
        return found


class Unsearched(Answers):
    """The same while a search is under way: nothing is known of plans yet."""

    def plan(self, state: State) -> Shown:
        """Return that no plan is known."""
        return Shown(None, dict(state.plan))

    def searched(self, key: Any, compute: Callable[[], T]) -> T:
        """Raise that nothing is found yet."""
        raise Pending(0)


def _asked(state: State) -> State:
    """Return a state with all that a search for the best plan depends on."""
    return replace(state, plan={}, tokens="")


_TOLD: ContextVar[list[str] | None] = ContextVar("told", default=None)
"""Warnings of the answer that is being computed, in its own thread."""


def _tell(text: str) -> None:
    told = _TOLD.get()
    if told is not None and text not in told:
        told.append(text)


@contextmanager
def telling() -> Iterator[list[str]]:
    """Collect what is warned of inside; :func:`listen` has been called before."""
    told: list[str] = []
    token = _TOLD.set(told)
    try:
        yield told
    finally:
        _TOLD.reset(token)


def _found(kept: tuple[T, list[str]]) -> T:
    """Return a result, and tell its warnings again."""
    found, told = kept
    for text in told:
        _tell(text)
    return found


def _with_warnings(compute: Callable[[], T]) -> tuple[T, list[str]]:
    with telling() as told:
        return compute(), told


class _Listening:
    """Shows warnings as before, but those of specs to the answer that is being computed, if there is one."""

    def __init__(self, before: Callable[..., None]):
        self._before = before

    def __call__(
        self, message: Warning | str, category: type[Warning], *rest: Any, **more: Any
    ) -> None:
        if issubclass(category, SpecWarning) and _TOLD.get() is not None:
            _tell(str(message))
        else:
            self._before(message, category, *rest, **more)


def listen() -> None:
    """Let warnings of specs reach the answer that they belong to: those of several threads are told apart."""
    warnings.simplefilter("always", SpecWarning)
    if not isinstance(warnings.showwarning, _Listening):
        warnings.showwarning = _Listening(warnings.showwarning)


__all__ = ["Answers", "Infeasible", "Shown", "listen", "telling"]
