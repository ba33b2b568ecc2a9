"""Copies of tokens that libraries of experts send: one to each node, and from there to each rank, with an expert."""

from math import comb

from .collectives import MAX_WAITING, Group
from .fields import Model
from .system import System

NAMES = ("deepep", "hybridep")

ENTRY = 12
"""Bytes of the number and the score of an expert, with a copy."""


def _with_expert(model: Model, parts: int) -> float:
    """Return the chance that one of equal parts of the experts has one of a token's.

    Choices of k experts are counted: of all, or for each number of groups of the part that the token reaches.
    """
    total, each = model.num_experts, model.experts_per_token
    groups, reached = model.router_groups, model.router_group_topk
    size = total // parts
    nested = groups and (groups % parts == 0 or parts % groups == 0)
    if not nested:
        return 1 - comb(total - size, each) / comb(total, each)
    width = total // groups
    mine = max(1, groups // parts)  # groups that the part is of, or is in
    found = 0.0
    for chosen in range(1, min(mine, reached) + 1):
        if reached - chosen > groups - mine:
            continue
        ways = comb(mine, chosen) * comb(groups - mine, reached - chosen)
        others = reached * width - chosen * min(width, size)
        has = 1 - comb(others, each) / comb(reached * width, each)
        found += ways / comb(groups, reached) * has
    return found


def ranks_of_token(model: Model, ranks: int) -> float:
    """Return of how many ranks a token has an expert."""
    return ranks * _with_expert(model, ranks)


def _nodes(group: Group, node: int) -> tuple[int, int]:
    """Return the ranks of the group in a node, and its nodes."""
    return group.members[node], group.ranks // group.members[node]


def copies(system: System, group: Group, node: int, model: Model) -> dict[int, float]:
    """Return copies of a token through a port of each network; what goes far passes ports between nodes on its way."""
    inside, nodes = _nodes(group, node)
    found, passing = {}, 0.0
    for number in reversed(group.used):
        if number == node:
            found[number] = group.ranks * _with_expert(model, group.ranks) * (inside - 1) / inside
            continue
        others = (group.members[number] - 1) * (group.below(number) // inside)
        sent = others * _with_expert(model, nodes)
        if system.networks[number].kind == "net":
            passing += sent
            sent = passing
        found[number] = sent
    return found


def time(system: System, group: Group, node: int, model: Model, size: float) -> float:
    """Return seconds of copies of so many bytes each: all ports are busy together."""
    if group.ranks == 1:
        return 0
    longest = start = 0.0
    for number, sent in copies(system, group, node, model).items():
        network, library = system.networks[number], system.library
        share = network.efficiency
        if library is not None:
            share = library.inside if number == node else library.between
        longest = max(longest, network.moving(sent * size * network.efficiency / share))
        start = max(start, network.latency)
    inside, nodes = _nodes(group, node)
    peers = nodes - 1 if nodes > 1 else inside - 1
    steps = min(peers, MAX_WAITING) * system.networks[group.outermost].step_latency
    return max(start + steps + longest, system.launch)
