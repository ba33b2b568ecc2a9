"""Expert parallelism in serving: dispatch to experts and combine of their results (all-to-all), and load imbalance.

With attention data parallelism (``attn_data_par``), groups of ranks have different tokens, and each token is sent to
the ranks of its `k` experts. The ranks of a group have the same tokens; each of them sends its part, and the all-reduce
of the group joins the results. The fastest of three implementations is used, or the one that the engine has:

- low-latency kernels that send a row for each expert of a token (:class:`~calculon.hardware.serving.ExpertExchange`);
- in passes with prompts, libraries that send one copy to each node and forward it to each rank
(:func:`~calculon.hardware.collectives.dispatch.library_time`): the host waits for the numbers of rows, which CUDA
graphs of decode passes cannot do (DeepEP, README);
- an all-gather of all tokens, and a reduce-scatter of the results.
"""

import heapq
from collections.abc import Mapping
from functools import lru_cache
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from calculon.base.units import Array, Bytes, Count, Seconds
from calculon.declarations.model import Model
from calculon.hardware.collectives.algorithm_times import AUTO, group_time
from calculon.hardware.collectives.dispatch import Routing, has_ports, library_time
from calculon.hardware.collectives.placement import Group
from calculon.hardware.system import System
from calculon.serving.passes.pass_sizes import PassSizes
from calculon.serving.records.number_types import ACTIVATION_BYTES, NumberTypes

# Imbalance of experts, and the load of the busiest rank.
#
# Shares of experts follow a density :math:`\propto x^{-\alpha}` on [1, 100]; `E` experts have its quantiles
# :math:`(i + 1/2)/E`. Source: NVIDIA, aiconfigurator, ``docs/POWER_LAW_DISTRIBUTION.md``, for the law and for observed
# exponents: 1.01 for DeepSeek-R1 and 1.2 for Qwen3-235B, whose busiest fifth of experts receives about 65 % of the
# tokens. The interval [1, 100] was chosen to match: it gives 67 %.

EVEN = "even"
"""Routing that gives all experts the same number of tokens in each pass, as some benchmarks force it to."""

ROUTINGS: Mapping[str, float] = {
    EVEN: 0.0,
    "balanced": 0.0,
    "power_law:1.01": 1.01,
    "power_law:1.2": 1.2,
}
"""Exponents of the shares of experts by name; 0 means equal shares."""

MEASURED_ROUTING = "power_law:1.01"
"""Default routing: the smaller one of the two exponents that were measured."""

LARGEST = 100.0
"""Ratio of the largest share of an expert to the smallest."""

PLACEMENTS, SEED = 256, 1
"""Random placements of experts over which the load of the busiest rank is averaged, and their seed."""


@lru_cache(maxsize=256)
def shares(routing: str, experts: int) -> Array:
    """Return the share of tokens of each expert, in ascending order; the sum is 1.

    >>> shares("balanced", 4).tolist()
    [0.25, 0.25, 0.25, 0.25]
    """
    exponent = ROUTINGS[routing]
    if not exponent:
        return np.full(experts, 1 / experts)
    places = (np.arange(experts) + 0.5) / experts
    power = 1 - exponent
    found: Array = ((LARGEST**power - 1) * places + 1) ** (1 / power)
    return found / found.sum()


def imbalance(routing: str, experts: int, groups: Count, copies: Count) -> Array:
    """Return the tokens of the busiest rank over the mean, over many passes.

    Without copies, experts are placed at random, in the numbering of the model, and the result is a mean over
    placements. With copies, each copy goes to the expert with the most tokens per copy, and all are placed greedily,
    the busiest first. Source: DeepSeek-AI, EPLB, README, "global load balancing".

    Args:
        routing: One of :data:`ROUTINGS`.
        experts: Experts of a block.
        groups: Groups of ranks with different experts; they divide the experts.
        copies: Redundant copies of experts, over all groups.
    """
    result = np.ones(np.broadcast_shapes(np.shape(groups), np.shape(copies)))
    if not ROUTINGS[routing]:
        return result
    # many deployments share few combinations of groups and copies, and each placement is expensive
    pairs = np.stack([result * groups, result * copies], axis=-1).reshape(-1, 2)
    distinct, number = np.unique(pairs, axis=0, return_inverse=True)
    each = [_fullest(routing, experts, int(one[0]), int(one[1])) for one in distinct]
    return np.array(each)[number.reshape(-1)].reshape(result.shape)


