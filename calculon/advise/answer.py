"""Result of a plan question: the best plan, alternatives, other processor counts, and the user's own plan."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal, overload

from calculon import inputs
from calculon.advise.ask import Question
from calculon.advise.candidate import COLUMNS, Candidate, candidate_of, candidates, trainings
from calculon.advise.fixes import hint
from calculon.advise.infeasibility import InfeasibilityReport, infeasibility_report, why_none
from calculon.advise.space_fixes import BEST
from calculon.advise.waterfall import Waterfall, waterfall
from calculon.base.display import WithMfu, columns_of, draw_result
from calculon.base.errors import Infeasible, SpecError
from calculon.base.frozen import dataclass
from calculon.campaign.assumed import assumed_defaults
from calculon.declarations import catalog
from calculon.declarations.axes import STATED_DEGREES
from calculon.declarations.execution import Execution
from calculon.declarations.named_values import CORRECTED
from calculon.declarations.presets import Preset
from calculon.declarations.quantized_weights import precisions_of
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
from calculon.search.cost_cache import CostCache
from calculon.search.driver import run
from calculon.search.override_checks import COMMAND_LINE
from calculon.search.ranking import Best, BestOfEach, Ranking, Together
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
"""Tokens of the training run reported if the question states none."""


@dataclass(frozen=True)
class CountResult:
    """Best plan on a number of processors.

    Attributes:
        num_procs: Number of processors.
        best: Fastest plan that fits; None if none fits.
        reason: One-line reason why none fits.
    """

    num_procs: int
    best: Candidate | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Tie:
    """Plans that measurements cannot distinguish from the best, fastest first (:class:`Order`)."""

    plans: tuple[Candidate, ...]

    @property
    def simplest(self) -> Candidate:
        """Simplest of the plans; the fastest of equally simple ones."""
        return min(self.plans, key=lambda one: (one.simplicity, one.time))


@dataclass(frozen=True)
class BaselinePlan:
    """The user's own plan, which is compared with the best one.

    Attributes:
        estimate: Estimate of the plan; None if it cannot run.
        problem: Reason why it cannot run.
        execution: Execution; None if it breaks a rule other than a memory limit.
        launch: Launch file that the plan was read from.
    """

    estimate: Estimate | None
    problem: str = ""
    execution: Execution | None = None
    launch: "Launch | None" = None

    @cached_property
    def candidate(self) -> Candidate | None:
        """The plan as a candidate; None if it cannot run."""
        return None if self.estimate is None else candidate_of(self.estimate)


_ASKED = ("batch_size", "seq_length")
"""Fields that belong to the question, regardless of the baseline plan."""


@dataclass(frozen=True)
class Answer(WithMfu[float | None]):
    """A plan and what a planner asks next.

    Attributes:
        question: The question.
        found: Best plan of each split and number of chunks, overall best first. Plans have at most the accepted risk of
            running out of memory; if no plan does, at most three times that risk, and so on.
        fastest: Fastest plan regardless of memory risk; None if it is the best plan.
        counts: Best plan on each requested number of processors; if there is only one, also on half and twice as many.
        mine: Baseline plan of the user.
        unfit: Infeasibility report, with fixes; None if a plan fits.
        narrower: Best plan in the precision of the model's released weights, if machine and framework support it and
            the user did not state a precision; otherwise None.
    """

    question: Question
    found: SearchResult
    fastest: Candidate | None
    counts: tuple[CountResult, ...]
    mine: BaselinePlan | None
    unfit: InfeasibilityReport | None
    narrower: Candidate | None = None

    @cached_property
    def plans(self) -> list[Candidate]:
        """Best plan of each split and number of chunks, overall best first."""
        return candidates(self.found) if len(self.found) else []

    @cached_property
    def best(self) -> Estimate | None:
        """Best plan; None if nothing fits."""
        return self.found[0] if len(self.found) else None

    @cached_property
    def waterfall(self) -> Waterfall | None:
        """Path from the baseline plan to the best plan, one change at a time; None if either breaks a rule."""
        mine = None if self.mine is None else self.mine.execution
        if mine is None or self.best is None:
            return None
        q = self.question
        return waterfall(q.model, mine, self.best.execution, q.system)

    @cached_property
    def untried(self) -> dict[str, Any]:
        """Values of the baseline plan that are faster than those in the best plan and that the search did not try."""
        # Only changes that cost time: there the value of the baseline plan is the better one.
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
        from calculon.advise.launch_flags import settings_between  # needed only for launch files

        q = self.question
        return settings_between(mine.execution, self.best.execution, q.model, mine.launch)

    @property
    def splits(self) -> list[Candidate]:
        """Best plan of each tensor and pipeline degree, overall best first."""
        seen: dict[tuple[int, int], Candidate] = {}
        for one in self.plans:
            split = one.execution["tensor_par"], one.execution["pipeline_par"]
            seen.setdefault(split, one)
        return list(seen.values())

    @cached_property
    def tie(self) -> Tie | None:
        """Plans that cannot be distinguished from the best; None if nothing fits."""
        if not self.plans:
            return None
        pairs = zip(self.plans, self.orders, strict=True)
        return Tie(tuple(one for one, order in pairs if not order.distinguishable))

    @property
    def orders(self) -> list[Order]:
        """Confidence that the best plan is faster than each of :attr:`plans`."""
        return self.found.orders

    @cached_property
    def order_of_mine(self) -> Order | None:
        """Confidence that the best plan is faster than the baseline plan; None if either cannot run."""
        own = None if self.mine is None else self.mine.estimate
        if own is None or self.best is None:
            return None
        q, plans = self.question, Plan.from_records([self.best.execution, own.execution])
        found = evaluate(q.model, plans, q.system)
        return orders(q.model, q.system, plans, {name: found[name] for name in found.names})[1]

    def _statistic(self, name: str) -> float | None:
        return None if self.best is None else self.best.stats.get(name)

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

        Its ``plans`` are the best plans of all splits by rank, in the format of search winners.
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
            "fastest": None if self.fastest is None else self._as_dict(self.fastest),
            "narrower": None if self.narrower is None else self._as_dict(self.narrower),
            "tie": None if self.tie is None else self._tie(self.tie),
            "counts": [self._count(one) for one in self.counts],
            "unfit": None if self.unfit is None else self.unfit.to_dict(COMMAND_LINE),
        }
        if self.best is not None and self.best.belief is not None:
            answer["belief"] = self.best.belief.to_dict()
        if self.mine is not None:
            own = self.mine.candidate
            answer["mine"] = {"problem": self.mine.problem} if own is None else self._as_dict(own)
            if self.order_of_mine is not None:
                answer["mine"]["order"] = self.order_of_mine.to_dict()
        if self.waterfall is not None:
            answer["waterfall"] = self.waterfall.to_dict()
            answer["untried"] = self.untried
        if self.settings is not None:
            answer["settings"] = self.settings.to_dict()
        # Candidates hold dictionaries and are not hashable: their identity is the key.
        known = {id(one): order for one, order in zip(self.plans, self.orders, strict=True)}
        plans = {
            str(rank): self._as_dict(one) | {"order": known[id(one)].to_dict()}
            for rank, one in enumerate(self.splits)
        }
        return answer | {PLANS: plans}

    @cached_property
    def _specs(self) -> dict[str, Any]:
        """Common data of all plans: model, system, edition and preset, with their hashes."""
        q = self.question
        return question(q.model, q.system, CORRECTED, q.preset)

    def _as_dict(self, one: Candidate) -> dict[str, Any]:
        """Return a plan as plain data, with the requested training run, or one of :data:`TOKENS` tokens."""
        return one.to_dict() | {"training": self._trainings[id(one)], QUESTION: self._specs}

    @cached_property
    def _trainings(self) -> dict[int, dict[str, Any]]:
        """Training runs of all reported plans, by the id of the candidate."""
        own = None if self.mine is None else self.mine.candidate
        counts = (one.best for one in self.counts)
        simplest = None if self.tie is None else self.tie.simplest
        maybe = (*self.splits, simplest, self.fastest, self.narrower, *counts, own)
        plans = {id(one): one for one in maybe if one is not None}
        # Plans with equal tokens per step are evaluated together, as columns of one table.
        by_tokens: dict[int, list[Candidate]] = {}
        for one in plans.values():
            by_tokens.setdefault(self._tokens_per_step(one), []).append(one)
        q = self.question
        result: dict[int, dict[str, Any]] = {}
        for each, several in by_tokens.items():
            rows = trainings(several, q.campaign, q.model, q.system, q.tokens or TOKENS, each)
            result |= {id(one): row for one, row in zip(several, rows, strict=True)}
        return result

    def _tokens_per_step(self, one: Candidate) -> int:
        """Return the tokens of a step; the batch of the baseline plan may differ from the question."""
        e = one.execution
        return int(e["batch_size"] * (e["seq_length"] or self.question.model.seq_size))

    def _tie(self, one: Tie) -> dict[str, Any]:
        simplest = self._as_dict(one.simplest)
        return {"plans": len(one.plans), "simplest": simplest}

    def _count(self, one: CountResult) -> dict[str, Any]:
        row: dict[str, Any] = {"num_procs": one.num_procs, "reason": one.reason}
        return row if one.best is None else row | self._as_dict(one.best)

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
            kind: ``breakdown`` (default): time and memory of the best plan, and of the baseline plan if it can run;
                ``scaling``: throughput and efficiency over the number of processors; ``waterfall``: from the baseline
                plan to the best one, one change at a time.
            interactive: Draw it like the web page (extra ``web``): a plotly Figure. Kinds for the best plan are
                ``breakdown`` of time, ``memory``, ``traffic``, ``schedule``, ``operators`` and ``roofline``. In
                addition to ``scaling`` and ``waterfall`` there are ``heatmap`` (the best plan of each tensor and
                pipeline degree), ``pareto`` (plans by two statistics) and ``capacity`` (time of the best plan over the
                memory per processor). The last two search again.
            **options: For interactive kinds: ``microbatches`` of a ``schedule``, statistics ``x`` and ``y`` of
                ``pareto``.

        Raises:
            SpecError: For an unknown kind, and if the library is missing.
            Infeasible: If there is no plan to draw, or no baseline plan.
        """
        return draw_result(self, kind, interactive=interactive, **options)

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
    """Answer a question; `plans` defaults to a search on each number of processors.

    The default is :func:`plans_on` for the first number, and :func:`best_on` for the others.
    """
    mine = baseline_plan(question)  # its errors end the answer before the search
    first, cache = question.num_procs[0], CostCache()
    # The smallest count needs nearly all blocks of the others.
    results = {}
    for count in sorted({first, *question.counts}):
        find = plans_on if count == first else best_on
        results[count] = (plans or partial(find, cache=cache))(question, count)
    found = results[first]
    best = found[0].execution if len(found) else None
    return Answer(
        question=question,
        found=found,
        fastest=_riskier(found),
        counts=tuple(_best_on(results[count]) for count in question.counts),
        mine=mine,
        unfit=(
            None
            if len(found)
            else infeasibility_report(found.space, found.counts, risk=question.risk)
        ),
        narrower=None if best is None else narrower_plan(question, best),
    )


