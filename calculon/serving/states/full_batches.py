"""Replicas with their memory, and their steady states with full batches."""

from collections.abc import Callable

import numpy as np

from calculon.base.distinct_rows import distinct
from calculon.base.units import Array, Count, Seconds
from calculon.serving.caches.kept_prefixes import KeptPrefixes
from calculon.serving.caches.rank_memory import RankMemory, SequenceCapacity, rank_memory
from calculon.serving.passes.replica import Replica
from calculon.serving.states.disaggregated import prefill_pool
from calculon.serving.states.steady import (
    PrefillEffect,
    SteadyState,
    budget_batch,
    remote_prefill,
    saturated,
    static_rate,
)

# Cache of steady states with full batches: each replica with each batch is timed once.

State = tuple[SteadyState, PrefillEffect, Seconds]
"""Steady state, effect of prefill, and time of a decode pass."""

AT_ONCE = 2**14
"""Number of states that are timed together, which limits the memory of all rows of their passes."""

_BATCHES = 2.0**21
"""Factor that combines the number of a replica and its batch into one key: larger than any batch."""

_STEADY, _EFFECT = len(SteadyState._fields), len(PrefillEffect._fields)


class StateCache:
    """Cache of steady states by the number of a replica and its batch.

    Args:
        find: Returns the states of replicas, given by their numbers, with batches.
    """

    def __init__(self, find: Callable[[Array, Count], State]):
        self._find = find
        self._keys = np.zeros(0)
        self._columns = np.zeros((_STEADY + _EFFECT + 1, 0))

    def of(self, replicas: Array, batch: Count) -> State:
        """Return the states of replicas with batches; columns have the shape of `batch`."""
        _, place, first = distinct([replicas, batch.astype(np.int64)])
        keys = (replicas * _BATCHES + batch)[first]
        self._add(keys[~np.isin(keys, self._keys, assume_unique=True)])
        found = self._columns[:, np.searchsorted(self._keys, keys)[place]]
        steady, prompts = found[:_STEADY], found[_STEADY : _STEADY + _EFFECT]
        return SteadyState(*steady), PrefillEffect(*prompts), found[-1]

    def _add(self, keys: Array) -> None:
        """Compute and store the states of new keys."""
        if not len(keys):
            return
        parts = []
        for first in range(0, len(keys), AT_ONCE):
            some = keys[first : first + AT_ONCE]
            replicas = np.floor(some / _BATCHES)
            steady, prompts, decode = self._find(
                replicas.astype(np.int64), some - replicas * _BATCHES
            )
            columns = (np.broadcast_to(one, some.shape) for one in (*steady, *prompts, decode))
            parts.append(np.stack([*columns]))
        # keys stay sorted for np.searchsorted
        every = np.concatenate([self._keys, keys])
        order = np.argsort(every, kind="stable")
        self._keys = every[order]
        self._columns = np.concatenate([self._columns, *parts], axis=1)[:, order]


MAX_SEQUENCES = 2.0**20
"""Maximum sequences of a replica that are considered."""


class FullBatches:
    """Replicas that always have as many sequences as allowed.

    Attributes:
        replica, load, deployments: The replicas, their workload, and their deployments.
        memory: Memory of a rank of each replica.
        sequences: Memory that sequences take.
        capacity: Sequences that fit into the memory of a replica.
        prefixes: Prefixes that replicas cache between requests.
        pool: Pools that only prefill; None without them.
    """

    def __init__(self, replica: Replica):
        self.replica, self.load, self.deployments = replica, replica.workload, replica.deployments
        self.memory = self._memory()
        self.sequences = SequenceCapacity(replica, self.memory)
        self.capacity = np.minimum(self.sequences.fitting, MAX_SEQUENCES)
        self.prefixes = KeptPrefixes.of(replica, self.memory)
        self.pool = prefill_pool(replica)
        self._firsts, self._alike = self.deployments.distinct_replicas(counted=self.prefixes.matter)
        self._states = StateCache(self._timed)

    def _memory(self) -> RankMemory:
        """Return the memory of a rank, including the activations of its largest pass."""
        d, w = self.deployments, self.load
        tokens: Count | float = d.token_budget if d.mixes else w.longest_computed
        if (
            d.prefill_deployments is not None
        ):  # passes only decode, each stage its share of the sequences
            rows = np.ceil(d.max_batch / d.attn_data_par) * self.replica.rows / d.pipeline_par
            tokens = np.maximum(d.token_budget, rows)
        return rank_memory(self.replica, tokens)

    @property
    def allowed(self) -> Count:
        """Largest batch by ``max_batch``; infinite if it is 0."""
        stated = self.deployments.max_batch
        return np.where(stated > 0, stated, np.inf)

    def largest_batch(self) -> tuple[Count, Array]:
        """Return the largest batch of a replica, and its limiting reason as an index of :data:`CUTS`."""
        bounds = [self.allowed, *self.batch_capacities().values()]
        return np.min(bounds, axis=0), np.argmin(bounds, axis=0)

    def batch_capacities(self) -> dict[str, Count]:
        """Return the largest batches by memory, and by the token budget of passes that mix decode and prefill."""
        d, w = self.deployments, self.load
        result = {"memory": self.capacity}
        if d.mixes:
            rows, tokens = self.replica.rows, self.replica.per_pass
            budget = budget_batch(d.token_budget, w.computed, w.output, rows, tokens)
            result["token_budget"] = np.floor(d.pipeline_par * budget) * d.attn_data_par
        return result

    def state(self, batch: Count, places: Array | None = None) -> State:
        """Return the steady state of full batches, the effect of prefill, and the time of a decode pass.

        Each batch belongs to the deployment at an index; by default there is one batch per deployment. A prefill pool
        limits their rates.
        """
        state, prompts, decode = self._decoded(batch, places)
        if self.pool is not None:
            most = self.pool.rate / self.deployments.replicas
            latency = self.pool.time + self.pool.moved
            if places is not None:
                most, latency = most[places], latency[places]
            state = state._replace(rate=np.minimum(state.rate, most))
            prompts = remote_prefill(latency, decode)
        return state, prompts, decode

    def _decoded(self, batch: Count, places: Array | None = None) -> State:
        """Return the state without the limit of a prefill pool; arguments as in :meth:`state`."""
        return self._states.of(self._alike if places is None else self._alike[places], batch)

    def _timed(self, numbers: Array, batch: Count) -> State:
        """Return the states of distinct replicas, given by their numbers, without the limit of a prefill pool."""
        replica = self.replica.take(self._firsts[numbers])
        if self.deployments.record.batching == "static":
            prefill, _ = replica.prefill(batch)
            mean = replica.mean_decode(batch)
            rate = static_rate(batch, prefill, mean, replica.steps(batch))
            alone = PrefillEffect(np.ones_like(prefill) / batch, prefill, prefill, mean)
            return SteadyState(rate, mean, rate * prefill / batch), alone, mean
        decode = replica.decode(batch)
        each = decode / replica.per_pass
        if self.pool is not None:
            prompts = remote_prefill(np.zeros_like(decode), decode)
            return saturated(batch, each, prompts, self.load.output), prompts, decode
        prompts = replica.prompts(batch, decode)
        full = saturated(batch, each, prompts, self.load.output)
        # lost prefixes depend on the rate, which depends on them: one iteration, from the rate without lost prefixes
        prefixes = self.prefixes.take(self._firsts[numbers])
        if not prefixes.matter:
            return full, prompts, decode
        prompts = prefixes.prompts(batch, decode, prompts, full)
        return saturated(batch, each, prompts, self.load.output), prompts, decode
