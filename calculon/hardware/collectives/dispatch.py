"""Expert-parallel dispatch of tokens to the ranks of their experts, and combine: bytes through each port, and times.

An all-to-all sends a row for each expert of a token. Expert libraries (DeepEP, HybridEP) send one copy to each *node*
with an expert of the token, to the rank with the sender's local number. That rank forwards one copy to each *rank* with
an expert, which copies rows for its experts. Combine sums partial results at the same points. All experts are assumed
equally likely.

Limited routing (at most 4 nodes per token in DeepSeek-V3) lowers the number of nodes that a token reaches, so libraries
send fewer copies. An all-to-all sends as many rows as without a limit: each of the k rows of a token leaves its node of
n with probability (n - 1) / n.

Source: DeepSeek-AI, *DeepSeek-V3*, arXiv 2412.19437, sections 2.1.2 and 3.2.2; DeepEP, README; Megatron-LM,
``moe/token_dispatcher.py``, ``MoEAlltoAllTokenDispatcher.preprocess`` (rows: tokens times experts per token).
"""

from math import comb
from typing import NamedTuple

import numpy as np

from calculon.base.units import Array, Bytes, Count, Fraction, Seconds
from calculon.declarations.model import Model
from calculon.hardware.collectives.algorithm_times import AUTO, group_time, group_volume
from calculon.hardware.collectives.algorithms import IN_FLIGHT
from calculon.hardware.collectives.placement import Group
from calculon.hardware.system import System

LIBRARIES = ("deepep", "hybridep")
"""Dispatchers that send copies to nodes and forward them to ranks; other dispatchers are collectives."""

ENTRY_BYTES = 12
"""Bytes per expert in a copy of a token: number and score. Source: DeepEP, ``csrc/kernels``."""


SCALED_BYTES = 1 + 4 / 128
"""Bytes of an 8-bit element with its share of a scale. Source: DeepSeek-V3, section 3.3.2: tiles of 1 x 128."""


class Routing(NamedTuple):
    """The choice of experts by tokens.

    Attributes:
        experts, each: Experts of a block, and experts per token.
        groups, limit: Groups of experts, and the largest number of groups per token; 0 for no limit.
    """

    experts: int
    each: int
    groups: int = 0
    limit: int = 0

    @classmethod
    def of(cls, model: Model) -> "Routing":
        """Return the routing of a model."""
        groups, limit = model.router_groups, model.router_group_topk
        return cls(model.num_experts, model.experts_per_token, groups, limit)


def _missed(routing: Routing, inside: Array, of: Array | int) -> Array:
    r"""Return the probability that none of a token's experts is among `inside` experts, :math:`C(of-in, k) / C(of, k)`.

    It is a product of k ratios, none above 1, so that it is exact to rounding even if the binomials overflow.
    """
    chance = np.ones(np.shape(inside))
    for chosen in range(routing.each):
        chance = chance * np.maximum(of - inside - chosen, 0) / (of - chosen)
    return chance


def distinct_parts(routing: Routing, parts: Count) -> Array:
    r"""Return the expected number of parts, of `n` equal parts of the experts, that hold an expert of a token.

    .. math:: n \left[1 - \binom{E - E/n}{k} / \binom{E}{k}\right]

    If a token goes to at most :math:`M` of `g` groups, all equally likely, its experts are among :math:`M E/g`. A token
    misses a part of a group in these cases and if the group is not chosen; for a part of `q` groups, the number of
    chosen groups follows the hypergeometric distribution. Parts that cut across groups are counted without the limit,
    which is an upper bound.

    Args:
        parts: Number of equal parts; a divisor of the number of experts.
    """
    parts = np.asarray(parts)
    size = routing.experts / parts
    missed = _missed(routing, size, routing.experts)
    if routing.limit and routing.limit < routing.groups:
        missed = np.where(parts % routing.groups == 0, _of_part(routing, size), missed)
        for groups in range(2, routing.groups + 1):
            here = parts * groups == routing.groups
            if here.any():
                missed = np.where(here, _of_groups(routing, groups), missed)
    return parts * (1 - missed)


