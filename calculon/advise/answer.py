"""The answer to a question: the best plan, its rivals, the same for other counts, and a plan of one's own beside it."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, overload

from calculon import inputs
from calculon.advise.ask import Question
from calculon.advise.candidate import COLUMNS, Candidate, candidates, of_estimate, trainings
from calculon.advise.fixes import hint
from calculon.advise.infeasibility import InfeasibilityReport, infeasibility_report, why_none
from calculon.advise.space_fixes import BEST
from calculon.advise.waterfall import Waterfall, waterfall
from calculon.base.display import Tabular, columns_of, drawn
from calculon.base.errors import Infeasible, SpecError
from calculon.base.frozen import dataclass
from calculon.campaign.assumed import assumed_defaults
from calculon.declarations import catalog
from calculon.declarations.axes import STATED_DEGREES
from calculon.declarations.execution import Execution
from calculon.declarations.named_values import CORRECTED
from calculon.declarations.presets import Preset
from calculon.declarations.quantised_weights import precisions_of
from calculon.declarations.result_records import QUESTION
from calculon.declarations.result_selection import PLANS
from calculon.declarations.spellings.precisions import precision
from calculon.estimate.comparison_confidence import Order, orders
from calculon.estimate.estimate import Estimate, estimate
from calculon.estimate.evaluate import evaluate
from calculon.estimate.question import question
from calculon.plan.mesh import DEGREES
from calculon.plan.plan import Plan
from calculon.search.best_first import Seen
from calculon.search.conditions import Condition
from calculon.search.driver import run
from calculon.search.override_checks import COMMAND_LINE
from calculon.search.ranking import Best, BestOfEach, Ranking
from calculon.search.request import make_space
from calculon.search.search_result import SearchResult
from calculon.search.space import Space
from calculon.search.within_risk import search_within_risk

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from plotly.graph_objects import Figure as InteractiveFigure

    from calculon.launch.dialect import Launch
    from calculon.launch.difference import Difference

TOKENS = 1e12
"""Tokens of the training that is told where none is asked for."""


@dataclass(frozen=True)
class Count:
    """The best plan on a number of processors.

    Attributes:
        num_procs: Processors.
        best: The fastest plan that fits; None where none does.
        reason: Why none fits, in a line.
    """

    num_procs: int
    best: Candidate | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Tie:
    """Plans that cannot be distinguished from the best (see `comparison_confidence`), fastest first."""

    plans: tuple[Candidate, ...]

    @property
    def simplest(self) -> Candidate:
        """The simplest of them; the fastest of equally simple ones."""
        return min(self.plans, key=lambda one: (one.simplicity, one.time))


@dataclass(frozen=True)
class BaselinePlan:
    """A plan of one's own.

    Attributes:
        estimate: Its estimate; None where it cannot run.
        problem: Why it cannot.
        execution: The execution, where nothing but memory is too small.
        launch: The launch file that it is from.
    """

    estimate: Estimate | None
    problem: str = ""
    execution: Execution | None = None
    launch: "Launch | None" = None

    @cached_property
    def candidate(self) -> Candidate | None:
        """The plan as a candidate; None where it cannot run."""
        return None if self.estimate is None else of_estimate(self.estimate)


_ASKED = ("batch_size", "seq_length")
"""Fields that are the question, whatever a plan of one's own has."""


