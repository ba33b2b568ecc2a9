"""From the time of a block to the time of an iteration."""

from functools import reduce
from operator import attrgetter

import numpy as np

from calculon.base.arrays import derived, nothing
from calculon.base.units import Array, Bytes, Count, Seconds
from calculon.cost.pipeline.transfers import bubble_time
from calculon.cost.stage import Stage
from calculon.declarations.axes import FURTHER_NAMES
from calculon.declarations.statistics import PARTS_OF_TIME, AxisTimes
from calculon.plan.stage_layout import FIRST, LAST


class IterationTimes:
    """Times of one iteration on the most loaded processor, each computed when it is asked for.

    Sections 5.1 to 5.6 and 5.10; they are the parts of :class:`~calculon.declarations.statistics.Times`.
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

    def _with_embedding_and_head(self, time: Array, name: str) -> Array:
        """Add a time of embedding and LM head, by its name in :class:`EmbeddingHeadTimes`, where they are counted."""
        more = self._stage.embedding_head_times
        return time if more is None else time + getattr(more, name)

    def _with_modules(self, time: Array, name: str) -> Array:
        """Add a quantity of modules that predict further tokens, likewise: embedding and head alone do not have it."""
        return self._with_embedding_and_head(time, name) if self._stage.has_modules else time

    def _with_latents(self, time: Seconds) -> Seconds:
        """Add the collectives of a step for weights of latents, which nothing hides."""
        more = self._stage.latent_gradients
        return time if more is None else time + more

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
        ends, layout = self._stage.embedding_head_times, schedule.layout
        if layout is not None and layout.of_kind is not None:
            return self._longest_step
        if layout is None or ends is None:
            return self._with_embedding_and_head(schedule.blocks * each, "step")
        first, last = ends.steps
        outer = np.maximum(layout.blocks[FIRST] * each + first, layout.blocks[LAST] * each + last)
        return np.maximum(outer, layout.largest_between * each)

    @property
    def _longest_step(self) -> Seconds:
        """The longest step of the stages of a layout, each with blocks of its own."""
        layout, ends = self._stage.schedule.layout, self._stage.embedding_head_times
        assert layout is not None
        times = [
            blocks * stage.optimizer.step.time
            for blocks, stage in zip(layout.blocks, self._stage.parts, strict=True)
        ]
        if ends is not None:
            first, last = ends.steps
            times[FIRST], times[LAST] = times[FIRST] + first, times[LAST] + last
        return reduce(np.maximum, times)

    @derived
    def recompute_time(self) -> Seconds:
        """Recomputation."""
        time: Seconds = self._passes * self._stage.block.re.time
        return self._with_modules(time, "recompute")

    @derived
    def recomm_link_time(self) -> Seconds:
        """Repeated collectives, on the link."""
        return self._with_modules(
            self._batch_sum(self._stage.collectives.recomm.time), "repeated_link"
        )

    @derived
    def recomm_exposed_time(self) -> Seconds:
        """Repeated collectives, not hidden."""
        return self._with_modules(
            self._batch_sum(self._stage.collectives.recomm.time_exposed), "repeated_exposed"
        )

    @derived
    def bubble_time(self) -> Seconds:
        """The pipeline bubble: idle time while the pipeline fills and drains."""
        whole, schedule = self._stage.block_whole, self._stage.schedule
        if (uneven := self._stage.uneven) is not None:
            return uneven.bubble
        base = whole.forward_base + whole.backward_base
        edge = whole.forward_edge + whole.backward_edge
        ends: Seconds | float = 0.0
        if (added := self._stage.accumulated) is not None:
            each, embedding, head = added
            base, edge = base + each, edge + each
            if (times := self._stage.embedding_head_times) is not None:
                ends = times.of_faster(embedding, head)
        time = bubble_time(schedule, base, edge, self._stage.stalled[0]) + ends
        return self._with_embedding_and_head(time, "fill")

    @derived
    def tp_comm_link_time(self) -> Seconds:
        """Tensor-parallel collectives, on the link."""
        collectives = self._stage.collectives
        time = self._batch_sum(collectives.fw_tp.time) + self._batch_sum(collectives.agrad_tp.time)
        return self._with_latents(self._with_embedding_and_head(time, "tensor_link"))

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
        return self._with_latents(self._with_embedding_and_head(time, "tensor_exposed"))

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
        if (moved := self._stage.moved_states) is not None:
            time = time + moved
        idle = self.bubble_time + self.dp_comm_exposed_time
        if (crowded := self._stage.crowded(idle)) is not None:
            time = time + crowded
        return time if schedule.training else np.zeros_like(time)

    @property
    def _exchanges(self) -> bool:
        """Whether blocks, or modules that predict further tokens, may have collectives of further axes."""
        return self._stage.exchanges or self._stage.has_modules

    @derived
    def axes(self) -> AxisTimes:
        """Collectives of further axes: the first axis is that of parallelism.

        Passes hide more of the exchange of experts while they run beside those of another microbatch.
        """
        if not self._exchanges:
            none = nothing(len(FURTHER_NAMES))
            return AxisTimes(link=none, exposed=none)
        block, schedule = self._stage.block, self._stage.slowest
        time = block.axis_time.sum(axis=1)
        base, edge = np.moveaxis(block.axis_exposed.sum(axis=1), 1, 0)
        link = [schedule.batch_sum(each, each) for each in time]
        exposed = [schedule.batch_sum(*each) for each in zip(base, edge, strict=True)]
        if schedule.choice.pairs_passes:
            ep = FURTHER_NAMES.index("ep")
            hidden = schedule.pairs * schedule.blocks * block.paired
            exposed[ep] = np.maximum(0.0, exposed[ep] - hidden)
        if self._stage.has_modules:
            ends = self._stage.embedding_head_times
            assert ends is not None
            link = [one + more for one, more in zip(link, ends.further_axes, strict=True)]
            left = zip(exposed, ends.further_axes_exposed, strict=True)
            exposed = [one + more for one, more in left]
        return AxisTimes(
            link=np.stack(np.broadcast_arrays(*link)),
            exposed=np.stack(np.broadcast_arrays(*exposed)),
        )

    @derived
    def expert_bytes(self) -> Bytes:
        """Bytes of collectives over groups of experts: shape (2, executions), inside of nodes, and between them."""
        return self._with_modules(self._passes * self._stage.block.expert_bytes, "expert_bytes")

    host_time = property(attrgetter("_stage.schedule.host_time"))
    """Work of the host, once per batch."""

    @derived
    def total_time(self) -> Seconds:
        """The whole iteration: the sum of its parts, in order."""
        total: Seconds = getattr(self, PARTS_OF_TIME[0])
        for name in PARTS_OF_TIME[1:]:
            total = total + getattr(self, name)
        if self._exchanges:
            total = total + self.axes.exposed.sum(axis=0)
        return total + self.host_time
