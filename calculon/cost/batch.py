"""The cost of a batch on one processor of the first stage: from block to chunk, stage and iteration."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from calculon.cost.block import BlockCost, OptimizerCost
from calculon.cost.efficiency import efficiency
from calculon.cost.offload import Offload, exposed, offload, offload_bandwidth
from calculon.cost.space import capacity, offloaded_space, space
from calculon.edition import Edition
from calculon.hardware.system import System
from calculon.parallel.data import BackwardPass, GradientSync, gradient_sync
from calculon.parallel.pipeline import Transfers, bubble_time, transfers
from calculon.plan.schedule import Schedule
from calculon.statistics import (
    PARTS_OF_TIME,
    BlockSpace,
    Capacity,
    Efficiency,
    Messages,
    OffloadBandwidth,
    OffloadedSpace,
    OverlapBandwidth,
    Space,
    Times,
)
from calculon.units import Bytes, Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockTimes:
    """Forward and backward time of a base and an edge block, before and with exposed offload traffic."""

    forward_base: Seconds
    forward_edge: Seconds
    backward_base: Seconds
    backward_edge: Seconds

    @property
    def shortest_forward(self) -> Seconds:
        """The shorter forward time of the two kinds of block."""
        return np.minimum(self.forward_base, self.forward_edge)

    @property
    def shortest_backward(self) -> Seconds:
        """The shorter backward time of the two kinds of block."""
        return np.minimum(self.backward_base, self.backward_edge)


def block_times(block: BlockCost, sent: Transfers) -> BlockTimes:
    """Add computation, exposed collectives and transfers up to the time of a block (section 5.4)."""
    forward = block.fw.time + block.fw_tp.time_exposed
    backward = (
        block.re.time
        + block.recomm.time_exposed
        + block.agrad.time
        + block.wgrad.time
        + block.agrad_tp.time_exposed
    )
    return BlockTimes(
        forward_base=forward[0],
        forward_edge=forward[1] + sent.forward,
        backward_base=backward[0],
        backward_edge=backward[1] + sent.backward,
    )


def offload_times(times: BlockTimes, block: BlockCost, moved: Offload) -> BlockTimes:
    """Return the exposed offload time of each kind of block and pass (section 5.4)."""
    forward_memory = block.fw.mem_time
    backward_memory = block.agrad.mem_time + block.wgrad.mem_time
    return BlockTimes(
        forward_base=exposed(moved.forward, forward_memory, times.forward_base),
        forward_edge=exposed(moved.forward, forward_memory, times.forward_edge),
        backward_base=exposed(moved.backward, backward_memory, times.backward_base),
        backward_edge=exposed(moved.backward, backward_memory, times.backward_edge),
    )


class Batch:
    """The statistics of executions, each part computed when it is asked for.

    The attributes have the names of the parts of :class:`~calculon.statistics.Stats`, so that a column of the
    statistics is read from here and costs only what it depends on. The arguments hold one entry per execution on the last axis, or
    arrays that broadcast against each other: a quantity carries only the axes that it depends on.
    """

    def __init__(
        self,
        block: BlockCost,
        optimizer: OptimizerCost,
        schedule: Schedule,
        system: System,
        edition: Edition,
    ):
        self.block = block
        self.optimizer = optimizer
        self.schedule = schedule
        self.system = system
        self.edition = edition

    # -- one block --------------------------------------------------------------------------------

    fw = property(lambda self: self.block.fw)
    fw_tp = property(lambda self: self.block.fw_tp)
    re = property(lambda self: self.block.re)
    recomm = property(lambda self: self.block.recomm)
    agrad = property(lambda self: self.block.agrad)
    agrad_tp = property(lambda self: self.block.agrad_tp)
    wgrad = property(lambda self: self.block.wgrad)
    optim = property(lambda self: self.optimizer.step)
    tensor_messages = property(lambda self: self.block.tensor_messages)

    @cached_property
    def block_space(self) -> BlockSpace:
        """Memory of a block."""
        block, optimizer = self.block, self.optimizer
        return BlockSpace(
            weight=block.weight,
            act_working=block.act_working,
            act_storage=block.act_storage,
            act_checkpoint=block.act_checkpoint,
            weight_grad=optimizer.weight_grad,
            weight_grad_no_sharding=block.weight_grad_no_sharding,
            act_grad=block.act_grad,
            optimizer=optimizer.state,
        )

    # -- what moves -------------------------------------------------------------------------------

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
        return block_times(self.block, self.transfers)

    @cached_property
    def block_waits(self) -> BlockTimes:
        """Time that a block waits for offload traffic."""
        return offload_times(self.block_alone, self.block, self.offload)

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
        backward = _backward_pass(self.block, self.optimizer, self.block_whole, self.transfers)
        return gradient_sync(self.block.weight, backward, self.schedule, self.system, self.edition)

    @cached_property
    def messages(self) -> Messages:
        """Bytes sent to the next stage and to the replicas."""
        return Messages(
            block_fw_pp_size=self.transfers.forward_size,
            block_bw_pp_size=self.transfers.backward_size,
            block_dp_size=self.gradient_sync.message,
        )

    # -- time -------------------------------------------------------------------------------------

    @cached_property
    def times(self) -> Times:
        """Times of one iteration."""
        return _times(
            self.block,
            self.optimizer,
            self.schedule,
            self.block_waits,
            self.block_whole,
            self.transfers,
            self.gradient_sync,
        )

    @cached_property
    def overlap_bandwidth(self) -> OverlapBandwidth:
        """Network bandwidth that would hide traffic."""
        return OverlapBandwidth(
            tp=self.block.tp_bandwidth_needed,
            dp_chunk=self.gradient_sync.chunk_bandwidth,
            dp_tail=self.gradient_sync.tail_bandwidth,
        )

    @cached_property
    def offload_bandwidth(self) -> OffloadBandwidth:
        """Tier-2 bandwidth that would hide offloading."""
        block, optimizer, alone = self.block, self.optimizer, self.block_alone
        return offload_bandwidth(
            self.offload,
            block.weight,
            self.stored_activation,
            optimizer.weight_grad + optimizer.state,
            alone.shortest_forward - block.fw.mem_time,
            alone.shortest_backward - (block.agrad.mem_time + block.wgrad.mem_time),
            self.schedule.training,
        )

    @cached_property
    def efficiency(self) -> Efficiency:
        """How well the machine is used."""
        times = self.times
        busy = times.fw_time + times.bw_time + times.optim_step_time
        return efficiency(
            self.block, self.optimizer, self.schedule, busy, times.total_time, self.edition
        )

    # -- space ------------------------------------------------------------------------------------

    @cached_property
    def space(self) -> Space:
        """Memory with everything in tier 1."""
        return space(self.block, self.optimizer, self.schedule)

    @cached_property
    def offloaded_space(self) -> OffloadedSpace:
        """Memory that stays in tier 1 of what is offloaded."""
        return offloaded_space(self.block, self.optimizer, self.schedule, self.edition)

    @cached_property
    def capacity(self) -> Capacity:
        """Memory that the two tiers must hold."""
        return capacity(self.space, self.offloaded_space, self.optimizer, self.schedule)


def _backward_pass(
    block: BlockCost, optimizer: OptimizerCost, whole: BlockTimes, sent: Transfers
) -> BackwardPass:
    """Describe the backward pass to data parallelism."""
    tensor = block.recomm.time + block.agrad_tp.time
    return BackwardPass(
        base=whole.backward_base,
        edge=whole.backward_edge,
        p2p=sent.backward,
        memory=block.agrad.mem_time + block.wgrad.mem_time + block.re.mem_time,
        tensor_base=tensor[0],
        tensor_edge=tensor[1],
        arithmetic=block.agrad.flops_time + block.wgrad.flops_time + block.re.flops_time,
        step=optimizer.step.time,
        step_memory=optimizer.step.mem_time,
        step_arithmetic=optimizer.step.flops_time,
    )


def _times(
    block: BlockCost,
    optimizer: OptimizerCost,
    schedule: Schedule,
    waits: BlockTimes,
    whole: BlockTimes,
    sent: Transfers,
    sync: GradientSync,
) -> Times:
    """Time one iteration; the parts add up to the total (sections 5.1 to 5.6 and 5.10)."""
    passes = schedule.blocks * schedule.microbatches
    batch_sum = schedule.batch_sum
    forward, again, backward = block.fw_tp, block.recomm, block.agrad_tp
    backward_wait = batch_sum(waits.backward_base, waits.backward_edge)
    times = {
        "fw_time": passes * block.fw.time,
        "bw_time": passes * block.agrad.time + passes * block.wgrad.time,
        "optim_step_time": schedule.blocks * optimizer.step.time,
        "recompute_time": passes * block.re.time,
        "recomm_link_time": batch_sum(*again.time),
        "recomm_exposed_time": batch_sum(*again.time_exposed),
        "bubble_time": bubble_time(
            schedule,
            whole.forward_base + whole.backward_base,
            whole.forward_edge + whole.backward_edge,
        ),
        "tp_comm_link_time": batch_sum(*forward.time) + batch_sum(*backward.time),
        "pp_comm_link_time": sent.link,
        "dp_comm_link_time": sync.link,
        "tp_comm_exposed_time": (
            batch_sum(*forward.time_exposed) + batch_sum(*backward.time_exposed)
        ),
        "pp_comm_exposed_time": sent.link,
        "dp_comm_exposed_time": sync.exposed,
        "fw_offload_exposed_time": batch_sum(waits.forward_base, waits.forward_edge),
        "bw_offload_exposed_time": np.where(schedule.training, backward_wait, 0.0),
    }
    total = times[PARTS_OF_TIME[0]]
    for name in PARTS_OF_TIME[1:]:
        total = total + times[name]
    return Times(**times, total_time=total)
