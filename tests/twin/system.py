"""The hardware: rates that depend on the size of an operation, and networks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from calculon.base.frozen import dataclass

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
    wave_overlap: float = 0.0
    start: float = 0.0  # s
    memory_efficiency: float | None = None
    sustained: float = 1.0
    weight_gradients: float = 1.0
    gradients: float = 1.0
    alignment: Curve | None = None
    tiles: Sequence[Sequence[float]] = TILES

    def seconds(
        self,
        batch: float,
        sides: tuple[float, int, float],
        rate: float,
        bandwidth: float,
        size: float,
    ) -> float:
        """Seconds of the best tile, whose result may be split along the depth, for FLOP/s of the fastest.

        The sides are rows and columns of the result, and the depth.
        """
        rows, columns, depth = sides
        best = math.inf
        for height, width, speed in self.tiles:
            tiles = batch * math.ceil(rows / height) * math.ceil(columns / width)
            for parts in (1, 2, 4, 8, 16):
                waves = tiles * parts / self.multiprocessors
                filled = max(1, waves)  # a wave takes its time, however few tiles it has
                counted = math.ceil(waves) * (1 - self.wave_overlap) + self.wave_overlap * filled
                per_tile = 2 * height * width * (depth / parts + self.half_depth)
                time = counted * per_tile * self.multiprocessors / (rate * speed)
                if parts > 1:  # sums of 4 bytes, written and read by another kernel
                    time += self.start + 2 * 4 * parts * batch * rows * columns / bandwidth
                best = min(best, time)
        if self.memory_efficiency is None:
            return self.start + best
        moved = size * (rows * depth + depth * columns) + max(size, 2) * rows * columns
        together = best**3 + (batch * moved / bandwidth) ** 3
        return float(self.start + together ** (1 / 3))

    def efficiencies(
        self, batch: float, m: float, n: int, k: int, size: float, peak: float, bandwidth: float
    ) -> tuple[float, float, float]:
        """Return those of (m x n)(n x k), of the gradient of its first and of its second operand."""
        aligned = size
        while n % (2 * aligned // size) == 0 and k % (2 * aligned // size) == 0:
            aligned *= 2
        rate = peak * self.max_efficiency * self.sustained
        if self.alignment is not None:
            rate *= efficiency_at(self.alignment, aligned)
        bandwidth *= self.memory_efficiency or 1
        slower = rate * self.gradients
        rates = (rate, slower, slower * self.weight_gradients)
        of_passes = ((m, k, n), (m, n, k), (n, k, m))
        forward, inputs, weights = (
            2 * batch * m * n * k / (peak * self.seconds(batch, sides, one, bandwidth, size))
            for sides, one in zip(of_passes, rates, strict=True)
        )
        return forward, inputs, weights


HOPS = {"nvlink": 3.4e-6, "pcie": 5.7e-6, "net": 14e-6}
"""Seconds of a step by kind of link."""


@dataclass(frozen=True)
class Shown:
    """An operation in groups on one network, as nccl-tests showed it."""

    latency: float  # s, of the smallest message
    rates: Sequence[tuple[float, float, float]]  # ranks, share of a port, ramp in s
    rank_latency: float = 0.0  # s, for each rank but one
    long_step: float = 0.0  # s at the full rate, from which on a step of a ring ...
    least_step: float = 0.0  # s, ... takes at least this
    ring_ranks: float = math.inf  # ... in groups up to this size

    def between(self, ranks: int) -> tuple[float, float]:
        """Share and ramp in a group, between those of the next smaller and larger ones."""
        below = [row for row in self.rates if row[0] <= ranks] or [self.rates[0]]
        above = [row for row in self.rates if row[0] >= ranks] or [self.rates[-1]]
        (low, *first), (high, *last) = below[-1], above[0]
        way = math.log(ranks / low) / math.log(high / low) if low < ranks < high else 0
        share, ramp = (a + way * (b - a) for a, b in zip(first, last, strict=True))
        return share, ramp

    def time(self, wire: float, ranks: int) -> float:
        """Seconds of what takes `wire` at the full rate of a port."""
        share, ramp = self.between(ranks)
        start = self.latency + (ranks - 1) * self.rank_latency
        time = start + wire / share + 2 * math.sqrt(ramp * wire / share)
        steps = ranks - 1 if wire >= self.long_step * (ranks - 1) else 0
        if not self.least_step or ranks > self.ring_ranks:
            return time
        return math.cbrt(time**3 + (steps * self.least_step) ** 3)


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
    shown: Mapping[str, Shown] = field(default_factory=dict)  # by operation
    torus: Mapping[str, Any] | None = None  # processors along each axis; the side of switched cubes
    synchronous: bool = False  # copies of shards add gradients up while nothing is computed
    uplink: Mapping[str, Any] | None = None  # processors below a switch; GB/s to the others

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
            "shown": {op: Shown(**one) for op, one in link.get("operations", {}).items()},
            "torus": link.get("torus"),
            "synchronous": link.get("synchronous", False),
            "uplink": link.get("uplink"),
        }
        usage = link.get("processor_usage")
        if usage is not None:
            added["processor_usage"] = usage
        networks.append(Network(**{**network, **added}))
    return networks


def _products(ext: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the constants of products by type, from either key."""
    stated = ext.get("kernels", {}).get("product", {})
    laws = {name: one for name, one in stated.items() if one.get("law") == "tiles"}
    constants = {
        name: {key: value for key, value in one.items() if key != "law"}
        for name, one in laws.items()
    }
    return {**ext.get("gemm", {}), **constants}


