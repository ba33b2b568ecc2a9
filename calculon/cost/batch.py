"""The cost of a batch on one processor of the first stage: from block to chunk, stage and iteration."""

from operator import attrgetter
from types import SimpleNamespace

import numpy as np

from calculon.base.arrays import derived, nothing, rate
from calculon.base.records import record_of
from calculon.cost.iteration_times import IterationTimes
from calculon.cost.quoted_figures import quoted_figures
from calculon.cost.stage import Stage
from calculon.cost.stage_memory import Memory, memory
from calculon.declarations.statistics import (
    BlockSpace,
    Efficiency,
    ExpertFigures,
    Figures,
    Messages,
    OffloadBandwidth,
    OverlapBandwidth,
    Stats,
)


class Batch(Stage):
    """The statistics of executions, each part computed when it is asked for.

    The attributes have the names of the parts of :class:`~calculon.declarations.statistics.CorrectedStats`: a search
    reads the columns that it needs from here, and pays for these only; :attr:`stats` has all of them.
    """

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
        return IterationTimes(self.slowest_part)

    axes = property(attrgetter("times.axes"))

    @derived
    def experts(self) -> ExpertFigures:
        """What routed experts get and send."""
        if not self.block.expert_rows.any():
            none = nothing()
            return ExpertFigures(
                ep_scale_up_bytes=none,
                ep_nic_bytes=none,
                expert_rows=none,
                dropped_fraction=none,
                dispatch_space=none,
            )
        inside, between = self.times.expert_bytes
        imbalance = self.schedule.columns.moe_imbalance_percent / 100
        capacity = self.schedule.columns.moe_capacity_percent / 100
        kept = np.where(capacity > 0, np.minimum(1.0, capacity / imbalance), 1.0)
        rows = self.block.expert_rows
        return ExpertFigures(
            ep_scale_up_bytes=inside,
            ep_nic_bytes=between,
            expert_rows=rows,
            dropped_fraction=np.where(rows > 0, 1 - kept, 0.0),
            dispatch_space=self.block.dispatch_space,
        )

    @derived
    def overlap_bandwidth(self) -> OverlapBandwidth:
        """Network bandwidth that would hide traffic."""
        needed = SimpleNamespace(kinds=self.block.tp_bandwidth_needed)
        return OverlapBandwidth(
            tp=self.edition.at_edge(needed, self.piped).kinds.max(axis=0),
            dp_chunk=self.gradient_sync.chunk_bandwidth,
            dp_tail=self.gradient_sync.tail_bandwidth,
        )

    @derived
    def offload_bandwidth(self) -> OffloadBandwidth:
        """Tier-2 bandwidth that would hide each kind of offload traffic, and all that moves (section 5.9)."""
        block, moved, window = self.block, self.offload, self.edition.offload_window
        forward = window(self.block_alone.shortest_forward, block.fw.mem_time)
        everything = rate(moved.forward_size, forward)
        optimizer = np.zeros_like(everything)
        if self.schedule.training:
            backward = window(self.block_alone.shortest_backward, self.backward_memory)
            optimizer = rate(self.optimizer.weight_grad + self.optimizer.state, backward)
            everything = np.maximum(everything, rate(moved.backward_size, backward))
        return OffloadBandwidth(
            act_offload_bw_req=rate(self.stored_activation, forward),
            weight_offload_bw_req=rate(block.weight, forward),
            optim_offload_bw_req=optimizer,
            offload_mem_bw_req=everything,
        )

    @derived
    def figures(self) -> Figures:
        """Figures that people quote."""
        return quoted_figures(self, self.times.total_time)

    @derived
    def efficiency(self) -> Efficiency:
        """Time that useful arithmetic would take at peak rate, compared with time spent (section 5.10)."""
        block, schedule, times = self.block, self.schedule, self.times
        busy = times.fw_time + times.bw_time + times.optim_step_time
        outside = self.embedding_head_times.useful_flops if self.embedding_head_times else 0.0
        useful = self.edition.useful_flops(
            block.fw.flops,
            block.agrad.flops + block.wgrad.flops,
            self.optimizer.step.flops,
            schedule.microbatches,
        )
        of_batch = schedule.mean_blocks * schedule.microbatches * useful + outside
        perfect = of_batch / block.matrix_peak
        return Efficiency(
            useful_flops=useful,
            compute_efficiency=perfect / busy,
            system_efficiency=busy / times.total_time,
            total_efficiency=perfect / times.total_time,
            sample_rate=schedule.batch_size / times.total_time,
        )

    # -- space ------------------------------------------------------------------------------------

    @derived
    def _memory(self) -> Memory:
        stages = [self] if self.schedule.layout is None else self.parts
        costs = [(stage.block, stage.optimizer) for stage in stages]
        return memory(costs, self.schedule, self.edition, self.embedding_head)

    space = property(attrgetter("_memory.space"))
    offloaded_space = property(attrgetter("_memory.offloaded"))
    buffers = property(attrgetter("_memory.buffers"))
    expert_space = property(attrgetter("_memory.experts"))
    capacity = property(attrgetter("_memory.capacity"))

    # -- all of them ------------------------------------------------------------------------------

    @property
    def stats(self) -> Stats:
        """All statistics that the edition computes."""
        stats: Stats = record_of(self.edition.stats, self)
        return stats
