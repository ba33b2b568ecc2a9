"""Collectives of the explicit data-parallel strategies (DDP, ZeRO, FSDP, layer-wise sharding): sizes and counts.

Everything is counted with a :class:`~calculon.cost.process_groups.CollectiveCost`, in seconds or in bytes.

Sources: Li et al., *PyTorch Distributed*, arXiv 2006.15704, section 3.2 (buckets); Rajbhandari et al., *ZeRO*, arXiv
1910.02054, section 7 (traffic); Zhao et al., *PyTorch FSDP*, arXiv 2304.11277, sections 3.2 and 3.3 (units, hybrid
sharding, prefetching).
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from calculon.base.arrays import derived
from calculon.base.units import Array, Bytes, Count, Fraction
from calculon.cost.data.class_collectives import ClassCollectives, of_both, taken
from calculon.cost.data.sharding import Sharding, bucket_bytes, unit_blocks
from calculon.cost.data.synced import NOTHING, SyncedBlock, SyncedBytes
from calculon.cost.process_groups import CollectiveCost


class Buckets(NamedTuple):
    """Gradient reduction of a stage by buckets; the last one is full after `before` backward passes of a block."""

    others: Array
    last: Array
    before: Count

    @property
    def all(self) -> Array:
        """All buckets."""
        return self.others + self.last


class Update(NamedTuple):
    """Gathers of new weights after the optimizer step: of a block, of embedding and LM head."""

    block: Array
    embedding: Array
    head: Array


class Units(NamedTuple):
    """Gathers and reduction of a unit of blocks of a chunk; the same of embedding and LM head, the head's apart."""

    number: Count
    gather: Array
    again: Array
    reduce: Array
    embedding: Array
    head_gather: Array
    head_reduce: Array