def space_of(question: Question, num_procs: int) -> Space:
    """Return the search space on a number of processors."""
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


def plans_on(
    question: Question, num_procs: int, seen: Seen | None = None, cache: CostCache | None = None
) -> SearchResult:
    """Find the best plan of each split and number of chunks.

    Args:
        seen: Receives the number of newly visited executions.
        cache: Known costs of the model on the system; updated in place.
    """
    space = space_of(question, num_procs)
    # Executions are numbered with splits and chunks as the leading digits: dividing a number by
    # this stride identifies both.
    stride, of_all = space.strides["pipeline_interleaving"], Best(BEST, 1)

    def ranking(where: Condition | None) -> Ranking:
        each = BestOfEach(BEST, stride, where)
        return each if where is None else Together(each, of_all)

    found = _within_risk(question, space, ranking, seen, cache)
    _, best = of_all.ranked()
    return replace(found, riskier=int(best[0])) if len(best) and len(found) else found


def best_on(question: Question, num_procs: int, *, cache: CostCache | None = None) -> SearchResult:
    """Find the single best plan; `cache` as in :func:`plans_on`."""
    space = space_of(question, num_procs)
    return _within_risk(question, space, lambda where: Best(BEST, 1, where), cache=cache)


def _within_risk(
    question: Question,
    space: Space,
    ranking: Callable[[Condition | None], Ranking],
    seen: Seen | None = None,
    cache: CostCache | None = None,
) -> SearchResult:
    """Search plans within the accepted risk (:func:`~calculon.search.within_risk.search_within_risk`)."""

    def search(where: str | None) -> SearchResult:
        condition = None if where is None else Condition.parse(where)
        return run(space, ranking(condition), seen=seen, cache=cache)

    return search_within_risk(search, question.risk)


