"""Search from Python: the best executions as estimates, with counts and reasons; or all of them as tables."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from calculon import inputs
from calculon.edition import Edition
from calculon.editions import SC23
from calculon.errors import Problem, SpecError
from calculon.estimate import Estimate, estimate
from calculon.evaluate import Evaluation, evaluate
from calculon.hardware.system import System
from calculon.inputs import Source
from calculon.plan.plan import Plan
from calculon.search.objective import Objective
from calculon.search.one import feasible_numbers, search_space
from calculon.search.ranking import Best, Front, Ranking
from calculon.search.restrict import checked
from calculon.search.select import Counts
from calculon.search.space import Space
from calculon.search.where import Condition
from calculon.spec.model import Model
from calculon.units import Array

if TYPE_CHECKING:
    import pandas as pd

CHUNK = 32_768
"""Rows of a table of executions."""


@dataclass(frozen=True)
class SearchResult:
    """The best executions of a space, best first.

    Attributes
    ----------
    space : Space
        What was searched.
    objectives : tuple of Objective
        What the ranking is by.
    counts : Counts
        Executions enumerated, feasible, and why the others are not.
    numbers : array of int64, shape (results,)
        Numbers of the executions in the space.
    scores : array, shape (objectives, results)
        Scores; larger is better.
    """

    space: Space
    objectives: tuple[Objective, ...]
    counts: Counts
    numbers: Array
    scores: Array
    edition: Edition

    def __len__(self) -> int:
        return len(self.numbers)

    @cached_property
    def plan(self) -> Plan:
        """The executions as a table."""
        return self.space.plan(self.numbers)

    @cached_property
    def evaluation(self) -> Evaluation:
        """All statistics of the executions."""
        found = evaluate(self.space.model, self.space.system, self.plan, edition=self.edition)
        for objective, scores in zip(self.objectives, self.scores, strict=True):
            again = found[objective.statistic.name]
            if not np.array_equal(again, objective.value(scores), equal_nan=True):
                raise AssertionError(f"search and evaluation differ in {objective.statistic.name}")
        return found

    def estimates(self, *, layers: bool = False) -> list[Estimate]:
        """Return the executions as estimates, best first."""
        return [
            estimate(
                self.space.model, self.plan.row(i), self.space.system, layers, edition=self.edition
            )
            for i in range(len(self))
        ]

    def to_frame(self) -> "pd.DataFrame":
        """Return executions and statistics as a DataFrame, best first."""
        return self.evaluation.to_frame().drop(columns="reason")

    def __repr__(self) -> str:
        counts = self.counts
        text = f"{counts.total:,} executions, {counts.good:,} feasible"
        if len(self):
            best = self.objectives[0]
            value = float(best.value(self.scores[0][0]))
            text += f", best {best.statistic.name} {value:.6g}"
        return f"<SearchResult: {text}>"


def make_space(
    model: Source | Model,
    system: Source | System,
    num_procs: int,
    max_batch_size: int,
    datatype: str,
    **options: Any,
) -> Space:
    """Check and make a space; the options are those of :class:`~calculon.search.space.Space`.

    Raises
    ------
    SpecError
        For malformed inputs: before any work, and with what was expected.
    """
    model, system = inputs.model(model), inputs.system(system)
    for name, value in (("num_procs", num_procs), ("max_batch_size", max_batch_size)):
        if not 1 <= value < 2**31 or value != int(value):
            raise SpecError(
                "search", Problem(name, "a whole number from 1 to 2147483647", str(value))
            )
    if datatype not in system.datatypes:
        known = ", ".join(system.datatypes)
        wanted = f"a datatype of both engines of {system.name}: {known}"
        raise SpecError("search", Problem("datatype", wanted, repr(datatype)))
    for option in ("fix", "add"):
        options[option] = checked(option, options.get(option, {}))
    return Space(model, system, int(num_procs), int(max_batch_size), datatype, **options)


def search(
    model: Source | Model,
    system: Source | System,
    num_procs: int,
    max_batch_size: int,
    datatype: str = "float16",
    *,
    top: int = 1,
    objective: str = "sample_rate",
    pareto: Sequence[str] = (),
    where: str | None = None,
    mbs_break: bool = False,
    fix: Mapping[str, Any] | None = None,
    add: Mapping[str, Any] | None = None,
    edition: Edition = SC23,
    **options: Any,
) -> SearchResult:
    """Find the best executions of a model on so many processors, exactly.

    Parameters
    ----------
    model, system : str, path, mapping or record
        As in :func:`calculon.estimate`.
    num_procs, max_batch_size, datatype
        The space: see :class:`~calculon.search.space.Space`, also for further options.
    fix, add : mapping
        Restrict a field to a value or values, and add values that the published enumeration leaves out.
    top : int
        How many executions to return.
    objective : str
        ``STATISTIC[:max|min]``.
    pareto : sequence of str
        Objectives whose non-dominated set is returned instead of the best by one.
    where : str
        Condition on statistics and execution fields, such as ``"total_time < 60 and tensor_par <= 8"``.
    mbs_break : bool
        Give up on larger microbatches after the first that does not fit.

    Raises
    ------
    SpecError
        For anything malformed, before any work.

    Examples
    --------
    >>> found = search("megatron-22B", "a100_80g", 8, 4, top=2)
    >>> found
    <SearchResult: 193,496 executions, 156,682 feasible, best sample_rate 5.69623>
    """
    options |= {"fix": fix or {}, "add": add or {}}
    space = make_space(model, system, num_procs, max_batch_size, datatype, **options)
    ranking = make_ranking(top, objective, pareto, where)
    return run(space, ranking, mbs_break=mbs_break, edition=edition)


def make_ranking(
    top: int = 1,
    objective: str = "sample_rate",
    pareto: Sequence[str] = (),
    where: str | None = None,
) -> Ranking:
    """Make the ranking that options ask for; errors as in :func:`search`."""
    condition = Condition.parse(where) if where else None
    if pareto:
        return Front([Objective.parse(text) for text in pareto], condition)
    if top < 1:
        raise SpecError("search", Problem("top", "a whole number of at least 1", str(top)))
    return Best(Objective.parse(objective), top, condition)


def run(
    space: Space, ranking: Ranking, *, mbs_break: bool = False, edition: Edition = SC23
) -> SearchResult:
    """Search a space with a fresh ranking."""
    counts = search_space(space, ranking, mbs_break=mbs_break, edition=edition)
    scores, numbers = ranking.ranked()
    return SearchResult(space, ranking.objectives, counts, numbers, scores, edition)


def executions(
    model: Source | Model,
    system: Source | System,
    num_procs: int,
    max_batch_size: int,
    datatype: str = "float16",
    *,
    where: str | None = None,
    chunk: int = CHUNK,
    fix: Mapping[str, Any] | None = None,
    add: Mapping[str, Any] | None = None,
    edition: Edition = SC23,
    **options: Any,
) -> Iterator[Evaluation]:
    """Return every feasible execution of a space in the order of the loops, as tables of at most `chunk` rows.

    The arguments are those of :func:`search`; memory stays bounded whatever the size of the space.
    """
    space = make_space(
        model,
        system,
        num_procs,
        max_batch_size,
        datatype,
        fix=fix or {},
        add=add or {},
        **options,
    )
    condition = Condition.parse(where) if where else None
    return feasible_tables(space, condition, chunk=chunk, edition=edition)


def feasible_tables(
    space: Space,
    where: Condition | None = None,
    *,
    chunk: int = CHUNK,
    edition: Edition = SC23,
    seen: Callable[[int], None] | None = None,
) -> Iterator[Evaluation]:
    """Yield the feasible executions of a space that meet a condition, as in :func:`executions`.

    `seen` is told how many more executions were looked at.
    """
    for numbers in rechunked(feasible_numbers(space, edition=edition), chunk):
        if seen is not None:
            seen(len(numbers))
        table = evaluate(space.model, space.system, space.plan(numbers), edition=edition)
        if where is not None:
            table = table.take(np.broadcast_to(where.mask(table.column), len(table)))
        yield table


def nothing(space: Space) -> Evaluation:
    """Return a table of executions of a space without rows."""
    return evaluate(space.model, space.system, space.plan(np.zeros(0, np.int64)))


def rechunked(parts: Iterable[Array], size: int) -> Iterator[Array]:
    """Join and cut arrays so that all but the last have the same size."""
    waiting: list[Array] = []
    count = 0
    for part in parts:
        waiting.append(part)
        count += len(part)
        if count >= size:
            joined = np.concatenate(waiting)
            whole = count - count % size
            for start in range(0, whole, size):
                yield joined[start : start + size]
            waiting, count = [joined[whole:]], count - whole
    if count:
        yield np.concatenate(waiting)
