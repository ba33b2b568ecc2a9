"""The time of an iteration and its parts, from the times of the stages of a pipeline."""

from collections.abc import Callable
from functools import reduce

import numpy as np

from calculon.architecture.latent_attention import replicated_weights
from calculon.base.arrays import cached_property, shared_zeros
from calculon.base.units import Array, Bytes, Count, Seconds
from calculon.cost.block_cost import BlockCost
from calculon.cost.block_times import host_link_contention, transfers_after_offload
from calculon.cost.embedding_head import EmbeddingHeadTimes
from calculon.cost.gradient_accumulation import accumulation_of_batch
from calculon.cost.pipeline.transfers import bubble_time, pipeline_time
from calculon.cost.pipeline_stages import PipelineStages
from calculon.cost.process_groups import CollectiveCost, axis_group
from calculon.cost.stage import Stage
from calculon.declarations.axes import FURTHER_NAMES
from calculon.declarations.model import Model
from calculon.declarations.named_values import DATATYPE_BYTES
from calculon.declarations.statistics import AxisTimes
from calculon.plan.schedule import Schedule
from calculon.plan.stage_layout import FIRST, LAST


def latent_traffic(
    model: Model, block: BlockCost, cost: CollectiveCost, *, modules: bool
) -> Array | None:
    """Return the cost per batch of all-reducing gradients of MLA's latent projections across TP ranks; None without.

    Every tensor-parallel rank has these weights whole. With sequence parallelism, a rank has the gradients of its own
    tokens; their sums are reduced once per batch in the type of data-parallel reductions. Without sequence parallelism,
    all ranks have equal gradients. `modules` says whether the last stage has MTP modules, each of which has a block.
    Source: Megatron-LM, ``core/distributed/finalize_model_grads.py``, parameters marked *sequence_parallel*.
    """
    schedule = cost.schedule
    if not (model.latent and model.attends and schedule.training):
        return None
    columns = schedule.columns
    widths = np.array([*DATATYPE_BYTES.values()])[columns.datatype]
    reduced = block.gradient_message / block.weight
    message = replicated_weights(model) * widths * reduced
    reduction = cost("all_reduce", message, axis_group(schedule, cost.system, "tp"))
    split = columns.is_choice("tensor_par_comm_type", "rs_ag") & (schedule.tensor_par > 1)
    blocks = schedule.blocks
    if modules:
        last = blocks if schedule.layout is None else schedule.layout.blocks[LAST]
        blocks = np.maximum(blocks, last + model.mtp_layers)
    return np.where(split, blocks * reduction, 0.0)


