"""The hardware: rates that depend on the size of an operation, and networks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .errors import Rejected


@dataclass(frozen=True)
class Resource:
    """An engine (amounts in FLOP) or a memory (amounts in bytes) with its efficiency curve."""

    peak: float  # per second
    curve: Sequence[tuple[float, float]]  # (threshold, efficiency), in the order of the file
    capacity: float = 0  # bytes, memories only

    def time(self, amount: float) -> float:
        """Seconds for `amount`, at the efficiency of the first threshold that it reaches."""
        for threshold, efficiency in self.curve:
            if threshold <= amount:
                return amount / (self.peak * efficiency)
        raise Rejected(20, f"no efficiency is given for the size {amount}")


def _engine(file: Mapping[str, Any]) -> Resource:
    curve = [(gflops * 1e9, efficiency) for gflops, efficiency in file["gflops_efficiency"]]
    return Resource(file["tflops"] * 1e12, curve)


def _memory(file: Mapping[str, Any]) -> Resource:
    curve = [(megabytes * 1e6, efficiency) for megabytes, efficiency in file["MB_efficiency"]]
    return Resource(file["GBps"] * 1e9, curve, file["GiB"] * 2**30)


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

    def time(self, op: str, size: float, peers: int, per_step: bool = False) -> float:
        """Seconds for `op` on `size` bytes; one latency is charged, even for no bytes at all.

        A collective that counts latencies `per_step` is charged those of a ring instead.
        """
        scalar, offset = self.ops[op]
        volume = size * scalar
        volume += volume * (offset or 0) / peers
        latency = self.latency
        if per_step and op != "p2p":
            latency = (2 if op == "all_reduce" else 1) * (peers - 1) * self.step_latency
        wire = volume / (self.bandwidth * 1e9 * self.efficiency)
        return latency + wire + (2 * math.sqrt(self.ramp * wire) if wire > 0 else 0)


def _networks(file: Mapping[str, Any]) -> list[Network]:
    """Read the networks, with the latency of their steps and their ramp if the file adds them."""
    links = file.get("ext", {}).get("networks", [])
    networks = []
    for i, network in enumerate(file["networks"]):
        link = links[i] if i < len(links) else {}
        step = HOPS.get(link.get("kind", ""), network["latency"])
        added = {"step_latency": link.get("step_latency", step), "ramp": link.get("ramp", 0)}
        networks.append(Network(**network, **added))
    return networks


@dataclass(frozen=True)
class System:
    """A processor and its networks; the file is taken to be well formed."""

    matrix: Mapping[str, Resource]  # by datatype
    vector: Mapping[str, Resource]
    mem1: Resource
    mem2: Resource  # where data is offloaded to; [O19] used even if it has no capacity
    processing_mode: str
    networks: Sequence[Network]

    @classmethod
    def of(cls, file: Mapping[str, Any]) -> System:
        return cls(
            matrix={datatype: _engine(engine) for datatype, engine in file["matrix"].items()},
            vector={datatype: _engine(engine) for datatype, engine in file["vector"].items()},
            mem1=_memory(file["mem1"]),
            mem2=_memory(file["mem2"]),
            processing_mode=file["processing_mode"],
            networks=_networks(file),
        )

    def combine(self, flops_time: float, mem_time: float) -> float:
        """Time of arithmetic and memory access together."""
        if self.processing_mode == "roofline":
            return max(flops_time, mem_time)
        return flops_time + mem_time
