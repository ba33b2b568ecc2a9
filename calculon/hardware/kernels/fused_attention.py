"""The law ``fused``: time of fused attention by kernel, pass, head width, keys and work per multiprocessor."""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from calculon.base.errors import Problem
from calculon.base.frozen import dataclass
from calculon.base.units import Array, Count, Flops, Seconds
from calculon.declarations.fields import Declaration, declare
from calculon.declarations.named_values import ATTENTION_KERNELS
from calculon.hardware.curve import decode_rows, rows_schema
from calculon.hardware.kernels.kernel import LONGEST_START, Shapes, Times
from calculon.hardware.processor import Engine, Memory

QUERY_TILE = 128
"""Queries of a head that a multiprocessor processes at a time."""

EXACT = ("cudnn",)
"""Kernels that support values narrower than queries and keys; others pad them. Source: cuDNN frontend, *Attention*."""

_WIDE, _BESIDE = (128, 192), 128
"""Query widths for which the Hopper kernel uses this value width.

Source: Dao-AILab/flash-attention, ``hopper/flash_api.cpp``: (192, 128), the heads of DeepSeek.
"""

_WIDTH = Declaration(help="elements of a head", unit="elements", above=0)
_SHARE = Declaration(help="share of the peak with many keys", above=0, at_most=1)
_ROW = (_WIDTH, _SHARE)


class HeadWidths(NamedTuple):
    """Head widths that a kernel computes, for queries and keys and for values, and the requested `mean`."""

    keys: Count
    values: Count
    mean: Count

    @classmethod
    def of(cls, name: str, keys: Count, values: Count) -> "HeadWidths":
        """Return the head widths of a kernel: most have one width, and pad the narrower side with zeros."""
        mean = (keys + values) / 2
        if name in EXACT:
            return cls(keys, values, mean)
        widest = np.maximum(keys, values)
        if name == "flash3":
            beside = (keys > _WIDE[0]) & (keys <= _WIDE[1]) & (values <= _BESIDE)
            return cls(widest, np.where(beside, float(_BESIDE), widest), mean)
        return cls(widest, widest, mean)