def fused_time(
    law: Mapping[str, Any],
    name: str,
    *,
    backward: bool,
    queries: float,
    keys: float,
    width: int,
    value: int,
    causal: bool,
    peak: float,
) -> float:
    """Return the seconds of a pass of a kernel of fused attention, for queries of all heads.

    A multiprocessor has tiles of 128 queries: each takes the time of its keys, and of some more to
    begin and end; the last tiles leave others idle; the clock is that of continuous work. Half of
    the products are as wide as keys, half as values; most kernels fill the narrower ones up.
    """
    name = law["default"] if name == "auto" else name
    kernel = law["kernels"][name]
    wide = max(width, value)
    if name == "flash3" and 128 < width <= 192 and value <= 128:
        width, value = wide, 128
    elif name != "cudnn":
        width = value = wide
    one = kernel["backward" if backward else "forward"]
    seen = keys + one["lead"] + (one.get("causal_lead", 0) if causal else 0)
    filled = [_filled_width(one["shares"], one_width) for one_width in (width, value)]
    operations = (10 if backward else 4) * seen * sum(filled) / 2 / peak
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


def launched(launch_mode: str, fusion: str) -> str:
    """Mode in which the host launches kernels; none where they are those of the published model."""
    modes = {"published": "", "none": "eager", "compile": "compile", "max": "compile"}
    return modes[fusion] if launch_mode == "auto" else launch_mode


def _node(host: Mapping[str, Any] | None) -> tuple[float, int] | None:
    """Read the memory of a node; that its links carry other traffic is tested by hand (tests/cost)."""
    if host is None:
        return None
    return host["GBps"] * 1e9 * host["efficiency"], host["processors"]


@dataclass(frozen=True)
class Library:
    """Shares of the bandwidth inside of nodes and between them, and share of the engines."""

    inside: float
    between: float
    engines: float


