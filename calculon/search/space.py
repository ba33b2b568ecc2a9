"""Space of executions, with a number for every execution.

The published search nests its loops in a fixed order (:data:`~calculon.search.candidates.LOOPS`); the *number* of an
execution is the mixed-radix number of its positions in those loops. Numbers ascend in the published order, so ties
between equal results are broken as in the published search (in edition ``corrected`` fewer switches come first), and
the number alone identifies an execution.
"""

from collections.abc import Callable, Mapping
from functools import cached_property, partial, reduce
from operator import mul
from typing import TYPE_CHECKING, Any

import numpy as np

from calculon.architecture.shape import SIZE_FIELDS
from calculon.base.distinct_rows import distinct
from calculon.base.frozen import dataclass
from calculon.base.units import Array
from calculon.declarations.axes import FURTHER_FACTORS, PUBLISHED_NETWORKS, STATED_DEGREES
from calculon.declarations.named_values import PUBLISHED
from calculon.declarations.scope_choices import BlockChoice
from calculon.editions import EDITIONS
from calculon.inputs import NAMED
from calculon.plan.choices import grouped
from calculon.plan.columns import FIELDS, Columns, code, field_of, type_of
from calculon.plan.plan import Plan
from calculon.plan.rules.rule import Requests, Rule
from calculon.search.candidates import LOOPS, VARIANT, Candidates, Unit, Values
from calculon.search.variants import OF_UNIT, Rules, Variants, variants

if TYPE_CHECKING:
    from calculon.search.training_runs import TrainingRuns

OF_VARIANTS = tuple(name for name in SIZE_FIELDS if name in VARIANT)
"""Sizes of a block that variants fix."""

KEPT_BYTES = 50_000_000
"""Largest number of cached mask entries, of one byte each."""

__all__ = ["LOOPS", "Space", "Unit", "Values"]


