"""Pipeline schedules in closed form: time of a batch with its pipeline bubble, and microbatches in flight.

Passes of one microbatch on stage *i* of *p* take :math:`F_i` forward and :math:`B_i` backward, of which :math:`W_i` are
weight gradients; :math:`S_i = F_i + B_i`. There are *m* microbatches, and *v* chunks on each stage. Exposed transfers
are part of the passes. Each formula says when it is exact; the tests compare it with the execution of the orders in
:mod:`calculon.cost.pipeline.orders`.
"""

from functools import reduce
from operator import add

import numpy as np

from calculon.base.records import record
from calculon.base.units import Array, Count, Seconds
from calculon.cost.pipeline.simulation import ChunkPasses, simulated_time
from calculon.declarations.named_values import FOLDED_SCHEDULES, PAIRED_SCHEDULES


@record
class Passes:
    """Times of a stage for one microbatch; the first axis of all arrays is over kinds of stages.

    The first stage is of the first kind, and the last stage of the last kind.

    Attributes:
        stages: Number of stages of each kind.
        backward: Time of the whole backward pass.
        weight: The part of ``backward`` that computes weight gradients.
        stalled: The part of ``backward`` that waits for data-parallel traffic.
    """

    stages: Count
    forward: Seconds
    backward: Seconds
    weight: Seconds
    stalled: Seconds | float = 0.0

    @property
    def both(self) -> Seconds:
        """Forward and backward pass."""
        return self.forward + self.backward

    def total(self, time: Seconds) -> Seconds:
        """Return the sum of a time over all stages."""
        return reduce(add, self.stages * time)

    def largest(self, time: Seconds | float) -> Seconds:
        """Return the largest time among the kinds of stage that are present."""
        return np.where(self.stages > 0, time, 0.0).max(axis=0)


def batch_time(
    schedule: str,
    passes: Passes,
    microbatches: Count,
    chunks: Count | int = 1,
    longest: Seconds | None = None,
) -> Seconds:
    r"""Time from the first pass of a batch to the last.

    ``forward``
        :math:`\sum F_i + (m - 1) \max F_i`, exact.
    ``gpipe``
        :math:`\sum S_i + (m - 1)(\max F_i + \max B_i)`, exact (Huang et al., arXiv 1811.06965).
    ``1f1b``
        :math:`m \max S_i + \frac1v (\sum S_i - \max S_i) + \frac{v-1}{v}(p - r)\,[r \ne 0] \max S_i` with
        :math:`r = m \bmod p` (Narayanan et al., arXiv 2104.04473, section 2.2). Exact if all stages take equally long,
        and if only the last takes longer, in both passes and in its last chunk, as with the head of a model.
        An upper bound with chunks and :math:`r \ne 0 < m - p`, and if another stage takes longest in both passes of a
        single chunk: that stage is busy in a part of the time that the formula counts as fill and drain.
        With several chunks, the embedding and the head are in one chunk of one stage: `longest`, the time of a
        microbatch in the longest chunk of every position, replaces :math:`\max S_i` in the first term. Chunks with
        different numbers of blocks have no closed form (:mod:`calculon.cost.pipeline.interleaved`). The empty slots of
        a short last group take as long as the longest passes without stalls.
    ``zb_h1``
        :math:`m S_l + \sum_{i \ne l} F_i + \max(0, \sum_{i \ne l} (B_i - W_i) - n W_l + W_0)` with the slowest stage
        *l* and :math:`n = \min(p, m)`; for equal stages :math:`m S + (p - 1)(S - W) - (n - 1) W` (Qi et al., arXiv
        2401.10241, section 2.2, whose B is :math:`B - W`). *W* counts up to :math:`\min(F, B - W)`, since longer weight
        gradients fill no more of the bubble. Exact for equal stages, and if only the last takes longer.
    """
    if schedule == "forward":
        longest = passes.largest(passes.forward)
        return passes.total(passes.forward) + (microbatches - 1) * longest
    slowest = passes.largest(passes.both)
    if schedule == "gpipe":
        longest = passes.largest(passes.forward) + passes.largest(passes.backward)
        time = passes.total(passes.both) + (microbatches - 1) * longest
    elif schedule == "zb_h1":
        time = _zero_bubble(passes, microbatches)
    else:
        stages = reduce(add, passes.stages)
        rest = np.mod(microbatches, stages)
        short = np.where(rest != 0, (chunks - 1) * (stages - rest), 0.0)
        empty = passes.largest(passes.both - passes.stalled)
        fill = passes.total(passes.both) - slowest + short * empty
        time = microbatches * (slowest if longest is None else longest) + fill / chunks
    return time


