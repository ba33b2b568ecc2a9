"""The plans that a search found, as rows of a page: best of each split, with links that take them over."""

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
from calculon.explore.search.searches import Asked
from calculon.search.search_result import SearchResult, with_figures

Fields = Mapping[str, Any]


@dataclass(frozen=True)
class FoundPlans:
    """The plans of a search.

    Attributes:
        asked: What was searched.
        found: The plans, best first.
        state: The page that they are shown on.
        answers: What computes.
    """

    asked: Asked
    found: SearchResult
    state: State
    answers: Answers

    @cached_property
    def winners(self) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """Fields and statistics of each plan."""
        return list(self.found.winners())

    @cached_property
    def table(self) -> Evaluation:
        """All statistics of the plans; with the figures of whole runs, where these are asked about."""
        found, runs = self.found.evaluation, self.asked.space.runs
        return found if self.found.space.runs is not None else with_figures(runs, found)

    @cached_property
    def ranks(self) -> list[int]:
        """Ranks of the best plan of each split of the processors, the best of all first."""
        first: dict[str, int] = {}
        for rank in range(len(self.winners)):
            first.setdefault(self.split(rank), rank)
        return list(first.values())

    def split(self, rank: int) -> str:
        """Return the name of the split of a plan, which points, cells and rows share."""
        fields = self.winners[rank][0]
        return split_name(fields["tensor_par"], fields["pipeline_par"])

    def link(self, rank: int) -> str:
        """Return the address of the page with this plan."""
        return self.state.with_plan(self.answers.own(self.state, self.winners[rank][0]))

    def words(self, rank: int) -> str:
        """Return a plan in words."""
        fields = self.winners[rank][0]
        return plan_words(fields, self.asked.space.preset.usual(fields))

    def tied(self, rank: int) -> bool:
        """Return whether measured runs do not tell a plan apart from the fastest, which is another."""
        return rank != self.found.fastest and not self.found.orders[rank].distinguishable

    @property
    def shown(self) -> Column:
        """What plans are compared by: the objective; instead of a rate the time, which ranks them alike."""
        one = self.asked.objective.statistic
        return column(CorrectedStats, "total_time") if one.name == "sample_rate" else one

    def value(self, rank: int) -> float:
        """Return what a plan is compared by."""
        return float(self.table[self.shown.name][rank])

    def text(self, rank: int) -> str:
        """Write what a plan is compared by."""
        return figure(self.shown, self.value(rank), self.winners[rank][1])

    def worse(self, value: float, than: float) -> float:
        """Return by what share a value is worse than another; negative where it is better."""
        objective = self.asked.objective
        larger = objective.sense == "max" and self.shown == objective.statistic
        one, other = (than, value) if larger else (value, than)
        return one / other - 1 if other else 0.0

    @cached_property
    def usual(self) -> list[dict[str, Any]]:
        """What the framework has where nothing is stated, of each plan of :attr:`ranks`."""
        return [self.asked.space.preset.usual(self.winners[rank][0]) for rank in self.ranks]

    @cached_property
    def plans(self) -> Plans:
        """The best plan of each split as a table, as the commands print it."""
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
    """Return a plan at its place on the chart of two statistics, with both in words."""
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