def busiest(model: Model, groups: Count, copies: Count, tokens: Count, routing: str) -> Array:
    r"""Return the tokens of the busiest rank of a pass over the mean.

    .. math:: 1 + \sqrt{(u - 1)^2 + c_g^2 \varphi / r}

    with the :func:`imbalance` u over many passes, and chance in a pass in which a rank has r rows in the mean: their
    variance is r times the :func:`dispersion`, and the largest of g ranks exceeds the mean by c_g standard deviations
    (:func:`expected_largest`). Both are independent. A token sends a rank at most one row for each of its experts.

    Args:
        model: The model with experts.
        groups, copies, routing: As in :func:`imbalance`.
        tokens: Tokens of all ranks.
    """
    uneven = imbalance(routing, model.num_experts, groups, copies)
    if routing == EVEN:
        return uneven
    each = model.experts_per_token
    # a pass without tokens has no rows, which are multiplied by a finite imbalance
    rows = np.maximum(tokens * each / groups, 1e-9)
    chance = expected_largest(groups) ** 2 * dispersion(model, groups) / rows
    fullest = 1 + np.sqrt((uneven - 1) ** 2 + chance)
    local = (model.num_experts + copies) / groups
    return np.minimum(fullest, groups * np.minimum(1.0, local / each))


def dispersion(model: Model, groups: Count) -> Array:
    r"""Return the variance of the rows that tokens send to a rank over their mean; 1 for independent experts.

    A token of a model with group-limited routing selects T of G groups of experts, and k experts in these. A rank with
    s = G / g of them, or a part of one, receives rows of a hypergeometric number of groups, k / T of each:

    .. math:: 1 + \frac{k}{T} \left(1 - \frac{T}{G}\right) \frac{G - s}{G - 1} \min(1, s)

    Source: DeepSeek-V3, arXiv 2412.19437, section 2.1.2, node-limited routing.
    """
    all_groups, limit = model.router_groups, model.router_group_topk
    if not limit or limit >= all_groups:
        return np.ones(np.shape(groups))
    held = all_groups / np.asarray(groups, float)
    whole = np.maximum(held, 1.0)
    apart = (1 - limit / all_groups) * (all_groups - whole) / (all_groups - 1)
    result: Array = 1 + model.experts_per_token / limit * apart * np.minimum(held, 1.0)
    return result


def expected_largest(groups: Count) -> Array:
    """Return the expected largest of a number of standard normal values, or ranks; 0 for one.

    Source: Blom, *Statistical Estimates and Transformed Beta-Variables*, 1958: the quantile (g - 3/8) / (g + 1/4).
    Values with a fixed sum, such as the rows of ranks, have the same one relative to independent values.

    >>> expected_largest(np.array([1, 8])).round(2).tolist()
    [0.0, 1.43]
    """
    distinct, number = np.unique(groups, return_inverse=True)
    quantile = NormalDist().inv_cdf
    each = np.array([quantile((one - 0.375) / (one + 0.25)) for one in distinct.tolist()])
    return each[number.reshape(-1)].reshape(np.shape(groups))


@lru_cache(maxsize=4096)
def _fullest(routing: str, experts: int, groups: int, copies: int) -> float:
    """Return the tokens of the busiest group over the mean."""
    load = shares(routing, experts)
    if groups == 1:
        return 1.0
    if copies:
        return groups * _packed(_with_copies(load, copies), groups)
    # a fixed seed: equal inputs give equal results in every process
    draw = np.random.default_rng(SEED)
    placed = draw.permuted(np.tile(load, (PLACEMENTS, 1)), axis=1)
    groups_of = placed.reshape(PLACEMENTS, groups, -1).sum(axis=2)
    return float(groups * groups_of.max(axis=1).mean())


def _with_copies(load: Array, copies: int) -> list[float]:
    """Return the loads of experts and their copies, which share tokens evenly; each copy goes to the busiest."""
    heap = [(-one, one, 1) for one in load.tolist()]
    heapq.heapify(heap)
    for _ in range(copies):
        _, total, count = heapq.heappop(heap)
        heapq.heappush(heap, (-total / (count + 1), total, count + 1))
    return [total / count for _, total, count in heap for _ in range(count)]


