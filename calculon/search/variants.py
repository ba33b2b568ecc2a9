"""The variants of a search: combinations of the loops that do not depend on degrees, as a table.

A variant is possible when no rule on it fails that published counting leaves out of the space. Which rules these are is
found by watching what each reads, so that the rules of a table, of one execution and of a search are the same.
"""

from functools import cached_property
from math import prod

import numpy as np

from calculon.base.errors import Problem, SpecError
from calculon.base.frozen import dataclass
from calculon.base.units import Array
from calculon.declarations.axes import FURTHER_DEGREES, PUBLISHED_DEGREES
from calculon.plan.columns import Columns, held, type_of
from calculon.plan.rules.all_rules import RULES
from calculon.plan.rules.rule import Requests, Rule
from calculon.search.candidates import VARIANT, Candidates
from calculon.search.watched import columns_read

OF_UNIT = (*PUBLISHED_DEGREES, "batch_size")
"""Fields that a unit fixes."""

PART_ROWS = 65_536
"""Combinations that are looked at at once: most of them may be impossible, and take no memory for long."""

MOST_COMBINATIONS = 20_000_000
"""Combinations that one search may have: each stands for thousands of executions."""


@dataclass(frozen=True)
class Variants:
    """The possible variants of a space.

    Attributes:
        positions (shape (variants,)): Position among the candidates of each loop of :data:`VARIANT` that has several.
        columns: The fields as columns hold them: of shape (variants,), or a single value where there is one candidate.
        serial (shape (variants,)): Which of them need no tensor parallelism.
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
    """The rules of a space, by where a search asks them.

    Attributes:
        constants: What all executions of the space share, as columns.
    """

    def __init__(self, space: Candidates):
        self._space, self.constants = space, space.constants

    @cached_property
    def _concerned(self) -> list[Rule]:
        """The rules that any execution of the space can break."""
        asked = self._space.asked
        return [r for r in RULES if not r.about or not asked.isdisjoint(r.about)]

    @cached_property
    def _read(self) -> dict[str, frozenset[str]]:
        """The columns that each rule reads, for this model and system, at any candidate of other loops."""
        model, system, candidates = self._space.model, self._space.system, self._space.switches
        found: dict[str, frozenset[str]] = {}
        last: dict[str, frozenset[str]] = {}
        before: dict[str, Array] = {}
        for i in range(max(map(len, candidates.values()))):
            known = {
                name: np.array(held(name, values[min(i, len(values) - 1)]))
                for name, values in candidates.items()
                if values
            }
            known |= self.constants
            changed = {name for name, value in known.items() if not i or value != before[name]}
            for rule in self._concerned:
                if i and last[rule.reason].isdisjoint(changed):
                    continue  # it reads the same values, hence the same columns
                read = last[rule.reason] = columns_read(rule, model, system, known)
                found[rule.reason] = found.get(rule.reason, frozenset()) | read
            before = known
        return found

    def read(self, rule: Rule) -> frozenset[str]:
        """Return the columns that a rule reads."""
        return self._read[rule.reason]

    @cached_property
    def of_variants(self) -> list[Rule]:
        """Rules on variants alone, with tensor parallelism or without: what they reject is not enumerated.

        Of degrees of further axes, it matters how many ranks tensor parallelism has.
        """
        known = {*VARIANT, "tensor_par", *self.constants}
        return [
            rule
            for rule in self._concerned
            if not rule.counted
            and self._read[rule.reason] <= known
            and self._read[rule.reason] & set(VARIANT)
            and not self._compares(rule)
        ]

    def _compares(self, rule: Rule) -> bool:
        """Whether a rule holds a degree of a further axis against that of tensor parallelism."""
        read = self._read[rule.reason]
        return "tensor_par" in read and not read.isdisjoint(FURTHER_DEGREES)

    @cached_property
    def of_cells(self) -> list[Rule]:
        """Rules on optional fields beside degrees and other loops: what they reject is not enumerated either.

        That degrees multiply to the number of processors is one of them where further axes are searched. That overlap
        of data parallelism needs several ranks with the same weights is none: its candidates follow from their number.
        """
        others = {rule.reason for rule in self.of_variants}
        further = self._space.asked & {*FURTHER_DEGREES}
        return [
            rule
            for rule in self._concerned
            if (rule.about or self._read[rule.reason] & further)
            and not rule.counted
            and rule.reason not in others
            and (rule.about or "data_par_overlap" not in self._read[rule.reason])
        ]

    @cached_property
    def of_units(self) -> list[Rule]:
        """Those of them that read nothing of an execution but its variant, its degrees and its batch."""
        known = {*VARIANT, *OF_UNIT, *self.constants}
        return [rule for rule in self.of_cells if self._read[rule.reason] <= known]

    @cached_property
    def of_nodes(self) -> list[Rule]:
        """The others of them."""
        asked_before = {rule.reason for rule in self.of_units}
        return [rule for rule in self.of_cells if rule.reason not in asked_before]

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
    """List the variants that are possible with tensor parallelism, and which are without.

    Raises:
        SpecError: For combinations of values that alone would take minutes.
    """
    candidates: dict[str, Array] = {
        name: np.array([held(name, value) for value in space.switches[name]], type_of(name))
        for name in VARIANT
    }
    several = {name: len(values) for name, values in candidates.items() if len(values) > 1}
    if not all(map(len, candidates.values())):  # a loop without a candidate
        return Variants({}, {}, np.zeros(0, bool))

    def columns(positions: dict[str, Array]) -> dict[str, Array]:
        return {
            name: values[positions[name]] if name in several else np.array(values[0])
            for name, values in candidates.items()
        }

    count = prod(several.values())
    if count > MOST_COMBINATIONS:
        wanted = f"values with at most {MOST_COMBINATIONS:,} combinations"
        hint = "add fewer values to one search"
        raise SpecError("search", Problem("add", wanted, f"{count:,} combinations", hint))
    kept, kept_serial = [], []
    for start in range(0, count, PART_ROWS):
        numbers = np.arange(start, min(start + PART_ROWS, count))
        part = columns(_positions(numbers, several))
        parallel, serial = (_possible(space, rules, part, len(numbers), t) for t in (2, 1))
        kept.append(numbers[parallel | serial])
        kept_serial.append(serial[parallel | serial])
    positions = _positions(np.concatenate(kept), several)
    serial = np.concatenate(kept_serial)
    form = "tensor_par_comm_type"
    if form in positions and not space.preset.published:  # without tensor ranks all are alike
        serial = serial & (positions[form] == 0)
    return Variants(positions, columns(positions), serial)


def _positions(numbers: Array, several: dict[str, int]) -> dict[str, Array]:
    """Return the position in each loop that has several candidates, given numbers of combinations."""
    positions = {}
    for name, length in reversed(several.items()):
        numbers, place = np.divmod(numbers, length)
        positions[name] = place.astype(np.min_scalar_type(length))
    return positions


def _possible(
    space: Candidates, rules: Rules, columns: dict[str, Array], count: int, tensor_par: int
) -> Array:
    """Return which variants no rule rejects, at this tensor degree."""
    requests = Requests(
        space.model,
        space.system,
        Columns({**rules.constants, **columns, "tensor_par": np.array(tensor_par)}),
    )
    good = np.ones(count, bool)
    for rule in rules.of_variants:
        good &= rule.holds(requests)
    return good
