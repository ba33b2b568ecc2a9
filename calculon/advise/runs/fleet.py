"""Comparison of fleets ("which machine, how many processors"): whole runs of the best plans, with their limits."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from calculon.advise.answer import Answer, answer, space_of
from calculon.advise.ask import Question
from calculon.advise.candidate import COLUMNS, Candidate, candidates, price_as_dict
from calculon.advise.runs.run_details import carbon_details
from calculon.advise.space_fixes import BEST
from calculon.base.display import WithMfu, columns_of, draw_result
from calculon.base.errors import Problem, SpecError, nearest
from calculon.base.frozen import dataclass
from calculon.base.record_arrays import only_values
from calculon.base.records import columns
from calculon.base.units import KILO, Array, scaled
from calculon.campaign.assumed import assumed_defaults
from calculon.campaign.limits import LIMITED, Limit, limits
from calculon.campaign.prices import price_range
from calculon.campaign.record import Campaign
from calculon.campaign.whole_run import WholeRun
from calculon.declarations.fields import spec_fields
from calculon.declarations.named_values import CORRECTED
from calculon.declarations.presets import Preset
from calculon.declarations.result_records import QUESTION
from calculon.declarations.result_selection import PLANS
from calculon.declarations.run_figures import DAYS_BETWEEN, CampaignFigures
from calculon.declarations.statistics import BOUNDS, FITS
from calculon.declarations.usual_batch import (
    MAX_PER_PROCESSOR,
    TOKENS_PER_BATCH,
    TOKENS_PER_PROCESSOR,
    odd_part,
    sequences_in_words,
)
from calculon.estimate.exceeded_runs import ExceededRun
from calculon.estimate.question import question
from calculon.hardware.system import System
from calculon.search.driver import run
from calculon.search.ranking import Best

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from plotly.graph_objects import Figure as InteractiveFigure

OBJECTIVES = ("usd", "days", "days_p90", "processor_hours", "mwh", "t_co2")
"""Figures of whole runs by which fleets are compared; smaller is better for all of them.

