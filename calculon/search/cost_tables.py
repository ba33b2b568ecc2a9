"""Block costs of a search: tables of all distinct blocks of some tensor degrees, with computed row numbers."""

from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np

from calculon.architecture.optimizer import Parameters
from calculon.base.distinct_rows import distinct
from calculon.base.units import Array
from calculon.cost.block_cost import BlockCost
from calculon.cost.block_tables import (
    EmbeddingHeadTables,
    block_costs,
    joined_kinds,
    layer_parameters,
    step_cost,
)
from calculon.cost.embedding_head import EmbeddingHead, EmbeddingHeadCost, plain_choice
from calculon.cost.mixture import BlockKinds
from calculon.cost.optimizer_step import OptimizerCost
from calculon.cost.prediction_modules import module_choice
from calculon.declarations.axes import FURTHER_SIZES
from calculon.declarations.scope_choices import BatchChoice, BlockChoice, LayoutChoice, StepChoice
from calculon.editions import EDITIONS
from calculon.plan.choices import C, grouped
from calculon.search.cost_cache import CostCache
from calculon.search.space import Space, Unit

SHARED = ("context_par",)
"""Fields that all executions of a grid share because other candidates depend on them."""


class CostTables:
    """Costs of the blocks and optimizer steps of some units, with some of the variants.

    Rows of ``block`` are ordered by block choice, tensor degree, microbatch size, tensor network and variant sizes;
    sizes that no unit has with a layout are left out.
    Rows of ``optimizer`` are ordered by step choice, tensor degree, shards and variant sizes.

    Args:
        space: The space.
        units: The units.
        block_groups: Block choices, each with its variants; by default the choices of all variants.
        cache: Known costs of the same model, machine and edition.

    Attributes:
        variants: All variants of the space.
        groups: The used variants, grouped by equal batch strategies.
    """

    def __init__(
        self,
        space: Space,
        units: Sequence[Unit],
        block_groups: Sequence[tuple[BlockChoice, Array]] | None = None,
        cache: CostCache | None = None,
    ):
        self._cache = CostCache() if cache is None else cache
        self.space, self.variants = space, space.variants
        self._blocks = space.block_groups if block_groups is None else block_groups
        self._used = np.zeros(len(self.variants), bool)
        for _, numbers in self._blocks:
            self._used[numbers] = True
        self.edition = EDITIONS[space.edition]
        # Degree 1 comes last: layouts that overlap leave it out, and keep a prefix of the rows.
        degrees = sorted({unit.tensor_par for unit in units}, reverse=True)
        self._micro = {
            t: np.array(sorted({b for u in units if u.tensor_par == t for b in u.microbatches}))
            for t in degrees
        }
        self._networks = {t: space.networks("tensor_par_net", t) for t in degrees}
        self._columns = space.variant_columns
        stated = self._columns.dp_shard[self._columns.dp_shard > 0]
        parts = dict.fromkeys(space.switches["context_par"])
        ranks = {u.data_par * part for u in units for part in parts if u.further % part == 0}
        shards = {1, *stated.tolist(), *ranks}
        self._shards = np.array(sorted(shards))  # np.unique would load numpy.ma
        self._own, self._own_size = space.block_sizes
        self._of_unit: dict[Unit, tuple[Array, Array, Array, Array]] = {}
        self._units = units
        self._build(degrees)

    @cached_property
    def groups(self) -> list[tuple[BatchChoice, Array]]:
        """Variants with equal batch strategies and equal context parallelism.

        If networks are stated, variants of a group have equal degrees of all further axes.
        """
        result = []
        for choice, numbers in self._grouped(BatchChoice):
            stated = SHARED if choice.meshed else FURTHER_SIZES
            further = [getattr(self._columns, name)[numbers] for name in stated]
            kinds = distinct(further)[1] if further else np.zeros(len(numbers), np.int64)
            result += [(choice, numbers[kinds == kind]) for kind in range(kinds.max() + 1)]
        return result

    def _grouped(self, choice: type[C]) -> Iterator[tuple[C, Array]]:
        """Yield the distinct choices of the used variants, each with its variants."""
        for one, numbers in grouped(self._columns, choice):
            if len(used := numbers[self._used[numbers]]):
                yield one, used

    def _size_rows(self, degree: int) -> Array:
        """Return the sizes of blocks at a tensor degree as rows, in the order of :data:`SIZE_FIELDS`."""
        axes = (self._micro[degree], np.array(self._networks[degree]), np.arange(len(self._own)))
        micro, network, own = (axis.ravel() for axis in np.meshgrid(*axes, indexing="ij"))
        of_unit = np.full(len(micro), degree), micro, network  # first in SIZE_FIELDS
        return np.stack([*of_unit, *self._own[own].T], axis=1)

    def _needed(self, variants: Array) -> Array:
        """Return a mask of the sizes of all degrees that units have with some of the variants.

        A quarter to two thirds of the sizes are of no unit, such as large microbatches with many expert ranks. The
        first size is always needed, so that no table is empty.
        """
        used = np.zeros(len(self.variants), bool)
        used[variants] = True
        micro = np.array(sorted({size for unit in self._units for size in unit.microbatches}))
        degrees = sorted(self._micro)
        masks = np.zeros((len(degrees), len(micro), len(self._own)), bool)
        for unit in self._units:
            own = np.zeros(len(self._own), bool)
            own[self._own_size[used & self.space.fitting(unit)]] = True
            masks[degrees.index(unit.tensor_par), np.searchsorted(micro, unit.microbatches)] |= own
        # Twice as many processors have these sizes with twice the tensor degree: later searches find them in the cache.
        masks = np.logical_or.accumulate(masks, axis=0)
        needed = []
        for degree, own_micro in self._micro.items():
            mask = masks[degrees.index(degree), np.searchsorted(micro, own_micro)]
            needed.append(np.repeat(mask, len(self._networks[degree]), axis=0).ravel())
        result = np.concatenate(needed)
        result[0] = True
        return result

    def _build(self, degrees: list[int]) -> None:
        """Compute the costs of blocks for every block choice, and of optimizer steps for every step choice."""
        space, count = self.space, len(self.variants)
        embedding_head = (
            EmbeddingHeadTables(space.model, space.system, self.edition)
            if space.model.vocab
            else None
        )
        blocks: list[tuple[BlockCost, ...]] = []
        layouts: dict[LayoutChoice, list[tuple[BlockChoice, Array]]] = {}
        for choice, numbers in self._blocks:
            layouts.setdefault(choice.layout, []).append((choice, numbers))
        self._block_base, self._step_base = np.zeros(count, np.int64), np.zeros(count, np.int64)
        self._size_base, places = np.zeros(count, np.int64), [np.zeros(0, np.int64)]
        self._block_start: dict[int, int] = {}
        self._step_start: dict[int, int] = {}
        rows_of = self._rows_of = {t: self._size_rows(t) for t in degrees}
        total = 0
        for degree in degrees:
            self._block_start[degree] = total
            total += len(self._micro[degree]) * len(self._networks[degree]) * len(self._own)
        used: list[tuple[list[BlockChoice], Array, Array]] = []
        rows = 0
        for layout, members in layouts.items():
            choices = [choice for choice, _ in members]
            own = [rows_of[t] for t in degrees if t > 1 or not layout.overlapped]
            if not own:
                continue
            sizes = np.concatenate(own)  # a prefix of the rows of all degrees
            needed = self._needed(np.concatenate([numbers for _, numbers in members]))[: len(sizes)]
            sizes = sizes[needed]
            blocks += self._cache.records("blocks", choices, sizes, self._block_costs)
            used.append((choices, sizes, np.flatnonzero(needed)))
            for _, numbers in members:
                self._block_base[numbers] = rows
                self._size_base[numbers] = sum(map(len, places))
                rows += len(sizes)
            places.append(np.cumsum(needed) - 1)
        self._place = np.concatenate(places)
        self._embedding_head_row = np.zeros(0, np.int32)
        if embedding_head is not None:
            self._embedding_head_row = self._ends(embedding_head, used)
        steps = self._steps(degrees, embedding_head)
        (self.block, self.optimizer), self._kinds = joined_kinds(space.model, blocks, steps)
        self._embedding_head = (
            embedding_head.embedding_head() if embedding_head is not None else None
        )

    def _block_costs(
        self, choices: Sequence[BlockChoice], sizes: Array
    ) -> list[tuple[BlockCost, ...]]:
        """Compute the costs of blocks by choice and kind."""
        return block_costs(self.space.model, self.space.system, choices, sizes, self.edition)

    def _ends(
        self,
        embedding_head: EmbeddingHeadTables,
        layouts: Sequence[tuple[list[BlockChoice], Array, Array]],
    ) -> Array:
        """Compute the costs of embedding and head for the choices and sizes of each layout.

        Args:
            layouts: Choices, sizes, and the place of the sizes among those of all degrees.

        Returns:
            The row of embedding and head for each row of blocks.
        """

        def compute(choices: Sequence[BlockChoice], sizes: Array) -> list[tuple[EmbeddingHeadCost]]:
            return [(cost,) for cost in embedding_head.costs(choices, sizes)]

        model, system = self.space.model, self.space.system
        every = np.concatenate(list(self._rows_of.values()))
        start: dict[BlockChoice, int] = {}
        rows = [np.zeros(0, np.int32)]
        count = 0
        for choices, sizes, places in layouts:
            # An MTP module contains a transformer block, so its cost depends on the block choice.
            own = model.mtp_layers > 0
            keys = [module_choice(c) if own else plain_choice(c, system) for c in choices]
            of = sizes if own else every
            new = [key for key in dict.fromkeys(keys) if key not in start]
            for key, (cost,) in zip(
                new, self._cache.records("ends", new, of, compute), strict=True
            ):
                embedding_head.add([cost])
                start[key] = count
                count += len(of)
            place = (np.arange(len(sizes)) if own else places).astype(np.int32)
            rows += [start[key] + place for key in keys]
        return np.concatenate(rows)

    def _steps(
        self, degrees: list[int], embedding_head: EmbeddingHeadTables | None
    ) -> list[tuple[OptimizerCost, ...]]:
        """Compute the costs of optimizer steps."""
        space, total = self.space, 0
        steps: list[tuple[OptimizerCost, ...]] = []
        for degree in degrees:
            self._step_start[degree] = total
            total += len(self._shards) * len(self._own)
        rows, count = 0, len(self._own)
        known: dict[tuple[LayoutChoice, bool, bool], list[Parameters]] = {}
        for choice, numbers in self._grouped(StepChoice):
            used = [t for t in degrees if t > 1 or not choice.layout.overlapped]
            if not used:
                continue
            alone = np.concatenate([self._rows_of[t][:count] for t in used])
            key = choice.layout, choice.steps_by_matrix, choice.splits_weights
            if key not in known:
                known[key] = layer_parameters(
                    space.model, space.system, choice, alone, self.edition
                )
            rows_of = np.arange(len(alone)).reshape(len(used), count)
            each = np.tile(rows_of, (1, len(self._shards))).ravel()  # equal for all shards
            sizes, weights = alone[each], [of_kind.take(each) for of_kind in known[key]]
            shards = np.tile(np.repeat(self._shards, count), len(used)).astype(float)
            steps.append(
                step_cost(space.model, space.system, choice, weights, shards, self.edition)
            )
            if embedding_head is not None:
                embedding_head.add_steps(choice, sizes, shards)
            self._step_base[numbers] = rows
            rows += len(sizes)
        return steps

    @cached_property
    def exchanges(self) -> bool:
        """True if any block has collectives of further axes (expert or context parallelism)."""
        return bool(self.block.axis_exposed.any())

    @property
    def several_kinds(self) -> bool:
        """True if the model has several kinds of block."""
        return self._kinds is not None

    def kinds(self, blocks: Array, steps: Array) -> BlockKinds | None:
        """Return the kinds of block for rows of blocks and of optimizer steps; None if there is one kind."""
        return None if self._kinds is None else self._kinds.take(blocks, steps)

    def embedding_head(self, blocks: Array, steps: Array) -> EmbeddingHead | None:
        """Return embedding and head for rows of blocks and of optimizer steps; None without a vocabulary."""
        return (
            self._embedding_head.take(self._embedding_head_row[blocks], steps)
            if self._embedding_head is not None
            else None
        )

    def networks(self, unit: Unit) -> int:
        """Return the number of tensor networks for which the blocks of a unit are computed."""
        return len(self._networks[unit.tensor_par])

    def of_unit(self, unit: Unit) -> tuple[Array, Array, Array, Array]:
        """Return the shared data of the nodes of a unit, on axes that broadcast to (chunks, variant, microbatch size).

        Returns:
            Chunks, microbatch sizes, the block row to which the row of a variant is added, and the number of an
            execution without the contribution of its variant.
        """
        if unit not in self._of_unit:
            space, degree = self.space, unit.tensor_par
            place = np.searchsorted(self._micro[degree], unit.microbatches)
            blocks = self._block_start[degree] + place * (self.networks(unit) * len(self._own))
            number = (
                space.number("tensor_par", (unit.tensor_par,))
                + space.number("pipeline_par", (unit.pipeline_par,))
                + unit.batch_position * space.strides["batch_size"]
                + space.number("pipeline_interleaving", unit.interleavings)[:, None, None]
                + space.number("microbatch_size", unit.microbatches)
            )
            chunks = np.array(unit.interleavings)[:, None, None]
            self._of_unit[unit] = chunks, np.array(unit.microbatches), blocks, number
        return self._of_unit[unit]

    def block_rows(self, first: Array, variants: Array, networks: int) -> Array:
        """Return the block rows of nodes: shape (tensor networks, nodes)."""
        sizes = first + self._size_base[variants] + self._own_size[variants]
        sizes = sizes + len(self._own) * np.arange(networks)[:, None]
        return np.asarray(self._block_base[variants] + self._place[sizes])

    def step_rows(self, degrees: Array, variants: Array, shards: Array) -> Array:
        """Return the optimizer rows of nodes, by tensor degree and shards; the arguments broadcast."""
        known = np.array(sorted(self._step_start))
        starts = np.array([self._step_start[degree] for degree in known.tolist()])
        start = starts[np.searchsorted(known, degrees)]
        number = np.searchsorted(self._shards, shards) * len(self._own)
        return np.asarray(start + number + self._step_base[variants] + self._own_size[variants])
