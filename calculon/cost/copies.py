"""Copies in and out of FSDP's communication buffers, and the quantization of gathered weights.

A collective of FSDP2 moves all parameters of a unit in one buffer: shards are cast into it, gathered weights are copied
out of it, and gradients are copied and cast into another buffer, which is reduced. These kernels run on the compute
stream, so that nothing hides them; the next gather may overlap with them.

Source: PyTorch, ``torch/distributed/fsdp``, ``_fsdp_collectives.py``: ``all_gather_copy_in``,
``foreach_all_gather_copy_out`` (pull requests 117203, 119451) and ``chunk_cat`` of the gradients (121081).
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from calculon.base.arrays import is_shared_zeros
from calculon.base.record_arrays import changed
from calculon.base.units import Array, Bytes, Count, Fraction, Seconds
from calculon.cost.block_cost import BlockCost
from calculon.cost.data.data_collectives import Sharding, regathers, unit_blocks
from calculon.cost.data.strategies import STRATEGIES
from calculon.cost.data.synced import SyncedBytes, synced_block
from calculon.cost.embedding_head import EmbeddingHead, EmbeddingHeadTimes
from calculon.cost.optimizer_step import OptimizerCost
from calculon.declarations.statistics import Work
from calculon.hardware.system import System
from calculon.plan.schedule import Schedule


class StageLayers(NamedTuple):
    """A block of a stage, embedding and LM head, with the copies of their weights and gradients.

    Attributes:
        block, embedding_head: Costs whose passes include the copies.
        block_copies, embedding_copies, head_copies: Times of the copies for a microbatch.
    """

    block: BlockCost
    embedding_head: EmbeddingHead | None
    block_copies: Seconds
    embedding_copies: Seconds
    head_copies: Seconds


def with_copies(
    block: BlockCost,
    optimizer: OptimizerCost,
    embedding_head: EmbeddingHead | None,
    schedule: Schedule,
    system: System,
) -> StageLayers:
    """Return a block, embedding and LM head whose passes include the copies of the data-parallel strategy."""
    strategy, none = STRATEGIES[schedule.choice.zero_stage], np.zeros(1)
    if strategy.splits_weights:
        again = regathers(schedule) & schedule.training
        block = with_conversion(block, again, system)
        if embedding_head is not None:
            embedding_head = modules_with_conversion(embedding_head, system)
    sharding = strategy.sharding
    if sharding is None or not sharding.buffered or not schedule.training:
        return StageLayers(block, embedding_head, none, none, none)
    copies = Copies(sharding, schedule, system)
    copied, each = copies.of_block(block, optimizer)
    if embedding_head is None:
        return StageLayers(copied, None, each, none, none)
    reduced = block.gradient_message / block.weight
    ends, embedding, head = copies.of_embedding_and_head(embedding_head, reduced)
    return StageLayers(copied, ends, each, embedding, head)


def copy_time(
    layers: StageLayers, schedule: Schedule, embedding_head: EmbeddingHeadTimes | None
) -> Seconds:
    """Return the time of the copies per batch; `schedule` has the blocks of the slowest stage."""
    time: Seconds = schedule.microbatches * schedule.blocks * layers.block_copies
    if embedding_head is None:
        return time
    of_ends = embedding_head.of_slower(layers.embedding_copies, layers.head_copies)
    return time + schedule.microbatches * of_ends


class Copies:
    """Copies of executions that shard weights and gather them in buffers."""

    def __init__(self, sharding: Sharding, schedule: Schedule, system: System):
        self._schedule, self._system = schedule, system
        self._shards = sharding.shards(schedule)
        self._active = self._shards > 1  # experts then have buffers as well, even with one shard

    def of_block(self, cost: BlockCost, optimizer: OptimizerCost) -> tuple[BlockCost, Seconds]:
        """Return a block with its copies, and their time; a kernel copies a whole unit."""
        synced = SyncedBytes(weight=cost.weight, gradient=cost.gradient_message)
        again = regathers(self._schedule)
        unit, sent = unit_blocks(self._schedule), 1 / self._shards
        if (experts := synced_block(cost, self._schedule).experts) is not None:
            share = experts.weight / cost.forms.sent
            of_experts = 1 / self._schedule.expert_shards(self._shards)
            sent = (1 - share) * sent + share * of_experts
        received = cost.forms.sent
        return self._copied(cost, synced, received, optimizer.weight, again, unit, sent)

    def of_embedding_and_head(
        self, ends: EmbeddingHead, reduced: Array
    ) -> tuple[EmbeddingHead, Seconds, Seconds]:
        """Return embedding and head with their copies, and the times of both; weights stay until the backward pass.

        `reduced` is gradient bytes per byte of weights.
        """
        piped, step, once = self._schedule.separate_ends, ends.step, np.array(1.0)
        first, last = ends.synced(reduced).apart(piped)
        shard, rest = step.first.optimizer.weight, step.last.optimizer.weight
        if ends.tied:
            shard = np.where(piped, shard, step.both.optimizer.weight)
            rest = np.where(piped, rest, 0.0)
        never = np.array(False)
        sent = 1 / self._shards
        cost, whole = ends.cost, first.weight
        embedding, in_embedding = self._copied(
            cost.embedding, first, whole, shard, never, once, sent
        )
        head, in_head = self._copied(cost.head, last, last.weight, rest, never, once, sent)
        cost = changed(cost, embedding=embedding, head=head)
        if ends.modules is not None:
            share = 1 - ends.modules.head / step.last.weight
            cost = changed(cost, modules=ends.cost.modules + share * in_head)
        return replace(ends, cost=cost), in_embedding, in_head

    def _copied(
        self,
        cost: BlockCost,
        synced: SyncedBytes,
        received: Bytes,
        shard: Bytes,
        again: Array,
        unit: Count,
        sent: Fraction,
    ) -> tuple[BlockCost, Seconds]:
        """Return a cost with copies in its forward pass, its backward pass and its weight gradients, and their time.

        A gather reads the shard in the type in which it is kept and writes it in the type of the message; then it reads
        and writes all received weights. A reduction reads the gradients in the type of the computation and writes them
        in the type of the reduction. With ``sync_once`` weights are gathered for the first microbatch only, and each
        microbatch adds its gradients to whole sums, which are copied once.

        Args:
            synced: Bytes of the weights and of the reduced gradients.
            received: Bytes of the gathered weights.
            shard: Bytes of the kept shard.
            again: Whether the backward pass gathers again.
            unit: Blocks that one kernel copies.
            sent: Share of the received bytes that a rank sends.
        """
        gathered = shard + (sent + 2) * received
        reduced = synced.weight + synced.gradient
        if np.any(once := self._schedule.columns.sync_once):
            share = 1 / self._schedule.microbatches
            gathered = np.where(once, share * gathered, gathered)
            sums = synced.weight + 2 * (1 + share) * synced.gradient
            reduced = np.where(once, sums, reduced)
        moved = (gathered, np.where(again, gathered, 0.0), reduced)
        sizes = [np.where(self._active, size, 0.0) for size in moved]
        times = [self._system.move_time(unit * size) / unit for size in sizes]
        passes = zip((cost.fw, cost.agrad, cost.wgrad), sizes, times, strict=True)
        fw, agrad, wgrad = (_longer(work, size, time) for work, size, time in passes)
        whole = times[0] + times[1] + times[2]
        return changed(cost, fw=fw, agrad=agrad, wgrad=wgrad), whole


def with_conversion(cost: BlockCost, again: Array, system: System) -> BlockCost:
    """Add the quantization of gathered weights to the forward pass, and to a backward pass that gathers `again`."""
    conversion = cost.forms.conversion
    if is_shared_zeros(conversion):
        return cost
    time = system.move_time(conversion)
    return changed(
        cost,
        fw=_longer(cost.fw, conversion, time),
        agrad=_longer(cost.agrad, np.where(again, conversion, 0.0), np.where(again, time, 0.0)),
    )


def modules_with_conversion(ends: EmbeddingHead, system: System) -> EmbeddingHead:
    """Add the quantization of gathered weights to MTP modules, whose weights stay until their backward pass."""
    if ends.modules is None or is_shared_zeros(ends.cost.head.forms.conversion):
        return ends
    head = with_conversion(ends.cost.head, np.array(False), system)
    longer = head.fw.time - ends.cost.head.fw.time
    return replace(ends, cost=changed(ends.cost, head=head, modules=ends.cost.modules + longer))


def _longer(work: Work, size: Bytes, time: Seconds) -> Work:
    """Return a pass that moves further bytes in further `time`."""
    return changed(
        work,
        mem_accessed=work.mem_accessed + size,
        mem_time=work.mem_time + time,
        time=work.time + time,
    )
