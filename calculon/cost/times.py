"""From the time of a block to the time of an iteration."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from calculon.cost.block import BlockCost
from calculon.cost.offload import Offload, exposed
from calculon.parallel.pipeline import Transfers, bubble_time
from calculon.statistics import PARTS_OF_TIME
from calculon.units import Count, Seconds

if TYPE_CHECKING:
    from calculon.cost.batch import Batch


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


class IterationTimes:
    """Times of one iteration on the most loaded processor, each computed when it is asked for.

    The attributes are those of :class:`~calculon.statistics.Times` (sections 5.1 to 5.6 and 5.10).
    """

    def __init__(self, batch: "Batch"):
        self._batch = batch

    @property
    def _passes(self) -> Count:
        """How often a block is passed: once for every block of a stage and microbatch."""
        schedule = self._batch.schedule
        return schedule.blocks * schedule.microbatches

    def _batch_sum(self, time: Seconds) -> Seconds:
        """Add a time of base and edge blocks up over the batch."""
        total: Seconds = self._batch.schedule.batch_sum(time[0], time[1])
        return total

    @property
    def fw_time(self) -> Seconds:
        """Forward computation."""
        time: Seconds = self._passes * self._batch.block.fw.time
        return time

    @property
    def bw_time(self) -> Seconds:
        """Backward computation."""
        block = self._batch.block
        time: Seconds = self._passes * block.agrad.time + self._passes * block.wgrad.time
        return time

    @property
    def optim_step_time(self) -> Seconds:
        """The optimizer step, once per batch."""
        return self._batch.schedule.blocks * self._batch.optimizer.step.time

    @property
    def recompute_time(self) -> Seconds:
        """Recomputation."""
        return self._passes * self._batch.block.re.time

    @property
    def recomm_link_time(self) -> Seconds:
        """Repeated collectives, on the link."""
        return self._batch_sum(self._batch.block.recomm.time)

    @property
    def recomm_exposed_time(self) -> Seconds:
        """Repeated collectives, not hidden."""
        return self._batch_sum(self._batch.block.recomm.time_exposed)

    @property
    def bubble_time(self) -> Seconds:
        """The pipeline bubble."""
        whole = self._batch.block_whole
        return bubble_time(
            self._batch.schedule,
            whole.forward_base + whole.backward_base,
            whole.forward_edge + whole.backward_edge,
        )

    @property
    def tp_comm_link_time(self) -> Seconds:
        """Tensor-parallel collectives, on the link."""
        block = self._batch.block
        return self._batch_sum(block.fw_tp.time) + self._batch_sum(block.agrad_tp.time)

    @property
    def pp_comm_link_time(self) -> Seconds:
        """Pipeline transfers, on the link."""
        return self._batch.transfers.link

    @property
    def dp_comm_link_time(self) -> Seconds:
        """Data-parallel collectives, on the link."""
        return self._batch.gradient_sync.link

    @property
    def tp_comm_exposed_time(self) -> Seconds:
        """Tensor-parallel collectives, not hidden."""
        block = self._batch.block
        forward = self._batch_sum(block.fw_tp.time_exposed)
        return forward + self._batch_sum(block.agrad_tp.time_exposed)

    @property
    def pp_comm_exposed_time(self) -> Seconds:
        """Pipeline transfers: never hidden."""
        return self._batch.transfers.link

    @property
    def dp_comm_exposed_time(self) -> Seconds:
        """Data-parallel collectives, not hidden."""
        return self._batch.gradient_sync.exposed

    @property
    def fw_offload_exposed_time(self) -> Seconds:
        """Offload traffic of the forward pass, not hidden."""
        waits = self._batch.block_waits
        return self._batch.schedule.batch_sum(waits.forward_base, waits.forward_edge)

    @property
    def bw_offload_exposed_time(self) -> Seconds:
        """Offload traffic of the backward pass, not hidden."""
        waits, schedule = self._batch.block_waits, self._batch.schedule
        time = schedule.batch_sum(waits.backward_base, waits.backward_edge)
        return np.where(schedule.training, time, 0.0)

    @cached_property
    def total_time(self) -> Seconds:
        """The whole iteration: the sum of its parts, in order."""
        total: Seconds = getattr(self, PARTS_OF_TIME[0])
        for name in PARTS_OF_TIME[1:]:
            total = total + getattr(self, name)
        return total
