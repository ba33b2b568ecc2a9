"""Whether groups of processors fit the networks they are put on (section 1.7)."""

import numpy as np

from calculon.errors import Problem
from calculon.plan.mesh import data_stride, even, pipeline_stride
from calculon.plan.rules.rule import DEGREES, One, Question, Rule
from calculon.units import Array


def _networks_exist(q: Question) -> Array:
    count = len(q.system.networks)
    masks = [getattr(q.plan, f"{name}_net") < count for name in DEGREES]
    mask: Array = masks[0] & masks[1] & masks[2]
    if _meshed(q):
        mask = mask | (q.plan.mesh_order > 0)
    return mask


def _mesh_holds(q: Question) -> Array:
    degrees = [getattr(q.plan, name).astype(float) for name in DEGREES]
    fits = degrees[0] * degrees[1] * degrees[2] <= q.system.fabric.size.max()
    mask: Array = fits | (q.plan.mesh_order == 0)
    return mask


def _explain_mesh_size(one: One) -> str:
    sizes = [network.size for network in one.system.networks]
    e = one.execution
    procs = e.tensor_par * e.pipeline_par * e.data_par
    return (
        f"network {int(np.argmax(sizes))} of {one.system.name}, the largest, is not big enough: it joins {max(sizes)} "
        f"processors, and there are {procs} ({procs - max(sizes)} too many)"
    )


def _mesh_is_even(q: Question) -> Array:
    p, stride = q.plan, np.maximum(data_stride(q.plan), 1)
    shards = np.where(p.dp_shard > 0, p.dp_shard, p.data_par)
    copies = np.maximum(p.data_par // np.maximum(shards, 1), 1)
    processors = p.tensor_par * p.pipeline_par * p.data_par
    groups = (
        (p.tensor_par, np.array(1)),
        (p.pipeline_par, np.maximum(pipeline_stride(p), 1)),
        (p.data_par, stride),
        (shards, stride),
        (copies, stride * shards),
    )
    alike = [even(q.system, ranks, apart, processors) for ranks, apart in groups]
    mask: Array = (p.mesh_order == 0) | np.logical_and.reduce(np.broadcast_arrays(*alike))
    return mask


def _explain_uneven(one: One) -> str:
    e = one.execution
    sizes = ", ".join(str(network.size) for network in one.system.networks)
    return (
        f"mesh_order {e.mesh_order} with tensor_par={e.tensor_par}, pipeline_par={e.pipeline_par}, "
        f"data_par={e.data_par} cuts groups unevenly over the networks of {one.system.name} (of {sizes} "
        "processors): degrees must divide them, or they the degrees"
    )


def _explain_networks(one: One) -> Problem:
    count = len(one.system.networks)
    names = [f"{name}_net" for name in DEGREES]
    name = next(name for name in names if getattr(one.execution, name) >= count)
    wanted = f"one of the {count} networks of {one.system.name}, numbered 0 to {count - 1}"
    return Problem(name, wanted, str(getattr(one.execution, name)))


def _group_size(q: Question, network: int) -> Array:
    """Product of the degrees above 1 that a stated network carries; 1 where it carries none."""
    product = np.ones(len(q.plan))
    if _meshed(q):
        stated = q.plan.is_choice("mesh_order", "stated")
        return np.where(stated, _stated_size(q, network), product)
    return _stated_size(q, network)


def _meshed(q: Question) -> bool:
    """Whether any row numbers its ranks."""
    return "mesh_order" in q.asked


def _stated_size(q: Question, network: int) -> Array:
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

MESH_RULES: tuple[Rule, ...] = (
    Rule("mesh_size", _mesh_holds, _explain_mesh_size, ("mesh_order",)),
    Rule("mesh_even", _mesh_is_even, _explain_uneven, ("mesh_order",)),
)
