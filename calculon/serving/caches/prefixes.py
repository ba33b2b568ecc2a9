r"""Prefix caching between requests: in tier 1 next to running sequences, offloaded to tier 2, or dropped.

Conversations keep their KV cache while they wait for their next turn. In a cache for `C` conversations with
least-recently-used eviction, a conversation is still present if its user thinks for less than a time `T` (Che et al.,
*Hierarchical Web caching systems*, IEEE JSAC 20(7), 2002). Of :math:`\lambda` requests per second, a share `1/n` ends
its conversation and is never used again, and the others wait for an exponential time of mean `z`; the mean content of
the cache is

.. math:: C = \lambda z \left( \frac{n - 1}{n} (1 - e^{-T/z}) + \frac{1}{n} \frac{T}{z} \right)

and a share ``1 - exp(-T/z)`` of the hits remains.
"""

from typing import NamedTuple

import numpy as np

from calculon.base.errors import Problem, SpecError
from calculon.base.frozen import dataclass
from calculon.base.units import Array, Bytes, Count, Fraction, Seconds
from calculon.hardware.system import System

NO_TIER, HOST, DISK = "none", "host", "disk"
OFFLOADS = {
    NO_TIER: "prefixes that do not fit into memory are computed again",
    HOST: "host memory",
    DISK: "the disk stated in ext.serving.disk of the system",
}
"""Destinations of cached prefixes that do not fit into tier 1."""


@dataclass(frozen=True, slots=True)
class SecondTier:
    """Storage of a system for evicted KV caches.

    Attributes:
        system: The machine.
        place: ``host`` or ``disk``.
    """

    system: System
    place: str

    def __post_init__(self) -> None:
        """Check that the system has this storage.

        Raises:
            SpecError: If it does not.
        """
        if self.capacity > 0:
            return
        name = self.system.name
        if self.place == DISK:
            hint = f"{name} states no ext.serving.disk (GiB and GBps per processor)"
        else:
            hint = f"{name} has no host memory (mem2)"
        raise SpecError("deployment", Problem("cache_offload", NO_TIER, self.place, hint))

    @property
    def capacity(self) -> float:
        """Bytes per processor."""
        disk = self.system.ext.serving.disk
        if self.place == DISK:
            return 0.0 if disk is None else disk.capacity
        return self.system.usable[1]

    def time(self, size: Bytes, processors: Count) -> Seconds:
        """Return the time in which each of several processors of a replica fetches a number of bytes.

        The processors of a node share its memory, as stated in ``ext.host``.
        """
        disk, host = self.system.ext.serving.disk, self.system.ext.host
        if self.place == DISK and disk is not None:
            return np.asarray(size / disk.bandwidth)
        alone = self.system.mem2.time(size)
        return alone if host is None else np.maximum(alone, host.time(size, processors))


class HitLocations(NamedTuple):
    """Location of the prefixes of requests: shares in tier 1, in tier 2 and lost, which sum to 1."""

    first: Fraction
    second: Fraction
    lost: Fraction


def idle_conversations(rate: Array, think: float, turns: int) -> Count:
    """Return the number of conversations that wait for their next turn, by Little's law.

    >>> idle_conversations(np.array([2.0]), 30.0, 4).tolist()
    [45.0]
    """
    # the last turn of a conversation is followed by no wait
    return rate * think * ((turns - 1) / turns)


def kept_share(capacity: Count, rate: Array, think: float, turns: int) -> Fraction:
    """Return the share of the hits that a cache keeps.

    Args:
        capacity: Number of conversations that fit.
        rate: Requests per second.
        think: Mean time between turns.
        turns: Requests per conversation, at least 2.
    """
    # a rate of 0 asks for nothing: any capacity is then plenty
    asked = np.maximum(rate * think, 1e-300)
    wanted = np.maximum(capacity, 0.0) / asked
    low, high = np.zeros_like(wanted), turns * wanted
    # bisection of T/z; its second term alone is at most C, which gives the upper bound n C / (λ z)
    for _ in range(60):
        middle = (low + high) / 2
        held = -np.expm1(-middle) * (turns - 1) / turns + middle / turns
        low, high = np.where(held < wanted, middle, low), np.where(held < wanted, high, middle)
    return np.asarray(-np.expm1(-low))


def hit_locations(
    first: Count, second: Count, rate: Array, think: float, turns: int
) -> HitLocations:
    """Return the location of the hits of conversations: tier 1 evicts into tier 2, and tier 2 drops.

    Args:
        first, second: Number of conversations that fit into each tier.
        rate, think, turns: As in :func:`kept_share`.
    """
    near = kept_share(first, rate, think, turns)
    # bisection may return a share that is smaller by rounding although the cache is larger
    both = np.maximum(near, kept_share(first + second, rate, think, turns))
    return HitLocations(near, both - near, 1 - both)


def overlapped_fetch(busy: Seconds, fetch: Seconds, decoding: Seconds) -> Seconds:
    """Return the time that a request occupies a replica that fetches prefixes in parallel with its passes.

    Prefixes are fetched while other requests are computed, so fetching limits the rate only if it takes longer than a
    request: ``1 / x = max(busy + decoding, fetch)``.

    Args:
        busy: Time of passes spent on the prompt.
        fetch: Mean time per request that its prefix occupies the link.
        decoding: Time of its tokens: ``(o - 1) t_d / B``.
    """
    return np.maximum(busy, fetch - decoding)


def break_even(size: Bytes, recompute: Seconds) -> Array:
    """Return the bandwidth above which fetching a prefix is faster than recomputing it, in B/s per processor."""
    return np.where(recompute > 0, size / np.where(recompute > 0, recompute, 1.0), np.inf)
