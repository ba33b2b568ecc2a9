"""The cost of a batch on one processor of the first stage: from block to chunk, stage and iteration."""

from functools import cached_property

from calculon.cost.block_cost import BlockCost
from calculon.cost.efficiency import efficiency
from calculon.cost.ends import Ends
from calculon.cost.iteration_times import IterationTimes
from calculon.cost.offload import offload_bandwidth
from calculon.cost.optimizer_step import OptimizerCost
from calculon.cost.quoted_figures import QuotedFigures
from calculon.cost.stage import Stage
from calculon.cost.stage_memory import Memory, memory
from calculon.editions.edition import Edition
from calculon.hardware.system import System
from calculon.plan.schedule import Schedule
from calculon.spec.model import Model
from calculon.statistics import (
    BlockSpace,
    Buffers,
    Capacity,
    Efficiency,
    Messages,
    OffloadBandwidth,
    OffloadedSpace,
    OverlapBandwidth,
    Space,
)


class Batch(Stage):
    """The statistics of executions, each part computed when it is asked for.

    The attributes have the names of the parts of :class:`~calculon.statistics.CorrectedStats`, so that a column of
    the statistics is read from here and costs only what it depends on.
    """

    def __init__(
        self,
        model: Model,
        block: BlockCost,
        optimizer: OptimizerCost,
        schedule: Schedule,
        system: System,
        edition: Edition,
        ends: Ends | None = None,
    ):
        super().__init__(block, optimizer, schedule, system, edition, ends)
        self.model = model

    # -- one block --------------------------------------------------------------------------------

    fw = property(lambda self: self.block.fw)
    fw_tp = property(lambda self: self.collectives.fw_tp)
    re = property(lambda self: self.block.re)
    recomm = property(lambda self: self.collectives.recomm)
    agrad = property(lambda self: self.block.agrad)
    agrad_tp = property(lambda self: self.collectives.agrad_tp)
    wgrad = property(lambda self: self.block.wgrad)
    optim = property(lambda self: self.optimizer.step)
    tensor_messages = property(lambda self: self.collectives.tensor_messages)

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
            self.edition.offload_window(alone.shortest_forward, block.fw.mem_time),
            self.edition.offload_window(alone.shortest_backward, self.backward_memory),
            self.schedule.training,
        )

    @cached_property
    def figures(self) -> QuotedFigures:
        """Figures that people quote."""
        return QuotedFigures(self.model, self, self.times)

    @cached_property
    def efficiency(self) -> Efficiency:
        """How well the machine is used."""
        times = self.times
        busy = times.fw_time + times.bw_time + times.optim_step_time
        return efficiency(
            self.block,
            self.optimizer,
            self.schedule,
            busy,
            times.total_time,
            self.edition,
            self.end_times.useful_flops if self.end_times else 0.0,
        )

    # -- space ------------------------------------------------------------------------------------

    @cached_property
    def _memory(self) -> Memory:
        return memory(self.block, self.optimizer, self.schedule, self.edition, self.ends)

    @property
    def space(self) -> Space:
        """Memory with everything in tier 1."""
        return self._memory.space

    @property
    def offloaded_space(self) -> OffloadedSpace:
        """Memory that stays in tier 1 of what is offloaded."""
        return self._memory.offloaded

    @property
    def buffers(self) -> Buffers:
        """Memory of communication, and what is reserved."""
        return self._memory.buffers

    @property
    def capacity(self) -> Capacity:
        """Memory that the two tiers must hold."""
        return self._memory.capacity
