"""What every pipeline stage of one execution does: the time of its passes, chunk by chunk."""

from typing import NamedTuple

import numpy as np

from calculon.cost.block import BlockCost
from calculon.cost.stage import Stage
from calculon.units import Array, Seconds


class StagePasses(NamedTuple):
    """Time of the passes of one microbatch: arrays of shape (stages, chunks).

    ``backward`` is the whole backward pass, ``weight`` the part of it that makes gradients of weights.
    """

    forward: Seconds
    backward: Seconds
    weight: Seconds


def stage_passes(stage: Stage) -> StagePasses:
    """Return the passes of every stage of one execution, transfers and offload traffic included.

    As :func:`~calculon.parallel.pipeline.bubble_time` counts: every chunk ends with a transfer in both directions, and
    where blocks do not divide, stages lack one each: those before the last, which has the head, then the first.
    """
    schedule, whole, block = stage.schedule, stage.block_whole, stage.block
    shape = (_one(schedule.pipeline_par), _one(schedule.interleaving))

    def chunk(base: Seconds, edge: Seconds) -> Array:
        times = np.full(shape, float(schedule.chunk_sum(base, edge)[0]))
        mean = float(((base + edge) / 2 if _one(schedule.base_blocks) else edge)[0])
        for lacking in range(_one(schedule.missing_blocks)):
            times[shape[0] - 2 - lacking, -1] -= mean
        return times

    passes = StagePasses(
        forward=chunk(whole.forward_base, whole.forward_edge),
        backward=chunk(whole.backward_base, whole.backward_edge),
        weight=chunk(block.wgrad.time, block.wgrad.time),
    )
    if stage.ends is not None:
        for place, end in (((0, 0), stage.ends.cost.embedding), ((-1, -1), stage.ends.cost.head)):
            for times, more in zip(passes, _end(end), strict=True):
                times[place] += more
    return passes


def _one(count: Array) -> int:
    """Return a count of the only execution."""
    return int(np.asarray(count).item())


def _end(end: BlockCost) -> tuple[float, float, float]:
    """Return forward, backward and weight-gradient time of embedding or head for one microbatch."""
    exposed = end.collectives
    forward = end.fw.time + exposed.fw_tp.time_exposed[0]
    backward = end.agrad.time + end.wgrad.time + exposed.agrad_tp.time_exposed[0]
    return float(forward[0]), float(backward[0]), float(end.wgrad.time[0])