class DataCollectives:
    """Collectives of a batch between replicas, per execution, in the unit of the cost function: seconds or bytes.

    Args:
        block: Gradient and parameter bytes of one block.
        embedding_head: The same of embedding and LM head; 0 without a vocabulary.
    """

    def __init__(
        self,
        sharding: Sharding,
        block: SyncedBlock,
        embedding_head: tuple[SyncedBytes, SyncedBytes],
        cost: CollectiveCost,
    ):
        self.sharding, self.block, self.embedding_head = sharding, block, embedding_head
        self.embedding, self.head = embedding_head
        self.cost, self.schedule = cost, cost.schedule
        self.dense = ClassCollectives(sharding, cost)
        self.experts = None
        if block.experts is not None:
            self.experts = ClassCollectives(sharding, cost, experts=True)

    @property
    def usage(self) -> Fraction:
        """Share of the compute engines that they take."""
        system = self.cost.system
        if self.experts is None:
            return self.dense.all.usage(system)
        return taken((self.dense.all, self.experts.all), system)

    # -- collectives --------------------------------------------------------------------------------------------------

    def gather(self, blocks: Count | float = 1.0) -> Array:
        """Have the weights of some blocks whole again."""
        dense = self.dense.gather(blocks * self.block.dense.weight)
        if self.experts is None or self.block.experts is None:
            return dense
        return self._both(
            dense, self._part(self.experts.gather, blocks * self.block.experts.weight)
        )

    def reduce(self, blocks: Count | float = 1.0) -> Array:
        """Add up the gradients of some blocks."""
        dense = self.dense.reduce(blocks * self.block.dense.gradient)
        if self.experts is None or self.block.experts is None:
            return dense
        return self._both(
            dense, self._part(self.experts.reduce, blocks * self.block.experts.gradient)
        )

    def _both(self, dense: Array, experts: Array) -> Array:
        """Return what the collectives of both classes take."""
        assert self.experts is not None
        return of_both(dense, experts, (self.dense.all, self.experts.all), self.cost)

    # -- batch --------------------------------------------------------------------------------------------------------

    @derived
    def batch(self) -> Array:
        """Everything in a batch, on the stage where it takes longest."""
        if self.sharding.weights:
            return self.schedule.microbatches * self.of_microbatch
        return self._whole_weights

    @property
    def _whole_weights(self) -> Array:
        """DDP, ZeRO-1 and ZeRO-2: gradients are reduced in buckets, and a split step is followed by a gather."""
        reduced = self.times * self._of_longer(_stages)
        if not self.sharding.state:
            return reduced
        update = self.update
        gathered = update.block + (self.schedule.blocks - 1) * update.block
        gathered = gathered + self.of_embedding_and_head(
            lambda some: (some.update.embedding, some.update.head)
        )
        return reduced + gathered

    @property
    def times(self) -> Count:
        """How often whole gradients are reduced in a batch."""
        groups = np.ceil(self.schedule.microbatches / self.schedule.columns.grad_group)
        return np.where(self.sharding.every(self.schedule), groups, 1.0)

    @derived
    def buckets(self) -> tuple[Buckets, ...]:
        """Gradients of the first stage and, where it is another one, of the last."""
        if not np.any(self.schedule.ends_apart):
            return (self._buckets(self.embedding, self.head),)
        alone = ~self.schedule.ends_apart
        first = self._buckets(self.embedding, self.head.where(alone))
        return first, self._buckets(self.embedding.where(alone), self.head)

    def _buckets(self, embedding: SyncedBytes, head: SyncedBytes) -> Buckets:
        """Reduce the gradients of a stage once; each class has buckets of its own."""
        dense = self._buckets_of(self.dense, self.block.dense.gradient, embedding, head)
        if self.experts is None or self.block.experts is None:
            return dense
        gradient = self.block.experts.gradient
        experts = self._buckets_of(self.experts, gradient, NOTHING, NOTHING)
        there = (self.experts.all.ranks > 1) & (gradient > 0)
        return Buckets(
            self._both(dense.others, np.where(there, experts.others, 0.0)),
            self._both(dense.last, np.where(there, experts.last, 0.0)),
            np.where(there, np.minimum(dense.before, experts.before), dense.before),
        )

    def _buckets_of(
        self, some: ClassCollectives, block: Bytes, embedding: SyncedBytes, head: SyncedBytes
    ) -> Buckets:
        """Reduce the gradients of a class on a stage, the head's first and the embedding's last."""
        blocks, reduce = self.schedule.blocks, some.reduce
        bucket = bucket_bytes(self.schedule)
        one = self._part(reduce, block) if some.experts else reduce(block)
        others = (blocks - 1) * one + self._part(reduce, head.gradient)
        last = one + self._part(reduce, embedding.gradient)
        before: Count = (blocks - 1) * np.ones_like(block * blocks)
        if np.any(bucket > 0):
            whole = blocks * block + embedding.gradient + head.gradient
            if some.experts:
                whole = np.maximum(whole, 1.0)
            full = np.maximum(np.where(bucket > 0, bucket, whole), 1.0)
            rest = whole - (np.ceil(whole / full) - 1) * full
            rest = np.minimum(whole, np.maximum(rest, embedding.gradient))
            count = np.ceil((whole - rest) / full)
            each = reduce((whole - rest) / np.maximum(count, 1.0))
            others = np.where(bucket > 0, count * each, others)
            last = np.where(bucket > 0, reduce(rest), last)
            before = np.where(bucket > 0, blocks * (1 - rest / whole), before)
        return Buckets(others, last, before)

    @derived
    def update(self) -> Update:
        """New weights, gathered after the step."""
        return Update(
            self.gather(),
            self._part(self.dense.gather, self.embedding.weight),
            self._part(self.dense.gather, self.head.weight),
        )

    @derived
    def units(self) -> Units:
        """ZeRO-3, FSDP and layer-wise sharding: weights are gathered for each pass of each microbatch, unit after unit.

        The head is kept from its forward to its backward pass.
        """
        unit = unit_blocks(self.schedule)
        gather, ends = self.gather(unit), self.dense
        embedding = self._part(ends.gather, self.embedding.weight)
        return Units(
            number=self.schedule.chunk_blocks / unit,
            gather=gather,
            again=np.where(self.schedule.columns.reshard_after_forward, gather, 0.0),
            reduce=self.reduce(unit),
            embedding=embedding + self._part(ends.reduce, self.embedding.gradient),
            head_gather=self._part(ends.gather, self.head.weight),
            head_reduce=self._part(ends.reduce, self.head.gradient),
        )

    @derived
    def of_microbatch(self) -> Array:
        """All collectives of a microbatch where weights are split."""
        units = self.units
        each = units.gather + units.again + units.reduce
        embedding_head = self.of_embedding_and_head(
            lambda some: (some.units.embedding, some.units.head_gather + some.units.head_reduce)
        )
        return self.schedule.interleaving * units.number * each + embedding_head

    # -- stages -------------------------------------------------------------------------------------------------------

    def of_embedding_and_head(
        self, quantity: Callable[["DataCollectives"], tuple[Array, Array]]
    ) -> Array:
        """Return a quantity of embedding and head, or of the longer where they are on different stages."""
        embedding, head = quantity(self)
        piped = self.schedule.ends_apart
        return np.where(piped, self._of_longer(quantity), embedding + head)

    def _of_longer(self, stages: Callable[["DataCollectives"], tuple[Array, Array]]) -> Array:
        """Return the quantity of the stage on which it takes longer."""

        def both(cost: CollectiveCost) -> tuple[Array, Array]:
            same = cost is self.cost
            return stages(
                self
                if same
                else DataCollectives(self.sharding, self.block, self.embedding_head, cost)
            )

        return self.cost.of_longer(both)

    def _part(self, measure: Callable[[Bytes], Array], size: Bytes) -> Array:
        """Measure a collective that there may be nothing for."""
        return np.where(size > 0, measure(size), 0.0) if np.any(size > 0) else np.zeros(1)


def _stages(some: DataCollectives) -> tuple[Array, Array]:
    """Return what it takes to reduce the gradients of the first and the last stage."""
    return some.buckets[0].all, some.buckets[-1].all
