r"""Steady state of a replica with continuous or static batching: request rate and time per output token.

A request is prefilled once and decoded ``o - 1`` times for its output of `o` tokens; a pass decodes all `B` running
sequences. Passes that take chunks of prompts are longer than passes that only decode, by the time `a` that prompts add;
if prompts run in separate passes, that is their whole time. With `n` of these passes per request, a replica answers one
request in :math:`1 / x` seconds:

.. math:: 1 / x = n \, a + (o - 1) \, t_d / B

Everything else follows. The share of time spent on prefill is :math:`\phi = x n a`, a sequence gets a token every
:math:`t_d / (1 - \phi)`, and Little's law :math:`B = x (o - 1) \, TPOT` holds identically.

Source: work conservation, and Little, *A proof for the queuing formula L = lambda W*, Operations Research 9(3), 1961.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from calculon.base.units import Array, Count, Fraction, Seconds


class PrefillEffect(NamedTuple):
    """Effect of prefill on the passes of a replica.

    Attributes:
        passes: Passes that take chunks of the prompt of one request; for passes that take several prompts, its share of
            them.
        added: Time that such a pass takes in addition to decoding: all of it if prompts run in separate passes.
        latency: Prefill time of a request once it starts.
        longest: Longest time between two tokens of another request; with speculation, between the tokens of two passes.
        variation: Standard deviation over mean of the time that a prompt takes.
        together: Prompts per pass, whose requests have the same latency.
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


class SteadyState(NamedTuple):
    """Steady state of a replica: requests per second, time per output token, and share of time spent on prefill."""

    rate: Array
    tpot: Seconds
    prefill_share: Fraction


def saturated(batch: Count, decode: Seconds, prompts: PrefillEffect, output: float) -> SteadyState:
    """Return the state of a replica that always has `batch` sequences to decode.

    Args:
        batch: Number of sequences.
        output: Tokens that each generates.
        decode: Time of a pass that decodes them; time per token if a pass yields several tokens per sequence.
        prompts: Effect of prefill.
    """
    steps = output - 1
    rate = 1 / (prompts.busy + steps * decode / batch)
    share = rate * prompts.busy
    return SteadyState(rate, decode / (1 - share), share)


def of_users(
    users: Count,
    decode: Seconds,
    prompts: PrefillEffect,
    output: Count | float,
    think: float = 0.0,
    running: Count | None = None,
    queue: Seconds | None = None,
) -> SteadyState:
    """Return the state of a replica with users who each have one request at a time, all of which fit.

    From one request of a user to the next, the prompts of all other users are prefilled once, some of them together
    with the user's own. The prompts that a request waits for (by default :func:`queue_of_users`) come before its
    tokens, and the rest is spread over them. If users think, only the requests `running` compete.
    """
    competing = users if running is None else running
    steps = output - 1
    # work of other prompts that is not before the first token is between the tokens
    others = _others(competing, prompts) * prompts.busy
    before = queue_of_users(competing, decode, prompts, output) if queue is None else queue
    tpot = decode + (others - before) / steps
    rate = users / (_cycle(competing, decode, prompts, output) + think)
    return SteadyState(rate, tpot, rate * prompts.busy)


def users_of(
    running: Count, decode: Seconds, prompts: PrefillEffect, output: Count | float, think: float
) -> Count:
    """Return the number of users if `running` wait for a response while the others think: Little's law ``b + x z``."""
    return running + of_users(running, decode, prompts, output).rate * think


def queue_of_users(
    users: Count, decode: Seconds, prompts: PrefillEffect, output: Count | float
) -> Seconds:
    r"""Return the mean time in which the prompts of other users are prefilled before the prompt of a request.

    In a closed loop a request finds the state that the other users alone would cause (the arrival theorem): their
    prompts keep the replica busy for a share `u` of the time, and the running one is half done if all are equal. For
    prompts that take a time `s` with relative variation `c`

    .. math:: W = s \frac{u}{1 - u} \frac{1 + c^2}{2}, \qquad u = \frac{(U - m) s}{C}

    where `m` prompts are taken per pass and `C` is the time from one request of a user to the next. `C` does not depend
    on `W`, because prefill before the tokens of a request is not repeated between them. Source: Reiser and Lavenberg,
    *Mean-value analysis of closed multichain queuing networks*, JACM 27(2), 1980; residual times: Wolff, *Stochastic
    Modeling and the Theory of Queues*, 1989.
    """
    others = _others(users, prompts) * prompts.busy
    share = others / _cycle(users, decode, prompts, output)
    queue = prompts.busy * share / (1 - share) * (1 + prompts.variation**2) / 2
    return np.minimum(queue, others)  # a request waits at most for the prompts of all others


def pass_at_work(
    users: Count, decode: Seconds, prompts: PrefillEffect, output: Count | float
) -> Seconds:
    """Return the mean remaining time of the decode pass that runs when a request arrives: half of it, if there is one.

    Passes that take prompts are part of :func:`queue_of_users`.
    """
    others = _others(users, prompts)
    share = others * prompts.busy / _cycle(users, decode, prompts, output)
    return np.minimum(others, 1.0) * (1 - share) * decode / 2


def _others(users: Count, prompts: PrefillEffect) -> Count:
    """Return the users whose prompts run in passes other than a user's own, which takes some prompts along.

    With fewer users than replicas some replicas are idle.
    """
    return np.maximum(users - prompts.together, 0.0)


