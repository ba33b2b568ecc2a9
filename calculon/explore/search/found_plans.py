"""Plans found by a search as rows of a page: the best of each split, with links that select them."""

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from calculon.base.frozen import dataclass
from calculon.base.records import Column, column
from calculon.declarations.plan_words import plan_words
from calculon.declarations.statistics import CorrectedStats
from calculon.documents.charts.pareto_chart import PlanPoint
from calculon.documents.plans_table import Plans, figure, plans_table
from calculon.estimate.evaluate import Evaluation
from calculon.explore.answers import Answers
from calculon.explore.page_state import State
from calculon.explore.search.searches import SearchSettings
from calculon.search.search_result import SearchResult, with_figures

Fields = Mapping[str, Any]


@dataclass(frozen=True)
class FoundPlans:
    """Plans found by a search.

    Attributes:
        asked: The search.
        found: The plans, best first.
        state: The page that shows them.
        answers: Cached results.
    """

    asked: SearchSettings
    found: SearchResult
    state: State
    answers: Answers

    @cached_property
    def winners(self) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """Fields and statistics of each plan."""
        return list(self.found.winners())

    @cached_property
    def table(self) -> Evaluation:
        """All statistics of the plans; with figures of whole runs if the question asks for them."""
        found, runs = self.found.evaluation, self.asked.space.runs
        return found if self.found.space.runs is not None else with_figures(runs, found)

    @cached_property
    def ranks(self) -> list[int]:
        """Ranks of the best plan of each split, the overall best first."""
        first: dict[str, int] = {}
        for rank in range(len(self.winners)):
            first.setdefault(self.split(rank), rank)
        return list(first.values())

    def split(self, rank: int) -> str:
        """Return the name of a plan's split, shared by points, cells and rows."""
        fields = self.winners[rank][0]
        return split_name(fields["tensor_par"], fields["pipeline_par"])

    def link(self, rank: int) -> str:
        """Return the address of the page with this plan."""
        return self.state.with_plan(self.answers.stated_fields(self.state, self.winners[rank][0]))

    def words(self, rank: int) -> str:
        """Return a plan in words."""
        fields = self.winners[rank][0]
        return plan_words(fields, self.asked.space.preset.usual(fields))

    def tied(self, rank: int) -> bool:
        """Return True if measured runs cannot distinguish a plan from the fastest one."""
        return rank != self.found.fastest and not self.found.orders[rank].distinguishable

    @property
    def shown(self) -> Column:
        """Statistic by which plans are compared: the objective, or for a rate the time, which gives the same order."""
        one = self.asked.objective.statistic
        return column(CorrectedStats, "total_time") if one.name == "sample_rate" else one

    def value(self, rank: int) -> float:
        """Return a plan's value of the compared statistic."""
        return float(self.table[self.shown.name][rank])

    def text(self, rank: int) -> str:
        """Format a plan's value of the compared statistic."""
        return figure(self.shown, self.value(rank), self.winners[rank][1])

    def worse(self, value: float, than: float) -> float:
        """Return the relative difference by which a value is worse than another; negative if it is better."""
        objective = self.asked.objective
        # A rate is shown as a time, for which smaller is better.
        larger = objective.sense == "max" and self.shown == objective.statistic
        one, other = (than, value) if larger else (value, than)
        return one / other - 1 if other else 0.0

    @cached_property
    def usual(self) -> list[dict[str, Any]]:
        """Framework defaults for each plan of :attr:`ranks`."""
        return [self.asked.space.preset.usual(self.winners[rank][0]) for rank in self.ranks]

    @cached_property
    def plans(self) -> Plans:
        """Table of the best plan of each split, as the commands print it."""
        executions, stats = zip(*(self.winners[rank] for rank in self.ranks), strict=True)
        one = self.asked.objective.statistic
        ties = [self.tied(rank) for rank in self.ranks]
        numbers = list(range(len(self.ranks)))
        return plans_table(executions, stats, [one], self.usual, numbers, ties=ties, whole=True)


def plan_point(
    x: Column,
    y: Column,
    place: tuple[float, float],
    fields: Fields,
    stats: Fields,
    words: str,
    link: str = "",
) -> PlanPoint:
    """Return a plan as a point of a chart of two statistics, labeled with both."""
    figures = ", ".join(figure(*pair, stats) for pair in ((y, place[1]), (x, place[0])))
    return PlanPoint(
        x=place[0],
        y=place[1],
        words=f"{words}\n{figures}",
        key=split_name(fields["tensor_par"], fields["pipeline_par"]),
        link=link,
    )


def split_name(tensor_par: int, pipeline_par: int) -> str:
    """Return the name of a split."""
    return f"{tensor_par}.{pipeline_par}"
