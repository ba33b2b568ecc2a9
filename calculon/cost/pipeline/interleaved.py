"""Time of the interleaved schedule (1F1B with several chunks per stage) if chunks take different times.

Passes have numbers: groups of as many microbatches as stages go through one chunk after another. With *p* stages and
*v* chunks, stage *i* runs its forward pass *n* in slot :math:`n + i`, and its backward pass *n* at the end of slot
:math:`n + (p - 1 - i) + (v p - 1)`. In each slot, every stage thus runs one forward pass and then one backward pass,
in the order of :func:`~calculon.cost.pipeline.orders.order`, and each pass needs only the results of the slot before.
So the state after a slot is the time at which each stage is free, and the ends of its two last passes. From one group
of microbatches to the next, this state soon grows by the same time on all stages: the remaining groups then take as
long.
"""

from typing import NamedTuple

import numpy as np

from calculon.base.units import Array, Seconds

_EQUAL = 1e-11
"""Relative difference of times that rounding errors may cause."""

_SLAB = 1 << 20
"""Most times of passes (stages x chunks x executions) of an array: 8 MiB; more executions are computed in turn."""


class InterleavedPasses(NamedTuple):
    """Times of the chunks of stages for a microbatch, of executions with equal chunks.

    Attributes:
        forward, backward (shape (stages, chunks, executions)): Time of a pass.
        hidden (shape (stages, chunks, executions)): Most time that a chunk saves in a pair of a forward and a backward
            pass; None if passes do not overlap. A pair of different chunks saves the smaller time.
    """

    forward: Seconds
    backward: Seconds
    hidden: Seconds | None = None

    def take(self, rows: Array | slice) -> "InterleavedPasses":
        """Return some of the executions."""
        hidden = None if self.hidden is None else self.hidden[..., rows]
        return InterleavedPasses(self.forward[..., rows], self.backward[..., rows], hidden)


