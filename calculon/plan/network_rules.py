"""Whether groups of processors fit the networks they are put on (section 1.7)."""

import numpy as np

from calculon.errors import Problem
from calculon.plan.rule import DEGREES, One, Question, Rule
from calculon.units import Array


def _networks_exist(q: Question) -> Array:
    count = len(q.system.networks)
    masks = [getattr(q.plan, f"{name}_net") < count for name in DEGREES]
    mask: Array = masks[0] & masks[1] & masks[2]
    return mask


def _explain_networks(one: One) -> Problem:
    count = len(one.system.networks)
    names = [f"{name}_net" for name in DEGREES]
    name = next(name for name in names if getattr(one.execution, name) >= count)
    wanted = f"one of the {count} networks of {one.system.name}, numbered 0 to {count - 1}"
    return Problem(name, wanted, str(getattr(one.execution, name)))


def _group_size(q: Question, network: int) -> Array:
    """Product of the degrees above 1 that a network carries; 1 where it carries none."""
    product = np.ones(len(q.plan))
    for name in DEGREES:
        on_network = getattr(q.plan, f"{name}_net") == network
        product = product * np.where(on_network, getattr(q.plan, name), 1)
    return product


def _networks_large_enough(q: Question) -> Array:
    fits = np.ones(len(q.plan), bool)
    for i, network in enumerate(q.system.networks):
        group = _group_size(q, i)
        fits &= (group == 1) | (group <= network.size)
    return fits


def _networks_filled(q: Question) -> Array:
    fits = np.ones(len(q.plan), bool)
    for i, network in enumerate(q.system.networks):
        if network.must_be_filled:
            fits &= np.mod(network.size, _group_size(q, i)) == 0
    return fits


def _network_use(one: One, *, too_large: bool) -> tuple[int, int, str]:
    """Return the first offending network, the size of the group on it, and which degrees make it up."""
    e = one.execution
    for i, network in enumerate(one.system.networks):
        used = [n for n in DEGREES if getattr(e, f"{n}_net") == i and getattr(e, n) > 1]
        group = int(np.prod([getattr(e, name) for name in used], dtype=object)) if used else 1
        if (too_large and used and group > network.size) or (
            not too_large and network.must_be_filled and network.size % group
        ):
            return i, group, " x ".join(f"{name}={getattr(e, name)}" for name in used)
    raise AssertionError("no network offends")


def _explain_too_small(one: One) -> str:
    i, group, used = _network_use(one, too_large=True)
    size = one.system.networks[i].size
    return (
        f"network {i} of {one.system.name} is not big enough: it joins {size} processors, and {used} "
        f"needs {group} ({group - size} too many)"
    )


def _explain_not_filled(one: One) -> str:
    i, group, used = _network_use(one, too_large=False)
    size = one.system.networks[i].size
    return (
        f"network {i} of {one.system.name} must be filled: {used} makes groups of {group}, which do "
        f"not divide its {size} processors"
    )


NETWORK_RULES: tuple[Rule, ...] = (
    Rule("network_number", _networks_exist, _explain_networks),
    Rule("network_size", _networks_large_enough, _explain_too_small),
    Rule("network_filled", _networks_filled, _explain_not_filled),
)
