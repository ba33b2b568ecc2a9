"""Microbatches in flight: those whose activations a pipeline stage holds at its peak, in units of a whole stage."""

from functools import reduce

import numpy as np

from calculon.base.units import Count
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
