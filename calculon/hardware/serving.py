"""Serving parameters beyond training rates: kernel floors in CUDA graphs, decode attention, small all-reduces."""

from dataclasses import replace
from typing import Any

import numpy as np

from calculon.base.errors import Problem
from calculon.base.frozen import dataclass
from calculon.base.units import GIB, GIGA, Bytes, BytesPerSecond, Count, Seconds
from calculon.declarations.fields import Declaration, declare
from calculon.hardware.curve import decode_rows, rows_schema
from calculon.hardware.kernels.laws import Gemm

GROUPED_TYPES = (
    *("bfloat16", "float16", "float8", "float8_block", "nvfp4", "mxfp4", "mxfp4_mxfp8"),
)
"""Types of the weights of experts whose products have laws of their own."""

FASTEST = "fastest"
"""Kernels of expert layers of the engine that was measured to be the fastest with the type of their weights."""

ENGINE_KERNELS = ("vllm", "sglang", "tensorrt-llm")
"""Engines whose own kernels of expert layers were measured."""

_RANKS = Declaration(help="members of the group", at_least=2)
_LATENCY = Declaration(help="latency of the smallest message", unit="s", at_least=0)


@dataclass(frozen=True, slots=True)
class LatencyByRanks:
    """Latencies by group size.

    Attributes:
        ranks: Group sizes, ascending.
        seconds: Latency of the smallest message in each; it never falls with the group size.
    """

    ranks: tuple[float, ...]
    seconds: tuple[float, ...]

    @classmethod
    def decode(
        cls, raw: object, path: str, problems: list[Problem], scale: float
    ) -> "LatencyByRanks | None":
        """Decode ``[[ranks, seconds], ...]``, with strictly rising ranks and non-falling latencies."""
        rows = decode_rows(raw, path, problems, "pair [ranks, seconds]", (_RANKS, _LATENCY))
        if rows is None:
            return None
        for i in range(1, len(rows)):
            for j, wanted in ((0, "more ranks than"), (1, "at least the latency")):
                before, found = rows[i - 1][j], rows[i][j]
                if found < before or (j == 0 and found == before):
                    text = f"{wanted} in the pair before ({before:g})"
                    problems.append(Problem(f"{path}[{i}][{j}]", text, f"{found:g}"))
        return cls(*zip(*rows, strict=True))

    @classmethod
    def schema(cls) -> dict[str, Any]:
        """Return the JSON Schema of the raw list."""
        return rows_schema(_RANKS, _LATENCY)

    def at(self, ranks: Count) -> Seconds:
        """Return the latency by group size, interpolated in its logarithm; infinite beyond the largest stated size."""
        known: Seconds = np.interp(np.log2(ranks), np.log2(self.ranks), self.seconds)
        return np.where(np.asarray(ranks) > self.ranks[-1], np.inf, known)


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeAttention:
    """Rate of decode attention: one new token per sequence reads the KV cache.

    A thread block reads the keys and values of one sequence and one KV head, one tile of keys at a time; long caches
    are split over several blocks (flash-decoding: Dao et al., *Flash-Decoding for long-context inference*, 2023).
    """

    efficiency: float = declare(
        "share of mem1's bandwidth at which long KV caches of many sequences are read",
        above=0,
        at_most=1,
        default=0.85,
    )
    key_tile: float = declare(
        "keys per tile: a shorter context takes as long as a full tile",
        unit="tokens",
        at_least=0,
        default=128.0,
    )
    tail: float = declare(
        "loss from unequal and last blocks, as a share of one wave's reading time; 0 for kernels that spread "
        "sequences evenly",
        at_least=0,
        default=0.0,
    )
    multiprocessors: int = declare(
        "multiprocessors that share the blocks, for `tail`", at_least=1, default=132
    )

    def reading(
        self,
        sequences: Count,
        keys: Count,
        kv_heads: Count,
        key_bytes: Bytes,
        other: Bytes,
        bandwidth: BytesPerSecond | float,
    ) -> Seconds:
        r"""Return the time to read KV caches, without the floor of the kernel.

        .. math:: t = \frac{b \max(s, s_0) w + q}{\eta\, B} \left(1 + \lambda \frac{m}{\max(b, m)}\right)

        with b blocks (one per sequence and KV head) on m multiprocessors. More sequences, keys or heads never take less
        time, and more sequences never take more time per sequence.

        Args:
            sequences, keys, kv_heads: Sequences, keys per sequence, and KV heads per processor.
            key_bytes: Bytes of the key and the value of a token in one KV head.
            other: Bytes of queries and results of all sequences.
            bandwidth: Bandwidth of tier-1 memory in B/s.
        """
        blocks = np.asarray(sequences * kv_heads, dtype=float)
        read = blocks * np.maximum(keys, self.key_tile) * key_bytes + other
        uneven = self.tail * self.multiprocessors / np.maximum(blocks, self.multiprocessors)
        return read / (self.efficiency * bandwidth) * (1 + uneven)


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallReduce:
    """All-reduce in one kernel, in which ranks of the innermost network read each other's memory.

    With one shot, every rank reads the messages of all other ranks; with two, it reads a part of each, sums it up and
    gathers the parts. Groups beyond the largest stated size use the collective library (NCCL).

    Source: NVIDIA/TensorRT-LLM, ``customAllReduceKernels``, strategies ONESHOT and TWOSHOT; vLLM,
    ``custom_all_reduce.cuh``, the same two.
    """

    latency: LatencyByRanks = declare(
        "latency of the smallest message by ranks: [ranks, s], rising; larger groups use the collective library",
        default=LatencyByRanks((2, 4, 8), (2.5e-6, 2.7e-6, 3.5e-6)),
    )
    efficiency: float = declare(
        "share of the innermost network's port bandwidth that one-shot and two-shot kernels reach",
        above=0,
        at_most=1,
        default=0.5,
    )

    def time(self, size: Bytes, ranks: Count, bandwidth: BytesPerSecond | float) -> Seconds:
        r"""Return the time of a one-shot or two-shot all-reduce of a message; infinite beyond the largest stated group.

        .. math:: t = \min\left(\alpha_n + w,\; 2 \alpha_n + \frac{2 w}{n}\right), \quad w = \frac{S (n - 1)}{\eta B}

        Args:
            size: Bytes of a rank's message; empty messages and groups of one take no time.
            ranks: Members of the group.
            bandwidth: Bandwidth of a port of the innermost network, in one direction, in B/s.
        """
        members = np.maximum(ranks, 2)
        latency = self.latency.at(members)
        wire = size * (members - 1) / (self.efficiency * bandwidth)
        time = np.minimum(latency + wire, 2 * latency + 2 * wire / members)
        return np.where((np.asarray(ranks) > 1) & (np.asarray(size) > 0), time, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertExchange:
    """Low-latency expert-parallel kernels that send tokens to their experts, one row per expert, or bring results back.

    All ports work at the same time, and the slowest decides. The defaults are fitted to the table of DeepEP's README
    (commit 0a08009) of 128 tokens on 8 to 256 H800, with a mean error of 2.4 %.
    """

    latency: float = declare(
        "one-way time of an exchange without tokens", unit="s", at_least=0, default=35e-6
    )
    nvlink_efficiency: float = declare(
        "share of the innermost network's bandwidth that rows within a node reach",
        above=0,
        at_most=1,
        default=0.8,
    )
    nic_efficiency: float = declare(
        "share of the other networks' bandwidth that rows between nodes reach",
        above=0,
        at_most=1,
        default=0.92,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertKernels:
    """Kernels of expert layers of an engine, as far as they are not the fastest ones."""

    grouped: dict[str, Gemm] = declare(
        "law of the products of experts, by type of their weights", choices=GROUPED_TYPES
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """A processor's share of its node's disks."""

    capacity: float = declare("capacity for caches", key="GiB", unit="GiB", scale=GIB, above=0)
    bandwidth: float = declare("read bandwidth", key="GBps", unit="GB/s", scale=GIGA, above=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """Serving kernels in CUDA graphs; no training time depends on them.

    A kernel takes its floor (prologue, tail and the gap to the next kernel) and the time of its arithmetic or bytes.
    If the rate of products has a `start` (law ``tiles``), that start is their floor.

    The defaults describe NVIDIA's processors of 2022 to 2025, from constants fitted to measured kernels
    (`systems/measured`); `step_host` is an assumption.
    """

    matrix_floor: float = declare(
        "time of an empty matrix product, if the rate of products states no start",
        unit="s",
        at_least=0,
        default=3e-6,
    )
    attention_floor: float = declare(
        "time of decode attention over an empty KV cache",
        unit="s",
        at_least=0,
        default=10e-6,
    )
    vector_floor: float = declare(
        "time of any other empty kernel: norm, activation, cast",
        unit="s",
        at_least=0,
        default=2e-6,
    )
    routing_floor: float = declare(
        "time of an empty expert kernel other than products: gating, permutation and combination of tokens, "
        "of which a layer has three",
        unit="s",
        at_least=0,
        default=7e-6,
    )
    grouped: dict[str, Gemm] = declare(
        "law of the products of experts in inference engines, by type of their weights; by default that of other "
        "products",
        choices=GROUPED_TYPES,
        default=None,
    )
    expert_kernels: dict[str, ExpertKernels] = declare(
        "kernels of expert layers by engine; types of weights that an engine does not state have the law of `grouped`",
        choices=ENGINE_KERNELS,
        default=None,
    )
    decode_attention: DecodeAttention = declare(
        "decode attention, for one new token per sequence", default=DecodeAttention()
    )
    small_reduce: SmallReduce = declare(
        "all-reduce of small messages on the innermost network", default=SmallReduce()
    )
    expert_exchange: ExpertExchange = declare(
        "low-latency expert-parallel dispatch and combine, on an innermost network of kind nvlink",
        default=ExpertExchange(),
    )
    step_host: float = declare(
        "exposed host time per pass: scheduler, sampling, detokenization; 0 if asynchronous",
        unit="s",
        at_least=0,
        default=1e-3,
    )
    disk: Disk | None = declare(
        "a processor's share of its node's disks, for prefix caching; none if absent",
        default=None,
    )

    def with_kernels(self, engine: str) -> "Serving":
        """Return these parameters with the kernels of expert layers of an engine in place of the fastest ones."""
        own = (self.expert_kernels or {}).get(engine)
        return self if own is None else replace(self, grouped=(self.grouped or {}) | own.grouped)
