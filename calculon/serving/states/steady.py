r"""The steady state of a replica: how many requests it answers, and how far apart their tokens are.

A request is prefilled once and decoded ``o - 1`` times, for its output of `o` tokens; a pass decodes all `B` sequences
at hand. Passes that take chunks of prompts are longer than those that only decode, by what prompts `add`; of passes of
their own that is all of them. With `n` of these passes for a request, in :math:`1 / x` seconds a replica answers one:

.. math:: 1 / x = n \, a + (o - 1) \, t_d / B

Everything else follows. The share of the time that prompts take is :math:`\phi = x n a`, a sequence has a token in
:math:`t_d / (1 - \phi)`, and Little's law :math:`B = x (o - 1) \, TPOT` holds identically.

Source: work conservation, and Little, *A proof for the queuing formula L = lambda W*, Operations Research 9(3), 1961.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from calculon.base.units import Array, Count, Fraction, Seconds


class Prompts(NamedTuple):
    """What prompts do to the passes of a replica.

    Attributes:
        passes: Passes that take chunks of the prompt of one request; of passes that take several prompts its share.
        added: Time that such a pass takes beside decoding: all of it, where prompts have passes of their own.
        latency: Time of a request in prefill, once that begins.
        longest: Longest time between two tokens of another request, or of speculation between those of two passes.
        variation: Standard deviation over mean of the time that a prompt takes.
        together: Prompts that such a pass takes, whose requests have the same latency.
    """

    passes: Count
    added: Seconds
    latency: Seconds
    longest: Seconds
    variation: Array | float = 0.0
    together: Count | float = 1.0

    @property
    def busy(self) -> Seconds:
        """Time that the prompt of a request takes."""
        return self.passes * self.added


class Steady(NamedTuple):
    """A steady state of a replica: requests per second, time per token, and the share of prefill."""

    rate: Array
    tpot: Seconds
    prefill_share: Fraction


def saturated(batch: Count, decode: Seconds, prompts: Prompts, output: float) -> Steady:
    """Return the state of a replica that always has `batch` sequences to decode.

    Args:
        batch: Sequences.
        output: Tokens that each generates.
        decode: Time of a pass that decodes them; of passes that yield several tokens of each the time per token.
        prompts: What prompts add.
    """
    steps = output - 1
    rate = 1 / (prompts.busy + steps * decode / batch)
    share = rate * prompts.busy
    return Steady(rate, decode / (1 - share), share)


def of_users(
    users: Count,
    decode: Seconds,
    prompts: Prompts,
    output: Count | float,
    think: float = 0.0,
    at_hand: Count | None = None,
) -> Steady:
    """Return the state of a replica with users of whom each has one request at a time, all of which fit.

    From one request of a user to the next the prompts of all others come once, of which some are taken with its own.
    Those that a request waits for (:func:`queue_of_users`) are before its tokens, the rest is spread over them. Of
    users who think only those `at_hand` are others.
    """
    hand = users if at_hand is None else at_hand
    steps = output - 1
    others = _others(hand, prompts) * prompts.busy
    tpot = decode + (others - queue_of_users(hand, decode, prompts, output)) / steps
    rate = users / (_cycle(hand, decode, prompts, output) + think)
    return Steady(rate, tpot, rate * prompts.busy)


def users_of(
    at_hand: Count, decode: Seconds, prompts: Prompts, output: Count | float, think: float
) -> Count:
    """Return the users of whom so many are at hand while the others think: by Little's law ``b + x z``."""
    return at_hand + of_users(at_hand, decode, prompts, output).rate * think


def queue_of_users(
    users: Count, decode: Seconds, prompts: Prompts, output: Count | float
) -> Seconds:
    r"""Return the mean time in which prompts of others are taken before that of a request.

    In a closed loop a request finds what the others alone would leave (the arrival theorem): their prompts keep the
    replica busy for a share `u` of the time, and the one at work is half done, if all are alike. With the work `s` of a
    prompt of relative variation `c`

    .. math:: W = s \frac{u}{1 - u} \frac{1 + c^2}{2}, \qquad u = \frac{(U - m) s}{C}

    where `m` prompts are taken in a pass and C is the time from one request of a user to the next; it does not depend
    on W, since what is done before a request's tokens is not done between them. Source: Reiser and Lavenberg,
    *Mean-value analysis of closed multichain queuing networks*, JACM 27(2), 1980; residual times: Wolff, *Stochastic
    Modeling and the Theory of Queues*, 1989.
    """
    others = _others(users, prompts) * prompts.busy
    share = others / _cycle(users, decode, prompts, output)
    queue = prompts.busy * share / (1 - share) * (1 + prompts.variation**2) / 2
    return np.minimum(queue, others)  # all of them, at most


def pass_at_work(users: Count, decode: Seconds, prompts: Prompts, output: Count | float) -> Seconds:
    """Return the mean time until the pass ends that decodes others when a request comes: half of it, if there are any.

    Passes that take prompts are part of :func:`queue_of_users`.
    """
    others = _others(users, prompts)
    share = others * prompts.busy / _cycle(users, decode, prompts, output)
    return np.minimum(others, 1.0) * (1 - share) * decode / 2


