"""Result of a search: the best executions as a table, as a DataFrame, or as single estimates."""

import math
import operator
from collections.abc import Iterator
from dataclasses import field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex, overload

import numpy as np

from calculon.base.display import WithMfu, draw_result
from calculon.base.errors import Infeasible, Problem, SpecError, in_words
from calculon.base.frozen import dataclass
from calculon.base.units import Array
from calculon.declarations.named_values import PUBLISHED
from calculon.estimate.estimate import Estimate, estimate
from calculon.estimate.evaluate import Evaluation, evaluate
from calculon.plan.plan import Plan
from calculon.search.objective import Objective
from calculon.search.search_counts import Counts, Splits
from calculon.search.space import Space

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from plotly.graph_objects import Figure as InteractiveFigure

    from calculon.estimate.comparison_confidence import Order
    from calculon.estimate.validated_runs import RunEvidence
    from calculon.search.training_runs import TrainingRuns


FRONT = ("sample_rate", "proc_mem_tier1_cap_req")
"""Default objectives of a Pareto frontier."""


@dataclass(frozen=True)
class SearchResult(WithMfu[Array]):
    """The best executions of a space, best first: a sequence of estimates that are created on access.

    Attributes:
        space: The space that was searched.
        objectives: Objectives of the ranking.
        counts: Enumerated and feasible executions, and infeasible ones by reason.
        numbers (shape (results,)): Numbers of the executions in the space.
        scores (shape (objectives, results)): Scores; larger is better.
        splits: Counts of executions by tensor and pipeline degree and by infeasibility reason, if the search counts
            them.
        seconds: Duration of the search.
        risk: Largest accepted risk of running out of memory; None for any.
        riskier: Number of the best execution at any risk of running out of memory, if the search excluded it; else
            None.

    Examples:
        >>> from calculon import search
        >>> found = search("megatron-126M", "a100_80g", 8, 8, top=3, fix={"tensor_par": 2})
        >>> found.best.execution == found[0].execution
        True
        >>> [estimate.execution.data_par for estimate in found]
        [4, 4, 4]
    """

    space: Space
    objectives: tuple[Objective, ...]
    counts: Counts
    numbers: Array
    scores: Array
    splits: Splits = field(default_factory=dict)
    seconds: float = 0.0
    risk: float | None = None
    riskier: int | None = None

    def __len__(self) -> int:
        return len(self.numbers)

    @overload
    def __getitem__(self, rank: SupportsIndex) -> Estimate: ...
    @overload
    def __getitem__(self, rank: slice) -> list[Estimate]: ...
    def __getitem__(self, rank: SupportsIndex | slice) -> Estimate | list[Estimate]:
        """Return the execution of a rank as an estimate, 0 is the best; a list for a slice."""
        if isinstance(rank, slice):
            return [self._estimate(i) for i in range(len(self))[rank]]
        number = operator.index(rank)
        if not -len(self) <= number < len(self):
            message = f"rank {number} of {len(self)} executions"
            raise IndexError(message)
        return self._estimate(number % len(self))

    def __iter__(self) -> Iterator[Estimate]:
        return (self._estimate(i) for i in range(len(self)))

    @property
    def best(self) -> Estimate:
        """The best execution.

        Raises:
            Infeasible: When the search found nothing; the reason is the most frequent one.
        """
        if len(self):
            return self[0]
        counts = self.counts
        if not counts.total:
            procs = f"{self.space.num_procs:,} processors"
            raise Infeasible("nothing", f"no split of {procs} divides the model and the batch")
        if counts.good or not counts.reasons:
            raise Infeasible(
                "nothing", f"none of {counts.good:,} feasible executions meets the condition"
            )
        reason, times = counts.reasons.most_common(1)[0]
        message = f"none of {counts.total:,} executions can run ({in_words(reason)}: {times:,})"
        raise Infeasible(reason, message)

    @property
    def best_of_all(self) -> Estimate | None:
        """The best execution at any risk of running out of memory; None if it is :attr:`best`."""
        if self.riskier is None:
            return None
        plan = self.space.plan(np.array([self.riskier]))
        return estimate(self.space.model, plan.row(0), self.space.system)

    @property
    def edition(self) -> str:
        """Edition of the cost model."""
        return self.space.edition

    @cached_property
    def plan(self) -> Plan:
        """The executions as a table."""
        return self.space.plan(self.numbers)

    @cached_property
    def evaluation(self) -> Evaluation:
        """All statistics of the executions."""
        space = self.space  # its edition is needed, because an empty table has none
        table = evaluate(space.model, self.plan, space.system, edition=space.edition)
        result = with_figures(space.runs, table)
        # Search and evaluation share every formula: unequal results would mean wrong numbers of executions.
        for objective, scores in zip(self.objectives, self.scores, strict=True):
            again = result[objective.statistic.name]
            if not np.array_equal(again, objective.value(scores), equal_nan=True):
                raise AssertionError(f"search and evaluation differ in {objective.statistic.name}")
        return result

    @cached_property
    def bounds(self) -> dict[str, Array]:
        """Interval of the time of each execution (:func:`calculon.bounds`); empty in edition ``sc23``."""
        from calculon.estimate.bounds import bounds  # most searches do not need it

        return bounds(self.space.model, self.evaluation, self.space.system)

    @property
    def names(self) -> dict[str, str]:
        """Names in result tables: model, system and preset; empty in edition ``sc23``."""
        return self.space.names

    def beliefs(self) -> "list[RunEvidence | None]":
        """Return the prediction interval of each execution (:attr:`Estimate.belief`); None in edition ``sc23``."""
        from calculon.estimate.validated_runs import belief  # most searches do not need it

        space, found = self.space, self.evaluation
        rows = zip(*(found[name].tolist() for name in found.names), strict=True)
        return [
            belief(
                space.model,
                space.system,
                self.plan.row(i),
                dict(zip(found.names, row, strict=True)),
            )
            for i, row in enumerate(rows)
        ]

    @cached_property
    def fastest(self) -> int:
        """Rank of the execution with the highest rate; the first one among equals."""
        return int(np.argmax(np.nan_to_num(self.evaluation["sample_rate"])))

    @cached_property
    def orders(self) -> "list[Order]":
        """Confidence that the fastest execution is faster than each execution; empty in edition ``sc23``."""
        from calculon.estimate.comparison_confidence import orders  # most searches do not need it

        if self.edition == PUBLISHED or not len(self):
            return []
        space, found = self.space, self.evaluation
        stats = {name: found[name] for name in found.names}
        return orders(space.model, space.system, self.plan, stats, self.fastest)

    def winners(self) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        """Yield execution fields and statistics with the interval of the time, best first.

        Values that are not finite become None, as JSON cannot represent them.
        """
        found = self.evaluation
        columns = {name: found[name] for name in found.names} | self.bounds
        fields = zip(*(self.plan.values(name).tolist() for name in found.fields), strict=True)
        stats = zip(*map(_nullable, columns.values()), strict=True)
        for row, values in zip(fields, stats, strict=True):
            yield dict(zip(found.fields, row, strict=True)), dict(zip(columns, values, strict=True))

    def estimates(self, *, layers: bool = False) -> list[Estimate]:
        """Return the executions as estimates, best first."""
        return [self._estimate(i, layers=layers) for i in range(len(self))]

    def _estimate(self, rank: int, *, layers: bool = False) -> Estimate:
        space, execution = self.space, self.plan.row(rank)
        found = estimate(space.model, execution, space.system, layers)
        return replace(found, preset=space.preset)

    def pareto(self, *objectives: str, where: str | None = None) -> "SearchResult":
        """Search the same space for executions that no other execution dominates in several statistics.

        Args:
            objectives: ``STATISTIC[:max|min]`` each; by default the sample rate and the memory of a processor.
            where: A condition, such as ``"proc_mem_tier1_cap_req < 70 * GiB"``.

        Returns:
            The frontier of all executions of the space, sorted by the first objective, best first.

        Raises:
            SpecError: For fewer than two objectives, and for statistics that the edition does not compute.

        Examples:
            >>> from calculon import search
            >>> front = search("megatron-126M", "a100_80g", 8, 8).pareto()
            >>> frame = front.to_frame()[["sample_rate", "proc_mem_tier1_cap_req"]]
            >>> frame["sample_rate"].is_monotonic_decreasing, frame["proc_mem_tier1_cap_req"].is_monotonic_decreasing
            (True, True)
        """
        from calculon.search.best_first import search_space
        from calculon.search.request import make_ranking

        if len(objectives) == 1:
            hint = f"the best by one: search(..., objective={objectives[0]!r})"
            problem = Problem("objectives", "two statistics or more", repr(objectives[0]), hint)
            raise SpecError("pareto", problem)
        ranking = make_ranking(
            1, FRONT[0], objectives or FRONT, where, self.edition, self.space.runs
        )
        counts = search_space(self.space, ranking)
        scores, numbers = ranking.ranked()
        return SearchResult(self.space, ranking.objectives, counts, numbers, scores)

    @overload
    def plot(
        self, x: str = "", y: str = "", *, interactive: Literal[False] = False
    ) -> "Figure": ...

    @overload
    def plot(
        self, x: str = "", y: str = "", *, interactive: Literal[True]
    ) -> "InteractiveFigure": ...

    def plot(
        self, x: str = "", y: str = "", *, interactive: bool = False
    ) -> "Figure | InteractiveFigure":
        """Plot two statistics of the executions, and mark the Pareto front.

        Args:
            x, y: ``STATISTIC[:max|min]``; by default the last and the first objective of a frontier, and for other
                results the memory of a processor and the rate. ``calculon plot pareto`` draws all executions of a
                space.
            interactive: Return a plotly Figure as on the web page (extra ``web``), with the best execution of each
                split.

        Raises:
            SpecError: For an unknown statistic, and if the library is missing.
            Infeasible: When the search found nothing.
        """
        return draw_result(self, "pareto", interactive=interactive, x=x, y=y)

    def _statistic(self, name: str) -> Array:
        return self.evaluation._statistic(name)

    def table(self) -> dict[str, Array]:
        """Return fields, statistics, interval of the time, and inputs by name: a row for each execution, best first."""
        found = self.evaluation.table()
        del found["reason"]
        asked = {name: np.full(len(self), text, object) for name, text in self.names.items()}
        return found | self.bounds | asked

    def __repr__(self) -> str:
        counts = self.counts
        text = f"{counts.total:,} executions, {counts.good:,} feasible"
        if self.edition != PUBLISHED:
            text = f"edition {self.edition}, {text}"
        if len(self):
            best = self.objectives[0]
            value = float(best.value(self.scores[0][0]))
            text += (
                f", best {best.statistic.name} {value:.6g} {best.statistic.unit.symbol}".rstrip()
            )
        return f"<SearchResult: {text}>"


def with_figures(runs: "TrainingRuns | None", table: Evaluation) -> Evaluation:
    """Add the figures of training runs to a table of executions, if there are runs."""
    return table if runs is None else table.with_statistics(runs.figures(table))


def _nullable(column: Array) -> list[float | None]:
    """Return a column with None for values that are not finite."""
    return [value if math.isfinite(value) else None for value in column.tolist()]
