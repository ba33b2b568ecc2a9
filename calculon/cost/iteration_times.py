"""From the time of a block to the time of an iteration."""

from operator import attrgetter

import numpy as np

from calculon.arrays import derived
from calculon.cost.stage import Stage
from calculon.parallel.pipeline.transfers import bubble_time
from calculon.plan.stage_layout import FIRST, LAST
from calculon.spec.axes import FURTHER_AXES
from calculon.statistics import PARTS_OF_TIME, AxisTimes
from calculon.units import Count, Seconds


class IterationTimes:
    """Times of one iteration on the most loaded processor, each computed when it is asked for.

    Sections 5.1 to 5.6 and 5.10; they are the parts of :class:`~calculon.statistics.Times`.
    """

    def __init__(self, stage: Stage):
        self._stage = stage

    @derived
    def _passes(self) -> Count:
        """How often a block is passed: once for every block of a stage and microbatch."""
        schedule = self._stage.slowest
        return schedule.blocks * schedule.microbatches

    def _batch_sum(self, time: Seconds) -> Seconds:
        """Add a time of base and edge blocks up over the batch."""
        return self._stage.slowest.batch_sum(time[0], time[1])

    def _with_embedding_and_head(self, time: Seconds, name: str) -> Seconds:
        """Add a time of embedding and LM head, by its name in :class:`EmbeddingHeadTimes`, where they are counted."""
        more = self._stage.embedding_head_times
        return time if more is None else time + getattr(more, name)

    @derived
    def fw_time(self) -> Seconds:
        """Forward computation."""
        time: Seconds = self._passes * self._stage.block.fw.time
        return self._with_embedding_and_head(time, "forward")

    @derived
    def bw_time(self) -> Seconds:
        """Backward computation."""
        block = self._stage.block
        time: Seconds = self._passes * block.agrad.time + self._passes * block.wgrad.time
        if (more := self._stage.accumulation) is not None:
            time = time + more
        return self._with_embedding_and_head(time, "backward")

    @derived
    def optim_step_time(self) -> Seconds:
        """The optimizer step, once per batch: on the stage where it takes longest."""
        schedule, each = self._stage.schedule, self._stage.optimizer.step.time
        ends = self._stage.embedding_head_times
        if schedule.layout is None or ends is None:
            return self._with_embedding_and_head(schedule.blocks * each, "step")
        first, last = ends.steps
        blocks = schedule.layout.blocks
        outer = np.maximum(blocks[FIRST] * each + first, blocks[LAST] * each + last)
        return np.maximum(outer, schedule.layout.largest_between * each)

    @derived
    def recompute_time(self) -> Seconds:
        """Recomputation."""
        return self._passes * self._stage.block.re.time

    @derived
    def recomm_link_time(self) -> Seconds:
        """Repeated collectives, on the link."""
        return self._batch_sum(self._stage.collectives.recomm.time)

    @derived
    def recomm_exposed_time(self) -> Seconds:
        """Repeated collectives, not hidden."""
        return self._batch_sum(self._stage.collectives.recomm.time_exposed)

    @derived
    def bubble_time(self) -> Seconds:
        """The pipeline bubble: idle time while the pipeline fills and drains."""
        whole, schedule = self._stage.block_whole, self._stage.schedule
        stalled = self._stage.gradient_sync.stalled if self._stage.strategy.sharding else 0.0
        if (uneven := self._stage.uneven) is not None:
            return uneven.bubble(stalled)
        base = whole.forward_base + whole.backward_base
        edge = whole.forward_edge + whole.backward_edge
        ends: Seconds | float = 0.0
        if (added := self._stage.accumulated) is not None:
            each, embedding, head = added
            base, edge = base + each, edge + each
            if (times := self._stage.embedding_head_times) is not None:
                ends = times.of_faster(embedding, head)
        time = bubble_time(schedule, base, edge, stalled) + ends
        return self._with_embedding_and_head(time, "fill")

    @derived
    def tp_comm_link_time(self) -> Seconds:
        """Tensor-parallel collectives, on the link."""
        collectives = self._stage.collectives
        time = self._batch_sum(collectives.fw_tp.time) + self._batch_sum(collectives.agrad_tp.time)
        return self._with_embedding_and_head(time, "tensor_link")

    pp_comm_link_time = property(attrgetter("_stage.pipeline_link"))
    """Pipeline transfers, on the link."""

    dp_comm_link_time = property(attrgetter("_stage.gradient_sync.link"))
    """Data-parallel collectives, on the link."""

    @derived
    def tp_comm_exposed_time(self) -> Seconds:
        """Tensor-parallel collectives, not hidden."""
        collectives = self._stage.collectives
        forward = self._batch_sum(collectives.fw_tp.time_exposed)
        time = forward + self._batch_sum(collectives.agrad_tp.time_exposed)
        return self._with_embedding_and_head(time, "tensor_link")

    pp_comm_exposed_time = property(attrgetter("_stage.pipeline_exposed"))
    """Pipeline transfers, not hidden."""

    dp_comm_exposed_time = property(attrgetter("_stage.gradient_sync.exposed"))
    """Data-parallel collectives, not hidden."""

    @derived
    def fw_offload_exposed_time(self) -> Seconds:
        """Offload traffic of the forward pass, not hidden."""
        waits = self._stage.block_waits
        return self._stage.slowest.batch_sum(waits.forward_base, waits.forward_edge)

    @derived
    def bw_offload_exposed_time(self) -> Seconds:
        """Offload traffic of the backward pass, not hidden."""
        waits, schedule = self._stage.block_waits, self._stage.schedule
        time = self._stage.slowest.batch_sum(waits.backward_base, waits.backward_edge)
        if (step := self._stage.step_offload) is not None:
            time = time + schedule.blocks * step
        idle = self.bubble_time + self.dp_comm_exposed_time
        if (crowded := self._stage.crowded(idle)) is not None:
            time = time + crowded
        return time if schedule.training else np.zeros_like(time)

    @derived
    def axes(self) -> AxisTimes:
        """Collectives of further axes, none of which is hidden: the first axis is that of parallelism."""
        time: Seconds = self._passes * self._stage.block.axis_time.sum(axis=1)
        return AxisTimes(link=time, exposed=time)

    host_time = property(attrgetter("_stage.schedule.host_time"))
    """Work of the host, once per batch."""

    @derived
    def total_time(self) -> Seconds:
        """The whole iteration: the sum of its parts, in order."""
        total: Seconds = getattr(self, PARTS_OF_TIME[0])
        for name in PARTS_OF_TIME[1:]:
            total = total + getattr(self, name)
        if FURTHER_AXES:
            total = total + self.axes.exposed.sum(axis=0)
        return total + self.host_time