@dataclass(frozen=True)
class Space(Candidates):
    """All executions of a model on a number of processors of a system; fields as in :class:`Candidates`."""

    @property
    def names(self) -> dict[str, str]:
        """Names in result tables: model, system and preset; empty in edition ``sc23``."""
        if self.edition == PUBLISHED:
            return {}
        names = (self.model.name, self.system.name, self.preset.name)
        return dict(zip(NAMED, names, strict=True))

    @cached_property
    def runs(self) -> "TrainingRuns | None":
        """Training runs of the campaign; None to evaluate steps only."""
        if self.campaign is None:
            return None
        from calculon.search.training_runs import TrainingRuns  # most searches do not need it

        return TrainingRuns(self.campaign, self.model, self.system, self.datatype)

    @cached_property
    def rules(self) -> Rules:
        """Rules of the space, grouped by when a search applies them."""
        return Rules(self)

    @cached_property
    def variants(self) -> Variants:
        """Combinations of the loops that do not depend on degrees."""
        return variants(self, self.rules)

    def _possible(self, tensor_par: int, pipeline_par: int, data_par: int, further: int) -> bool:
        """Return True if every loop, including the variants, has a candidate at these degrees."""
        some = len(self.variants) if tensor_par > 1 else self.variants.serial.any()
        return bool(some) and super()._possible(tensor_par, pipeline_par, data_par, further)

    @cached_property
    def variant_columns(self) -> Columns:
        """Variants as a table, with the values that all executions share."""
        columns = {**self.rules.constants, **self.variants.columns}
        return Columns({n: np.broadcast_to(v, len(self.variants)) for n, v in columns.items()})

    @cached_property
    def block_groups(self) -> list[tuple[BlockChoice, Array]]:
        """Distinct block choices of the variants (without sizes), each with its variants."""
        return list(grouped(self.variant_columns, BlockChoice))

    @cached_property
    def block_sizes(self) -> tuple[Array, Array]:
        """Distinct block sizes that variants fix, as rows, and the row of each variant."""
        sizes, size_of, _ = distinct([getattr(self.variant_columns, n) for n in OF_VARIANTS])
        return sizes, size_of

    @cached_property
    def variant_degrees(self) -> Array:
        """Product of the degrees of further axes of each variant, without axes that divide another axis."""
        degrees = (self.variant_columns.columns[degree] for degree in FURTHER_FACTORS)
        ones = np.ones(len(self.variants), np.int64)
        return np.asarray(reduce(mul, degrees, ones))

    @cached_property
    def variant_numbers(self) -> Array:
        """Contribution of each variant to the number of an execution."""
        numbers = np.zeros(len(self.variants), np.int64)
        for name, position in self.variants.positions.items():
            numbers += position.astype(np.int64) * self.strides[name]
        return numbers

    def fitting(self, unit: Unit) -> Array:
        """Return a mask of the variants of a unit: no rule rejects them with the degrees and the batch of the unit."""
        numbers = unit.tensor_par, unit.pipeline_par, unit.data_par, unit.further, unit.batch_size
        return self._kept("unit", numbers, lambda *_: self._of_unit(unit))

    def _of_unit(self, unit: Unit) -> Array:
        fitting = self._kept("further", (unit.further,), self._of_further)
        if unit.tensor_par == 1:
            fitting = fitting & self.variants.serial
        if self.preset.uneven and len(self.switches["pp_layout"]) > 1:
            fitting = fitting & self._kept("layout", (unit.pipeline_par,), self._laid_out)
        # 0 stands for the tensor degree: do not try it twice
        if 0 in self.switches["expert_tensor_par"]:
            fitting = fitting & self._kept("width", (unit.tensor_par,), self._of_width)
        for rule in self.rules.of_units:
            names = [name for name in OF_UNIT if name in self.rules.read(rule)]
            degrees = {name: np.array([getattr(unit, name)]) for name in names}
            known = tuple(getattr(unit, name) for name in names)
            fitting = fitting & self._kept(rule.reason, known, partial(self._held, rule, degrees))
        return fitting

    @cached_property
    def _fitting(self) -> dict[tuple[str, tuple[int, ...]], Array]:
        """Cached masks of variants, by question and by the relevant values of units."""
        return {}

    def _kept(self, question: str, known: tuple[int, ...], find: Callable[..., Array]) -> Array:
        """Return a mask of variants for values of a unit, computed once for all units with these values."""
        key = question, known
        if key not in self._fitting:
            if len(self._fitting) * len(self.variants) > KEPT_BYTES:  # simpler than an LRU cache
                self._fitting.clear()
            self._fitting[key] = np.broadcast_to(find(*known), len(self.variants))
        return self._fitting[key]

    def _of_further(self, degree: int) -> Array:
        return np.asarray(self.variant_degrees == degree)

    def _of_width(self, tensor_par: int) -> Array:
        return np.asarray(self.variants.columns["expert_tensor_par"] != tensor_par)

    def _laid_out(self, pipeline_par: int) -> Array:
        """Return a mask of the variants with a stage layout that is tried at this pipeline degree."""
        tried = [code("pp_layout", one) for one in self.layouts(pipeline_par)]
        return np.isin(self.variants.columns["pp_layout"], tried)

    def _held(self, rule: Rule, degrees: Mapping[str, Array], *_: int) -> Array:
        """Return a mask of the variants that a rule allows at given degrees."""
        columns = Columns({**self.variants.columns, **self.rules.constants, **degrees})
        return rule.holds(Requests(self.model, self.system, columns))

    @cached_property
    def values(self) -> dict[str, Array]:
        """Candidates of each loop over the whole space, in order; positions are indices into them."""
        units = self.units
        ascending = {
            **{name: {getattr(u, name) for u in units} for name in STATED_DEGREES},
            "pipeline_interleaving": {i for u in units for i in u.interleavings},
            "microbatch_size": {b for u in units for b in u.microbatches},
        }
        values: dict[str, Array] = {n: np.array(sorted(v), np.int64) for n, v in ascending.items()}
        batches = max((u.batch_position for u in units), default=0) + 1
        values["batch_size"] = np.arange(batches)  # positions; the sizes depend on the unit
        for name in PUBLISHED_NETWORKS:
            values[name] = np.arange(len(self.system.networks))
        for name, candidates in self.switches.items():
            field = field_of(name)
            choices = field.declaration.choices
            values[name] = np.array(
                [code(name, value) if choices else value for value in candidates],
                type_of(name),
            )
        return {name: values[name] for name in LOOPS}

    @cached_property
    def strides(self) -> dict[str, int]:
        """Stride of each loop in the number of an execution."""
        strides, weight = {}, 1
        for name in reversed(LOOPS):
            strides[name] = weight
            weight *= max(1, len(self.values[name]))
        return strides

    def position(self, name: str, value: Any) -> int:
        """Return the position of a value among the candidates of a loop."""
        if name in self.switches:
            return self.switches[name].index(value)
        return int(np.searchsorted(self.values[name], value))

    def number(self, name: str, values: Values) -> Array:
        """Return the contributions of values of a loop to the number of an execution."""
        positions = [self.position(name, value) for value in values]
        return np.array(positions, np.int64) * self.strides[name]

    @cached_property
    def _switch_counts(self) -> dict[str, Array]:
        """Number of switches that each candidate of a loop turns on, for loops whose candidates differ in it."""
        counts = {
            name: np.array([values.get(value, 1) for value in self.switches[name]])
            for name in LOOPS
            if (values := field_of(name).declaration.switches)
        }
        return {name: one for name, one in counts.items() if np.ptp(one)}

    def switches_on(self, numbers: Array) -> Array:
        """Return the number of enabled switches of executions, or 0 if the edition does not prefer few switches.

        Switches that are on in every execution do not count.
        """
        total = np.zeros(len(numbers), np.int64)
        if EDITIONS[self.edition].prefers_few_switches:
            for name, counts in self._switch_counts.items():
                total += counts[numbers // self.strides[name] % len(counts)]
        return total

    def plan(self, numbers: Array) -> Plan:
        """Return the executions with these numbers as a table."""
        columns: dict[str, Array] = {}
        rest = np.asarray(numbers, np.int64)
        for name in LOOPS:
            position, rest = np.divmod(rest, self.strides[name])
            columns[name] = self.values[name][position]
        rows = len(rest)
        columns["num_procs"] = np.full(rows, self.num_procs, np.int64)
        columns["data_par"] = self.num_procs // (columns["tensor_par"] * columns["pipeline_par"])
        for degree in FURTHER_FACTORS:
            columns["data_par"] //= columns[degree]
        columns["batch_size"] = self._batch_sizes(columns["data_par"], columns["batch_size"])
        columns["datatype"] = np.full(rows, code("datatype", self.datatype), np.int8)
        columns["training"] = np.ones(rows, bool)
        columns["edition"] = np.full(rows, code("edition", self.edition), np.int8)
        columns["preset"] = np.full(rows, code("preset", self.preset.family), np.int8)
        return Plan({f.name: columns[f.name] for f in FIELDS})

    def _batch_sizes(self, data_par: Array, positions: Array) -> Array:
        if not len(data_par):
            return positions
        degrees, degree_of, _ = distinct([data_par])
        batches = [self._batches(int(degree)) for (degree,) in degrees]
        sizes = np.zeros((len(degrees), max(map(len, batches), default=0)), np.int64)
        for row, of_degree in zip(sizes, batches, strict=True):
            row[: len(of_degree)] = of_degree
        return sizes[degree_of, positions]
