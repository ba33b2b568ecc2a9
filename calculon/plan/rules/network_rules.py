"""Rules of networks: process groups must fit the networks that they use (section 1.7)."""

from dataclasses import replace
from functools import reduce
from math import prod
from operator import and_

import numpy as np

from calculon.base.errors import Problem
from calculon.base.units import Array
from calculon.declarations.axes import AXES, FURTHER_AXES, MESH_AXES, PUBLISHED_AXES, Axis
from calculon.declarations.named_values import PUBLISHED
from calculon.hardware.collectives.placement import nested_networks
from calculon.plan.mesh import mesh_fanouts, mesh_size, processors
from calculon.plan.plan import Plan
from calculon.plan.rules.rule import Request, Requests, Rule


def _networks_exist(r: Requests, axes: tuple[Axis, ...] = PUBLISHED_AXES) -> Array:
    count = len(r.system.networks)
    mask: Array = reduce(and_, (getattr(r.plan, axis.network) < count for axis in axes))
    if _meshed(r):
        mask = mask | (r.plan.mesh_order > 0)
    return mask


def _explain_mesh_size(one: Request) -> str:
    sizes = [network.size for network in one.system.networks]
    e = one.execution
    procs = prod(getattr(e, axis.degree) for axis in MESH_AXES)
    return (
        f"network {int(np.argmax(sizes))} of {one.system.name}, the largest, is too small: it connects {max(sizes)} "
        f"processors, and there are {procs} ({procs - max(sizes)} too many)"
    )


def _mesh_is_even(r: Requests) -> Array:
    """Return a mask of executions for which the system has enough instances of evenly filled networks."""
    return (r.plan.mesh_order == 0) | (
        processors(r.plan) <= mesh_size(mesh_fanouts(r.plan, r.system))
    )


def _explain_uneven(one: Request) -> str:
    """Explain how many processors of each network are used, how many that makes, and which replicas would fit."""
    e, system = one.execution, one.system
    plan, nested = Plan.of(e), nested_networks(one.system)
    used = [int(np.asarray(fanout).item()) for fanout in mesh_fanouts(plan, system)]
    count, most = prod(getattr(e, axis.degree) for axis in MESH_AXES), prod(used)
    parts = ", ".join(
        f"{prod(used[: i + 1])} of the {system.networks[number].size} of each network {number}"
        for i, (number, _) in enumerate(nested[:-1])
    )
    stated = [axis for axis in AXES if axis in PUBLISHED_AXES or getattr(e, axis.degree) > 1]
    degrees = ", ".join(f"{axis.degree}={getattr(e, axis.degree)}" for axis in stated)
    return (
        f"mesh_order {e.mesh_order} with {degrees} uses {parts or 'the innermost network'}, so that all groups are "
        f"spread evenly; {system.name} has that for {most} processors, and there are {count} ({count - most} too many)"
        f"{_fewer_replicas(one, most // (count // e.data_par))}"
    )


_TRIED = 200
"""Largest number of replica counts that a message tries."""


def _fewer_replicas(one: Request, most: int) -> str:
    """Return a hint with the largest smaller number of replicas that fits, or an empty text."""
    e = one.execution
    for replicas in range(most, max(most - _TRIED, 0), -1):
        columns = Plan.of(replace(e, data_par=replicas, dp_shard=0))
        if (
            processors(columns).item()
            <= np.asarray(mesh_size(mesh_fanouts(columns, one.system))).item()
        ):
            return f"; data_par={replicas} would fit"
    return ""


def _explain_networks(one: Request) -> Problem:
    count = len(one.system.networks)
    names = [axis.network for axis in AXES]
    name = next(name for name in names if getattr(one.execution, name) >= count)
    wanted = f"one of the {count} networks of {one.system.name}, numbered 0 to {count - 1}"
    return Problem(name, wanted, str(getattr(one.execution, name)))


def _group_size(r: Requests, network: int) -> Array:
    """Return the product of the degrees above 1 on a stated network; 1 if it carries no group."""
    if _meshed(r):
        stated = r.plan.is_choice("mesh_order", "stated")
        return np.where(stated, _stated_size(r, network), 1.0)
    return _stated_size(r, network)


def _meshed(r: Requests) -> bool:
    """Return True if any row derives its networks from the numbering of ranks."""
    return "mesh_order" in r.asked