def _packed(loads: list[float], groups: int) -> float:
    """Return the load of the busiest group after greedy placement.

    Experts are placed in descending order of load, each into the least loaded group with a free slot.
    """
    slots = len(loads) // groups
    heap = [(0.0, slots)] * groups
    most = 0.0
    for one in sorted(loads, reverse=True):
        held, left = heapq.heappop(heap)
        most = max(most, held + one)
        if left > 1:
            heapq.heappush(heap, (held + one, left - 1))
    return most


def activated_experts(
    model: Model, groups: Count, copies: Count, tokens: Count, routing: str = "balanced"
) -> Count:
    r"""Return the experts, including copies, that at least one token activates on the rank with the most of them.

    A token misses an expert with probability ``1 - k s``, where `s` is the share of the expert, and `n` tokens miss it
    with this probability to the power `n`. If a share p of the E experts of a rank is activated in the mean, their
    number has a variance of E p (1 - p) times the :func:`dispersion`, and the slowest of g ranks exceeds the mean by
    c_g standard deviations (:func:`expected_largest`). DeepSeek-V3 routes evenly (arXiv 2412.19437, section 2.1.2).

    Args:
        model: The model with experts.
        groups, copies: As in :func:`imbalance`.
        tokens: Tokens of all ranks.
        routing: One of :data:`ROUTINGS`.
    """
    experts, each = model.num_experts, model.experts_per_token
    groups, copies, tokens = np.broadcast_arrays(groups, copies, np.asarray(tokens, float))
    local = (experts + copies) / groups
    if routing == EVEN:
        return np.minimum(local, tokens * each / groups)
    if not ROUTINGS[routing] and not np.any(copies):
        mean = local * (1 - (1 - each / experts) ** tokens)
    else:
        mean = np.zeros(tokens.shape)
        distinct, number = np.unique(tokens, return_inverse=True)
        for count in np.unique(copies):
            touched = _activated(routing, experts, each, int(count), distinct)[number].reshape(
                tokens.shape
            )
            mean = np.where(copies == count, touched / groups, mean)
    variance = dispersion(model, groups) * mean * (1 - mean / local)
    spread = np.sqrt(np.maximum(variance, 0.0))
    most = np.minimum(local, each * tokens)
    return np.minimum(mean + expected_largest(groups) * spread, np.maximum(most, mean))


def _activated(routing: str, experts: int, each: int, copies: int, tokens: Count) -> Count:
    """Return the experts of all ranks, including copies, that at least one token activates."""
    # experts with equal shares have equal probabilities; with balanced routing a single term is left
    loads, counts = np.unique(_with_copies(shares(routing, experts), copies), return_counts=True)
    result: Count = np.zeros_like(tokens, float)
    for chance, count in zip(np.minimum(1.0, each * loads), counts, strict=True):
        result += count * (1 - (1 - chance) ** tokens)
    return result


DISPATCH, COMBINE = "dispatch", "combine"
"""Rows of a pass, in order of execution."""

FASTEST_EXCHANGE, LOW_LATENCY, COLLECTIVES = "fastest", "low_latency", "collectives"

EXCHANGES: Mapping[str, str] = {
    FASTEST_EXCHANGE: "the fastest of all",
    LOW_LATENCY: "kernels that send a row for each expert, or in passes with prompts a copy to each node",
    COLLECTIVES: "all-gather of all tokens, and reduce-scatter of the results",
}
"""Implementations of the exchange with experts; machines and splits without the one stated use collectives."""


