"""Possible changes of a plan, one field at a time, and their outcomes.

A changed field keeps its new value. If rules forbid the resulting plan, the layout of stages, the number of chunks
and the microbatch are adapted: the fastest legal combination is used. All fields and values are evaluated in one
table of executions.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import groupby
from math import prod
from typing import Any

import numpy as np

from calculon import inputs
from calculon.advise.answer import baseline_fields, baseline_layouts
from calculon.advise.ask import Question
from calculon.advise.neighborhood import Neighborhood, trials
from calculon.advise.neighbors import SWITCHES, single_changes
from calculon.base.errors import SpecError
from calculon.base.frozen import dataclass
from calculon.base.units import Array
from calculon.declarations.axes import FURTHER_DEGREES, PUBLISHED_DEGREES
from calculon.declarations.execution import Execution
from calculon.declarations.named_values import CORRECTED
from calculon.declarations.presets import filled
from calculon.plan.columns import DEFAULTS, FIELDS, divisors, field_of
from calculon.plan.mesh import DEGREES
from calculon.plan.plan import NAMES, Plan, all_fields
from calculon.plan.rules.all_rules import REASONS, check

_DEGREES = (*PUBLISHED_DEGREES, *FURTHER_DEGREES)
_NUMBERS = tuple(one.name for one in FIELDS if one.declaration.control and not one.named)
SIZES = (
    # The data-parallel degree follows from the other degrees.
    *(name for name in _DEGREES if name in _NUMBERS and name != "data_par"),
    *(name for name in _NUMBERS if name not in _DEGREES),
)
"""Numeric fields, in the order of the controls."""

LAYOUT = "pp_layout"
CHUNKS = "pipeline_interleaving"
MICROBATCH = "microbatch_size"

STATED = ("tensor_par", "pipeline_par", MICROBATCH, CHUNKS)
"""Fields that the user's plan always states."""

FOLLOWERS = (CHUNKS, MICROBATCH, LAYOUT)
"""Fields that are adapted if the plan would be illegal otherwise."""

Fields = Mapping[str, Any]


@dataclass(frozen=True)
class Choice:
    """Field of a plan with its possible values.

    Attributes:
        field: Name of the field.
        value: Current value, as files have it.
        values: Possible values, including the current one.
        usual: Default of the framework; None for sizes, which every plan states.
    """

    field: str
    value: Any
    values: tuple[Any, ...]
    usual: Any = None

    def neighbor(self, step: int) -> Any:
        """Return the next value (`step` 1) or the previous one (-1); None at the ends."""
        place = self.values.index(self.value) + step
        return self.values[place] if 0 <= place < len(self.values) else None


@dataclass(frozen=True)
class Outcome:
    """Outcome of changing some fields of a plan.

    Attributes:
        changes: The changed fields, with values as in files.
        fields: All fields of the resulting execution.
        follows: Adapted fields of :data:`FOLLOWERS`, with values before and after.
        reason: Identifier of the violated rule or exceeded memory; empty if the plan can run.
        time: Seconds of a step; NaN if the plan cannot run.
        memory: Needed bytes of both memory tiers.
        fits: Probability that it fits in tier-1 memory; NaN if unknown.
    """

    changes: Fields
    fields: Fields
    follows: Mapping[str, tuple[Any, Any]]
    reason: str
    time: float
    memory: tuple[float, float]
    fits: float


@dataclass(frozen=True, slots=True)
class _Attempt:
    """Plan that is tried for a change: the index of the change, and all fields that the plan states."""

    change: int
    stated: Fields


