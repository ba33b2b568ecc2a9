"""Axes of parallelism (tensor, pipeline, data, context and expert parallelism), each a row of :data:`AXES`.

To add an axis, add its row, execution fields for its degree and its network, and layers with its collectives
(:class:`~calculon.architecture.layer.Collective`). The product of degrees, networks, strides, process groups, layer
sizes, times, statistics and searches follow from the row.
"""

from calculon.base.frozen import dataclass


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis of parallelism.

    Attributes:
        name: Name in ``mesh_order`` and in names of statistics.
        degree, network: Execution fields: ranks of a process group, and its network.
        kind: Name of its process groups.
        divides: Model size that the degree must divide, unless a separate rule covers it.
        folded: Its groups consist of ranks of the other axes: the degree is not a factor of the number of processors.
        inner: Field of the degree of subgroups inside its groups, if any.
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
"""Axes of the published model, in the order in which ranks are numbered, fastest first."""

PUBLISHED_DEGREES = tuple(axis.degree for axis in PUBLISHED_AXES)
"""Degree fields of the published axes."""

STATED_DEGREES = PUBLISHED_DEGREES[:2]
"""Degrees that executions state; the data-parallel degree follows from them and the number of processors."""

PUBLISHED_NETWORKS = tuple(axis.network for axis in PUBLISHED_AXES)
"""Network fields of the published axes."""

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
"""Axes beyond the published model, fastest first. Their collectives run between layers, so they are numbered next to
``tp``.

Degree and network are optional fields with defaults 1 and 0. Ranks of a context-parallel group hold parts of the same
sequences; they are numbered next to the ranks of a tensor-parallel group (Megatron-LM, ``core/parallel_state.py``:
order *tp-cp-ep-dp-pp*). Expert-parallel groups are consecutive ranks of a stage, independent of the role of these ranks
in other layers; in each group, experts are split by width over the first ranks (Liu et al., *MoE Parallel Folding*,
arXiv 2504.14960, section 3.2; Megatron-LM, ``core/parallel_state.py``: the expert decoder mesh).
"""

DIVIDED = ("expert_par", "context_par")
"""Degrees of further axes that a search varies over divisors (of experts or sequences) if the preset lists them."""

AXES = (*PUBLISHED_AXES, *FURTHER_AXES)

MESH_AXES = tuple(axis for axis in AXES if not axis.folded)
"""Axes whose degrees multiply to the number of processors."""

LAYER_AXES = (PUBLISHED_AXES[0], *FURTHER_AXES)
"""Axes with collectives between the layers of a block."""

FURTHER_FACTORS = tuple(axis.degree for axis in FURTHER_AXES if not axis.folded)
"""Degree fields of further axes that are factors of the number of processors."""

FURTHER_DEGREES = tuple(name for axis in FURTHER_AXES for name in (axis.degree, axis.inner) if name)
"""All degree fields of further axes."""

FURTHER_SIZES = tuple(
    name for axis in FURTHER_AXES for name in (axis.degree, axis.network, axis.inner) if name
)
"""All fields of further axes; the layers of a block depend on them."""

FURTHER_NAMES = tuple(axis.name for axis in FURTHER_AXES)
"""Names of the further axes."""

AXIS = {axis.name: axis for axis in AXES}
"""Axes by name."""
