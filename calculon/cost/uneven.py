"""Pipelines whose stages differ: which stage is the slowest, and how long it waits for the others."""

from collections.abc import Callable

import numpy as np

from calculon.arrays import derived
from calculon.cost.block_cost import BlockCost
from calculon.cost.block_times import BlockTimes
from calculon.cost.embedding_head import EmbeddingHead
from calculon.parallel.pipeline.schedules import Passes, batch_time
from calculon.plan.schedule import Schedule
from calculon.plan.stage_layout import FIRST, LAST
from calculon.units import Array, Count, Seconds


class UnevenStages:
    """The stages of executions that state a schedule or a layout.

    Parameters
    ----------
    times, waits : BlockTimes
        Times of a block with its transfers and the offload traffic that it waits for, and of that traffic alone.
    added : tuple of arrays, optional
        Time that gradient accumulation adds to the backward pass of a block, of the embedding and of the head.
    """

    def __init__(
        self,
        block: BlockCost,
        times: BlockTimes,
        waits: BlockTimes,
        schedule: Schedule,
        embedding_head: EmbeddingHead | None,
        added: tuple[Seconds, Seconds, Seconds] | None = None,
    ):
        assert schedule.layout is not None
        self._block, self._times, self._waits, self._embedding_head = (
            block,
            times,
            waits,
            embedding_head,
        )
        self._schedule, self._layout, self._added = schedule, schedule.layout, added

    @derived
    def passes(self) -> Passes:
        """Time of a stage of each kind for a microbatch."""
        return self._passes(np.zeros(1))

    def _passes(self, stalled: Seconds) -> Passes:
        """Return the passes of each kind of stage, of which each is stalled for so long.

        While a backward pass waits for offload traffic, gradients of weights fill the time: those of inputs are not
        delayed.
        """
        times, waits, alone = self._times, self._waits, self._block.wgrad.time
        base, edge = alone + waits.backward_base, alone + waits.backward_edge
        forward = self._whole(
            times.forward_base,
            times.forward_edge,
            forward_time,
            waits.forward_base - waits.forward_edge,
        )
        backward = self._whole(
            times.backward_base,
            times.backward_edge,
            backward_time,
            waits.backward_base - waits.backward_edge,
        )
        backward = [time + stalled for time in self._with_added(backward)]
        less = waits.backward_base - waits.backward_edge
        weight = self._whole(base, edge, lambda end: end.wgrad.time, less)
        count = self._layout.count
        kinds = len(count)
        same = np.broadcast_arrays(*count, *forward, *backward, *weight)
        count, forward_of, backward_of, weight_of = (
            np.stack(same[start : start + kinds]) for start in range(0, len(same), kinds)
        )
        return Passes(stages=count, forward=forward_of, backward=backward_of, weight=weight_of)

    def _whole(
        self,
        base: Seconds,
        edge: Seconds,
        of_layers: Callable[[BlockCost], Seconds],
        waited_less: Seconds,
    ) -> list[Seconds]:
        """Return a time of the blocks of each kind of stage, the last of each chunk transfers, and of its end.

        A chunk without blocks only transfers: that is what edge blocks take longer, and what they wait less for offload
        traffic than others.
        """
        chunks = self._schedule.interleaving
        transfers, alone = chunks * (edge - base), np.maximum(0.0, edge - base + waited_less)
        found = [
            np.where(
                blocks < chunks,
                blocks * edge + (chunks - blocks) * alone,
                blocks * base + transfers,
            )
            for blocks in self._layout.blocks
        ]
        if self._embedding_head is not None:
            embedding, head = (
                of_layers(self._embedding_head.cost.embedding),
                of_layers(self._embedding_head.cost.head),
            )
            found[FIRST] = found[FIRST] + embedding
            found[LAST] = (
                found[LAST] + head + np.where(self._layout.count[FIRST] > 0, 0.0, embedding)
            )
        return found

    def _with_added(self, backward: list[Seconds]) -> list[Seconds]:
        """Add what gradient accumulation takes to the backward pass of each kind of stage."""
        if self._added is None:
            return backward
        each, embedding, head = self._added
        found = [
            time + blocks * each for time, blocks in zip(backward, self._layout.blocks, strict=True)
        ]
        alone = self._layout.count[FIRST] == 0
        found[FIRST] = found[FIRST] + embedding
        found[LAST] = found[LAST] + head + np.where(alone, embedding, 0.0)
        return found

    @derived
    def longest(self) -> Seconds:
        """Time of a microbatch of the longest chunks: of each chunk that of the stage that takes longest there.

        Chunks of one stage add up to the stage. Of several the first has the embedding, and the last the head.
        """
        times, chunks, interleaving = self._times, self._layout.chunks, self._schedule.interleaving
        base = times.forward_base + times.backward_base
        edge = times.forward_edge + times.backward_edge
        embedding: Seconds = np.zeros(1)
        head: Seconds = np.zeros(1)
        if self._embedding_head is not None:
            cost = self._embedding_head.cost
            embedding, head = (
                forward_time(e) + backward_time(e) for e in (cost.embedding, cost.head)
            )
        if self._added is not None:
            each, of_embedding, of_head = self._added
            base, edge = base + each, edge + each
            embedding, head = embedding + of_embedding, head + of_head
        blocks = chunks.longest * base + interleaving * (edge - base)
        first = np.maximum(0.0, (chunks.first - chunks.first_most) * base + embedding)
        last = np.maximum(0.0, (chunks.last - chunks.last_most) * base + head)
        whole = self.passes.largest(self.passes.both)
        return np.where(interleaving > 1, np.maximum(blocks + first + last, whole), whole)

    @derived
    def slowest(self) -> Array:
        """Kind of the slowest stage; the last where several are."""
        whole = np.where(self.passes.stages > 0, self.passes.both, -1.0)
        return len(whole) - 1 - whole[::-1].argmax(axis=0)

    @derived
    def blocks_of_slowest(self) -> Count:
        """Blocks of the slowest stage."""
        blocks = self._layout.blocks
        among = [self.slowest == kind for kind in range(len(blocks) - 1)]
        return np.select(among, list(blocks[:LAST]), blocks[LAST])

    @property
    def slowest_is_outer(self) -> tuple[Array, Array]:
        """Whether the slowest stage is the first, and whether it is the last."""
        return self.slowest == FIRST, self.slowest == len(self._layout.blocks) - 1

    def bubble(self, stalled: Seconds | float) -> Seconds:
        """Time of a batch in which the slowest stage has nothing to do.

        Every stage is `stalled` for so long by data-parallel traffic of each microbatch.
        """
        microbatches = self._schedule.microbatches
        passes = self._passes(np.asarray(stalled)) if np.any(stalled) else self.passes
        chunks, name = self._schedule.interleaving, self._schedule.choice.pp_schedule
        time = batch_time(name, passes, microbatches, chunks, self.longest + stalled, stalled)
        return time - microbatches * passes.largest(passes.both)


def forward_time(end: BlockCost) -> Seconds:
    """Forward time of embedding or head for a microbatch."""
    time: Seconds = end.fw.time + end.collectives.fw_tp.time_exposed[0]
    return time


def backward_time(end: BlockCost) -> Seconds:
    """Backward time of embedding or head for a microbatch."""
    time: Seconds = end.agrad.time + end.wgrad.time + end.collectives.agrad_tp.time_exposed[0]
    return time
