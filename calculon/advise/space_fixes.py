"""Fixes of a search space in which nothing fits: changes of the space, each verified by a search."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from itertools import combinations, groupby, islice, product
from math import inf
from typing import Any

import numpy as np

from calculon.advise.nearest_infeasible import NearestInfeasible, with_memory
from calculon.advise.neighborhood import Neighborhood
from calculon.advise.neighbors import MEMORY_OPTIONS, memory_savers
from calculon.base.frozen import dataclass
from calculon.base.units import GIB
from calculon.declarations.axes import STATED_DEGREES
from calculon.declarations.named_values import PUBLISHED
from calculon.declarations.statistics import FITS, RISK
from calculon.estimate.estimate import Estimate, estimate
from calculon.estimate.memory_limit import errors_of
from calculon.plan.columns import divisors
from calculon.search.conditions import Condition
from calculon.search.driver import run
from calculon.search.objective import Objective
from calculon.search.ranking import Best
from calculon.search.search_result import SearchResult
from calculon.search.space import Space, Values
from calculon.search.within_risk import joined_conditions, search_within_risk

BEST = Objective.parse("sample_rate")

PRODUCTS = (16, 24, 32, 40, 48, 64, 80, 96, 128, 141, 180, 192, 256, 288)
"""Tier-1 memory sizes in GiB of processors on the market."""

MAX_TIMES = 1024
"""Maximum factor by which the number of processors grows."""

SECONDS = 5.0
"""CPU time after which no further fix is tried: large spaces take long."""

MAX_SEARCHES = 6
"""Maximum number of searches for one kind of fix."""

MAX_ROWS = 4000
"""Maximum number of executions on which options are tried at once."""

MAX_OPTIONS = 3
"""Maximum number of options that are combined, and of fixes that are listed."""

_ACTIVATIONS = ("activations", "checkpoints", "activation gradients")

_HALF = 0.5
"""Share of the memory from which on activations count as filling it."""

_SPLIT = (*STATED_DEGREES, "batch_size")


@dataclass(frozen=True, slots=True, kw_only=True)
class SpaceFix:
    """Change of a space after which an execution fits.

    Attributes:
        kind: ``memory`` (the least that is enough), ``product`` (memory that processors have), ``processors``,
            ``options``, ``freed``, ``sequence`` or ``batch``.
        change: Changes by name: ``mem1`` and ``mem2`` (bytes of capacity), ``num_procs``, ``batch_size``, or fields of
            an execution; None for a field that is no longer fixed.
        found: Fastest execution within the accepted risk (or else the fastest of all), on the changed system.
    """

    kind: str
    change: Mapping[str, Any]
    found: Estimate = field(repr=False)


def space_fixes(
    space: Space,
    nearest: Sequence[NearestInfeasible],
    where: Condition | None,
    *,
    unwanted: bool = False,
    risk: float = RISK,
) -> tuple[SpaceFix, ...]:
    """Return the fixes of a space: settings first, sorted by time, and then other machines.

    The nearest infeasible executions determine the kinds of fixes that are tried. If executions fit, but are `unwanted`
    because they do not meet the condition, only settings and more processors are tried. Plans within the accepted
    `risk` of running out of memory are preferred.
    """
    search = _SpaceFixSearch(space, nearest, where, risk)
    settings = [*search.freed()]
    if nearest:
        settings += search.options()
    settings.sort(key=lambda one: one.found.stats["total_time"] or inf)
    if nearest:
        return (*settings, *search.sequence(), *search.memory(), *search.more_processors())
    if unwanted:
        return (*settings, *search.more_processors())
    return (*settings, *search.batches(), *search.nearby_processors())


class _SpaceFixSearch:
    """Search in changed spaces within a time limit."""

    def __init__(
        self,
        space: Space,
        nearest: Sequence[NearestInfeasible],
        where: Condition | None,
        risk: float,
    ):
        self.space, self.nearest, self.where, self.risk = space, nearest, where, risk
        self._end = time.process_time() + SECONDS

    @property
    def out_of_time(self) -> bool:
        """True if the time limit is exceeded."""
        return time.process_time() > self._end

    def best(self, space: Space) -> Estimate | None:
        """Return the fastest execution of a space, within the risk if there is one; None if nothing fits.

        None as well if the time limit is exceeded.
        """
        if self.out_of_time or not space.units:
            return None
        found = run(space, Best(BEST, 1, self.where))
        if not len(found):
            return None
        if space.edition != PUBLISHED and found.evaluation[FITS][0] < 1 - self.risk:
            found = search_within_risk(partial(self._searched, space), self.risk)
        return found[0]

    def _searched(self, space: Space, further: str | None) -> SearchResult:
        """Search for the fastest execution that also meets a further condition."""
        text = joined_conditions(
            None if self.where is None else self.where.expression.text, further
        )
        runs = space.campaign is not None
        condition = None if text is None else Condition.parse(text, whole_runs=runs)
        return run(space, Best(BEST, 1, condition))

    def first(
        self, kind: str, name: str, spaces: Iterable[tuple[int, Space]]
    ) -> Iterator[SpaceFix]:
        """Yield the first of several spaces in which something fits, within the risk if one of those tried does."""
        possible = ((value, space) for value, space in spaces if space.divides and space.units)
        fixes = (
            SpaceFix(kind=kind, change={name: value}, found=found)
            for value, space in islice(possible, MAX_SEARCHES)
            if (found := self.best(space))
        )
        yield from self._first_within_risk(fixes)

    def _first_within_risk(self, fixes: Iterable[SpaceFix]) -> Iterator[SpaceFix]:
        """Yield the first fix whose plan has an acceptable risk; if none has, the first."""
        seen: list[SpaceFix] = []
        for one in fixes:
            seen.append(one)
            fits = one.found.stats.get(FITS)
            if fits is None or fits >= 1 - self.risk:
                yield one
                return
        yield from seen[:1]

    def memory(self) -> Iterator[SpaceFix]:
        """Yield the least memory that is enough within the risk, and the size of tier 1 that processors have."""
        space = self.space
        for execution, several in groupby(self.nearest, key=lambda one: one.estimate.execution):
            needed = {one.tier: one.needed * self._headroom(one) for one in several}
            larger = with_memory(space.system, needed)
            change = {f"mem{tier}": getattr(larger, f"mem{tier}").capacity for tier in needed}
            found = estimate(space.model, execution, larger)  # no other execution needs as little
            yield SpaceFix(kind="memory", change=change, found=found)
            sold = next((g * GIB for g in PRODUCTS if g * GIB >= larger.mem1.capacity), None)
            if tuple(needed) != (1,) or sold is None:
                continue
            system = replace(larger, mem1=replace(larger.mem1, capacity=sold))
            if best := self.best(replace(space, system=system)):
                yield SpaceFix(kind="product", change={"mem1": sold}, found=best)

    def _headroom(self, one: NearestInfeasible) -> float:
        """Return the usable over the needed memory with which an execution fits within the risk; at least 1."""
        execution = one.estimate.execution
        errors = errors_of(self.space.model, execution.preset, execution.zero_stage)
        known = errors is not None and one.fits is not None and 0 < self.risk < 1
        return (
            max(1.0, errors.capacity_ratio(1 - self.risk)) if errors is not None and known else 1.0
        )

    def more_processors(self) -> Iterator[SpaceFix]:
        """Yield the next multiple, or power of two, of the processors on which something fits within the risk.

        Each count is first tried with the memory options of the nearest infeasible execution, which is fast; if that
        fits, with the complete space.
        """
        thrifty: dict[str, Values] = {}
        for one in self.nearest[:1]:
            thrifty = {n: (getattr(one.estimate.execution, n),) for n in MEMORY_OPTIONS}
            thrifty["microbatch_size"] = (1,)
        counts = _multiples(self.space.num_procs)
        spaces = ((count, replace(self.space, num_procs=count)) for count in counts)
        fixes = (
            SpaceFix(kind="processors", change={"num_procs": count}, found=found)
            for count, larger in spaces
            if not thrifty or self.best(replace(larger, fix={**thrifty, **larger.fix}))
            if (found := self.best(larger))
        )
        yield from self._first_within_risk(fixes)

    def nearby_processors(self) -> Iterator[SpaceFix]:
        """Yield the next smaller and larger counts on which something fits, or else powers of two."""
        count = self.space.num_procs
        powers = [2**k for k in range(count.bit_length()) if 2**k < count]
        ways: list[tuple[Iterable[int], Iterable[int]]] = [
            (range(count - 1, 0, -1), reversed(powers)),
            (range(count + 1, 2 * count), _multiples(count)),
        ]
        for next_ones, round_ones in ways:
            for counts in (next_ones, round_ones):
                spaces = ((n, replace(self.space, num_procs=n)) for n in counts)
                found = [*self.first("processors", "num_procs", spaces)]
                yield from found
                if found:
                    break

    def batches(self) -> Iterator[SpaceFix]:
        """Yield the next smaller and larger batches that some data-parallel degree divides."""
        batch, degrees = self.space.max_batch_size, divisors(self.space.num_procs)
        below = {batch - (batch % d or d) for d in degrees} - {0}
        above = {batch + d - batch % d for d in degrees}
        for sizes in (sorted(below, reverse=True), sorted(above)):
            spaces = ((size, _with_batch(self.space, size)) for size in sizes)
            yield from self.first("batch", "batch_size", spaces)

    def freed(self) -> Iterator[SpaceFix]:
        """Yield the fixed fields for which another value helps."""
        fix = self.space.fix
        for name in (one for one in fix if one != "batch_size"):
            others = {other: values for other, values in fix.items() if other != name}
            if found := self.best(replace(self.space, fix=others)):
                yield SpaceFix(kind="freed", change={name: None}, found=found)

    def options(self) -> Iterator[SpaceFix]:
        """Yield untried options of the framework: those that help alone, or else small combinations.

        They are evaluated on the nearest infeasible executions, on all splits; only options that make these fit are
        searched.
        """
        space = self.space
        untried = memory_savers(space, activations=self._filled_by_activations)
        for size in range(1, MAX_OPTIONS + 1):
            several = [dict(some) for some in combinations(untried, size)]
            # Two values of one option collapse in the mapping: such combinations are dropped.
            several = [values for values in several if len(values) == size]
            # Large spaces have many splits: evaluating all options on all of them would take
            # minutes.
            if len(several) * len(space.units) * len(self.nearest) > MAX_ROWS:
                return
            found = [(values, self._with_options(values)) for values in self._fitting(several)]
            fixes = [
                SpaceFix(kind="options", change=values, found=best)
                for values, best in found
                if best
            ]
            if fixes:
                yield from fixes
                return

    def _with_options(self, values: Mapping[str, Any]) -> Estimate | None:
        """Return the fastest execution of the space with these values added and fixed; nothing fits without them."""
        held = {name: (value,) for name, value in values.items()}
        add, fix = {**self.space.add, **held}, {**self.space.fix, **held}
        return self.best(replace(self.space, add=add, fix=fix))

    def _fitting(self, several: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """Return options that make the nearest infeasible executions fit on some split, fastest first."""
        places, rows = self._on_splits(several)
        if not rows:
            return []
        times: list[float] = []
        for one in self.nearest:
            near = Neighborhood(self.space.model, one.estimate.execution, self.space.system)
            tried = near.evaluate_rows(rows)
            # Rows that exceed memory by less than the prediction error are too risky to recommend.
            times += np.where(tried.uncertain, np.nan, tried.time).tolist()
        order = [row for row in np.argsort(times, kind="stable") if np.isfinite(times[row])]
        first = dict.fromkeys(places[row % len(rows)] for row in order)
        return [several[place] for place in first][:MAX_OPTIONS]

    def _on_splits(
        self, several: Sequence[Mapping[str, Any]]
    ) -> tuple[list[int], list[Mapping[str, Any]]]:
        """Return the index of each option, and its changed fields, for all splits of the space."""
        places: list[int] = []
        rows: list[Mapping[str, Any]] = []
        for (place, values), unit in product(enumerate(several), self.space.units):
            parts = values.get("context_par", unit.further)
            data_par, rest = divmod(unit.data_par * unit.further, parts)
            if rest:
                continue
            split = {
                **{name: getattr(unit, name) for name in _SPLIT},
                "context_par": parts,
                "data_par": data_par,
                "pipeline_interleaving": unit.interleavings[0],
                "microbatch_size": unit.microbatches[0],
            }
            rows.append({**split, **values})
            places.append(place)
        return places, rows

    def sequence(self) -> Iterator[SpaceFix]:
        """Yield the longest shorter sequence that fits, if activations fill the memory."""
        space = self.space
        if space.edition == PUBLISHED or "seq_length" in space.fix:
            return
        if self._filled_by_activations:
            lengths = (
                space.model.seq_size >> k for k in range(1, space.model.seq_size.bit_length())
            )
            spaces = ((n, replace(space, fix={**space.fix, "seq_length": (n,)})) for n in lengths)
            yield from self.first("sequence", "seq_length", spaces)

    @property
    def _filled_by_activations(self) -> bool:
        """True if activations fill the memory of the nearest infeasible execution."""
        first = self.nearest[0]
        size = sum(size for kind, size in first.parts.items() if kind in _ACTIVATIONS)
        return size >= _HALF * first.needed


def _multiples(count: int) -> list[int]:
    """Return the processor counts to try if more are needed."""
    multiples = {count * 2**k for k in range(1, MAX_TIMES.bit_length())}
    # Powers of two help if an odd factor of the present count is what prevents a split.
    powers = {2**k for k in range((count * MAX_TIMES).bit_length())}
    return sorted(multiples | {power for power in powers if power > count})


def _with_batch(space: Space, batch: int) -> Space:
    """Return the space with another batch, fixed if the old one is."""
    held = {"batch_size": (batch,)} if "batch_size" in space.fix else {}
    return replace(space, max_batch_size=batch, fix={**space.fix, **held})
