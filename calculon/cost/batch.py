"""The cost of a batch on one processor of the first stage: from block to chunk, stage and iteration."""

from functools import cached_property

import numpy as np

from calculon.cost.block import BlockCost, OptimizerCost
from calculon.cost.efficiency import efficiency
from calculon.cost.offload import Offload, offload, offload_bandwidth
from calculon.cost.space import capacity, offloaded_space, space
from calculon.cost.times import BlockTimes, IterationTimes, block_times, offload_times
from calculon.edition import Edition
from calculon.hardware.system import System
from calculon.parallel.data import BackwardPass, GradientSync, gradient_sync
from calculon.parallel.pipeline import Transfers, transfers
from calculon.plan.schedule import Schedule
from calculon.statistics import (
    BlockSpace,
    Capacity,
    Efficiency,
    Messages,
    OffloadBandwidth,
    OffloadedSpace,
    OverlapBandwidth,
    Space,
)
from calculon.units import Bytes


class Batch:
    """The statistics of executions, each part computed when it is asked for.

    The attributes have the names of the parts of :class:`~calculon.statistics.Stats`, so that a column of the
    statistics is read from here and costs only what it depends on. The arguments hold one entry per execution on the
    last axis, or arrays that broadcast against each other: a quantity carries only the axes that it depends on.
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
        block, step, whole = self.block, self.optimizer.step, self.block_whole
        tensor = block.recomm.time + block.agrad_tp.time
        backward = BackwardPass(
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
        return gradient_sync(block.weight, backward, self.schedule, self.system, self.edition)

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
    def times(self) -> IterationTimes:
        """Times of one iteration."""
        return IterationTimes(self)

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
