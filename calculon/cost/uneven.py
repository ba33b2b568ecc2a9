"""Pipelines whose stages differ: which stage is the slowest, and how long it waits for the others."""

from collections.abc import Callable
from functools import cached_property

import numpy as np

from calculon.cost.block_cost import BlockCost
from calculon.cost.block_times import BlockTimes
from calculon.cost.ends import Ends
from calculon.parallel.pipeline.schedules import Passes, batch_time
from calculon.plan.schedule import Schedule
from calculon.units import Array, Count, Seconds

FIRST, LAST = 0, 3
"""Kinds of stage: the first, those between that have more and less blocks, the last or only one."""


class UnevenStages:
    """The stages of executions that state a schedule or a layout; those of others do not count.

    Parameters
    ----------
    times : BlockTimes
        Whole times of a block, transfers and offload traffic included.
    """

    def __init__(
        self,
        block: BlockCost,
        times: BlockTimes,
        schedule: Schedule,
        ends: Ends | None,
    ):
        assert schedule.stages is not None
        self._block, self._times, self._ends = block, times, ends
        self._schedule, self._stages = schedule, schedule.stages

    @property
    def blocks(self) -> tuple[Count, ...]:
        """Blocks of a stage of each kind."""
        stages = self._stages
        return stages.first, stages.high, stages.low, stages.last

    @property
    def count(self) -> tuple[Count, ...]:
        """Stages of each kind."""
        piped = self._schedule.pipeline_par > 1
        between = np.where(piped, self._schedule.pipeline_par - 2, 0.0)
        more = self._stages.more
        return np.where(piped, 1.0, 0.0), more, between - more, np.ones(1)

    @cached_property
    def passes(self) -> Passes:
        """Time of a stage of each kind for a microbatch."""
        return self._passes(np.zeros(1))

    def _passes(self, stalled: Seconds) -> Passes:
        """Return the passes of each kind of stage, of which each is stalled for so long."""
        times, block = self._times, self._block
        forward = self._whole(times.forward_base, times.forward_edge, forward_time)
        backward = self._whole(times.backward_base, times.backward_edge, backward_time)
        backward = [time + stalled for time in backward]
        weight = self._whole(block.wgrad.time, block.wgrad.time, lambda end: end.wgrad.time)
        same = np.broadcast_arrays(*self.count, *forward, *backward, *weight)
        count, forward_of, backward_of, weight_of = (
            np.stack(same[start : start + LAST + 1]) for start in range(0, len(same), LAST + 1)
        )
        return Passes(stages=count, forward=forward_of, backward=backward_of, weight=weight_of)

    def _whole(
        self, base: Seconds, edge: Seconds, of_end: Callable[[BlockCost], Seconds]
    ) -> list[Seconds]:
        """Return a time of the blocks of each kind of stage, the last of which transfers, and of its end."""
        found = [blocks * base + (edge - base) for blocks in self.blocks]
        if self._ends is not None:
            embedding, head = of_end(self._ends.cost.embedding), of_end(self._ends.cost.head)
            found[FIRST] = found[FIRST] + embedding
            found[LAST] = found[LAST] + head + np.where(self.count[FIRST] > 0, 0.0, embedding)
        return found

    @cached_property
    def slowest(self) -> Array:
        """Kind of the slowest stage; the last where several are."""
        whole = np.where(self.passes.stages > 0, self.passes.both, -1.0)
        found: Array = len(whole) - 1 - whole[::-1].argmax(axis=0)
        return found

    @cached_property
    def blocks_of_slowest(self) -> Count:
        """Blocks of the slowest stage."""
        found: Count = np.select(
            [self.slowest == kind for kind in range(LAST)], self.blocks[:LAST], self.blocks[LAST]
        )
        return found

    def bubble(self, stalled: Seconds | None = None) -> Seconds:
        """Time of a batch in which the slowest stage has nothing to do.

        Every stage is `stalled` for so long by data-parallel traffic of each microbatch.
        """
        microbatches = self._schedule.microbatches
        passes = self.passes if stalled is None else self._passes(stalled)
        time = batch_time("1f1b", passes, microbatches)
        for name, mask in (
            ("gpipe", self._stages.gpipe),
            ("zb_h1", self._stages.zero_bubble),
        ):
            if mask.any():
                time = np.where(mask, batch_time(name, passes, microbatches), time)
        idle: Seconds = time - microbatches * passes.largest(passes.both)
        return idle


def forward_time(end: BlockCost) -> Seconds:
    """Forward time of embedding or head for a microbatch."""
    time: Seconds = end.fw.time + end.collectives.fw_tp.time_exposed[0]
    return time


def backward_time(end: BlockCost) -> Seconds:
    """Backward time of embedding or head for a microbatch."""
    time: Seconds = end.agrad.time + end.wgrad.time + end.collectives.agrad_tp.time_exposed[0]
    return time