def _best_on(result: SearchResult) -> CountResult:
    procs = result.space.num_procs
    if len(result):
        return CountResult(procs, candidates(result)[0])
    return CountResult(procs, None, why_none(result.counts))


def narrower_plan(question: Question, best: Execution) -> Candidate | None:
    """Return the best plan in the precision of the released weights; None if there is none or it cannot run."""
    q = question
    # A stated precision is a decision; only the default is worth questioning.
    if "--dtype" not in q.assumed or q.model.origin is None:
        return None
    for word in precisions_of(q.model.origin.released):
        changes: dict[str, Any] = {**precision(word)}
        if changes["fp8_recipe"] in q.system.recipes and q.preset.runs(changes):
            try:
                return candidate_of(estimate(q.model, replace(best, **changes), q.system))
            except (Infeasible, SpecError):
                continue
    return None


def _riskier(found: SearchResult) -> Candidate | None:
    """Return the fastest plan regardless of memory risk; None if the best plan is as fast."""
    fastest = found.best_of_all
    if fastest is None or fastest.stats[BEST.statistic.name] == BEST.value(found.scores[0][0]):
        return None
    return candidate_of(fastest)


def baseline_plan(question: Question, *, hints: bool = True) -> BaselinePlan | None:
    """Estimate the baseline plan; it defaults to the processors and batch of the question.

    Args:
        hints: Whether the problem of a plan that cannot run suggests changes, which takes longer than the estimate.

    Raises:
        SpecError: If the plan breaks a rule or has malformed fields.
    """
    if question.mine is None:
        return None
    stated = question.mine.fields
    if stated is None and (launch := question.mine.launch) is not None:
        fields = {**launch.execution, **_launch_length(question, launch)}
        try:
            execution = inputs.execution(fields, edition=CORRECTED)
            return replace(_estimated(question, execution, hints), launch=launch)
        except SpecError as error:
            raise SpecError(question.mine.file, error.problems) from None
    if stated is None:
        _, raw, _ = catalog.read("execution", question.mine.file)
        if not isinstance(raw, Mapping) or "edition" in raw or "preset" in raw:
            execution = inputs.execution(
                question.mine.file, edition=CORRECTED, system=question.system
            )
            return _estimated(question, execution, hints)
        stated = raw
    fields = baseline_fields(question, stated)
    layouts = () if "pp_layout" in stated else baseline_layouts(question.preset)
    for layout in layouts:
        try:
            execution = _execution(question, {**fields, "pp_layout": layout})
            return _estimated(question, execution, hints)
        except SpecError:
            continue  # this layout does not divide these blocks into stages
    return _estimated(question, _execution(question, fields), hints)


