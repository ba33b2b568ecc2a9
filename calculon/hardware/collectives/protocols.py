"""Latencies and shares of the rate by protocol, as NCCL's tuner counts them.

NCCL runs rings and trees by three protocols: Simple, which fills the links; LL, whose data carries flags and half of
the rate; LL128, with flags for 128 bytes, on NVLink systems. Each has a base latency and one for every hop, by the kind
of the link. A network of no known kind, or with a latency of its own (``step_latency`` or ``ramp``, such as a fitted
one), has one protocol and its own latencies.

Source: NCCL, src/graph/tuning.cc.
"""

import numpy as np

from calculon.base.arrays import occurs
from calculon.base.frozen import dataclass
from calculon.base.units import Array
from calculon.hardware.collectives.placement import Group
from calculon.hardware.extension import STEP_LATENCY
from calculon.hardware.system import System

SIMPLE, LL, LL128 = "Simple", "LL", "LL128"

TREE_BANDWIDTH = 0.92
"""Share of a network's rate that a double tree reaches. Source: NCCL, src/graph/tuning.cc."""

BASE = {SIMPLE: 8.4e-6, LL: 6.6e-6, LL128: 14e-6}
"""Seconds to start a ring or a tree. Source: NCCL, src/graph/tuning.cc."""

HOPS = {
    "ring": {
        "nvlink": {SIMPLE: STEP_LATENCY["nvlink"], LL: 0.6e-6, LL128: 1.9e-6},
        "pcie": {SIMPLE: STEP_LATENCY["pcie"], LL: 1.0e-6, LL128: 2.5e-6},
        "net": {SIMPLE: STEP_LATENCY["net"], LL: 2.7e-6, LL128: 4.0e-6},
    },
    "tree": {
        "nvlink": {SIMPLE: 4.0e-6, LL: 0.6e-6, LL128: 1.25e-6},
        "pcie": {SIMPLE: STEP_LATENCY["pcie"], LL: 1.0e-6, LL128: 2.5e-6},
        "net": {SIMPLE: 14e-6, LL: 5.0e-6, LL128: 8.5e-6},
    },
}
"""Seconds of a step, by form, kind of link and protocol. Source: NCCL, src/graph/tuning.cc; a tree over PCIe as a ring.
"""

IN_SWITCH = {"nvlink": 25e-6, "pcie": 25e-6, "net": 18e-6}
"""Seconds to start a reduction in the switches, and of a step of the tree across. Source: as :data:`HOPS`."""

RATES = {
    "ring": {SIMPLE: 1.0, LL: 0.5, LL128: 0.92},
    "tree": {SIMPLE: TREE_BANDWIDTH, LL: 1 / 3.8, LL128: TREE_BANDWIDTH},
    "nvls": {SIMPLE: 1.0},
    "nvls_tree": {SIMPLE: TREE_BANDWIDTH},
    "own": {SIMPLE: 1.0},
}
"""Share of a network's rate by form and protocol. Source: as :data:`HOPS`."""

LL_LIMITS = (141 / 450, 45 / 450, 35 / 450)
"""Most bus bandwidth of LL among one node, two and more, as shares of the port of each processor in its node.

Source: NCCL, src/graph/tuning.cc, ``llMaxBws``: on Hopper 141, 45 and 35 GB/s beside NVLink of 450; as much on Ampere
(87.7 GB/s of 300) and Blackwell.
"""

LL_LEAST_LIMITS = (39e9, 39e9, 20.4e9)
"""The same in bytes/s on the slowest links. Source: as :data:`LL_LIMITS`, the row of Volta."""


@dataclass(frozen=True, slots=True)
class Pace:
    """One protocol on the networks of a system, in their order.

    Attributes:
        protocol: Its name; empty where no network is of a known kind.
        base, step: Seconds to start, the largest of the networks used, and of each step; infinite bases where it cannot
            run.
        rate: Share of the achieved bandwidth that it can use.
    """

    protocol: str
    base: tuple[float | Array, ...]
    step: tuple[float | Array, ...]
    rate: float


def paces(system: System, form: str) -> list[Pace]:
    """Return the protocols of a form of collective on a system: one of :data:`RATES`."""
    kinds = [link_kind(system, i) for i in range(len(system.networks))]
    known = form != "own" and any(kinds)
    found = []
    for protocol, rate in RATES[form].items():
        if protocol != SIMPLE and not known:
            continue
        if protocol == LL128 and "nvlink" not in kinds:
            continue
        pairs = [_latencies(system, i, form, kind, protocol) for i, kind in enumerate(kinds)]
        base, step = zip(*pairs, strict=True) if pairs else ((), ())
        found.append(Pace(protocol if known else "", base, step, rate))
    return found


def flagged_limit(system: System, group: Group, pace: Pace) -> Array | None:
    """Return the most bus bandwidth of groups by a protocol, in bytes/s; None where only the links limit it.

    LL is limited by the processors, which handle its flags, as NCCL knows it for nodes with links of a known kind.

    Source: as :data:`LL_LIMITS`.
    """
    if pace.protocol != LL or link_kind(system, group.node) in (None, "net"):
        return None
    nodes = np.asarray(group.ranks) // group.members[group.node]
    row = np.clip(nodes, 1, len(LL_LIMITS)) - 1
    shares = np.array(LL_LIMITS)[row] * system.networks[group.node].bandwidth
    limit: Array = np.maximum(shares, np.array(LL_LEAST_LIMITS)[row])
    return limit


def link_kind(system: System, network: int) -> str | None:
    """Return the kind of a network whose latencies are those of its kind; None where it has its own."""
    link = system.link(network)
    return None if link.step_latency is not None or occurs(link.ramp) else link.kind


def _latencies(
    system: System, network: int, form: str, kind: str | None, protocol: str
) -> tuple[float | Array, float | Array]:
    """Return the latencies of the start and of a step on one network."""
    if kind is None or form == "own":
        fabric = system.fabric
        base = fabric.latency[network] if protocol == SIMPLE else float("inf")
        return base, fabric.step_latency[network]
    if form in ("nvls", "nvls_tree"):
        return IN_SWITCH[kind], IN_SWITCH[kind]
    return BASE[protocol], HOPS[form][kind][protocol]
