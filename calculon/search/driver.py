"""Search API for Python: the best executions as estimates with counts and reasons, or all executions as tables."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from calculon.base.activity import announce
from calculon.base.units import Array
from calculon.declarations import arguments
from calculon.declarations.expression import Lookup
from calculon.declarations.model import Model
from calculon.declarations.run_figures import RUN_FIGURES
from calculon.editions.edition import Edition
from calculon.estimate.evaluate import Evaluation, evaluate
from calculon.hardware.system import System
from calculon.inputs import Source
from calculon.search.best_first import Seen, feasible_numbers, search_space
from calculon.search.conditions import Condition
from calculon.search.cost_cache import CostCache
from calculon.search.override_checks import PYTHON, check_left, warn_of_idle_values
from calculon.search.ranking import Ranking
from calculon.search.request import (
    make_condition,
    make_ranking,
    make_space,
    requested_space,
    takes_space,
)
from calculon.search.search_counts import Splits
from calculon.search.search_result import SearchResult, with_figures
from calculon.search.space import Space
from calculon.search.within_risk import joined_conditions, preferred_risk, search_preferring

if TYPE_CHECKING:
    from calculon.campaign.read import CampaignSource

__all__ = [
    "SearchResult",
    "executions",
    "feasible_tables",
    "make_ranking",
    "make_space",
    "no_winners",
    "rechunked",
    "run",
    "search",
]

CHUNK = 32_768
"""Default number of rows of a table of executions."""


@takes_space
def search(
    model: Source | Model,
    num_procs: int | str,
    system: Source | System,
    max_batch_size: int | None = None,
    datatype: str | None = None,
    *,
    batch: int | str | None = None,
    seq: int | str | None = None,
    dtype: str | None = None,
    top: int = 1,
    objective: str = "sample_rate",
    pareto: Sequence[str] | None = None,
    where: str | None = None,
    risk: float | str | None = None,
    mbs_break: bool = False,
    fused: bool | Sequence[bool] | None = None,
    tensor_overlap: bool = True,
    data_overlap: bool = True,
    fix: Mapping[str, Any] | None = None,
    add: Mapping[str, Any] | None = None,
    any_batch: bool = False,
    edition: Edition | str | None = None,
    preset: str | None = None,
    campaign: "CampaignSource | None" = None,
    **words: Any,
) -> SearchResult:
    """Find the best executions of a model on a number of processors, exactly.

    The search returns only executions that are predicted to fit in memory. :func:`calculon.estimate` also evaluates
    executions that exceed tier-1 memory by less than the memory error.

    Args:
        {space}:
        top: Number of executions to return.
        objective: ``STATISTIC[:max|min]``.
        pareto: Objectives of a Pareto front to return instead of the best executions by one objective.
        risk: Probability of running out of memory that the executions may have: ``"10%"`` (default) or ``0.1``. If
            there are none, they may have three times as much, and so on; ``1`` accepts any. With `pareto`, with a
            condition on ``fits`` and in edition ``sc23`` the default is any.
        mbs_break: Skip larger microbatches after the first that does not fit.

    Raises:
        SpecError: For malformed arguments, and for a `fix` that leaves no execution; raised before the search starts.

    Examples:
        >>> found = search("megatron-22B", 8, "a100_80g", 4, top=2)
        >>> found
        <SearchResult: 193,496 executions, 156,682 feasible, best sample_rate 5.69623 samples/s>
        >>> search("llama-3-8b", 64, "h100", tp=2).best.execution.tensor_par
        2
    """
    choices: dict[str, Any] = {"fused": fused, "fix": fix, "add": add}
    choices |= {"any_batch": any_batch, "edition": edition, "preset": preset}
    choices |= {"tensor_overlap": tensor_overlap, "data_overlap": data_overlap}
    choices |= {"campaign": campaign}
    sizes, types = (max_batch_size, batch), (datatype, dtype)
    space = requested_space(model, num_procs, system, sizes, types, seq, **choices)
    wanted = {"top": top, "objective": objective, "pareto": pareto}
    return _preferring(space, wanted, where, risk, mbs_break)


def _preferring(
    space: Space, wanted: Mapping[str, Any], where: str | None, risk: Any, mbs_break: object
) -> SearchResult:
    """Check a search and run it, executions within the risk first; `wanted` are arguments of a ranking."""
    known: dict[str, Any] = {**wanted, "edition": space.edition, "runs": space.runs}
    make_ranking(where=where, **known)
    accepted = preferred_risk(risk, space.edition, known["pareto"], where)
    gives_up = arguments.switch(mbs_break, "mbs_break", "search")
    check_left([space], PYTHON)
    warn_of_idle_values([space], stacklevel=4)

    def search(further: str | None) -> SearchResult:
        ranking = make_ranking(where=joined_conditions(where, further), **known)
        return run(space, ranking, mbs_break=gives_up)

    return replace(search_preferring(search, accepted), risk=accepted)


def run(
    space: Space,
    ranking: Ranking,
    *,
    mbs_break: bool = False,
    seen: Seen | None = None,
    cache: CostCache | None = None,
) -> SearchResult:
    """Search a space with a fresh ranking; see :func:`~calculon.search.best_first.search_space` for the arguments."""
    begin, splits, tried = perf_counter(), Splits(), 0

    def told(count: int) -> None:
        nonlocal tried
        tried += count
        announce(f"{space.num_procs:,} x {space.system.name}: {tried:,} plans tried")
        if seen is not None:
            seen(count)

    # Building blocks may take seconds before the first plan is tried.
    announce(f"{space.num_procs:,} x {space.system.name}: listing plans")
    counts = search_space(
        space, ranking, mbs_break=mbs_break, seen=told, splits=splits, cache=cache
    )
    seconds = perf_counter() - begin
    scores, numbers = ranking.ranked()
    return SearchResult(space, ranking.objectives, counts, numbers, scores, splits, seconds)


@takes_space
def executions(
    model: Source | Model,
    num_procs: int | str,
    system: Source | System,
    max_batch_size: int | None = None,
    datatype: str | None = None,
    *,
    batch: int | str | None = None,
    seq: int | str | None = None,
    dtype: str | None = None,
    where: str | None = None,
    chunk: int = CHUNK,
    fused: bool | Sequence[bool] | None = None,
    tensor_overlap: bool = True,
    data_overlap: bool = True,
    fix: Mapping[str, Any] | None = None,
    add: Mapping[str, Any] | None = None,
    any_batch: bool = False,
    edition: Edition | str | None = None,
    preset: str | None = None,
    campaign: "CampaignSource | None" = None,
    **words: Any,
) -> Iterator[Evaluation]:
    """Return every feasible execution of a space in the order of the loops, as tables of at most `chunk` rows.

    Memory use is bounded for a space of any size.

    Args:
        {space}:
        chunk: Largest number of rows of a table.

    Raises:
        SpecError: For malformed arguments, and for a `fix` that leaves no execution; raised before the search starts.
    """
    choices: dict[str, Any] = {"fused": fused, "fix": fix, "add": add}
    choices |= {"any_batch": any_batch, "edition": edition, "preset": preset}
    choices |= {"tensor_overlap": tensor_overlap, "data_overlap": data_overlap}
    choices |= {"campaign": campaign}
    sizes, types = (max_batch_size, batch), (datatype, dtype)
    space = requested_space(model, num_procs, system, sizes, types, seq, **choices)
    condition = make_condition(where, space.edition, space.runs)
    chunk = arguments.count(chunk, "chunk", "executions")
    check_left([space], PYTHON)
    warn_of_idle_values([space], stacklevel=3)
    return feasible_tables(space, condition, chunk=chunk)


def feasible_tables(
    space: Space,
    where: Condition | None = None,
    *,
    chunk: int = CHUNK,
    seen: Seen | None = None,
) -> Iterator[Evaluation]:
    """Yield the feasible executions of a space that meet a condition, as in :func:`executions`.

    `seen` is the progress callback of :data:`~calculon.search.best_first.Seen`.
    """
    for numbers in rechunked(feasible_numbers(space), chunk):
        if seen is not None:
            seen(len(numbers))
        table = evaluate(space.model, space.plan(numbers), space.system)
        if where is not None:
            table = table.take(np.broadcast_to(where.mask(_lookup(space, table)), len(table)))
        yield with_figures(space.runs, table)


def _lookup(space: Space, table: Evaluation) -> Lookup:
    """Return a function that finds columns of a table and figures of training runs by name."""
    runs = None if space.runs is None else space.runs.of_table(table)

    def lookup(name: str) -> Array:
        if runs is not None and name in RUN_FIGURES:
            return RUN_FIGURES[name].of(runs)
        return table.column(name)

    return lookup


def no_winners(space: Space) -> Evaluation:
    """Return an empty table of executions of a space."""
    plan = space.plan(np.zeros(0, np.int64))
    return with_figures(
        space.runs, evaluate(space.model, plan, space.system, edition=space.edition)
    )


def rechunked(parts: Iterable[Array], size: int) -> Iterator[Array]:
    """Join and cut arrays so that all but the last have the given size."""
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
