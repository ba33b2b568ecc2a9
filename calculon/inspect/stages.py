"""Time and memory of every pipeline stage of one execution."""

from typing import Any, NamedTuple

import numpy as np

from calculon.cost.batch import Batch
from calculon.cost.stage_memory import (
    Memory,
    VocabularyMemory,
    embedding_head_memory,
    memory_of_stage,
)
from calculon.cost.uneven import backward_time, forward_time
from calculon.parallel.pipeline.orders import Kind, order
from calculon.parallel.pipeline.schedules import held_microbatches
from calculon.parallel.pipeline.timeline import Span, timeline
from calculon.plan.columns import field_of
from calculon.plan.stage_layout import chunks_of, chunks_of_stage
from calculon.records import apply, columns
from calculon.units import Array, Seconds


class StagePasses(NamedTuple):
    """Time of the passes of one microbatch: arrays of shape (stages, chunks).

    ``backward`` is the whole backward pass, ``weight`` the part of it that makes gradients of weights.
    """

    forward: Seconds
    backward: Seconds
    weight: Seconds


def schedule_of(batch: Batch) -> str:
    """Return the schedule of the only execution: one of :data:`~calculon.parallel.pipeline.orders.SCHEDULES`."""
    choice = batch.schedule.choice
    return choice.pp_schedule if choice.training else "forward"


def stage_blocks(batch: Batch) -> list[int]:
    """Return the blocks of every stage.

    In the published layout of blocks that do not divide, stages have one less each: those before the last, which has
    the LM head, then the first.
    """
    schedule, layout = batch.schedule, batch.schedule.layout
    count = _one(schedule.pipeline_par)
    if layout is not None:
        kinds = zip(layout.blocks, layout.count, strict=True)
        return [_one(blocks) for blocks, stages in kinds for _ in range(_one(stages))]
    blocks = [_one(schedule.blocks)] * count
    for missing in range(_one(schedule.missing_blocks)):
        blocks[count - 2 - missing] -= 1
    return blocks


def stage_passes(batch: Batch) -> StagePasses:
    """Return the passes of every stage, exposed communication included; transfers follow every chunk."""
    whole, weight = batch.block_whole, batch.block.wgrad.time
    passes = StagePasses(
        forward=_chunks(batch, whole.forward_base, whole.forward_edge),
        backward=_chunks(batch, whole.backward_base, whole.backward_edge),
        weight=_chunks(batch, weight, weight),
    )
    if batch.embedding_head is not None:
        cost = batch.embedding_head.cost
        for place, end in (((0, 0), cost.embedding), ((-1, -1), cost.head)):
            more = forward_time(end), backward_time(end), end.wgrad.time
            for times, time in zip(passes, more, strict=True):
                times[place] += float(time[0])
    return passes


def _chunks(batch: Batch, base: Seconds, edge: Seconds) -> Array:
    """Add a time up over the blocks of every chunk; a missing block costs as much as in the pipeline bubble."""
    schedule = batch.schedule
    blocks, chunks = np.array(stage_blocks(batch)), _one(schedule.interleaving)
    listed = field_of("stage_blocks").declaration.choices[_one(schedule.columns.stage_blocks)]
    if listed:
        return np.asarray((chunks_of(listed, len(blocks)) - 1) * base + edge)
    if batch.uneven is not None:
        each = np.stack([chunks_of_stage(int(one), chunks) for one in blocks])
        return np.asarray((each - 1) * base + edge)
    times = np.full((len(blocks), chunks), float(schedule.chunk_sum(base, edge)[0]))
    mean = (base + edge) / 2 if _one(schedule.base_blocks) else edge
    times[:, -1] -= (blocks.max() - blocks) * mean
    return times


def execute(batch: Batch, microbatches: int) -> list[Span]:
    """Execute the first microbatches of a batch."""
    passes, schedule = stage_passes(batch), schedule_of(batch)
    split = schedule == "zb_h1"

    def duration(kind: Kind, stage: int, chunk: int) -> float:
        time = getattr(passes, kind)[stage, chunk]
        if split and kind == "backward":
            time = time - passes.weight[stage, chunk]
        return float(time)

    stages, chunks = passes.forward.shape
    orders = [order(schedule, stage, stages, microbatches, chunks) for stage in range(stages)]
    return timeline(orders, duration, _delay(batch))


def _delay(batch: Batch) -> float:
    """Return the time of a transfer that overlaps the passes."""
    schedule = batch.schedule
    if not schedule.columns.p2p_overlap.any():
        return 0.0
    directions = 2 if schedule.training else 1
    count = directions * schedule.microbatches * schedule.interleaving
    return float((batch.transfers.link / count)[0])


def stage_memory(batch: Batch) -> Memory:
    """Return the memory of every stage: arrays over stages."""
    schedule, name = batch.schedule, schedule_of(batch)
    blocks = np.array(stage_blocks(batch), float)
    stages = np.arange(len(blocks))
    held = held_microbatches(
        "1f1b" if name == "forward" else name,
        stages,
        schedule.pipeline_par,
        schedule.microbatches,
        schedule.interleaving,
    )

    def with_vocabulary(vocabulary: VocabularyMemory | None) -> Memory:
        here = schedule.with_blocks(blocks)
        return memory_of_stage(batch.block, batch.optimizer, here, batch.edition, held, vocabulary)

    def of_stages(inner: Array, first: Array, last: Array) -> Array:
        return np.where(stages == len(stages) - 1, last, np.where(stages == 0, first, inner))

    embedding_head = (
        (None, None)
        if batch.embedding_head is None
        else embedding_head_memory(batch.embedding_head, schedule)
    )
    return apply(of_stages, [with_vocabulary(one) for one in (None, *embedding_head)])


def stage_rows(batch: Batch) -> list[dict[str, Any]]:
    """Return time (s) of a microbatch and memory (bytes) of each stage, by names of the statistics."""
    memory, times = stage_memory(batch), [time.sum(axis=1) for time in stage_passes(batch)]
    values: dict[str, list[float | None]] = {"blocks": [*stage_blocks(batch)]}
    names = ("forward_time", "backward_time", "weight_grad_time")
    values |= {name: time.tolist() for name, time in zip(names, times, strict=True)}
    for part in (memory.space, memory.offloaded, memory.buffers, memory.capacity):
        kind: Any = type(part)
        values |= {column.name: column.values(part) for column in columns(kind)}
    rows = zip(*values.values(), strict=True)
    return [
        {"stage": stage} | dict(zip(values, row, strict=True)) for stage, row in enumerate(rows)
    ]


def _one(count: Array) -> int:
    """Return a count of the only execution."""
    return int(np.asarray(count).item())
