"""Data-parallel strategies, chosen by ``zero_stage``: the published model, DDP, ZeRO-n, FSDP, layer-wise sharding.

A strategy computes the collectives of a batch, their exposed time, and their memory. All executions of a choice have
one strategy, so that no formula selects between strategies row by row.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping

import numpy as np

from calculon.base.record_arrays import apply
from calculon.base.units import Array, Bytes
from calculon.cost.data.data_collectives import (
    SHARDINGS,
    DataCollectives,
    Sharding,
    bucket_bytes,
    on_tensor_network,
    reduced_bytes,
    unit_blocks,
)
from calculon.cost.data.published_laws import published_sync, published_traffic
from calculon.cost.data.replication import Replication, Windows, units_held
from calculon.cost.data.synced import (
    NOTHING,
    BackwardPass,
    GradientSync,
    HeldBlock,
    SyncedBlock,
    SyncedBytes,
    SyncedEmbeddingHead,
)
from calculon.cost.process_groups import CollectiveCost
from calculon.editions.edition import Edition
from calculon.plan.schedule import Schedule


class DataParallelStrategy(ABC):
    """One data-parallel strategy.

    Attributes:
        sharding: Sharding over data-parallel ranks; None for the published model, where ``optimizer_sharding`` of each
            execution decides.
    """

    sharding: Sharding | None = None

    @property
    def splits_weights(self) -> bool:
        """True if a rank keeps only its shard of the weights."""
        return self.sharding is not None and self.sharding.weights

    @abstractmethod
    def stage_traffic(
        self, synced: SyncedBlock, embedding_head: SyncedEmbeddingHead | None, cost: CollectiveCost
    ) -> Array:
        """Return the cost of all collectives of a batch, in the unit of the cost function.

        `synced` is one block of a stage, which has the blocks of the schedule.
        """

    @abstractmethod
    def stage_sync(
        self,
        synced: SyncedBlock,
        embedding_head: SyncedEmbeddingHead | None,
        backward: BackwardPass,
        cost: CollectiveCost,
        edition: Edition,
    ) -> GradientSync:
        """Return the times of the collectives (section 5.6) of a stage that has the blocks of the schedule."""

    @abstractmethod
    def gradients(self, working: Bytes, waiting: Bytes, blocks: Array | int) -> Bytes:
        """Return the bytes of the weight gradients of `blocks` blocks.

        Args:
            working: Bytes of the gradients of the block being computed.
            waiting: Bytes of the gradients that a block keeps until the optimizer step.
        """

    def buffers(
        self,
        schedule: Schedule,
        block: HeldBlock,
        end: SyncedBytes | None,
    ) -> tuple[Bytes, Bytes]:
        """Return the bytes of a stage's communication buffers: gathered weights, and gradients until they are reduced.

        Args:
            block: Bytes of the weights and gradients of a block.
            end: Whole weights of embedding or head, and the gradient of their largest table; None on other stages.
        """
        none = np.zeros_like(schedule.blocks)
        return none, none


class PublishedStrategy(DataParallelStrategy):
    """The published model: gradients are reduced once per batch; ``optimizer_sharding`` shards the optimizer state."""

    stage_traffic = staticmethod(published_traffic)
    stage_sync = staticmethod(published_sync)

    def gradients(self, working: Bytes, waiting: Bytes, blocks: Array | int) -> Bytes:
        """Return whole gradients of 4 bytes in the block being computed, and kept gradients in others."""
        return working + waiting * (blocks - 1)


class ExplicitStrategy(DataParallelStrategy):
    """DDP, ZeRO-n, FSDP or HSDP, and layer-wise sharding, as frameworks implement them."""

    def __init__(self, sharding: Sharding):
        self.sharding: Sharding = sharding

    def collectives(
        self, synced: SyncedBlock, embedding_head: SyncedEmbeddingHead | None, cost: CollectiveCost
    ) -> DataCollectives:
        """Return the data-parallel collectives."""
        piped = cost.schedule.separate_ends
        ends = (NOTHING, NOTHING) if embedding_head is None else embedding_head.apart(piped)
        if synced.experts is not None:  # experts may have replicas when the model has one
            several = cost.schedule.data_ranks > 1
            ends = ends[0].where(several), ends[1].where(several)
        return DataCollectives(self.sharding, synced, ends, cost)

    def stage_traffic(
        self, synced: SyncedBlock, embedding_head: SyncedEmbeddingHead | None, cost: CollectiveCost
    ) -> Array:
        """Return the cost of all collectives of a batch."""
        return self.collectives(synced, embedding_head, cost).batch

    def stage_sync(
        self,
        synced: SyncedBlock,
        embedding_head: SyncedEmbeddingHead | None,
        backward: BackwardPass,
        cost: CollectiveCost,
        edition: Edition,
    ) -> GradientSync:
        """Return the times of the collectives, which the passes of base blocks hide.

        Waiting for offload traffic is part of them as the mean block of a chunk waits: the last block waits less, since
        its transfer proceeds at the same time.
        """
        schedule = cost.schedule
        active = schedule.reduces & schedule.training
        same_link = on_tensor_network(synced, schedule, cost.system)
        blocks = np.maximum(1.0, schedule.chunk_blocks)
        forward = backward.forward - backward.forward_waits_less / blocks
        windows = Windows(
            forward=forward - np.where(same_link, backward.tensor_forward, 0.0),
            backward=backward.base
            - backward.waits_less / blocks
            - np.where(same_link, backward.tensor_base, 0.0),
            head=backward.head,
        )
        windows = apply(lambda window: np.maximum(window, 0.0), [windows])
        collectives = self.collectives(synced, embedding_head, cost)
        times = Replication(collectives, windows).synchronization()
        message = reduced_bytes(synced, schedule)
        none = np.zeros_like(message)
        return GradientSync(
            message=message,
            link=np.where(active, times.link, none),
            exposed=np.where(active, times.exposed, none),
            chunk_bandwidth=none,
            tail_bandwidth=none,
            stalled=np.where(active, times.stalled, none),
        )

    def gradients(self, working: Bytes, waiting: Bytes, blocks: Array | int) -> Bytes:
        """Return the kept gradients of every block."""
        return waiting * blocks

    def buffers(
        self,
        schedule: Schedule,
        block: HeldBlock,
        end: SyncedBytes | None,
    ) -> tuple[Bytes, Bytes]:
        """Return the bytes of gathered weights, and of whole gradients until they are reduced.

        Weights are gathered unit by unit (:func:`units_held`); embedding and head stay gathered. Sharded gradients are
        whole until they are reduced, one unit at a time. If they are reduced in another type, the buffers of two units
        exist: the input of a reduce-scatter lives until the next one begins, while the backward pass computes the
        gradients of the next unit. Whole gradients that are reduced in another type need a bucket. Source: Zhao et al.,
        arXiv 2304.11277, section 3.2.1; Rajbhandari et al., arXiv 1910.02054, section 5.2; PyTorch, ``fully_shard``,
        ``FSDPParamGroup.post_backward``. With ``sync_once`` the gradients of all blocks are added up whole, in the type
        of the reduction (``FSDPParam.accumulate_unsharded_grad_if_needed``). Experts with a single replica are not
        reduced; they are gathered only if the strategy has buffers, which may have another type.
        """
        weight, message, waiting = block.gathered, block.message, block.waiting
        reduced, replicated = message, schedule.data_ranks > 1
        none = np.zeros_like(schedule.blocks)
        if (experts := block.experts) is not None:
            single = schedule.expert_data_par == 1
            if not self.sharding.buffered:
                weight = weight - np.where(single, experts.gathered, 0.0)
            reduced = np.where(replicated, message - experts.message, 0.0)
            reduced = reduced + np.where(single, 0.0, experts.message)
            replicated = schedule.reduces
        gathered, unit = none, reduced
        if self.sharding.weights:
            held = units_held(self.sharding, schedule)
            # quantized copies of the block at work are part of its activations
            gathered = held * weight + np.maximum(0.0, held - 1) * block.copies
            unit = unit_blocks(schedule) * reduced
        if end is not None:
            if self.sharding.weights:
                gathered = gathered + end.weight
            unit = np.maximum(unit, end.gradient)
        if self.sharding.gradients:
            same_type = block.weight == message
            gradients = np.where(same_type, unit, unit * (1 + block.weight / message))
            gradients = np.maximum(gradients, self._whole_gradients_of_group(schedule, block))
            if np.any(schedule.columns.sync_once):
                whole = schedule.blocks * reduced + (0.0 if end is None else end.gradient)
                # the gradients of the unit at work, and later the input of its reduce-scatter, are further buffers
                gradients = np.where(schedule.columns.sync_once, whole + unit, gradients)
        else:
            bucket = bucket_bytes(schedule)
            full = np.minimum(bucket, schedule.blocks * reduced)
            gradients = np.where(waiting == message, 0.0, np.where(bucket > 0, full, reduced))
        used = schedule.training & replicated
        return none + gathered, none + np.where(used, gradients, 0.0)

    def _whole_gradients_of_group(self, schedule: Schedule, block: HeldBlock) -> Bytes:
        """Return the bytes of whole gradients that the microbatches of a group accumulate (``grad_group``).

        A group passes one chunk after the other. Two chunks have whole gradients: the one at work, and the one before,
        which is being reduced. Source: Llama Team, arXiv 2407.21783, section 3.3.2 (gradients sharded within a
        pipeline).
        """
        whole = block.whole_gradients(schedule, self.sharding.shards(schedule))
        blocks = np.minimum(2.0 * schedule.blocks / schedule.interleaving, schedule.blocks)
        return np.where(schedule.columns.grad_group > 1, blocks * whole, 0.0)


STRATEGIES: Mapping[str, DataParallelStrategy] = {
    "auto": PublishedStrategy(),
    **{name: ExplicitStrategy(sharding) for name, sharding in SHARDINGS.items()},
}
"""The strategy of each value of ``zero_stage``."""
