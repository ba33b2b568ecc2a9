"""The cost of a batch on one processor of the first stage: from block to chunk, stage and iteration."""

from operator import attrgetter

from calculon.arrays import derived
from calculon.cost.block_cost import BlockCost
from calculon.cost.efficiency import efficiency
from calculon.cost.embedding_head import Ends
from calculon.cost.iteration_times import IterationTimes
from calculon.cost.offload import offload_bandwidth
from calculon.cost.optimizer_step import OptimizerCost
from calculon.cost.quoted_figures import quoted_figures
from calculon.cost.stage import Stage
from calculon.cost.stage_memory import Memory, memory
from calculon.editions.edition import Edition
from calculon.hardware.system import System
from calculon.plan.schedule import Schedule
from calculon.records import record_of
from calculon.spec.model import Model
from calculon.statistics import (
    BlockSpace,
    Efficiency,
    Figures,
    Messages,
    OffloadBandwidth,
    OverlapBandwidth,
    Stats,
)


class Batch(Stage):
    """The statistics of executions, each part computed when it is asked for.

    The attributes have the names of the parts of :class:`~calculon.statistics.CorrectedStats`: a search reads the
    columns that it needs from here, and pays for these only; :attr:`stats` has all of them.
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

    fw = property(attrgetter("block.fw"))
    re = property(attrgetter("block.re"))
    agrad = property(attrgetter("block.agrad"))
    wgrad = property(attrgetter("block.wgrad"))
    optim = property(attrgetter("optimizer.step"))
    fw_tp = property(attrgetter("collectives.fw_tp"))
    recomm = property(attrgetter("collectives.recomm"))
    agrad_tp = property(attrgetter("collectives.agrad_tp"))
    tensor_messages = property(attrgetter("collectives.tensor_messages"))

    @derived
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

    @derived
    def messages(self) -> Messages:
        """Bytes sent to the next stage and to the replicas."""
        return Messages(
            block_fw_pp_size=self.transfers.forward_size,
            block_bw_pp_size=self.transfers.backward_size,
            block_dp_size=self.gradient_sync.message,
        )

    # -- time -------------------------------------------------------------------------------------

    @derived
    def times(self) -> IterationTimes:
        """Times of one iteration, each when it is asked for."""
        return IterationTimes(self)

    axes = property(attrgetter("times.axes"))

    @derived
    def overlap_bandwidth(self) -> OverlapBandwidth:
        """Network bandwidth that would hide traffic."""
        return OverlapBandwidth(
            tp=self.block.tp_bandwidth_needed,
            dp_chunk=self.gradient_sync.chunk_bandwidth,
            dp_tail=self.gradient_sync.tail_bandwidth,
        )

    @derived
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
            training=self.schedule.training,
        )

    @derived
    def figures(self) -> Figures:
        """Figures that people quote."""
        return quoted_figures(self.model, self, self.times.total_time)

    @derived
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
            self.embedding_head_times.useful_flops if self.embedding_head_times else 0.0,
        )

    # -- space ------------------------------------------------------------------------------------

    @derived
    def _memory(self) -> Memory:
        return memory(self.block, self.optimizer, self.schedule, self.edition, self.ends)

    space = property(attrgetter("_memory.space"))
    offloaded_space = property(attrgetter("_memory.offloaded"))
    buffers = property(attrgetter("_memory.buffers"))
    capacity = property(attrgetter("_memory.capacity"))

    # -- all of them ------------------------------------------------------------------------------

    @property
    def stats(self) -> Stats:
        """All statistics that the edition computes."""
        stats: Stats = record_of(self.edition.stats, self)
        return stats
