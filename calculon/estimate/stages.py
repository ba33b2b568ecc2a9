"""Time and memory of the pipeline stages of one execution."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from calculon.base.record_arrays import apply
from calculon.base.records import columns
from calculon.base.units import Array, Seconds
from calculon.cost import in_flight
from calculon.cost.batch import Batch
from calculon.cost.pipeline.orders import Kind, order
from calculon.cost.pipeline.schedules import held_microbatches
from calculon.cost.pipeline.timeline import Span, timeline
from calculon.cost.stage import Stage
from calculon.cost.stage_memory import (
    Memory,
    VocabularyMemory,
    embedding_head_memory,
    memory_of_stage,
)
from calculon.plan.stage_kinds import chunks_of_layout, kinds_of_chunks
from calculon.plan.stage_layout import StageLayout, list_of


class StagePasses(NamedTuple):
    """Times of the passes of one microbatch: arrays of shape (stages, chunks).

    ``backward`` is the complete backward pass; ``weight`` is its part for weight gradients, and ``again`` its part for
    activation recomputation, without repeated collectives.
    """

    forward: Seconds
    backward: Seconds
    weight: Seconds
    again: Seconds


def schedule_of(batch: Batch) -> str:
    """Return the schedule of the only execution: one of :data:`~calculon.cost.pipeline.orders.SCHEDULES`."""
    choice = batch.schedule.choice
    return choice.pp_schedule if choice.training else "forward"


def stage_blocks(batch: Batch) -> list[int]:
    """Return the number of blocks of every stage, with MTP modules in a place of their own.

    In the published layout, stages have one block less each if blocks do not divide: first the stages before the last
    one, which has the LM head, and finally the first stage.
    """
    schedule, layout = batch.schedule, batch.schedule.layout
    if schedule.choice.folded:
        return [int(blocks) for blocks in _of_ranks(batch, _halves(batch)).sum(axis=1)]
    count = _one(schedule.pipeline_par)
    if layout is not None and layout.of_kind is not None:
        return [int(blocks) for blocks in _chunk_blocks(batch).sum(axis=1)]
    if layout is not None:
        kinds = zip(layout.blocks, layout.count, strict=True)
        return [_one(blocks) for blocks, stages in kinds for _ in range(_one(stages))]
    blocks = [_one(schedule.blocks)] * count
    for missing in range(_one(schedule.missing_blocks)):
        blocks[count - 2 - missing] -= 1
    return blocks


def _kind_of_ranks(batch: Batch) -> Array:
    """Return the kind of every rank of a folded schedule; for mirrored schedules, of the first half."""
    layout = batch.schedule.layout
    assert layout is not None
    counts = [_one(count) for count in layout.count]
    # The last kind is the first rank, which holds both ends of the model.
    return np.roll(np.repeat(np.arange(len(counts)), counts), 1)


def _halves(batch: Batch) -> Array:
    """Return the blocks of both chunks of these ranks: shape (ranks, 2)."""
    layout = batch.schedule.layout
    assert layout is not None
    assert layout.halves is not None
    return np.asarray(layout.halves[..., 0].T[_kind_of_ranks(batch)])


def _of_ranks(batch: Batch, values: Array) -> Array:
    """Return the values of ranks and chunks of a folded schedule; the second half may mirror the first."""
    if not batch.schedule.choice.mirrored:
        return values
    return np.concatenate([values, values[::-1, ::-1]])


def _chunk_blocks(batch: Batch) -> Array:
    """Return the blocks of every chunk of stages with several kinds of block: shape (stages, chunks)."""
    schedule = batch.schedule
    args = schedule.columns, schedule.pipeline_par, schedule.recompute_all, batch.model
    layout = StageLayout.of(*args)
    kinds = zip(layout.blocks, layout.count, strict=True)
    stages = [_one(blocks) for blocks, count in kinds for _ in range(_one(count))]
    listed = list_of(_one(schedule.columns.stage_blocks))
    ends = _one(layout.ending), _one(layout.beginning)
    return chunks_of_layout(stages, _one(schedule.interleaving), listed, *ends, schedule.modules)


def _of_stages(batch: Batch) -> Stage:
    """Return the cost of the stages: arrays over stages if each has its own mean block."""
    layout = batch.schedule.layout
    if layout is None or layout.of_kind is None:
        return batch.stage
    if batch.schedule.choice.folded:
        ranks = _kind_of_ranks(batch)
        if batch.schedule.choice.mirrored:
            ranks = np.concatenate([ranks, ranks[::-1]])
        return batch.pipeline.with_blocks(layout.of_kind[:, ranks, 0])
    return batch.pipeline.with_blocks(_kinds_of_chunks(batch).sum(axis=2))


def _kinds_of_chunks(batch: Batch) -> Array:
    """Return the blocks of each kind in every chunk: shape (kinds, stages, chunks)."""
    modules = batch.schedule.modules > 0
    return kinds_of_chunks(batch.model, _chunk_blocks(batch), modules=modules)


def stage_passes(batch: Batch) -> StagePasses:
    """Return the passes of every stage with exposed communication; transfers follow every chunk."""
    passes = StagePasses(
        forward=_chunks(batch, lambda x: (x.times.forward_base, x.times.forward_edge)),
        backward=_chunks(batch, lambda x: (x.times.backward_base, x.times.backward_edge)),
        weight=_chunks(batch, lambda x: (x.block.wgrad.time,) * 2),
        again=_chunks(batch, lambda x: (x.block.re.time,) * 2),
    )
    if batch.stage.embedding_head is not None:
        ends, choice = batch.stage.embedding_head, batch.schedule.choice
        first, last = [(0, 0)], [(0, 1) if choice.folded else (-1, -1)]
        if choice.mirrored:
            first, last = [*first, (-1, 1)], [*last, (-1, 0)]
        for places, end in ((first, ends.cost.embedding), (last, ends.cost.head)):
            repeated = end.re.time if ends.modules is not None else np.zeros(1)
            more = ends.forward(end), ends.backward(end), end.wgrad.time, repeated
            for times, time in zip(passes, more, strict=True):
                for place in places:
                    times[place] += float(time[0])
    return passes


def _paired(batch: Batch) -> Seconds:
    """Return the time that a pair of overlapping passes saves in every stage: an array over stages."""
    blocks = np.array(stage_blocks(batch), float)
    return np.asarray(blocks * _of_stages(batch).block.paired)


def stage_hidden(batch: Batch) -> Seconds:
    """Return the time per microbatch that pairs of passes hide of the expert exchange in every stage.

    MTP modules do not overlap: they hide nothing.
    """
    schedule, pairs = batch.schedule, batch.schedule.pairs
    if schedule.choice.pairs_passes and schedule.choice.folded:
        pairs = schedule.pairs_of_rank(np.arange(_one(schedule.ranks), dtype=float))
        if schedule.choice.mirrored:
            pairs = np.concatenate([pairs, pairs[::-1]])
    return np.asarray(_paired(batch) * (pairs / schedule.microbatches))


def _chunks(batch: Batch, quantity: Callable[[Stage], tuple[Seconds, Seconds]]) -> Array:
    """Return a time summed over the blocks of every chunk; missing blocks cost as much as in the pipeline bubble.

    `quantity` is the time of a base and of an edge block.
    """
    schedule = batch.schedule
    if schedule.chunk_layouts is not None:
        return _of_own_blocks(batch, quantity)
    base, edge = quantity(_of_stages(batch))
    blocks, chunks = np.array(stage_blocks(batch)), _one(schedule.interleaving)
    if schedule.choice.folded:
        each = _of_ranks(batch, _halves(batch))
        if base.size > 1:
            base, edge = base[:, None], edge[:, None]
        return np.asarray((each - 1) * base + edge)
    if schedule.layout is not None and schedule.layout.of_kind is not None:
        return np.asarray((_chunk_blocks(batch) - 1) * base[:, None] + edge[:, None])
    # Chunks have whole blocks; the last block of each has the cost of the edge, with its transfer.
    if schedule.layout is not None:
        ends = _one(schedule.layout.ending), _one(schedule.layout.beginning)
        each = chunks_of_layout(blocks.tolist(), chunks, "", *ends)
        return np.asarray((each - 1) * base + edge)
    times = np.full((len(blocks), chunks), float(schedule.chunk_sum(base, edge)[0]))
    mean = (base + edge) / 2 if _one(schedule.base_blocks) else edge
    times[:, -1] -= (blocks.max() - blocks) * mean
    return times


def _of_own_blocks(batch: Batch, quantity: Callable[[Stage], tuple[Seconds, Seconds]]) -> Array:
    """Return a time of chunks with different numbers of blocks, summed over their kinds of block."""
    layouts = batch.schedule.chunk_layouts
    assert layouts is not None
    layout = layouts.layouts[_one(layouts.number)]
    times = np.array([np.broadcast_arrays(*quantity(x)) for x in batch.pipeline.of_kinds])
    base, edge = times[:, 0, 0], times[:, 1, 0]
    # A chunk without blocks has the transfer only.
    sent = np.tensordot(edge - base, layout.sending, 1)
    return np.asarray(np.tensordot(base, layout.of_kind, 1) + sent)


def execute(batch: Batch, microbatches: int) -> list[Span]:
    """Simulate the first microbatches of a batch."""
    passes, schedule = stage_passes(batch), schedule_of(batch)

    def duration(kind: Kind, stage: int, chunk: int) -> float:
        if kind == "inputs":
            return float(passes.backward[stage, chunk] - passes.weight[stage, chunk])
        return float(getattr(passes, kind)[stage, chunk])

    stages, chunks = passes.forward.shape
    pairs = batch.schedule.choice.pairs_passes
    orders = [
        order(schedule, stage, stages, microbatches, chunks, pairs=pairs) for stage in range(stages)
    ]
    if batch.schedule.chunk_layouts is None:
        paired = np.repeat(_paired(batch)[:, None] / chunks, chunks, axis=1)
    else:
        paired = _of_own_blocks(batch, lambda x: (x.block.paired,) * 2)

    def hidden(stage: int, one: int, other: int) -> float:
        return float(min(paired[stage, one], paired[stage, other]))

    name = "1f1b" if schedule == "forward" else schedule
    return timeline(orders, duration, _delay(batch), hidden, name)


def _delay(batch: Batch) -> float:
    """Return the time of a transfer that overlaps with passes."""
    schedule = batch.schedule
    if not schedule.columns.p2p_overlap.any():
        return 0.0
    directions = 2 if schedule.training or schedule.choice.simulated else 1
    count = directions * schedule.microbatches * schedule.interleaving
    return float((batch.stage.transfers.link / count)[0])


def stage_memory(batch: Batch) -> Memory:
    """Return the memory of every stage: arrays over stages."""
    schedule, name = batch.schedule, schedule_of(batch)
    blocks = np.array(stage_blocks(batch), float)
    stages = np.arange(len(blocks))
    if schedule.choice.folded:
        half = np.arange(_one(schedule.ranks), dtype=float)
        held = in_flight.of_rank(schedule, half, _halves(batch).T)
        if schedule.choice.mirrored:
            held = np.concatenate([held, held[::-1]])
    else:
        held = held_microbatches(
            "1f1b" if name == "forward" else name,
            stages,
            schedule.pipeline_par,
            schedule.microbatches,
            schedule.interleaving,
        )
        held = in_flight.of_chunks(schedule, held, stages)

    def with_vocabulary(vocabulary: VocabularyMemory | None) -> Memory:
        here, own = schedule.with_blocks(blocks), _of_stages(batch)
        return memory_of_stage(own.block, own.optimizer, here, batch.edition, held, vocabulary)

    def of_stages(inner: Array, first: Array, last: Array) -> Array:
        # Both ends are on the first rank; with two directions also on the last
        if schedule.choice.folded:
            outer = (stages == 0) | ((stages == len(stages) - 1) & schedule.choice.mirrored)
            return np.where(outer, last, inner)
        return np.where(stages == len(stages) - 1, last, np.where(stages == 0, first, inner))

    embedding_head = (
        (None, None)
        if batch.stage.embedding_head is None
        else embedding_head_memory(batch.stage.embedding_head, schedule)
    )
    return apply(of_stages, [with_vocabulary(one) for one in (None, *embedding_head)])


def stage_rows(batch: Batch) -> list[dict[str, Any]]:
    """Return the time of a microbatch (s) and the memory (bytes) of each stage, by names of the statistics.

    Times are for passes without overlap; ``hidden_time`` is the time that overlap saves. Ranks of a folded schedule
    (ZBV, DualPipe) also have ``parts``: the first and the last block of both of their parts of the model, counted from
    1. Stages also have ``modules``, their MTP modules, if these have a place of their own.
    """
    memory, times = stage_memory(batch), [time.sum(axis=1) for time in stage_passes(batch)]
    blocks = np.array(stage_blocks(batch))
    values: dict[str, list[float | None]] = {"blocks": blocks.tolist()}
    if batch.schedule.modules:
        modules = _kinds_of_chunks(batch)[-1].sum(axis=1).astype(int)
        values = {"blocks": (blocks - modules).tolist(), "modules": modules.tolist()}
    names = ("forward_time", "backward_time", "weight_grad_time", "recompute_time")
    values |= {name: time.tolist() for name, time in zip(names, times, strict=True)}
    values["hidden_time"] = stage_hidden(batch).tolist()
    for part in (memory.space, memory.offloaded, memory.buffers, memory.capacity):
        kind: Any = type(part)
        values |= {column.name: column.values(part) for column in columns(kind)}
    rows = [
        {"stage": stage} | dict(zip(values, row, strict=True))
        for stage, row in enumerate(zip(*values.values(), strict=True))
    ]
    if not batch.schedule.choice.folded:
        return rows
    front, back = _of_ranks(batch, _halves(batch)).astype(int).T
    before = np.cumsum(front) - front
    after = (front if batch.schedule.choice.mirrored else front + back).sum() - np.cumsum(back)
    parts = zip(before, before + front, after, after + back, strict=True)
    return [
        row | {"parts": [[int(a) + 1, int(b)], [int(c) + 1, int(d)]]}
        for row, (a, b, c, d) in zip(rows, parts, strict=True)
    ]


def _one(count: Array) -> int:
    """Return a count of the only execution."""
    return int(np.asarray(count).item())
