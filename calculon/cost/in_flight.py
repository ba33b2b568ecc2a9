"""Microbatches in flight: of how many a pipeline stage holds the activations."""

from functools import reduce

import numpy as np

from calculon.base.units import Count
from calculon.cost.pipeline.schedules import held_chunks, held_microbatches
from calculon.editions.edition import Edition
from calculon.plan.schedule import Schedule


def on_first(schedule: Schedule, edition: Edition) -> Count:
    """Microbatches whose activations the first stage holds at once.

    Source: Narayanan et al., arXiv 2104.04473, section 2.2 (1F1B holds p); interleaving: Korthikanti et al.,
    arXiv 2205.05198, equation 5. Where passes run in pairs, a chunk more has gone forward before the first backward
    pass: Megatron-LM, ``core/pipeline_parallel/schedules.py``, ``overlap_moe_expert_parallel_comm``.
    """
    alive = np.minimum(schedule.microbatches, schedule.pipeline_par)
    stages = schedule.interleaving * schedule.pipeline_par
    held = np.where(
        schedule.interleaving > 1, alive * (1 + (schedule.pipeline_par - 1) / stages), alive
    )
    if schedule.choice.pairs_passes:
        held = held + 1 / schedule.interleaving
    return edition.in_flight(_of_schedule(schedule, held), schedule.microbatches)


def _of_schedule(schedule: Schedule, held: Count) -> Count:
    """Replace what a stage holds with 1F1B where another schedule is stated (:func:`held_microbatches`)."""
    name = schedule.choice.pp_schedule
    if name == "1f1b":
        return held
    return held_microbatches(name, 0, schedule.pipeline_par, schedule.microbatches)


def on_folded(schedule: Schedule, kind: int) -> Count:
    """Microbatches that ranks of a kind of a folded schedule hold, of those the most (:func:`of_rank`).

    That is concave over ranks: most where one of the chunks begins to be held of as many microbatches as there are, or
    on the first or the last rank of the kind.
    """
    layout, ranks, microbatches = schedule.layout, schedule.ranks, schedule.microbatches
    assert layout is not None
    assert layout.place is not None
    assert layout.halves is not None
    first = layout.place[kind]
    last = first + np.maximum(layout.count[kind] - 1, 0)
    turns = [microbatches, 2 * ranks - microbatches]
    found = [
        of_rank(schedule, np.clip(turn + more, first, last), layout.halves[:, kind])
        for turn in turns
        for more in (-1, 0, 1)
    ]
    return reduce(
        np.maximum, [*found, *(of_rank(schedule, x, layout.halves[:, kind]) for x in (first, last))]
    )


def of_rank(schedule: Schedule, rank: Count, halves: Count) -> Count:
    """Microbatches that a rank of a folded schedule holds: the mean over its blocks, of two chunks of so many.

    It holds the first chunk of more microbatches than the second, but for the last ranks.
    """
    every = held_chunks(schedule.choice.pp_schedule, rank, schedule.ranks, schedule.microbatches)
    first, second = halves
    held = [chunks[0] * first + chunks[1] * second for chunks in every]
    return reduce(np.maximum, held) / np.maximum(first + second, 1)


def on_first_chunk(schedule: Schedule) -> Count:
    """Microbatches of which the first rank of a folded schedule holds the first chunk."""
    every = held_chunks(schedule.choice.pp_schedule, 0, schedule.ranks, schedule.microbatches)
    return reduce(np.maximum, [chunks[0] for chunks in every])


def on_last(schedule: Schedule) -> Count:
    """Microbatches whose activations the last stage holds: one, or with chunks ``((v - 1) p + 1) / v``.

    Source: Narayanan et al., arXiv 2104.04473, figure 4: the last stage begins a backward pass as soon as all its
    chunks have seen a microbatch.
    """
    chunks = (schedule.interleaving - 1) * schedule.pipeline_par + 1 + schedule.choice.pairs_passes
    held = np.minimum(chunks / schedule.interleaving, schedule.microbatches)
    return _of_schedule(schedule, held)


def on_inner(schedule: Schedule, first: Count, stage: Count | int) -> Count:
    """Microbatches whose activations a stage after the first holds; without chunks, with 1F1B, one less each."""
    chunks, stages = schedule.interleaving, schedule.pipeline_par
    held = stages - stage
    if (chunks > 1).any():
        more = int(schedule.choice.pairs_passes)
        several = held_microbatches("1f1b", stage, stages, schedule.microbatches, chunks, more)
        held = np.where(chunks > 1, several, held)
    return np.minimum(first, _of_schedule(schedule, held))
