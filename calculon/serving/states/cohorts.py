"""Users in a closed loop who start at once: requests of equal lengths stay together, and wait for each other.

Compared with replays of the scheduler (:mod:`calculon.serving.replay`) over random models, machines and loads of 5 or
10 requests per user, the mean time to the first token is between 0.75 and 1.35 times that of the replay, and the time
per token between 0.95 and 1.25 times.
"""

import numpy as np

from calculon.base.units import Count, Seconds
from calculon.serving.passes.replica import Replica
from calculon.serving.states.steady import PrefillEffect, queue_of_users


def cohort_size(users: Count, groups: Count, budget: Count, computed: float) -> Count:
    """Return the number of users whose prompts share a pass, if all outputs have equal lengths (closed loop).

    Users who start at once wait in a queue, from which each pass takes as many prompts as its token budget allows.
    These requests then end in the same pass, so that the next prompts of their users share a pass again. Requests of
    other users end in other passes. Outputs of different lengths separate the users.

    Source: the rule that fills passes, Agrawal et al., *Sarathi-Serve*, arXiv 2403.02310, section 4.

    Args:
        users: Users of a replica.
        groups: Groups of ranks with different requests.
        budget: Tokens of a pass of a group.
        computed: Tokens that prefill computes for a prompt.
    """
    return np.clip(groups * np.floor(budget / computed), 1.0, np.maximum(1.0, users))


def users_at_once(
    replica: Replica,
    running: Count,
    prompts: PrefillEffect,
    decode: Seconds,
    pause: Seconds,
    users: int,
) -> tuple[PrefillEffect, Seconds | None, Seconds]:
    """Return the effect of the prompts of users, the prompts before a request, and its wait for passes.

    Users whose prompts and outputs have equal lengths stay together (:func:`cohort_size`): their prompts share a pass,
    or wait for each other if prompts have separate passes. Otherwise, they send requests at random. In a finite run,
    the first requests of all users come at once. Pipeline stages are not modeled here.

    Args:
        replica: The replicas.
        running: Users of each replica whose requests run.
        prompts: Effect of prompts that arrive at random.
        decode: Time of a pass that decodes all of them.
        pause: Wait of a prompt that arrives at random for other prompts and for the running pass.
        users: Users of all replicas.
    """
    d, w = replica.deployments, replica.workload
    if d.staged:
        return prompts, None, pause
    equal = not (w.output_cv or w.prompt_cv or w.think)
    share = 0.0 if w.requests is None else min(1.0, users / w.requests)
    if not d.mixes:
        # users who start at once are all prefilled before any of them is decoded, and therefore end together
        first = np.maximum(running - prompts.together, 0.0) / 2 * prompts.busy
        if equal:
            return prompts, first, first
        return prompts, None, pause + share * np.maximum(0.0, first - pause)
    size, shared = _shared_pass(replica, running, prompts)
    # a prompt that is cut shares its passes with the next one, as if users sent requests at random
    cut = prompts.passes * prompts.together > 1
    single = cut | (size <= prompts.together) | (not equal)
    effect = PrefillEffect(
        passes=np.where(single, prompts.passes, 1 / size),
        added=np.where(single, prompts.added, shared - decode),
        latency=np.where(single, prompts.latency, shared),
        longest=np.where(single, prompts.longest, shared),
        variation=np.where(single, prompts.variation, 0.0),
        together=np.where(single, prompts.together, size),
    )
    queue = np.where(single, queue_of_users(running, decode, prompts, w.output), 0.0)
    pause = np.where(single, pause, 0.0)
    first = (running / size + 1) / 2 * shared
    return effect, queue, pause + share * np.maximum(0.0, first - effect.latency - pause)


def _shared_pass(replica: Replica, running: Count, prompts: PrefillEffect) -> tuple[Count, Seconds]:
    """Return the number of prompts that a pass takes at once, and the time of such a pass."""
    d, w = replica.deployments, replica.workload
    size = cohort_size(running, d.attn_data_par, d.token_budget, w.computed)
    size = np.maximum(size, prompts.together)
    sizes = replica.sizes(
        decoded=np.maximum(0.0, running - size),
        verified=replica.rows,
        context=w.context,
        prompts=size,
        chunk=w.computed,
        cached=w.cached,
    )
    return size, replica.spans(sizes).time