@dataclass(frozen=True)
class Answer(Tabular):
    """A plan and what a planner asks next.

    Attributes:
        question: What was asked.
        found: The best plan of each split and number of chunks, the best of all first: of the plans whose risk of
            running out of memory is at most that of the question, or three times that, and so on, where there is none.
        fastest: The fastest plan whatever its risk; None where it is the best.
        counts: The best plan on each number of processors that was asked for; of half and twice as many, where one was.
        mine: A plan of one's own.
        unfit: Why nothing fits, and what would fix it.
        narrower: The best plan in the precision that the released weights of the model are stored in, if the machine
            and the framework have it and nobody stated a precision; otherwise None.
    """

    question: Question
    found: SearchResult
    fastest: Candidate | None
    counts: tuple[Count, ...]
    mine: BaselinePlan | None
    unfit: InfeasibilityReport | None
    narrower: Candidate | None = None

    @cached_property
    def plans(self) -> list[Candidate]:
        """The best plan of each split and number of chunks, the best of all first."""
        return candidates(self.found) if len(self.found) else []

    @cached_property
    def best(self) -> Estimate | None:
        """The best plan; None where nothing fits."""
        return self.found[0] if len(self.found) else None

    @cached_property
    def waterfall(self) -> Waterfall | None:
        """From the plan of one's own to the best, one change at a time; None where one of them breaks a rule."""
        mine = None if self.mine is None else self.mine.execution
        if mine is None or self.best is None:
            return None
        q = self.question
        return waterfall(q.model, mine, self.best.execution, q.system)

    @cached_property
    def untried(self) -> dict[str, Any]:
        """The values of the plan of one's own that are faster than those of the best, and that no plan tried had."""
        tried = self.found.space.switches
        losses = (
            (one.fields for one in self.waterfall.steps if one.seconds > 0)
            if self.waterfall
            else ()
        )
        return {
            name: values[0]
            for fields in losses
            if "preset" not in fields
            for name, values in fields.items()
            if name not in _ASKED and name in tried and values[0] not in tried[name]
        }

    @cached_property
    def settings(self) -> "Difference | None":
        """Changes to the user's launch file that give the best plan; None without a launch file."""
        mine = self.mine
        if mine is None or mine.launch is None or mine.execution is None or self.best is None:
            return None
        from calculon.advise.launch_flags import settings_between  # only of launch files

        q = self.question
        return settings_between(mine.execution, self.best.execution, q.model, mine.launch)

    @property
    def splits(self) -> list[Candidate]:
        """The best plan of each split of the processors, the best of all first."""
        seen: dict[tuple[int, int], Candidate] = {}
        for one in self.plans:
            split = one.execution["tensor_par"], one.execution["pipeline_par"]
            seen.setdefault(split, one)
        return list(seen.values())

    @cached_property
    def tie(self) -> Tie | None:
        """The plans that are not distinguishable from the best; None where nothing fits."""
        if not self.plans:
            return None
        pairs = zip(self.plans, self.orders, strict=True)
        return Tie(tuple(one for one, order in pairs if not order.distinguishable))

    @property
    def orders(self) -> list[Order]:
        """How sure it is that the best plan is faster than each of :attr:`plans`."""
        return self.found.orders

    @cached_property
    def order_of_mine(self) -> Order | None:
        """How sure it is that the best plan is faster than that of one's own; None where one of them cannot run."""
        own = None if self.mine is None else self.mine.estimate
        if own is None or self.best is None:
            return None
        q, plans = self.question, Plan.from_records([self.best.execution, own.execution])
        found = evaluate(q.model, plans, q.system)
        return orders(q.model, q.system, plans, {name: found[name] for name in found.names})[1]

    @property
    def mfu(self) -> float | None:
        """Model FLOP utilisation of the best plan, as :attr:`calculon.Estimate.mfu`; None if nothing fits."""
        return None if self.best is None else self.best.mfu

    def table(self) -> dict[str, list[Any]]:
        """Return a row for each plan: fields, statistics, interval of the time, and figures of the whole run.

        ``role`` is ``best``, ``alternative`` (the best of another split), ``fastest`` (whatever its risk of running out
        of memory, if it is not the best), ``count`` (the best on another number of processors) or ``mine``. The run is
        of ``tokens``: 1T if none are asked for; ``days_low`` and ``days_high`` are the interval of its days.
        """
        q = self.question
        asked = dict(zip(inputs.NAMED, (q.model.name, q.system.name, q.preset.name), strict=True))
        rows = (
            {"role": role, **one.execution, **one.stats}
            | self._trainings[id(one)]["campaign"]
            | {"tokens": q.tokens or TOKENS, **asked}
            for role, one in self._roles()
        )
        return columns_of(rows, ("role", *COLUMNS, "tokens", *asked))

    def _roles(self) -> Iterator[tuple[str, Candidate]]:
        """Yield the plans of the table, each with its role."""
        for rank, split in enumerate(self.splits):
            yield "alternative" if rank else "best", split
        if self.fastest is not None:
            yield "fastest", self.fastest
        for one in self.counts:
            if one.best is not None and one.num_procs != self.question.num_procs[0]:
                yield "count", one.best
        if self.mine is not None and self.mine.candidate is not None:
            yield "mine", self.mine.candidate

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as plain data.

        Its ``plans`` are the best of all splits by rank, each as a search writes its winners.
        """
        q = self.question
        answer: dict[str, Any] = {
            QUESTION: self._specs
            | {
                "num_procs": list(q.num_procs),
                "batch_size": q.batch_size,
                "seq_size": q.model.seq_size,
                "tokens": q.tokens,
                "tokens_told": q.tokens or TOKENS,
                "risk": q.risk,
                "arithmetic": dict(q.arithmetic),
                "assumed": dict(q.assumed),
                "campaign": dict(q.campaign.document),
                "assumed_of_run": assumed_defaults(q.campaign, [q.system.name]),
            },
            "tried": self.found.counts.total,
            "feasible": self.found.counts.good,
            "fastest": None if self.fastest is None else self._told(self.fastest),
            "narrower": None if self.narrower is None else self._told(self.narrower),
            "tie": None if self.tie is None else self._tie(self.tie),
            "counts": [self._count(one) for one in self.counts],
            "unfit": None if self.unfit is None else self.unfit.to_dict(COMMAND_LINE),
        }
        if self.best is not None and self.best.belief is not None:
            answer["belief"] = self.best.belief.to_dict()
        if self.mine is not None:
            own = self.mine.candidate
            answer["mine"] = {"problem": self.mine.problem} if own is None else self._told(own)
            if self.order_of_mine is not None:
                answer["mine"]["order"] = self.order_of_mine.to_dict()
        if self.waterfall is not None:
            answer["waterfall"] = self.waterfall.to_dict()
            answer["untried"] = self.untried
        if self.settings is not None:
            answer["settings"] = self.settings.to_dict()
        known = {id(one): order for one, order in zip(self.plans, self.orders, strict=True)}
        plans = {
            str(rank): self._told(one) | {"order": known[id(one)].to_dict()}
            for rank, one in enumerate(self.splits)
        }
        return answer | {PLANS: plans}

    @cached_property
    def _specs(self) -> dict[str, Any]:
        """What every plan answers: model, system, edition and preset, with their hashes."""
        q = self.question
        return question(q.model, q.system, CORRECTED, q.preset)

    def _told(self, one: Candidate) -> dict[str, Any]:
        """Return a plan as plain data, with the training that was asked for, or that of :data:`TOKENS`."""
        return one.to_dict() | {"training": self._trainings[id(one)], QUESTION: self._specs}

    @cached_property
    def _trainings(self) -> dict[int, dict[str, Any]]:
        """The trainings by all plans that are told."""
        own = None if self.mine is None else self.mine.candidate
        counts = (one.best for one in self.counts)
        simplest = None if self.tie is None else self.tie.simplest
        maybe = (*self.splits, simplest, self.fastest, self.narrower, *counts, own)
        plans = {id(one): one for one in maybe if one is not None}
        by_tokens: dict[int, list[Candidate]] = {}
        for one in plans.values():
            by_tokens.setdefault(self._tokens_per_step(one), []).append(one)
        q = self.question
        found: dict[int, dict[str, Any]] = {}
        for each, several in by_tokens.items():
            told = trainings(several, q.campaign, q.model, q.system, q.tokens or TOKENS, each)
            found |= {id(one): row for one, row in zip(several, told, strict=True)}
        return found

    def _tokens_per_step(self, one: Candidate) -> int:
        """Return the tokens of a step: a plan of one's own may have another batch than the question."""
        e = one.execution
        return int(e["batch_size"] * (e["seq_length"] or self.question.model.seq_size))

    def _tie(self, one: Tie) -> dict[str, Any]:
        simplest = self._told(one.simplest)
        return {"plans": len(one.plans), "simplest": simplest}

    def _count(self, one: Count) -> dict[str, Any]:
        row: dict[str, Any] = {"num_procs": one.num_procs, "reason": one.reason}
        return row if one.best is None else row | self._told(one.best)

    @overload
    def plot(
        self, kind: str = "breakdown", *, interactive: Literal[False] = False, **options: Any
    ) -> "Figure": ...

    @overload
    def plot(
        self, kind: str = "breakdown", *, interactive: Literal[True], **options: Any
    ) -> "InteractiveFigure": ...

    def plot(
        self, kind: str = "breakdown", *, interactive: bool = False, **options: Any
    ) -> "Figure | InteractiveFigure":
        """Draw the answer.

        Args:
            kind: ``breakdown`` (default): time and memory of the best plan, and of one's own where it can run;
                ``scaling``: rate and efficiency over the numbers of processors; ``waterfall``: from one's own plan to
                the best, one change at a time.
            interactive: As the page in a browser draws it (extra ``web``): a plotly Figure. Kinds of the best plan are
                ``breakdown`` of time, ``memory``, ``traffic``, ``schedule``, ``operators`` and ``roofline``; beside
                ``scaling`` and ``waterfall`` there are ``heatmap``: the best plan of each tensor and pipeline degree;
                ``pareto``: plans by two statistics; ``capacity``: the time of the best plan over the memory of a
                processor. The last two search again.
            **options: Of interactive kinds: ``microbatches`` of a ``schedule``, statistics ``x`` and ``y`` of
                ``pareto``.

        Raises:
            SpecError: For another kind, and where the library is missing.
            Infeasible: When there is no plan to draw, or no plan of one's own.
        """
        return drawn(self, kind, interactive=interactive, **options)

    def __repr__(self) -> str:
        q = self.question
        asked = f"{q.model.name} on {q.num_procs[0]:,} x {q.system.name}, {q.preset.name}"
        return (
            f"<Answer for {asked}: {self.best!r}>"
            if self.best
            else f"<Answer for {asked}: nothing fits>"
        )


