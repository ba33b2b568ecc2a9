"""How ranks are numbered, and which networks their groups then use."""

from typing import Any

import numpy as np

from calculon.hardware.collectives.placement import fits_mesh
from calculon.hardware.system import System
from calculon.plan.plan import code
from calculon.units import Array, Count

_STATED = code("mesh_order", "stated")
_REPLICAS_FIRST = code("mesh_order", "tp-dp-pp")
_STAGES_FIRST = code("mesh_order", "tp-pp-dp")


def data_stride(columns: Any) -> Count:
    """Return the distance of neighbours in a data-parallel group; 0 where its network is stated."""
    order = columns.mesh_order
    if not np.count_nonzero(order):
        return np.zeros(1, np.int64)
    stride = columns.tensor_par * np.where(order == _STAGES_FIRST, columns.pipeline_par, 1)
    return np.where(order == _STATED, 0, stride).astype(np.int64)


def pipeline_stride(columns: Any) -> Count:
    """Return the distance of neighbouring stages; 0 where their network is stated."""
    order = columns.mesh_order
    stride = columns.tensor_par * np.where(order == _REPLICAS_FIRST, columns.data_par, 1)
    return np.where(order == _STATED, 0, stride).astype(np.int64)


def numbering(columns: Any) -> tuple[Count, Count]:
    """Return the distance of neighbouring stages and of neighbouring replicas in the numbers of ranks.

    Where networks are stated, tensor-parallel ranks are numbered first, then stages, then replicas.
    """
    stage, replica = pipeline_stride(columns), data_stride(columns)
    stated = columns.mesh_order == _STATED
    stage = np.where(stated, columns.tensor_par, stage)
    return stage, np.where(stated, columns.tensor_par * columns.pipeline_par, replica)


def networks_of(columns: Any, system: System) -> tuple[Array, Array, Array]:
    """Return the networks of tensor, pipeline and data parallelism: those stated, or the outermost in a mesh."""
    stated = (columns.tensor_par_net, columns.pipeline_par_net, columns.data_par_net)
    if not np.count_nonzero(columns.mesh_order):
        return stated
    spans = (
        columns.tensor_par,
        columns.pipeline_par * pipeline_stride(columns),
        columns.data_par * data_stride(columns),
    )
    free = columns.mesh_order == _STATED
    tensor, pipeline, data = (
        np.where(free, net, outermost(system, span))
        for net, span in zip(stated, spans, strict=True)
    )
    return tensor, pipeline, data


def outermost(system: System, span: Count) -> Array:
    """Return the outermost network of groups that span so many consecutive processors: the first that holds them.

    Groups that would be cut in two by an instance of a network are no mesh (:func:`even`).
    """
    sizes = system.fabric.size
    largest = int(np.argmax(sizes))
    found = np.full(np.shape(span), largest)
    for number in reversed(range(largest)):
        found = np.where(sizes[number] >= span, number, found)
    return found


def even(system: System, ranks: Count, stride: Count, processors: Count) -> Array:
    """Whether groups of so many ranks sit alike in all instances of each network, or everything is in one instance."""
    sizes, span = system.fabric.size, ranks * stride
    alike = fits_mesh(system, ranks, stride)
    for size in sizes[sizes < sizes.max()]:
        whole = (np.mod(size, span) == 0) | (np.mod(span, np.maximum(size, 1)) == 0)
        alike = alike & (whole | (ranks == 1) | (processors <= size))
    mask: Array = alike | (processors <= sizes.min())
    return mask


assert _STATED == 0
