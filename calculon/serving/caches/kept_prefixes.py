"""Prefix caching on replicas: number of prefixes that fit, location of hits, and their cost."""

from functools import cached_property

import numpy as np

from calculon.base.frozen import dataclass
from calculon.base.units import Array, Bytes, Count, Seconds
from calculon.declarations.serving_figures import PrefixFigures
from calculon.serving.caches.prefixes import (
    NO_TIER,
    HitLocations,
    SecondTier,
    break_even,
    hit_locations,
    idle_conversations,
    overlapped_fetch,
)
from calculon.serving.caches.rank_memory import RankMemory, SequenceCapacity, cached_bytes
from calculon.serving.passes.replica import Replica
from calculon.serving.states.steady import (
    PrefillEffect,
    SteadyState,
    at_rate,
    concurrency,
    of_users,
)


@dataclass(frozen=True)
class KeptPrefixes:
    """Prefixes that replicas keep between requests, next to running sequences; columns of shape ``(deployments,)``.

    Attributes:
        replica, memory: The replicas, and the memory of a rank of each.
        tier: Destination of prefixes that do not fit into tier 1; None if they are dropped.
    """

    replica: Replica
    memory: RankMemory
    tier: SecondTier | None

    @classmethod
    def of(cls, replica: Replica, memory: RankMemory) -> "KeptPrefixes":
        """Return the prefixes kept by replicas, with the tier that deployments state.

        Raises:
            SpecError: If the system has no such tier.
        """
        place = replica.deployments.record.cache_offload
        return cls(replica, memory, None if place == NO_TIER else SecondTier(replica.system, place))

    def take(self, places: Array) -> "KeptPrefixes":
        """Return the prefixes of the deployments at some indices, in that order."""
        return KeptPrefixes(self.replica.take(places), self.memory.take(places), self.tier)

    @property
    def matter(self) -> bool:
        """True if hits may be outside of tier 1; prefixes of a prefill pool are assumed to be in its tier 1."""
        w = self.replica.workload
        if self.replica.deployments.prefill_deployments is not None:
            return False
        # without think time the next turn comes at once, and its prefix is still in tier 1
        return w.kept > 0 and (self.tier is not None or (w.turns > 1 and w.think > 0))

    @cached_property
    def each(self) -> Bytes:
        """Bytes of a prefix on a rank."""
        r = self.replica
        return cached_bytes(r, r.workload.kept)

    def first(self, running: Count) -> Count:
        """Return the number of prefixes that fit into tier 1 next to the given number of running sequences."""
        r, groups = self.replica, self.replica.deployments.attn_data_par
        sequences = running / groups
        capacity = SequenceCapacity(r, self.memory).of_prefixes(sequences)
        return groups * capacity / self.each

    @property
    def second(self) -> Count:
        """Number of prefixes that fit into tier 2."""
        capacity = 0.0 if self.tier is None else self.tier.capacity
        return self.replica.deployments.attn_data_par * capacity / self.each

    def places(self, running: Count, rate: Array) -> HitLocations:
        """Return the location of the hits of replicas at a request rate, with a number of running sequences.

        If the time between the turns of a conversation is unknown, its prefix is in tier 2 if there is one, else in
        tier 1.
        """
        w, zero = self.replica.workload, np.zeros_like(rate)
        if w.turns > 1 and w.think > 0:
            return hit_locations(self.first(running), self.second, rate, w.think, w.turns)
        if self.tier is None:
            return HitLocations(zero + 1, zero, zero)
        return HitLocations(zero, zero + 1, zero)

    def _rate(
        self, batch: Count, token: Seconds, prompts: PrefillEffect, state: SteadyState
    ) -> Array:
        """Return the requests per second of a replica if no hit is lost, limited by the load."""
        w, replicas = self.replica.workload, self.replica.deployments.replicas
        if w.rate is not None:
            return np.minimum(state.rate, w.rate / replicas)
        if w.users is None:
            return state.rate
        users = np.full_like(batch, w.users) / replicas
        away = w.think + self.replica.deployments.record.request_time
        found = of_users(users, token, prompts, w.output, away, batch)
        return np.minimum(state.rate, found.rate)

    def prompts(
        self, batch: Count, decode: Seconds, prompts: PrefillEffect, state: SteadyState
    ) -> PrefillEffect:
        """Return the effect of prefill with hits in their actual location.

        Lost prefixes are computed again. A prefix is fetched layer by layer while it is prefilled, starting as soon as
        the first layer has arrived (Gao et al., *CachedAttention*, USENIX ATC 2024, section 3.2). The number of
        prefixes follows from the rate without lost hits, which is an upper bound.

        Args:
            batch, decode: Running sequences, and the time of a pass that decodes them.
            prompts: Effect of prefill if all hits are in tier 1.
            state: Steady state of full batches with this effect.
        """
        w, result = self.replica.workload, prompts
        token = decode / self.replica.per_pass
        rate = self._rate(batch, token, prompts, state)
        running = np.minimum(batch, concurrency(at_rate(rate, token, prompts), w.output))
        places = self.places(running, rate)
        # most workloads lose no prefix, and timing prompts without hits is expensive
        if np.any(places.lost > 0):
            result = self.replica.prompts(batch, decode, places.lost)
        if self.tier is None:
            return result
        share, fetch = places.second * w.followed, self.fetch
        decoding = (w.output - 1) * token / batch
        each = share * fetch / self.replica.deployments.attn_data_par  # groups fetch in parallel
        busy = overlapped_fetch(result.busy, each, decoding)
        latency = (1 - share) * result.latency + share * np.maximum(result.latency, fetch)
        return result._replace(added=busy / result.passes, latency=latency)

    @property
    def fetch(self) -> Seconds:
        """Time to fetch a prefix from tier 2; NaN without tier 2."""
        d = self.replica.deployments
        if self.tier is None:
            return np.full_like(self.each, np.nan)
        return self.tier.time(self.each, d.tensor_par * d.pipeline_par)

    @cached_property
    def recompute(self) -> Seconds:
        """Additional prefill time of a single prompt without its prefix."""
        w, one = self.replica.workload, np.ones(self.replica.deployments.count)
        hit, _ = self.replica.prefill_of(one, w.computed, w.common + w.kept)
        lost, _ = self.replica.prefill_of(one, w.computed + w.kept, w.common)
        return lost - hit

    @property
    def break_even(self) -> Array:
        """Bandwidth of tier 2 above which fetching is faster than recomputing, in B/s per processor."""
        return break_even(self.each, self.recompute)

    def figures(self, batch: Count, state: SteadyState) -> PrefixFigures:
        """Return the figures of prefixes in a state; NaN for figures that do not apply."""
        w, nothing = self.replica.workload, np.full_like(batch, np.nan)
        running = np.minimum(batch, concurrency(state, w.output))
        lost, second = 0 * batch, 0 * batch
        if self.matter:
            _, second, lost = self.places(running, state.rate)
        conversation_share, waits = w.kept * w.followed / w.prompt, w.turns > 1 and w.think > 0
        fetched = w.kept > 0 and self.tier is not None
        return PrefixFigures(
            hit_rate=w.hit - conversation_share * lost,
            hit_offloaded=conversation_share * second,
            kept_prefixes=self.first(running) if w.kept else nothing,
            offloaded_prefixes=self.second if fetched else nothing,
            waiting_prefixes=idle_conversations(state.rate, w.think, w.turns) if waits else nothing,
            hit_time=self.fetch if fetched else nothing,
            recompute_time=self.recompute if w.kept else nothing,
            hit_break_even=self.break_even if w.kept else nothing,
        )