class Exchange(NamedTuple):
    """Data that one rank sends in each block with experts; arrays of shape ``(passes,)``.

    Attributes:
        tokens: Tokens that only this rank sends; 0 if all ranks have all tokens.
        decoded: Tokens among them that do not belong to prompts.
        sent, returned: Bytes of a token as it is sent, and of a result.
        routing: Experts of a token.
        ranks, groups: Ranks over which experts are split, and groups of them with different experts.
        fullest: Tokens of the busiest rank over the mean, without chance, which the measured kernels contain.
        implementation: One of :data:`EXCHANGES`.
    """

    tokens: Count
    decoded: Count
    sent: float
    returned: float
    routing: Routing
    ranks: Count
    groups: Count
    fullest: Array
    implementation: str = FASTEST_EXCHANGE

    @classmethod
    def of(
        cls,
        model: Model,
        types: NumberTypes,
        sizes: PassSizes,
        routing: str,
        implementation: str = FASTEST_EXCHANGE,
    ) -> "Exchange":
        """Return the exchange of passes."""
        group = sizes.of_group
        separate = sizes.attn_data_par > 1
        width = model.moe_latent or model.hidden
        return cls(
            tokens=np.where(separate, group.tokens / group.tensor_par, 0.0),
            decoded=np.where(separate, group.decoded * group.verified / group.tensor_par, 0.0),
            sent=width * types.dispatch,
            returned=float(width * ACTIVATION_BYTES),
            routing=Routing.of(model),
            ranks=sizes.tensor_par,
            groups=sizes.expert_par,
            fullest=imbalance(routing, model.num_experts, sizes.expert_par, sizes.copies),
            implementation=implementation,
        )

    @property
    def shared_by(self) -> Count:
        """Ranks that split each expert, all of which receive its tokens."""
        return self.ranks / self.groups

    def message(self, row: float) -> Bytes:
        """Return the bytes of the rows for all experts of the tokens of a rank, including rows for the rank itself."""
        return self.fullest * self.tokens * self.routing.each * row * self.shared_by


def exchange_times(system: System, exchange: Exchange) -> tuple[Seconds, Seconds]:
    """Return the times of dispatch and combine of one block, by the implementation with the smallest sum.

    Only the engine's own implementation counts if it states one and can run.
    """
    some = exchange.tokens > 0
    # passes without an exchange get a group of two, because a group of one has no network; they are masked below
    ranks = np.where(some, exchange.ranks, 2).astype(np.int64)
    group = Group.in_mesh(system, ranks, np.ones_like(ranks))
    kernels = [
        [implementation(system, exchange, group, row) for row in (exchange.sent, exchange.returned)]
        for implementation in (_low_latency_time, _library_time)
    ]
    times = [*kernels, _collective_times(system, exchange, group)]
    table = np.stack([np.stack(np.broadcast_arrays(*pair)) for pair in times])
    total = table.sum(axis=1)
    if exchange.implementation == COLLECTIVES:
        total[:-1] = np.inf
    elif exchange.implementation == LOW_LATENCY:
        total[-1] = np.where(np.isfinite(total[:-1]).any(axis=0), np.inf, total[-1])
    fastest = np.argmin(total, axis=0)
    dispatch, combine = (np.choose(fastest, table[:, part]) for part in range(2))
    return np.where(some, dispatch, 0.0), np.where(some, combine, 0.0)


def _low_latency_time(system: System, exchange: Exchange, group: Group, row: float) -> Seconds:
    """Return the time of low-latency kernels, one way."""
    law, inside = system.ext.serving.expert_exchange, np.asarray(group.members[group.node])
    message = exchange.message(row)
    moving: Seconds = np.zeros_like(exchange.tokens)
    for number, network in enumerate(system.networks[group.node :], group.node):
        leaving = (inside - 1) if number == group.node else group.ranks - group.below[number]
        share = np.where(group.used[number], leaving / group.ranks, 0.0)
        efficiency = law.nvlink_efficiency if number == group.node else law.nic_efficiency
        moving = np.maximum(moving, message * share / (efficiency * network.bandwidth))
    # the law is fitted to nodes with NVLink; other machines fall back to libraries and collectives
    able = system.link(group.node).kind == "nvlink"
    return np.where(able, law.latency + moving, np.inf)


def _library_time(system: System, exchange: Exchange, group: Group, row: float) -> Seconds:
    """Return the time of a library that sends one copy to each node, one way; it does not support split experts.

    A pass with prompts is never faster than its decoded tokens alone.
    """
    message = exchange.fullest * exchange.tokens * row
    time = library_time(system, exchange.routing, message, group)
    alone = _low_latency_time(system, exchange._replace(tokens=exchange.decoded), group, row)
    able = has_ports(system, "deepep", group) & (exchange.shared_by == 1)
    prompts = exchange.tokens > exchange.decoded
    return np.where(able & prompts, np.maximum(time, alone), np.inf)


def _collective_times(system: System, exchange: Exchange, group: Group) -> list[Seconds]:
    """Return the times of an all-gather of all tokens, and of a reduce-scatter of the results."""
    tokens = np.maximum(exchange.tokens * exchange.ranks, 1.0)
    return [
        group_time(system, operation, tokens * row, group, AUTO)
        for operation, row in (("all_gather", exchange.sent), ("reduce_scatter", exchange.returned))
    ]