def _of_part(routing: Routing, size: Array) -> Array:
    """Return the probability that a token misses some experts of one group."""
    chosen = routing.limit / routing.groups
    among = routing.limit * (routing.experts // routing.groups)
    inside = np.minimum(size, routing.experts // routing.groups)
    return 1 - chosen + chosen * _missed(routing, inside, among)


def _of_groups(routing: Routing, groups: int) -> float:
    """Return the probability that a token misses all experts of some groups."""
    others, limit = routing.groups - groups, routing.limit
    size = routing.experts // routing.groups
    result = 0.0
    for chosen in range(max(0, limit - others), min(groups, limit) + 1):
        combinations = comb(groups, chosen) * comb(others, limit - chosen)
        missed = _missed(routing, np.array(chosen * size), limit * size)
        result += combinations / comb(routing.groups, limit) * float(missed)
    return result


def copies(system: System, routing: Routing, group: Group) -> Array:
    """Return the copies of a token that leave through a rank's port to each network: shape (networks, ...).

    Inside the node these are copies for ranks other than the receiving one, of own and forwarded tokens together.
    Between nodes there is one for each other node with an expert. Traffic that a network between nodes does not connect
    leaves through its port too, as in an all-to-all.

    Args:
        group: The ranks that the experts are split over.
    """
    inside = np.asarray(group.members[group.node])
    nodes = np.asarray(group.ranks) // inside
    to_ranks = distinct_parts(routing, group.ranks) * (inside - 1) / inside
    to_nodes = distinct_parts(routing, nodes) / nodes  # every node is equally likely
    found: list[Array] = []
    further: Array = np.array(0.0)
    for i in reversed(range(len(group.members))):
        if i == group.node:
            found.append(to_ranks)
            continue
        below = np.asarray(group.below[i]) // inside
        here = np.where(group.used[i], below * (np.asarray(group.members[i]) - 1) * to_nodes, 0.0)
        between = system.link(i).kind == "net"
        found.append(here + further if between else here)
        further = found[-1] if between else further
    return np.stack(np.broadcast_arrays(*reversed(found)))


def exchange_volume(
    system: System,
    dispatcher: str,
    tokens: Count | float,
    row: Bytes,
    routing: Routing,
    group: Group,
    *,
    imbalance: Array | float = 1.0,
    algorithm: str = AUTO,
) -> Bytes:
    """Return the bytes through the busiest port to each network, per direction: shape (networks, ...).

    Args:
        dispatcher: ``alltoall``, or one of :data:`LIBRARIES`; ``allgather`` is an all-gather and a reduce-scatter.
        tokens: Tokens of a rank; no two ranks hold the same token.
        row: Bytes of a token, including the scales of its elements.
        group: The ranks that the experts are split over.
        imbalance: Rows of the busiest rank over the mean.
        algorithm: All-to-all algorithm: see :func:`~calculon.hardware.collectives.algorithm_times.group_time`.
    """
    if dispatcher not in LIBRARIES:
        message = imbalance * tokens * routing.each * row
        return group_volume(system, "all_to_all", message, group, algorithm)
    return library_volume(system, routing, imbalance * tokens * copy_bytes(routing, row), group)


def copy_bytes(routing: Routing, row: Bytes | float) -> Bytes:
    """Return the bytes of a copy of a token in an expert library: its row, and an entry for each of its experts."""
    return np.asarray(row, dtype=float) + ENTRY_BYTES * routing.each


def library_volume(system: System, routing: Routing, message: Bytes, group: Group) -> Bytes:
    """Return :func:`exchange_volume` of an expert library; `message` is one copy of each token of a rank."""
    return copies(system, routing, group) * message


def exchange_time(
    system: System,
    dispatcher: str,
    tokens: Count | float,
    row: Bytes,
    routing: Routing,
    group: Group,
    *,
    imbalance: Array | float = 1.0,
    algorithm: str = AUTO,
) -> Seconds:
    r"""Return the time of a dispatch or a combine; arguments as in :func:`exchange_volume`.

    For expert libraries, which keep all ports busy together,

    .. math:: t = \alpha_b + \min(n - 1, 8) \alpha + \max_i v_i / (B_i \eta_i)

    where :math:`\alpha_b` is the largest base latency, :math:`\alpha` the step latency of the outermost network, on
    which a rank sends to :math:`n - 1` others as in an all-to-all, and :math:`\eta_i` the shares of ``ext.ep_library``
    or of the networks.
    """
    if dispatcher not in LIBRARIES:
        message = imbalance * tokens * routing.each * row
        return group_time(system, "all_to_all", message, group, algorithm)
    return library_time(system, routing, imbalance * tokens * copy_bytes(routing, row), group)


def library_time(system: System, routing: Routing, message: Bytes, group: Group) -> Seconds:
    """Return :func:`exchange_time` of an expert library; `message` is one copy of each token of a rank."""
    volume = library_volume(system, routing, message, group)
    fabric, library = system.fabric, system.ext.ep_library
    start: Seconds = np.array(0.0)
    moving: Seconds = np.array(0.0)
    for i, (network, used) in enumerate(zip(system.networks, group.used, strict=True)):
        share = network.efficiency
        if library is not None:
            inside = i == group.node
            share = library.nvlink_efficiency if inside else library.nic_efficiency
        slower = network.efficiency / share
        moving = np.maximum(moving, fabric.moving(np.array(i), volume[i] * slower))
        start = np.maximum(start, np.where(used, fabric.latency[i], 0.0))
    steps = np.minimum(_peers(group), IN_FLIGHT)
    time = start + steps * fabric.step_latency[group.network] + moving
    return np.where(np.asarray(group.ranks) == 1, 0.0, np.maximum(time, fabric.launch))


def _peers(group: Group) -> Count:
    """Return the number of ranks that a rank sends to: one in each other node, or all others in its node."""
    inside = np.asarray(group.members[group.node])
    nodes = np.asarray(group.ranks) // inside
    return np.where(nodes > 1, nodes, inside) - 1


def has_ports(system: System, dispatcher: str, group: Group) -> Array:
    """Return a mask of groups that can use a dispatcher: expert libraries need a port to each network, not a torus."""
    result: Array = np.ones(np.shape(group.ranks), dtype=bool)
    if dispatcher in LIBRARIES:
        for i, used in enumerate(group.used):
            result = result & ~(used & (system.link(i).torus is not None))
    return result


def engine_share(system: System, dispatcher: str, group: Group) -> Fraction:
    """Return the share of the compute engines that an exchange occupies.

    For an expert library this is the share of its multiprocessors (``ext.ep_library``); for a collective, or if nothing
    is stated, the largest share of the networks that the group uses.
    """
    if dispatcher in LIBRARIES and (library := system.ext.ep_library) is not None:
        return np.where(np.asarray(group.ranks) > 1, library.engine_share, 0.0)
    shares = [
        np.where(used, usage, 0.0)
        for used, usage in zip(group.used, system.fabric.processor_usage, strict=True)
    ]
    return np.max(np.broadcast_arrays(*shares), axis=0)
