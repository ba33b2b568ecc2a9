"""What a pipeline stage does for one microbatch: a block with its transfers, offload traffic and reductions."""

from functools import cached_property

import numpy as np

from calculon.cost.block import BlockCost, OptimizerCost
from calculon.cost.block_times import BlockTimes, block_times, offload_times
from calculon.cost.offload import Offload, offload
from calculon.edition import Edition
from calculon.hardware.system import System
from calculon.parallel.data import BackwardPass, GradientSync, gradient_sync
from calculon.parallel.pipeline import Transfers, transfers
from calculon.plan.schedule import Schedule
from calculon.units import Bytes


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
    ):
        self.block = block
        self.optimizer = optimizer
        self.schedule = schedule
        self.system = system
        self.edition = edition

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
