"""How ranks are numbered along the axes of parallelism, and which networks their groups use."""

from collections.abc import Mapping
from functools import reduce
from operator import mul

import numpy as np

from calculon.hardware.collectives.placement import fits_mesh
from calculon.hardware.system import System
from calculon.plan.columns import FIELDS, Columns, code
from calculon.spec.axes import AXES, AXIS, FURTHER_AXES, LAYER_AXES
from calculon.spec.execution import MESH_ORDERS
from calculon.units import Array, Count

DEGREES = tuple(axis.degree for axis in AXES)
"""Fields whose product is the number of processors."""

_INNER = tuple(axis.name for axis in LAYER_AXES)

NUMBERING = (*_INNER, *(axis.name for axis in AXES if axis.name not in _INNER))
"""The axes in the order in which ranks are numbered where networks are stated, fastest first."""


def order_of(mesh_order: str) -> tuple[str, ...]:
    """Return the axes in the order in which ranks are numbered, fastest first.

    Those whose collectives are between layers come before those of the pipeline and of replicas.

    >>> order_of("tp-dp-pp")
    ('tp', 'dp', 'pp')
    """
    if mesh_order == MESH_ORDERS[0]:
        return NUMBERING
    stated = tuple(mesh_order.split("-"))
    return (*_INNER, *(name for name in stated if name not in _INNER))


def strides_of(columns: Columns, mesh_order: str) -> Mapping[str, Count]:
    """Return the distance of the numbers of neighbours in the groups of each axis, in one order."""
    strides: dict[str, Count] = {}
    distance: Count = np.array(1, np.int64)
    for name in order_of(mesh_order):
        strides[name] = distance
        distance = distance * np.asarray(getattr(columns, AXIS[name].degree), np.int64)
    return strides


def strides(columns: Columns) -> Mapping[str, Count]:
    """Return the distance of the numbers of neighbours in the groups of each axis, in the order of each execution."""
    codes = np.flatnonzero(np.bincount(np.ravel(columns.mesh_order)))  # np.unique loads numpy.ma
    found: dict[str, Count] = {}
    for number in codes:
        here = strides_of(columns, MESH_ORDERS[number])
        mask = columns.mesh_order == number
        found = {
            name: here[name] if name not in found else np.where(mask, here[name], found[name])
            for name in NUMBERING
        }
    return found


def networks_of(columns: Columns, mesh_order: str, system: System) -> dict[str, Array]:
    """Return the network of the groups of each axis: the one stated, or in a mesh the outermost that they span."""
    if mesh_order == MESH_ORDERS[0]:
        return {axis.name: getattr(columns, axis.network) for axis in AXES}
    apart = strides_of(columns, mesh_order)
    return {
        axis.name: outermost(system, getattr(columns, axis.degree) * apart[axis.name])
        for axis in AXES
    }


def processors(columns: Columns) -> Count:
    """Return the product of the degrees."""
    return reduce(mul, (getattr(columns, name).astype(float) for name in DEGREES))


def outermost(system: System, span: Count) -> Array:
    """Return the outermost network of process groups by the consecutive processors that they span.

    It is the first network that holds them; groups that an instance of a network would cut are no mesh (:func:`even`).
    """
    sizes = system.fabric.size
    largest = int(np.argmax(sizes))
    found = np.full(np.shape(span), largest)
    for number in reversed(range(largest)):
        found = np.where(sizes[number] >= span, number, found)
    return found


def even(system: System, ranks: Count, stride: Count, processors: Count) -> Array:
    """Whether process groups sit alike in all instances of each network, or everything is in one instance.

    Groups that span several instances of a network between nodes, such as pods, may share the last one with others.
    """
    sizes, span = system.fabric.size, ranks * stride
    alike = fits_mesh(system, ranks, stride)
    for size in sizes[sizes < sizes.max()]:
        whole = (np.mod(size, span) == 0) | (np.mod(span, np.maximum(size, 1)) == 0)
        whole = whole | ((span > size) & bool(size > sizes.min()))
        alike = alike & (whole | (ranks == 1) | (processors <= size))
    return alike | (processors <= sizes.min())


assert code("mesh_order", MESH_ORDERS[0]) == 0

_declared = {f.name: f.default for f in FIELDS if f.name.endswith(("_par", "_par_net"))}
assert sorted(_declared) == sorted((*DEGREES, *(axis.network for axis in AXES))), "fields of AXES"
assert all((_declared[a.degree], _declared[a.network]) == (1, 0) for a in FURTHER_AXES), "defaults"
assert all(set(order_of(order)) == set(NUMBERING) for order in MESH_ORDERS), "orders of AXES"
