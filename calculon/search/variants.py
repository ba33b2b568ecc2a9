"""The variants of a search: combinations of the loops that do not depend on degrees, as a table.

A variant is possible when no rule on it fails that published counting leaves out of the space. Which rules these are is
found by watching what each reads, so that the rules of a table, of one execution and of a search are the same.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from calculon.plan.columns import Columns, code, field_of, held, type_of
from calculon.plan.rules.all_rules import RULES
from calculon.plan.rules.rule import Question, Rule
from calculon.search.candidates import VARIANT, Candidates
from calculon.spec.axes import FURTHER_AXES
from calculon.units import Array


@dataclass(frozen=True)
class Variants:
    """The possible variants of a space.

    Attributes
    ----------
    positions : dict of arrays, shape (variants,)
        Position among the candidates of each loop of :data:`VARIANT` that has several.
    columns : dict of arrays
        The fields as columns hold them: of shape (variants,), or a single value where there is one candidate.
    serial : array of bool, shape (variants,)
        Which of them need no tensor parallelism.
    """

    positions: dict[str, Array]
    columns: dict[str, Array]
    serial: Array

    def __len__(self) -> int:
        return len(self.serial)

    def take(self, numbers: Array) -> dict[str, Array]:
        """Return the columns of some variants."""
        return {n: v[numbers] if v.ndim else v for n, v in self.columns.items()}


class Rules:
    """The rules of a space, by where a search asks them."""

    def __init__(self, space: Candidates):
        self._space = space
        self.constants = _constants(space)

    @cached_property
    def _concerned(self) -> list[Rule]:
        """The rules that any execution of the space can break."""
        asked = self._space.asked
        return [r for r in RULES if not r.about or not asked.isdisjoint(r.about)]

    @cached_property
    def _read(self) -> dict[str, frozenset[str]]:
        """The columns that each rule reads, for this model and system."""
        return {rule.reason: self._watched(rule) for rule in self._concerned}

    def read(self, rule: Rule) -> frozenset[str]:
        """Return the columns that a rule reads."""
        return self._read[rule.reason]

    def _watched(self, rule: Rule) -> frozenset[str]:
        columns = _Watched(self._space.num_procs)
        rule.holds(Question(self._space.model, self._space.system, columns))
        return frozenset(columns.read)

    @cached_property
    def of_variants(self) -> list[Rule]:
        """Rules on variants alone, with tensor parallelism or without: what they reject is not enumerated."""
        known = {*VARIANT, "tensor_par", *self.constants}
        return [
            rule
            for rule in self._concerned
            if not rule.counted
            and self._read[rule.reason] <= known
            and self._read[rule.reason] & set(VARIANT)
        ]

    @cached_property
    def of_cells(self) -> list[Rule]:
        """Rules on optional fields beside degrees and other loops: what they reject is not enumerated either.

        That degrees multiply to the number of processors is one of them where further axes are searched.
        """
        others = {rule.reason for rule in self.of_variants}
        further = self._space.asked & {axis.degree for axis in FURTHER_AXES}
        return [
            rule
            for rule in self._concerned
            if (rule.about or self._read[rule.reason] & further)
            and not rule.counted
            and rule.reason not in others
        ]

    @cached_property
    def of_networks(self) -> list[Rule]:
        """Counted rules on how groups fit the networks that they are put on."""
        return [r for r in self._concerned if r.counted and self._on_networks(r)]

    @cached_property
    def counted(self) -> list[Rule]:
        """The other counted rules, in the order of checking."""
        return [r for r in self._concerned if r.counted and not self._on_networks(r)]

    def _on_networks(self, rule: Rule) -> bool:
        return any(name.endswith("_net") for name in self._read[rule.reason])


def variants(space: Candidates, rules: Rules) -> Variants:
    """List the variants that are possible with tensor parallelism, and which are without."""
    several = [name for name in VARIANT if len(space.switches[name]) > 1]
    shape = tuple(len(space.switches[name]) for name in several)
    numbers = np.arange(int(np.prod(shape, dtype=np.int64)))
    positions = dict(zip(several, np.unravel_index(numbers, shape), strict=True)) if shape else {}
    candidates: dict[str, Array] = {
        name: np.array([held(name, value) for value in values], _kind(name))
        for name, values in space.switches.items()
        if name in VARIANT
    }
    columns = {
        name: values[positions[name]] if name in positions else values[0]
        for name, values in candidates.items()
        if len(values)
    }
    if len(columns) < len(VARIANT):  # a loop without a candidate
        return Variants({}, {}, np.zeros(0, bool))
    parallel, serial = (_possible(space, rules, columns, len(numbers), t) for t in (2, 1))
    kept = parallel | serial
    return Variants(
        {name: where[kept] for name, where in positions.items()},
        {n: v[kept] if v.ndim else v for n, v in map(_plain, columns.items())},
        serial[kept],
    )


def _plain(item: tuple[str, Array]) -> tuple[str, Array]:
    return item[0], np.asarray(item[1])


def _kind(name: str) -> type:
    return type_of(name)


def _possible(
    space: Candidates, rules: Rules, columns: dict[str, Array], count: int, tensor_par: int
) -> Array:
    """Return which variants no rule rejects, at this tensor degree."""
    question = Question(
        space.model,
        space.system,
        Columns({**rules.constants, **columns, "tensor_par": np.array(tensor_par)}),
    )
    good = np.ones(count, bool)
    for rule in rules.of_variants:
        good &= rule.holds(question)
    return good


def _constants(space: Candidates) -> dict[str, Array]:
    """Return what all executions of a space share, as columns."""
    return {
        "num_procs": np.array(space.num_procs),
        "training": np.array(True),
        "datatype": np.array(code("datatype", space.datatype)),
        "edition": np.array(code("edition", space.edition)),
    }


class _Watched(Columns):
    """One execution with a value in every column, which remembers what is read of it."""

    __slots__ = ("read",)

    def __init__(self, num_procs: int):
        super().__init__({})
        self.read: set[str] = set()

    def __getattr__(self, name: str) -> Array:
        self.read.add(name)
        kind = field_of(name).annotation
        return np.zeros(1, np.int8) if kind is str else np.ones(1, bool if kind is bool else int)
