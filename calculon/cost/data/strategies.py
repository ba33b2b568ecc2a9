"""Data-parallel strategies, chosen by ``zero_stage``: the published laws, DDP, ZeRO-n, FSDP, layer-wise sharding.

A strategy knows the collectives of a batch, their exposed time, and their memory. Executions that share a choice share
a strategy, so that each is plain code.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping

import numpy as np

from calculon.base.records import apply
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
        sharding: Sharding over replicas; None for the published model, where ``optimizer_sharding`` says it by
            execution.
    """

    sharding: Sharding | None = None

    @property
    def splits_weights(self) -> bool:
        """Whether a rank keeps its share of the weights only."""
        return self.sharding is not None and self.sharding.weights

    @abstractmethod
    def stage_traffic(
        self, synced: SyncedBlock, embedding_head: SyncedEmbeddingHead | None, cost: CollectiveCost
    ) -> Array:
        """Return what all collectives of a batch take, as a cost function counts it; `synced` is one block.

        Of a stage with the blocks of the schedule.
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
        """Time the synchronisation of replicas (section 5.6) on a stage with the blocks of the schedule."""

    @abstractmethod
    def gradients(self, working: Bytes, waiting: Bytes, blocks: Array | int) -> Bytes:
        """Bytes of the weight gradients of n blocks: `working` in the block at work, `waiting` in others."""

    def buffers(
        self,
        schedule: Schedule,
        block: HeldBlock,
        end: SyncedBytes | None,
    ) -> tuple[Bytes, Bytes]:
        """Return transient bytes of a stage: weights gathered from other ranks, and gradients on their way.

        Args:
            block: Bytes of the weights and gradients of a block.
            end: Whole weights of embedding or head, and the gradient of their largest table.
        """
        none = np.zeros_like(schedule.blocks)
        return none, none


class PublishedStrategy(DataParallelStrategy):
    """The published laws: gradients once per batch, optimizer state split as ``optimizer_sharding`` says."""

    stage_traffic = staticmethod(published_traffic)
    stage_sync = staticmethod(published_sync)

    def gradients(self, working: Bytes, waiting: Bytes, blocks: Array | int) -> Bytes:
        """Whole and in 4 bytes in the block at work."""
        return working + waiting * (blocks - 1)


class ExplicitStrategy(DataParallelStrategy):
    """DDP, ZeRO-n, FSDP or HSDP, and layer-wise sharding, as frameworks have them."""

    def __init__(self, sharding: Sharding):
        self.sharding: Sharding = sharding

    def collectives(
        self, synced: SyncedBlock, embedding_head: SyncedEmbeddingHead | None, cost: CollectiveCost
    ) -> DataCollectives:
        """Return the collectives between replicas."""
        piped = cost.schedule.ends_apart
        apart = (NOTHING, NOTHING) if embedding_head is None else embedding_head.apart(piped)
        if synced.experts is not None:  # which may have replicas where the model has one
            several = cost.schedule.data_ranks > 1
            apart = apart[0].where(several), apart[1].where(several)
        return DataCollectives(self.sharding, synced, apart, cost)

    def stage_traffic(
        self, synced: SyncedBlock, embedding_head: SyncedEmbeddingHead | None, cost: CollectiveCost
    ) -> Array:
        """Count everything that is exchanged in a batch."""
        return self.collectives(synced, embedding_head, cost).batch

    def stage_sync(
        self,
        synced: SyncedBlock,
        embedding_head: SyncedEmbeddingHead | None,
        backward: BackwardPass,
        cost: CollectiveCost,
        edition: Edition,
    ) -> GradientSync:
        """Hide traffic behind the passes of base blocks."""
        schedule = cost.schedule
        active = schedule.reduces & schedule.training
        same_link = on_tensor_network(synced, schedule, cost.system)
        windows = Windows(
            forward=backward.forward - np.where(same_link, backward.tensor_forward, 0.0),
            backward=backward.base - np.where(same_link, backward.tensor_base, 0.0),
            head=backward.head,
        )
        windows = apply(lambda window: np.maximum(window, 0.0), [windows])
        found = Replication(
            self.collectives(synced, embedding_head, cost), windows
        ).synchronisation()
        message = reduced_bytes(synced, schedule)
        none = np.zeros_like(message)
        return GradientSync(
            message=message,
            link=np.where(active, found.link, none),
            exposed=np.where(active, found.exposed, none),
            chunk_bandwidth=none,
            tail_bandwidth=none,
            stalled=np.where(active, found.stalled, none),
        )

    def gradients(self, working: Bytes, waiting: Bytes, blocks: Array | int) -> Bytes:
        """Those that wait, of every block."""
        return waiting * blocks

    def buffers(
        self,
        schedule: Schedule,
        block: HeldBlock,
        end: SyncedBytes | None,
    ) -> tuple[Bytes, Bytes]:
        """Weights that are gathered, and gradients that are whole until they are reduced.

        Weights are whole unit by unit (:func:`units_held`), those of embedding and head all the time. Split gradients
        are whole until they are reduced, a unit at a time. Where that happens in another type, gradients in the type of
        the computation are beside their copy: the input of a reduce-scatter lives until the next one begins, while the
        backward pass of the next unit makes its gradients. Whole gradients then need a bucket. Source: Zhao et al.,
        arXiv 2304.11277, section 3.2.1; Rajbhandari et al., arXiv 1910.02054, section 5.2; PyTorch, ``fully_shard``,
        ``FSDPParamGroup.post_backward``. Of experts that have one replica nothing is reduced, nor gathered but into
        buffers that hold other types.
        """
        weight, message, waiting = block.gathered, block.message, block.waiting
        reduced, replicated = message, schedule.data_ranks > 1
        none = np.zeros_like(schedule.blocks)
        if (experts := block.experts) is not None:
            alone = schedule.expert_data_par == 1
            if not self.sharding.buffered:
                weight = weight - np.where(alone, experts.gathered, 0.0)
            reduced = np.where(replicated, message - experts.message, 0.0)
            reduced = reduced + np.where(alone, 0.0, experts.message)
            replicated = schedule.reduces
        gathered, unit = none, reduced
        if self.sharding.weights:
            held = units_held(self.sharding, schedule)
            # copies of the block at work are part of its activations
            gathered = held * weight + np.maximum(0.0, held - 1) * block.copies
            unit = unit_blocks(schedule) * reduced
        if end is not None:
            if self.sharding.weights:
                gathered = gathered + end.weight
            unit = np.maximum(unit, end.gradient)
        if self.sharding.gradients:
            passing = np.where(block.weight == message, unit, unit * (1 + block.weight / message))
            passing = np.maximum(passing, self._of_group(schedule, block))
        else:
            bucket = bucket_bytes(schedule)
            full = np.minimum(bucket, schedule.blocks * reduced)
            passing = np.where(waiting == message, 0.0, np.where(bucket > 0, full, reduced))
        used = schedule.training & replicated
        return none + gathered, none + np.where(used, passing, 0.0)

    def _of_group(self, schedule: Schedule, block: HeldBlock) -> Bytes:
        """Bytes of whole gradients to which the microbatches of a group add.

        Groups pass one chunk after the other: those of a chunk are whole, and of the one before, which have a buffer
        while they are reduced. Source: Llama Team, arXiv 2407.21783, section 3.3.2 (gradients split within a pipeline).
        """
        whole = block.whole_gradients(schedule, self.sharding.shards(schedule))
        blocks = np.minimum(2.0 * schedule.blocks / schedule.interleaving, schedule.blocks)
        return np.where(schedule.columns.grad_group > 1, blocks * whole, 0.0)


STRATEGIES: Mapping[str, DataParallelStrategy] = {
    "auto": PublishedStrategy(),
    **{name: ExplicitStrategy(sharding) for name, sharding in SHARDINGS.items()},
}
"""The strategy of each value of ``zero_stage``."""
