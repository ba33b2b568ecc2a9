"""Collectives of the explicit data-parallel strategies (DDP, ZeRO, FSDP, layer-wise sharding): sizes and counts.

Everything is counted with a :class:`~calculon.parallel.process_groups.CollectiveCost`, in seconds or in bytes.

Sources: Li et al., *PyTorch Distributed*, arXiv 2006.15704, section 3.2 (buckets); Rajbhandari et al., *ZeRO*, arXiv
1910.02054, section 7 (traffic); Zhao et al., *PyTorch FSDP*, arXiv 2304.11277, sections 3.2 and 3.3 (units, hybrid
sharding, prefetching).
"""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from calculon.arrays import derived
from calculon.hardware.system import System
from calculon.parallel.data.sharding import Sharding, bucket_bytes, unit_blocks
from calculon.parallel.data.synced import SyncedBytes
from calculon.parallel.process_groups import CollectiveCost, ProcessGroup, data_group
from calculon.plan.schedule import Schedule
from calculon.units import Array, Bytes, Count


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

    Parameters
    ----------
    block : SyncedBytes
        Gradient and parameter bytes of one block.
    embedding_head : pair of SyncedBytes
        The same of embedding and LM head; 0 without a vocabulary.
    """

    def __init__(
        self,
        sharding: Sharding,
        block: SyncedBytes,
        embedding_head: tuple[SyncedBytes, SyncedBytes],
        cost: CollectiveCost,
    ):
        self.sharding, self.block, self.embedding_head = sharding, block, embedding_head
        self.embedding, self.head = embedding_head
        self.cost, self.schedule = cost, cost.schedule

    @derived
    def all(self) -> ProcessGroup:
        """All replicas."""
        return data_group(self.schedule, self.cost.system, self.schedule.data_par)

    @derived
    def _sharing(self) -> ProcessGroup:
        """The replicas that share what is split."""
        return shard_group(self.sharding, self.schedule, self.cost.system)

    # -- collectives --------------------------------------------------------------------------------------------------

    def gather(self, weight: Bytes) -> Array:
        """Have weights whole again."""
        operation = "broadcast" if self.sharding.layer_wise else "all_gather"
        return self.cost(operation, weight, self._sharing)

    def reduce(self, gradient: Bytes) -> Array:
        """Add gradients up over all replicas: over those that share them, then over the copies."""
        if self.sharding.layer_wise:
            return self.cost("reduce", gradient, self.all)
        if not self.sharding.state:
            return self.cost("all_reduce", gradient, self.all)
        once = self.cost("reduce_scatter", gradient, self._sharing)
        copies = self.sharding.copies(self.schedule)
        if not np.any(copies > 1):
            return once
        group = copy_group(self.sharding, self.schedule, self.cost.system)
        rest = self.cost("all_reduce", gradient / self.sharding.shards(self.schedule), group)
        return once + np.where(copies > 1, rest, 0.0)

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
        if not np.any(self.schedule.pipeline_par > 1):
            return (self._buckets(self.embedding, self.head),)
        alone = self.schedule.pipeline_par == 1
        first = self._buckets(self.embedding, self.head.where(alone))
        return first, self._buckets(self.embedding.where(alone), self.head)

    def _buckets(self, embedding: SyncedBytes, head: SyncedBytes) -> Buckets:
        """Reduce the gradients of a stage once, the head's first and the embedding's last."""
        block, blocks = self.block.gradient, self.schedule.blocks
        bucket = bucket_bytes(self.schedule)
        one = self.reduce(block)
        others = (blocks - 1) * one + self._part(self.reduce, head.gradient)
        last = one + self._part(self.reduce, embedding.gradient)
        before: Count = (blocks - 1) * np.ones_like(block * blocks)
        if np.any(bucket > 0):
            whole = blocks * block + embedding.gradient + head.gradient
            full = np.maximum(np.where(bucket > 0, bucket, whole), 1.0)
            rest = whole - (np.ceil(whole / full) - 1) * full
            rest = np.minimum(whole, np.maximum(rest, embedding.gradient))
            count = np.ceil((whole - rest) / full)
            each = self.reduce((whole - rest) / np.maximum(count, 1.0))
            others = np.where(bucket > 0, count * each, others)
            last = np.where(bucket > 0, self.reduce(rest), last)
            before = np.where(bucket > 0, blocks * (1 - rest / whole), before)
        return Buckets(others, last, before)

    @derived
    def update(self) -> Update:
        """New weights, gathered after the step."""
        return Update(
            self.gather(self.block.weight),
            self._part(self.gather, self.embedding.weight),
            self._part(self.gather, self.head.weight),
        )

    @derived
    def units(self) -> Units:
        """ZeRO-3, FSDP and layer-wise sharding: weights are gathered for each pass of each microbatch, unit after unit.

        The head is kept from its forward to its backward pass.
        """
        unit = unit_blocks(self.schedule)
        gather = self.gather(unit * self.block.weight)
        embedding = self._part(self.gather, self.embedding.weight)
        return Units(
            number=self.schedule.chunk_blocks / unit,
            gather=gather,
            again=np.where(self.schedule.columns.reshard_after_forward, gather, 0.0),
            reduce=self.reduce(unit * self.block.gradient),
            embedding=embedding + self._part(self.reduce, self.embedding.gradient),
            head_gather=self._part(self.gather, self.head.weight),
            head_reduce=self._part(self.reduce, self.head.gradient),
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
        piped = self.schedule.pipeline_par > 1
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


def shard_group(sharding: Sharding, schedule: Schedule, system: System) -> ProcessGroup:
    """Return the groups of replicas that share what is split."""
    return data_group(schedule, system, sharding.shards(schedule))


def copy_group(sharding: Sharding, schedule: Schedule, system: System) -> ProcessGroup:
    """Return the groups of replicas that hold the same of what is split."""
    shards, copies = sharding.shards(schedule), sharding.copies(schedule)
    return replace(data_group(schedule, system, copies, shards), copies=True)


def _stages(some: DataCollectives) -> tuple[Array, Array]:
    """Return what it takes to reduce the gradients of the first and the last stage."""
    return some.buckets[0].all, some.buckets[-1].all
