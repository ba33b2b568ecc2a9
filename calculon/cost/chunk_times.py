"""Times of the chunks of pipeline stages, and of a batch whose chunks have different numbers of blocks."""

from collections.abc import Sequence
from functools import reduce
from operator import add
from typing import NamedTuple

import numpy as np

from calculon.base.distinct_rows import unlike
from calculon.base.units import Array, Count, Seconds
from calculon.cost.embedding_head import EmbeddingHead
from calculon.cost.pipeline.interleaved import InterleavedPasses, interleaved_time
from calculon.cost.stage import Stage
from calculon.plan.schedule import Schedule
from calculon.plan.stage_kinds import ChunkLayout

_PASSES = 2
"""Forward and backward pass."""


class BlockPass(NamedTuple):
    """Time of a pass of a base and of an edge block, and by how much less the edge block waits for offload traffic."""

    base: Seconds
    edge: Seconds
    waits_less: Seconds

    @property
    def sent(self) -> Seconds:
        """Time by which an edge block, which has the transfer, takes longer than a base block."""
        return self.edge - self.base

    @property
    def transfer_only(self) -> Seconds:
        """Time of a chunk without blocks: the transfer, without offload traffic."""
        return np.maximum(0.0, self.sent + self.waits_less)


def block_forward(stage: Stage, *, apart: bool = False) -> BlockPass:
    """Return the forward pass of the blocks of a stage, which waits for overlapped transfers if they are `apart`."""
    times, offload = stage.times, stage.exposed_offload
    less = offload.forward_base - offload.forward_edge
    one = BlockPass(times.forward_base, times.forward_edge, less)
    sent = stage.transfers.forward
    return _with_transfer(one, sent, offload.forward_edge, stage.schedule) if apart else one


def block_backward(stage: Stage, *, apart: bool = False) -> BlockPass:
    """Return the backward pass of the blocks of a stage, which waits for overlapped transfers if they are `apart`."""
    times, offload = stage.times, stage.exposed_offload
    less = offload.backward_base - offload.backward_edge
    one = BlockPass(times.backward_base, times.backward_edge, less)
    sent = stage.transfers.backward
    return _with_transfer(one, sent, offload.backward_edge, stage.schedule) if apart else one


def _with_transfer(one: BlockPass, sent: Seconds, waits: Seconds, schedule: Schedule) -> BlockPass:
    """Add an overlapped transfer to an edge block, which hides as much of it as it `waits` for offload traffic."""
    overlapped, hidden = schedule.columns.p2p_overlap, np.minimum(sent, waits)
    return BlockPass(
        one.base,
        one.edge + np.where(overlapped, sent - hidden, 0.0),
        one.waits_less + np.where(overlapped, hidden, 0.0),
    )


