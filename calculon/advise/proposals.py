"""What would make an execution run: the fewest changes after which it does."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from calculon.advise.combinations import (
    DIGITS,
    Tried,
    choices_of,
    firsts,
    in_order,
    parts_of,
    table_of,
)
from calculon.advise.in_words import figures, gib
from calculon.advise.moves import (
    QUESTION,
    SWITCHES,
    TIMES_PROCESSORS,
    Move,
    fields_of,
    moves,
    of_batch,
    of_larger_split,
    of_processors,
)
from calculon.advise.repair import repaired
from calculon.advise.trials import NOT_TRIED, Trials, trials
from calculon.advise.variations import Variations
from calculon.architecture.parameters import parameter_count
from calculon.base.frozen import dataclass
from calculon.base.units import Array
from calculon.declarations.execution import Execution
from calculon.declarations.model import Model
from calculon.declarations.named_values import DATATYPE_BYTES
from calculon.declarations.presets import (
    NODE,
    OF_SEQUENCES,
    PRACTISED,
    Practice,
    find_preset,
    plain,
)
from calculon.editions import find_edition
from calculon.estimate.estimate import Estimate, estimate
from calculon.hardware.system import System
from calculon.plan.plan import NAMES, Plan
from calculon.plan.rules.all_rules import check
from calculon.plan.rules.failures import Failure, failures

MOST_CHANGES = 3
"""Changes that are tried together."""

MOST_TRIED = 100_000
"""Variations of one number of changes that are tried, the nearest ones."""

MOST_HINTED = 1_000
"""The same for a hint, which is part of an error message and must come at once."""

SHOWN, HINTED = 5, 3

_PRACTISED = tuple(name for name in (*PRACTISED, *OF_SEQUENCES) if name in NAMES)

MOST_VALUES = 2
"""Values of a switch that are tried beside two other changes."""


@dataclass(frozen=True)
class Proposal:
    """An execution that runs, next to one that does not.

    Attributes:
        changes: The fields that are changed, with their values.
        follows: The fields that follow from them.
        distance: Sum over the changes: the binary logarithm of the ratio of two numbers, 1 for anything else.
        total_time: Seconds of a step.
        memory: Bytes that are needed of both tiers.
        unusual: Conditions of practice that its degrees do not meet: what people keep to who run the framework.
        execution: All of its fields.
        longer: Relative difference of the time of a sample: to the fastest of the proposals that it is one of, or to
            the execution itself where that runs.
    """

    model: Model
    system: System
    changes: Mapping[str, Any]
    follows: Mapping[str, Any]
    distance: float
    total_time: float
    memory: tuple[float, float]
    unusual: tuple[str, ...]
    execution: Execution
    longer: float | None = None

    @property
    def count(self) -> int:
        """Number of changes."""
        return len(self.changes)

    @property
    def sample_time(self) -> float:
        """Seconds of a sample: other batches compare by it."""
        return self.total_time / self.execution.batch_size

    @property
    def order(self) -> tuple[int, bool, float, float]:
        """Order among those of the same question: number of changes, practice, distance, and time of a sample."""
        return self.count, not self.practised, round(self.distance, DIGITS), self.sample_time

    @property
    def practised(self) -> bool:
        """Whether its degrees are as people choose them who run the framework."""
        return not self.unusual

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
            "count": self.count,
            "distance": self.distance,
            "total_time": self.total_time,
            "proc_mem_tier1_cap_req": self.memory[0],
            "proc_mem_tier2_cap_req": self.memory[1],
            "unusual": list(self.unusual),
            "asks_for_another": self.asks_for_another,
            "execution": self.execution.to_dict(),
            "longer": self.longer,
        }

    def __repr__(self) -> str:
        text = ", ".join(f"{name}={plain(value)}" for name, value in self.changes.items())
        return f"<Proposal {text}: {gib(self.memory[0])}, {self.total_time:.4g} s>"

    def __str__(self) -> str:
        fields = {**self.changes, **self._processors}
        text = ", ".join(f"{name}={plain(value)}" for name, value in fields.items())
        return f"{text} ({figures(self.found)})"

    @property
    def _processors(self) -> Mapping[str, Any]:
        """The replicas, where they follow: who states a split states them, too."""
        return {name: value for name, value in self.follows.items() if name == "data_par"}


class Changes:
    """The changes of one execution, tried in tables.

    Args:
        model, execution, system: The execution, and what it is an execution of.
        broken: The rules that it breaks.
        following: Fields that nobody stated.
        thorough: Also try repairs of four and more changes, and many combinations of three.
    """

    def __init__(
        self,
        model: Model,
        execution: Execution,
        system: System,
        broken: Sequence[Failure] = (),
        following: Collection[str] = (),
        *,
        thorough: bool = True,
    ):
        self.thorough = thorough
        # A model with experts has more choices of a block, each of which is costed by itself: one change at a time.
        self.singly = not thorough and model.has_experts
        self._least_memory = np.inf
        self.model, self.execution, self.system = model, execution, system
        self.variations = Variations(model, execution, following)
        named = dict.fromkeys(name for failure in broken for name in failure.fields)
        self.moves = moves(model, execution, system, self.variations, tuple(named))
        self.broken = tuple(broken)
        self._as_it_is = None if broken else self.tried((), np.zeros((1, 0), np.int64)).trials

    def tried(self, moved: Sequence[Move], choices: Array) -> Tried:
        """Try a table of variations, each of several moves by their number."""
        plan = table_of(self.variations, moved, choices)
        return self._tried(moved, choices, plan, trials(self.model, self.system, plan))

    def _tried(self, moved: Sequence[Move], choices: Array, plan: Plan, found: Trials) -> Tried:
        practised = np.ones(len(plan), bool)
        for one in self._practice:
            practised &= np.asarray(one.that.value(self._degrees(plan).__getitem__), bool)
        self._least_memory = np.fmin(self._least_memory, np.fmin.reduce(found.memory[0]))
        return Tried(tuple(moved), choices, plan, found, practised)

    @cached_property
    def _practice(self) -> tuple[Practice, ...]:
        """What people keep to, in all that the execution keeps to, too."""
        known = self._degrees(Plan.of(self.execution))
        every = find_preset(self.execution.preset).practice
        return tuple(one for one in every if np.all(one.that.value(known.__getitem__)))

    def _unusual(self, plan: Plan) -> tuple[str, ...]:
        """Return the conditions of practice that a variation does not meet."""
        known = self._degrees(plan)
        unmet = (one for one in self._practice if not np.all(one.that.value(known.__getitem__)))
        return tuple(one.that.text for one in unmet)

    def _degrees(self, plan: Plan) -> dict[str, Any]:
        """Return what conditions of practice may read."""
        length = np.where(plan.seq_length > 0, plan.seq_length, self.model.seq_size)
        known = {NODE: self.system.node, "seq_size": length}
        return known | {name: getattr(plan, name) for name in _PRACTISED}

    @cached_property
    def single(self) -> Tried:
        """The variations with one change."""
        return self.tried(self.moves, np.arange(len(self.moves))[:, None])

    @cached_property
    def _pair_codes(self) -> tuple[Array, Plan, Array]:
        """All pairs of changes, as a table, and what rules say of them."""
        choices = choices_of(self.moves, 2, 0)
        plan = table_of(self.variations, self.moves, choices)
        return choices, plan, check(self.model, self.system, plan)

    @cached_property
    def pairs(self) -> Tried:
        """The variations with two changes, those left out that need no less memory than with one of the two."""
        choices, plan, codes = self._pair_codes
        legal = self.single.trials.legal
        spared = (self._idle[choices] & legal[choices[:, ::-1]]).any(axis=1)
        found = trials(
            self.model, self.system, plan, np.where(spared & (codes == 0), NOT_TRIED, codes)
        )
        return self._tried(self.moves, choices, plan, found)

    def triples(self) -> Iterator[Tried]:
        """Yield the variations with three changes, the nearest first.

        Left out are the same as of pairs, and, where it is memory that lacks, values of a switch that free less than
        others.
        """
        pairs, _, codes = self._pair_codes
        legal = np.zeros((len(self.moves), len(self.moves)), bool)
        legal[pairs[:, 0], pairs[:, 1]] = legal[pairs[:, 1], pairs[:, 0]] = codes == 0
        choices = choices_of(self.moves, 3, 0)
        a, b, c = choices.T
        idle = self._idle
        spared = (idle[a] & legal[b, c]) | (idle[b] & legal[a, c]) | (idle[c] & legal[a, b])
        if self._as_it_is is not None:
            spared |= self._lesser[choices].any(axis=1)
        most = MOST_TRIED if self.thorough else MOST_HINTED
        for part in parts_of(choices[~spared][:most]):
            yield self.tried(self.moves, part)

    @cached_property
    def _idle(self) -> Array:
        """Mask of the moves of switches that rules allow, and that by themselves save neither memory nor time.

        Without effect by themselves are some that have one beside others: they are tried.
        """
        if self._as_it_is is None:
            return np.zeros(len(self.moves), bool)
        found, now = self.single.trials, self._as_it_is
        no_less = (found.memory >= now.memory).all(axis=0) & ~(found.time < now.time)
        return self._switched & found.legal & self.single.real & no_less

    @cached_property
    def _switched(self) -> Array:
        """Mask of the moves of switches."""
        return np.array([one.field in SWITCHES for one in self.moves])

    @cached_property
    def _lesser(self) -> Array:
        """Mask of the moves of switches that by themselves free less memory than some others of the same field."""
        memory = np.where(self.single.trials.legal, self.single.trials.memory[0], -np.inf)
        least: dict[str, list[int]] = {}
        for number in np.argsort(memory, kind="stable").tolist():
            if self._switched[number] and np.isfinite(memory[number]):
                least.setdefault(self.moves[number].field, []).append(number)
        lesser = np.zeros(len(self.moves), bool)
        for numbers in least.values():
            lesser[numbers[MOST_VALUES:]] = True
        return lesser

    def proposals(self, most: int = SHOWN) -> tuple[Proposal, ...]:
        """Return the variations that run with the fewest changes, at most one for each set of changed fields.

        Those on the same processors with the same batch first, then another batch, then other processors; by the number
        of changes, their distance, and time. Three changes are tried where fewer do not do. Where a broken rule names
        the batch, the last is another batch, if that does with fewer. Where one is about the number of processors,
        another number is a change like any other; changes without it are told beside it, however many they are.
        """
        if not _could_fit(self.model, self.execution, self.system):
            return ()
        found: dict[frozenset[str], Proposal] = {}
        for tables, asks in ((self._few(), ()), (self._several(), ("",))):
            if not _enough(found, asks):
                self._add(found, tables, asks, most)
        by = dict(sorted(found.items(), key=lambda item: item[1].order))
        if not _enough(by, ("", *QUESTION)):
            self._add(by, self._elsewhere(), ("", *QUESTION), most)
        shown = [*by.values()]
        batch = [*self._with_batch(shown)] if most > 1 else []
        if batch and len(shown) == most:
            del shown[-2]  # the last may be the fastest
        return (*shown, *batch)

    def _add(
        self,
        found: dict[frozenset[str], Proposal],
        tables: Iterator[Tried],
        asks: Collection[str],
        most: int,
    ) -> None:
        """Add the variations that run of tables, one for each set of fields, until they are enough or so many.

        Where a table has more than there are places for, the fastest of its practised ones has the last.
        """
        while len(found) < most and (tried := next(tables, None)) is not None:
            sets: dict[frozenset[str], int] = {}
            for row in firsts(tried, in_order(tried)):
                fields = frozenset(tried.moves[number].field for number in tried.choices[row])
                needless = (fields > fewer and one.practised for fewer, one in found.items())
                if fields not in found and not any(needless):
                    sets[fields] = row
            places = most - len(found)
            chosen = [*sets][:places]
            usual = [fields for fields, row in sets.items() if tried.practised[row]]
            if len(sets) > places > 1 and usual:
                fastest = min(usual, key=lambda fields: tried.paces[sets[fields]])
                chosen = chosen if fastest in chosen else [*chosen[:-1], fastest]
            found |= {fields: self.proposal(tried, sets[fields]) for fields in chosen}
            if _enough(found, asks):
                return

    def _with_batch(self, found: Sequence[Proposal]) -> Iterator[Proposal]:
        """Yield another batch that does with fewer changes, where a broken rule names the batch."""
        named = any("batch_size" in one.fields for one in self.broken)
        if not named or not found or found[0].asks_for_another:
            return
        for tried in self._batches(min(len(found[0].changes), MOST_CHANGES) - 1):
            for row in in_order(tried)[:1]:
                yield self.proposal(tried, row)
                return

    def _batches(self, most: int) -> Iterator[Tried]:
        """Yield the variations of another batch with so many changes at most."""
        batches = of_batch(self.execution)
        for size in range(1, most + 1):
            moved = (*batches, *self.moves)
            yield self.tried(moved, choices_of(moved, size, len(batches)))

    def _few(self) -> Iterator[Tried]:
        """Yield the variations of one change and of two; on other processors, too, where a rule asks for them."""
        yield self.single
        if self._ask_for_processors:
            yield self._on_other_processors(1)
        if self.singly:
            return
        yield self.pairs
        if self._ask_for_processors:
            yield self._on_other_processors(2)

    def _several(self) -> Iterator[Tried]:
        """Yield the variations of more changes on the same processors with the same batch."""
        if self.singly:
            return
        yield from self.triples()
        if self.thorough:
            yield from repaired(self, self.moves, self.pairs)

    def _elsewhere(self) -> Iterator[Tried]:
        """Yield the variations of another batch, then of other processors."""
        yield from self._batches(1 if self.singly else MOST_CHANGES - 1)
        if not self._ask_for_processors:
            yield self._on_other_processors(1)
            if not self.singly:
                yield self._on_other_processors(2)
        usable, _ = find_edition(self.execution.edition).machine(self.system).usable
        for move in self._other_processors if self.thorough else ():
            times = max(1, move.value // self.execution.num_procs)
            # Repairs are slow, and `times` as many processors divide memory by about as much.
            if self._least_memory > 2 * times * usable:
                continue
            split = of_larger_split(self.model, self.execution, times)
            moved = (move, *dict.fromkeys((*split, *self.moves)))
            first = self.tried(moved, np.zeros((1, 1), np.int64))
            yield first
            yield from repaired(self, moved, first)

    @property
    def _ask_for_processors(self) -> bool:
        """Whether a broken rule is about the number of processors."""
        return any(one.fields[:1] == ("num_procs",) for one in self.broken)

    @cached_property
    def _other_processors(self) -> tuple[Move, ...]:
        return of_processors(self.execution, fewer=not self.broken)

    def _on_other_processors(self, changes: int) -> Tried:
        """Return the variations with another number of processors and, with two changes, one beside it."""
        numbers = self._other_processors
        split = of_larger_split(self.model, self.execution, TIMES_PROCESSORS[-1])
        beside = (one for one in (*split, *self.moves) if one.field != "num_procs")
        moved = (*numbers, *dict.fromkeys(beside))
        return self.tried(moved, choices_of(moved, changes, len(numbers)))

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
            total_time=float(tried.trials.time[row]),
            memory=(float(tried.trials.memory[0, row]), float(tried.trials.memory[1, row])),
            unusual=() if tried.practised[row] else self._unusual(tried.plan.take([row])),
            execution=execution,
        )


def _enough(found: Mapping[frozenset[str], Proposal], asks: Collection[str]) -> bool:
    """Whether one of the proposals keeps to practice, of those that ask for nothing else but this."""
    return any(one.practised and one.asks_for_another in asks for one in found.values())


def hint(model: Model, execution: Execution, system: System) -> str:
    """Return a sentence with changes that make an execution fit; empty if none of those tried does.

    It takes about a second. ``calculon why`` tries more changes.
    """
    broken = failures(model, execution, system)
    changes = Changes(model, execution, system, broken, thorough=False)
    found = changes.proposals()
    usual = [one for one in found if one.practised] or found
    texts = [str(one) for one in usual[:HINTED]]
    return f"it fits with {'; or with '.join(texts)}" if texts else ""


def _could_fit(model: Model, execution: Execution, system: System) -> bool:
    """Return whether weights fit if they are split over the most processors that are tried, and offloaded."""
    machine = find_edition(execution.edition).machine(system)
    weights = parameter_count(model) * DATATYPE_BYTES[execution.datatype]
    return bool(weights <= execution.num_procs * TIMES_PROCESSORS[-1] * sum(machine.usable))
