"""Networks beyond the published format: tori, and measured collectives."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache
from math import isqrt, prod
from typing import Any

import numpy as np

from calculon.base.arrays import is_nonzero
from calculon.base.errors import Problem
from calculon.base.frozen import dataclass
from calculon.base.units import GIGA, Array, Count, Fraction, Seconds
from calculon.declarations.fields import Declaration, declare, shown
from calculon.hardware.curve import decode_rows, rows_schema

# Torus networks: every processor has links only to its neighbors on each axis.

MAX_AXES = 6
"""Largest number of torus axes; machines have two or three, the Fugaku computer six."""

_SIDE = Declaration(help="processors along an axis", at_least=2)

Block = tuple[int, ...]
"""Processors of a group along each axis."""

Links = tuple[int, ...]
"""Links per processor that a group uses on each axis."""


class Sides(tuple[int, ...]):
    """Processors along each axis of a torus."""

    __slots__ = ()

    @classmethod
    def decode(
        cls, raw: object, path: str, problems: list[Problem], scale: float
    ) -> "Sides | None":
        """Decode a list of one to :data:`MAX_AXES` whole numbers."""
        if not isinstance(raw, (list, tuple)) or not 1 <= len(raw) <= MAX_AXES:
            wanted = f"a list of the processors along each of 1 to {MAX_AXES} axes"
            problems.append(Problem(path, wanted, shown(raw)))
            return None
        before = len(problems)
        for i, side in enumerate(raw):
            if problem := _SIDE.problem(int, side, f"{path}[{i}]"):
                problems.append(problem)
        return None if len(problems) > before else cls(raw)

    @classmethod
    def schema(cls) -> dict[str, Any]:
        """Return the JSON Schema of the raw list."""
        return {"type": "array", "minItems": 1, "maxItems": MAX_AXES, "items": _SIDE.schema(int)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Torus:
    r"""Torus network: rings along each axis, whose links have equal shares of the bandwidth of a processor.

    A group of n is assumed to be a block of :math:`m_1 \cdot m_2 \cdots = n` that is as compact as the torus allows,
    like a slice. On an axis with a closed ring it uses both links of a processor, otherwise one link per direction:
    half the rate. A ring is closed if the block spans the full side, or, if optical switches join cubes, on every axis
    if all sides of the block are multiples of the cube. Blocks interleaved with other groups cannot close rings over
    the switches, since the groups share the closing links. A number of processors that forms no block is a line: one
    link of each.

    Source: Austin et al., *How to Scale Your Model*, 2025, part 2, "TPU Networking"; Jouppi et al., *TPU v4*, ISCA
    2023, arXiv:2304.01433, section 2.
    """

    sides: Sides = declare(
        "processors along each axis; their product is at least the size of the network"
    )
    cube: int = declare(
        "side of the cubes that optical switches join: rings of a block close if all its sides are multiples of it; if "
        "absent, only full sides close",
        at_least=2,
        default=0,
    )

    @property
    def size(self) -> int:
        """Number of processors of the torus."""
        return prod(self.sides)

    def share(self, ranks: Count, alone: Array | bool = True) -> Fraction:
        """Return the share of a processor's bandwidth that rings in groups of given sizes use.

        `alone` marks groups of adjacent processors. Every axis carries a part of the data, so rings run at the combined
        rate of all links of the group.

        Source: as for the class, part 3, "AllGather": bandwidths of several axes add up.
        """
        k = len(self.sides)
        return self._of_blocks(ranks, alone, lambda block, links: sum(links) / (2 * k) or 1.0)

    def exchange_share(self, ranks: Count, alone: Array | bool = True) -> Fraction:
        r"""Return the share of the bandwidth in an all-to-all; each processor sends :math:`S (n - 1) / n` bytes.

        Half of the data of each of `m` processors in a row passes its middle: :math:`\lfloor m^2 / 4 \rfloor S / m`
        over one link, or over two if the row is a ring. The slowest axis decides.

        Source: Dally and Towles, *Principles and Practices of Interconnection Networks*, 2004, section 3.3.1
        (bisection); part 3 of the class's source, "AllToAll", has the same for a ring.
        """

        def share(block: Block, links: Links) -> float:
            pairs = zip(block, links, strict=True)
            slowest = max((m * m // 4 / m / count for m, count in pairs if m > 1), default=1.0)
            n = prod(block)
            return (n - 1) / n / (2 * len(self.sides) * slowest) if n > 1 else 1.0

        return self._of_blocks(ranks, alone, share)

    def hops(self, ranks: Count, alone: Array | bool = True) -> Count:
        """Return the hops to the farthest processor of groups of given sizes: the steps of a collective."""

        def hops(block: Block, links: Links) -> float:
            pairs = zip(block, links, strict=True)
            return sum(m // 2 if count == 2 else m - 1 for m, count in pairs)

        return self._of_blocks(ranks, alone, hops)

    def _links(self, block: Block, *, alone: bool) -> Links:
        """Return the links per processor that a block uses on each axis."""
        if len(block) < len(self.sides):  # a line
            return (1,)
        cubes = alone and self.cube > 0 and all(m % self.cube == 0 for m in block)
        rings = [cubes or (m == side > 2) for m, side in zip(block, self.sides, strict=True)]
        return tuple(0 if m == 1 else 1 + ring for m, ring in zip(block, rings, strict=True))

    def _of_blocks(
        self, ranks: Count, alone: Array | bool, value: Callable[[Block, Links], float]
    ) -> Array:
        """Return a quantity of the block and links of each group; same shape as `ranks` and `alone`."""
        ranks = np.asarray(ranks)
        # Few group sizes are distinct, and finding a block is slow.
        found, where = np.unique(ranks, return_inverse=True)
        blocks = [_block(self.sides, int(n)) for n in found]
        of_each = [
            np.array([value(block, self._links(block, alone=alone)) for block in blocks])
            for alone in (False, True)
        ]
        apart, together = (values[where].reshape(ranks.shape) for values in of_each)
        return np.where(alone, together, apart)


@lru_cache(maxsize=1 << 16)
def _block(sides: tuple[int, ...], ranks: int) -> Block:
    """Return the most compact block, preferring more whole sides; a line is a single side."""

    def order(block: Block) -> tuple[int, int]:
        full = sum(m == side for m, side in zip(block, sides, strict=True))
        return sum(block), -full

    return min(_blocks(sides, ranks), key=order, default=(ranks,))


def _blocks(sides: tuple[int, ...], ranks: int) -> Iterator[Block]:
    """Yield every block with a given number of processors."""
    if not sides:
        if ranks == 1:
            yield ()
        return
    for m in _divisors(ranks):
        if m <= sides[0]:
            for rest in _blocks(sides[1:], ranks // m):
                yield (m, *rest)


@lru_cache(maxsize=1 << 16)
def _divisors(number: int) -> tuple[int, ...]:
    """Return the divisors of a number."""
    small = [n for n in range(1, isqrt(number) + 1) if number % n == 0]
    return tuple({n: None for one in small for n in (one, number // one)})


# Switches of a network: the links above them are shared by the groups that cross them at the same time.


@dataclass(frozen=True, slots=True, kw_only=True)
class Uplink:
    """Links from a switch of a network to its other switches, such as those between the sockets of a PCIe server."""

    processors: int = declare(
        "processors below one switch; groups inside do not use its uplink", at_least=1
    )
    bandwidth: float = declare(
        "achieved bandwidth of the uplink in each direction, which all groups that cross it at the same time share",
        unit="GB/s",
        scale=GIGA,
        above=0,
    )


# Measured times of collectives, by operation and group size.

MEASURABLE = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all", "p2p")
"""Operations whose measurements a system file can state."""

_RANKS = Declaration(help="members of the group", at_least=2)
_SHARE = Declaration(
    help="bus bandwidth of large messages, as a share of the bandwidth of a port",
    above=0,
    at_most=2,
)
_RAMP = Declaration(help="ramp of messages to the full rate", unit="s", at_least=0)


@dataclass(frozen=True, slots=True)
class GroupRates:
    """Measured rates of an operation by group size.

    Attributes:
        ranks: Group sizes, ascending.
        shares: Bus bandwidth of large messages as a share of the port bandwidth; above 1 if switches reduce.
        ramps: Ramp to that rate in seconds, as in :class:`~calculon.hardware.network.Fabric`.
    """

    ranks: tuple[float, ...]
    shares: tuple[float, ...]
    ramps: tuple[float, ...]

    def share(self, ranks: Count) -> Fraction:
        """Return the share of the bandwidth by group size, interpolated in the logarithm of the size."""
        return np.interp(np.log2(ranks), np.log2(self.ranks), self.shares)

    def ramp(self, ranks: Count) -> Seconds:
        """Return the ramp by group size, interpolated as in :meth:`share`."""
        return np.interp(np.log2(ranks), np.log2(self.ranks), self.ramps)

    @classmethod
    def decode(
        cls, raw: object, path: str, problems: list[Problem], scale: float
    ) -> "GroupRates | None":
        """Decode ``[[ranks, share, ramp], ...]``, with strictly rising ranks."""
        rows = decode_rows(raw, path, problems, "row [ranks, share, ramp]", (_RANKS, _SHARE, _RAMP))
        if rows is None:
            return None
        for i in range(1, len(rows)):
            if rows[i][0] <= rows[i - 1][0]:
                wanted = f"more ranks than in the row before ({rows[i - 1][0]:g})"
                problems.append(Problem(f"{path}[{i}][0]", wanted, f"{rows[i][0]:g}"))
        return cls(*zip(*rows, strict=True))

    @classmethod
    def schema(cls) -> dict[str, Any]:
        """Return the JSON Schema of the raw list."""
        return rows_schema(_RANKS, _SHARE, _RAMP)


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveLaw:
    """Measured law of one operation in a group on one network."""

    latency: float = declare("latency of the smallest message", unit="s", at_least=0)
    rank_latency: float = declare(
        "latency added per rank, except one", unit="s", at_least=0, default=0.0
    )
    rates: GroupRates = declare(
        "rates by group size: [ranks, bus bandwidth of large messages relative to a port's, ramp in s], "
        "rising; interpolated in the logarithm of the ranks"
    )

    long_step: float = declare(
        "time of a ring step at the full bandwidth of a port from which on each step takes at least `least_step`",
        unit="s",
        at_least=0,
        default=0.0,
    )
    least_step: float = declare(
        "least time of a ring step of long messages, which another protocol moves in larger pieces",
        unit="s",
        at_least=0,
        default=0.0,
    )
    ring_ranks: int = declare(
        "largest group with such ring steps; if absent, all: switches reduce in larger groups",
        at_least=2,
        default=0,
    )

    @property
    def largest(self) -> float:
        """Largest measured group size."""
        return self.rates.ranks[-1]

    def time(self, wire: Seconds, ranks: Count) -> Seconds:
        r"""Return the time of an operation whose busiest link needs `wire` seconds at the full bandwidth of a port.

        .. math:: t = \alpha + (n - 1) \alpha_n + m + 2 \sqrt{\rho_n m}, \quad m = w / e_n

        The time rises with the bytes and falls with the bandwidth. Long messages take at least their `n - 1` steps;
        near equality it is the cube root of the sum of cubes. A step of an all-reduce is a step of its reduce-scatter
        and a step of its all-gather.

        Source: Hockney's model with the ramp of :meth:`~calculon.hardware.network.Fabric.moving`; bus bandwidth as in
        nccl-tests, doc/PERFORMANCE.md.
        """
        moved = wire / self.rates.share(ranks)
        start = self.latency + (ranks - 1) * self.rank_latency
        time = start + moved + 2 * np.sqrt(self.rates.ramp(ranks) * moved)
        if not is_nonzero(self.least_step):
            return time
        steps = (ranks - 1) * (wire >= (ranks - 1) * self.long_step)
        if self.ring_ranks > 0:
            steps = steps * (ranks <= self.ring_ranks)
        return np.cbrt(time**3 + (steps * self.least_step) ** 3)

    def slowed(self, factor: float) -> "CollectiveLaw":
        """Return the law with all times multiplied by `factor`; rates follow the bandwidth."""
        rates = replace(self.rates, ramps=tuple(ramp * factor for ramp in self.rates.ramps))
        latencies = {
            name: getattr(self, name) * factor for name in ("latency", "rank_latency", "least_step")
        }
        return replace(self, rates=rates, **latencies)
