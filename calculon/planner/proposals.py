"""What would make an execution run: the fewest changes after which it does."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from calculon.estimate import Estimate, estimate
from calculon.frozen import dataclass
from calculon.hardware.system import System
from calculon.plan.plan import NAMES, Plan
from calculon.plan.rules.failures import Failure, failures
from calculon.planner.in_words import figures
from calculon.planner.moves import (
    QUESTION,
    Move,
    fields_of,
    moves,
    of_batch,
    of_larger_split,
    of_processors,
)
from calculon.planner.trials import Trials, trials
from calculon.planner.variations import Variations
from calculon.presets import plain
from calculon.spec.execution import Execution
from calculon.spec.model import Model
from calculon.units import Array

MOST_CHANGES = 3
"""Changes that are tried together."""

MOST_TRIED = 100_000
"""Variations of one number of changes that are tried, the nearest ones."""

AT_ONCE = 16_384
"""Of more, so many are tried at a time: the nearest may do."""

SHOWN, HINTED = 5, 3


@dataclass(frozen=True)
class Proposal:
    """An execution that runs, next to one that does not.

    Attributes
    ----------
    changes : mapping
        The fields that are changed, with their values.
    follows : mapping
        The fields that follow from them.
    distance : float
        Sum over the changes: the binary logarithm of the ratio of two numbers, 1 for anything else.
    time : float
        Seconds of a step.
    memory : tuple of float
        Bytes that are needed of both tiers.
    execution : Execution
        All of its fields.
    """

    model: Model
    system: System
    changes: Mapping[str, Any]
    follows: Mapping[str, Any]
    distance: float
    time: float
    memory: tuple[float, float]
    execution: Execution

    @property
    def asks_for_another(self) -> str:
        """The field of the question itself that it changes: ``batch_size`` or ``num_procs``; empty where none."""
        return next((name for name in QUESTION if name in self.changes), "")

    @cached_property
    def found(self) -> Estimate:
        """Its estimate."""
        return estimate(self.model, self.execution, self.system)

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "changes": dict(self.changes),
            "follows": dict(self.follows),
            "count": len(self.changes),
            "distance": self.distance,
            "total_time": self.time,
            "proc_mem_tier1_cap_req": self.memory[0],
            "proc_mem_tier2_cap_req": self.memory[1],
            "execution": self.execution.to_dict(),
        }

    def __str__(self) -> str:
        fields = {**self.changes, **self._processors}
        text = ", ".join(f"{name}={plain(value)}" for name, value in fields.items())
        return f"{text} ({figures(self.found)})"

    @property
    def _processors(self) -> Mapping[str, Any]:
        """The replicas, where they follow: who states a split states them, too."""
        return {name: value for name, value in self.follows.items() if name == "data_par"}


@dataclass(frozen=True)
class Tried:
    """A table of variations, each with the same number of changes.

    Attributes
    ----------
    moves : tuple of Move
        Those that they are made of.
    choices : array of int, shape (rows, changes)
        The moves of each variation.
    """

    moves: tuple[Move, ...]
    choices: Array
    plan: Plan
    trials: Trials

    @cached_property
    def distances(self) -> Array:
        """The sum of the distances of the moves of each variation."""
        return _distances(self.moves, self.choices)

    @cached_property
    def real(self) -> Array:
        """Mask of the variations in which every changed field has the value that it was changed to."""
        good = np.ones(len(self.choices), bool)
        for number, move in enumerate(self.moves):
            if move.value is not None:
                rows = (self.choices == number).any(axis=1)
                good &= ~rows | (getattr(self.plan, move.field) == move.value)
        return good


class Changes:
    """The changes of one execution, tried in tables.

    Parameters
    ----------
    model, execution, system
        The execution, and what it is an execution of.
    broken : sequence of Failure
        The rules that it breaks.
    """

    def __init__(
        self,
        model: Model,
        execution: Execution,
        system: System,
        broken: Sequence[Failure] = (),
    ):
        self.model, self.execution, self.system = model, execution, system
        self.variations = Variations(model, execution)
        named = dict.fromkeys(name for failure in broken for name in failure.fields)
        self.moves = moves(model, execution, system, self.variations, tuple(named))
        self.reasons = tuple(failure.reason for failure in broken)

    def tried(self, moved: Sequence[Move], choices: Array, *, timed: bool = True) -> Tried:
        """Try a table of variations, each of several moves by their number."""
        plan = _table(self.variations, moved, choices)
        found = trials(self.model, self.system, plan, timed=timed)
        return Tried(tuple(moved), choices, plan, found)

    def proposals(self, most: int = SHOWN, *, nearest: bool = False) -> tuple[Proposal, ...]:
        """Return the variations that run with the fewest changes, at most one for each set of changed fields.

        Those on the same processors with the same batch first, then another batch, then other processors; by the number
        of changes, their distance, and time.

        Parameters
        ----------
        most : int
            How many at most.
        nearest : bool
            Only those with the fewest changes.
        """
        found: dict[frozenset[str], Proposal] = {}
        for moved, size in self._levels():
            if found and (nearest or len(found) >= most):
                break
            for one in self._running(moved, size, most - len(found), [*found]):
                found.setdefault(frozenset(one.changes), one)
            if any(one.asks_for_another for one in found.values()):
                break
        return tuple(found.values())[:most]

    def _levels(self) -> Iterator[tuple[tuple[Sequence[Move], Sequence[Move]], int]]:
        """Yield what may be combined: moves that are needed, others, and how many of all; nearest first.

        Another batch, or other processors, are the last resort.
        """
        for size in range(1, MOST_CHANGES + 1):
            yield ((), self.moves), size
        for size in range(1, MOST_CHANGES):
            yield (of_batch(self.execution), self.moves), size
        fits = not self.reasons
        for move in of_processors(self.execution, fewer=not fits):
            times = move.value // self.execution.num_procs
            split = of_larger_split(self.model, self.execution, max(times, 1))
            others = split if fits else (*self.moves, *split)
            for size in range(1, 5 if fits else 3):
                yield ((move,), tuple(dict.fromkeys(others))), size

    def _running(
        self,
        moved: tuple[Sequence[Move], Sequence[Move]],
        size: int,
        most: int,
        known: Sequence[frozenset[str]],
    ) -> tuple[Proposal, ...]:
        """Return the variations of so many changes that run, without those that have more than known ones need."""
        first, others = moved
        every = (*first, *others)
        choices = _choices(every, size, len(first), known)
        found: dict[frozenset[str], Proposal] = {}
        for part in _parts(choices):
            tried = self.tried(every, part)
            for row in _order(tried):
                fields = frozenset(every[number].field for number in tried.choices[row])
                if fields not in found:
                    found[fields] = self.proposal(tried, row)
                if len(found) == most:
                    return tuple(found.values())
        return tuple(found.values())

    def proposal(self, tried: Tried, row: int) -> Proposal:
        """Return a variation as a proposal."""
        execution = tried.plan.row(row)
        now = self.execution
        changed = {n: v for n in NAMES if (v := getattr(execution, n)) != getattr(now, n)}
        asked = fields_of([tried.moves[number] for number in tried.choices[row]])
        return Proposal(
            model=self.model,
            system=self.system,
            changes={name: changed[name] for name in asked},
            follows={name: value for name, value in changed.items() if name not in asked},
            distance=float(tried.distances[row]),
            time=float(tried.trials.time[row]),
            memory=(float(tried.trials.memory[0, row]), float(tried.trials.memory[1, row])),
            execution=execution,
        )


def hint(model: Model, execution: Execution, system: System) -> str:
    """Say in a sentence what would make an execution fit; nothing where no change of those tried does."""
    broken = failures(model, execution, system)
    changes = Changes(model, execution, system, broken)
    found = [str(one) for one in changes.proposals(HINTED, nearest=True)]
    return f"it fits with {'; or with '.join(found)}" if found else ""


def _table(variations: Variations, moved: Sequence[Move], choices: Array) -> Plan:
    """Return the table of variations that combine moves."""
    changes: dict[str, tuple[Array, Array]] = {}
    followed: dict[str, Array] = {}
    fields, values = _fields(moved), np.array([one.value or 0 for one in moved], np.int64)
    free = np.array([one.value is None for one in moved], bool)
    for number, name in enumerate(dict.fromkeys(one.field for one in moved)):
        rows, places = np.nonzero(fields[choices] == number)  # at most one change of a field
        which = choices[rows, places]
        if free[which].any():
            followed[name] = rows[free[which]]
        if not free[which].all():
            stated = ~free[which]
            changes[name] = rows[stated], values[which[stated]]
    return variations.table(len(choices), changes, followed)


def _fields(moved: Sequence[Move]) -> Array:
    """Return a number for the field of each move, alike for moves of the same."""
    numbers = {name: n for n, name in enumerate(dict.fromkeys(one.field for one in moved))}
    return np.array([numbers[one.field] for one in moved], np.int64)


def _distances(moved: Sequence[Move], choices: Array) -> Array:
    found: Array = np.array([one.distance for one in moved])[choices].sum(axis=1)
    return found


def _choices(
    moved: Sequence[Move], size: int, needed: int, known: Iterable[frozenset[str]]
) -> Array:
    """Return the moves of all variations of so many changes of different fields, the nearest first.

    Parameters
    ----------
    needed : int
        Each has one of so many first moves; 0: any.
    known : iterable of set of str
        Fields of which no variation changes all.
    """
    fields = _fields(moved)
    if needed:
        first, rest = np.arange(needed)[:, None], _subsets(fields, size - 1, needed)
        pairs = np.repeat(first, len(rest), axis=0), np.tile(rest, (needed, 1))
        found = np.concatenate(pairs, axis=1)
        found = found[(fields[found[:, 1:]] != fields[found[:, :1]]).all(axis=1)]
    else:
        found = _subsets(fields, size, 0)
    names = [one.field for one in moved]
    for several in known:
        has = [np.isin(found, [n for n, one in enumerate(names) if one == name]) for name in several]
        found = found[~np.logical_and.reduce([one.any(axis=1) for one in has])]
    order = np.argsort(np.round(_distances(moved, found), _DIGITS), kind="stable")
    return found[order[:MOST_TRIED]]


_DIGITS = 9
"""Digits of distances that count: sums of logarithms are rounded."""


def _subsets(fields: Array, size: int, start: int) -> Array:
    """Return all sets of so many moves of different fields, from one on: shape (sets, size)."""
    found = np.zeros((1, 0), np.int64)
    for _ in range(size):
        last = found[:, -1] if found.shape[1] else np.full(1, start - 1)
        counts = len(fields) - 1 - last
        rows = np.repeat(np.arange(len(found)), counts)
        within = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        new = last[rows] + 1 + within
        apart = (fields[found[rows]] != fields[new][:, None]).all(axis=1)
        found = np.concatenate([found[rows], new[:, None]], axis=1)[apart]
    return found


def _parts(choices: Array) -> Iterator[Array]:
    """Yield variations as they are tried: all together where they are few, else the nearest first."""
    for start in range(0, len(choices), AT_ONCE):
        yield choices[start : start + AT_ONCE]


def _order(tried: Tried) -> list[int]:
    """Return the variations that run, the nearest first, the faster of equally near ones before the other."""
    rows = np.flatnonzero(tried.trials.runs & tried.real)
    near = np.round(tried.distances[rows], _DIGITS)
    order: list[int] = rows[np.lexsort((tried.trials.time[rows], near))].tolist()
    return order