On a given count of a given machine, all plans have the same checkpoint size, the same failures and the same price.
Therefore, days and cost rise with the time of a step: the fastest plan on a count is its best in ``usd``, ``days``,
``days_p90`` and ``processor_hours`` (except for rounding of checkpoint intervals to whole steps, and for electricity
included in the price of owned processors). Energy rises less than time, because waiting draws less power than work:
``mwh`` and ``t_co2`` compare the fastest plans of all counts.
"""

DEADLINE = "deadline"

REPORTED = (
    "days",
    "days_p10",
    "days_p50",
    "days_p90",
    "processor_hours",
    "goodput",
    "useful_days",
    "usd",
    "mwh",
    "t_co2",
    "spare_nodes",
)
"""Figures of a run that every row reports."""


@dataclass(frozen=True)
class Point:
    """Fastest plan on a number of processors of a machine, and its whole run.

    Attributes:
        question: Machine, and the model to train.
        num_procs: Number of processors.
        plan: Fastest plan; None if none fits.
        whole: Whole run of the plan.
        campaign: Requested run.
        reason: Reason why no plan fits.
        memory: Risk of running out of memory, if no plan on this count has an acceptable risk; else empty.
        above: Fastest published runs that the plan exceeds (:mod:`calculon.estimate.exceeded_runs`).
    """

    question: Question
    num_procs: int
    plan: Candidate | None
    whole: WholeRun | None
    campaign: Campaign
    reason: str = ""
    memory: str = ""
    above: tuple[ExceededRun, ...] = ()

    @property
    def system(self) -> System:
        """Machine."""
        return self.question.system

    @cached_property
    def figures(self) -> Mapping[str, float | None]:
        """Figures of the run by name; None for unknown ones, such as the price, and if no plan fits."""
        if self.whole is None:
            return dict.fromkeys((one.name for one in columns(CampaignFigures)), None)
        return only_values(self.whole.figures())

    @cached_property
    def days_between(self) -> tuple[float, float] | None:
        """Prediction interval of the days, scaled from the interval of a step."""
        days = self.figures["days"]
        if self.plan is None or days is None:
            return None
        low, high = (self.plan.stats.get(name) for name in BOUNDS)
        if low is None or high is None:
            return None
        return days * low / self.plan.time, days * high / self.plan.time

    @cached_property
    def limits(self) -> tuple[Limit, ...]:
        """Limits that can be checked: a budget needs a price or a power."""
        if self.plan is None:
            return ()
        # Limits on unknown figures are removed before the check and reported as unchecked.
        unknown: dict[str, Any] = {
            name: None for name, one in LIMITED.items() if self.figures[one] is None
        }
        return limits(replace(self.campaign, **unknown), self.figures)

    @property
    def answer(self) -> Answer:
        """Complete answer for its plan: alternatives, memory, half and twice the processors."""
        return answer(replace(self.question, num_procs=(self.num_procs,)))

    @property
    def unchecked(self) -> tuple[str, ...]:
        """Limits on figures that are unknown."""
        return tuple(
            name
            for name, one in LIMITED.items()
            if getattr(self.campaign, name) is not None and self.figures[one] is None
        )

    @property
    def meets(self) -> bool:
        """True if it meets all limits."""
        return self.plan is not None and all(map(self.keeps, LIMITED))

    def keeps(self, name: str) -> bool:
        """Return True if it meets a limit, or if there is no limit of this name."""
        missed = {one.field for one in self.limits if not one.met}
        return name not in missed and name not in self.unchecked

    @property
    def excess(self) -> float:
        """Sum of the excess over its limits, each relative to the limit."""
        return sum(max(0.0, one.over / one.most) if one.most else 1.0 for one in self.limits)

    @property
    def row(self) -> dict[str, Any]:
        """Fields and statistics of its plan, and figures of its run."""
        plan: dict[str, Any] = (
            {} if self.plan is None else {**self.plan.execution, **self.plan.stats}
        )
        return {
            **plan,
            **self.figures,
            **dict(zip(DAYS_BETWEEN, self.days_between or (None, None), strict=True)),
            "system": self.system.name,
            "num_procs": self.num_procs,
            "tokens_per_step": self.question.tokens_per_step,
            "meets": self.meets,
            "reason": self.reason,
            "memory_remark": self.memory,
        }

    def to_dict(self) -> dict[str, Any]:
        """Return the point as plain data."""
        row: dict[str, Any] = {
            "system": self.system.name,
            "num_procs": self.num_procs,
            "tokens_per_step": self.question.tokens_per_step,
        }
        if self.plan is None:
            return row | {"reason": self.reason}
        low, high = self.days_between or (None, None)
        return (
            row
            | {name: self.figures[name] for name in REPORTED}
            | {
                "days_low": low,
                "days_high": high,
                FITS: self.plan.stats[FITS],
                "memory_remark": self.memory,
                "above": [asdict(run) for run in self.above],
                "meets": self.meets,
                "limits": [one.to_dict() for one in self.limits],
                "unchecked": list(self.unchecked),
                "execution": dict(self.plan.execution),
            }
        )


@dataclass(frozen=True)
class FleetAnswer(WithMfu[Array]):
    """Machines and numbers of processors for a run, compared.

    Attributes:
        questions: One question per machine: model, framework, batch.
        campaign: Run, with its limits.
        objective: Figure to minimize.
        points: Best plan on each machine and count that was tried.
        further: Larger count that meets the deadline, if none of the requested counts does.
        tried: Number of searched executions.
        coarse: Whether the search near the best count was skipped, because each search takes long.
    """

    questions: tuple[Question, ...]
    campaign: Campaign
    objective: str
    points: tuple[Point, ...]
    further: Point | None = None
    tried: int = 0
    coarse: bool = False

    @cached_property
    def ranked_by(self) -> str:
        """Figure by which points are compared; without a price, processor-hours replace dollars.

        Processor-hours of different machines are not comparable: several machines without any price are compared by
        days.
        """
        if any(one.figures[self.objective] is not None for one in self.points):
            return self.objective
        if self.objective == "usd":
            return "days" if len(self.questions) > 1 else "processor_hours"
        return "days"

    @cached_property
    def ranked(self) -> tuple[Point, ...]:
        """Points with a plan: first those that meet all limits, best first; then by excess over the limits.

        Points in which the compared figure is unknown come after all others that meet the limits; points with a limit
        that cannot be checked come last.
        """
        return tuple(sorted((one for one in self.points if one.plan is not None), key=self._key))

    def _key(self, one: Point) -> tuple[float, ...]:
        value, days = one.figures[self.ranked_by], one.figures["days"] or 0.0
        known = (0.0, value) if value is not None else (1.0, days)
        return (float(bool(one.unchecked)), one.excess, *known, days, one.num_procs)

    @property
    def best(self) -> Point | None:
        """Best point that meets all limits; None if none does."""
        first = self.nearest
        return first if first is not None and first.meets else None

    @property
    def nearest(self) -> Point | None:
        """Best point, or the point that misses the limits by least; None if nothing fits."""
        return self.ranked[0] if self.ranked else None

    @cached_property
    def fastest(self) -> Candidate | None:
        """Fastest plan of the nearest point regardless of memory risk; None if it is the plan of the point."""
        one = self.nearest
        if one is None or one.plan is None or one.question.risk >= 1:
            return None
        space = space_of(one.question, one.num_procs)
        found = candidates(run(space, Best(BEST, 1)))[0]
        return None if found.time == one.plan.time else found

    @property
    def preset(self) -> Preset:
        """Framework of the nearest point."""
        return (self.questions[0] if self.nearest is None else self.nearest.question).preset

    @property
    def frameworks(self) -> str:
        """Framework in words, per machine if they differ."""
        words = {one.system.name: one.preset.words for one in self.questions}
        if len({*words.values()}) == 1:
            return self.preset.words
        return "; ".join(f"{name}: {text}" for name, text in words.items())

    @cached_property
    def frontier(self) -> tuple[Point, ...]:
        """Pareto front of points by days and money, fastest first.

        Money is dollars, or processor-hours of a single machine if no price is known. Points without this figure are
        excluded.
        """
        money = self.money
        known = [one for one in self.ranked if money and one.figures[money] is not None]
        known.sort(key=lambda one: (_of(one, "days"), _of(one, money), one.num_procs))
        front: list[Point] = []
        for one in known:
            # Sorted by days: a slower point is on the front only if it is cheaper than all faster
            # ones.
            if not front or _of(one, money) < _of(front[-1], money):
                front.append(one)
        return tuple(front)

    @cached_property
    def money(self) -> str:
        """Second figure of the frontier: dollars, or processor-hours of a single machine; empty if neither applies."""
        if any(one.figures["usd"] is not None for one in self.points):
            return "usd"
        return "" if len(self.questions) > 1 else "processor_hours"

    @cached_property
    def batch_size(self) -> int | None:
        """Sequences per step on all counts; None if counts differ."""
        found = {one.question.batch_size for one in self.points}
        return found.pop() if len(found) == 1 else None

    @property
    def assumed(self) -> dict[str, str]:
        """Defaults that were filled in, by the option that states them."""
        result = dict(self.questions[0].assumed)
        if "--batch" in result:
            each = f"{MAX_PER_PROCESSOR:,} to {TOKENS_PER_PROCESSOR:,} for each processor"
            own = f"{scaled(TOKENS_PER_BATCH, digits=2)} tokens, {each}"
            size = self.batch_size
            result["--batch"] = own if size is None else sequences_in_words(size)
        return result

    @property
    def uneven(self) -> tuple[int, ...]:
        """Counts with an odd factor that the batch lacks, so that some data-parallel degrees do not divide it."""
        counts = {one.num_procs: one.question.batch_size for one in self.points}
        return tuple(sorted(count for count, batch in counts.items() if batch % odd_part(count)))

    @property
    def small(self) -> tuple[int, ...]:
        """Counts with fewer tokens per processor and batch than the default batch has."""
        found = {
            one.num_procs
            for one in self.points
            if one.question.tokens_per_step < TOKENS_PER_PROCESSOR * one.num_procs
        }
        return tuple(sorted(found))

    @property
    def tokens(self) -> float | None:
        """Tokens of the run, in whole steps; None if nothing fits."""
        whole = self.nearest.whole if self.nearest is not None else None
        return None if whole is None else _only(whole.tokens)

    @property
    def in_time(self) -> Point | None:
        """Cheapest point that meets the deadline, regardless of budgets."""
        kept = [one for one in self.ranked if one.keeps(DEADLINE)]
        return min(kept, key=lambda one: self._key(one)[2:], default=None)

    @property
    def in_budget(self) -> Point | None:
        """Fastest point within the budgets."""
        budgets = [name for name in LIMITED if name != DEADLINE]
        kept = [one for one in self.ranked if all(map(one.keeps, budgets))]
        return min(kept, key=lambda one: _of(one, "days"), default=None)

    @property
    def misses(self) -> str:
        """One-line reason why nothing meets the limits, with the nearest point; empty if something does."""
        one = self.nearest
        if self.best is not None:
            return ""
        if one is None:
            return "no plan fits on any of these counts"
        over = " and ".join(limit.in_words for limit in one.limits if not limit.met)
        missed = f"misses {over}" if over else f"has no figure for {', '.join(one.unchecked)}"
        return f"nothing meets the limits; the nearest, {point_name(one)}, {missed}"

    @property
    def ways(self) -> tuple[str, ...]:
        """Points nearest to single limits, in words, if nothing meets all of them."""
        if self.best is not None:
            return ()
        asked = {one["field"] for one in self._limits}
        tried = {}
        if DEADLINE in asked:
            tried["cheapest that meets the deadline"] = self.in_time
        if asked - {DEADLINE}:
            tried["fastest within the budget"] = self.in_budget
        found = []
        for words, one in tried.items():
            if one is not None and one is not self.nearest:
                over = " and ".join(limit.in_words for limit in one.limits if not limit.met)
                found.append(f"the {words}, {point_name(one)}, misses {over}")
        if "budget_usd" in asked and self.in_budget is None and self.money == "usd":
            known = [one for one in self.ranked if one.figures["usd"] is not None]
            least = min(known, key=lambda one: _of(one, "usd"))
            words = f"the cheapest, {point_name(least)}, costs {scaled(_of(least, 'usd'), digits=2)} USD"
            found.append(f"{words}: {_of(least, 'days'):,.1f} d")
        if self.further is not None:
            days, usd = _of(self.further, "days"), self.further.figures["usd"]
            money = "" if usd is None else f", {scaled(usd, digits=2)} USD"
            found.append(
                f"{point_name(self.further)} would meet the deadline: {days:,.1f} d{money}"
            )
        return tuple(found)

    @property
    def _limits(self) -> list[dict[str, Any]]:
        """Requested limits, each in its unit."""
        declared = {one.name: one.declaration for one in spec_fields(Campaign)}
        result = []
        for name in LIMITED:
            if (most := getattr(self.campaign, name)) is not None:
                value, unit = most / declared[name].scale, declared[name].unit
                text = scaled(value, digits=2) if value >= KILO else f"{value:,.6g}"
                result.append(
                    {"field": name, "limit": value, "unit": unit, "in_words": f"{text} {unit}"}
                )
        return result

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as plain data; ``plans`` are in the order of :attr:`ranked`, as search winners."""
        first, places = self.questions[0], {id(one): i for i, one in enumerate(self.points)}
        return {
            QUESTION: self._specs(first)
            | {
                "systems": [self._specs(one)["system"] for one in self.questions],
                "batch_size": self.batch_size,
                "uneven": list(self.uneven),
                "small": list(self.small),
                "seq_size": first.model.seq_size,
                "objective": self.objective,
                "risk": first.risk,
                "campaign": dict(self.campaign.document),
                "assumed": self.assumed,
            },
            "tokens": self.tokens,
            "tried": self.tried,
            "coarse": self.coarse,
            "ranked_by": self.ranked_by,
            "money": self.money,
            "best": None if self.best is None else places[id(self.best)],
            "nearest": None if self.nearest is None else places[id(self.nearest)],
            "fastest": None if self.fastest is None else self.fastest.to_dict(),
            "limits": self._limits,
            "misses": self.misses,
            "ways": list(self.ways),
            "further": None if self.further is None else self.further.to_dict(),
            "points": [one.to_dict() for one in self.points],
            "ranked": [places[id(one)] for one in self.ranked],
            "frontier": [places[id(one)] for one in self.frontier],
            "prices": self._prices,
            "pue": self.campaign.fleet.pue,
            "carbon": carbon_details(self.campaign.fleet.g_co2_per_kwh),
            "assumed": assumed_defaults(self.campaign, self._machines),
            PLANS: {
                str(rank): one.plan.to_dict() | {QUESTION: self._specs(one.question)}
                for rank, one in enumerate(self.ranked)
                if one.plan is not None
            },
        }

    @property
    def _machines(self) -> list[str]:
        return list(dict.fromkeys(one.system.name for one in self.questions))

    @property
    def _prices(self) -> list[dict[str, Any]]:
        """Price per processor-hour on each machine, and power per processor; None if unknown."""
        found: dict[str, dict[str, Any]] = {}
        for one in self.ranked:
            quote = None if one.whole is None else one.whole.quote
            price = None if quote is None else price_as_dict(quote, _only(quote.usd))
            row: dict[str, Any] = {"system": one.system.name} | (price or {"usd": None})
            beside = None if quote is None else price_range(one.system.name, quote.kind)
            row["range"] = None if beside is None else beside.in_words
            draw = None if one.whole is None else one.whole.power_draw
            power = None if draw is None else {"watts": _only(draw.tdp), "in_words": draw.words}
            found.setdefault(one.system.name, row | {"power": power})
        return list(found.values())

    @staticmethod
    def _specs(one: Question) -> dict[str, Any]:
        return question(one.model, one.system, CORRECTED, one.preset)

    def _statistic(self, name: str) -> Array:
        plans = (one.plan for one in self.points)
        return np.array([np.nan if one is None else one.stats[name] for one in plans], float)

    def table(self) -> dict[str, list[Any]]:
        """Return a row for each machine and count: figures of its run, fields and statistics of its plan.

        ``meets`` says whether it keeps all limits, ``frontier`` whether no other row beats it in days and money, and
        ``reason`` why no plan fits. ``tokens_per_step`` are tokens, ``days_low`` and ``days_high`` the interval of the
        days; ``memory_remark`` is the risk of running out of memory if no plan has an acceptable one.
        """
        front = {id(one) for one in self.frontier}
        rows = (one.row | {"frontier": id(one) in front} for one in self.points)
        names = ("system", "num_procs", "tokens_per_step", "meets", "frontier", "reason")
        return columns_of(rows, (*names, "memory_remark", *COLUMNS))

    @overload
    def plot(self, kind: str = "budget", *, interactive: Literal[False] = False) -> "Figure": ...

    @overload
    def plot(self, kind: str = "budget", *, interactive: Literal[True]) -> "InteractiveFigure": ...

    def plot(
        self, kind: str = "budget", *, interactive: bool = False
    ) -> "Figure | InteractiveFigure":
        """Draw days against dollars: a point per plan and number of processors, and the limits as lines.

        Args:
            interactive: Draw it like the web page (extra ``web``): a plotly Figure.

        Raises:
            SpecError: For an unknown kind, and if the library is missing.
        """
        return draw_result(self, kind, interactive=interactive)

    def __repr__(self) -> str:
        model, best = self.questions[0].model.name, self.best
        if best is None:
            return f"<FleetAnswer for {model}: {self.misses}>"
        return f"<FleetAnswer for {model}: {point_name(best)}, {_of(best, 'days'):.1f} days>"


def point_name(one: Point) -> str:
    """Return the name of a point: processors and machine, such as ``4,096 x h100_80g_sxm``."""
    return f"{one.num_procs:,} x {one.system.name}"


def objective_of(text: str) -> str:
    """Return the figure by which fleets are compared.

    Raises:
        SpecError: For an unsupported figure, and for one that is to be maximized.
    """
    name, _, sense = text.partition(":")
    if name not in OBJECTIVES:
        wanted = "one of " + ", ".join(OBJECTIVES)
        raise SpecError("objective", Problem("", wanted, repr(text), nearest(name, [*OBJECTIVES])))
    if sense not in ("", "min"):
        raise SpecError("objective", Problem(name, "min: less of it is better", repr(sense)))
    return name


def _only(column: Any) -> float:
    """Return the single entry of a column."""
    return float(np.asarray(column).item())


def _of(one: Point, name: str) -> float:
    value = one.figures[name]
    assert value is not None
    return value
