"""What a pipeline stage does for one microbatch: a block with its transfers, offload traffic and reductions."""

from functools import cached_property

import numpy as np

from calculon.cost.block_cost import BlockCost, Collectives
from calculon.cost.block_times import BlockTimes, block_times, offload_times
from calculon.cost.ends import Ends, EndTimes
from calculon.cost.offload import Offload, offload
from calculon.cost.optimizer_step import OptimizerCost
from calculon.cost.uneven import FIRST, LAST, UnevenStages
from calculon.editions.edition import Edition
from calculon.hardware.system import System
from calculon.parallel.data.sync import BackwardPass, GradientSync, gradient_sync
from calculon.parallel.data.synced import Synced, SyncedEnds
from calculon.parallel.pipeline.transfers import Transfers, shared_gradient_time, transfers
from calculon.plan.schedule import Schedule
from calculon.units import Array, Bytes, Seconds


class Stage:
    """The blocks of a stage, each quantity computed when it is asked for.

    The arguments hold one entry per execution on the last axis, or arrays that broadcast against each other: a
    quantity carries only the axes that it depends on.
    """

    def __init__(
        self,
        block: BlockCost,
        optimizer: OptimizerCost,
        schedule: Schedule,
        system: System,
        edition: Edition,
        ends: Ends | None = None,
    ):
        self.block = block
        self.optimizer = optimizer
        self.schedule = schedule
        self.system = system
        self.edition = edition
        self.ends = ends

    @cached_property
    def piped(self) -> Array:
        """Whether there is more than one stage."""
        more: Array = self.schedule.pipeline_par > 1
        return more

    @cached_property
    def end_times(self) -> EndTimes | None:
        """Times that embedding and head add."""
        if self.ends is None:
            return None
        if (uneven := self.uneven) is None:
            return EndTimes(self.ends, self.schedule)
        at = uneven.slowest == FIRST, uneven.slowest == LAST
        return EndTimes(self.ends, self.schedule, at)

    @cached_property
    def uneven(self) -> UnevenStages | None:
        """Stages of executions that state a schedule or a layout; None where none does."""
        stages = self.schedule.stages
        if stages is None or not stages.stated.any():
            return None
        return UnevenStages(self.block, self.block_whole, self.schedule, self.ends)

    @cached_property
    def slowest(self) -> Schedule:
        """The schedule with the blocks of the slowest stage."""
        schedule, stages = self.schedule, self.schedule.stages
        if self.uneven is None or stages is None:
            return schedule
        of_slowest = self.uneven.blocks_of_slowest
        return schedule.with_blocks(np.where(stages.stated, of_slowest, schedule.blocks))

    @cached_property
    def collectives(self) -> Collectives:
        """Tensor-parallel collectives by kind of block, as this stage runs them."""
        return self.edition.at_edge(self.block.collectives, self.piped)

    @cached_property
    def stored_activation(self) -> Bytes:
        """Bytes that a block keeps of one microbatch until its backward pass."""
        block = self.block
        return np.where(self.schedule.recompute_all, block.act_checkpoint, block.act_storage)

    @cached_property
    def transfers(self) -> Transfers:
        """Pipeline transfers."""
        return transfers(self.block.pipeline_message, self.schedule, self.system, self.edition)

    @cached_property
    def pipeline_link(self) -> Seconds:
        """Time of the pipeline's network: its transfers, and the gradient of a table that both ends have."""
        shared = None if self.ends is None else self.ends.shared_gradient
        if shared is None:
            return self.transfers.link
        return self.transfers.link + shared_gradient_time(shared, self.schedule, self.system)

    @cached_property
    def pipeline_exposed(self) -> Seconds:
        """The same, as far as stages wait for it: passes of a chunk hide a transfer that is no longer than each."""
        stages = self.schedule.stages
        if stages is None or not stages.overlap.any():
            return self.pipeline_link
        schedule, whole, sent = self.schedule, self.block_whole, self.transfers
        count = schedule.microbatches * schedule.interleaving
        shortest = np.minimum(
            schedule.chunk_sum(whole.forward_base, whole.forward_edge),
            schedule.chunk_sum(whole.backward_base, whole.backward_edge),
        )
        longer = 2 * np.maximum(0.0, sent.link / (2 * count) - shortest)
        longer = np.where(stages.overlap & (schedule.interleaving > 1), count * longer, 0.0)
        hidden = np.maximum(0.0, sent.link - sent.exposed - longer)
        exposed: Seconds = self.pipeline_link - hidden
        return exposed

    @cached_property
    def offload(self) -> Offload:
        """Tier-2 traffic of a block."""
        return offload(
            self.block.weight,
            self.stored_activation,
            self.optimizer.state,
            self.schedule,
            self.system,
            self.edition,
        )

    @cached_property
    def block_alone(self) -> BlockTimes:
        """Time of a block without offloading."""
        return block_times(self.block, self.collectives, self.transfers)

    @cached_property
    def block_waits(self) -> BlockTimes:
        """Time that a block waits for offload traffic."""
        return offload_times(
            self.block_alone, self.block.fw.mem_time, self.backward_memory, self.offload
        )

    @cached_property
    def backward_memory(self) -> Seconds:
        """Tier-1 memory time of the backward pass of a block."""
        block = self.block
        return self.edition.backward_memory(
            block.agrad.mem_time + block.wgrad.mem_time, block.re.mem_time
        )

    @cached_property
    def step_offload(self) -> Seconds | None:
        """Time per block to move an offloaded optimizer once per batch; None where it moves in every pass."""
        moved = self.edition.step_offload_bytes(self.optimizer.state, self.optimizer.weight_grad)
        if moved is None:
            return None
        return np.where(self.schedule.optimizer_offload, self.system.mem2.time(moved), 0.0)

    @cached_property
    def accumulation(self) -> Seconds | None:
        """Time per batch to read the gradients that microbatches after the first are added to; None where none is.

        They are added in the products that make them (beta = 1, Megatron-LM's gradient accumulation fusion).
        """
        schedule, time = self.schedule, self.system.mem1.time
        if not schedule.accumulates.any():
            return None
        once: Seconds = self.slowest.blocks * time(self.optimizer.weight_grad)
        if self.ends is not None and self.end_times is not None:
            step = self.ends.step
            first, last = (time(end.optimizer.weight_grad) for end in (step.first, step.last))
            once = once + self.end_times.of_slower(first, last)
        return np.where(schedule.accumulates, (schedule.microbatches - 1) * once, 0.0)

    @cached_property
    def block_whole(self) -> BlockTimes:
        """Time of a block, offload traffic included."""
        alone, waits = self.block_alone, self.block_waits
        return BlockTimes(
            forward_base=alone.forward_base + waits.forward_base,
            forward_edge=alone.forward_edge + waits.forward_edge,
            backward_base=alone.backward_base + waits.backward_base,
            backward_edge=alone.backward_edge + waits.backward_edge,
        )

    @cached_property
    def gradient_sync(self) -> GradientSync:
        """Data-parallel traffic."""
        block, step, whole = self.block, self.optimizer.step, self.block_whole
        tensor = self.collectives.recomm.time + self.collectives.agrad_tp.time
        backward = BackwardPass(
            forward=whole.forward_base,
            tensor_forward=self.collectives.fw_tp.time[0],
            head=np.zeros(1) if self.end_times is None else self.end_times.head_backward,
            base=whole.backward_base,
            edge=whole.backward_edge,
            p2p=self.transfers.backward,
            memory=block.agrad.mem_time + block.wgrad.mem_time + block.re.mem_time,
            tensor_base=tensor[0],
            tensor_edge=tensor[1],
            arithmetic=block.agrad.flops_time + block.wgrad.flops_time + block.re.flops_time,
            step=step.time,
            step_memory=step.mem_time,
            step_arithmetic=step.flops_time,
        )
        synced, ends = self.synced
        return gradient_sync(synced, backward, self.schedule, self.system, self.edition, ends)

    @cached_property
    def synced(self) -> tuple[Synced, SyncedEnds | None]:
        """What data parallelism synchronises: of a block, and of the ends."""
        weight, gradient = self.block.weight, self.block.gradient_message
        ends = None if self.ends is None else self.ends.synced(gradient / weight)
        return Synced(weight=weight, gradient=gradient), ends
