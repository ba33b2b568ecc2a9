"""The hardware: rates that depend on the size of an operation, and networks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from calculon.frozen import dataclass

from .errors import Rejected

Curve = Sequence[tuple[float, float]]
"""Pairs of threshold and efficiency, in the order of the file: falling thresholds."""


def efficiency_at(curve: Curve, amount: float) -> float:
    """Return the efficiency of the first threshold that an amount reaches."""
    for threshold, efficiency in curve:
        if threshold <= amount:
            return efficiency
    raise Rejected(20, f"no efficiency is given for the size {amount}")


@dataclass(frozen=True)
class Resource:
    """An engine (amounts in FLOP) or a memory (amounts in bytes) with its efficiency curve."""

    peak: float  # per second
    curve: Curve
    capacity: float = 0  # bytes, memories only

    def time(self, amount: float) -> float:
        """Seconds for `amount`."""
        return amount / (self.peak * efficiency_at(self.curve, amount))


def _engine(file: Mapping[str, Any]) -> Resource:
    curve = [(gflops * 1e9, efficiency) for gflops, efficiency in file["gflops_efficiency"]]
    return Resource(file["tflops"] * 1e12, curve)


def _memory(file: Mapping[str, Any]) -> Resource:
    curve = [(megabytes * 1e6, efficiency) for megabytes, efficiency in file["MB_efficiency"]]
    return Resource(file["GBps"] * 1e9, curve, file["GiB"] * 2**30)


TILES = ((256, 128, 1.0), (128, 256, 1.0), (128, 128, 0.96), (128, 64, 0.85), (64, 64, 0.7))
"""Rows, columns and relative speed of the kernels that a library has."""


@dataclass(frozen=True)
class Gemm:
    """The rate of matrix products by their shape (NVIDIA, DU-09799, section 3)."""

    max_efficiency: float
    multiprocessors: int
    half_depth: float = 64.0
    alignment: Curve | None = None
    tiles: Sequence[Sequence[float]] = TILES

    def efficiency(
        self, batch: float, rows: int, columns: int, depth: int, aligned: float
    ) -> float:
        """Return the share of the peak of the best tile, whose result may be split along the depth."""
        best = 0.0
        for height, width, speed in self.tiles:
            tiles = batch * math.ceil(rows / height) * math.ceil(columns / width)
            useful = batch * rows * columns / (tiles * height * width)
            spare = self.multiprocessors // tiles  # multiprocessors for each tile
            longest = depth // max(1, 4 * self.half_depth)  # parts that are deep enough
            for parts in {1, max(1, min(spare, longest))}:
                waves = tiles * parts / self.multiprocessors
                busy = waves / math.ceil(waves)
                embedding_head = (depth / parts) / (depth / parts + self.half_depth)
                best = max(best, speed * useful * busy * embedding_head)
        if self.alignment is not None:
            best *= efficiency_at(self.alignment, aligned)
        return self.max_efficiency * best

    def efficiencies(
        self, batch: float, m: int, n: int, k: int, size: int
    ) -> tuple[float, float, float]:
        """Return those of (m x n)(n x k), of the gradient of its first and of its second operand."""
        aligned = size
        while n % (2 * aligned // size) == 0 and k % (2 * aligned // size) == 0:
            aligned *= 2
        return (
            self.efficiency(batch, m, k, n, aligned),
            self.efficiency(batch, m, n, k, aligned),
            self.efficiency(batch, n, k, m, aligned),
        )


HOPS = {"nvlink": 3.4e-6, "pcie": 5.7e-6, "net": 14e-6}
"""Seconds of a step by kind of link."""


@dataclass(frozen=True)
class Network:
    """One network; `ops` maps an operation to its scalar and offset (null for p2p)."""

    bandwidth: float  # GB/s
    efficiency: float
    size: int  # endpoints
    latency: float  # s
    ops: Mapping[str, tuple[float, float | None]]
    must_be_filled: bool
    processor_usage: float  # fraction of the compute lost while communicating
    step_latency: float  # s, of one step of a ring
    ramp: float  # s, of a pipeline that the best number of segments goes through
    kind: str | None = None  # of its links
    own_latency: bool = True  # the latency is not that of the kind of its links
    reduces: bool = False  # in its switches
    least: float = 0.0  # s, that no operation goes below

    def moving(self, volume: float) -> float:
        """Seconds to move so many bytes per endpoint."""
        wire = volume / (self.bandwidth * 1e9 * self.efficiency)
        return wire + (2 * math.sqrt(self.ramp * wire) if wire > 0 else 0)

    def volume(self, op: str, size: float, peers: int) -> float:
        """Bytes that an operation moves per endpoint."""
        scalar, offset = self.ops[op]
        return size * scalar + size * scalar * (offset or 0) / peers

    def time(self, op: str, size: float, peers: int, per_step: bool = False) -> float:
        """Seconds for `op` on `size` bytes; one latency is charged, even for no bytes at all.

        A collective that counts latencies `per_step` is charged those of a ring instead.
        """
        latency = self.latency
        if per_step and op != "p2p":
            latency = (2 if op == "all_reduce" else 1) * (peers - 1) * self.step_latency
        return max(self.least, latency + self.moving(self.volume(op, size, peers)))


def _networks(file: Mapping[str, Any], ext: Mapping[str, Any]) -> list[Network]:
    """Read the networks, with what the file adds to them."""
    links = ext.get("networks", [])
    least = ext.get("launch", {}).get("kernel", 0.0)
    networks = []
    for i, network in enumerate(file["networks"]):
        link = links[i] if i < len(links) else {}
        kind, stated = link.get("kind"), link.get("step_latency")
        step = network["latency"] if kind is None else HOPS[kind]
        reduces = link.get("in_network_reduction")
        if reduces is None:
            reduces = tuple(network["ops"]["all_reduce"]) == (1, 1)
        added = {
            "step_latency": step if stated is None else stated,
            "ramp": link.get("ramp", 0),
            "kind": kind,
            "own_latency": kind is None or stated is not None or link.get("ramp", 0) > 0,
            "reduces": reduces,
            "least": least,
        }
        networks.append(Network(**network, **added))
    return networks


def fused_time(
    law: Mapping[str, Any],
    name: str,
    *,
    backward: bool,
    queries: float,
    keys: float,
    width: int,
    causal: bool,
    peak: float,
) -> float:
    """Return the seconds of a pass of a kernel of fused attention, for queries of all heads.

    A multiprocessor has tiles of 128 queries: each takes the time of its keys, and of some more to
    begin and end; the last tiles leave others idle; the clock is that of continuous work.
    """
    kernel = law["kernels"][law["default"] if name == "auto" else name]
    one = kernel["backward" if backward else "forward"]
    seen = keys + one["lead"] + (one.get("causal_lead", 0) if causal else 0)
    operations = (10 if backward else 4) * seen * _filled_width(one["shares"], width) / peak
    tiles = queries / 128 / law["multiprocessors"]
    time: float = 128 * law["multiprocessors"] * operations * (tiles + kernel["tail"])
    time += kernel["start"]
    sustained: float = kernel.get("sustained", 1)
    return time / sustained


def _filled_width(shares: Sequence[Sequence[float]], width: int) -> float:
    """Return how wide a head is for the time that it takes: over the share, on lines between."""
    narrow, share = shares[0]
    if width <= narrow:
        return narrow / share
    for wide, larger in shares[1:]:
        if width <= wide:
            left, right = narrow / share, wide / larger
            return left + (right - left) * (width - narrow) / (wide - narrow)
        narrow, share = wide, larger
    return width / share


@dataclass(frozen=True)
class System:
    """A processor and its networks; the file is taken to be well formed."""

    matrix: Mapping[str, Resource]  # by datatype
    vector: Mapping[str, Resource]
    mem1: Resource
    mem2: Resource  # where data is offloaded to; [O19] used even if it has no capacity
    processing_mode: str
    networks: Sequence[Network]
    multiply: Mapping[str, Resource] = field(default_factory=dict)  # by type of matrix arithmetic
    attention: Mapping[str, Curve] = field(default_factory=dict)  # by mean keys
    fused: Mapping[str, Any] = field(default_factory=dict)  # constants of kernels of attention
    gemm: Mapping[str, Gemm] = field(default_factory=dict)
    launch: float = 0.0  # s, least time of a kernel
    host: float = 0.0  # s, of a step in which no kernel runs

    @classmethod
    def of(cls, file: Mapping[str, Any], *, extended: bool = True) -> System:
        """Read a file, with what it adds to the published format unless told otherwise."""
        ext = file.get("ext", {}) if extended else {}
        matrix = {datatype: _engine(engine) for datatype, engine in file["matrix"].items()}
        more = {datatype: _engine(engine) for datatype, engine in ext.get("matrix", {}).items()}
        launch = ext.get("launch", {})
        return cls(
            matrix=matrix,
            vector={datatype: _engine(engine) for datatype, engine in file["vector"].items()},
            mem1=_memory(file["mem1"]),
            mem2=_memory(file["mem2"]),
            processing_mode=file["processing_mode"],
            networks=_networks(file, ext),
            multiply=matrix | more,
            attention={name: one["efficiency"] for name, one in ext.get("attention", {}).items()},
            fused={
                name: one
                for name, one in ext.get("kernels", {}).get("attention", {}).items()
                if one.get("law") == "fused"
            },
            gemm={name: Gemm(**one) for name, one in ext.get("gemm", {}).items()},
            launch=launch.get("kernel", 0.0),
            host=launch.get("step", 0.0),
        )

    def combine(self, flops_time: float, mem_time: float) -> float:
        """Time of arithmetic and memory access together."""
        if self.processing_mode == "roofline":
            return max(flops_time, mem_time)
        return flops_time + mem_time
