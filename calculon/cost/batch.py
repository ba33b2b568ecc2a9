"""All statistics of a batch on one processor: of a block, of an iteration, and of memory."""

from collections.abc import Callable
from types import SimpleNamespace

import numpy as np

from calculon.base.arrays import cached_property, rate, shared_zeros
from calculon.base.record_arrays import record_of
from calculon.base.units import Flops, Fraction
from calculon.cost.block_cost import BlockCost
from calculon.cost.embedding_head import EmbeddingHead
from calculon.cost.iteration_times import IterationTimes
from calculon.cost.mixture import BlockKinds
from calculon.cost.optimizer_step import OptimizerCost
from calculon.cost.pipeline_stages import PipelineStages
from calculon.cost.prediction_modules import with_modules_apart
from calculon.cost.quoted_figures import quoted_figures
from calculon.cost.stage import Stage
from calculon.cost.stage_memory import Memory, memory
from calculon.declarations.model import Model
from calculon.declarations.statistics import (
    AxisTimes,
    BlockSpace,
    Buffers,
    Capacity,
    Communication,
    Efficiency,
    ExpertFigures,
    ExpertSpace,
    Figures,
    MemoryRisk,
    Messages,
    OffloadBandwidth,
    OffloadedSpace,
    OverlapBandwidth,
    Space,
    Stats,
    TensorMessages,
    Work,
)
from calculon.editions.edition import Edition
from calculon.hardware.system import System
from calculon.plan.schedule import Schedule


def _useful(block: BlockCost) -> Flops:
    """Return the FLOP of a block without recomputation."""
    return block.fw.flops + block.agrad.flops + block.wgrad.flops