def answer(
    question: Question, plans: Callable[[Question, int], SearchResult] | None = None
) -> Answer:
    """Answer a question; by default the `plans` on a number of processors are searched for (:func:`plans_on`)."""
    first, of_count = question.num_procs[0], plans or plans_on
    results = {
        count: of_count(question, count) for count in dict.fromkeys((first, *question.counts))
    }
    found = results[first]
    best = found[0].execution if len(found) else None
    return Answer(
        question=question,
        found=found,
        fastest=(
            fastest_plan(question, found.space, candidates(_first(found))[0])
            if len(found)
            else None
        ),
        counts=tuple(_best_on(results[count]) for count in question.counts),
        mine=own_plan(question),
        unfit=(
            None
            if len(found)
            else infeasibility_report(found.space, found.counts, risk=question.risk)
        ),
        narrower=None if best is None else narrower_plan(question, best),
    )


def space_of(question: Question, num_procs: int) -> Space:
    """Return what is searched on a number of processors."""
    return make_space(
        question.model,
        question.system,
        num_procs,
        question.batch_size,
        question.datatype,
        fix=question.fixed,
        add=question.add,
        edition=CORRECTED,
        preset=question.framework,
    )


def plans_on(question: Question, num_procs: int, seen: Seen | None = None) -> SearchResult:
    """Find the best plan of each split and number of chunks; `seen` is told how many more executions were looked at."""
    space = space_of(question, num_procs)
    stride = space.strides["pipeline_interleaving"]
    return _within_risk(question, space, lambda where: BestOfEach(BEST, stride, where), seen)


