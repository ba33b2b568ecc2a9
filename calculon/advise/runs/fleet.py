"""The answer to "which machine, how many processors": whole runs of the best plan of each count, beside limits."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from calculon.advise.answer import Answer, answer, fastest_plan, space_of
from calculon.advise.ask import Question
from calculon.advise.candidate import COLUMNS, Candidate, told_price
from calculon.advise.runs.run_details import carbon_details
from calculon.base.display import Tabular, columns_of, drawn
from calculon.base.errors import Problem, SpecError, nearest
from calculon.base.frozen import dataclass
from calculon.base.records import columns, only_values
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
    MOST_PER_PROCESSOR,
    TOKENS_PER_BATCH,
    TOKENS_PER_PROCESSOR,
    odd_part,
)
from calculon.estimate.question import question
from calculon.hardware.system import System

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from plotly.graph_objects import Figure as InteractiveFigure

OBJECTIVES = ("usd", "days", "days_p90", "processor_hours", "mwh", "t_co2")
"""Figures of whole runs that fleets are compared by; less of each is better.

On one count of one machine all plans have the same bytes in a checkpoint, the same failures, the same price. So days,
and what is paid for them, rise with the time of a step: the fastest plan of a count is its best in ``usd``, ``days``,
``days_p90`` and ``processor_hours`` (but for intervals between checkpoints, which are whole steps, and for electricity
in the price of processors that one owns). Energy rises less than time, as waiting draws less than work: by ``mwh`` and
``t_co2`` the fastest plans of all counts are compared.
"""

DEADLINE = "deadline"

TOLD = (
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
"""Figures of a run that every row tells."""


@dataclass(frozen=True)
class Point:
    """The fastest plan on so many processors of a machine, and the whole run of it.

    Attributes:
        question: The machine, and what is trained.
        num_procs: Processors.
        plan: The plan; None where none fits.
        whole: Its run.
        campaign: What the run was asked to be.
        reason: Why no plan fits.
        memory: The risk of running out of memory, where no plan of the count has one that is acceptable; else empty.
    """

    question: Question
    num_procs: int
    plan: Candidate | None
    whole: WholeRun | None
    campaign: Campaign
    reason: str = ""
    memory: str = ""

    @property
    def system(self) -> System:
        """The machine."""
        return self.question.system

    @cached_property
    def figures(self) -> Mapping[str, float | None]:
        """The figures of the run by name; None of what is not known, such as the price, and of a count without plan."""
        if self.whole is None:
            return dict.fromkeys((one.name for one in columns(CampaignFigures)), None)
        return only_values(self.whole.figures())

    @cached_property
    def days_between(self) -> tuple[float, float] | None:
        """Where measured runs put the days: as the interval of a step."""
        days = self.figures["days"]
        if self.plan is None or days is None:
            return None
        low, high = (self.plan.stats.get(name) for name in BOUNDS)
        if low is None or high is None:
            return None
        return days * low / self.plan.time, days * high / self.plan.time

    @cached_property
    def limits(self) -> tuple[Limit, ...]:
        """The limits that can be checked: a budget needs a price, or a power."""
        if self.plan is None:
            return ()
        unknown: dict[str, Any] = {
            name: None for name, one in LIMITED.items() if self.figures[one] is None
        }
        return limits(replace(self.campaign, **unknown), self.figures)

    @property
    def answer(self) -> Answer:
        """The whole answer to the question of its plan: rivals, memory, half and twice the processors."""
        return answer(replace(self.question, num_procs=(self.num_procs,)))

    @property
    def unchecked(self) -> tuple[str, ...]:
        """Limits of figures that are not known."""
        return tuple(
            name
            for name, one in LIMITED.items()
            if getattr(self.campaign, name) is not None and self.figures[one] is None
        )

    @property
    def meets(self) -> bool:
        """Whether it keeps all limits."""
        return self.plan is not None and all(map(self.keeps, LIMITED))

    def keeps(self, name: str) -> bool:
        """Tell whether it keeps a limit, or whether there is none of this name."""
        missed = {one.field for one in self.limits if not one.met}
        return name not in missed and name not in self.unchecked

    @property
    def excess(self) -> float:
        """By how much it misses its limits, each in parts of the limit."""
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
        """Return it as plain data."""
        told: dict[str, Any] = {
            "system": self.system.name,
            "num_procs": self.num_procs,
            "tokens_per_step": self.question.tokens_per_step,
        }
        if self.plan is None:
            return told | {"reason": self.reason}
        low, high = self.days_between or (None, None)
        return (
            told
            | {name: self.figures[name] for name in TOLD}
            | {
                "days_low": low,
                "days_high": high,
                FITS: self.plan.stats[FITS],
                "memory_remark": self.memory,
                "meets": self.meets,
                "limits": [one.to_dict() for one in self.limits],
                "unchecked": list(self.unchecked),
                "execution": dict(self.plan.execution),
            }
        )


@dataclass(frozen=True)
class FleetAnswer(Tabular):
    """Machines and numbers of processors for a run, compared.

    Attributes:
        questions: One for each machine: model, framework, batch.
        campaign: The run, with its limits.
        objective: The figure that is to be small.
        points: The best plan of each machine and count that was tried.
        further: A larger count that meets the deadline, where none of those asked for does.
        tried: Executions that were searched.
        coarse: Whether open counts were not tried closer to the best, as each search takes long.
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
        """The figure by which points are compared: where no price is known, processor-hours stand for dollars.

        Those of several machines are not alike: without any price they are compared by days.
        """
        if any(one.figures[self.objective] is not None for one in self.points):
            return self.objective
        if self.objective == "usd":
            return "days" if len(self.questions) > 1 else "processor_hours"
        return "days"

    @cached_property
    def ranked(self) -> tuple[Point, ...]:
        """The points that have a plan: first those that meet all limits, the best first; then the nearest to them.

        Points without the figure that is compared come after all others that meet the limits; those with a limit that
        cannot be checked come last.
        """
        return tuple(sorted((one for one in self.points if one.plan is not None), key=self._key))

    def _key(self, one: Point) -> tuple[float, ...]:
        value, days = one.figures[self.ranked_by], one.figures["days"] or 0.0
        known = (0.0, value) if value is not None else (1.0, days)
        return (float(bool(one.unchecked)), one.excess, *known, days, one.num_procs)

    @property
    def best(self) -> Point | None:
        """The best point that meets all limits; None where none does."""
        first = self.nearest
        return first if first is not None and first.meets else None

    @property
    def nearest(self) -> Point | None:
        """The best point, or where none meets the limits the one that misses them by least; None where nothing fits."""
        return self.ranked[0] if self.ranked else None

    @cached_property
    def fastest(self) -> Candidate | None:
        """The fastest plan of the nearest point whatever its risk; None if it is the plan of the point."""
        one = self.nearest
        if one is None or one.plan is None:
            return None
        return fastest_plan(one.question, space_of(one.question, one.num_procs), one.plan)

    @property
    def preset(self) -> Preset:
        """The framework of the nearest point."""
        return (self.questions[0] if self.nearest is None else self.nearest.question).preset

    @property
    def frameworks(self) -> str:
        """What runs the plans, in words: one framework, or that of each machine."""
        words = {one.system.name: one.preset.words for one in self.questions}
        if len({*words.values()}) == 1:
            return self.preset.words
        return "; ".join(f"{name}: {text}" for name, text in words.items())

    @cached_property
    def frontier(self) -> tuple[Point, ...]:
        """The points that no other beats in days and money, the fastest first.

        Money is dollars; where no price is known, processor-hours of one machine. Points without are none of them.
        """
        money = self.money
        known = [one for one in self.ranked if money and one.figures[money] is not None]
        known.sort(key=lambda one: (_of(one, "days"), _of(one, money), one.num_procs))
        front: list[Point] = []
        for one in known:
            if not front or _of(one, money) < _of(front[-1], money):
                front.append(one)
        return tuple(front)

    @cached_property
    def money(self) -> str:
        """What the frontier has beside days: dollars, or processor-hours of the only machine; else nothing."""
        if any(one.figures["usd"] is not None for one in self.points):
            return "usd"
        return "" if len(self.questions) > 1 else "processor_hours"

    @cached_property
    def batch_size(self) -> int | None:
        """Sequences of a step on all counts; None where each has its own."""
        found = {one.question.batch_size for one in self.points}
        return found.pop() if len(found) == 1 else None

    @property
    def assumed(self) -> dict[str, str]:
        """What was not stated and is assumed, by the option that states it."""
        found = dict(self.questions[0].assumed)
        if "--batch" in found:
            each = f"{MOST_PER_PROCESSOR:,} to {TOKENS_PER_PROCESSOR:,} for each processor"
            own = f"{scaled(TOKENS_PER_BATCH, digits=2)} tokens, {each}"
            found["--batch"] = own if self.batch_size is None else f"{self.batch_size:,} sequences"
        return found

    @property
    def uneven(self) -> tuple[int, ...]:
        """Counts whose stated batch not all their data-parallel degrees divide: it lacks their odd factor."""
        counts = {one.num_procs: one.question.batch_size for one in self.points}
        return tuple(sorted(count for count, batch in counts.items() if batch % odd_part(count)))

    @property
    def small(self) -> tuple[int, ...]:
        """Counts with fewer tokens in a batch, for each processor, than a batch has that nobody stated."""
        found = {
            one.num_procs
            for one in self.points
            if one.question.tokens_per_step < TOKENS_PER_PROCESSOR * one.num_procs
        }
        return tuple(sorted(found))

    @property
    def tokens(self) -> float | None:
        """Tokens of the run: whole steps of them; None where nothing fits."""
        whole = self.nearest.whole if self.nearest is not None else None
        return None if whole is None else _only(whole.tokens)

    @property
    def in_time(self) -> Point | None:
        """The cheapest point that meets the deadline, whatever it costs."""
        kept = [one for one in self.ranked if one.keeps(DEADLINE)]
        return min(kept, key=lambda one: self._key(one)[2:], default=None)

    @property
    def in_budget(self) -> Point | None:
        """The fastest point that the budgets pay."""
        budgets = [name for name in LIMITED if name != DEADLINE]
        kept = [one for one in self.ranked if all(map(one.keeps, budgets))]
        return min(kept, key=lambda one: _of(one, "days"), default=None)

    @property
    def misses(self) -> str:
        """Why nothing meets the limits, in a line, with the nearest; empty where something does."""
        one = self.nearest
        if self.best is not None:
            return ""
        if one is None:
            return "no plan fits on any of these counts"
        over = " and ".join(limit.in_words for limit in one.limits if not limit.met)
        missed = f"misses {over}" if over else f"has no figure for {', '.join(one.unchecked)}"
        return f"nothing meets the limits; the nearest, {named(one)}, {missed}"

    @property
    def ways(self) -> tuple[str, ...]:
        """What comes nearest to single limits, in words, where nothing meets all of them."""
        if self.best is not None:
            return ()
        asked = {one["field"] for one in self._limits}
        tried = {}
        if DEADLINE in asked:
            tried["cheapest in time"] = self.in_time
        if asked - {DEADLINE}:
            tried["fastest within the budget"] = self.in_budget
        found = []
        for words, one in tried.items():
            if one is not None and one is not self.nearest:
                over = " and ".join(limit.in_words for limit in one.limits if not limit.met)
                found.append(f"the {words}, {named(one)}, misses {over}")
        if "budget_usd" in asked and self.in_budget is None and self.money == "usd":
            known = [one for one in self.ranked if one.figures["usd"] is not None]
            least = min(known, key=lambda one: _of(one, "usd"))
            words = f"the least money, {scaled(_of(least, 'usd'), digits=2)} USD, is that of"
            found.append(f"{words} {named(least)}: {_of(least, 'days'):,.1f} d")
        if self.further is not None:
            days, usd = _of(self.further, "days"), self.further.figures["usd"]
            money = "" if usd is None else f", {scaled(usd, digits=2)} USD"
            found.append(f"{named(self.further)} would be in time: {days:,.1f} d{money}")
        return tuple(found)

    @property
    def _limits(self) -> list[dict[str, Any]]:
        """The limits that are asked for, each in its unit."""
        declared = {one.name: one.declaration for one in spec_fields(Campaign)}
        found = []
        for name in LIMITED:
            if (most := getattr(self.campaign, name)) is not None:
                value, unit = most / declared[name].scale, declared[name].unit
                text = scaled(value, digits=2) if value >= KILO else f"{value:,.6g}"
                found.append(
                    {"field": name, "limit": value, "unit": unit, "in_words": f"{text} {unit}"}
                )
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain data; ``plans`` are those of :attr:`ranked`, as a search writes its winners."""
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
        """The price of a processor-hour of each machine, and the power of a processor; None of what is not known."""
        found: dict[str, dict[str, Any]] = {}
        for one in self.ranked:
            quote = None if one.whole is None else one.whole.quote
            price = None if quote is None else told_price(quote, _only(quote.usd))
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

    @property
    def mfu(self) -> Array:
        """Model FLOP utilisation of the plan of each row of the table, as :attr:`calculon.Estimate.mfu`."""
        plans = (one.plan for one in self.points)
        return np.array([np.nan if one is None else one.mfu for one in plans], float)

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
        """Draw days against dollars: each point a plan and a number of processors, with the limits as lines.

        Args:
            interactive: As the page in a browser draws it (extra ``web``): a plotly Figure.

        Raises:
            SpecError: For another kind, and where the library is missing.
        """
        return drawn(self, kind, interactive=interactive)

    def __repr__(self) -> str:
        model, best = self.questions[0].model.name, self.best
        if best is None:
            return f"<FleetAnswer for {model}: {self.misses}>"
        return f"<FleetAnswer for {model}: {named(best)}, {_of(best, 'days'):.1f} days>"


def named(one: Point) -> str:
    """Return what a point is called.

    Its processors and its machine: ``4,096 x h100_80g_sxm``.
    """
    return f"{one.num_procs:,} x {one.system.name}"


def objective_of(text: str) -> str:
    """Return the figure that fleets are compared by.

    Raises:
        SpecError: For a figure that they are not compared by, and for one that is to be large.
    """
    name, _, sense = text.partition(":")
    if name not in OBJECTIVES:
        wanted = "one of " + ", ".join(OBJECTIVES)
        raise SpecError("objective", Problem("", wanted, repr(text), nearest(name, [*OBJECTIVES])))
    if sense not in ("", "min"):
        raise SpecError("objective", Problem(name, "min: less of it is better", repr(sense)))
    return name


def _only(column: Any) -> float:
    """Return the only entry of a column."""
    return float(np.asarray(column).item())


def _of(one: Point, name: str) -> float:
    value = one.figures[name]
    assert value is not None
    return value