class IterationTimes:
    """Times of one iteration on the most loaded processor, each computed when it is first needed.

    Sections 5.1 to 5.6 and 5.10; they are the parts of :class:`~calculon.declarations.statistics.Times`. Computed all
    together, they would slow down a search that ranks by exposed tensor-parallel time by a factor of four.
    """

    def __init__(self, model: Model, pipeline: PipelineStages):
        self._model, self._pipeline = model, pipeline
        self._schedule = pipeline.schedule

    @cached_property
    def _stage(self) -> Stage:
        """The slowest stage, which determines the times of the iteration."""
        return self._pipeline.slowest

    @cached_property
    def _slowest(self) -> Schedule:
        """The schedule with the blocks of the slowest stage."""
        return self._pipeline.slowest_schedule

    @cached_property
    def _passes(self) -> Count:
        """Block passes of a batch: blocks of the slowest stage times microbatches."""
        return self._slowest.blocks * self._slowest.microbatches

    def _batch_sum(self, time: Seconds) -> Seconds:
        """Return the sum over the batch of a time of base and edge blocks, its first axis."""
        return self._slowest.batch_sum(time[0], time[1])

    def _with_ends(self, time: Array, more: Callable[[EmbeddingHeadTimes], Array]) -> Array:
        """Add a time of embedding and LM head, if the model has a vocabulary."""
        ends = self._pipeline.embedding_head
        return time if ends is None else time + more(ends)

    def _with_modules(self, time: Array, more: Callable[[EmbeddingHeadTimes], Array]) -> Array:
        """Add a quantity of MTP modules that embedding and head themselves do not have."""
        return self._with_ends(time, more) if self._stage.has_modules else time

    @cached_property
    def _latents(self) -> Seconds | None:
        """Time of reducing the gradients of latent projections, which is exposed; None without MLA."""
        cost = CollectiveCost(self._stage.system, self._schedule)
        return latent_traffic(self._model, self._stage.block, cost, modules=self._stage.has_modules)

    def _with_latents(self, time: Seconds) -> Seconds:
        """Add the time of reducing the gradients of latent projections."""
        return time if self._latents is None else time + self._latents

    @cached_property
    def fw_time(self) -> Seconds:
        """Forward computation."""
        time: Seconds = self._passes * self._stage.block.fw.time
        return self._with_ends(time, lambda ends: ends.forward)

    @cached_property
    def bw_time(self) -> Seconds:
        """Backward computation."""
        block = self._stage.block
        time: Seconds = self._passes * block.agrad.time + self._passes * block.wgrad.time
        if (added := self._stage.accumulation) is not None:
            ends = self._pipeline.embedding_head
            time = time + accumulation_of_batch(added, self._slowest, ends)
        return self._with_ends(time, lambda ends: ends.backward)

    @cached_property
    def optim_step_time(self) -> Seconds:
        """The optimizer step, once per batch, on the stage where it takes longest."""
        schedule, each = self._schedule, self._stage.optimizer.step.time
        ends, layout = self._pipeline.embedding_head, schedule.layout
        if layout is not None and layout.of_kind is not None:
            return self._longest_step
        if layout is None or ends is None:
            return self._with_ends(schedule.blocks * each, lambda ends: ends.step)
        first, last = ends.steps
        outer = np.maximum(layout.blocks[FIRST] * each + first, layout.blocks[LAST] * each + last)
        return np.maximum(outer, layout.largest_between * each)

    @property
    def _longest_step(self) -> Seconds:
        """The longest optimizer step of a layout whose stages have different kinds of block."""
        layout, ends = self._schedule.layout, self._pipeline.embedding_head
        assert layout is not None
        times = [
            blocks * stage.optimizer.step.time
            for blocks, stage in zip(layout.blocks, self._pipeline.stages, strict=True)
        ]
        if ends is not None:
            first, last = ends.steps
            times[FIRST], times[LAST] = times[FIRST] + first, times[LAST] + last
        return reduce(np.maximum, times)

    @cached_property
    def recompute_time(self) -> Seconds:
        """Recomputation."""
        time: Seconds = self._passes * self._stage.block.re.time
        return self._with_modules(time, lambda ends: ends.recompute)

    @cached_property
    def recomm_link_time(self) -> Seconds:
        """Repeated collectives, on the link."""
        return self._with_modules(
            self._batch_sum(self._stage.collectives.recomm.time), lambda ends: ends.repeated_link
        )

    @cached_property
    def recomm_exposed_time(self) -> Seconds:
        """Exposed repeated collectives."""
        return self._with_modules(
            self._batch_sum(self._stage.collectives.recomm.time_exposed),
            lambda ends: ends.repeated_exposed,
        )

    @cached_property
    def bubble_time(self) -> Seconds:
        """The pipeline bubble: idle time while the pipeline fills and drains."""
        if (uneven := self._pipeline.uneven) is not None:
            return uneven.bubble
        whole, times = self._stage.times, self._pipeline.embedding_head
        base = whole.forward_base + whole.backward_base
        edge = whole.forward_edge + whole.backward_edge
        ends: Seconds | float = 0.0
        if (added := self._stage.accumulation) is not None:
            base, edge = base + added.block, edge + added.block
            if times is not None:
                ends = times.of_faster(added.embedding, added.head)
        time = bubble_time(self._schedule, base, edge, self._pipeline.stalled[0]) + ends
        return self._with_ends(time, lambda ends: ends.fill)

    @cached_property
    def tp_comm_link_time(self) -> Seconds:
        """Tensor-parallel collectives, on the link."""
        collectives = self._stage.collectives
        time = self._batch_sum(collectives.fw_tp.time) + self._batch_sum(collectives.agrad_tp.time)
        return self._with_latents(self._with_ends(time, lambda ends: ends.tensor_link))

    @cached_property
    def pp_comm_link_time(self) -> Seconds:
        """Pipeline transfers, and gradients that two stages reduce, on the link."""
        stage = self._stage
        shared = None if stage.embedding_head is None else stage.embedding_head.shared_table
        mirrored = self._pipeline.mirrored_gradient
        return pipeline_time(stage.transfers, shared, mirrored, self._schedule, stage.system)

    @property
    def dp_comm_link_time(self) -> Seconds:
        """Data-parallel collectives, on the link."""
        return self._pipeline.gradient_sync.link

    @cached_property
    def tp_comm_exposed_time(self) -> Seconds:
        """Exposed tensor-parallel collectives."""
        collectives = self._stage.collectives
        forward = self._batch_sum(collectives.fw_tp.time_exposed)
        time = forward + self._batch_sum(collectives.agrad_tp.time_exposed)
        return self._with_latents(self._with_ends(time, lambda ends: ends.tensor_exposed))

    @cached_property
    def pp_comm_exposed_time(self) -> Seconds:
        """Exposed pipeline transfers.

        If transfers overlap passes, two parts are exposed: the trip of one microbatch through all chunks, less the time
        that stages wait for offload traffic anyway, and the part of other transfers that exceeds a pass of a chunk.
        If chunks differ, transfers also hide in the time that stages wait for longer chunks: a batch takes no longer
        than one whose passes wait for the transfers.
        """
        stage, schedule, link = self._stage, self._schedule, self.pp_comm_link_time
        overlapped, sent = schedule.columns.p2p_overlap, self._stage.transfers
        if not overlapped.any():
            return link
        count = schedule.microbatches * schedule.interleaving
        uneven = self._pipeline.uneven
        if uneven is not None and schedule.choice.simulated:
            delay = uneven.delay_of_transfers(np.where(overlapped, sent.link / (2 * count), 0.0))
            return link - np.where(overlapped, sent.link - delay, 0.0)
        forward, backward = transfers_after_offload(sent, stage.exposed_offload)
        left = forward + backward if schedule.training else forward
        trip = (schedule.pipeline_par * schedule.interleaving - 1) * left
        shortest = np.minimum(
            schedule.chunk_sum(stage.times.forward_base, stage.times.forward_edge),
            schedule.chunk_sum(stage.times.backward_base, stage.times.backward_edge),
        )
        longer = 2 * np.maximum(0.0, sent.link / (2 * count) - shortest)
        longer = np.where(overlapped & (schedule.interleaving > 1), count * longer, 0.0)
        hidden = np.maximum(0.0, np.maximum(sent.link - trip - longer, sent.link - count * left))
        if uneven is not None:
            hidden = np.maximum(hidden, sent.link - uneven.most_of_transfers)
        return link - np.where(overlapped, hidden, 0.0)

    @property
    def dp_comm_exposed_time(self) -> Seconds:
        """Exposed data-parallel collectives."""
        return self._pipeline.gradient_sync.exposed

    @cached_property
    def fw_offload_exposed_time(self) -> Seconds:
        """Exposed offload traffic of the forward pass."""
        exposed = self._stage.exposed_offload
        return self._slowest.batch_sum(exposed.forward_base, exposed.forward_edge)

    @cached_property
    def bw_offload_exposed_time(self) -> Seconds:
        """Exposed offload traffic of the backward pass."""
        stage, moved, ends = self._stage, self._stage.offload, self._pipeline.embedding_head
        time = self._slowest.batch_sum(
            stage.exposed_offload.backward_base, stage.exposed_offload.backward_edge
        )
        if (states := self._moved_states) is not None:
            time = time + states
        idle = self.bubble_time + self.dp_comm_exposed_time
        memory = stage.block.fw.mem_time, stage.backward_memory
        traffic, passes = self._pipeline.traffic, (stage.times_without_offload, moved, memory)
        left = host_link_contention(traffic, *passes, ends, idle, self._slowest, stage.system)
        if left is not None:
            time = time + left
        return time if self._schedule.training else np.zeros_like(time)

    @property
    def _moved_states(self) -> Seconds | None:
        """Time to move the offloaded optimizer state once per batch, on the stage where it takes longest."""
        layout, each = self._schedule.layout, self._stage.step_offload
        if each is None:
            return None
        if layout is None or layout.of_kind is None:
            return self._schedule.blocks * each
        stages = zip(layout.blocks, self._pipeline.stages, strict=True)
        moved = [n * s.step_offload for n, s in stages if s.step_offload is not None]
        return reduce(np.maximum, moved)

    @property
    def _exchanges(self) -> bool:
        """True if blocks or MTP modules may have collectives of further axes."""
        return self._stage.exchanges or self._stage.has_modules

    @cached_property
    def axes(self) -> AxisTimes:
        """Collectives of further axes (CP, EP), the first axis of the arrays.

        Pairs of passes of two microbatches hide more of the exchange of experts.
        """
        if not self._exchanges:
            none = shared_zeros(len(FURTHER_NAMES))
            return AxisTimes(link=none, exposed=none)
        block, schedule = self._stage.block, self._slowest
        time = block.axis_time.sum(axis=1)
        base, edge = np.moveaxis(block.axis_exposed.sum(axis=1), 1, 0)
        link = [schedule.batch_sum(each, each) for each in time]
        exposed = [schedule.batch_sum(*each) for each in zip(base, edge, strict=True)]
        if schedule.choice.pairs_passes:
            ep = FURTHER_NAMES.index("ep")
            hidden = schedule.pairs * schedule.blocks * block.paired
            exposed[ep] = np.maximum(0.0, exposed[ep] - hidden)
        if self._stage.has_modules:
            ends = self._pipeline.embedding_head
            assert ends is not None
            link = [one + more for one, more in zip(link, ends.further_axes, strict=True)]
            left = zip(exposed, ends.further_axes_exposed, strict=True)
            exposed = [one + more for one, more in left]
        return AxisTimes(
            link=np.stack(np.broadcast_arrays(*link)),
            exposed=np.stack(np.broadcast_arrays(*exposed)),
        )

    @cached_property
    def expert_bytes(self) -> Bytes:
        """Bytes of collectives over groups of experts: shape (2, executions), inside of nodes, and between them."""
        return self._with_modules(
            self._passes * self._stage.block.expert_bytes, lambda ends: ends.expert_bytes
        )

    @property
    def host_time(self) -> Seconds | float:
        """Work of the host, once per batch."""
        return self._schedule.host_time

    @cached_property
    def total_time(self) -> Seconds:
        """The whole iteration: the sum of its parts in a fixed order, so that results do not differ in the last bit."""
        computed = self.fw_time + self.bw_time + self.optim_step_time
        offloaded = computed + self.fw_offload_exposed_time + self.bw_offload_exposed_time
        passes = offloaded + self.recompute_time + self.recomm_exposed_time
        exposed = passes + self.bubble_time + self.tp_comm_exposed_time
        total = exposed + self.pp_comm_exposed_time + self.dp_comm_exposed_time
        if self._exchanges:
            total = total + self.axes.exposed.sum(axis=0)
        return total + self.host_time
