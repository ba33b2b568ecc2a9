"""Simulation of schedules for which no closed form is exact, of many executions at once.

The dependencies between passes are the same in all executions with the same schedule, ranks and microbatches. So passes
are put into *waves* once: a wave depends on earlier waves only, and has at most one pass of each rank. Times are then
arrays over executions, and the loop is over waves. :func:`~calculon.cost.pipeline.timeline.timeline` does the same pass
by pass, and tests compare both.
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
"""Schedules whose ranks begin the next batch after their own last pass, without waiting for each other.

Each rank runs its optimizer step as soon as its passes are done, and rolls it back if validation fails later. Source:
Qi et al., arXiv 2401.10241, section 4 (*post-validation*).
"""

_PAIR = WEIGHT
"""Kind of an event that is a pair of passes; it takes the index of weight gradients, which are no events."""

_CHUNKS = 2
_SLAB = 1 << 22
"""Most times (events times executions) of an array, which then has 32 MiB; more executions are simulated in turn."""


class ChunkPasses(NamedTuple):
    """Time of the passes of a microbatch: arrays of shape (ranks, chunks, executions).

    Attributes:
        backward: Time of the whole backward pass.
        weight: The part of ``backward`` that computes weight gradients.
        hidden (shape (ranks, executions)): Time that a pair of passes saves.
    """

    forward: Seconds
    backward: Seconds
    weight: Seconds
    hidden: Seconds


class _Wave(NamedTuple):
    """Events that do not depend on each other.

    Attributes:
        rank: Rank of each event.
        first, second: Events whose results each needs; ``second`` is None if no event of the wave needs two.
        time: Index of the time of each event.
        done: Places of the results.
    """

    rank: Array
    first: Array
    second: Array | None
    time: Array
    done: slice


class _Waves(NamedTuple):
    """The passes of a schedule as events: a pair is one event, and weight gradients belong to the event before them.

    Attributes:
        waves: Waves in the order of execution.
        events: Number of events.
        code: Kind, rank and chunk of each distinct time, as one number.
        weights (shape (times, 2)): Weight gradients of either chunk that follow an event with this time.
        begin: The first event of each rank, and the index of its time.
        tail (shape (ranks, 2)): Weight gradients of either chunk after the last event of a rank.
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

    For :data:`STEPWISE` schedules, it is the longest time of a rank from its own first pass to its own last one, since
    the next batch follows on each rank. Results arrive at other ranks `delay` seconds later. For DualPipe, `passes` has
    the first half of the ranks, and `microbatches` counts one direction only: the second half mirrors the first.
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
    """Return the time of a batch of a slab of executions."""
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
    result: Seconds = free.max(axis=0)
    return result


_EVENTS = (FORWARD, BACKWARD, INPUTS, _PAIR)


@lru_cache(maxsize=64)
def _waves(schedule: str, ranks: int, microbatches: int) -> _Waves:
    """Return the waves of a schedule; of DualPipe, for the first half of its ranks."""
    # In DualPipe microbatches cross to the mirrored half of the ranks; in a V they turn around on the last rank.
    away = schedule == "dualpipe"
    schedule = "dualpipev" if away else schedule
    own = [numbers(schedule, rank, ranks, microbatches) for rank in range(ranks)]
    places = _CHUNKS * ranks if schedule in TURNING_SCHEDULES else ranks
    at = np.array([[place(schedule, r, ranks, c) for c in range(_CHUNKS)] for r in range(ranks)])
    # events are numbered rank after rank: all passes but the second ones of pairs and weight gradients
    # Event of each forward and each backward pass.
    of = np.zeros((2, places, microbatches), np.int64)
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
    # The last index is a placeholder for passes without a dependency: it counts as done from the start.
    needs = np.full((2, before + 1), before)
    for event, kind, along, microbatch, head in waits:
        back = (kind == BACKWARD) | (kind == INPUTS)
        for side, chosen, step, edge, turn in (
            (0, kind == FORWARD, -1, 0, ranks),
            (1, back, 1, places - 1, ranks - 1),
        ):
            here = chosen & (along != edge) & (away | (along != turn))
            slot = np.where(head[here], 0, 1)  # the second pass of a pair has a dependency, too
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
    """Return events in waves: each wave has the next event of every rank whose dependencies are done."""
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