def library_of(ext: Mapping[str, float] | None) -> Library | None:
    """Read what a system says of the library."""
    if ext is None:
        return None
    engines = ext["num_sms"] / ext["multiprocessors"]
    return Library(ext["nvlink_efficiency"], ext["nic_efficiency"], engines)


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
    calls: Mapping[str, Any] = field(default_factory=dict)  # one of each expert, by type
    stream: Mapping[str, float] | None = None  # rate of all traffic in mem1
    launch: float = 0.0  # s, least time of a kernel
    hosts: Mapping[str, float] = field(default_factory=dict)  # s, of the host for a kernel, by mode
    host: float = 0.0  # s, of a step in which no kernel runs
    withheld: float = 0.0  # bytes of tier 1 that nobody gets
    always: float = 0.0  # bytes of tier 1 that a process takes
    communicator: float = 0.0  # bytes of tier 1 for each of its groups
    fragmentation: float = 0.0  # share of what comes and goes
    host_share: float = 1.0  # of tier 2
    linear_share: float = 0.05  # of the peak, of states of linear attention
    library: Library | None = None  # that sends copies of tokens to experts
    node: tuple[float, int] | None = None  # memory of a node: bytes/s, and who shares them
    recipes: Mapping[str, bool] = field(default_factory=dict)  # that run: with transposed copies

    @classmethod
    def of(cls, file: Mapping[str, Any], *, extended: bool = True) -> System:
        """Read a file, with what it adds to the published format unless told otherwise."""
        ext = file.get("ext", {}) if extended else {}
        matrix = {datatype: _engine(engine) for datatype, engine in file["matrix"].items()}
        more = {datatype: _engine(engine) for datatype, engine in ext.get("matrix", {}).items()}
        launch, memory = ext.get("launch", {}), ext.get("memory", {})
        every = {name: {"transposes": True} for name in ("delayed", "tensorwise")}
        stated = ext.get("recipes") or every
        has = {"float8": "float8" in matrix | more, "float4": "float4" in matrix | more}
        process = memory.get("context_MiB", 0) + memory.get("workspaces_MiB", 0)
        return cls(
            matrix=matrix,
            vector={datatype: _engine(engine) for datatype, engine in file["vector"].items()},
            mem1=_memory(file["mem1"]),
            mem2=_memory(file["mem2"]),
            processing_mode=ext.get("processing_mode", file["processing_mode"]),
            networks=_networks(file, ext),
            multiply=matrix | more,
            recipes={
                name: use.get("transposes", False)
                for name, use in stated.items()
                if has["float4" if "fp4" in name else "float8"]
            },
            attention={name: one["efficiency"] for name, one in ext.get("attention", {}).items()},
            fused={
                name: one
                for name, one in ext.get("kernels", {}).get("attention", {}).items()
                if one.get("law") == "fused"
            },
            gemm={name: Gemm(**one) for name, one in _products(ext).items()},
            calls=ext.get("kernels", {}).get("grouped_product", {}),
            stream=ext.get("traffic"),
            launch=launch.get("kernel", 0.0),
            hosts=launch,
            host=launch.get("step", 0.0),
            withheld=memory.get("withheld_GiB", 0) * 2**30,
            always=process * 2**20,
            communicator=memory.get("communicator_MiB", 0) * 2**20,
            fragmentation=memory.get("fragmentation", 0.0),
            host_share=memory.get("host_share", 1.0),
            linear_share=ext.get("linear_efficiency", 0.05),
            library=library_of(ext.get("ep_library")),
            node=_node(ext.get("host")),
        )

    def move(self, amount: float, kernels: float = 1, *, backward: bool = False) -> float:
        """Seconds to move bytes in tier-1 memory: with a start of each kernel, or at a rate by size."""
        if self.stream is None:
            return self.mem1.time(amount)
        if amount == 0:
            return 0
        share = self.stream["efficiency"]
        if backward:
            share = self.stream.get("backward", share)
        return kernels * self.stream.get("start", 0) + amount / (share * self.mem1.peak)

    def count(self, datatype: str, flops: float) -> float:
        """Seconds of arithmetic on the vector engine, beside traffic in tier-1 memory."""
        engine = self.vector[datatype]
        if self.stream is None:
            return engine.time(flops)
        return flops / (engine.peak * engine.curve[0][1])

    def host_time(self, launch_mode: str, fusion: str, *, captured: bool = False) -> float:
        """Seconds of the host for a kernel; published kernels do not wait for it.

        A kernel may be `captured`: part of one of the graphs, where only parts are in graphs.
        """
        mode = launched(launch_mode, fusion)
        if mode == "graph_parts":
            mode = "graph" if captured else "eager"
        if mode in ("blocking", "eager"):
            mode = "training" if self.hosts.get("training") else "eager"
        return self.hosts.get(mode, 0.0)

    @property
    def usable1(self) -> float:
        """Bytes of tier 1 that there are for an execution."""
        return max(0.0, self.mem1.capacity - self.withheld)

    @property
    def usable2(self) -> float:
        """Bytes of tier 2 that there are for an execution."""
        return self.mem2.capacity * self.host_share

    def taken(self, groups: int) -> float:
        """Bytes of tier 1 that a process with so many communicators takes."""
        return self.always + self.communicator * groups

    def node_time(self, size: float, processors: int) -> float:
        """Seconds in which each processor of a node moves so many bytes to or from its memory."""
        if self.node is None:
            return 0
        rate, most = self.node
        return size * min(processors, most) / rate

    def combine(self, flops_time: float, mem_time: float) -> float:
        """Time of arithmetic and memory access together."""
        if self.processing_mode == "roofline":
            return max(flops_time, mem_time)
        return flops_time + mem_time
