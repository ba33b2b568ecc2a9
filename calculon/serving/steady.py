r"""The steady state of a replica: how many requests it answers, and how far apart their tokens are.

A request is prefilled once and decoded ``o - 1`` times, for its output of `o` tokens; a pass decodes all `B` sequences
at hand. Passes that take chunks of prompts are longer than those that only decode, by what prompts `add`; of passes of
their own that is all of them. With `n` of these passes for a request, in :math:`1 / x` seconds a replica answers one:

.. math:: 1 / x = n \, a + (o - 1) \, t_d / B

Everything else follows. The share of the time that prompts take is :math:`\phi = x n a`, a sequence has a token in
:math:`t_d / (1 - \phi)`, and Little's law :math:`B = x (o - 1) \, TPOT` holds identically.

Source: work conservation, and Little, *A proof for the queuing formula L = lambda W*, Operations Research 9(3), 1961.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from calculon.units import Array, Count, Fraction, Seconds

WIDEST_SHAPE, NARROWEST_SHAPE = 0.1, 1e4
"""Shapes of Weibull distributions between which one is looked for: variations of 430 to 0.00013."""

_REACH, _POINTS = 60.0, 4001
"""Values of -log(1 - F) up to which, and logarithms from below which, lengths are summed up, at so many points."""


class Prompts(NamedTuple):
    """What prompts do to the passes of a replica.

    Attributes
    ----------
    passes : array
        Passes that take chunks of the prompt of one request; of passes that take several prompts its share.
    added : array
        Time that such a pass takes beside decoding: all of it, where prompts have passes of their own.
    latency : array
        Time of a request in prefill, once that begins.
    longest : array
        Longest time between two tokens of another request.
    """

    passes: Count
    added: Seconds
    latency: Seconds
    longest: Seconds

    @property
    def busy(self) -> Seconds:
        """Time that the prompt of a request takes."""
        return self.passes * self.added


class Steady(NamedTuple):
    """A steady state of a replica: requests per second, time per token, and the share of prefill."""

    rate: Array
    tpot: Seconds
    prefill_share: Fraction


def saturated(batch: Count, decode: Seconds, prompts: Prompts, output: Count) -> Steady:
    """Return the state of a replica that always has `batch` sequences to decode.

    Parameters
    ----------
    batch, output : array
        Sequences, and tokens that each generates.
    decode : array
        Time of a pass that decodes them.
    prompts : Prompts
        What prompts add.
    """
    steps = output - 1
    rate = 1 / (prompts.busy + steps * decode / batch)
    share = rate * prompts.busy
    return Steady(rate, decode / (1 - share), share)


def of_users(
    users: Count, decode: Seconds, prompts: Prompts, output: Count, think: float = 0.0
) -> Steady:
    """Return the state of a replica with users of whom each has one request at a time, all of which fit.

    While one user's tokens are made, the prompts of all others come once: ``(users - 1)`` times what they add, over
    ``o - 1`` tokens.
    """
    steps = output - 1
    others = np.maximum(users - 1, 0.0)  # of fewer users than replicas some are idle
    tpot = decode + others * prompts.busy / steps
    rate = users / (prompts.latency + steps * tpot + think)
    return Steady(rate, tpot, rate * prompts.busy)


def at_rate(rate: Array, decode: Seconds, prompts: Prompts) -> Steady:
    """Return the state of a replica that answers requests as they come, below what it could."""
    share = rate * prompts.busy
    return Steady(rate + 0 * decode, decode / (1 - share), share)


def concurrency(state: Steady, output: Count) -> Count:
    """Return the sequences that are decoded at a time, by Little's law."""
    return state.rate * (output - 1) * state.tpot


def static_rate(batch: Count, prefill: Seconds, decode: Seconds, output: Count) -> Array:
    """Return the requests per second of batches that start and end together; `decode` is the mean over the steps."""
    return batch / (prefill + (output - 1) * decode)


def waves(requests: int, batch: int) -> tuple[int, int]:
    """Return how many full batches a finite run has, and how many requests are left for the last.

    >>> waves(1500, 400)
    (3, 300)
    """
    full = requests // batch
    return full, requests - full * batch


def run_time(requests: int, batch: int, rate: Array, last_rate: Array) -> Seconds:
    """Return the time of requests that are all there at the start, and that have one length.

    They come and end in waves of as many as there is room for, each as long as a batch takes at its rate; the last is
    smaller, and has the rate of a batch of its size.
    """
    full, left = waves(requests, batch)
    time = full * batch / rate
    return time + left / last_rate if left else time


def own_passes(prefill: Seconds, busy: Seconds, decode: Seconds) -> Prompts:
    """Return what prompts do that have passes of their own, not cut: they stop decoding for that time."""
    one = np.ones_like(busy)
    return Prompts(one, busy, prefill, busy + decode)


