"""Variants of a search: a table of the combinations of the loops that do not depend on degrees.

A variant is possible if no uncounted rule on it fails. The rules that concern variants are found by recording the
columns that each rule reads, so tables, single executions and searches share one set of rules.
"""

from functools import cached_property
from math import prod

import numpy as np

from calculon.base.errors import Problem, SpecError
from calculon.base.frozen import dataclass
from calculon.base.units import Array
from calculon.declarations.axes import FURTHER_DEGREES, PUBLISHED_DEGREES
from calculon.plan.columns import DEFAULTS, Columns, encoded, type_of
from calculon.plan.rules.all_rules import RULES
from calculon.plan.rules.rule import Requests, Rule
from calculon.search.candidates import PARTS, VARIANT, Candidates
from calculon.search.rule_dependencies import columns_read

OF_UNIT = (*PUBLISHED_DEGREES, "batch_size")
"""Fields that a unit fixes."""

PART_ROWS = 65_536
"""Combinations that are checked at once: most may be impossible, so large spaces need little memory."""

MAX_COMBINATIONS = 20_000_000
"""Largest number of combinations of one search: each stands for thousands of executions."""


@dataclass(frozen=True)
class Variants:
    """Possible variants of a space.

    Attributes:
        positions (shape (variants,)): Position among the candidates, for each loop of :data:`VARIANT` with several.
        columns: Fields as columns: of shape (variants,), or a scalar if there is only one candidate.
        serial (shape (variants,)): Mask of the variants that are possible without tensor parallelism.
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
    """Rules of a space, grouped by when a search applies them.

    Attributes:
        constants: Values that all executions of the space share, as columns.
    """

    def __init__(self, space: Candidates):
        self._space, self.constants = space, space.constants

    @cached_property
    def _concerned(self) -> list[Rule]:
        """Rules that some execution of the space may break, in parts if they have any."""
        asked = self._space.asked
        concerned = (r for r in RULES if not r.about or not asked.isdisjoint(r.about))
        return [part for rule in concerned for part in rule.parts or (rule,)]

    @cached_property
    def _read(self) -> dict[str, frozenset[str]]:
        """Columns that each rule reads, for this model and system, over the candidates of all loops."""
        model, system, candidates = self._space.model, self._space.system, self._space.switches
        result: dict[str, frozenset[str]] = {}
        last: dict[str, frozenset[str]] = {}
        before: dict[str, Array] = {}
        # The reads of a rule may depend on values: record them for the first candidates, the second ones, and so on.
        for i in range(max(map(len, candidates.values()))):
            known = {
                name: np.array(encoded(name, values[min(i, len(values) - 1)]))
                for name, values in candidates.items()
                if values
            }
            known |= self.constants
            changed = {name for name, value in known.items() if not i or value != before[name]}
            for rule in self._concerned:
                if i and last[rule.reason].isdisjoint(changed):
                    continue  # equal values, hence equal reads
                read = last[rule.reason] = columns_read(rule, model, system, known)
                result[rule.reason] = result.get(rule.reason, frozenset()) | read
            before = known
        return result

    def read(self, rule: Rule) -> frozenset[str]:
        """Return the columns that a rule reads."""
        return self._read[rule.reason]

    @cached_property
    def of_variants(self) -> list[Rule]:
        """Rules that read only variants and the tensor degree; rejected variants are not enumerated.

        Rules that compare a further degree with the tensor degree are not among them: they need the actual degree.
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
        """Return True if a rule compares a degree of a further axis with the tensor degree."""
        read = self._read[rule.reason]
        return "tensor_par" in read and not read.isdisjoint(FURTHER_DEGREES)

    @cached_property
    def of_cells(self) -> list[Rule]:
        """Other rules on optional fields whose rejected executions are not enumerated.

        If further axes are searched, one of them is that degrees multiply to the number of processors. The rule that
        overlap of data parallelism needs several ranks with equal weights is not among them: candidates of that field
        already depend on the number of ranks.
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
        """Rules of :attr:`of_cells` that read only variants, degrees and the batch."""
        known = {*VARIANT, *OF_UNIT, *self.constants}
        return [rule for rule in self.of_cells if self._read[rule.reason] <= known]

    @cached_property
    def of_nodes(self) -> list[Rule]:
        """Remaining rules of :attr:`of_cells`."""
        asked_before = {rule.reason for rule in self.of_units}
        return [rule for rule in self.of_cells if rule.reason not in asked_before]

    @cached_property
    def of_networks(self) -> list[Rule]:
        """Counted rules on how groups fit their networks."""
        return [r for r in self._concerned if r.counted and self._on_networks(r)]

    @cached_property
    def counted(self) -> list[Rule]:
        """Other counted rules, in the order of checking."""
        return [r for r in self._concerned if r.counted and not self._on_networks(r)]

    def _on_networks(self, rule: Rule) -> bool:
        return any(name.endswith("_net") for name in self._read[rule.reason])


def variants(space: Candidates, rules: Rules) -> Variants:
    """List the possible variants, and mark those that are possible without tensor parallelism.

    Raises:
        SpecError: For combinations of values whose enumeration would take minutes.
    """
    candidates: dict[str, Array] = {
        name: np.array([encoded(name, value) for value in space.switches[name]], type_of(name))
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
    if count > MAX_COMBINATIONS:
        wanted = f"values with at most {MAX_COMBINATIONS:,} combinations"
        hint = "add fewer values to one search"
        raise SpecError("search", Problem("add", wanted, f"{count:,} combinations", hint))
    kept, kept_serial = [], []
    for start in range(0, count, PART_ROWS):
        numbers = np.arange(start, min(start + PART_ROWS, count))
        part = columns(_positions(numbers, several))
        # Degree 2 represents all tensor degrees above 1: uncounted rules on variants compare the degree with 1 only.
        parallel, serial = (_possible(space, rules, part, len(numbers), t) for t in (2, 1))
        kept.append(numbers[parallel | serial])
        kept_serial.append(serial[parallel | serial])
    numbers, serial = np.concatenate(kept), np.concatenate(kept_serial)
    if space.prefers_parts:
        replaced = _replaced(space, numbers, several)
        numbers, serial = numbers[~replaced], serial[~replaced]
    positions = _positions(numbers, several)
    form = "tensor_par_comm_type"
    # Irrelevant without tensor ranks: keep one
    if form in positions and not space.preset.published:
        serial = serial & (positions[form] == 0)
    return Variants(positions, columns(positions), serial)


def _replaced(space: Candidates, numbers: Array, several: dict[str, int]) -> Array:
    """Return a mask of the variants with the default launch mode that are possible with graphs of parts, too."""
    modes = space.switches["launch_mode"]
    usual = modes.index(DEFAULTS["launch_mode"]) if DEFAULTS["launch_mode"] in modes else -1
    if usual < 0:
        return np.zeros(len(numbers), bool)
    # The last loop is the fastest: a step of a loop skips the combinations of the loops after it.
    names = list(several)
    step = prod(several[name] for name in names[names.index("launch_mode") + 1 :])
    is_usual = _positions(numbers, several)["launch_mode"] == usual
    return is_usual & np.isin(numbers + (modes.index(PARTS) - usual) * step, numbers)


def _positions(numbers: Array, several: dict[str, int]) -> dict[str, Array]:
    """Return the positions in loops with several candidates, given the numbers of combinations."""
    positions = {}
    for name, length in reversed(several.items()):
        numbers, place = np.divmod(numbers, length)
        positions[name] = place.astype(np.min_scalar_type(length))
    return positions


def _possible(
    space: Candidates, rules: Rules, columns: dict[str, Array], count: int, tensor_par: int
) -> Array:
    """Return a mask of the variants that no rule rejects at a tensor degree."""
    requests = Requests(
        space.model,
        space.system,
        Columns({**rules.constants, **columns, "tensor_par": np.array(tensor_par)}),
    )
    good = np.ones(count, bool)
    for rule in rules.of_variants:
        good &= rule.holds(requests)
    return good