class Choices:
    """Possible changes of a plan.

    Args:
        question: The question, without the user's plan.
        fields: All fields of the execution to change; it may violate rules.
        stated: Fields that the plan states itself; the framework determines the others.
    """

    def __init__(self, question: Question, fields: Fields, stated: Fields):
        self.question, self.fields = question, fields
        known = {*question.preset.entries, *STATED}
        sizes = {name: fields[name] for name in SIZES if name in known}
        self.stated = {**sizes, **stated}

    @cached_property
    def _possible(self) -> dict[str, dict[Any, bool]]:
        """Other values of each field that divide evenly and exist in the framework; True if rules allow them directly.

        If the degrees of the plan do not match its processors, no size counts as allowed.
        """
        q, execution = self.question, Execution(**self.fields)
        near = Neighborhood(q.model, execution, q.system)
        broken = near.variations.broken
        changes = single_changes(q.model, execution, q.system, broken)
        plan = near.table(changes, np.arange(len(changes))[:, None])
        legal = (check(q.model, q.system, plan) == 0).tolist()
        divide = _numbers_of_chunks(q, self.fields)
        result: dict[str, dict[Any, bool]] = {}
        for change, good in zip(changes, legal, strict=True):
            name = change.field
            if change.value is None or name not in (*SIZES, *SWITCHES):
                continue
            named = field_of(name).declaration.choices
            value = named[change.value] if named else change.value
            if name != CHUNKS or value in divide:
                known = good and not (name in SIZES and broken)
                result.setdefault(name, {})[value] = known
        return result

    @cached_property
    def sizes(self) -> tuple[Choice, ...]:
        """Numeric fields with the values that rules allow, directly or with adapted fields."""
        several = {name: self._possible[name] for name in SIZES if name in self._possible}
        left = [
            {name: value} for name in several for value, good in several[name].items() if not good
        ]
        allowed = {name: {self.fields[name]} for name in several}
        for name, values in several.items():
            allowed[name].update(value for value, good in values.items() if good)
        for one in self._attempts(left, steps=1):
            for name, value in left[one.change].items():
                allowed[name].add(value)
        return tuple(
            Choice(name, self.fields[name], tuple(sorted(values)))
            for name, values in allowed.items()
        )

    @cached_property
    def switches(self) -> tuple[Choice, ...]:
        """Switches and named options with the values that the framework has."""
        usual = self.question.preset.usual(self.fields)
        found = []
        # A plan that violates a rule by itself makes every single change illegal: then offer all values.
        blind = not any(good for several in self._possible.values() for good in several.values())
        for name in SWITCHES:
            now = self.fields[name]
            allowed = {one for one, good in self._possible.get(name, {}).items() if good or blind}
            stated = name in self.stated and usual.get(name, now) != now
            if (allowed or stated) and not self._meaningless(name, self.fields):
                values = _ordered(name, {now, *allowed})
                found.append(Choice(name, now, values, _plain(usual.get(name, now))))
        return tuple(found)

    def singles(self) -> tuple[Outcome, ...]:
        """Return the outcome of each other value of each choice, except values that rules forbid."""
        asked = [
            {one.field: value}
            for one in (*self.sizes, *self.switches)
            for value in one.values
            if value != one.value
        ]
        return tuple(one for one in self.outcomes(asked) if one is not None)

    def outcomes(self, asked: Sequence[Fields]) -> tuple[Outcome | None, ...]:
        """Return the outcomes of some changes; None for a change that no adaptation makes legal."""
        attempts = self._attempts(asked)
        if not attempts:
            return (None,) * len(asked)
        q, plan = self.question, self._table([one.stated for one in attempts])
        tried = trials(q.model, q.system, plan)
        found: list[Outcome | None] = [None] * len(asked)
        numbered = enumerate(attempts)
        for change, several in groupby(numbered, lambda one: one[1].change):
            rows = [row for row, _ in several]
            running = [row for row in rows if tried.codes[row] == 0]
            best = (
                min(
                    running,
                    key=lambda row: (tried.risky[row], tried.uncertain[row], tried.time[row]),
                )
                if running
                else min(rows, key=lambda row: tried.memory[0, row])
            )
            fields = {one: plan.values(one)[best].item() for one in NAMES}
            found[change] = Outcome(
                changes=asked[change],
                fields=fields,
                follows=self._follows(asked[change], fields),
                reason=REASONS[tried.codes[best]],
                time=float(tried.time[best]),
                memory=(float(tried.memory[0, best]), float(tried.memory[1, best])),
                fits=float(tried.fits[best]),
            )
        return tuple(found)

    def _follows(self, changed: Fields, fields: Fields) -> dict[str, tuple[Any, Any]]:
        """Return the adapted fields, with old and new values."""
        return {
            name: (self.fields[name], fields[name])
            for name in FOLLOWERS
            if name not in changed and fields[name] != self.fields[name]
        }

    def _attempts(self, asked: Sequence[Fields], steps: int = 2) -> list[_Attempt]:
        """Return the legal plans for each change that adapt as little as possible.

        With two steps, adapted plans are only tried for changes that are illegal by themselves; with one, together.
        """
        changed = {
            number: stated
            for number, one in enumerate(asked)
            if _divides(self.question, stated := self._changed(one), one)
        }
        found: list[_Attempt] = []
        ranks = range(_RANKS)
        for part in (ranks[:1], ranks[1:]) if steps > 1 else (ranks,):
            tried = [
                (rank, _Attempt(number, row))
                for number, stated in changed.items()
                for rank in part
                for row in _followed(self.question, stated, asked[number], rank)
            ]
            if not tried:
                break
            plan = self._table([one.stated for _, one in tried])
            good = check(self.question.model, self.question.system, plan) == 0
            least: dict[int, int] = {}
            for row in np.flatnonzero(good).tolist():
                rank, one = tried[row]
                if least.setdefault(one.change, rank) == rank:
                    found.append(one)
            changed = {number: one for number, one in changed.items() if number not in least}
        return sorted(found, key=lambda one: one.change)

    def _changed(self, changes: Fields) -> dict[str, Any]:
        """Return the stated fields after some changes, without fields that these make meaningless."""
        stated = {**self.stated, **changes}
        if "data_par" not in changes and not changes.keys().isdisjoint(DEGREES):
            stated.pop("data_par", None)  # derived from the other degrees
        whole = {**self.fields, **stated}
        for one in self.stated:
            if one not in changes and self._meaningless(one, whole):
                stated[one] = whole[one] = DEFAULTS[one]
        return stated

    @staticmethod
    def _meaningless(name: str, fields: Fields) -> bool:
        """Return True if other fields force an optional field to its default."""
        declared = field_of(name).declaration
        return declared.optional and any(
            fields[other] not in wanted for other, wanted in declared.needs.items()
        )

    def _table(self, rows: Sequence[Fields]) -> Plan:
        """Return plans as a table, with unstated fields filled in by the framework."""
        parts: dict[tuple[str, ...], list[int]] = {}
        whole = [baseline_fields(self.question, row) for row in rows]
        # Rows that state the same fields are filled in together, since columns must have one meaning.
        for number, row in enumerate(whole):
            parts.setdefault(tuple(row), []).append(number)
        tables = []
        for names, numbers in parts.items():
            columns = {name: np.array([whole[n][name] for n in numbers]) for name in names}
            given, _ = filled(
                columns, CORRECTED, self.question.framework, model=self.question.model
            )
            tables.append(Plan.from_columns(given))
        # Stable sort: restores the order of the rows after grouping.
        order = np.argsort([n for numbers in parts.values() for n in numbers], kind="stable")
        return (Plan.concatenate(tables) if len(tables) > 1 else tables[0]).take(order)