def _stated_size(r: Requests, network: int) -> Array:
    # In floating point, because integers would overflow for absurd degrees.
    product = np.ones(1)
    for axis in MESH_AXES:
        on_network = getattr(r.plan, axis.network) == network
        product = product * np.where(on_network, getattr(r.plan, axis.degree), 1)
    return product


def _networks_large_enough(r: Requests) -> Array:
    fits = np.ones(1, bool)
    for i, network in enumerate(r.system.networks):
        group = _group_size(r, i)
        fits = fits & ((group == 1) | (group <= network.size))
    return fits


def _networks_filled(r: Requests) -> Array:
    """Return a mask of executions that fill the networks that must be filled, in the published edition.

    The flag describes nodes that jobs get as a whole; the published model then refuses groups that do not tile them
    (section 1.7). Other editions ignore it, because jobs may leave processors of a node idle.
    """
    fits, filled = ~r.plan.is_choice("edition", PUBLISHED), np.ones(1, bool)
    for i, network in enumerate(r.system.networks):
        if network.must_be_filled:
            filled = filled & (np.mod(network.size, _group_size(r, i)) == 0)
    return fits | filled


def _network_use(one: Request, *, too_large: bool) -> tuple[int, int, str]:
    """Return the first violating network, the size of the group on it, and the degrees of the group."""
    e = one.execution
    for i, network in enumerate(one.system.networks):
        used = [
            a.degree for a in MESH_AXES if getattr(e, a.network) == i and getattr(e, a.degree) > 1
        ]
        # As Python integers, which do not overflow in a message about absurd degrees.
        group = int(np.prod([getattr(e, name) for name in used], dtype=object)) if used else 1
        if (too_large and used and group > network.size) or (
            not too_large and network.must_be_filled and network.size % group
        ):
            return i, group, " x ".join(f"{name}={getattr(e, name)}" for name in used)
    raise AssertionError("no network offends")


def _explain_too_small(one: Request) -> str:
    i, group, used = _network_use(one, too_large=True)
    size = one.system.networks[i].size
    return (
        f"network {i} of {one.system.name} is too small: it connects {size} processors, and {used} "
        f"needs {group} ({group - size} too many)"
    )


def _explain_not_filled(one: Request) -> str:
    i, group, used = _network_use(one, too_large=False)
    size = one.system.networks[i].size
    return (
        f"network {i} of {one.system.name} must be filled: {used} makes groups of {group}, which do "
        f"not divide its {size} processors"
    )


NETWORK_RULES: tuple[Rule, ...] = (
    Rule("network_number", _networks_exist, _explain_networks),
    Rule("network_size", _networks_large_enough, _explain_too_small, counted=True),
    Rule("network_filled", _networks_filled, _explain_not_filled, counted=True),
)


def _further_rules(axis: Axis) -> list[Rule]:
    """Create the rules on degree and network of a further axis.

    The network has a separate rule, because a search checks it only for added candidates.
    """
    degree, network, width = axis.degree, axis.network, axis.divides

    def divides(r: Requests) -> Array:
        return getattr(r.model, width) % getattr(r.plan, degree) == 0

    def explain_width(one: Request) -> Problem:
        wanted = f"a divisor of the model's {width}={getattr(one.model, width)}"
        return Problem(degree, wanted, str(getattr(one.execution, degree)))

    def used(r: Requests) -> Array:
        return (getattr(r.plan, degree) > 1) | (getattr(r.plan, network) == 0)

    def explain_unused(one: Request) -> Problem:
        return Problem(network, f"0, since {degree} is 1", str(getattr(one.execution, network)))

    def exists(r: Requests) -> Array:
        return _networks_exist(r, (axis,))

    rules = [
        Rule(f"{network}_used", used, explain_unused, (network,)),
        Rule(f"{network}_number", exists, _explain_networks, (network,)),
    ]
    if width:
        rules.append(Rule(f"{degree}_split", divides, explain_width, (degree,)))
    return rules


FURTHER_RULES = tuple(rule for axis in FURTHER_AXES for rule in _further_rules(axis))

MESH_RULES: tuple[Rule, ...] = (
    Rule(
        "mesh_size",
        lambda r: (processors(r.plan) <= r.system.fabric.size.max()) | (r.plan.mesh_order == 0),
        _explain_mesh_size,
        ("mesh_order",),
        counted=True,
    ),
    Rule("mesh_even", _mesh_is_even, _explain_uneven, ("mesh_order",), counted=True),
)
