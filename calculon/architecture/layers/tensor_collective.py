"""The collectives around products that are split over tensor parallelism, as layers of their own."""

from calculon.architecture.layer import Collective, Flags, Layer, TensorOperator
from calculon.architecture.layers.communication import communication
from calculon.units import Count, Elements


def tensor_collective(
    name: str,
    operator: TensorOperator,
    elements: Elements,
    tensor_par: Count,
    *,
    sequence_parallel: bool,
    outer: bool = False,
    dtype_bytes: float,
    flags: Flags,
) -> Layer:
    """Run operator *f* before column-parallel products, or *g* after a row-parallel one.

    Activation and gradient are whole where the pass communicates, and nothing where it does not; with sequence
    parallelism both are the share of a rank.

    Source: Shoeybi et al., *Megatron-LM*, arXiv 1909.08053, section 3; Korthikanti et al., arXiv 2205.05198, section
    4.2.2.
    """
    whole, split = operator
    forward, backward = split if sequence_parallel else whole
    layer = communication(
        name,
        "tp",
        elements,
        tensor_par,
        forward=forward,
        backward=backward,
        dtype_bytes=dtype_bytes,
        flags=flags,
    )
    assert layer.collective is not None
    size = layer.collective.message
    part = size / tensor_par if sequence_parallel else size
    return layer._replace(
        inputs=layer.outputs,
        activation=part if forward else 0.0,
        activation_grad=part if backward else 0.0,
        collective=Collective(size, *operator, outer=outer),
    )