def best_on(question: Question, num_procs: int) -> SearchResult:
    """Find the best plan alone."""
    space = space_of(question, num_procs)
    return _within_risk(question, space, lambda where: Best(BEST, 1, where))


def _within_risk(
    question: Question,
    space: Space,
    ranking: Callable[[Condition | None], Ranking],
    seen: Seen | None = None,
) -> SearchResult:
    """Search the plans within the risk of a question (:func:`~calculon.search.within_risk.search_within_risk`)."""

    def search(where: str | None) -> SearchResult:
        condition = None if where is None else Condition.parse(where)
        return run(space, ranking(condition), seen=seen)

    return search_within_risk(search, question.risk)


def _best_on(found: SearchResult) -> Count:
    procs = found.space.num_procs
    if len(found):
        return Count(procs, candidates(_first(found))[0])
    return Count(procs, None, why_none(found.counts))


def narrower_plan(question: Question, best: Execution) -> Candidate | None:
    """Return the best plan in the precision of the released weights; None without one, and where it cannot run."""
    q = question
    if "--dtype" not in q.assumed or q.model.origin is None:
        return None
    for word in precisions_of(q.model.origin.released):
        changes: dict[str, Any] = {**precision(word)}
        if changes["fp8_recipe"] in q.system.recipes and q.preset.runs(changes):
            try:
                return of_estimate(estimate(q.model, replace(best, **changes), q.system))
            except (Infeasible, SpecError):
                continue
    return None


