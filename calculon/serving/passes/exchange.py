"""The exchange between tokens and experts, where ranks have requests of their own: dispatch, and the way back.

Groups of ranks (``attn_data_par``) have different tokens, and each token goes to the ranks of its `k` experts. Ranks of
a group have the same tokens; each of them sends its part, and the reduction of the group joins what comes back. Of
three ways the fastest counts:

- kernels of low latency that send a row for each expert of a token
  (:class:`~calculon.hardware.serving.ExpertExchange`);
- in passes with prompts, libraries that send one copy to each node and forward it to each rank
  (:func:`~calculon.hardware.collectives.dispatch.library_time`): the host waits for numbers of rows, which graphs of
  decoding do not (DeepEP, README);
- an all-gather of all tokens, and a reduce-scatter of their sums.
"""

from typing import NamedTuple

import numpy as np

from calculon.base.units import Array, Bytes, Count, Seconds
from calculon.declarations.model import Model
from calculon.hardware.collectives.algorithm_times import AUTO, group_time
from calculon.hardware.collectives.dispatch import Routing, has_ports, library_time
from calculon.hardware.collectives.placement import Group
from calculon.hardware.system import System
from calculon.serving.passes.expert_load import imbalance
from calculon.serving.passes.pass_sizes import PassSizes
from calculon.serving.records.number_types import ACTIVATION_BYTES, NumberTypes

DISPATCH, COMBINE = "dispatch", "combine"
"""Rows of a pass, in the order of :class:`Ways`."""


class Exchange(NamedTuple):
    """What one rank sends in each block with experts; arrays of shape ``(passes,)``.

    Attributes:
        tokens: Tokens of a rank, which no other rank sends; 0 where all ranks have all tokens.
        decoded: Those among them that are not of prompts.
        sent, returned: Bytes of a token as it is sent, and of a result.
        routing: Experts of a token.
        ranks, groups: Ranks among which experts are split, and groups of them that have different experts.
        fullest: Tokens of the fullest rank over the mean.
    """

    tokens: Count
    decoded: Count
    sent: float
    returned: float
    routing: Routing
    ranks: Count
    groups: Count
    fullest: Array

    @classmethod
    def of(cls, model: Model, types: NumberTypes, sizes: PassSizes, routing: str) -> "Exchange":
        """Return the exchange of passes."""
        own = sizes.of_group
        apart = sizes.attn_data_par > 1
        width = model.moe_latent or model.hidden
        return cls(
            tokens=np.where(apart, own.tokens / own.tensor_par, 0.0),
            decoded=np.where(apart, own.decoded * own.verified / own.tensor_par, 0.0),
            sent=width * types.dispatch,
            returned=float(width * ACTIVATION_BYTES),
            routing=Routing.of(model),
            ranks=sizes.tensor_par,
            groups=sizes.expert_par,
            fullest=imbalance(routing, model.num_experts, sizes.expert_par, sizes.copies),
        )

    @property
    def shared_by(self) -> Count:
        """Ranks that have a part of each expert, all of which get its tokens."""
        return self.ranks / self.groups

    def message(self, row: float) -> Bytes:
        """Return the bytes of the rows of all experts of the tokens of a rank, those for its own ranks included."""
        return self.fullest * self.tokens * self.routing.each * row * self.shared_by


def exchange_times(system: System, exchange: Exchange) -> tuple[Seconds, Seconds]:
    """Return the times of dispatch and combine of one block, by the way that is the fastest for both together."""
    some = exchange.tokens > 0
    ranks = np.where(some, exchange.ranks, 2).astype(np.int64)
    group = Group.in_mesh(system, ranks, np.ones_like(ranks))
    ways = [
        [way(system, exchange, group, row) for row in (exchange.sent, exchange.returned)]
        for way in (_rows, _copies)
    ]
    ways.append(_gathered(system, exchange, group))
    table = np.stack([np.stack(np.broadcast_arrays(*way)) for way in ways])
    fastest = np.argmin(table.sum(axis=1), axis=0)
    there, back = (np.choose(fastest, table[:, part]) for part in range(2))
    return np.where(some, there, 0.0), np.where(some, back, 0.0)


def _rows(system: System, exchange: Exchange, group: Group, row: float) -> Seconds:
    """Return the time of kernels of low latency, one way."""
    law, inside = system.ext.serving.expert_exchange, np.asarray(group.members[group.node])
    message = exchange.message(row)
    moving: Seconds = np.zeros_like(exchange.tokens)
    for number, network in enumerate(system.networks[group.node :], group.node):
        leaving = (inside - 1) if number == group.node else group.ranks - group.below[number]
        share = np.where(group.used[number], leaving / group.ranks, 0.0)
        efficiency = law.nvlink_efficiency if number == group.node else law.nic_efficiency
        moving = np.maximum(moving, message * share / (efficiency * network.bandwidth))
    able = system.link(group.node).kind == "nvlink"
    return np.where(able, law.latency + moving, np.inf)


def _copies(system: System, exchange: Exchange, group: Group, row: float) -> Seconds:
    """Return the time of a library that sends one copy to each node, one way; it knows no experts in parts.

    No pass with prompts is faster than that without them.
    """
    message = exchange.fullest * exchange.tokens * row
    time = library_time(system, exchange.routing, message, group)
    alone = _rows(system, exchange._replace(tokens=exchange.decoded), group, row)
    able = has_ports(system, "deepep", group) & (exchange.shared_by == 1)
    prompts = exchange.tokens > exchange.decoded
    return np.where(able & prompts, np.maximum(time, alone), np.inf)


def _gathered(system: System, exchange: Exchange, group: Group) -> list[Seconds]:
    """Return the times of an all-gather of all tokens, and of a reduce-scatter of their sums."""
    tokens = np.maximum(exchange.tokens * exchange.ranks, 1.0)
    return [
        group_time(system, operation, tokens * row, group, AUTO)
        for operation, row in (("all_gather", exchange.sent), ("reduce_scatter", exchange.returned))
    ]