class Batch:
    """The statistics of executions: their stages, times and memory, in the order of computation.

    The attributes have the names of the parts of :class:`~calculon.declarations.statistics.CorrectedStats`: a search
    reads the columns that it needs from here, and pays for these only; :attr:`stats` has all of them.

    Args:
        block, optimizer: Cost of the mean block of the model and of its optimizer step. All arguments hold one entry
            per execution on the last axis, or arrays that broadcast against each other.
        kinds: Costs of each kind of block; None if all are of one kind.
        fits: Returns the probability that the executions of a batch fit in tier-1 memory; None if it is not asked for.
    """

    def __init__(
        self,
        model: Model,
        block: BlockCost,
        optimizer: OptimizerCost,
        schedule: Schedule,
        system: System,
        edition: Edition,
        embedding_head: EmbeddingHead | None = None,
        kinds: BlockKinds | None = None,
        fits: Callable[["Batch"], Fraction] | None = None,
    ):
        self._fits = fits
        if schedule.modules and embedding_head is not None:
            parts = embedding_head, block, optimizer, kinds
            embedding_head, kinds = with_modules_apart(*parts)
        self.model, self.schedule, self.system, self.edition = model, schedule, system, edition
        if embedding_head is not None:
            embedding_head = embedding_head.on_stages(schedule.separate_ends)
        self.stage = Stage(block, optimizer, embedding_head, schedule, system, edition)
        self.pipeline = PipelineStages(self.stage, kinds)

    # -- one block --------------------------------------------------------------------------------

    fw: "cached_property[Work]" = cached_property(lambda batch: batch.stage.block.fw)
    re: "cached_property[Work]" = cached_property(lambda batch: batch.stage.block.re)
    agrad: "cached_property[Work]" = cached_property(lambda batch: batch.stage.block.agrad)
    wgrad: "cached_property[Work]" = cached_property(lambda batch: batch.stage.block.wgrad)
    optim: "cached_property[Work]" = cached_property(lambda batch: batch.stage.optimizer.step)
    fw_tp: "cached_property[Communication]" = cached_property(
        lambda batch: batch.stage.collectives.fw_tp
    )
    recomm: "cached_property[Communication]" = cached_property(
        lambda batch: batch.stage.collectives.recomm
    )
    agrad_tp: "cached_property[Communication]" = cached_property(
        lambda batch: batch.stage.collectives.agrad_tp
    )
    tensor_messages: "cached_property[TensorMessages]" = cached_property(
        lambda batch: batch.stage.collectives.tensor_messages
    )

    @cached_property
    def block_space(self) -> BlockSpace:
        """Memory of a block."""
        block, optimizer = self.stage.block, self.stage.optimizer
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
        """Bytes of a block's messages of pipeline and data parallelism."""
        return Messages(
            block_fw_pp_size=self.stage.transfers.forward_size,
            block_bw_pp_size=self.stage.transfers.backward_size,
            block_dp_size=self.pipeline.gradient_sync.message,
        )

    # -- time -------------------------------------------------------------------------------------

    @cached_property
    def times(self) -> IterationTimes:
        """Times of one iteration."""
        return IterationTimes(self.model, self.pipeline)

    axes: "cached_property[AxisTimes]" = cached_property(lambda batch: batch.times.axes)

    @cached_property
    def experts(self) -> ExpertFigures:
        """Rows, dropped tokens and traffic of routed experts."""
        if not self.stage.block.expert_rows.any():
            none = shared_zeros()
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
        rows = self.stage.block.expert_rows
        return ExpertFigures(
            ep_scale_up_bytes=inside,
            ep_nic_bytes=between,
            expert_rows=rows,
            dropped_fraction=np.where(rows > 0, 1 - kept, 0.0),
            dispatch_space=self.stage.block.dispatch_space,
        )

    @cached_property
    def overlap_bandwidth(self) -> OverlapBandwidth:
        """Network bandwidth that would hide traffic."""
        needed = SimpleNamespace(kinds=self.stage.block.tp_bandwidth_needed)
        return OverlapBandwidth(
            tp=self.edition.at_edge(needed, self.schedule.pipeline_par > 1).kinds.max(axis=0),
            dp_chunk=self.pipeline.gradient_sync.chunk_bandwidth,
            dp_tail=self.pipeline.gradient_sync.tail_bandwidth,
        )

    @cached_property
    def offload_bandwidth(self) -> OffloadBandwidth:
        """Tier-2 bandwidth that would hide each kind of offload traffic, and all that moves (section 5.9)."""
        stage, window = self.stage, self.edition.offload_window
        block, moved = stage.block, stage.offload
        forward = window(stage.times_without_offload.shortest_forward, block.fw.mem_time)
        everything = rate(moved.forward_size, forward)
        optimizer = np.zeros_like(everything)
        if self.schedule.training:
            backward = window(stage.times_without_offload.shortest_backward, stage.backward_memory)
            optimizer = rate(stage.optimizer.weight_grad + stage.optimizer.state, backward)
            everything = np.maximum(everything, rate(moved.backward_size, backward))
        return OffloadBandwidth(
            act_offload_bw_req=rate(stage.stored_activation, forward),
            weight_offload_bw_req=rate(block.weight, forward),
            optim_offload_bw_req=optimizer,
            offload_mem_bw_req=everything,
        )

    @cached_property
    def figures(self) -> Figures:
        """Figures that papers quote (MFU, tokens per second, ...)."""
        return quoted_figures(self.model, self.pipeline, self.times.total_time)

    @cached_property
    def efficiency(self) -> Efficiency:
        """Time that useful arithmetic would take at peak rate, compared with time spent (section 5.10)."""
        block, schedule, times = self.stage.block, self.schedule, self.times
        busy = times.fw_time + times.bw_time + times.optim_step_time
        ends = self.pipeline.mean_embedding_head
        outside = 0.0 if ends is None else ends.useful_flops
        if schedule.modules:
            modules = self.pipeline.of_modules(_useful)
            outside = outside + schedule.microbatches * modules / schedule.ranks
        useful = self.edition.useful_flops(
            block.fw.flops,
            block.agrad.flops + block.wgrad.flops,
            self.stage.optimizer.step.flops,
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

    @cached_property
    def _memory(self) -> Memory:
        costs = [(stage.block, stage.optimizer) for stage in self.pipeline.stages]
        return memory(costs, self.schedule, self.edition, self.stage.embedding_head)

    space: "cached_property[Space]" = cached_property(lambda batch: batch._memory.space)
    offloaded_space: "cached_property[OffloadedSpace]" = cached_property(
        lambda batch: batch._memory.offloaded
    )
    buffers: "cached_property[Buffers]" = cached_property(lambda batch: batch._memory.buffers)
    expert_space: "cached_property[ExpertSpace]" = cached_property(
        lambda batch: batch._memory.experts
    )
    capacity: "cached_property[Capacity]" = cached_property(lambda batch: batch._memory.capacity)

    @cached_property
    def risk(self) -> MemoryRisk:
        """Probability of fitting in memory."""
        return MemoryRisk(fits=np.array(np.nan) if self._fits is None else self._fits(self))

    # -- all of them ------------------------------------------------------------------------------

    @property
    def stats(self) -> Stats:
        """All statistics that the edition computes."""
        stats: Stats = record_of(self.edition.stats, self)
        return stats
