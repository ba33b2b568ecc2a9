"""Fixes: the fewest changes that make an infeasible execution run."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from calculon.advise.beam_search import beam_search
from calculon.advise.in_words import memory_and_time
from calculon.advise.neighborhood import (
    DIGITS,
    NOT_TRIED,
    Neighborhood,
    NeighborTable,
    choices_of,
    parts_of,
)
from calculon.advise.neighbors import (
    QUESTION,
    SWITCHES,
    TIMES_PROCESSORS,
    FieldChange,
    batch_changes,
    fields_of,
    larger_splits,
    processor_changes,
    single_changes,
)
from calculon.architecture.parameters import parameter_count
from calculon.base.frozen import dataclass
from calculon.base.units import Array, gib
from calculon.declarations.execution import Execution
from calculon.declarations.model import Model
from calculon.declarations.named_values import DATATYPE_BYTES
from calculon.declarations.preset_file import plain
from calculon.declarations.statistics import FITS, RISK
from calculon.editions import find_edition
from calculon.estimate.estimate import Estimate, estimate
from calculon.hardware.system import System
from calculon.plan.plan import NAMES, Plan
from calculon.plan.rules.all_rules import check
from calculon.plan.rules.failures import Failure, failures

COLUMNS = (
    *("changes", "follows", "count", "distance", "total_time", "proc_mem_tier1_cap_req"),
    *("proc_mem_tier2_cap_req", FITS, "unusual", "asks_for_another", "longer"),
)
"""Columns of a table of fixes: members of :meth:`Fix.to_dict`."""

MAX_CHANGES = 3
"""Maximum number of changes that are combined exhaustively."""

MAX_TRIED = 100_000
"""Maximum number of combinations of a given size; the nearest ones are tried."""

MAX_HINTED = 1_000
"""Limit for a hint, which is part of an error message and must be immediate."""

SHOWN, HINTED = 5, 3
"""Maximum number of fixes in a result, and in a hint."""

MIN_GAIN = 1e-4
"""Minimum relative time saving that counts as faster."""

MAX_VALUES = 2
"""Values of a switch that are combined with two other changes."""


@dataclass(frozen=True)
class Fix:
    """Execution that runs, derived from one that does not.

    Attributes:
        changes: Changed fields with their values.
        follows: Fields that follow from the changes.
        distance: Sum over the changes: the absolute binary logarithm of the ratio for numbers, 1 for other fields.
        total_time: Seconds per step.
        memory: Bytes needed in both tiers.
        fits: Probability that it fits in tier-1 memory; None if unknown.
        unusual: Conditions of common practice that its degrees violate.
        execution: All of its fields.
        longer: Relative difference of the time per sample: to the fastest of the returned fixes, or to the execution
            itself if that runs.
    """

    model: Model
    system: System
    changes: Mapping[str, Any]
    follows: Mapping[str, Any]
    distance: float
    total_time: float
    memory: tuple[float, float]
    fits: float | None
    unusual: tuple[str, ...]
    execution: Execution
    longer: float | None = None

    @property
    def count(self) -> int:
        """Number of changes."""
        return len(self.changes)

    @property
    def sample_time(self) -> float:
        """Seconds per sample, which makes different batches comparable."""
        return self.total_time / self.execution.batch_size

    @property
    def order(self) -> tuple[bool, int, bool, float, float]:
        """Sort key among the fixes of one execution: risk, number of changes, practice, distance, sample time."""
        near = round(self.distance, DIGITS)
        return self.risky, self.count, not self.practised, near, self.sample_time

    @property
    def risky(self) -> bool:
        """True if its risk of running out of memory exceeds that of recommended plans."""
        return self.fits is not None and self.fits < 1 - RISK

    @property
    def practised(self) -> bool:
        """True if its degrees follow common practice of the framework."""
        return not self.unusual

    @property
    def asks_for_another(self) -> str:
        """Field of the question that it changes: ``batch_size`` or ``num_procs``; empty if neither."""
        return next((name for name in QUESTION if name in self.changes), "")

    @cached_property
    def found(self) -> Estimate:
        """Estimate of the fix."""
        return estimate(self.model, self.execution, self.system)

    def to_dict(self) -> dict[str, Any]:
        """Return the fix as plain data."""
        return {
            "changes": dict(self.changes),
            "follows": dict(self.follows),
            "count": self.count,
            "distance": self.distance,
            "total_time": self.total_time,
            "proc_mem_tier1_cap_req": self.memory[0],
            "proc_mem_tier2_cap_req": self.memory[1],
            FITS: self.fits,
            "unusual": list(self.unusual),
            "asks_for_another": self.asks_for_another,
            "execution": self.execution.to_dict(),
            "longer": self.longer,
        }

    def __repr__(self) -> str:
        text = ", ".join(f"{name}={plain(value)}" for name, value in self.changes.items())
        return f"<Fix {text}: {gib(self.memory[0])}, {self.total_time:.4g} s>"

    def __str__(self) -> str:
        fields = {**self.changes, **self._processors}
        text = ", ".join(f"{name}={plain(value)}" for name, value in fields.items())
        return f"{text} ({memory_and_time(self.found)})"

    @property
    def _processors(self) -> Mapping[str, Any]:
        """Replicas, if they follow from a change: a stated split includes them."""
        return {name: value for name, value in self.follows.items() if name == "data_par"}


class FixSearch:
    """Search for the fixes of one execution among its neighbors.

    Args:
        near: Neighborhood of the execution.
        broken: Rules that the execution breaks.
        thorough: Whether to try four and more changes, and many combinations of three.
    """

    def __init__(
        self, near: Neighborhood, broken: Sequence[Failure] = (), *, thorough: bool = True
    ):
        self.near, self.broken, self.thorough = near, tuple(broken), thorough
        # MoE models have more kinds of blocks, each costed separately: only single changes are fast enough.
        self.singly = not thorough and near.model.has_experts
        named = tuple(dict.fromkeys(name for failure in broken for name in failure.fields))
        self.changes = single_changes(
            near.model, near.execution, near.system, near.variations.broken, named
        )
        self._now = None if broken else near.unchanged

    @cached_property
    def single(self) -> NeighborTable:
        """Neighbors with one change."""
        return self.near.evaluate(self.changes, np.arange(len(self.changes))[:, None])

    @cached_property
    def _pair_codes(self) -> tuple[Array, Plan, Array]:
        """All pairs of changes, as a table, and the rules that they break."""
        choices = choices_of(self.changes, 2, 0)
        plan = self.near.table(self.changes, choices)
        return choices, plan, check(self.near.model, self.near.system, plan)

    @cached_property
    def pairs(self) -> NeighborTable:
        """Neighbors with two changes, without pairs in which one change is idle."""
        choices, plan, codes = self._pair_codes
        # If one change of a pair is idle and the other is possible alone, the pair saves no more
        # than the other change alone.
        alone = self.single.legal & self.single.real
        spared = (self._idle[choices] & alone[choices[:, ::-1]]).any(axis=1)
        codes = np.where(spared & (codes == 0), NOT_TRIED, codes)
        return self.near.evaluate(self.changes, choices, plan, codes)

    def triples(self) -> Iterator[NeighborTable]:
        """Yield the neighbors with three changes, nearest first.

        Triples with an idle change are skipped as in :attr:`pairs`. If only memory is too small, values of a switch
        that free less than other values are skipped, too.
        """
        # A symmetric matrix of legal pairs answers for each triple if dropping its idle change
        # leaves a legal pair.
        pairs, _, codes = self._pair_codes
        legal = np.zeros((len(self.changes), len(self.changes)), bool)
        legal[pairs[:, 0], pairs[:, 1]] = legal[pairs[:, 1], pairs[:, 0]] = codes == 0
        choices = choices_of(self.changes, 3, 0)
        a, b, c = choices.T
        idle = self._idle
        spared = (idle[a] & legal[b, c]) | (idle[b] & legal[a, c]) | (idle[c] & legal[a, b])
        if self._now is not None:
            spared |= self._lesser[choices].any(axis=1)
        most = MAX_TRIED if self.thorough else MAX_HINTED
        for part in parts_of(choices[~spared][:most]):
            yield self.near.evaluate(self.changes, part)

    @cached_property
    def _idle(self) -> Array:
        """Mask of legal switch changes that alone save neither memory nor time.

        Some switches have no effect alone but have one in combination; pairs that become legal only together are still
        tried.
        """
        if self._now is None:
            return np.zeros(len(self.changes), bool)
        found, now = self.single, self._now
        no_less = (found.memory >= now.memory).all(axis=0) & ~(found.time < now.time)
        if now.runs[0]:  # a change that exceeds the memory may save time next to one that frees it
            no_less &= found.runs
        return self._switched & found.legal & found.real & no_less

    @cached_property
    def _switched(self) -> Array:
        """Mask of the changes of switches."""
        return np.array([one.field in SWITCHES for one in self.changes])

    @cached_property
    def _lesser(self) -> Array:
        """Mask of switch changes that alone free less memory than other values of the same field."""
        # Illegal values sort first and are skipped below.
        memory = np.where(self.single.legal, self.single.memory[0], -np.inf)
        least: dict[str, list[int]] = {}
        for number in np.argsort(memory, kind="stable").tolist():
            if self._switched[number] and np.isfinite(memory[number]):
                least.setdefault(self.changes[number].field, []).append(number)
        lesser = np.zeros(len(self.changes), bool)
        for numbers in least.values():
            lesser[numbers[MAX_VALUES:]] = True
        return lesser

    def fixes(self) -> tuple[Fix, ...]:
        """Return the neighbors that fit with the fewest changes, at most one for each set of changed fields.

        All of them are predicted to fit. Neighbors with the same processors and batch come first, then other batches,
        then other processor counts; within these, they are sorted by risk (:attr:`Fix.risky`), number of changes,
        distance and time. Three changes are tried only if fewer do not help. If a broken rule names the batch, the last
        fix is another batch, provided that it needs fewer changes. If a broken rule is about the number of processors,
        another count is a change like any other, and the first fix without it is returned as well, whatever its number
        of changes.
        """
        if not _could_fit(self.near):
            return ()
        found: dict[frozenset[str], Fix] = {}
        for tables, asks in ((self._few(), ()), (self._several(), ("",))):
            if not _enough(found, asks):
                self._add(found, tables, asks)
        by = dict(sorted(found.items(), key=lambda item: item[1].order))
        if not _enough(by, ("", *QUESTION)):
            self._add(by, self._elsewhere(), ("", *QUESTION))
        shown = [*by.values()]
        batch = [*self._with_batch(shown)]
        if batch and len(shown) == SHOWN:
            del shown[-2]  # keeps the last one, which may be the fastest
        return (*shown, *batch)

    def _add(
        self,
        fixes: dict[frozenset[str], Fix],
        tables: Iterator[NeighborTable],
        asks: Collection[str],
    ) -> None:
        """Add the runnable neighbors of tables, one for each set of fields, until there are enough.

        If a table has more than the remaining places, its fastest usual neighbor gets the last place.
        """
        while len(fixes) < SHOWN and (table := next(tables, None)) is not None:
            sets: dict[frozenset[str], int] = {}
            for row in table.first_of_fields(table.in_order):
                fields = table.fields(row)
                # A superset of the fields of a usual fix only adds changes that are not needed.
                needless = (fields > fewer and one.practised for fewer, one in fixes.items())
                if fields not in fixes and not any(needless):
                    sets[fields] = row
            places = SHOWN - len(fixes)
            chosen = [*sets][:places]
            usual = [
                fields
                for fields, row in sets.items()
                if table.practised[row] and not table.risky[row]
            ]
            if len(sets) > places > 1 and usual:
                fastest = min(usual, key=lambda fields: table.sample_times[sets[fields]])
                chosen = chosen if fastest in chosen else [*chosen[:-1], fastest]
            fixes |= {fields: self.fix(table, sets[fields]) for fields in chosen}
            if _enough(fixes, asks):
                return

    def _with_batch(self, fixes: Sequence[Fix]) -> Iterator[Fix]:
        """Yield another batch that needs fewer changes, if a broken rule names the batch."""
        named = any("batch_size" in one.fields for one in self.broken)
        if not named or not fixes or fixes[0].asks_for_another:
            return
        for table in self._batches(min(len(fixes[0].changes), MAX_CHANGES) - 1):
            for row in table.in_order[:1]:
                yield self.fix(table, row)
                return

    def _batches(self, most: int) -> Iterator[NeighborTable]:
        """Yield the neighbors with another batch and at most `most` changes."""
        for size in range(1, most + 1):
            yield self._with_one_of(batch_changes(self.near.execution), self.changes, size)

    def _with_one_of(
        self, first: Sequence[FieldChange], more: Sequence[FieldChange], size: int
    ) -> NeighborTable:
        """Return the neighbors with `size` changes, exactly one of them from `first`."""
        changes = (*first, *more)
        return self.near.evaluate(changes, choices_of(changes, size, len(first)))

    def _few(self) -> Iterator[NeighborTable]:
        """Yield the neighbors with one and two changes; also on other processor counts if a broken rule requires it."""
        yield self.single
        if self._ask_for_processors:
            yield self._on_other_processors(1)
        if self.singly:
            return
        yield self.pairs
        if self._ask_for_processors:
            yield self._on_other_processors(2)

    def _several(self) -> Iterator[NeighborTable]:
        """Yield the neighbors with more changes on the same processors with the same batch."""
        if self.singly:
            return
        yield from self.triples()
        if self.thorough:
            yield from beam_search(self.near, self.changes, self.pairs)

    def _elsewhere(self) -> Iterator[NeighborTable]:
        """Yield the neighbors with another batch, then on other processor counts."""
        near, execution = self.near, self.near.execution
        yield from self._batches(1 if self.singly else MAX_CHANGES - 1)
        if not self._ask_for_processors:
            yield self._on_other_processors(1)
            if not self.singly:
                yield self._on_other_processors(2)
        usable, _ = find_edition(execution.edition).machine(near.system).usable
        for more in self._other_processors if self.thorough else ():
            times = max(1, more.value // execution.num_procs)
            # Beam search is slow, and `times` as many processors divide memory by about as much.
            if near.least_memory > 2 * times * usable:
                continue
            changes = (more, *self._of_split(times))
            first = near.evaluate(changes, np.zeros((1, 1), np.int64))
            yield first
            yield from beam_search(near, changes, first)

    @property
    def _ask_for_processors(self) -> bool:
        """True if a broken rule is about the number of processors."""
        return any(one.fields[:1] == ("num_procs",) for one in self.broken)

    @cached_property
    def _other_processors(self) -> tuple[FieldChange, ...]:
        return processor_changes(self.near.execution, fewer=not self.broken)

    def _on_other_processors(self, size: int) -> NeighborTable:
        """Return the neighbors on other processor counts, with one more change if `size` is 2."""
        more = [one for one in self._of_split(TIMES_PROCESSORS[-1]) if one.field != "num_procs"]
        return self._with_one_of(self._other_processors, more, size)

    def _of_split(self, times: int) -> tuple[FieldChange, ...]:
        """Return the changes of all neighbors, preceded by larger splits for `times` as many processors."""
        split = larger_splits(self.near.model, self.near.execution, times)
        return tuple(dict.fromkeys((*split, *self.changes)))

    def fix(self, table: NeighborTable, row: int) -> Fix:
        """Return a neighbor as a fix."""
        near, execution = self.near, table.plan.row(row)
        now = near.execution
        changed = {n: v for n in NAMES if (v := getattr(execution, n)) != getattr(now, n)}
        asked = fields_of([table.changes[number] for number in table.choices[row]])
        return Fix(
            model=near.model,
            system=near.system,
            changes={name: changed[name] for name in asked},
            follows={name: value for name, value in changed.items() if name not in asked},
            distance=float(table.distances[row]),
            total_time=float(table.time[row]),
            memory=(float(table.memory[0, row]), float(table.memory[1, row])),
            fits=None if np.isnan(table.fits[row]) else float(table.fits[row]),
            unusual=() if table.practised[row] else near.unusual(table.plan.take([row])),
            execution=execution,
        )

    def faster(self, now: float) -> tuple[Fix, ...]:
        """Return the change that saves most time, and the best pair of changes if it saves more.

        Changes whose risk of running out of memory exceeds that of recommended plans are skipped.

        Args:
            now: Seconds per step of the execution.
        """
        found: list[Fix] = []
        for table in (self.single, self.pairs):
            good = table.runs & table.real & table.practised & ~table.risky
            rows = np.flatnonzero(good)
            if not len(rows):
                continue
            row = int(rows[np.argmin(table.time[rows])])
            limit = min((one.total_time for one in found), default=now) * (1 - MIN_GAIN)
            if table.time[row] < limit:
                found.append(self.fix(table, row))
        return tuple(found)


def _enough(fixes: Mapping[frozenset[str], Fix], asks: Collection[str]) -> bool:
    """Return True if one fix with one of these `asks_for_another` values follows practice and has little risk."""
    several = (one for one in fixes.values() if one.asks_for_another in asks)
    return any(one.practised and not one.risky for one in several)


def hint(model: Model, execution: Execution, system: System) -> str:
    """Return a sentence with changes that make an execution fit; empty if none of the tried changes does.

    This takes about a second. ``calculon why`` tries more changes.
    """
    near, broken = Neighborhood(model, execution, system), failures(model, execution, system)
    found = FixSearch(near, broken, thorough=False).fixes()
    # Prefer safe and usual fixes, but never drop the last ones.
    safe = [one for one in found if not one.risky] or found
    usual = [one for one in safe if one.practised] or safe
    texts = [str(one) for one in usual[:HINTED]]
    return f"it fits with {'; or with '.join(texts)}" if texts else ""


def _could_fit(near: Neighborhood) -> bool:
    """Return False if the weights alone exceed the memory of the most processors tried, including tier 2."""
    execution = near.execution
    machine = find_edition(execution.edition).machine(near.system)
    weights = parameter_count(near.model) * DATATYPE_BYTES[execution.datatype]
    return bool(weights <= execution.num_procs * TIMES_PROCESSORS[-1] * sum(machine.usable))