def interleaved_time(
    passes: InterleavedPasses, microbatches: int, *, training: bool = True
) -> Seconds:
    """Return the time of a batch from the first pass to the last: shape (executions,).

    It is the time of an execution event by event. Inference has the forward passes only.

    Source: Narayanan et al., arXiv 2104.04473, section 2.2; pairs of passes as in
    :func:`~calculon.cost.pipeline.orders.order`.
    """
    stages, chunks, executions = passes.forward.shape
    each = max(1, _SLAB // (stages * chunks))
    slots = _Slots(stages, chunks, microbatches, passes.hidden is not None, training=training)
    slabs = [slice(begin, begin + each) for begin in range(0, executions, each)]
    return np.concatenate([_time(passes.take(slab), slots) for slab in slabs])


class _Slots:
    """The chunk of the passes of every stage in a slot, and whether there is a pass."""

    def __init__(
        self, stages: int, chunks: int, microbatches: int, pairs: bool, *, training: bool
    ) -> None:
        self.stages, self.chunks, self.microbatches = stages, chunks, microbatches
        self.training = training
        self.period = stages * chunks
        whole = microbatches // stages * self.period
        number = -(-microbatches // stages) * self.period
        ahead = self.period - 1 + pairs
        self.count = number + stages - 1 + (ahead if training else 0)
        along = np.arange(stages)
        self._first = {"forward": along, "backward": ahead + along[::-1]}
        # From the first slot in which all stages have both passes, to the end of the last full group.
        self.begin = ahead + stages - 1
        self.periods = max(0, whole - self.begin) // self.period if training else 0

    def passes(self, kind: str, begin: int, end: int) -> tuple[Array, Array]:
        """Return the positions of passes in the order of chunks, and a mask of existing ones: shape (slots, stages)."""
        number = np.arange(begin, end)[:, None] - self._first[kind]
        group, within = np.divmod(number, self.period)
        position, member = np.divmod(within, self.stages)
        exists: Array = (number >= 0) & (group * self.stages + member < self.microbatches)
        return position, exists


class _State:
    """Times at which stages are free, and the ends of their last forward and backward passes."""

    def __init__(self, passes: InterleavedPasses, slots: _Slots) -> None:
        stages, _, executions = passes.forward.shape
        self.passes, self.slots = passes, slots
        self._of_forward, self._of_backward = (
            times.reshape(-1, executions) for times in (passes.forward, passes.backward)
        )
        self.free = np.zeros((stages, executions))
        # Row 0 of forward ends, and the last one of backward ends, is what a chunk passes on to the next chunk.
        self.forward = np.zeros((stages + 1, executions))
        self.backward = np.zeros((stages + 1, executions))

    def run(self, begin: int, end: int) -> None:
        """Run the slots from `begin` to `end`."""
        slots, hidden = self.slots, self.passes.hidden
        along, last = np.arange(slots.stages), slots.chunks - 1
        ahead, goes = slots.passes("forward", begin, end)
        behind, comes = slots.passes("backward", begin, end)
        every, some = ([list(of(x, axis=1)) for x in (goes, comes)] for of in (np.all, np.any))
        of_forward = along * slots.chunks + ahead
        of_backward = along * slots.chunks + (last - behind)
        if hidden is not None:
            hidden = hidden.reshape(-1, hidden.shape[-1])
        for slot in range(end - begin):
            if some[0][slot]:
                # The first stage continues with the next chunk what the last stage has done.
                self.forward[0] = self.forward[-1] if ahead[slot, 0] > 0 else 0.0
                time = self._of_forward[of_forward[slot]]
                self._advance(self.forward[:-1], time, None if every[0][slot] else goes[slot])
                self.forward[1:] = self.free
            if slots.training and some[1][slot]:
                time = self._of_backward[of_backward[slot]]
                if hidden is not None:
                    saved = np.minimum(hidden[of_forward[slot]], hidden[of_backward[slot]])
                    time -= goes[slot][:, None] * saved
                self.backward[-1] = self.backward[0] if behind[slot, -1] > 0 else 0.0
                self._advance(self.backward[1:], time, None if every[1][slot] else comes[slot])
                self.backward[:-1] = self.free

    def _advance(self, needed: Seconds, time: Seconds, exists: Array | None) -> None:
        """Run a pass on every stage, or on those where it `exists`, as soon as its input is there."""
        if exists is None:
            np.maximum(self.free, needed, out=self.free)
            self.free += time
        else:
            here = np.flatnonzero(exists)
            self.free[here] = np.maximum(self.free[here], needed[here]) + time[here]

    @property
    def times(self) -> Seconds:
        """All times that later slots need: shape (times, executions)."""
        return np.concatenate([self.free, self.forward[1:], self.backward[:-1]])

    def later(self, times: Seconds) -> None:
        """Set all times."""
        count = self.slots.stages
        self.free = times[:count].copy()
        self.forward[1:], self.backward[:-1] = times[count : 2 * count], times[2 * count :]


def _time(passes: InterleavedPasses, slots: _Slots) -> Seconds:
    """Return the time of a batch of a slab of executions."""
    state = _State(passes, slots)
    if slots.periods < 2:
        state.run(0, slots.count)
        return np.asarray(state.free.max(axis=0))
    left = np.arange(passes.forward.shape[-1])
    times = np.empty((3 * slots.stages, len(left)))
    end = slots.begin
    state.run(0, end)
    for done in range(1, slots.periods + 1):
        before = state.times
        state.run(end, end := end + slots.period)
        now = state.times
        grown = now - before
        steady = np.ptp(grown, axis=0) <= _EQUAL * grown[0]
        if done == slots.periods:
            steady[:] = True
        times[:, left[steady]] = now[:, steady] + (slots.periods - done) * grown[:, steady]
        if steady.all():
            break
        if steady.any():
            left = left[~steady]
            state = _State(state.passes.take(~steady), slots)
            state.later(now[:, ~steady])
    state = _State(passes, slots)
    state.later(times)
    state.run(slots.begin + slots.periods * slots.period, slots.count)
    return np.asarray(state.free.max(axis=0))