def fastest_plan(question: Question, space: Space, best: Candidate) -> Candidate | None:
    """Return the fastest plan of a space whatever its risk; None if it is as fast as the best plan.

    Args:
        question, space: The question, and its plans.
        best: The best plan with an acceptable risk.
    """
    if question.risk >= 1:
        return None
    fastest, name = candidates(run(space, Best(BEST, 1)))[0], BEST.statistic.name
    return None if fastest.stats[name] == best.stats[name] else fastest


def _first(found: SearchResult) -> SearchResult:
    """Return the best result alone."""
    return SearchResult(
        found.space, found.objectives, found.counts, found.numbers[:1], found.scores[:, :1]
    )


def own_plan(question: Question, *, hints: bool = True) -> BaselinePlan | None:
    """Estimate a plan of one's own on the same processors, with the same batch, where it states no others.

    Args:
        hints: The problem of a plan that cannot run names what would make it run, which takes longer than the estimate.

    Raises:
        SpecError: Where it breaks a rule, or has fields that mean nothing.
    """
    if question.mine is None:
        return None
    stated = question.mine.fields
    if stated is None and (launch := question.mine.launch) is not None:
        fields = {**launch.execution, **_own_length(question, launch)}
        execution = inputs.execution(fields, edition=CORRECTED)
        return replace(_estimated(question, execution, hints), launch=launch)
    if stated is None:
        _, raw, _ = catalog.read("execution", question.mine.file)
        if not isinstance(raw, Mapping) or "edition" in raw or "preset" in raw:
            execution = inputs.execution(
                question.mine.file, edition=CORRECTED, system=question.system
            )
            return _estimated(question, execution, hints)
        stated = raw
    fields = own_fields(question, stated)
    layouts = () if "pp_layout" in stated else own_layouts(question.preset)
    for layout in layouts:
        try:
            execution = _execution(question, {**fields, "pp_layout": layout})
            return _estimated(question, execution, hints)
        except SpecError:
            continue  # stages that this layout does not make of so many blocks
    return _estimated(question, _execution(question, fields), hints)


def own_fields(question: Question, stated: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that a plan of one's own states, with those that it need not say."""
    return {**_usual(question, stated), **stated}


def _own_length(question: Question, launch: "Launch") -> dict[str, int]:
    """Return the sequences of a launch file as an execution says those of its model."""
    same = launch.execution.get("seq_length") == question.model.seq_size
    return {"seq_length": 0} if same else {}


def _usual(question: Question, stated: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a plan of one's own need not say: the question, degrees of 1, and a pipeline over what is left."""
    procs = question.num_procs[0]
    rest = procs
    for name in (one for one in DEGREES if one != "pipeline_par"):
        degree = stated.get(name, 1)
        rest = rest // degree if isinstance(degree, int) and degree > 0 else rest
    usual = dict.fromkeys((*STATED_DEGREES, "microbatch_size"), 1)
    if "data_par" in stated:
        usual["pipeline_par"] = max(1, rest)
    return {
        "num_procs": procs,
        **usual,
        "batch_size": question.batch_size,
        **question.arithmetic,
    }


def own_layouts(preset: Preset) -> tuple[str, ...]:
    """Return the layouts of stages that a plan of one's own may have that states none, the usual ones first."""
    uneven = (one.pp_layout for one in preset.uneven)
    return tuple(dict.fromkeys((*(preset.tried("pp_layout") or ()), *uneven)))


def _execution(question: Question, fields: Mapping[str, Any]) -> Execution:
    return inputs.execution(fields, edition=CORRECTED, preset=question.framework)


def _estimated(question: Question, execution: Execution, hints: bool) -> BaselinePlan:
    try:
        return BaselinePlan(
            estimate(question.model, execution, question.system), execution=execution
        )
    except Infeasible as error:
        legal = execution if error.tier else None
        would = hint(question.model, execution, question.system) if hints else ""
        text = f"{error}. {would[0].upper()}{would[1:]}." if would else f"{error}."
        return BaselinePlan(None, text, legal)
