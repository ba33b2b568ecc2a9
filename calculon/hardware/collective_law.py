"""Measured collective times of a system, by operation and group size."""

from dataclasses import replace
from typing import Any

import numpy as np

from calculon.base.errors import Problem
from calculon.base.frozen import dataclass
from calculon.base.units import Count, Fraction, Seconds
from calculon.declarations.fields import Declaration, declare
from calculon.hardware.curve import decode_rows, rows_schema

MEASURABLE = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all", "p2p")
"""Operations for which a system file can state measurements."""

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
        """Return the share of the bandwidth for some group sizes, interpolated in their logarithm."""
        return np.interp(np.log2(ranks), np.log2(self.ranks), self.shares)

    def ramp(self, ranks: Count) -> Seconds:
        """Return the ramp for some group sizes, interpolated as in :meth:`share`."""
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
    """The time of one operation in a group on one network, as measured."""

    latency: float = declare("latency of the smallest message", unit="s", at_least=0)
    rank_latency: float = declare(
        "what each rank but one adds to it", unit="s", at_least=0, default=0.0
    )
    rates: GroupRates = declare(
        "rates by group size: [ranks, bus bandwidth of large messages as a share of that of a port, ramp in s], "
        "rising; in between by the logarithm of the ranks"
    )

    @property
    def largest(self) -> float:
        """Largest measured group size."""
        return self.rates.ranks[-1]

    def time(self, wire: Seconds, ranks: Count) -> Seconds:
        r"""Return the time of an operation whose busiest link needs n seconds at the full bandwidth of a port.

        .. math:: t = \alpha + (n - 1) \alpha_n + m + 2 \sqrt{\rho_n m}, \quad m = w / e_n

        The time rises with the bytes and falls with the bandwidth.

        Source: Hockney's model with the ramp of :meth:`~calculon.hardware.network.Fabric.moving`; bus bandwidth as in
        nccl-tests, doc/PERFORMANCE.md.
        """
        moved = wire / self.rates.share(ranks)
        start = self.latency + (ranks - 1) * self.rank_latency
        return start + moved + 2 * np.sqrt(self.rates.ramp(ranks) * moved)

    def slowed(self, factor: float) -> "CollectiveLaw":
        """Return the law with all its times multiplied by `factor`; rates follow the bandwidth."""
        rates = replace(self.rates, ramps=tuple(ramp * factor for ramp in self.rates.ramps))
        latencies = {"latency": self.latency * factor, "rank_latency": self.rank_latency * factor}
        return replace(self, rates=rates, **latencies)
