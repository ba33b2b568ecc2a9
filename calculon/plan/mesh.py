"""Mesh of ranks: numbering along the axes of parallelism, and the networks of process groups."""

from collections.abc import Mapping
from functools import reduce
from operator import mul

import numpy as np

from calculon.base.units import Array, Count
from calculon.declarations.axes import AXES, AXIS, FURTHER_AXES, LAYER_AXES, MESH_AXES
from calculon.declarations.named_values import MESH_ORDERS
from calculon.hardware.collectives.placement import Fanouts, fanouts_used, nested_networks
from calculon.hardware.system import System
from calculon.plan.columns import FIELDS, Columns, code

DEGREES = tuple(axis.degree for axis in MESH_AXES)
"""Degrees whose product is the number of processors."""

_INNER = tuple(axis.name for axis in LAYER_AXES if not axis.folded)

NUMBERING = (*_INNER, *(axis.name for axis in MESH_AXES if axis.name not in _INNER))
"""Order of the axes in the numbering of ranks if networks are stated, fastest first."""


def order_of(mesh_order: str) -> tuple[str, ...]:
    """Return the order of the axes in the numbering of ranks, fastest first.

    Axes with collectives between layers come before pipeline and data parallelism: they need the fastest network.
    >>> order_of("tp-dp-pp")
    ('tp', 'cp', 'dp', 'pp')
    """
    if mesh_order == MESH_ORDERS[0]:
        return NUMBERING
    stated = tuple(mesh_order.split("-"))
    return (*_INNER, *(name for name in stated if name not in _INNER))


def strides_of(columns: Columns, mesh_order: str) -> Mapping[str, Count]:
    """Return the distance between neighboring ranks in the groups of each axis, for one mesh order."""
    strides: dict[str, Count] = {}
    distance: Count = np.array(1, np.int64)
    for name in order_of(mesh_order):
        strides[name] = distance
        distance = distance * np.asarray(getattr(columns, AXIS[name].degree), np.int64)
    return strides | {"ep": expert_tensor_par(columns)}


def data_ranks(columns: Columns) -> Count:
    """Return the number of ranks with equal weights: data-parallel times context-parallel degree."""
    if not (columns.context_par > 1).any():
        return columns.data_par
    return np.asarray(columns.context_par, np.int64) * columns.data_par


def data_network(columns: Columns) -> Array:
    """Return the stated network between ranks with equal weights: the outer one of data and context parallelism."""
    if not (columns.context_par > 1).any():
        return columns.data_par_net
    both = np.maximum(columns.data_par_net, columns.context_par_net)
    # With a single replica the data network is not used, even if it is stated.
    alone = (columns.data_par == 1) & (columns.context_par > 1)
    return np.where(alone, columns.context_par_net, both)


def expert_tensor_par(columns: Columns) -> Count:
    """Return the tensor-parallel degree of experts; their ranks are adjacent in a mesh."""
    stated = columns.expert_tensor_par
    return np.asarray(np.where(stated > 0, stated, columns.tensor_par), np.int64)


def expert_ranks(columns: Columns) -> Count:
    """Return the number of ranks that hold all experts once; they are consecutive in a mesh."""
    return np.asarray(columns.expert_par, np.int64) * expert_tensor_par(columns)


def strides(columns: Columns) -> Mapping[str, Count]:
    """Return the distance between neighboring ranks in the groups of each axis, for the order of each execution."""
    codes = np.flatnonzero(np.bincount(np.ravel(columns.mesh_order)))  # np.unique loads numpy.ma
    result: dict[str, Count] = {}
    for number in codes:
        here = strides_of(columns, MESH_ORDERS[number])
        mask = columns.mesh_order == number
        result = {
            name: here[name] if name not in result else np.where(mask, here[name], result[name])
            for name in here
        }
    return result