class ChunkTimes:
    """Times of the chunks of executions whose chunks have different numbers of blocks.

    A chunk takes the sum of the times of its own blocks. Its last block is an edge block, which has the transfer; a
    chunk without blocks has the transfer only.

    Args:
        kinds: A stage of each kind of block.
        stalled: Time that each kind of stage waits for the data-parallel traffic of a microbatch; its chunks wait for
            equal parts of it.
        embedding_head: The embedding is in the first chunk of the first stage, the head in the last of the last stage.
    """

    def __init__(
        self,
        kinds: Sequence[Stage],
        stalled: Sequence[Seconds],
        schedule: Schedule,
        embedding_head: EmbeddingHead | None,
    ):
        self._kinds, self._stalled, self._schedule = kinds, stalled, schedule
        self._embedding_head = embedding_head

    def batch_time(self, equal: Seconds, *, apart: bool = False) -> Seconds:
        """Return the time of a batch with the interleaved schedule, or `equal` if all chunks have equally many blocks.

        If transfers are `apart`, it is the time of executions with overlapped transfers if passes waited for these.
        Executions with as many stages and chunks are computed together, and those with equal times once.
        """
        schedule = self._schedule
        layouts = schedule.chunk_layouts
        assert layouts is not None
        differ = layouts.differ & schedule.columns.p2p_overlap if apart else layouts.differ
        times = [*self._of_blocks(apart=apart), *self._stalled, *self._ends()]
        columns = [*times, schedule.microbatches, layouts.number, differ]
        broadcast = np.broadcast_arrays(equal, *columns)
        shape, (same, *columns) = broadcast[0].shape, [values.ravel() for values in broadcast]
        there = np.flatnonzero(columns.pop())
        rows, inverse = unlike([values[there] for values in columns])
        *times, microbatches, number = rows
        every: dict[tuple[int, ...], list[tuple[Array, InterleavedPasses]]] = {}
        for layout in sorted({int(one) for one in number.tolist()}):
            here = np.flatnonzero(number == layout)
            passes = self._passes(layouts.layouts[layout], [values[here] for values in times])
            every.setdefault(passes.forward.shape[:2], []).append((here, passes))
        of_rows = np.empty(len(number))
        for some in every.values():
            places, alike = zip(*some, strict=True)
            here = np.concatenate(places)
            counts = np.maximum(1, microbatches[here]).astype(int)
            joined = InterleavedPasses.joined(alike)
            of_rows[here] = interleaved_time(joined, counts, training=schedule.training)
        found = np.array(same, float)
        found[there] = of_rows[inverse]
        return found.reshape(shape)

    def _of_blocks(self, *, apart: bool) -> list[Seconds]:
        """Return times of each kind of block: base block and transfers of both passes, and what a pair saves."""
        result: list[Seconds] = []
        for stage in self._kinds:
            forward = block_forward(stage, apart=apart)
            backward = block_backward(stage, apart=apart)
            whole, added = backward.base, stage.accumulation
            whole = whole if added is None else whole + added.block
            result += [forward.base, forward.sent, forward.transfer_only]
            result += [whole, backward.sent, backward.transfer_only, stage.block.paired]
        return result

    def _ends(self) -> list[Seconds]:
        """Return the forward and backward time of the embedding, and of the head."""
        ends = self._embedding_head
        if ends is None:
            return [np.zeros(1)] * (2 * _PASSES)
        result: list[Seconds] = []
        accumulation = self._kinds[0].accumulation
        added = [np.zeros(1)] * 2 if accumulation is None else accumulation[1:]
        for end, more in zip((ends.cost.embedding, ends.cost.head), added, strict=True):
            result += [ends.forward(end), ends.backward(end) + more]
        return result

    def _passes(self, layout: ChunkLayout, times: Sequence[Array]) -> InterleavedPasses:
        """Return the passes of executions with one layout from their times, each of shape (executions,)."""
        of_blocks = np.stack(times[: -2 * _PASSES - len(self._stalled)])
        each = of_blocks.reshape(len(self._kinds), -1, of_blocks.shape[-1])
        stalled = np.stack(times[-2 * _PASSES - len(self._stalled) : -2 * _PASSES])
        *first, last_forward, last_backward = times[-2 * _PASSES :]
        blocks, share = layout.of_kind.sum(axis=0), layout.sending
        some = (blocks > 0)[..., None]

        def weighted(weights: Count, column: int) -> Seconds:
            # One addition after another: the result of a product depends on the number of executions.
            parts = zip(weights[..., None], each[:, column], strict=True)
            return reduce(add, [weight * time for weight, time in parts])

        def chunks(base: int) -> Seconds:
            sent = np.where(some, weighted(share, base + 1), weighted(share, base + 2))
            return weighted(layout.of_kind, base) + sent

        forward, backward = chunks(0), chunks(3)
        backward += stalled[layout.kind][:, None] / blocks.shape[1]
        forward[0, 0] += first[0]
        backward[0, 0] += first[1]
        forward[-1, -1] += last_forward
        backward[-1, -1] += last_backward
        hidden = weighted(layout.of_kind, 6) if self._schedule.choice.pairs_passes else None
        return InterleavedPasses(forward, backward, hidden)
