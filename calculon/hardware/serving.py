"""Serving parameters beyond training rates: kernel floors in CUDA graphs, decode attention, small reductions."""

from typing import Any

import numpy as np

from calculon.base.errors import Problem
from calculon.base.frozen import dataclass
from calculon.base.units import GIB, GIGA, Bytes, BytesPerSecond, Count, Seconds
from calculon.declarations.fields import Declaration, declare
from calculon.hardware.curve import decode_rows, rows_schema

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
        """Return the latency for some group sizes, interpolated in their logarithm; infinite beyond the largest."""
        known: Seconds = np.interp(np.log2(ranks), np.log2(self.ranks), self.seconds)
        return np.where(np.asarray(ranks) > self.ranks[-1], np.inf, known)


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeAttention:
    """How fast attention of one new token of each sequence reads the cache.

    A block of threads reads the keys and values of one sequence and one KV head, a tile of keys at a time; long caches
    are split over several blocks (flash-decoding: Dao et al., *Flash-Decoding for long-context inference*, 2023).
    """

    efficiency: float = declare(
        "share of the bandwidth of mem1 at which long caches of many sequences are read",
        above=0,
        at_most=1,
        default=0.85,
    )
    key_tile: float = declare(
        "keys of a tile: a shorter context takes as long as so many keys",
        unit="tokens",
        at_least=0,
        default=128.0,
    )
    tail: float = declare(
        "reading of a wave of blocks that unequal and last ones cost, as a share of it; 0 for kernels that spread "
        "parts of sequences evenly",
        at_least=0,
        default=0.0,
    )
    multiprocessors: int = declare(
        "multiprocessors over which blocks are spread, for `tail`", at_least=1, default=132
    )

    def reading(
        self,
        sequences: Count,
        keys: Count,
        kv_heads: Count,
        key_bytes: Bytes,
        beside: Bytes,
        bandwidth: BytesPerSecond | float,
    ) -> Seconds:
        r"""Return the time to read KV caches, without the floor of the kernel.

        .. math:: t = \frac{b \max(s, s_0) w + q}{\eta\, B} \left(1 + \lambda \frac{m}{\max(b, m)}\right)

        with b blocks (one per sequence and KV head) on m multiprocessors. More sequences, keys or heads never take less
        time, and more sequences never take more time per sequence.

        Args:
            sequences, keys, kv_heads: Sequences, keys per sequence, and KV heads per processor.
            key_bytes: Bytes of the key and the value of a token in one KV head.
            beside: Bytes of queries and results of all sequences.
            bandwidth: Bandwidth of tier-1 memory in B/s.
        """
        blocks = np.asarray(sequences * kv_heads, dtype=float)
        read = blocks * np.maximum(keys, self.key_tile) * key_bytes + beside
        uneven = self.tail * self.multiprocessors / np.maximum(blocks, self.multiprocessors)
        return read / (self.efficiency * bandwidth) * (1 + uneven)


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallReduce:
    """All-reduce by a kernel in which ranks of the innermost network read each other's memory.

    In one shot every rank reads all other ranks' messages; in two it reads a part of each, sums it up and gathers the
    parts. Beyond the largest group that is stated, only the library of collectives counts.

    Source: NVIDIA/TensorRT-LLM, ``customAllReduceKernels``, strategies ONESHOT and TWOSHOT; vLLM,
    ``custom_all_reduce.cuh``, the same two.
    """

    latency: LatencyByRanks = declare(
        "latency of the smallest message by ranks: [ranks, s], rising; larger groups use the library of collectives",
        default=LatencyByRanks((2, 4, 8), (2.5e-6, 2.7e-6, 3.5e-6)),
    )
    efficiency: float = declare(
        "share of the bandwidth of a port of the innermost network that one and two shots reach",
        above=0,
        at_most=1,
        default=0.5,
    )

    def time(self, size: Bytes, ranks: Count, bandwidth: BytesPerSecond | float) -> Seconds:
        r"""Return the time of a one-shot or two-shot all-reduce of a message; infinite beyond the largest stated group.

        .. math:: t = \min\left(\alpha_n + w,\; 2 \alpha_n + \frac{2 w}{n}\right), \quad w = \frac{S (n - 1)}{\eta B}

        Args:
            size: Bytes of a rank's message; an empty message takes no time, nor does a group of one.
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
    """Kernels of low latency that send the tokens of a rank to their experts, a row for each, or bring results back.

    All ports are busy together, and the slowest counts. The defaults are fitted to the table of DeepEP's README (commit
    0a08009) of 128 tokens on 8 to 256 H800, which they have a mean error of 2.4 % on.
    """

    latency: float = declare(
        "time of an exchange of no tokens, one way", unit="s", at_least=0, default=35e-6
    )
    nvlink_efficiency: float = declare(
        "share of the bandwidth of the innermost network that rows in a node reach",
        above=0,
        at_most=1,
        default=0.8,
    )
    nic_efficiency: float = declare(
        "share of the bandwidth of other networks that rows between nodes reach",
        above=0,
        at_most=1,
        default=0.92,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """What a processor has of the disks of its node."""

    capacity: float = declare("room for caches", key="GiB", unit="GiB", scale=GIB, above=0)
    bandwidth: float = declare(
        "rate at which it reads them", key="GBps", unit="GB/s", scale=GIGA, above=0
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """Kernels of serving, inside graphs that are launched as a whole; no time of training depends on them.

    A kernel takes its floor, prologue, tail and gap to the next one, and then the time of its arithmetic or its bytes.
    Where the rate of products has a `start` of its own (law ``tiles``), that is its floor.

    The defaults are those of NVIDIA's processors of 2022 to 2025, from constants fitted to measured kernels
    (`systems/measured`); `step_host` is an assumption.
    """

    matrix_floor: float = declare(
        "time of a matrix product that does nothing, where the rate of products states no start",
        unit="s",
        at_least=0,
        default=3e-6,
    )
    attention_floor: float = declare(
        "time of attention of one new token over an empty cache",
        unit="s",
        at_least=0,
        default=10e-6,
    )
    vector_floor: float = declare(
        "time of another kernel that does nothing: norm, activation, cast",
        unit="s",
        at_least=0,
        default=2e-6,
    )
    routing_floor: float = declare(
        "time of a kernel of experts beside their products that does nothing: choice, permutation and combination of "
        "tokens, of which a layer has three",
        unit="s",
        at_least=0,
        default=7e-6,
    )
    grouped_efficiency: float = declare(
        "share of the rate of products that those of experts reach, several in one kernel",
        above=0,
        at_most=1,
        default=1.0,
    )
    decode_attention: DecodeAttention = declare(
        "attention of one new token of each sequence", default=DecodeAttention()
    )
    small_reduce: SmallReduce = declare(
        "all-reduce of small messages in one innermost network", default=SmallReduce()
    )
    expert_exchange: ExpertExchange = declare(
        "kernels of low latency between tokens and experts, on an innermost network of the kind nvlink",
        default=ExpertExchange(),
    )
    step_host: float = declare(
        "time of the host for a pass that nothing hides: scheduler, sampling, text; 0 where it is asynchronous",
        unit="s",
        at_least=0,
        default=1e-3,
    )
    disk: Disk | None = declare(
        "what a processor has of the disks of its node, for cached prefixes; none if absent",
        default=None,
    )
