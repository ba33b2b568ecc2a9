"""Pairs of prefill and decode pools: all of them, or those whose pools pass on equal rates of requests.

A pool answers requests at the rate of its replicas, and a disaggregated deployment at the lower rate of its two pools.
Both rates per replica depend on the split of that replica alone, so pools are chosen separately and sized by the ratio
of their rates; no product of all pools is solved. Source: Zhong et al., *DistServe*, arXiv 2401.09670, section 4.2.
"""

import heapq
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from calculon.base.errors import Problem, SpecError
from calculon.base.frozen import dataclass
from calculon.base.units import Array
from calculon.declarations.model import Model
from calculon.hardware.system import System
from calculon.search.deployments.deployment_vocabulary import SPLIT
from calculon.serving.passes.replica import Replica
from calculon.serving.records.deployment import Deployment
from calculon.serving.records.deployments import Deployments
from calculon.serving.records.load import Workload
from calculon.serving.states.operating_point import OperatingPointSolver

MAX_APART = 4_000_000
"""Largest number of pairs of prefill and decode pools: all are held in memory."""

PER_SIZE = 4
"""Fastest splits of a number of processors that are paired: several, as they may tie, or miss a limit together."""

MOST_PAIRS = 64
"""Pairs that are solved, highest rates first: several, as the transfer between two pools may miss the TTFT limit."""


@dataclass(frozen=True)
class Splits:
    """Splits of counts, as columns.

    Attributes:
        own (shape (fields of SPLIT, splits)): Processors of all replicas, and the split of each.
        engines: Indices of the distinct split of a replica.
        pools: Splits of prefill pools, if there are any.
        rates: Upper bounds of the requests per second, if they are known.
    """

    own: Array
    engines: Array
    pools: Array | None = None
    rates: Array | None = None

    def take(self, kept: Array) -> "Splits":
        """Return selected splits."""
        pools = None if self.pools is None else self.pools[:, kept]
        rates = None if self.rates is None else self.rates[kept]
        return Splits(self.own[:, kept], self.engines[kept], pools, rates)


def all_pairs(engines: Array, counts: Sequence[int]) -> Splits:
    """Return the splits of all counts into two pools of whole replicas.

    The order for each count: splits of prefill replicas, the number of prefill replicas, splits of decode replicas.

    Args:
        engines (shape (fields of SPLIT without the count, engines)): Distinct splits of a replica.
        counts: Numbers of processors.

    Raises:
        SpecError: For more than :data:`MAX_APART` pairs.
    """
    procs = engines[0] * engines[1]
    own, chosen, pools = [], [], []
    for count in counts:
        # Every split of a prefill replica, with 1 to `most` replicas, leaves processors for decoding.
        most = (count - 1) // procs
        pool = np.repeat(np.arange(len(procs)), most)
        replicas = np.arange(len(pool)) - np.repeat(np.cumsum(most) - most, most) + 1
        prefill = replicas * procs[pool]
        at, engine = np.nonzero((count - prefill)[:, None] % procs == 0)
        whole = [np.full(len(at), count), *engines[:, engine]]
        own.append(np.array(whole, np.int32))
        pools.append(np.array([prefill[at], *engines[:, pool[at]]], np.int32))
        chosen.append(engine)
        if sum(map(len, chosen)) > MAX_APART:
            hint = "list fewer, or fix degrees: pipeline_par=1,2,4"
            wanted = f"counts with at most {MAX_APART:,} pairs of pools"
            raise SpecError("num_procs", Problem("", wanted, f"more for {count:,}", hint))
    return Splits(
        np.concatenate(own, axis=1), np.concatenate(chosen), np.concatenate(pools, axis=1)
    )


class PoolRates(NamedTuple):
    """Largest requests per second of a replica of each split, as prefill and as decode replica; 0 if none fits."""

    prefill: Array
    decode: Array


def pool_rates(
    model: Model, system: System, workload: Workload, record: Deployment, engines: Array
) -> PoolRates:
    """Return the rates of replicas within the latency limits, each in a pool of its own.

    Args:
        model, system, workload: The question; its rate or users do not matter.
        record: Choices of a deployment with a prefill pool.
        engines: As in :func:`all_pairs`.
    """
    procs = engines[0] * engines[1]
    if not len(procs):
        return PoolRates(np.zeros(0), np.zeros(0))
    split = dict(zip(SPLIT[1:], engines, strict=True))
    # One replica of each pool: what a replica passes on does not depend on their numbers.
    pools = Deployments.of(record, {SPLIT[0]: procs, **split}, **{SPLIT[0]: 2 * procs, **split})
    replica = Replica(model, system, pools, workload.saturating)
    return PoolRates(*OperatingPointSolver(replica).pool_rates())


