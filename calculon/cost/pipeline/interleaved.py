"""Time of the interleaved schedule (1F1B with several chunks per stage) if chunks take different times.

Passes have numbers: groups of as many microbatches as stages go through one chunk after another. With *p* stages and
*v* chunks, stage *i* runs its forward pass *n* in slot :math:`n + i`, and its backward pass *n* at the end of slot
:math:`n + (p - 1 - i) + (v p - 1)`. In each slot, every stage thus runs one forward pass and then one backward pass,
in the order of :func:`~calculon.cost.pipeline.orders.order`, and each pass needs only the results of the slot before.
So the state after a slot is the time at which each stage is free, and the ends of its two last passes. From one group
of microbatches to the next, this state soon grows by the same time on all stages: the remaining groups then take as
long.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from calculon.base.units import Array, Count, Seconds

_EQUAL = 1e-11
"""Relative difference of times that rounding errors may cause."""

_LEAST_GROUPS = 3
"""Full groups of microbatches of which at least one is a whole period, in which all stages have both passes."""

_SLAB = 1 << 18
"""Most times (slots of a period x stages x executions) of an array: 2 MiB; more executions are computed in turn."""

_ALL = slice(None)
"""All stages."""


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

    @classmethod
    def joined(cls, some: Sequence["InterleavedPasses"]) -> "InterleavedPasses":
        """Return the executions of several records with as many stages and chunks, one record after the other."""
        hidden = [one.hidden for one in some if one.hidden is not None]
        return cls(
            np.concatenate([one.forward for one in some], axis=-1),
            np.concatenate([one.backward for one in some], axis=-1),
            np.concatenate(hidden, axis=-1) if hidden else None,
        )


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
        each = max(1, _SLAB // (stages * stages * chunks))
        for begin in range(0, len(here), each):
            rows = here[begin : begin + each]
            slots = _Slots(stages, chunks, int(counts[rows].max()), pairs, training=training)
            found[rows] = _time(passes.take(rows), slots, counts[rows] // stages)
    return found


class _Slots:
    """The chunk of the passes of every stage in a slot, and whether there is a pass.

    The chunks repeat from period to period: those of slot *n* are in row *n* modulo the period.

    Attributes:
        forward, backward (shape (period, stages)): Numbers of the chunks over all stages.
        goes_on, comes_back: Whether the first stage continues with the next chunk what the last stage has done, and
            the other way around for backward passes; of each slot of a period.
    """

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
        self._first_forward, self._first_backward = along, ahead + along[::-1]
        # The first slot in which all stages have both passes.
        self.begin = ahead + stages - 1
        slots = np.arange(self.period)[:, None]
        goes, comes = (
            (slots - first) % self.period // stages
            for first in (self._first_forward, self._first_backward)
        )
        self.forward = along * chunks + goes
        self.backward = along * chunks + (chunks - 1 - comes)
        self.goes_on, self.comes_back = (goes[:, 0] > 0).tolist(), (comes[:, -1] > 0).tolist()

    def goes(self, begin: int, end: int) -> Array:
        """Return a mask of existing forward passes: shape (slots, stages)."""
        return self._exist(np.arange(begin, end)[:, None] - self._first_forward)

    def comes(self, begin: int, end: int) -> Array:
        """Return a mask of existing backward passes: shape (slots, stages)."""
        return self._exist(np.arange(begin, end)[:, None] - self._first_backward)

    def _exist(self, number: Array) -> Array:
        microbatch = number // self.period * self.stages + number % self.stages
        exists: Array = (number >= 0) & (microbatch < self.microbatches)
        return exists


def _stages(exists: Array) -> list[Array | slice | None]:
    """Return the stages that have a pass in each slot: all of them, a range, a mask, or None if none has one."""
    stages = exists.shape[1]
    counts, first = exists.sum(axis=1).tolist(), exists.argmax(axis=1)
    last = (stages - 1 - exists[:, ::-1].argmax(axis=1)).tolist()
    found: list[Array | slice | None] = []
    for slot, (count, low, high) in enumerate(zip(counts, first.tolist(), last, strict=True)):
        if count == 0:
            found.append(None)
        elif count == stages:
            found.append(_ALL)
        else:
            found.append(slice(low, high + 1) if high - low < count else exists[slot])
    return found


def _in_slots(passes: InterleavedPasses, slots: _Slots) -> InterleavedPasses:
    """Return the times in the order of slots: each of shape (period, stages, executions)."""
    executions = passes.forward.shape[-1]
    forward, backward = (times.reshape(-1, executions) for times in passes[:2])
    hidden = None if passes.hidden is None else passes.hidden.reshape(-1, executions)
    if hidden is not None:
        hidden = np.minimum(hidden[slots.forward], hidden[slots.backward])
    return InterleavedPasses(forward[slots.forward], backward[slots.backward], hidden)


class _State:
    """Times at which stages are free, and the ends of their last forward and backward passes.

    The times of the passes are in the order of slots (:func:`_in_slots`).
    """

    def __init__(self, passes: InterleavedPasses, slots: _Slots) -> None:
        _, stages, executions = passes.forward.shape
        self._passes, self._slots = passes, slots
        self._ready = np.empty((stages, executions))
        self._free = np.zeros((stages, executions))
        # Row 0 of forward ends, and the last one of backward ends, is what a chunk passes on to the next chunk.
        self._forward = np.zeros((stages + 1, executions))
        self._backward = np.zeros((stages + 1, executions))

    def take(self, rows: Array) -> "_State":
        """Return a new state of some of the executions."""
        return _State(self._passes.take(rows), self._slots)

    def run(self, begin: int, end: int) -> None:
        """Run the slots from `begin` to `end`."""
        slots, forward, backward = self._slots, self._forward, self._backward
        goes, comes = slots.goes(begin, end), slots.comes(begin, end)
        of_forward, of_backward = list(self._passes.forward), list(self._passes.backward)
        hidden = None if self._passes.hidden is None else list(self._passes.hidden)
        # A view for each role of a row: slices would take as long as the sums.
        to_first, from_last, sent, went = forward[0], forward[-1], forward[:-1], forward[1:]
        to_last, from_first, back, came = backward[-1], backward[0], backward[1:], backward[:-1]
        stages = zip(_stages(goes), _stages(comes), strict=True)
        for slot, (some, others) in enumerate(stages, begin):
            place = slot % slots.period
            if some is not None:
                to_first[:] = from_last if slots.goes_on[place] else 0.0
                self._pass(of_forward[place], sent, went, some)
            if slots.training and others is not None:
                to_last[:] = from_first if slots.comes_back[place] else 0.0
                self._pass(of_backward[place], back, came, others)
                if hidden is not None:
                    both = goes[slot - begin] & comes[slot - begin]
                    np.subtract(came, hidden[place], out=came, where=both[:, None])

    def _pass(self, times: Seconds, needed: Seconds, ends: Seconds, some: Array | slice) -> None:
        """Run a pass on some stages as soon as its input is there; then all stages are free at `ends`."""
        free = self._free
        if some is _ALL:
            np.maximum(free, needed, out=self._ready)
            np.add(self._ready, times, out=ends)
        else:
            later = np.maximum(free[some], needed[some]) + times[some]
            if free is not ends:
                ends[:] = free
            ends[some] = later
        self._free = ends

    @property
    def end(self) -> Seconds:
        """Time at which all stages are free: shape (executions,)."""
        return np.asarray(self._free.max(axis=0))

    @property
    def times(self) -> Seconds:
        """All times that later slots need: shape (times, executions)."""
        return np.concatenate([self._free, self._forward[1:], self._backward[:-1]])

    def later(self, times: Seconds) -> None:
        """Set all times."""
        free, self._forward[1:], self._backward[:-1] = np.split(times, 3)
        self._free = free.copy()


def _time(passes: InterleavedPasses, slots: _Slots, groups: Count) -> Seconds:
    """Return the time of a batch of a slab of executions with these numbers of full groups of microbatches.

    The first slots of all executions are the same, and so are the last ones. Between them are whole periods: one for
    each full group whose forward passes are not among those slots.
    """
    state = whole = _State(_in_slots(passes, slots), slots)
    most = slots.microbatches // slots.stages
    periods = (most * slots.period - slots.begin) // slots.period - (most - groups)
    if not slots.training or (periods < 1).any():
        state.run(0, slots.count)
        return state.end
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
            state = state.take(~ready)
            state.later(now[:, ~ready])
    whole.later(times)
    whole.run(slots.begin + periods.max() * slots.period, slots.count)
    return whole.end
