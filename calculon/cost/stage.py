"""A pipeline stage for one microbatch: its blocks with copies, transfers, offload traffic and gradient accumulation."""

import numpy as np

from calculon.base.arrays import cached_property
from calculon.base.record_arrays import apply
from calculon.base.units import Bytes, Seconds
from calculon.cost.block_cost import BlockCost, Collectives
from calculon.cost.block_times import (
    BlockTimes,
    Offload,
    backward_pass,
    exposed_offload,
    offload,
    step_offload,
    times_without_offload,
)
from calculon.cost.copies import StageLayers, with_copies
from calculon.cost.data.synced import BackwardPass, SyncedBlock, SyncedEmbeddingHead, synced_block
from calculon.cost.embedding_head import EmbeddingHead
from calculon.cost.gradient_accumulation import Accumulation, accumulation
from calculon.cost.optimizer_step import OptimizerCost
from calculon.cost.pipeline.transfers import Transfers, transfers
from calculon.editions.edition import Edition
from calculon.hardware.system import System
from calculon.plan.schedule import Schedule


class Stage:
    """A stage of equal blocks, or of the mean of its blocks: its steps in the order of computation.

    A step runs when a column first needs it: a search for the least memory computes no transfers.

    Args:
        block, optimizer: Cost of a block and of its optimizer step. All arguments hold one entry per execution on the
            last axis, or arrays that broadcast against each other: a quantity carries only the axes that it depends on.
    """

    def __init__(
        self,
        block: BlockCost,
        optimizer: OptimizerCost,
        embedding_head: EmbeddingHead | None,
        schedule: Schedule,
        system: System,
        edition: Edition,
    ):
        self._block, self._embedding_head = block, embedding_head
        self.optimizer, self.schedule = optimizer, schedule
        self.system, self.edition = system, edition

    def of_blocks(self, block: BlockCost, optimizer: OptimizerCost) -> "Stage":
        """Return the stage with other blocks."""
        others = self._embedding_head, self.schedule, self.system, self.edition
        return Stage(block, optimizer, *others)

    @cached_property
    def layers(self) -> StageLayers:
        """A block, embedding and LM head, with the copies that the data-parallel strategy makes."""
        costs = self._block, self.optimizer, self._embedding_head
        return with_copies(*costs, self.schedule, self.system)

    @property
    def block(self) -> BlockCost:
        """Cost of a block for a microbatch."""
        return self.layers.block

    @property
    def embedding_head(self) -> EmbeddingHead | None:
        """Embedding and LM head; None without a vocabulary."""
        return self.layers.embedding_head

    @property
    def has_modules(self) -> bool:
        """True if the last stage has MTP modules."""
        return self._embedding_head is not None and self._embedding_head.modules is not None

    @cached_property
    def collectives(self) -> Collectives:
        """Tensor-parallel collectives by kind of block, as this stage runs them."""
        return self.edition.at_edge(self.block.collectives, self.schedule.pipeline_par > 1)

    @cached_property
    def exchanges(self) -> bool:
        """True if any block has collectives of further axes."""
        return bool(self.block.axis_time.any())

    @cached_property
    def transfers(self) -> Transfers:
        """Pipeline transfers."""
        return transfers(self.block.pipeline_message, self.schedule, self.system, self.edition)

    @cached_property
    def stored_activation(self) -> Bytes:
        """Bytes that a block keeps of one microbatch until its backward pass."""
        block = self.block
        return np.where(self.schedule.recompute_all, block.act_checkpoint, block.act_storage)

    @cached_property
    def offload(self) -> Offload:
        """Tier-2 traffic of a block."""
        sizes = self.block.weight, self.stored_activation, self.optimizer.state
        return offload(*sizes, self.schedule, self.system, self.edition)

    @cached_property
    def times_without_offload(self) -> BlockTimes:
        """Times of a block without offloading."""
        costs = self.block, self.collectives, self.transfers
        return times_without_offload(*costs, self.schedule, exchanges=self.exchanges)

    @cached_property
    def backward_memory(self) -> Seconds:
        """Tier-1 memory time of the backward pass of a block."""
        block = self.block
        gradients = block.agrad.mem_time + block.wgrad.mem_time
        return self.edition.backward_memory(gradients, block.re.mem_time)

    @cached_property
    def exposed_offload(self) -> BlockTimes:
        """Exposed time of a block's offload traffic."""
        memory = self.block.fw.mem_time, self.backward_memory
        return exposed_offload(self.times_without_offload, self.offload, *memory)

    @cached_property
    def times(self) -> BlockTimes:
        """Times of a block, offload traffic included."""
        return apply(np.add, [self.times_without_offload, self.exposed_offload])

    @cached_property
    def step_offload(self) -> Seconds | None:
        """Time per block to move an offloaded optimizer once per batch; None if it moves in every pass."""
        return step_offload(self.optimizer, self.schedule, self.system, self.edition)

    @cached_property
    def accumulation(self) -> Accumulation | None:
        """Times that gradient accumulation adds to a microbatch; None if no execution accumulates."""
        costs = self.block, self.optimizer, self.embedding_head
        return accumulation(*costs, self.schedule, self.system)

    @cached_property
    def synced(self) -> tuple[SyncedBlock, SyncedEmbeddingHead | None]:
        """Gradient and parameter bytes that replicas synchronize: of a block, and of embedding and LM head."""
        block, ends = self.block, self.embedding_head
        reduced = block.gradient_message / block.weight
        of_ends = None if ends is None else ends.synced(reduced, self.schedule)
        return synced_block(block, self.schedule), of_ends

    @cached_property
    def backward_pass(self) -> BackwardPass:
        """Times of a block that can hide data-parallel traffic."""
        costs = self.block, self.optimizer, self.embedding_head, self.collectives
        times = self.transfers, self.exposed_offload, self.times
        return backward_pass(*costs, *times, self.schedule, exchanges=self.exchanges)
