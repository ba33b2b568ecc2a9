"""Search for a :class:`~calculon.advise.runs.fleet.FleetAnswer`: one search for each machine and count."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

from calculon import inputs
from calculon.advise.answer import best_on
from calculon.advise.ask import Question, ask, most_processors
from calculon.advise.candidate import Candidate, candidates, whole_runs_of
from calculon.advise.infeasibility import why_none
from calculon.advise.runs.fleet import DEADLINE, FleetAnswer, Point, objective_of
from calculon.architecture.parameters import active_count
from calculon.base.errors import Problem, SpecError
from calculon.base.frozen import dataclass
from calculon.campaign.limits import LIMITED
from calculon.campaign.read import read_campaign
from calculon.campaign.record import DAY, Campaign
from calculon.campaign.run_columns import tokens_of_run
from calculon.campaign.whole_run import WholeRun, processors_of_node
from calculon.declarations.model import Model
from calculon.declarations.usual_batch import usual_batch
from calculon.hardware.system import System
from calculon.inputs import Source
from calculon.search.cost_cache import CostCache
from calculon.search.training_runs import TrainingRuns

ANY = "any"
"""Value of ``num_procs`` that leaves counts open: all that could meet the deadline."""

PROBE = 1024
"""Number of processors from which the count for a deadline is estimated."""

SLACK = 0.7
"""Smallest share of that count that is tried: fewer processors may be more efficient."""

BEYOND = 4
"""Multiple of the smallest count in time (or of the fastest count) up to which more processors are tried."""

WIDE = 200_000
"""Number of plans from which on a search takes many seconds."""

BEYOND_WIDE = 2
"""Multiple used instead for such wide searches, which also skip counts near the best."""

QUARTERS = 4
"""Number of parts into which the steps next to the best count are divided, for a closer look."""

FURTHER = 4
"""Number of larger counts tried if none of the requested ones meets the deadline."""


@dataclass(frozen=True)
class FleetQuestion:
    """Fleets to compare.

    Attributes:
        questions: One per machine, with the counts to try.
        campaign: Requested run.
        objective: Figure to minimize.
        open_counts: Whether counts are left open: `questions` then have the counts at which the search starts.
    """

    questions: tuple[Question, ...]
    campaign: Campaign
    objective: str
    open_counts: bool


OBJECTIVE = "usd"
"""Objective that ranks fleets if none is stated."""


def usual_objective(num_procs: object, systems: int, campaign: Campaign) -> str | None:
    """Return the objective if none is stated; None to plan one machine in detail, without limits.

    Args:
        num_procs: Processor counts, or :data:`ANY`.
        systems: Number of machines.
        campaign: The run, which may state limits.
    """
    limited = any(getattr(campaign, name) is not None for name in LIMITED)
    return OBJECTIVE if limited or systems > 1 or num_procs == ANY else None


def ask_fleet(
    model: Source | Model,
    num_procs: int | str | Sequence[int],
    system: Source | System | Sequence[Source | System],
    *,
    campaign: Campaign,
    objective: str,
    **words: Any,
) -> FleetQuestion:
    """Read a question about fleets.

    Args:
        num_procs: Processor counts, or :data:`ANY`.
        system: Machines; names may be joined by commas.
        campaign: Run without phases or ramps; its tokens, deadline and budgets.
        objective: One of :data:`~calculon.advise.runs.fleet.OBJECTIVES`.
        **words: Further arguments of :func:`~calculon.advise.planning.plan`.

    Raises:
        SpecError: For malformed input, for a run with phases or ramps, and for open counts without a deadline.
        Infeasible: For more processors than a machine connects.
    """
    figure = objective_of(objective)
    if words.pop("mine", None) is not None:
        hint = "compare it with a plan on one count of one system"
        raise SpecError("plan", Problem("mine", "no baseline plan with an objective", "one", hint))
    if (tokens := words.pop("tokens", None)) is not None:
        campaign = read_campaign(campaign, {"tokens": tokens})
    opened = num_procs == ANY
    if opened and campaign.deadline is None:
        hint = "add --deadline 60d, or state counts such as 512-8192"
        raise SpecError("plan", Problem("num_procs", f"a deadline with {ANY}", "none", hint))
    asked: list[Question] = []
    for machine in _machines(system):
        counts = min(PROBE, most_processors(inputs.system(machine))) if opened else num_procs
        # All machines train with the batch of the first: different batches would be different runs.
        question = ask(model, counts, machine, campaign=campaign, **words)
        asked.append(replace(question, batch_size=asked[0].batch_size) if asked else question)
    _check_known(figure, campaign, asked)
    return FleetQuestion(tuple(asked), campaign, figure, opened)


def _check_known(figure: str, campaign: Campaign, questions: Sequence[Question]) -> None:
    """Refuse an objective that is unknown on all machines; dollars have a replacement.

    Raises:
        SpecError: With the inputs that make it known.
    """
    refused = []
    for one in questions:
        try:
            TrainingRuns(campaign, one.model, one.system, one.datatype).check_known(
                figure, "objective"
            )
            return
        except SpecError as error:
            refused.append(error)
    if figure != "usd":
        raise refused[0]


def _machines(system: Any) -> list[Any]:
    """Return the requested machines: a list, or names joined by commas."""
    # The name of an existing file may contain a comma.
    if isinstance(system, str) and "," in system and not Path(system).exists():
        names = [name.strip() for name in system.split(",") if name.strip()]
        return list(dict.fromkeys(names)) or [system]
    several = isinstance(system, Sequence) and not isinstance(system, str)
    return list(system) if several else [system]


def fleet_answer(question: FleetQuestion) -> FleetAnswer:
    """Compare fleets: one search for each machine and count.

    Raises:
        SpecError: For a run without tokens.
    """
    machines = [Machine(one, question.campaign) for one in question.questions]
    points: list[Point] = []
    for machine in machines:
        if question.open_counts:
            points += machine.ladder(question.objective)
        else:
            points += map(machine.point, machine.question.num_procs)
        machine.cache.clear()
    answer = FleetAnswer(
        tuple(one.question for one in machines),
        question.campaign,
        question.objective,
        tuple(points),
    )
    in_time = question.campaign.deadline is None or answer.in_time is not None
    further = None if in_time or answer.nearest is None else _further(machines, answer)
    tried = sum(one.tried for one in machines)
    coarse = question.open_counts and any(one.wide for one in machines)
    return replace(answer, further=further, tried=tried, coarse=coarse)


class Machine:
    """Searches on one machine.

    Args:
        question: The machine, model, framework and batch.
        campaign: The run.

    Attributes:
        tried: Number of executions searched.
        cache: Block costs that its searches share.
    """

    def __init__(self, question: Question, campaign: Campaign):
        self.question, self.campaign = question, campaign
        self.tried = 0
        self.cache = CostCache()
        self._points: dict[int, Point] = {}

    @property
    def most(self) -> int:
        """Number of processors that its networks connect."""
        return most_processors(self.question.system)

    @cached_property
    def node(self) -> int:
        """Number of processors that are added at a time."""
        return processors_of_node(self.question.system)

    def point(self, num_procs: int) -> Point:
        """Return the fastest plan on a number of processors, and its run."""
        if num_procs not in self._points:
            self._points[num_procs] = self._searched(num_procs)
        return self._points[num_procs]

    def asked(self, num_procs: int) -> Question:
        """Return the question for one count; a default batch depends on the count.

        A run with a stated number of steps has the same batch on all counts: another batch would change the run.
        """
        q = self.question
        if "--batch" not in q.assumed or self.campaign.steps is not None:
            return q
        return replace(q, batch_size=usual_batch(num_procs, q.model.seq_size))

    def _searched(self, num_procs: int) -> Point:
        q = self.asked(num_procs)
        found = best_on(q, num_procs, cache=self.cache)
        self.tried += found.counts.total
        if not len(found):
            return Point(q, num_procs, None, None, self.campaign, why_none(found.counts))
        plan, belief = candidates(found)[0], found[0].belief
        memory = "" if belief is None or belief.memory is None else belief.memory.remark
        whole = run_of(plan, q, self.campaign)
        above = () if belief is None else belief.above
        return Point(q, num_procs, plan, whole, self.campaign, memory=memory, above=above)

    @cached_property
    def needed(self) -> float:
        """Processors needed for the deadline at the efficiency of the first count that fits; infinite if none does."""
        deadline, count = (self.campaign.deadline or 0.0) / DAY, self.question.num_procs[0]
        while count <= self.most:
            days = self.point(count).figures["days"]
            if days is not None:
                return count * days / deadline if deadline else math.inf
            count *= 2
        return math.inf

    @property
    def wide(self) -> bool:
        """True if a search has so many plans that it takes long, as for mixtures of experts."""
        return self.tried > WIDE * max(1, len(self._points))

    def ladder(self, objective: str) -> list[Point]:
        """Return points at halves and doubles that could meet the deadline, and some near the best of them.

        They end at a multiple of the first count that meets the deadline, or else of the fastest count. Models with
        wide searches get fewer points.
        """
        most = self.most
        steps = list(halves_and_doubles(self.node, min(SLACK * self.needed, most / BEYOND), most))
        points: list[Point] = []
        for count in steps or [most]:
            points.append(self.point(count))
            known = [one for one in points if one.plan is not None]
            in_time = (one for one in known if one.keeps(DEADLINE))
            fastest = min(known, key=lambda one: one.figures["days"] or math.inf, default=None)
            first = next(in_time, fastest)
            beyond = BEYOND_WIDE if self.wide else BEYOND
            if first is not None and count >= beyond * first.num_procs:
                break
        best = FleetAnswer((self.question,), self.campaign, objective, tuple(points)).nearest
        if best is None or self.wide:
            return points
        places = [one.num_procs for one in points]
        between = counts_near(places, best.num_procs, self.node)
        return sorted((*points, *map(self.point, between)), key=lambda one: one.num_procs)


def run_of(plan: Candidate, question: Question, campaign: Campaign) -> WholeRun:
    """Return the whole run of a plan.

    Raises:
        SpecError: If the campaign does not state its length.
    """
    parameters = float(active_count(question.model))
    tokens = tokens_of_run(campaign, parameters, question.tokens_per_step)
    lengths = tokens, question.tokens_per_step
    return whole_runs_of([plan], campaign, question.model, question.system, *lengths)


def halves_and_doubles(node: int, least: float, most: int) -> Iterator[int]:
    """Yield a node times powers of two, and 1.5 times these, in ascending order.

    >>> list(halves_and_doubles(8, 100, 512))
    [128, 192, 256, 384, 512]
    """
    size = node
    while size <= most:
        for count in (size, size * 3 // 2):
            if least <= count <= most and count % node == 0:
                yield count
        size *= 2


def counts_near(counts: Sequence[int], best: int, node: int) -> list[int]:
    """Return multiples of a node between the best count and its neighbors: quarters of each step.

    >>> counts_near([1024, 1536, 2048], 1536, 8)
    [1152, 1280, 1408, 1664, 1792, 1920]
    """
    found = []
    for low, high in pairwise(sorted(counts)):
        if best in (low, high):
            parts = (low + (high - low) * i / QUARTERS for i in range(1, QUARTERS))
            found += [round(one / node) * node for one in parts]
    return [one for one in dict.fromkeys(found) if one not in counts]


def _further(machines: Iterable[Machine], answer: FleetAnswer) -> Point | None:
    """Return a larger count, on the machine nearest to its deadline, that meets it."""
    nearest = min(answer.ranked, key=lambda one: one.figures["days"] or math.inf)
    machine = next(one for one in machines if one.question.system is nearest.system)
    days, deadline = nearest.figures["days"] or 0.0, (machine.campaign.deadline or 0.0) / DAY
    if not deadline:
        return None
    # Perfect scaling: no smaller count meets the deadline. The cap keeps a tiny deadline from
    # overflowing.
    least = nearest.num_procs * min(days / deadline, 1e9)
    steps = halves_and_doubles(machine.node, max(least, nearest.num_procs + 1), machine.most)
    for count in islice(steps, FURTHER):
        if (result := machine.point(count)).plan and result.keeps(DEADLINE):
            return result
    return None
