"""Collectives of the explicit data-parallel strategies (DDP, ZeRO, FSDP and HSDP, layer-wise sharding).

First the sharding of weights, gradients and optimizer state, then the collectives of one class of parameters, then all
collectives of a batch. All are counted with a :class:`~calculon.cost.process_groups.CollectiveCost`, in seconds or in
bytes.

Sources: Li et al., *PyTorch Distributed*, arXiv 2006.15704, section 3.2 (buckets); Rajbhandari et al., *ZeRO*, arXiv
1910.02054, section 7 (traffic); Zhao et al., *PyTorch FSDP*, arXiv 2304.11277, sections 3.2 and 3.3 (units, hybrid
sharding, prefetching). Two classes of parameters: Liu et al., *MoE Parallel Folding*, arXiv 2504.14960, section 3.2;
torchtitan, ``distributed/parallel_dims.py`` (meshes ``fsdp`` and ``efsdp``); Megatron-LM, ``core/distributed``, which
has separate buffers for expert parameters.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import NamedTuple

import numpy as np

from calculon.base.arrays import cached_property
from calculon.base.frozen import dataclass
from calculon.base.units import MIB, Array, Bytes, Count, Fraction
from calculon.cost.data.synced import NOTHING, SyncedBlock, SyncedBytes
from calculon.cost.process_groups import (
    CollectiveCost,
    ProcessGroup,
    axis_group,
    data_group,
    expert_replicas,
)
from calculon.hardware.system import System
from calculon.plan.schedule import Schedule


@dataclass(frozen=True, slots=True)
class Sharding:
    """Tensors that data-parallel ranks shard. Source: Rajbhandari et al., *ZeRO*, arXiv 1910.02054, section 5.

    Attributes:
        state, gradients, weights: Whether optimizer state, gradients and weights are sharded.
        layer_wise: Whether a shard is a number of whole layers, each of which one rank owns.
        buffered: Whether weights and gradients are copied into and out of communication buffers, as in FSDP2.
    """

    state: bool = False
    gradients: bool = False
    weights: bool = False
    layer_wise: bool = False
    buffered: bool = False

    def shards(self, schedule: Schedule) -> Count:
        """Return the number of ranks that share a sharded tensor."""
        if not self.state:
            return np.ones_like(schedule.data_ranks)
        stated = schedule.columns.dp_shard
        return np.where(stated > 0, stated, schedule.data_ranks)

    def copies(self, schedule: Schedule) -> Count:
        """Return the number of ranks with equal shards: the replicate degree of HSDP."""
        return schedule.data_ranks / self.shards(schedule)

    def reduces_each_microbatch(self, schedule: Schedule) -> Array:
        """Return true if gradients are reduced after every microbatch."""
        return np.array(True) if self.gradients else ~schedule.columns.no_sync


SHARDINGS: Mapping[str, Sharding] = {
    "0": Sharding(),
    "1": Sharding(state=True),
    "2": Sharding(state=True, gradients=True),
    "3": Sharding(state=True, gradients=True, weights=True),
    "fsdp": Sharding(state=True, gradients=True, weights=True, buffered=True),
    "owner": Sharding(state=True, gradients=True, weights=True, layer_wise=True),
}
"""Sharding of each value of ``zero_stage`` but ``auto``, which is the published model."""


def unit_blocks(schedule: Schedule) -> Count:
    """Return the blocks of an FSDP unit, whose weights are gathered together."""
    return schedule.columns.fsdp_unit.astype(float)


def units_ahead(schedule: Schedule) -> Count:
    """Return the FSDP units that are prefetched."""
    return schedule.columns.fsdp_prefetch.astype(float)


def bucket_bytes(schedule: Schedule) -> Bytes:
    """Return the bytes of a gradient bucket; 0 if a bucket is a block."""
    return schedule.columns.ddp_bucket_mib * MIB


class ClassCollectives:
    """Gathers and reductions of a class of parameters, in the unit of the cost function (seconds or bytes)."""

    def __init__(self, sharding: Sharding, cost: CollectiveCost, *, experts: bool = False):
        self.sharding, self.cost, self.experts = sharding, cost, experts
        self.schedule, self.system = cost.schedule, cost.system

    @cached_property
    def all(self) -> ProcessGroup:
        """All replicas."""
        if self.experts:
            return expert_replicas(self.schedule, self.system, self.schedule.expert_data_par)
        return data_group(self.schedule, self.system, self.schedule.data_ranks)

    @cached_property
    def _sharing(self) -> ProcessGroup:
        """The ranks that share a sharded tensor."""
        return shard_group(self.sharding, self.schedule, self.system, experts=self.experts)

    def gather(self, weight: Bytes) -> Array:
        """Return the cost of gathering sharded weights."""
        operation = "broadcast" if self.sharding.layer_wise else "all_gather"
        return self.cost(operation, weight, self._sharing)

    def reduce(self, gradient: Bytes) -> Array:
        """Return the cost of reducing gradients over all replicas.

        With HSDP, gradients are reduce-scattered in a shard group, and the shards are all-reduced over the groups.
        """
        if self.sharding.layer_wise:
            return self.cost("reduce", gradient, self.all)
        if not self.sharding.state:
            return self.cost("all_reduce", gradient, self.all)
        once = self.cost("reduce_scatter", gradient, self._sharing)
        copies = self.sharding.copies(self.schedule)
        if not np.any(copies > 1):
            return once
        group = copy_group(self.sharding, self.schedule, self.system, experts=self.experts)
        between = self.cost("all_reduce", gradient / self._sharing.ranks, group)
        return once + np.where(copies > 1, between, 0.0)


def shard_group(
    sharding: Sharding, schedule: Schedule, system: System, *, experts: bool = False
) -> ProcessGroup:
    """Return the groups of ranks that share a sharded tensor: the shard dimension of HSDP."""
    shards = sharding.shards(schedule)
    if experts:
        return expert_replicas(schedule, system, schedule.expert_shards(shards))
    return data_group(schedule, system, shards)


def copy_group(
    sharding: Sharding, schedule: Schedule, system: System, *, experts: bool = False
) -> ProcessGroup:
    """Return the groups of ranks with equal shards: the replicate dimension of HSDP, of equal degree for experts."""
    shards, copies = sharding.shards(schedule), sharding.copies(schedule)
    if experts:
        apart = schedule.expert_shards(shards)
        return replace(expert_replicas(schedule, system, copies, apart), copies=True)
    return replace(data_group(schedule, system, copies, shards), copies=True)


def both_classes(
    dense: Array, experts: Array, groups: tuple[ProcessGroup, ProcessGroup], cost: CollectiveCost
) -> Array:
    """Return the cost of collectives of both classes, each counted only if its groups have several ranks.

    Bytes are added. Times are added if both use a common network; on different networks both run at the same time, and
    the longer counts.
    """
    one, other = groups
    dense, experts = np.where(one.ranks > 1, dense, 0.0), np.where(other.ranks > 1, experts, 0.0)
    total: Array = dense + experts
    if cost.bytes:
        return total
    return np.where(one.meets(other, cost.system), total, np.maximum(dense, experts))


def multiprocessor_share(groups: Sequence[ProcessGroup], system: System) -> Fraction:
    """Return the largest share of the multiprocessors that collectives of these groups occupy."""
    shares = [np.where(group.ranks > 1, group.usage(system), 0.0) for group in groups]
    return reduce(np.maximum, shares)


def groups_of(synced: SyncedBlock, schedule: Schedule, system: System) -> list[ProcessGroup]:
    """Return the groups of all replicas: of dense parameters, and of experts if they have their own."""
    groups = [data_group(schedule, system, schedule.data_ranks)]
    if synced.experts is not None:
        groups.append(expert_replicas(schedule, system, schedule.expert_data_par))
    return groups


def on_tensor_network(synced: SyncedBlock, schedule: Schedule, system: System) -> Array:
    """Return true if data parallelism uses a network that tensor parallelism uses as well."""
    tensor = axis_group(schedule, system, "tp")
    groups = groups_of(synced, schedule, system)
    return reduce(np.logical_or, (group.meets(tensor, system) for group in groups))


def reduced_bytes(synced: SyncedBlock, schedule: Schedule) -> Bytes:
    """Return the bytes of the gradients of a block that are reduced in a batch."""
    several = (schedule.data_ranks > 1) & schedule.training
    result = np.where(several, synced.dense.gradient, 0.0)
    if synced.experts is None:
        return result
    several = (schedule.expert_data_par > 1) & schedule.training
    return result + np.where(several, synced.experts.gradient, 0.0)


class Buckets(NamedTuple):
    """Cost of reducing the gradients of a stage in buckets: of all but the last bucket, and of the last.

    The last bucket is full, and can be reduced, `before` backward passes of a block after the first gradient.
    """

    others: Array
    last: Array
    before: Count

    @property
    def all(self) -> Array:
        """All buckets."""
        return self.others + self.last


class Update(NamedTuple):
    """Cost of gathering new weights after the optimizer step: of a block, of embedding and of LM head."""

    block: Array
    embedding: Array
    head: Array


class Units(NamedTuple):
    """Cost of the collectives of FSDP units for a microbatch.

    Attributes:
        number: Units of a chunk.
        gather, again, reduce: Gathers of a unit before its forward and its backward pass, and its gradient reduction.
        embedding: Gather and reduction of the embedding.
        head_gather, head_reduce: Gather and reduction of the LM head.
    """

    number: Count
    gather: Array
    again: Array
    reduce: Array
    embedding: Array
    head_gather: Array
    head_reduce: Array


class DataCollectives:
    """Data-parallel collectives of a batch, per execution, in the unit of the cost function (seconds or bytes).

    Args:
        block: Gradient and parameter bytes of one block.
        embedding_head: Gradient and parameter bytes of embedding and of LM head; 0 without a vocabulary.
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
        """Share of the multiprocessors that the collectives occupy."""
        system = self.cost.system
        if self.experts is None:
            return self.dense.all.usage(system)
        return multiprocessor_share((self.dense.all, self.experts.all), system)

    @cached_property
    def waits_for_copies(self) -> Array:
        """Mask of executions whose all-reduces between replicas of shards run on a synchronous network."""
        system, schedule = self.cost.system, self.schedule
        synchronous = np.array([system.link(i).synchronous for i in range(len(system.networks))])
        copies = self.sharding.copies(schedule)
        if not (self.sharding.state and synchronous.any() and np.any(copies > 1)):
            return np.array(False)
        group = copy_group(self.sharding, schedule, system)
        return (copies > 1) & synchronous[group.network]

    def of_copies(self, *, copies: bool) -> "DataCollectives":
        """Return the collectives between replicas of shards alone, or all others alone."""
        cost = replace(self.cost, copies=copies, known=None)
        return DataCollectives(self.sharding, self.block, self.embedding_head, cost)

    # -- collectives --------------------------------------------------------------------------------------------------

    def gather(self, blocks: Count | float = 1.0) -> Array:
        """Return the cost of gathering the weights of some blocks."""
        dense = self.dense.gather(blocks * self.block.dense.weight)
        if self.experts is None or self.block.experts is None:
            return dense
        return self._both(
            dense, self._part(self.experts.gather, blocks * self.block.experts.weight)
        )

    def reduce(self, blocks: Count | float = 1.0) -> Array:
        """Return the cost of reducing the gradients of some blocks."""
        dense = self.dense.reduce(blocks * self.block.dense.gradient)
        if self.experts is None or self.block.experts is None:
            return dense
        return self._both(
            dense, self._part(self.experts.reduce, blocks * self.block.experts.gradient)
        )

    def _both(self, dense: Array, experts: Array) -> Array:
        """Return the cost of collectives of both classes of parameters."""
        assert self.experts is not None
        return both_classes(dense, experts, (self.dense.all, self.experts.all), self.cost)

    # -- batch --------------------------------------------------------------------------------------------------------

    @cached_property
    def batch(self) -> Array:
        """All collectives of a batch on the stage where they take longest."""
        if self.sharding.weights:
            return self.schedule.microbatches * self.of_microbatch
        return self._whole_weights

    @property
    def _whole_weights(self) -> Array:
        """DDP, ZeRO-1 and ZeRO-2: gradients are reduced in buckets; a sharded step is followed by a gather."""
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
        """Number of gradient reductions in a batch."""
        groups = np.ceil(self.schedule.microbatches / self.schedule.columns.grad_group)
        return np.where(self.sharding.reduces_each_microbatch(self.schedule), groups, 1.0)

    @cached_property
    def buckets(self) -> tuple[Buckets, ...]:
        """Buckets of the first stage and, with a pipeline, of the last."""
        if not np.any(self.schedule.separate_ends):
            return (self._buckets(self.embedding, self.head),)
        single = ~self.schedule.separate_ends
        first = self._buckets(self.embedding, self.head.where(single))
        return first, self._buckets(self.embedding.where(single), self.head)

    def _buckets(self, embedding: SyncedBytes, head: SyncedBytes) -> Buckets:
        """Return the buckets of a stage; each class of parameters has buckets of its own."""
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
        """Return the buckets of a class of parameters on a stage, in the order of the backward pass: head to embedding.

        A bucket is a block, or of a stated size: then the last one has at least the whole gradient of the embedding,
        which is ready last.
        """
        blocks, reduce = self.schedule.blocks, some.reduce
        bucket = bucket_bytes(self.schedule)
        one = self._part(reduce, block) if some.experts else reduce(block)
        others = (blocks - 1) * one + self._part(reduce, head.gradient)
        last = one + self._part(reduce, embedding.gradient)
        before: Count = (blocks - 1) * np.ones_like(block * blocks)
        if np.any(bucket > 0):
            whole = blocks * block + embedding.gradient + head.gradient
            full = np.maximum(np.where(bucket > 0, bucket, whole), 1.0)
            rest = whole - (np.ceil(whole / full) - 1) * full
            rest = np.minimum(whole, np.maximum(rest, embedding.gradient))
            count = np.ceil((whole - rest) / full)
            each = reduce((whole - rest) / np.maximum(count, 1.0))
            others = np.where(bucket > 0, count * each, others)
            last = np.where(bucket > 0, self._part(reduce, rest), last)
            # An empty stage has no gradients: no division by 0.
            share = rest / np.maximum(whole, 1.0)
            before = np.where(bucket > 0, blocks * (1 - share), before)
        return Buckets(others, last, before)

    @cached_property
    def update(self) -> Update:
        """New weights, gathered after the step."""
        return Update(
            self.gather(),
            self._part(self.dense.gather, self.embedding.weight),
            self._part(self.dense.gather, self.head.weight),
        )

    @cached_property
    def units(self) -> Units:
        """ZeRO-3, FSDP and layer-wise sharding: weights are gathered unit by unit for each pass of each microbatch.

        The head stays gathered from its forward to its backward pass.
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

    @cached_property
    def of_microbatch(self) -> Array:
        """All collectives of a microbatch with sharded weights."""
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
        """Return the sum of a quantity of embedding and head, or the longer one if they are on different stages."""
        embedding, head = quantity(self)
        piped = self.schedule.separate_ends
        return np.where(piped, self._of_longer(quantity), embedding + head)

    def _of_longer(self, stages: Callable[["DataCollectives"], tuple[Array, Array]]) -> Array:
        """Return the quantity of the first or the last stage, whichever takes longer."""

        def both(cost: CollectiveCost) -> tuple[Array, Array]:
            if cost is self.cost:
                return stages(self)
            return stages(DataCollectives(self.sharding, self.block, self.embedding_head, cost))

        return self.cost.of_longer(both)

    def _part(self, measure: Callable[[Bytes], Array], size: Bytes) -> Array:
        """Return the cost of a collective, and 0 without latency for executions that have nothing to send."""
        return np.where(size > 0, measure(size), 0.0) if np.any(size > 0) else np.zeros(1)


def _stages(some: DataCollectives) -> tuple[Array, Array]:
    """Return the cost of reducing the gradients of the first and of the last stage once."""
    return some.buckets[0].all, some.buckets[-1].all
