"""Execution of schedules of unequal stages, of many executions at once: what no closed form is exact for.

Which pass waits for which is the same in all executions of equal schedule, ranks and microbatches. So passes are put
into *waves* once, each wave after all that it waits for, at most one pass of a rank in each; times are then arrays over
executions. :func:`~calculon.cost.pipeline.timeline.timeline` does the same pass by pass, and tests compare the two.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from calculon.base.units import Array, Seconds
from calculon.cost.pipeline.orders import (
    BACKWARD,
    FORWARD,
    INPUTS,
    WEIGHT,
    numbers,
    place,
)
from calculon.declarations.named_values import TURNING_SCHEDULES

STEPWISE = ("zb_h2", "zbv")
"""Schedules whose ranks begin the next batch when they have done the last one, without waiting for each other.

Each takes its step of the optimizer as soon as its passes are done, and takes it back if it should not have been taken.
Source: Qi et al., arXiv 2401.10241, section 4 (*post-validation*).
"""

_PAIR = WEIGHT
"""Number of a pair of passes among kinds of events: gradients of weights are none of their own."""

_CHUNKS = 2
_SLAB = 1 << 22
"""Most times that are held at once: more executions are done in turn."""


class ChunkPasses(NamedTuple):
    """Time of the passes of a microbatch: arrays of shape (ranks, chunks, executions).

    ``backward`` is the whole backward pass, ``weight`` the part of it that makes gradients of weights; ``hidden``, of
    shape (ranks, executions), is what two passes that run beside each other take less.
    """

    forward: Seconds
    backward: Seconds
    weight: Seconds
    hidden: Seconds


class _Wave(NamedTuple):
    """Passes that wait for none of the same wave: their ranks, what they wait for, times, and where the results go."""

    rank: Array
    first: Array
    second: Array | None
    time: Array
    done: slice


class _Waves(NamedTuple):
    """The passes of a schedule.

    Attributes:
        waves: In the order of their execution.
        events: Passes, of which pairs are one, as are gradients of weights with the pass before them.
        code, weights: Of each of the times: rank, kind and chunk as one number, and gradients of weights of either
            chunk after it.
        begin: The first event of each rank, and the number of its time.
        tail (shape (ranks, 2)): Gradients of weights of either chunk that follow the last other pass.
    """

    waves: list[_Wave]
    events: int
    code: Array
    weights: Array
    begin: tuple[Array, Array]
    tail: Array


def simulated_time(
    schedule: str, microbatches: int, passes: ChunkPasses, delay: Seconds | float = 0.0
) -> Seconds:
    """Return the time of a batch of each execution, from the first pass to the last: shape (executions,).

    Of schedules that are :data:`STEPWISE` it is that of the rank which takes longest from its own first pass to its
    last: the next batch follows on each rank. Results are on other ranks a `delay` later. Of DualPipe passes are those
    of the first half of the ranks, and microbatches those of one direction: the second half does the same.
    """
    delay = np.broadcast_to(delay, passes.forward.shape[-1:])
    ranks, _, executions = passes.forward.shape
    waves = _waves(schedule, ranks, microbatches)
    each = max(1, _SLAB // waves.events)
    slabs = [slice(begin, begin + each) for begin in range(0, executions, each)]
    found = [_execute(schedule, waves, passes, delay, slab) for slab in slabs]
    return np.concatenate(found) if found else np.zeros(0)


def _execute(
    schedule: str, waves: _Waves, passes: ChunkPasses, delay: Seconds, slab: slice
) -> Seconds:
    """Return the time of a batch of some executions."""
    forward, backward, weight = (
        times[..., slab].reshape(-1, times[..., slab].shape[-1])
        for times in (passes.forward, passes.backward, passes.weight)
    )
    hidden, delay = passes.hidden[:, slab], delay[slab]
    late = bool(delay.any())
    other = np.arange(len(forward)).reshape(-1, _CHUNKS)[:, ::-1].ravel()  # chunk of the same rank
    pair = forward + backward[other] - np.repeat(hidden, _CHUNKS, axis=0)
    alone = np.empty((len(_EVENTS), *forward.shape))
    alone[FORWARD], alone[BACKWARD] = forward, backward
    alone[INPUTS], alone[_PAIR] = backward - weight, pair
    time = alone.reshape(-1, alone.shape[-1])[waves.code]
    rank = waves.code % len(forward) // _CHUNKS
    after = sum(waves.weights[:, c, None] * weight[rank * _CHUNKS + c] for c in range(_CHUNKS))
    done = np.empty((waves.events + 1, time.shape[-1]))
    done[0] = -np.inf
    free = np.zeros((len(hidden), time.shape[-1]))
    for wave in waves.waves:
        now = free[wave.rank]
        np.maximum(now, done[wave.first], out=now)
        if wave.second is not None:
            np.maximum(now, done[wave.second], out=now)
        now += time[wave.time]
        done[wave.done] = now + delay if late else now
        now += after[wave.time]
        free[wave.rank] = now
    for chunk in range(_CHUNKS):
        free += waves.tail[:, chunk, None] * weight[chunk::_CHUNKS]
    if schedule in STEPWISE:
        first, own = waves.begin
        free -= done[first] - time[own] - delay
    found: Seconds = free.max(axis=0)
    return found


_EVENTS = (FORWARD, BACKWARD, INPUTS, _PAIR)


@lru_cache(maxsize=64)
def _waves(schedule: str, ranks: int, microbatches: int) -> _Waves:
    """Put the passes of a schedule into waves: those of DualPipe, of the first half of its ranks."""
    away = schedule == "dualpipe"  # what goes on to the other half there turns around in the mirror
    schedule = "dualpipev" if away else schedule
    own = [numbers(schedule, rank, ranks, microbatches) for rank in range(ranks)]
    places = _CHUNKS * ranks if schedule in TURNING_SCHEDULES else ranks
    at = np.array([[place(schedule, r, ranks, c) for c in range(_CHUNKS)] for r in range(ranks)])
    # events are numbered rank after rank: heads of pairs, and all passes but second ones and gradients of weights
    of = np.zeros((2, places, microbatches), np.int64)  # that of a pass, forward and backward
    kinds, chunks, followed, rank_of, waits, tail = [], [], [], [], [], []
    before = 0
    for rank, (kind, microbatch, chunk, paired) in enumerate(own):
        second = paired & (kind != FORWARD)
        head = ~second & (kind != WEIGHT)
        event = before + np.cumsum(head) - 1
        for side, chosen in enumerate((kind == FORWARD, (kind == BACKWARD) | (kind == INPUTS))):
            of[side, at[rank, chunk[chosen]], microbatch[chosen]] = event[chosen]
        kinds.append(np.where(paired[head], _PAIR, kind[head]))
        chunks.append(chunk[head])
        weights, heads = kind == WEIGHT, int(head.sum())
        slot = (event[weights] - before) * _CHUNKS + chunk[weights]
        after = np.bincount(slot, minlength=_CHUNKS * heads).reshape(heads, _CHUNKS)
        tail.append(after[-1].copy())
        after[-1] = 0
        followed.append(after)
        rank_of.append(np.full(heads, rank))
        waits.append((event, kind, at[rank, chunk], microbatch, head))
        before += heads
    needs = np.full((2, before + 1), before)  # the last one is none: it is done
    for event, kind, along, microbatch, head in waits:
        back = (kind == BACKWARD) | (kind == INPUTS)
        for side, chosen, step, edge, turn in (
            (0, kind == FORWARD, -1, 0, ranks),
            (1, back, 1, places - 1, ranks - 1),
        ):
            here = chosen & (along != edge) & (away | (along != turn))
            slot = np.where(head[here], 0, 1)  # of a pair, the second pass waits as well
            needs[slot, event[here]] = of[side, along[here] + step, microbatch[here]]
    kind, chunk, ranks_of = (np.concatenate(values) for values in (kinds, chunks, rank_of))
    after = np.concatenate(followed)
    most = after.max() + 1
    code = (kind * ranks + ranks_of) * _CHUNKS + chunk
    code, time = np.unique((code * most + after[:, 0]) * most + after[:, 1], return_inverse=True)
    return _in_waves(ranks_of, needs, time, code, int(most), np.array(tail))


def _in_waves(
    rank: Array, needs: Array, time: Array, code: Array, most: int, tail: Array
) -> _Waves:
    """Put events into waves, each of what ranks do next that waits for nothing in it."""
    count = len(rank)
    begin = np.searchsorted(rank, np.arange(len(tail)))
    end = np.append(begin[1:], count)
    done = np.zeros(count + 1, bool)
    done[count] = True
    following, last = begin.copy(), end - 1
    sequence, sizes = [], []
    left = count
    while left:
        first, second = needs[:, np.minimum(following, last)]
        now = following[done[first] & done[second] & (following < end)]
        assert now.size, "passes wait for each other"
        done[now] = True
        following[rank[now]] += 1
        sequence.append(now)
        sizes.append(now.size)
        left -= now.size
    events = np.concatenate(sequence)
    number = np.empty(count + 1, np.int64)
    number[events] = np.arange(1, count + 1)
    number[count] = 0
    rank, time, (first, second) = rank[events], time[events], number[needs[:, events]]
    bounds = np.cumsum([0, *sizes]).tolist()
    several = np.add.reduceat(second, bounds[:-1]) > 0
    waves = [
        _Wave(
            rank=rank[a:b],
            first=first[a:b],
            second=second[a:b] if both else None,
            time=time[a:b],
            done=slice(a + 1, b + 1),
        )
        for a, b, both in zip(bounds, bounds[1:], several.tolist(), strict=False)
    ]
    weights = np.stack([code // most % most, code % most], axis=1)
    starts = number[begin]
    return _Waves(waves, count, code // most**2, weights, (starts, time[starts - 1]), tail)
