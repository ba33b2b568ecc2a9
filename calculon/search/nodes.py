"""Nodes of a tile: combinations of unit, chunks, variant and microbatch size in a flat array."""

from collections.abc import Iterator, Sequence

import numpy as np

from calculon.base.arrays import cached_property, forget
from calculon.base.frozen import dataclass
from calculon.base.units import Array
from calculon.declarations.axes import PUBLISHED_AXES
from calculon.declarations.scope_choices import BatchChoice
from calculon.plan.choices import members
from calculon.plan.columns import encoded
from calculon.plan.schedule import shard_count
from calculon.search.candidates import REPLICATED, VARIANT
from calculon.search.cost_tables import CostTables
from calculon.search.space import Space, Unit, Values

OF_NODES = ("unit", "chunks", "variant", "microbatch", "first_block", "number")
"""Fields with one value per node."""


@dataclass(frozen=True)
class Nodes:
    """Nodes of similar units (:func:`alike`).

    Nodes of the same unit, chunks and variant are adjacent, with ascending microbatch sizes.

    Attributes:
        choice: Batch strategies of all nodes.
        units: The units.
        unit (shape (nodes,)): Index of the unit of each node.
        chunks, variant, microbatch (shape (nodes,)): Model chunks of a stage, index of the variant, microbatch size.
        first_block, number (shape (nodes,)): Block row of the unit and microbatch size; contribution of unit, chunks
            and microbatch size to the number of an execution.
    """

    space: Space
    tables: CostTables
    choice: BatchChoice
    units: Sequence[Unit]
    unit: Array
    chunks: Array
    variant: Array
    microbatch: Array
    first_block: Array
    number: Array

    def __len__(self) -> int:
        return len(self.unit)

    def take(self, some: Array) -> "Nodes":
        """Return selected nodes in their order."""
        own = (getattr(self, name)[some] for name in OF_NODES)
        return Nodes(self.space, self.tables, self.choice, self.units, *own)

    @staticmethod
    def joined(parts: "Sequence[Nodes]") -> "Nodes":
        """Concatenate nodes that have the same tables and batch strategies."""
        units = [unit for one in parts for unit in one.units]
        before = np.cumsum([0, *(len(one.units) for one in parts)])
        number = np.concatenate(
            [start + one.unit for start, one in zip(before, parts, strict=False)]
        )
        others = (np.concatenate([getattr(one, n) for one in parts]) for n in OF_NODES[1:])
        return Nodes(parts[0].space, parts[0].tables, parts[0].choice, units, number, *others)

    @cached_property
    def unit_columns(self) -> dict[str, Array]:
        """Values that units fix, as columns of shape (units,)."""
        names = (*(axis.degree for axis in PUBLISHED_AXES), "batch_size")
        return {n: np.array([getattr(u, n) for u in self.units]) for n in names}

    @cached_property
    def columns(self) -> dict[str, Array]:
        """Values that nodes fix, as columns: of shape (nodes,), or scalars that all nodes share."""
        return {
            **self.space.rules.constants,
            **{name: values[self.unit] for name, values in self.unit_columns.items()},
            "pipeline_interleaving": self.chunks,
            "microbatch_size": self.microbatch,
            **self.tables.variants.take(self.variant),
            **self._shared,
        }

    def release_columns(self) -> None:
        """Release derived columns; they are computed again on the next access."""
        forget(self, "columns", "block_rows", "numbers", "starts")

    @property
    def _shared(self) -> dict[str, Array]:
        """Scalars that all nodes share because they share the batch strategies."""
        return {
            name: np.array(encoded(name, getattr(self.choice, name)))
            for name in members(BatchChoice)
            if name in VARIANT
        }

    def shared(self, name: str) -> Array:
        """Return the value of a field that all nodes have in common."""
        values = self.tables.variants.columns[name]
        if not values.ndim:
            return values.reshape(1)
        values = values[self.variant]
        result: Array = values[:1]
        assert (values == result).all(), name
        return result

    @cached_property
    def block_rows(self) -> Array:
        """Rows of the block table: shape (tensor networks, nodes)."""
        networks = self.tables.networks(self.units[0])
        return self.tables.block_rows(self.first_block, self.variant, networks)

    def step_rows(self, sharding: Array) -> Array:
        """Rows of the optimizer table for candidates of ``optimizer_sharding``: shape (candidates, nodes)."""
        columns = self.columns
        ranks = columns["data_par"] * columns["context_par"]
        shards = shard_count(sharding[:, None], columns["dp_shard"], ranks)
        return self.tables.step_rows(columns["tensor_par"], self.variant, shards)

    @cached_property
    def numbers(self) -> Array:
        """Contribution of each node to the number of an execution."""
        return np.asarray(self.number + self.space.variant_numbers[self.variant])

    @cached_property
    def starts(self) -> Array:
        """First node of the run of microbatch sizes that contains each node: shape (nodes,)."""
        same = (self.unit, self.chunks, self.variant)
        new = np.concatenate([[True], np.logical_or.reduce([c[1:] != c[:-1] for c in same])])
        return np.maximum.accumulate(np.where(new, np.arange(len(new)), 0))


def similar_units(space: Space, units: Sequence[Unit]) -> Iterator[list[Unit]]:
    """Group units whose loops over networks and data parallelism have the same candidates."""
    kinds: dict[tuple[Values, ...], list[Unit]] = {}
    for unit in units:
        networks = (
            space.networks(axis.network, getattr(unit, axis.degree)) for axis in PUBLISHED_AXES
        )
        replicated = (space.replicated(name, unit.data_par) for name in REPLICATED)
        kinds.setdefault((*networks, *replicated), []).append(unit)
    yield from kinds.values()


def nodes_of(
    tables: CostTables, choice: BatchChoice, units: Sequence[Unit], variants: Array, most: int
) -> Iterator[Nodes]:
    """Yield all nodes of similar units with variants of a choice, in parts of at most `most` nodes."""
    pending: list[tuple[Unit, Array]] = []
    count = 0
    for unit in units:
        own = variants[tables.space.fitting(unit)[variants]]
        each = len(unit.interleavings) * len(unit.microbatches)
        while len(own):
            # As many variants as still fit; at least one for an empty part, so that every part makes progress.
            room = max(1, (most - count) // each) if count < most else 0
            if not room or (pending and room * each > most - count):
                yield _laid_out(tables, choice, pending)
                pending, count = [], 0
                continue
            pending.append((unit, own[:room]))
            count += len(own[:room]) * each
            own = own[room:]
    if pending:
        yield _laid_out(tables, choice, pending)


def _laid_out(
    tables: CostTables, choice: BatchChoice, parts: Sequence[tuple[Unit, Array]]
) -> Nodes:
    """Lay out the nodes of units with some of their variants."""
    columns: list[tuple[Array, ...]] = []
    for place, (unit, variants) in enumerate(parts):
        chunks, sizes, blocks, numbers = tables.of_unit(unit)
        shape = (len(chunks), len(variants), len(sizes))
        laid = (np.array(place), chunks, variants[:, None], sizes, blocks, numbers)
        columns.append(tuple(np.broadcast_to(values, shape).ravel() for values in laid))
    joined = (np.concatenate(of_all) for of_all in zip(*columns, strict=True))
    return Nodes(tables.space, tables, choice, [unit for unit, _ in parts], *joined)
