r"""Prefixes that caches keep between requests: in tier 1 beside the sequences at hand, in tier 2, or not at all.

Conversations wait for their next turn with what they have cached. In a cache of room for `C` of them, from which the
least recently used goes first, one is still there if its user thinks for less than a time `T` (Che et al.,
*Hierarchical Web caching systems*, IEEE JSAC 20(7), 2002). Of :math:`\lambda` requests in a second a share `1/n` ends
its conversation and is never asked for, and the others wait for an exponential time of mean `z`; what is in the cache
on average is

.. math:: C = \lambda z \left( \frac{n - 1}{n} (1 - e^{-T/z}) + \frac{1}{n} \frac{T}{z} \right)

and ``1 - exp(-T/z)`` of the hits remain.
"""

from typing import NamedTuple

import numpy as np

from calculon.base.errors import Problem, SpecError
from calculon.base.frozen import dataclass
from calculon.base.units import Array, Bytes, Count, Fraction, Seconds
from calculon.hardware.system import System

NO_TIER, HOST, DISK = "none", "host", "disk"
OFFLOADS = {
    NO_TIER: "what tier 1 has no room for is computed again",
    HOST: "into tier-2 memory",
    DISK: "onto the disk that ext.serving.disk of the system states",
}
"""Places of cached prefixes that tier 1 has no room for."""


@dataclass(frozen=True, slots=True)
class SecondTier:
    """Where a system keeps what caches evict.

    Attributes:
        system: The machine.
        place: ``host`` or ``disk``.
    """

    system: System
    place: str

    def __post_init__(self) -> None:
        """Raise SpecError where the system has no such place."""
        if self.capacity > 0:
            return
        name = self.system.name
        if self.place == DISK:
            hint = f"{name} states no ext.serving.disk: GiB and GBps of each processor"
        else:
            hint = f"{name} has no memory in tier 2 (mem2)"
        raise SpecError("deployment", Problem("cache_offload", NO_TIER, self.place, hint))

    @property
    def capacity(self) -> float:
        """Bytes for each processor."""
        disk = self.system.ext.serving.disk
        if self.place == DISK:
            return 0.0 if disk is None else disk.capacity
        return self.system.usable[1]

    def time(self, size: Bytes, processors: Count) -> Seconds:
        """Return the time in which each of some processors of a replica fetches so many bytes.

        The memory of a node is shared by its processors, as ``ext.host`` says.
        """
        disk, host = self.system.ext.serving.disk, self.system.ext.host
        if self.place == DISK and disk is not None:
            return np.asarray(size / disk.bandwidth)
        own = self.system.mem2.time(size)
        return own if host is None else np.maximum(own, host.time(size, processors))


class HitPlaces(NamedTuple):
    """Where prefixes are that requests have cached: shares that sum up to 1."""

    first: Fraction
    second: Fraction
    lost: Fraction


def idle_conversations(rate: Array, think: float, turns: int) -> Count:
    """Return the conversations that wait for their next turn, by Little's law; all but the last turn have one.

    >>> idle_conversations(np.array([2.0]), 30.0, 4).tolist()
    [45.0]
    """
    return rate * think * ((turns - 1) / turns)


def kept_share(room: Count, rate: Array, think: float, turns: int) -> Fraction:
    """Return the share of the hits that a cache keeps.

    Args:
        room: Conversations that fit.
        rate: Requests per second.
        think: Mean time between turns.
        turns: Requests of a conversation, 2 at least.
    """
    asked = np.maximum(rate * think, 1e-300)
    wanted = np.maximum(room, 0.0) / asked
    low, high = np.zeros_like(wanted), turns * wanted
    for _ in range(60):  # of T / z, whose part 1/n alone is at most C
        middle = (low + high) / 2
        held = -np.expm1(-middle) * (turns - 1) / turns + middle / turns
        low, high = np.where(held < wanted, middle, low), np.where(held < wanted, high, middle)
    return np.asarray(-np.expm1(-low))


def hit_places(first: Count, second: Count, rate: Array, think: float, turns: int) -> HitPlaces:
    """Return where the hits of conversations are: what tier 1 evicts goes into tier 2, and is lost beyond both.

    Args:
        first, second: Conversations for which the tiers have room.
        rate, think, turns: As in :func:`kept_share`.
    """
    near = kept_share(first, rate, think, turns)
    both = np.maximum(near, kept_share(first + second, rate, think, turns))
    return HitPlaces(near, both - near, 1 - both)


def fetched_beside(busy: Seconds, fetch: Seconds, decoding: Seconds) -> Seconds:
    """Return the time that a request takes of a replica which fetches prefixes beside its passes.

    Fetching goes on while others are computed, and bounds the rate only where it takes longer than a request does:
    ``1 / x = max(busy + decoding, fetch)``.

    Args:
        busy: Time that the prompt takes of passes.
        fetch: Time that its prefix takes of the link, on average over requests.
        decoding: Time of its tokens: ``(o - 1) t_d / B``.
    """
    return np.maximum(busy, fetch - decoding)


def break_even(size: Bytes, recompute: Seconds) -> Array:
    """Return the bandwidth from which a prefix is fetched sooner than computed again, in B/s for each processor."""
    return np.where(recompute > 0, size / np.where(recompute > 0, recompute, 1.0), np.inf)
