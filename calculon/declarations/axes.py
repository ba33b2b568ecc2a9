"""The axes of parallelism, each a row of :data:`AXES`.

What a further axis (context, expert, ...) needs is its row, fields of an execution for its degree and its network, and
layers that have its collectives (:class:`~calculon.architecture.layer.Collective`). The product of degrees, networks,
strides, groups of ranks, sizes of layers, times, statistics and searches follow from the row.
"""

from calculon.base.frozen import dataclass


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis of parallelism.

    Attributes:
        name: As in ``mesh_order``, and in names of statistics.
        degree, network: Fields of an execution: ranks of a group, and its network.
        kind: What its groups are called.
        divides: Size of the model that a degree has to divide, where a rule of its own does not say so.
        folded: Its groups are made of ranks of the other axes: the degree is no factor of the number of processors.
        inner: Field of a degree that these groups have inside of them, if any.
    """

    name: str
    degree: str
    network: str
    kind: str
    divides: str = ""
    folded: bool = False
    inner: str = ""


PUBLISHED_AXES = (
    Axis("tp", "tensor_par", "tensor_par_net", "tensor"),
    Axis("pp", "pipeline_par", "pipeline_par_net", "pipeline"),
    Axis("dp", "data_par", "data_par_net", "data"),
)
"""The axes of the published model, in the order in which its ranks are numbered, fastest first."""

PUBLISHED_DEGREES = tuple(axis.degree for axis in PUBLISHED_AXES)
"""Fields of their degrees."""

STATED_DEGREES = PUBLISHED_DEGREES[:2]
"""Degrees that executions state: that of data parallelism follows from them."""

PUBLISHED_NETWORKS = tuple(axis.network for axis in PUBLISHED_AXES)
"""Fields of their networks."""

FURTHER_AXES: tuple[Axis, ...] = (
    Axis("cp", "context_par", "context_par_net", "context"),
    Axis(
        "ep",
        "expert_par",
        "expert_par_net",
        "expert",
        folded=True,
        inner="expert_tensor_par",
    ),
)
"""Further axes, fastest first: their collectives are between layers, so that they are numbered next to ``tp``.

Degree and network are optional fields, 1 and 0 by default. Ranks of a context-parallel group have parts of the same
sequences, next to those of a tensor group (Megatron-LM, ``core/parallel_state.py``: order *tp-cp-ep-dp-pp*). Groups of
experts are consecutive ranks of a stage, whatever
these do in the other layers; inside of each group, experts are split by width over the first ranks (Liu et al., *MoE
Parallel Folding*, arXiv 2504.14960, section 3.2; Megatron-LM, ``core/parallel_state.py``: the expert decoder mesh).
"""

DIVIDED = ("expert_par", "context_par")
"""Degrees of further axes that a search tries as they divide what they spread, where a preset knows them."""

AXES = (*PUBLISHED_AXES, *FURTHER_AXES)

MESH_AXES = tuple(axis for axis in AXES if not axis.folded)
"""Axes whose degrees multiply to the number of processors."""

LAYER_AXES = (PUBLISHED_AXES[0], *FURTHER_AXES)
"""Axes whose collectives are between the layers of a block."""

FURTHER_FACTORS = tuple(axis.degree for axis in FURTHER_AXES if not axis.folded)
"""Fields of degrees of further axes that are factors of the number of processors."""

FURTHER_DEGREES = tuple(name for axis in FURTHER_AXES for name in (axis.degree, axis.inner) if name)
"""Fields of degrees of further axes."""

FURTHER_SIZES = tuple(
    name for axis in FURTHER_AXES for name in (axis.degree, axis.network, axis.inner) if name
)
"""Fields of further axes; the layers of a block depend on them."""

FURTHER_NAMES = tuple(axis.name for axis in FURTHER_AXES)

AXIS = {axis.name: axis for axis in AXES}
"""The axes by name."""
