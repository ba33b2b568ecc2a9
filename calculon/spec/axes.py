"""The axes of parallelism, each a row of :data:`AXES`.

What a further axis (context, expert, ...) needs is its row, fields of an execution for its degree and its network, and
layers that have its collectives (:class:`~calculon.architecture.layer.Collective`). The product of degrees, networks,
strides, groups of ranks, sizes of layers, times, statistics and searches follow from the row.
"""

from calculon.frozen import dataclass


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis of parallelism.

    Attributes
    ----------
    name : str
        As in ``mesh_order``, and in names of statistics.
    degree, network : str
        Fields of an execution: ranks of a group, and its network.
    kind : str
        What its groups are called.
    divides : str
        Size of the model that a degree has to divide, where a rule of its own does not say so.
    """

    name: str
    degree: str
    network: str
    kind: str
    divides: str = ""


PUBLISHED_AXES = (
    Axis("tp", "tensor_par", "tensor_par_net", "tensor"),
    Axis("pp", "pipeline_par", "pipeline_par_net", "pipeline"),
    Axis("dp", "data_par", "data_par_net", "data"),
)
"""The axes of the published model, in the order in which its ranks are numbered, fastest first."""

FURTHER_AXES: tuple[Axis, ...] = ()
"""Further axes, fastest first: their collectives are between layers, so that they are numbered next to ``tp``.

Degree and network are optional fields, 1 and 0 by default.
"""

AXES = (*PUBLISHED_AXES, *FURTHER_AXES)

LAYER_AXES = (PUBLISHED_AXES[0], *FURTHER_AXES)
"""Axes whose collectives are between the layers of a block."""

FURTHER_SIZES = tuple(name for axis in FURTHER_AXES for name in (axis.degree, axis.network))
"""Fields of further axes; the layers of a block depend on them."""

FURTHER_NAMES = tuple(axis.name for axis in FURTHER_AXES)

AXIS = {axis.name: axis for axis in AXES}
"""The axes by name."""