def _cycle(users: Count, decode: Seconds, prompts: PrefillEffect, output: Count | float) -> Seconds:
    """Return the time from one request of a user to the next: its own work, and the prompts of all others."""
    work = prompts.latency + (output - 1) * decode
    return work + _others(users, prompts) * prompts.busy


def at_rate(rate: Array, decode: Seconds, prompts: PrefillEffect) -> SteadyState:
    """Return the state of a replica that answers requests as they arrive, below its maximum rate."""
    share = rate * prompts.busy
    # adding 0 gives the rate the shape of the column
    return SteadyState(rate + 0 * decode, decode / (1 - share), share)


def concurrency(state: SteadyState, output: float) -> Count:
    """Return the number of sequences that are decoded concurrently, by Little's law."""
    return state.rate * (output - 1) * state.tpot


def static_rate(batch: Count, prefill: Seconds, decode: Seconds, output: Count | float) -> Array:
    """Return the requests per second of static batches, which start and end together; `decode` is a mean over steps."""
    return batch / (prefill + (output - 1) * decode)


def waves(requests: Count, batch: Count) -> tuple[Count, Count]:
    """Return the number of full batches of a finite run, and the requests left for the last batch.

    >>> [float(one) for one in waves(np.array(1500.0), np.array(400.0))]
    [3.0, 300.0]
    """
    full = requests // batch
    return full, requests - full * batch


def run_time(requests: Count, batch: Count, rate: Array, last_rate: Array) -> Seconds:
    """Return the time of a finite run whose requests are all available at the start and have equal lengths.

    They start and end in waves of a full batch, each as long as a batch takes at its rate; the last wave is smaller and
    has the rate of a batch of its size.
    """
    full, left = waves(requests, batch)
    return full * batch / rate + left / last_rate


def separate_prefill(
    prefill: Seconds, busy: Seconds, decode: Seconds, together: Count | float = 1.0
) -> PrefillEffect:
    """Return the effect of prefill in separate passes of `together` whole prompts: decoding stops meanwhile."""
    return PrefillEffect(
        np.ones_like(busy) / together, busy, prefill, busy + decode, together=together
    )


def remote_prefill(latency: Seconds, decode: Seconds) -> PrefillEffect:
    """Return the effect of prefill on other processors: a latency, and none on decoding."""
    nothing = np.zeros_like(decode)
    return PrefillEffect(nothing, nothing, latency, decode)


def mixture(shares: Sequence[Fraction | float], effects: Sequence[PrefillEffect]) -> PrefillEffect:
    """Return the effect of prompts of several lengths, each with its share: means over requests, and the longest gap.

    A single length is returned unchanged.
    """
    if len(effects) == 1:
        return effects[0]
    # the variation of the mixture follows from the first two moments of the time that prompts take
    passes = _mean(shares, [one.passes for one in effects])
    busy = _mean(shares, [one.busy for one in effects])
    square = _mean(shares, [one.busy**2 for one in effects])
    return PrefillEffect(
        passes=passes,
        added=busy / passes,
        latency=_mean(shares, [one.latency for one in effects]),
        longest=np.max([one.longest for one in effects], axis=0),
        variation=np.sqrt(np.maximum(0.0, square - busy**2)) / busy,
        together=_mean(shares, [np.asarray(one.together) for one in effects]),
    )


def _mean(shares: Sequence[Fraction | float], values: Sequence[Array]) -> Array:
    return np.asarray(sum(share * value for share, value in zip(shares, values, strict=True)))


def budget_batch(
    budget: Count, computed: float, output: float, rows: float = 1, tokens: float = 1
) -> Count:
    """Return the largest decode batch within the token budget while prompts arrive.

    During ``o - 1`` passes each sequence is replaced by another one, whose prompt of `i` tokens has to fit into these
    passes: ``B + B i / (o - 1)`` tokens per pass. With speculative decoding a sequence has several `rows` per pass, and
    a pass yields several `tokens` of it, so there are fewer passes. With pipeline stages, each stage works on a part of
    the sequences in its own pass.
    """
    return budget / (rows + computed * tokens / (output - 1))


def chunks(rows: Count, budget: Count, computed: float) -> Count:
    """Return the number of equal chunks of a prompt in passes that also decode a number of rows."""
    return np.ceil(computed / np.maximum(1.0, budget - rows))


def prompts_together(batch: Count, count: Count, output: float, tokens: float = 1) -> Count:
    """Return the number of prompts of which a mixed pass takes a chunk: several if more chunks arrive than passes run.

    A pass yields `tokens` tokens of each sequence.
    """
    return np.maximum(1.0, count * batch * tokens / (output - 1))


def chunked_prefill(
    count: Count, together: Count, mixed: Seconds, decode: Seconds, latency: Seconds
) -> PrefillEffect:
    """Return the effect of chunked prefill, whose chunks run in passes that also decode.

    Such a pass reads the weights once for both. If a pass takes ``A + c T`` for `T` tokens, a chunk adds ``c i`` to
    decoding, while a separate pass takes ``A + c i``: the fixed part is saved.

    Source: Agrawal et al., *Sarathi-Serve*, arXiv 2403.02310, section 4.
    """
    return PrefillEffect(count / together, mixed - decode, latency, mixed, together=together)