def matched_pairs(engines: Array, counts: Sequence[int], rates: PoolRates) -> Splits:
    """Return the pairs of pools that pass on the highest rates, at most :data:`MOST_PAIRS` for each count.

    For two splits of replicas, the rate of the prefill pool rises with its number of replicas, and the rate of the
    decode pool falls: the best number is one of the two around the point where they are equal.
    """
    found = [_of_count(engines, count, rates) for count in counts]
    own, chosen, pools, most = (np.concatenate(part, axis=-1) for part in zip(*found, strict=True))
    return Splits(own, chosen, pools, most)


def _of_count(engines: Array, count: int, rates: PoolRates) -> tuple[Array, Array, Array, Array]:
    """Return processors and splits, decode engines, prefill pools, and rates of the best pairs for a count."""
    procs = engines[0] * engines[1]
    found = sorted(_matches(procs, count, rates), key=lambda one: -one.rate)[:MOST_PAIRS]
    prefill = np.array([one.prefill for one in found], np.int64)
    decode = np.array([one.decode for one in found], np.int64)
    used = np.array([one.replicas for one in found], np.int64) * procs[prefill]
    own = np.array([np.full(len(found), count), *engines[:, decode]], np.int64)
    pools = np.array([used, *engines[:, prefill]], np.int64)
    return own, decode, pools, np.array([one.rate for one in found], float)


class _Match(NamedTuple):
    """A pair of engines with a number of prefill replicas, and its requests per second."""

    rate: float
    prefill: int
    decode: int
    replicas: int


def _matches(procs: Array, count: int, rates: PoolRates) -> Iterator[_Match]:
    """Yield pairs for a count, those with the highest bounds first, until no other can be among the best."""
    prefill, decode = (_fastest(procs, each, count) for each in rates)
    if not len(prefill) or not len(decode):
        return
    # Per processor both pools together pass on at most the rate at which neither has to be whole replicas.
    fast = (rates.prefill / procs)[prefill][:, None]
    slow = (rates.decode / procs)[decode][None, :]
    bound = count * fast * slow / (fast + slow)
    bound[(procs[prefill][:, None] + procs[decode][None, :]) > count] = 0.0
    best: list[float] = []  # a heap of the highest rates
    for place in np.argsort(-bound, axis=None, kind="stable").tolist():
        first, second = divmod(place, len(decode))
        full = len(best) >= MOST_PAIRS
        if bound[first, second] <= (best[0] if full else 0.0):
            return
        one, other = int(prefill[first]), int(decode[second])
        each = float(rates.prefill[one]), float(rates.decode[other])
        for replicas in _around(int(procs[one]), int(procs[other]), count, *each):
            rest = (count - replicas * int(procs[one])) // int(procs[other])
            rate = min(replicas * each[0], rest * each[1])
            heapq.heappush(best, rate)
            if len(best) > MOST_PAIRS:
                heapq.heappop(best)
            yield _Match(rate, one, other, replicas)


def _fastest(procs: Array, rates: Array, count: int) -> Array:
    """Return the engines of each size with the highest rates, that leave at least a processor for the other pool."""
    usable = np.flatnonzero((rates > 0) & (procs < count))
    order = usable[np.lexsort((usable, -rates[usable], procs[usable]))]
    sizes = procs[order]
    first = np.searchsorted(sizes, sizes)
    kept: Array = order[np.arange(len(order)) - first < PER_SIZE]
    return kept


def _around(size: int, other: int, count: int, rate: float, other_rate: float) -> Iterator[int]:
    """Yield the numbers of prefill replicas next to equal rates that leave whole decode replicas.

    >>> [*_around(2, 4, 16, 1.0, 1.0)], [*_around(3, 4, 16, 1.0, 1.0)], [*_around(2, 4, 15, 1.0, 1.0)]
    ([2, 4], [4], [])
    """
    common = math.gcd(size, other)
    if count % common:
        return
    step = other // common
    # The smallest number that leaves whole replicas; all others follow in steps.
    least = next(one for one in range(1, step + 1) if (count - one * size) % other == 0)
    most = (count - other) // size
    if least > most:
        return
    most -= (most - least) % step
    equal = count * other_rate / other / (rate + size * other_rate / other)
    below = least + math.floor((equal - least) / step) * step
    yield from dict.fromkeys(min(max(one, least), most) for one in (below, below + step))