def fanouts_of(columns: Columns, mesh_order: str, system: System) -> Fanouts:
    """Return the number of inner instances per instance of each nested network, for evenly placed groups.

    With hybrid sharding, replicas form groups of shards and groups of their copies; shards consist of whole
    context-parallel groups. Expert groups contain whole tensor- and context-parallel groups and shards, or are inside
    of one. Context-parallel groups consist of the subgroups that exchange heads.
    """
    degrees: list[Count] = []
    between_layers = len(_INNER)
    for name in order_of(mesh_order):
        degree = np.asarray(getattr(columns, AXIS[name].degree), np.int64)
        if name == "dp" and columns.dp_shard.any():
            shards = np.maximum(columns.dp_shard // columns.context_par, 1)
            shards = np.where(columns.dp_shard > 0, shards, degree)
            degrees += [shards, np.maximum(degree // shards, 1)]
        elif name == "cp" and columns.cp_a2a_size.any():
            near = np.clip(columns.cp_a2a_size, 1, degree)
            degrees += [near, degree // near]
            between_layers += 1
        else:
            degrees.append(degree)
    if (columns.expert_par > 1).any() and (
        mesh_order == _EXPERTS_SPAN_REPLICAS or (columns.context_par > 1).any()
    ):
        degrees = _with_experts(degrees, np.where(columns.expert_par > 1, expert_ranks(columns), 1))
        # Cutting each degree in two doubles the number of axes.
        return fanouts_used(system, degrees, 2 * between_layers)
    return fanouts_used(system, degrees, between_layers)


_EXPERTS_SPAN_REPLICAS = "tp-dp-pp"
"""Mesh order with replicas next to tensor groups: expert groups may contain several replicas.

With context parallelism, expert groups may contain several tensor groups in any order.
"""


def _with_experts(degrees: list[Count], span: Count) -> list[Count]:
    """Return mesh degrees, fastest first, split so that the first `span` ranks form a group, too."""
    cut: list[Count] = []
    inside: Count = np.array(1)
    for degree in degrees:
        part = np.clip(span // inside, 1, degree)
        cut += [part, degree // part]
        inside = inside * degree
    return cut


def mesh_fanouts(columns: Columns, system: System) -> Fanouts:
    """Return the number of inner instances per network instance for each execution; all if networks are stated."""
    result: Fanouts = tuple(np.array(fanout) for _, fanout in nested_networks(system))
    for number in np.flatnonzero(np.bincount(np.ravel(columns.mesh_order))):
        if number:
            here = fanouts_of(columns, MESH_ORDERS[number], system)
            mask = columns.mesh_order == number
            result = tuple(np.where(mask, a, b) for a, b in zip(here, result, strict=True))
    return result


def networks_of(
    columns: Columns, mesh_order: str, system: System, used: Fanouts | None = None
) -> dict[str, Array]:
    """Return the network of the groups of each axis: the stated one, or in a mesh the outermost that they span."""
    if mesh_order == MESH_ORDERS[0]:
        return {axis.name: getattr(columns, axis.network) for axis in AXES}
    apart = strides_of(columns, mesh_order)
    used = fanouts_of(columns, mesh_order, system) if used is None else used
    return {
        axis.name: outermost(system, getattr(columns, axis.degree) * apart[axis.name], used)
        for axis in AXES
    }


def processors(columns: Columns) -> Count:
    """Return the product of the degrees of each execution."""
    return reduce(mul, (getattr(columns, name).astype(float) for name in DEGREES))


def outermost(system: System, span: Count, fanouts: Fanouts) -> Array:
    """Return the outermost network of process groups from the number of consecutive processors that they span.

    It is the innermost network that contains them, if each instance connects the given number of inner instances.
    """
    nested = [number for number, _ in nested_networks(system)] or [0]
    held, inside = [], np.array(1)
    for fanout in fanouts[:-1]:
        inside = inside * fanout
        held.append(inside)
    result = np.full(np.shape(span), nested[-1])
    for number, places in reversed(list(zip(nested, held, strict=False))):
        result = np.where(places >= span, number, result)
    return result


def mesh_size(fanouts: Fanouts) -> Count:
    """Return the number of processors of all instances together."""
    return reduce(mul, fanouts, np.array(1))


assert code("mesh_order", MESH_ORDERS[0]) == 0

_declared = {f.name: f.default for f in FIELDS if f.name.endswith(("_par", "_par_net"))}
_stated = [name for a in AXES for name in (a.degree, a.network, a.inner) if name]
assert sorted(_declared) == sorted(_stated), "fields of AXES"
assert all((_declared[a.degree], _declared[a.network]) == (1, 0) for a in FURTHER_AXES), "defaults"
assert all(set(order_of(order)) == set(NUMBERING) for order in MESH_ORDERS), "orders of AXES"