@dataclass(frozen=True, slots=True)
class Widths:
    """Shares of the peak by head width, as the time of a query and a key in multiplications and additions at the peak.

    Between two widths the time is on a line. A head narrower than the narrowest takes as long as that, as it is filled
    up in the kernel; one wider than the widest has its share.
    """

    widths: tuple[float, ...]
    costs: tuple[float, ...]

    @classmethod
    def decode(cls, raw: object, path: str, problems: list[Problem], scale: float) -> Any:
        """Decode ``[[width, share], ...]``, rising, without a wider head that is faster."""
        found = decode_rows(raw, path, problems, "pair [width, share]", _ROW)
        if found is None:
            return None
        widths = tuple(width for width, _ in found)
        costs = tuple(width / share for width, share in found)
        for i in range(1, len(found)):
            if widths[i] <= widths[i - 1]:
                wanted = f"more than the {widths[i - 1]:g} before"
                problems.append(Problem(f"{path}[{i}][0]", wanted, f"{widths[i]:g}"))
            elif costs[i] < costs[i - 1]:
                most = widths[i] / costs[i - 1]
                wanted = f"at most {most:.4g}, as wider heads take no less time"
                problems.append(Problem(f"{path}[{i}][1]", wanted, f"{found[i][1]:g}"))
        return cls(widths, costs)

    @classmethod
    def schema(cls) -> dict[str, Any]:
        """Return the JSON Schema of the raw list."""
        return rows_schema(*_ROW)

    def cost(self, width: Count) -> Count:
        """Return the multiply-adds at peak rate that cost as much as one query and key of a head."""
        beyond = np.maximum(width / self.widths[-1], 1.0)
        cost: Count = np.interp(width, self.widths, self.costs) * beyond
        return cost


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionPass:
    """The forward or the backward pass of a kernel."""

    shares: Widths = declare(
        "share of the peak with many keys by head width: [width, share], rising; the time between is on a line"
    )
    lead: float = declare(
        "keys that begin and end of a tile of queries are worth: with as many half of the share is left",
        unit="tokens",
        at_least=0,
    )
    causal_lead: float = declare(
        "the same under a causal mask beside `lead`: tiles on the diagonal are computed whole, and others differ",
        unit="tokens",
        at_least=0,
        default=0.0,
    )
    fills_values: bool = declare(
        "values narrower than queries and keys take as long as if they were as wide, also in a kernel that knows them",
        default=False,
    )

    def time(
        self, flops: Flops, widths: HeadWidths, keys: Count, causal: Array, peak: float
    ) -> Seconds:
        """Return the arithmetic time if every multiprocessor has many tiles.

        Half of it is query-key products and half value products, each at the rate of its width.
        """
        lead = self.lead + self.causal_lead * causal
        values = np.maximum(widths.keys, widths.values) if self.fills_values else widths.values
        cost = (self.shares.cost(widths.keys) + self.shares.cost(values)) / 2
        found: Seconds = flops * (cost / widths.mean) * (1 + lead / keys) / peak
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionKernel:
    """A kernel of fused attention by one name."""

    forward: AttentionPass = declare("the forward pass")
    backward: AttentionPass = declare("the backward pass")
    tail: float = declare(
        "tiles of every multiprocessor that unequal tiles, and the last of them, cost beside the work",
        at_least=0,
    )
    start: float = declare(
        "time of a pass beside its tiles", unit="s", at_least=0, at_most=LONGEST_START
    )
    sustained: float = declare(
        "rate in continuous work beside that of short calls, as the clock falls with the power",
        above=0,
        at_most=1,
        default=1.0,
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FusedAttention:
    """How fast fused attention runs in one type, for each kernel that there is.

    A pass over `r` queries of all heads, `k` keys each, of width `d` takes ::

        (start + flops / (peak share(d)) (1 + (lead + causal_lead) / k) (1 + tail / w)) / sustained

    with the tiles of a multiprocessor ``w = r / (128 multiprocessors)``. FLOP are 4 d for each query and key forward
    and 2.5 times that backward, so that more queries, heads, keys or sequences always take more time. Where values are
    narrower than queries and keys, d is the mean of both widths, and ``d / share(d)`` that of both that the kernel
    computes (:class:`HeadWidths`); measured kernels say at most whether a pass fills values up. Tier-1 traffic
    of queries, keys, values and results adds to it as the system's mode says.

    All of it is multiplied by `slowness`, which no file states: see :meth:`slowed`.

    Source: tiles of queries are spread over the multiprocessors, and tiles beyond the diagonal are left out: Dao,
    *FlashAttention-2*, arXiv 2307.08691, sections 3.1 and 3.2; shares of the peak that grow with keys and head width:
    its figures 4 to 7, and Shah et al., *FlashAttention-3*, arXiv 2407.08608, figures 5 and 6.
    """

    default: str = declare(
        "the kernel that runs unless an execution names one", choices=ATTENTION_KERNELS
    )
    multiprocessors: int = declare("multiprocessors over which tiles are spread", at_least=1)
    kernels: dict[str, AttentionKernel] = declare(
        "constants of each kernel that there is, by name", choices=ATTENTION_KERNELS
    )
    slowness: float = 1.0

    def wrong(self, path: str) -> list[Problem]:
        """Return inconsistencies between the kernels."""
        if self.default in self.kernels:
            return []
        names = ", ".join(self.kernels)
        return [Problem(f"{path}.default", f"one of its kernels: {names}", repr(self.default))]

    def running(self, name: str) -> "FusedAttention":
        """Return the rate with another kernel; the default if there is no kernel of that name."""
        return replace(self, default=name) if name in self.kernels else self

    def times(self, shapes: Shapes, engine: Engine, memory: Memory, element_bytes: float) -> Times:
        """Return the arithmetic time of layers: see :meth:`~calculon.hardware.kernels.kernel.Rate.times`."""
        kernel = self.kernels[self.default]
        flops, keys = shapes.flops(), shapes.keys()
        width = HeadWidths.of(self.default, shapes.head_widths(), shapes.value_widths())
        causal, peak = shapes.causal(), engine.peak
        waves = flops[0] / (4 * keys * width.mean * (QUERY_TILE * self.multiprocessors))
        times = np.stack(
            [
                kernel.forward.time(flops[0], width, keys, causal, peak),
                kernel.backward.time(flops[1], width, keys, causal, peak),
                np.zeros_like(flops[2]),
            ]
        )
        last = np.divide(kernel.tail, waves, out=np.zeros_like(waves), where=waves > 0)
        times = times * (1 + last) + kernel.start * (times > 0)
        return times * (self.slowness / kernel.sustained), None

    def slowed(self, factor: float, start: float, end: float) -> "FusedAttention":
        """Return the rate of kernels that take `factor` times as long; a spread of small operations changes nothing."""
        if end < np.inf:
            return self
        return replace(self, slowness=self.slowness * factor)

    @property
    def follows_engine(self) -> bool:
        """Whether times are in shares of the engine's peak."""
        return True
