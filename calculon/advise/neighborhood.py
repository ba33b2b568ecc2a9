"""Neighborhood of an execution: tables that combine changes of it, evaluated together."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from calculon.advise.neighbors import FieldChange
from calculon.advise.variations import Variations
from calculon.base.frozen import dataclass
from calculon.base.units import Array, Bytes, Seconds
from calculon.declarations.execution import Execution
from calculon.declarations.model import Model
from calculon.declarations.preset_file import NODE, OF_SEQUENCES, PRACTISED, SHARE, Practice
from calculon.declarations.presets import find_preset
from calculon.declarations.statistics import RISK
from calculon.editions import EDITIONS
from calculon.estimate.evaluate import evaluate_rows
from calculon.estimate.memory_limit import memory_codes
from calculon.hardware.system import System
from calculon.plan.plan import NAMES, Plan
from calculon.plan.rules.all_rules import MEMORY_REASONS, REASONS, check

AT_ONCE = 65_536
"""Rows of a table evaluated at once: the nearest ones, which come first, may be enough."""

DIGITS = 9
"""Decimals of distances that count: sums of logarithms have rounding errors."""

NOT_TRIED = -1
"""Code of a row that was skipped."""

MEMORY_CODES = tuple(REASONS.index(reason) for reason in MEMORY_REASONS)

_PRACTISED = tuple(name for name in (*PRACTISED, *OF_SEQUENCES) if name in NAMES)


@dataclass(frozen=True)
class Trials:
    """Table of executions, with the reasons why they cannot run.

    Attributes:
        codes: Reason why a row cannot run, as a code of :data:`~calculon.plan.rules.all_rules.REASONS`; 0 if it can.
        time: Seconds per step; NaN if it cannot run.
        memory (shape (2, rows)): Bytes needed in both tiers; NaN if rules forbid the row.
        uncertain: Mask of rows that can run, but are predicted to exceed tier-1 memory by less than the prediction
            error.
        fits: Probability that a row fits in tier-1 memory; NaN if unknown.
    """

    plan: Plan
    codes: Array
    time: Seconds
    memory: Bytes
    uncertain: Array
    fits: Array

    @property
    def legal(self) -> Array:
        """Mask of the rows that rules allow, regardless of memory."""
        mask: Array = np.isin(self.codes, (0, *MEMORY_CODES))
        return mask

    @property
    def runs(self) -> Array:
        """Mask of the rows that can run."""
        mask: Array = self.codes == 0
        return mask

    @property
    def risky(self) -> Array:
        """Mask of the rows whose risk of running out of memory exceeds that of recommended plans."""
        mask: Array = self.fits < 1 - RISK
        return mask


def trials(model: Model, system: System, plan: Plan, codes: Array | None = None) -> Trials:
    """Evaluate the memory of a table of executions, and the time of those that fit.

    Evaluating memory takes a fraction of the time of all statistics, and most neighbors of an execution that does not
    fit do not fit either.

    Args:
        codes: Result of the rules (:func:`~calculon.plan.rules.all_rules.check`), with :data:`NOT_TRIED` for rows to
            skip; by default all rows are checked and evaluated.
    """
    codes = check(model, system, plan) if codes is None else codes.copy()
    uncertain = np.zeros(len(plan), bool)
    memory, time, fits = (
        np.full(shape, np.nan) for shape in ((2, len(plan)), len(plan), len(plan))
    )
    # Rows may have different editions, each with its own cost model.
    for edition in EDITIONS.values():
        rows = np.flatnonzero((codes == 0) & plan.is_choice("edition", edition.name))
        for part, batch in evaluate_rows(model, system, plan.take(rows), edition):
            here, needed = rows[part], batch.capacity
            tiers = needed.proc_mem_tier1_cap_req, needed.proc_mem_tier2_cap_req
            for tier, size in enumerate(tiers):
                memory[tier, here] = size
            codes[here] = memory_codes(codes[here], batch)
            fits[here] = batch.risk.fits
            # Times are computed lazily: a batch in which nothing fits never computes them.
            runs = codes[here] == 0
            uncertain[here] = runs & (tiers[0] > batch.system.usable[0])
            if runs.any():
                time[here] = np.where(runs, batch.times.total_time, np.nan)
    return Trials(plan, codes, time, memory, uncertain, fits)


@dataclass(frozen=True)
class NeighborTable(Trials):
    """Table of neighbors with the same number of changes.

    Attributes:
        changes: Changes that are combined.
        choices (shape (rows, number)): Changes of each neighbor, as indices into `changes`.
        practised: Whether the degrees follow common practice of the framework.
    """

    changes: tuple[FieldChange, ...]
    choices: Array
    practised: Array

    @cached_property
    def distances(self) -> Array:
        """Sum of the distances of the changes of each neighbor."""
        return distances_of(self.changes, self.choices)

    @cached_property
    def sample_times(self) -> Seconds:
        """Seconds per sample, which makes different batches comparable."""
        result: Seconds = self.time / self.plan.batch_size
        return result

    @cached_property
    def real(self) -> Array:
        """Mask of the neighbors in which every changed field kept its new value."""
        good = np.ones(len(self.choices), bool)
        for number, change in enumerate(self.changes):
            # A change that others rule out is replaced by the value that follows; such rows
            # duplicate neighbors with fewer changes.
            if change.value is not None:
                rows = (self.choices == number).any(axis=1)
                good &= ~rows | (getattr(self.plan, change.field) == change.value)
        return good

    @cached_property
    def in_order(self) -> list[int]:
        """Rows that are predicted to fit, sorted by risk, practice, distance and time."""
        rows = np.flatnonzero(self.runs & ~self.uncertain & self.real)
        # Rounded, so that equal distances from different sums of logarithms tie.
        near = np.round(self.distances[rows], DIGITS)
        by = self.sample_times[rows], near, ~self.practised[rows], self.risky[rows]
        order: list[int] = rows[np.lexsort(by)].tolist()
        return order

    def fields(self, row: int) -> frozenset[str]:
        """Return the changed fields of a row."""
        return frozenset(self.changes[number].field for number in self.choices[row])

    def first_of_fields(self, rows: Sequence[int]) -> list[int]:
        """Return the first of some rows for each set of changed fields, in their order."""
        # Sorted field numbers identify a set of fields; `unique` returns the first row of each.
        fields = np.sort(_field_numbers(self.changes)[self.choices[rows]], axis=1)
        places = np.sort(np.unique(fields, axis=0, return_index=True)[1])
        return [rows[place] for place in places.tolist()]


class Neighborhood:
    """Evaluator of the neighbors of one execution.

    Args:
        model, execution, system: The execution may break rules.
        following: Fields that were not stated.

    Attributes:
        least_memory: Minimum bytes of tier 1 needed by any neighbor evaluated so far.
    """

    def __init__(
        self, model: Model, execution: Execution, system: System, following: Collection[str] = ()
    ):
        self.model, self.execution, self.system = model, execution, system
        self.variations = Variations(model, execution, following)
        self.least_memory = np.inf

    def table(self, changes: Sequence[FieldChange], choices: Array) -> Plan:
        """Return the neighbors that combine changes; each row of `choices` has the indices of its changes."""
        values: dict[str, tuple[Array, Array]] = {}
        followed: dict[str, Array] = {}
        fields = _field_numbers(changes)
        stated = np.array([one.value or 0 for one in changes], np.int64)
        free = np.array([one.value is None for one in changes], bool)
        for number, name in enumerate(dict.fromkeys(one.field for one in changes)):
            rows, places = np.nonzero(fields[choices] == number)  # at most one change of a field
            which = choices[rows, places]
            if free[which].any():
                followed[name] = rows[free[which]]
            if not free[which].all():
                values[name] = rows[~free[which]], stated[which[~free[which]]]
        return self.variations.table(len(choices), values, followed)

    def evaluate(
        self,
        changes: Sequence[FieldChange],
        choices: Array,
        plan: Plan | None = None,
        codes: Array | None = None,
    ) -> NeighborTable:
        """Evaluate the neighbors that combine changes.

        Args:
            changes, choices: As for :meth:`table`.
            plan, codes: Table and codes of its rows (:func:`trials`), if known.
        """
        plan = self.table(changes, choices) if plan is None else plan
        found = trials(self.model, self.system, plan, codes)
        practised = np.ones(len(choices), bool)
        for one in self._practice:
            practised &= np.asarray(one.that.value(self._degrees(plan).__getitem__), bool)
        self.least_memory = np.fmin(self.least_memory, np.fmin.reduce(found.memory[0]))
        return NeighborTable(
            *(plan, found.codes, found.time, found.memory, found.uncertain, found.fits),
            *(tuple(changes), choices, practised),
        )

    def evaluate_rows(self, rows: Sequence[Mapping[str, Any]]) -> Trials:
        """Evaluate neighbors, each given by its changed fields with values as in files."""
        return trials(self.model, self.system, self.variations.of_rows(rows))

    @cached_property
    def unchanged(self) -> NeighborTable:
        """The execution itself, as a table of one row."""
        return self.evaluate((), np.zeros((1, 0), np.int64))

    @cached_property
    def _practice(self) -> tuple[Practice, ...]:
        """Conditions of common practice of the framework that the execution itself meets."""
        known = self._degrees(Plan.of(self.execution))
        every = find_preset(self.execution.preset).practice
        return tuple(one for one in every if np.all(one.that.value(known.__getitem__)))

    def unusual(self, plan: Plan) -> tuple[str, ...]:
        """Return the conditions of practice that an execution violates."""
        known = self._degrees(plan)
        unmet = (one for one in self._practice if not np.all(one.that.value(known.__getitem__)))
        return tuple(one.that.text for one in unmet)

    def _degrees(self, plan: Plan) -> dict[str, Any]:
        """Return the values that conditions of practice may use."""
        length = np.where(plan.seq_length > 0, plan.seq_length, self.model.seq_size)
        known = {
            NODE: self.system.node,
            "num_experts": self.model.num_experts,
            SHARE: plan.num_procs / plan.batch_size,
            "seq_size": length,
        }
        return known | {name: getattr(plan, name) for name in _PRACTISED}


def _field_numbers(changes: Sequence[FieldChange]) -> Array:
    """Return a number for the field of each change; changes of the same field share it."""
    numbers = {name: n for n, name in enumerate(dict.fromkeys(one.field for one in changes))}
    return np.array([numbers[one.field] for one in changes], np.int64)


def distances_of(changes: Sequence[FieldChange], choices: Array) -> Array:
    """Return the sum of the distances of the changes of each neighbor."""
    result: Array = np.array([one.distance for one in changes])[choices].sum(axis=1)
    return result


def choices_of(changes: Sequence[FieldChange], size: int, needed: int) -> Array:
    """Return all combinations of `size` changes of different fields, nearest first.

    Args:
        needed: If nonzero, each combination contains exactly one of the first `needed` changes.
    """
    fields = _field_numbers(changes)
    found = subsets(fields, size - bool(needed), needed)
    if needed:
        first = np.repeat(np.arange(needed)[:, None], len(found), axis=0)
        found = np.concatenate([first, np.tile(found, (needed, 1))], axis=1)
        found = found[(fields[found[:, 1:]] != fields[found[:, :1]]).all(axis=1)]
    order = np.argsort(np.round(distances_of(changes, found), DIGITS), kind="stable")
    return found[order]


def subsets(fields: Array, size: int, start: int) -> Array:
    """Return all sets of `size` changes of different fields, from index `start` on: shape (sets, size)."""
    result = np.zeros((1, 0), np.int64)
    for _ in range(size):
        # Each set is extended by every later change, so that indices ascend and each set occurs
        # once. Vectorized: a hundred changes have 160,000 triples.
        last = result[:, -1] if result.shape[1] else np.full(1, start - 1)
        counts = len(fields) - 1 - last
        rows = np.repeat(np.arange(len(result)), counts)
        within = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        new = last[rows] + 1 + within
        apart = (fields[result[rows]] != fields[new][:, None]).all(axis=1)
        result = np.concatenate([result[rows], new[:, None]], axis=1)[apart]
    return result


def one_more(changes: Sequence[FieldChange], choices: Array) -> Array:
    """Return combinations with one more change of another field, each set of changes once."""
    fields = _field_numbers(changes)
    more = np.tile(np.arange(len(changes)), len(choices))[:, None]
    found = np.concatenate([np.repeat(choices, len(changes), axis=0), more], axis=1)
    apart = (fields[found[:, :-1]] != fields[found[:, -1:]]).all(axis=1)
    return np.unique(np.sort(found[apart], axis=1), axis=0)


def parts_of(choices: Array) -> Iterator[Array]:
    """Yield combinations in chunks of :data:`AT_ONCE`, nearest first."""
    for start in range(0, len(choices), AT_ONCE):
        yield choices[start : start + AT_ONCE]
