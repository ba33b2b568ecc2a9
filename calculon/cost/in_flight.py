"""Microbatches in flight: those whose activations a pipeline stage holds at its peak, in units of a whole stage."""

from functools import lru_cache, reduce

import numpy as np

from calculon.base.distinct_rows import distinct
from calculon.base.units import Array, Count
from calculon.cost.pipeline.schedules import held_chunks, held_microbatches
from calculon.editions.edition import Edition
from calculon.plan.schedule import Schedule


def on_first(schedule: Schedule, edition: Edition) -> Count:
    """Return the microbatches in flight on the first stage.

    Source: Narayanan et al., arXiv 2104.04473, section 2.2 (1F1B holds p); interleaving: Korthikanti et al.,
    arXiv 2205.05198, equation 5.
    """
    alive = np.minimum(schedule.microbatches, schedule.pipeline_par)
    stages = schedule.interleaving * schedule.pipeline_par
    held = np.where(
        schedule.interleaving > 1, alive * (1 + (schedule.pipeline_par - 1) / stages), alive
    )
    return edition.in_flight(_of_schedule(schedule, held), schedule.microbatches)


def _of_schedule(schedule: Schedule, held: Count) -> Count:
    """Return the microbatches in flight in a stage: `held` for 1F1B, else by :func:`held_microbatches`."""
    name = schedule.choice.pp_schedule
    if name == "1f1b":
        return held
    return held_microbatches(name, 0, schedule.pipeline_par, schedule.microbatches)


def on_folded(schedule: Schedule, kind: int) -> Count:
    """Return the most microbatches that any rank of a kind of a folded schedule holds (:func:`of_rank`).

    They are a concave, piecewise linear function of the rank. So its maximum is at a kink, where a chunk starts to be
    limited by the number of microbatches, or on the first or the last rank of the kind. Ranks next to a kink are tried
    as well.
    """
    layout, ranks, microbatches = schedule.layout, schedule.ranks, schedule.microbatches
    assert layout is not None
    assert layout.place is not None
    assert layout.halves is not None
    first = layout.place[kind]
    last = first + np.maximum(layout.count[kind] - 1, 0)
    kinks = [microbatches, 2 * ranks - microbatches]
    near_kinks = [np.clip(kink + more, first, last) for kink in kinks for more in (-1, 0, 1)]
    halves = layout.halves[:, kind]
    return reduce(
        np.maximum, [of_rank(schedule, rank, halves) for rank in (*near_kinks, first, last)]
    )


def of_rank(schedule: Schedule, rank: Count, halves: Count) -> Count:
    """Return the microbatches that a rank of a folded schedule holds: the mean over its blocks.

    `halves` are the blocks of its two chunks, which may be held for different numbers of microbatches.
    """
    peaks = held_chunks(schedule.choice.pp_schedule, rank, schedule.ranks, schedule.microbatches)
    first, second = halves
    held = [chunks[0] * first + chunks[1] * second for chunks in peaks]
    return reduce(np.maximum, held) / np.maximum(first + second, 1)


def on_first_chunk(schedule: Schedule) -> Count:
    """Return the microbatches for which the first rank of a folded schedule holds its first chunk."""
    peaks = held_chunks(schedule.choice.pp_schedule, 0, schedule.ranks, schedule.microbatches)
    return reduce(np.maximum, [chunks[0] for chunks in peaks])


def on_last(schedule: Schedule) -> Count:
    """Return the microbatches in flight on the last stage: one, or ``((v - 1) p + 1) / v`` with `v` chunks.

    Source: Narayanan et al., arXiv 2104.04473, figure 4: the last stage begins a backward pass as soon as a microbatch
    has passed all its chunks.
    """
    chunks = (schedule.interleaving - 1) * schedule.pipeline_par + 1
    held = np.minimum(chunks / schedule.interleaving, schedule.microbatches)
    return _of_schedule(schedule, held)


