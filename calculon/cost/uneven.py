"""Pipelines with uneven stages: the time of each kind of stage, the slowest stage, and the pipeline bubble."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from calculon.base.arrays import cached_property
from calculon.base.distinct_rows import distinct
from calculon.base.units import Array, Count, Seconds
from calculon.cost.block_cost import BlockCost
from calculon.cost.chunk_times import BlockPass, ChunkTimes, block_backward, block_forward
from calculon.cost.embedding_head import EmbeddingHead
from calculon.cost.pipeline.schedules import Passes, batch_time, chunked_time
from calculon.cost.pipeline.simulation import ChunkPasses
from calculon.cost.stage import Stage
from calculon.plan.schedule import Schedule
from calculon.plan.stage_layout import FIRST, LAST

Q = TypeVar("Q")

_ROUNDING = 1e-12
"""Idle time below this share of a batch is a rounding error of sums, and counts as 0."""


class UnevenStages:
    """The stages of executions that state a schedule or a layout, or whose blocks are of several kinds.

    Args:
        stages: A stage of each kind of the layout.
        stalled: Time that each of them waits for the data-parallel traffic of a microbatch.
        kinds: A stage of each kind of block.
    """

    def __init__(
        self,
        stages: Sequence[Stage],
        stalled: Sequence[Seconds],
        schedule: Schedule,
        embedding_head: EmbeddingHead | None,
        kinds: Sequence[Stage],
    ):
        assert schedule.layout is not None
        self._stages, self._stalled = stages, stalled
        self._embedding_head, self._kinds = embedding_head, kinds
        self._schedule, self._layout = schedule, schedule.layout

    @cached_property
    def passes(self) -> Passes:
        """Time of a stage of each kind for a microbatch; stalls are part of the backward passes.

        The time that a backward pass waits for offload traffic is part of ``weight``: weight gradients are computed in
        that time, and the gradients of inputs, which the previous stage needs, are not delayed.
        """
        forward = self._whole(block_forward, EmbeddingHead.forward)
        backward = self._whole(block_backward, EmbeddingHead.backward)
        stalled = self._stalled
        backward = [x + y for x, y in zip(self._with_added(backward), stalled, strict=True)]
        weight = self._whole(_weight, _weight_of_end)
        count = self._layout.count
        kinds = len(count)
        same = np.broadcast_arrays(*count, *forward, *backward, *weight, *stalled)
        names = ("stages", "forward", "backward", "weight", "stalled")
        starts = range(0, len(same), kinds)
        return Passes(
            **{n: np.stack(same[i : i + kinds]) for n, i in zip(names, starts, strict=True)}
        )

    def _whole(
        self,
        of_block: Callable[[Stage], BlockPass],
        of_layers: Callable[[EmbeddingHead, BlockCost], Seconds],
    ) -> list[Seconds]:
        """Return a time of each kind of stage: of its blocks, and of embedding or head.

        The last block of each chunk is an edge block, which has the transfer. A chunk without blocks has the transfer
        only: the time by which an edge block takes longer than a base block, offload traffic apart.

        Args:
            of_block: The pass of base and edge block.
            of_layers: Time of embedding or head.
        """
        chunks = self._schedule.interleaving

        def of_stage(stage: Stage) -> tuple[Seconds, ...]:
            one = of_block(stage)
            return one.base, one.edge, chunks * one.sent, one.transfer_only

        result = [
            np.where(
                blocks < chunks,
                blocks * edge + (chunks - blocks) * transfer_only,
                blocks * base + transfers,
            )
            for blocks, (base, edge, transfers, transfer_only) in zip(
                self._layout.blocks, self._each(of_stage), strict=True
            )
        ]
        if self._embedding_head is not None:
            embedding, head = (
                of_layers(self._embedding_head, self._embedding_head.cost.embedding),
                of_layers(self._embedding_head, self._embedding_head.cost.head),
            )
            result[FIRST] = result[FIRST] + embedding
            result[LAST] = (
                result[LAST] + head + np.where(self._layout.count[FIRST] > 0, 0.0, embedding)
            )
        return result

    def _each(self, quantity: Callable[[Stage], Q]) -> list[Q]:
        """Return a quantity of each kind of stage, computed once for kinds that share a stage object."""
        known: dict[int, Q] = {}
        for stage in self._stages:
            if id(stage) not in known:
                known[id(stage)] = quantity(stage)
        return [known[id(stage)] for stage in self._stages]

    def _with_added(self, backward: list[Seconds]) -> list[Seconds]:
        """Add the time of gradient accumulation to the backward pass of each kind of stage."""
        result, embedding, head = [], np.zeros(1), np.zeros(1)
        for stage, time, blocks in zip(self._stages, backward, self._layout.blocks, strict=True):
            if stage.accumulation is None:
                return backward
            each, embedding, head = stage.accumulation
            result.append(time + blocks * each)
        single = self._layout.count[FIRST] == 0  # the only stage is of the last kind
        result[FIRST] = result[FIRST] + embedding
        result[LAST] = result[LAST] + head + np.where(single, embedding, 0.0)
        return result

    @cached_property
    def longest(self) -> Seconds:
        """Time of a microbatch in the longest chunks (:meth:`_longest`)."""
        return self._longest()

    def _longest(self, *, paired: bool = False) -> Seconds:
        """Return the sum over equal chunks of the time of a microbatch on the stage that takes longest in that chunk.

        Blocks take less time if their passes are `paired` with passes of another microbatch. The first chunk has the
        embedding, and the last one the head. All chunks have the mean block of the slowest stage, and the longest stall
        of any stage. The sum is at least the time of the slowest stage, and equal to it for a single chunk.
        """
        interleaving = self._schedule.interleaving
        base = self.of_slowest(self._each(lambda x: x.times.forward_base + x.times.backward_base))
        edge = self.of_slowest(self._each(lambda x: x.times.forward_edge + x.times.backward_edge))
        if paired:
            hidden = self.of_slowest(self._paired)
            base, edge = base - hidden, edge - hidden
        ends: Seconds = np.zeros(1)
        if self._embedding_head is not None:
            both = self._embedding_head
            embedding, head = both.cost.embedding, both.cost.head
            ends = both.forward(embedding) + both.backward(embedding)
            ends = ends + both.forward(head) + both.backward(head)
        every = [stage.accumulation for stage in self._stages]
        added = [one for one in every if one is not None]
        if added:
            _, of_embedding, of_head = added[FIRST]
            each = self.of_slowest([one[0] for one in added])
            base, edge = base + each, edge + each
            ends = ends + of_embedding + of_head
        blocks = self._layout.largest * base + interleaving * (edge - base)
        blocks = blocks + self.passes.largest(self.passes.stalled)
        both_passes = self.passes.both
        whole = self.passes.largest(
            self._less(both_passes, [1.0] * len(both_passes)) if paired else both_passes
        )
        return np.where(interleaving > 1, np.maximum(blocks + ends, whole), whole)

    @cached_property
    def slowest(self) -> Array:
        """Kind of the slowest stage; the last kind of several equally slow ones."""
        whole = np.where(self.passes.stages > 0, self._mean(self.passes.both), -1.0)
        return len(whole) - 1 - whole[::-1].argmax(axis=0)

    def of_slowest(self, values: Sequence[Array] | Array) -> Array:
        """Return the value of the slowest stage from the values of each kind of stage."""
        if all(value is values[0] for value in values):
            return values[0]
        among = [self.slowest == kind for kind in range(len(values) - 1)]
        return np.select(among, list(values[:LAST]), values[LAST])

    @cached_property
    def blocks_of_slowest(self) -> Count:
        """Blocks of the slowest stage."""
        return self.of_slowest(self._layout.blocks)

    @property
    def chunks(self) -> ChunkTimes:
        """Times of chunks with different numbers of blocks."""
        return ChunkTimes(self._kinds, self._stalled, self._schedule, self._embedding_head)

    @property
    def slowest_is_outer(self) -> tuple[Array, Array]:
        """Masks of the executions whose slowest stage is the first, and whose slowest stage is the last."""
        return self.slowest == FIRST, self.slowest == len(self._layout.blocks) - 1

    @cached_property
    def bubble(self) -> Seconds:
        """Pipeline bubble: time of a batch in which the slowest stage neither computes nor is stalled."""
        microbatches, passes = self._schedule.microbatches, self.passes
        if self._schedule.choice.simulated:
            time = self._simulated(np.zeros(1))
            idle = time - microbatches * passes.largest(self._mean(passes.both))
            idle = np.where(idle > _ROUNDING * time, idle, 0.0)
            return np.where(self._schedule.pipeline_par > 1, idle, 0.0)
        time, layouts = self._time, self._schedule.chunk_layouts
        idle = time - microbatches * passes.largest(self._mean(passes.both))
        if layouts is not None:
            # Pairs of chunks that differ may save less than the mean of their stage.
            idle = np.where(layouts.differ & (idle <= _ROUNDING * time), 0.0, idle)
        return np.where(self._schedule.pipeline_par > 1, idle, 0.0)

    @cached_property
    def _time(self) -> Seconds:
        """Time of a batch, without a simulation of its schedule."""
        schedule = self._schedule
        chunks, name = schedule.interleaving, schedule.choice.pp_schedule
        time = batch_time(name, self.passes, schedule.microbatches, chunks, self.longest)
        if schedule.choice.pairs_passes:
            time = time - schedule.pairs * (self.longest - self._longest(paired=True))
        return time if schedule.chunk_layouts is None else self.chunks.batch_time(time)

    @property
    def most_of_transfers(self) -> Seconds:
        """Time by which overlapped transfers would lengthen a batch if passes waited for them.

        Infinite if all chunks are alike, whose passes wait for every transfer then.
        """
        layouts, overlapped = self._schedule.chunk_layouts, self._schedule.columns.p2p_overlap
        if layouts is None:
            return np.full(1, np.inf)
        longer = self.chunks.batch_time(self._time, apart=True) - self._time
        return np.where(layouts.differ & overlapped, longer, np.inf)

    def delay_of_transfers(self, delay: Seconds) -> Seconds:
        """Return the time that a batch takes longer if each transfer, which overlaps passes, takes `delay` seconds."""
        time = self._simulated(np.zeros(1))
        longer = self._simulated(delay) - time
        return np.where(longer > _ROUNDING * time, longer, 0.0)

    def _simulated(self, delay: Seconds) -> Seconds:
        """Return the time of a batch by simulation, or by a closed form if all chunks are alike.

        Executions with equal numbers of microbatches and of ranks of each kind are simulated together. The first rank
        of a folded schedule is of the last kind, since it has the head.
        """
        schedule, layout = self._schedule, self._layout
        kinds = len(layout.count)
        pairs: list[Seconds] = [np.zeros(1)] * kinds
        if schedule.choice.pairs_passes:  # of two chunks each is half of the blocks
            each = zip(layout.blocks, self._paired, strict=True)
            pairs = [blocks / 2 * hidden for blocks, hidden in each]
        counts = [schedule.microbatches, *layout.count]
        times = [one for each in self._chunk_passes() for own in each for one in own]
        broadcast = np.broadcast_arrays(*times, *pairs, delay, *counts)
        shape, same = broadcast[0].shape, [values.ravel() for values in broadcast]
        rows, inverse, _ = distinct([count.astype(np.int64) for count in same[-len(counts) :]])
        chunks = np.stack(same[: len(times)]).reshape(3, kinds, -1, len(inverse))
        hidden, late = np.stack(same[len(times) : -len(counts) - 1]), same[-len(counts) - 1]
        found = np.empty(len(inverse))
        for number, (microbatches, *count) in enumerate(rows.tolist()):
            here = np.flatnonzero(inverse == number)
            of_rank = np.repeat(np.arange(kinds), count)
            if schedule.choice.folded:
                of_rank = np.roll(of_rank, 1)
            forward, backward, weight = chunks[:, of_rank][..., here]
            some = ChunkPasses(forward, backward, weight, hidden[of_rank][:, here])
            found[here] = chunked_time(
                schedule.choice.pp_schedule, max(1, microbatches), some, late[here]
            )
        return found.reshape(shape)

    def _chunk_passes(self) -> list[list[list[Seconds]]]:
        """Return times of the forward pass, the backward pass and weight gradients: by pass, kind of stage, and chunk.

        Stages of one chunk get a second chunk of 0 seconds, since the simulation expects two.
        """
        if self._layout.halves is None:
            passes = self.passes
            none = np.zeros(1)
            return [
                [[one, none] for one in times]
                for times in (passes.forward, passes.backward, passes.weight)
            ]
        result = []
        for of_block, of_layers in (
            (block_forward, EmbeddingHead.forward),
            (block_backward, EmbeddingHead.backward),
            (_weight, _weight_of_end),
        ):
            each = zip(np.moveaxis(self._layout.halves, 1, 0), self._each(of_block), strict=True)
            of_kinds = [[_chunk(blocks, one) for blocks in halves] for halves, one in each]
            if (ends := self._embedding_head) is not None:
                first, last = of_kinds[LAST]
                first = first + of_layers(ends, ends.cost.embedding)
                of_kinds[LAST] = [first, last + of_layers(ends, ends.cost.head)]
            result.append(of_kinds)
        backward = result[1]
        for kind, stage in enumerate(self._stages):
            backward[kind] = [time + self._stalled[kind] / 2 for time in backward[kind]]
            if stage.accumulation is not None:
                block, *of_ends = stage.accumulation
                if kind < len(self._stages) - 1:
                    of_ends = [np.zeros(1)] * 2
                more = zip(self._layout.halves[:, kind], of_ends, strict=True)
                backward[kind] = [
                    time + (blocks * block + end)
                    for time, (blocks, end) in zip(backward[kind], more, strict=True)
                ]
        return result

    @cached_property
    def _pairs(self) -> list[Count]:
        """Microbatches whose passes are paired, by kind of stage."""
        schedule, layout = self._schedule, self._layout
        if not schedule.choice.folded:
            return [schedule.pairs] * len(layout.count)
        assert layout.place is not None
        return [schedule.pairs_of_rank(place) for place in layout.place]

    @property
    def pairs_of_slowest(self) -> Count:
        """Microbatches whose passes are paired on the slowest stage."""
        return self.of_slowest(self._pairs)

    @cached_property
    def _paired(self) -> list[Seconds]:
        """Time that a block of each kind of stage saves if its passes are paired."""
        return self._each(lambda stage: stage.block.paired)

    def _mean(self, both: Seconds) -> Seconds:
        """Return the mean time of stages for a microbatch: a pair of passes takes less than two separate passes."""
        schedule = self._schedule
        if not schedule.choice.pairs_passes:
            return both
        return self._less(both, [pairs / schedule.microbatches for pairs in self._pairs])

    def _less(self, times: Seconds, shares: Sequence[Count | float]) -> Seconds:
        """Subtract the time that pairs save from the times of stages; `shares` of the microbatches are paired."""
        parts = zip(times, self._layout.blocks, shares, self._paired, strict=True)
        less = [time - blocks * (share * each) for time, blocks, share, each in parts]
        return np.stack(np.broadcast_arrays(*less))


def _weight(stage: Stage) -> BlockPass:
    """Return the weight gradients of blocks, which fill the time that a block waits for offload traffic."""
    time, offload = stage.block.wgrad.time, stage.exposed_offload
    less = offload.backward_base - offload.backward_edge
    return BlockPass(time + offload.backward_base, time + offload.backward_edge, less)


def _weight_of_end(_: EmbeddingHead, end: BlockCost) -> Seconds:
    """Return the time of the weight gradients of embedding or head."""
    time: Seconds = end.wgrad.time
    return time


def _chunk(blocks: Count, one: BlockPass) -> Seconds:
    """Return the time of a chunk, whose last block is an edge block; without blocks it has the transfer only."""
    return np.where(blocks > 0, blocks * one.base + one.sent, one.transfer_only)