def choices(question: Question, fields: Fields, stated: Fields) -> Choices | None:
    """Return the possible changes of a plan; None if too few of its fields are readable.

    Args:
        question, stated: As in :class:`Choices`.
        fields: The known fields of the plan.
    """
    if any(name not in fields for name in NAMES):
        try:
            given = baseline_fields(question, stated)
            read = inputs.readable_execution(given, edition=CORRECTED, preset=question.framework)
        except SpecError:
            return None
        fields = all_fields(read.resolved.execution)
        stated = {name: value for name, value in stated.items() if name not in read.unread}
        fields = {**fields, **stated}
    return Choices(question, fields, stated)


def _divides(question: Question, stated: Fields, changes: Fields) -> bool:
    """Return True if degrees divide the processors, replicas the batch, and a new microbatch the replica's batch."""
    batch, size = _replica_batch(question, stated), changes.get(MICROBATCH, 1)
    return bool(batch and isinstance(size, int) and size > 0 and batch % size == 0)


def _replica_batch(question: Question, stated: Fields) -> int:
    """Return the sequences per replica; 0 if degrees or replicas do not divide evenly."""
    degrees = [
        baseline_fields(question, stated).get(name, 1) for name in DEGREES if name != "data_par"
    ]
    if not all(isinstance(one, int) and one > 0 for one in degrees):
        return 0
    replicas, rest = divmod(question.num_procs[0], prod(degrees))
    if rest or not replicas or question.batch_size % replicas:
        return 0
    return int(question.batch_size // replicas)


_RANKS = 5


def _followed(question: Question, stated: Fields, changed: Fields, rank: int) -> Iterator[Fields]:
    """Yield a plan with possible adaptations to a change; higher ranks adapt more.

    Rank 0 adapts nothing, 1 the layout of stages, 2 the number of chunks, 3 both, and 4 the microbatch with and
    without the number of chunks.
    """

    def chunked(row: Fields) -> list[Fields]:
        numbers = () if CHUNKS in changed else _numbers_of_chunks(question, stated)
        return [{**row, CHUNKS: chunks} for chunks in numbers]

    rows = [stated] if rank < 2 else chunked(stated)
    if rank == 4:
        sizes = () if MICROBATCH in changed else divisors(_replica_batch(question, stated))
        sized = [{**stated, MICROBATCH: size} for size in sizes]
        rows = [one for row in sized for one in (row, *chunked(row))]
    for row in rows:
        yield from _with_layouts(question, row, first=rank not in (1, 3))


def _with_layouts(question: Question, stated: Fields, *, first: bool = False) -> Iterable[Fields]:
    """Return a plan with each possible layout of stages, unless it states one."""
    layouts = () if LAYOUT in stated else baseline_layouts(question.preset)
    if not layouts:
        return [stated]
    return [{**stated, LAYOUT: one} for one in layouts[: 1 if first else None]]


def _numbers_of_chunks(question: Question, stated: Fields) -> Collection[int]:
    """Return the possible numbers of chunks per stage: divisors of the blocks per stage."""
    stages = stated.get("pipeline_par", 1)
    if not isinstance(stages, int) or not 1 < stages <= question.model.num_blocks:
        return (1,)
    return divisors(-(-question.model.num_blocks // stages))


def _ordered(name: str, values: Collection[Any]) -> tuple[Any, ...]:
    """Return values of a field in the order of their declaration."""
    named: Array | Sequence[Any] = [*field_of(name).declaration.choices] or sorted(values)
    return tuple(one for one in named if one in values)


def _plain(value: Any) -> Any:
    """Return a value as in files: presets compute some values as arrays."""
    return value.item() if isinstance(value, np.generic) else value