def mixture(shares: Sequence[float], kinds: Sequence[Prompts]) -> Prompts:
    """Return what prompts of several kinds do, each a share of all: means over requests, and the longest gap of all.

    Of one kind it is that.
    """
    if len(kinds) == 1:
        return kinds[0]
    passes = _mean(shares, [one.passes for one in kinds])
    busy = _mean(shares, [one.busy for one in kinds])
    latency = _mean(shares, [one.latency for one in kinds])
    longest = np.max([one.longest for one in kinds], axis=0)
    return Prompts(passes, busy / passes, latency, longest)


def _mean(shares: Sequence[float], values: Sequence[Array]) -> Array:
    return np.asarray(sum(share * value for share, value in zip(shares, values, strict=True)))


def service_variation(shares: Sequence[float], kinds: Sequence[Prompts]) -> Array:
    """Return the standard deviation of the time that a prompt takes, over its mean."""
    mean = _mean(shares, [one.busy for one in kinds])
    square = _mean(shares, [one.busy**2 for one in kinds])
    return np.sqrt(np.maximum(0.0, square - mean**2)) / mean


def weibull_shape(variation: float) -> float:
    """Return the shape of the Weibull distribution with a coefficient of variation above 0: 1 of exponential times.

    By bisection of ``c² = Γ(1 + 2/k) / Γ(1 + 1/k)² - 1``, which falls with the shape. Source: Weibull, *A statistical
    distribution function of wide applicability*, Journal of Applied Mechanics 18, 1951.

    >>> round(weibull_shape(1.0), 9)
    1.0
    """
    low, high = math.log(WIDEST_SHAPE), math.log(NARROWEST_SHAPE)
    for _ in range(60):
        middle = (low + high) / 2
        inverse = math.exp(-middle)
        square = math.lgamma(1 + 2 * inverse) - 2 * math.lgamma(1 + inverse)
        low, high = (middle, high) if math.expm1(square) > variation**2 else (low, middle)
    return math.exp(low)


def longest_output(batch: Count, output: float, variation: float) -> Count:
    r"""Return the mean length of the longest of so many outputs: the steps of a batch that starts and ends together.

    .. math:: E[\max] = \int_0^\infty 1 - F(x)^B \, dx

    of Weibull lengths with this mean and variation, which are exponential at 1: ``o (1 + 1/2 + ... + 1/B)``. Served
    outputs are about exponential (Xiang et al., *ServeGen*, arXiv 2505.09999, section 3.2).

    Parameters
    ----------
    batch : array
        Outputs, 1 at least.
    output, variation : float
        Their mean, and their standard deviation over it.
    """
    if not variation:
        return np.full(np.shape(batch), float(output))
    shape = weibull_shape(variation)
    # by the logarithm y of -log(1 - F), evenly spaced: x = e^(y/k) over the mean Γ(1 + 1/k), and dx = x/k dy
    level, step = np.linspace(-_REACH, math.log(_REACH), _POINTS, retstep=True)
    length = np.exp(level / shape - math.lgamma(1 + 1 / shape))
    below = np.log(-np.expm1(-np.exp(level)))
    left = -np.expm1(np.asarray(batch, float)[..., None] * below) * length * (step / shape)
    ends = (left[..., 0] + left[..., -1]) / 2
    return np.asarray(output * (length[0] + left.sum(axis=-1) - ends))


def budget_batch(budget: float, computed: float, output: float) -> float:
    """Return the most sequences of which a pass has a token, beside the prompts that come meanwhile.

    In the time of ``o - 1`` passes each sequence is followed by another, whose prompt of `i` tokens must be in these
    passes: ``B + B i / (o - 1)`` tokens in each.
    """
    return budget / (1 + computed / (output - 1))


def chunks(batch: Count, budget: float, computed: float) -> Count:
    """Return in how many equal chunks a prompt is taken, by passes that also decode `batch` sequences."""
    return np.ceil(computed / np.maximum(1.0, budget - batch))


def prompts_together(batch: Count, count: Count, output: float) -> Count:
    """Return of how many prompts a mixed pass takes a chunk: several, where more come than there are passes."""
    return np.maximum(1.0, count * batch / (output - 1))


def mixed_passes(
    count: Count, together: Count, mixed: Seconds, decode: Seconds, latency: Seconds
) -> Prompts:
    """Return what prompts do whose chunks run in passes that also decode.

    Such a pass reads the weights once for both. With a time of ``A + c T`` for `T` tokens and one chunk it adds ``c i``
    to decoding, where a pass of its own takes ``A + c i``: less by the fixed part.

    Source: Agrawal et al., *Sarathi-Serve*, arXiv 2403.02310, section 4.
    """
    return Prompts(count / together, mixed - decode, latency, mixed)