def on_inner(schedule: Schedule, first: Count, stage: Count | int) -> Count:
    """Return the microbatches in flight on a stage after the first: with 1F1B and one chunk, one less on each stage."""
    chunks, stages = schedule.interleaving, schedule.pipeline_par
    held = stages - stage
    if (chunks > 1).any():
        several = held_microbatches("1f1b", stage, stages, schedule.microbatches, chunks)
        held = np.where(chunks > 1, several, held)
    return np.minimum(first, _of_schedule(schedule, held))


def of_chunks(schedule: Schedule, held: Count, stage: Count | int) -> Count:
    """Return the microbatches in flight on a stage: `held`, or as its chunks have it if they differ.

    The number of microbatches differs between the chunks of a stage, and changes from pass to pass: the blocks of all
    of them have the most activations at the peak, which is given as microbatches of the whole stage.
    """
    layouts = schedule.chunk_layouts
    if layouts is None:
        return held
    columns = held, layouts.differ, layouts.number, schedule.microbatches, stage
    broadcast = np.broadcast_arrays(*columns)
    same, differ, *keys = (values.ravel() for values in broadcast)
    there = np.flatnonzero(differ)
    rows, inverse, _ = distinct([values[there].astype(np.int64) for values in keys])
    blocks = {one: layouts.layouts[one].of_kind.sum(axis=0) for one in set(rows[:, 0].tolist())}
    keys_of_blocks = {one: tuple(map(tuple, of_one.tolist())) for one, of_one in blocks.items()}
    peaks = np.full(len(rows), np.nan)
    for place, (number, microbatches, own) in enumerate(rows.tolist()):
        if own < len(blocks[number]) and blocks[number][own].any():
            peaks[place] = peak_of_chunks(keys_of_blocks[number], microbatches)[own]
    found = np.array(same, float)
    peak = peaks[inverse]
    found[there] = np.where(np.isnan(peak), found[there], peak)
    return found.reshape(broadcast[0].shape)


@lru_cache(maxsize=4096)
def peak_of_chunks(blocks: tuple[tuple[float, ...], ...], microbatches: int) -> Array:
    """Return the most microbatches whose activations each stage holds with the interleaved schedule, by its blocks.

    Args:
        blocks: Blocks of the chunks of every stage.

    >>> peak_of_chunks(((2, 1), (1, 2)), 4)  # stage 0 holds 4 passes of its first chunk and 1 of the second: 9 blocks
    array([3.        , 1.33333333])
    """
    stages, chunks = len(blocks), len(blocks[0])
    # After three groups, passes repeat from group to group.
    microbatches = min(microbatches, 3 * stages + microbatches % stages)
    groups = -(-microbatches // stages)
    number = np.arange(groups * stages * chunks)
    group, within = np.divmod(number, stages * chunks)
    chunk, member = np.divmod(within, stages)
    exists = group * stages + member < microbatches
    ahead = (chunks - 1) * stages + 1
    peaks = []
    for stage, own in enumerate(blocks):
        sizes = np.array(own)
        forward, backward = (
            np.append(0.0, np.cumsum(exists * sizes[order]))
            for order in (chunk, chunks - 1 - chunk)
        )
        last = np.minimum(number + ahead + 2 * (stages - 1 - stage), len(number))
        peak = (forward[last] - backward[:-1]).max()
        peaks.append(peak / max(sum(own), 1.0))
    return np.array(peaks)


def with_pairs(schedule: Schedule, held: Count) -> Count:
    """Return the microbatches in flight on a stage of `schedule`, with one more block if 1F1B overlaps two passes.

    One more chunk goes forward before the first backward pass. But then block i of the next forward pass runs next to
    the i-th last block of a backward pass, which frees its activations, so both chunks together hold one block more
    than the longer of them.

    Source: Megatron-LM, ``core/models/common/model_chunk_schedule_plan.py``, ``TransformerModelChunkSchedulePlan.run``.
    """
    if not schedule.choice.pairs_passes or schedule.choice.folded:
        return held
    return np.minimum(held + 1 / np.maximum(schedule.blocks, 1), schedule.microbatches)