def _zero_bubble(passes: Passes, microbatches: Count) -> Seconds:
    """Return the time of a batch with ZB-H1: the slowest stage, its fill, and the drain that weight gradients leave."""
    whole = np.where(passes.stages > 0, passes.both, -1.0)
    slowest = len(whole) - 1 - whole[::-1].argmax(axis=0)[None]

    def of_slowest(time: Seconds) -> Seconds:
        return np.take_along_axis(time, slowest, axis=0)[0]

    inputs = passes.backward - passes.weight
    weight = np.minimum(passes.weight, np.minimum(passes.forward, inputs))
    first = np.where(passes.stages[0] > 0, weight[0], of_slowest(weight))
    fill = passes.total(passes.forward) - of_slowest(passes.forward)
    drain = passes.total(inputs) - of_slowest(inputs)
    held = np.minimum(reduce(add, passes.stages), microbatches)
    left = np.maximum(0.0, drain - held * of_slowest(weight) + first)
    return microbatches * of_slowest(passes.both) + fill + left


def chunked_time(
    schedule: str, microbatches: int, passes: ChunkPasses, delay: Seconds | float = 0.0
) -> Seconds:
    r"""Time of a batch of ZB-H2, ZBV, DualPipe and DualPipeV, of executions with equal ranks: shape (executions,).

    In closed form if all chunks take equally long, with :math:`F`, :math:`I = B - W` and :math:`W` of a chunk:

    ``zb_h2``
        :math:`m (F + B) + (p - 1) \max(0, I - F, F + I - 2 W)` from :math:`m = 2 p - 1` on, exact (Qi et al., arXiv
        2401.10241, table 1, for :math:`W \le F`), of the stage that takes longest.
    ``zbv``
        :math:`2 m (F + B)` where :math:`F = I = W` from :math:`m = 2 p - 1` on, exact (Qi et al., arXiv 2405.15362,
        section 4), of the rank that takes longest.
    ``dualpipev``
        :math:`2 m (F + B) + (p - 1)(F + 2 I - w + \max(0, F - I)) - \min(F, (p - 1)\max(0, I - F)) - (2 m - p - 2) H`
        with :math:`w = \min(W, I)` and what a pair hides, :math:`H \le \min(F, I)`, from :math:`m = 2 p` on, exact.
        For :math:`F = I \ge W` the second term is the bubble that DeepSeek states, :math:`(p - 1)(F\&B + B - 3 W)`.

    ``dualpipe``
        As DualPipeV of the first half of its ranks, with the microbatches of one direction: `passes` and
        `microbatches` are those. The second half mirrors the first.

    Other executions are simulated, and so are those with transfers that take a `delay` and overlap passes.
    """
    delay = np.broadcast_to(delay, passes.forward.shape[-1:])
    exact, time = _closed_form(schedule, microbatches, passes)
    exact = exact & (delay == 0)
    if exact.all():
        return time
    times: Seconds = np.where(exact, time, 0.0)
    left = ~exact
    simulated = ChunkPasses(*(each[..., left] for each in passes))
    times[left] = simulated_time(schedule, microbatches, simulated, delay[left])
    return times