def baseline_fields(question: Question, stated: Mapping[str, Any]) -> dict[str, Any]:
    """Return the stated fields of the baseline plan, completed with implied fields."""
    return {**_implied_fields(question, stated), **stated}


def _launch_length(question: Question, launch: "Launch") -> dict[str, int]:
    """Return the sequence length of a launch file; 0 (the model's) if it equals the length of the model."""
    same = launch.execution.get("seq_length") == question.model.seq_size
    return {"seq_length": 0} if same else {}


def _implied_fields(question: Question, stated: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields that a baseline plan may omit: the question, degrees of 1, and a pipeline over the rest."""
    procs = question.num_procs[0]
    # The pipeline takes the ranks that the other degrees leave, if the plan states its replicas.
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


def baseline_layouts(preset: Preset) -> tuple[str, ...]:
    """Return stage layouts to try for a baseline plan that states none, the usual ones first."""
    uneven = (one.pp_layout for one in preset.uneven)
    return tuple(dict.fromkeys((*(preset.tried("pp_layout") or ()), *uneven)))


def _execution(question: Question, fields: Mapping[str, Any]) -> Execution:
    return inputs.execution(
        fields, edition=CORRECTED, preset=question.framework, model=question.model
    )


def _estimated(question: Question, execution: Execution, hints: bool) -> BaselinePlan:
    try:
        return BaselinePlan(
            estimate(question.model, execution, question.system), execution=execution
        )
    except Infeasible as error:
        # Only memory may be insufficient: a waterfall can start from such a plan.
        legal = execution if error.tier else None
        would = hint(question.model, execution, question.system) if hints else ""
        text = f"{error}. {would[0].upper()}{would[1:]}." if would else f"{error}."
        return BaselinePlan(None, text, legal)
