"""Microbatches in flight: of how many a pipeline stage holds the activations."""

import numpy as np

from calculon.editions.edition import Edition
from calculon.parallel.pipeline.schedules import held_microbatches
from calculon.plan.schedule import Schedule
from calculon.units import Count


def on_first(schedule: Schedule, edition: Edition) -> Count:
    """Microbatches whose activations the first stage holds at once.

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
    """Replace what a stage holds with 1F1B where another schedule is stated (:func:`held_microbatches`)."""
    name = schedule.choice.pp_schedule
    if name == "1f1b":
        return held
    return held_microbatches(name, 0, schedule.pipeline_par, schedule.microbatches)


def on_last(schedule: Schedule) -> Count:
    """Microbatches whose activations the last stage holds: one, or with chunks ``((v - 1) p + 1) / v``.

    Source: Narayanan et al., arXiv 2104.04473, figure 4: the last stage begins a backward pass as soon as all its
    chunks have seen a microbatch.
    """
    chunks = (schedule.interleaving - 1) * schedule.pipeline_par + 1
    held = np.minimum(chunks / schedule.interleaving, schedule.microbatches)
    return _of_schedule(schedule, held)


def on_inner(schedule: Schedule, first: Count, stage: int) -> Count:
    """Microbatches whose activations a stage after the first holds; without chunks, with 1F1B, one less each."""
    chunks, stages = schedule.interleaving, schedule.pipeline_par
    held = stages - stage
    if (chunks > 1).any():
        several = held_microbatches("1f1b", stage, stages, schedule.microbatches, chunks)
        held = np.where(chunks > 1, several, held)
    return np.minimum(first, _of_schedule(schedule, held))