def _closed_form(schedule: str, microbatches: int, passes: ChunkPasses) -> tuple[Array, Seconds]:
    """Return for which executions the closed form is exact, and its time with all chunks as the first chunk."""
    ranks, several = len(passes.forward), slice(None) if schedule != "zb_h2" else slice(1)
    times = [each[:, several] for each in (passes.forward, passes.backward, passes.weight)] + [
        passes.hidden[:, None]
    ]
    alike = reduce(np.logical_and, [(each == each[:1, :1]).all(axis=(0, 1)) for each in times])
    forward, backward, weight, hidden = (each[0, 0] for each in times)
    inputs = backward - weight
    if schedule in PAIRED_SCHEDULES:
        enough = microbatches >= 2 * ranks
        filled = inputs - forward
        drain = forward + 2 * inputs - np.minimum(weight, inputs) + np.maximum(0.0, -filled)
        time = 2 * microbatches * (forward + backward) + (ranks - 1) * drain
        time = time - np.minimum(forward, (ranks - 1) * np.maximum(0.0, filled))
        time = time - (2 * microbatches - ranks - 2) * hidden
        return alike & enough & (hidden <= np.minimum(forward, inputs)), time
    enough = microbatches >= 2 * ranks - 1
    if schedule == "zbv":
        same = (forward == inputs) & (inputs == weight)
        return alike & enough & same, 2 * microbatches * (forward + backward)
    left = np.maximum(0.0, np.maximum(inputs - forward, forward + inputs - 2 * weight))
    return alike & enough, microbatches * (forward + backward) + (ranks - 1) * left


def held_microbatches(
    schedule: str,
    stage: Count | int,
    stages: Count,
    microbatches: Count,
    chunks: Count | int = 1,
    more: int = 0,
) -> Count:
    """Microbatches whose activations a stage holds at once, in units of a whole stage.

    - forward only: the one at work;
    - GPipe: all;
    - 1F1B: those ahead of the first backward pass, the one at work, and `more` chunks that go forward before that;
    - ZB-H1: on every stage as many as on the first, with those that wait for their weight gradients;
    - ZB-H2: 2 p - 1 on every stage;
    - ZBV and DualPipeV: 2 p and 2 p + 1 chunks, each half of a stage;
    - DualPipe: p + 1 chunks, each a whole stage, for p ranks; `stages` and `microbatches` are half of what it has.

    Source: as :func:`~calculon.cost.pipeline.orders.order`; interleaved: Korthikanti et al., arXiv 2205.05198,
    equation 5; the table of ``deepseek-ai/DualPipe``.
    """
    below = stages - 1 - stage
    if schedule == "forward":
        held: Count = np.ones_like(np.asarray(microbatches, float))
    elif schedule == "gpipe":
        held = microbatches * np.ones_like(np.asarray(below, float))
    elif schedule == "zb_h1":
        held = np.minimum(stages, microbatches) * np.ones_like(np.asarray(below, float))
    elif schedule == "zb_h2":
        held = np.minimum(2 * stages - 1, microbatches) * np.ones_like(np.asarray(below, float))
    elif schedule in FOLDED_SCHEDULES:
        held = held_chunks(schedule, stage, stages, microbatches)[0].sum(axis=0) / 2
    else:
        ahead = np.where(chunks == 1, below, 2 * below + (chunks - 1) * stages)
        held = np.minimum((ahead + 1 + more) / chunks, microbatches)
    return held


def held_chunks(
    schedule: str, rank: Count | int, ranks: Count, microbatches: Count
) -> tuple[Count, ...]:
    """Microbatches for which a rank of a folded schedule holds its first and second chunk: each of shape (2, ...).

    For DualPipe, `ranks` counts the first half of the ranks, and `microbatches` one direction only. ZBV has two peaks,
    the second with one more of the first chunk and one less of the second chunk. Either may need more memory.
    """
    rank, ranks, microbatches = np.broadcast_arrays(rank, ranks, microbatches)
    most = 2 * ranks + (schedule in PAIRED_SCHEDULES)

    def held(second: Count) -> Count:
        return np.minimum(microbatches, np.stack([most - second, second]))

    peak = held(rank + 1)
    return (peak, held(rank)) if schedule == "zbv" else (peak,)