def _others(users: Count, prompts: Prompts) -> Count:
    """Return the users whose prompts come beside the passes of one, which take some of them along.

    Of fewer users than replicas some are idle.
    """
    return np.maximum(users - prompts.together, 0.0)


def _cycle(users: Count, decode: Seconds, prompts: Prompts, output: Count | float) -> Seconds:
    """Return the time from one request of a user to the next: its own, and the prompts of all others."""
    work = prompts.latency + (output - 1) * decode
    return work + _others(users, prompts) * prompts.busy


def at_rate(rate: Array, decode: Seconds, prompts: Prompts) -> Steady:
    """Return the state of a replica that answers requests as they come, below what it could."""
    share = rate * prompts.busy
    return Steady(rate + 0 * decode, decode / (1 - share), share)


def concurrency(state: Steady, output: float) -> Count:
    """Return the sequences that are decoded at a time, by Little's law."""
    return state.rate * (output - 1) * state.tpot


def static_rate(batch: Count, prefill: Seconds, decode: Seconds, output: Count | float) -> Array:
    """Return the requests per second of batches that start and end together; `decode` is the mean over the steps."""
    return batch / (prefill + (output - 1) * decode)


def waves(requests: Count, batch: Count) -> tuple[Count, Count]:
    """Return how many full batches a finite run has, and how many requests are left for the last.

    >>> [float(one) for one in waves(np.array(1500.0), np.array(400.0))]
    [3.0, 300.0]
    """
    full = requests // batch
    return full, requests - full * batch


def run_time(requests: Count, batch: Count, rate: Array, last_rate: Array) -> Seconds:
    """Return the time of requests that are all there at the start, and that have one length.

    They come and end in waves of as many as there is room for, each as long as a batch takes at its rate; the last is
    smaller, and has the rate of a batch of its size.
    """
    full, left = waves(requests, batch)
    return full * batch / rate + left / last_rate


def own_passes(
    prefill: Seconds, busy: Seconds, decode: Seconds, together: Count | float = 1.0
) -> Prompts:
    """Return what prompts do that have passes of their own, not cut, `together`: they stop decoding for that time."""
    return Prompts(np.ones_like(busy) / together, busy, prefill, busy + decode, together=together)


def elsewhere(latency: Seconds, decode: Seconds) -> Prompts:
    """Return what prompts do that other processors prefill, and that are there after so long: nothing to decoding."""
    nothing = np.zeros_like(decode)
    return Prompts(nothing, nothing, latency, decode)


def mixture(shares: Sequence[Fraction | float], kinds: Sequence[Prompts]) -> Prompts:
    """Return what prompts of several kinds do, each a share of all: means over requests, and the longest gap of all.

    Of one kind it is that.
    """
    if len(kinds) == 1:
        return kinds[0]
    passes = _mean(shares, [one.passes for one in kinds])
    busy = _mean(shares, [one.busy for one in kinds])
    square = _mean(shares, [one.busy**2 for one in kinds])
    return Prompts(
        passes=passes,
        added=busy / passes,
        latency=_mean(shares, [one.latency for one in kinds]),
        longest=np.max([one.longest for one in kinds], axis=0),
        variation=np.sqrt(np.maximum(0.0, square - busy**2)) / busy,
        together=_mean(shares, [np.asarray(one.together) for one in kinds]),
    )


def _mean(shares: Sequence[Fraction | float], values: Sequence[Array]) -> Array:
    return np.asarray(sum(share * value for share, value in zip(shares, values, strict=True)))


def budget_batch(
    budget: Count, computed: float, output: float, rows: float = 1, tokens: float = 1
) -> Count:
    """Return the most sequences of which a pass has a token, beside the prompts that come meanwhile.

    In the time of ``o - 1`` passes each sequence is followed by another, whose prompt of `i` tokens must be in these
    passes: ``B + B i / (o - 1)`` tokens in each. With speculation a sequence has several `rows` in a pass, which yields
    `tokens` of it, so that passes are fewer. With stages each has a part of the sequences in a pass of its own.
    """
    return budget / (rows + computed * tokens / (output - 1))


def chunks(rows: Count, budget: Count, computed: float) -> Count:
    """Return in how many equal chunks a prompt is taken, by passes that also decode so many rows."""
    return np.ceil(computed / np.maximum(1.0, budget - rows))


def prompts_together(batch: Count, count: Count, output: float, tokens: float = 1) -> Count:
    """Return of how many prompts a mixed pass takes a chunk: several, where more come than there are passes.

    A pass yields so many `tokens` of each sequence.
    """
    return np.maximum(1.0, count * batch * tokens / (output - 1))


def mixed_passes(
    count: Count, together: Count, mixed: Seconds, decode: Seconds, latency: Seconds
) -> Prompts:
    """Return what prompts do whose chunks run in passes that also decode.

    Such a pass reads the weights once for both. With a time of ``A + c T`` for `T` tokens and one chunk it adds ``c i``
    to decoding, where a pass of its own takes ``A + c i``: less by the fixed part.

    Source: Agrawal et al., *Sarathi-Serve*, arXiv 2403.02310, section 4.
    """
    return Prompts(count / together, mixed - decode, latency, mixed, together=together)
