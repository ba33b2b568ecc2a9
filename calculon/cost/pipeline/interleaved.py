"""Time of the interleaved schedule (1F1B with several chunks per stage) if chunks take different times.

Passes have numbers: groups of as many microbatches as stages go through one chunk after another. With *p* stages and
*v* chunks, stage *i* runs its forward pass *n* in slot :math:`n + i`, and its backward pass *n* at the end of slot
:math:`n + (p - 1 - i) + (v p - 1)`. In each slot, every stage thus runs one forward pass and then one backward pass,
in the order of :func:`~calculon.cost.pipeline.orders.order`, and each pass needs only the results of the slot before.
So the state after a slot is the time at which each stage is free, and the ends of its two last passes. From one group
of microbatches to the next, this state soon grows by the same time on all stages: the remaining groups then take as
long.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from calculon.base.units import Array, Count, Seconds

_EQUAL = 1e-11
"""Relative difference of times that rounding errors may cause."""

_LEAST_GROUPS = 3
"""Full groups of microbatches of which at least one is a whole period, in which all stages have both passes."""

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
    passes: InterleavedPasses, microbatches: Count | int, *, training: bool = True
) -> Seconds:
    """Return the time of a batch from the first pass to the last: shape (executions,).

    It is the time of an execution event by event. Inference has the forward passes only. Executions whose last groups
    are equally full are computed together, since they differ in the number of full groups only.

    Source: Narayanan et al., arXiv 2104.04473, section 2.2; pairs of passes as in
    :func:`~calculon.cost.pipeline.orders.order`.
    """
    stages, chunks, executions = passes.forward.shape
    counts = np.broadcast_to(np.asarray(microbatches, np.int64), executions)
    pairs = passes.hidden is not None
    found = np.empty(executions)
    # Few microbatches are their own case: no group of them is like the group before.
    few = counts < _LEAST_GROUPS * stages if training else counts >= 0
    for key in np.unique(np.where(few, counts, -1 - counts % stages)).tolist():
        here = np.flatnonzero(
            few & (counts == key) if key >= 0 else ~few & (counts % stages == -1 - key)
        )
        slots = _Slots(stages, chunks, int(counts[here].max()), pairs, training=training)
        each = max(1, _SLAB // (stages * chunks))
        for begin in range(0, len(here), each):
            rows = here[begin : begin + each]
            found[rows] = _time(passes.take(rows), slots, counts[rows] // stages)
    return found


class _Slots:
    """The chunk of the passes of every stage in a slot, and whether there is a pass."""

    def __init__(
        self, stages: int, chunks: int, microbatches: int, pairs: bool, *, training: bool
    ) -> None:
        self.stages, self.chunks, self.microbatches = stages, chunks, microbatches
        self.training = training
        self.period = stages * chunks
        number = -(-microbatches // stages) * self.period
        ahead = self.period - 1 + pairs
        self.count = number + stages - 1 + (ahead if training else 0)
        along = np.arange(stages)
        self._first = {"forward": along, "backward": ahead + along[::-1]}
        # The first slot in which all stages have both passes.
        self.begin = ahead + stages - 1

    def passes(self, kind: str, begin: int, end: int) -> tuple[Array, Array]:
        """Return the positions of passes in the order of chunks, and a mask of existing ones: shape (slots, stages)."""
        number = np.arange(begin, end)[:, None] - self._first[kind]
        group, within = np.divmod(number, self.period)
        position, member = np.divmod(within, self.stages)
        exists: Array = (number >= 0) & (group * self.stages + member < self.microbatches)
        return position, exists


def _stages(exists: Array) -> Iterator[Array | None]:
    """Yield the stages that have a pass in each slot: their numbers, or None for all of them."""
    every: list[bool] = np.logical_and.reduce(exists, axis=1).tolist()
    for whole, some in zip(every, exists, strict=True):
        yield None if whole else np.flatnonzero(some)


class _State:
    """Times at which stages are free, and the ends of their last forward and backward passes."""

    def __init__(self, passes: InterleavedPasses, slots: _Slots) -> None:
        stages, _, executions = passes.forward.shape
        self.passes, self.slots = passes, slots
        self._of_forward, self._of_backward = (
            times.reshape(-1, executions) for times in (passes.forward, passes.backward)
        )
        hidden = passes.hidden
        self._hidden = None if hidden is None else hidden.reshape(-1, executions)
        self._time = np.empty((stages, executions))
        self.free = np.zeros((stages, executions))
        # Row 0 of forward ends, and the last one of backward ends, is what a chunk passes on to the next chunk.
        self.forward = np.zeros((stages + 1, executions))
        self.backward = np.zeros((stages + 1, executions))

    def run(self, begin: int, end: int) -> None:
        """Run the slots from `begin` to `end`."""
        slots = self.slots
        along, last = np.arange(slots.stages), slots.chunks - 1
        ahead, goes = slots.passes("forward", begin, end)
        behind, comes = slots.passes("backward", begin, end)
        of_forward = along * slots.chunks + ahead
        of_backward = along * slots.chunks + (last - behind)
        # The first stage continues with the next chunk what the last stage has done, and backward the other way around.
        goes_on, comes_back = (ahead[:, 0] > 0).tolist(), (behind[:, -1] > 0).tolist()
        for slot, (some, comes_some) in enumerate(zip(_stages(goes), _stages(comes), strict=True)):
            if some is None or len(some):
                self.forward[0] = self.forward[-1] if goes_on[slot] else 0.0
                self._pass(self._of_forward, of_forward[slot], self.forward[:-1], some)
                self.forward[1:] = self.free
            if slots.training and (comes_some is None or len(comes_some)):
                self.backward[-1] = self.backward[0] if comes_back[slot] else 0.0
                self._pass(self._of_backward, of_backward[slot], self.backward[1:], comes_some)
                if self._hidden is not None:
                    both = np.flatnonzero(goes[slot] & comes[slot])
                    one, other = (x[slot][both] for x in (of_forward, of_backward))
                    self.free[both] -= np.minimum(self._hidden[one], self._hidden[other])
                self.backward[:-1] = self.free

    def _pass(self, times: Seconds, chunk: Array, needed: Seconds, some: Array | None) -> None:
        """Run a pass on `some` stages, or on all, as soon as its input is there; the `times` are of all chunks."""
        if some is None:
            np.maximum(self.free, needed, out=self.free)
            self.free += times.take(chunk, axis=0, out=self._time, mode="clip")
        else:
            self.free[some] = np.maximum(self.free[some], needed[some]) + times[chunk[some]]

    @property
    def times(self) -> Seconds:
        """All times that later slots need: shape (times, executions)."""
        return np.concatenate([self.free, self.forward[1:], self.backward[:-1]])

    def later(self, times: Seconds) -> None:
        """Set all times."""
        count = self.slots.stages
        self.free[:] = times[:count]
        self.forward[1:], self.backward[:-1] = times[count : 2 * count], times[2 * count :]


def _time(passes: InterleavedPasses, slots: _Slots, groups: Count) -> Seconds:
    """Return the time of a batch of a slab of executions with these numbers of full groups of microbatches.

    The first slots of all executions are the same, and so are the last ones. Between them are whole periods: one for
    each full group whose forward passes are not among those slots.
    """
    state = _State(passes, slots)
    most = slots.microbatches // slots.stages
    periods = (most * slots.period - slots.begin) // slots.period - (most - groups)
    if not slots.training or (periods < 1).any():
        state.run(0, slots.count)
        return np.asarray(state.free.max(axis=0))
    left = np.arange(passes.forward.shape[-1])
    times = np.empty((3 * slots.stages, len(left)))
    end = slots.begin
    state.run(0, end)
    for done in range(1, periods.max() + 1):
        before = state.times
        state.run(end, end := end + slots.period)
        now = state.times
        grown = now - before
        more = periods[left] - done
        ready = (np.ptp(grown, axis=0) <= _EQUAL * grown[0]) | (more == 0)
        times[:, left[ready]] = now[:, ready] + more[ready] * grown[:, ready]
        if ready.all():
            break
        if ready.any():
            left = left[~ready]
            state = _State(state.passes.take(~ready), slots)
            state.later(now[:, ~ready])
    state = _State(passes, slots)
    state.later(times)
    state.run(slots.begin + periods.max() * slots.period, slots.count)
    return np.asarray(state.free.max(axis=0))
