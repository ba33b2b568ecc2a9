"""The collectives around products that are split over tensor parallelism, as layers of their own."""

from calculon.architecture.layer import Collective, Flags, Layer, TensorOperator
from calculon.architecture.layers.communication import communication
from calculon.base.units import Count, Elements


def tensor_collective(
    name: str,
    operator: TensorOperator,
    elements: Elements,
    tensor_par: Count,
    *,
    sequence_parallel: bool,
    outer: bool = False,
    dtype_bytes: float,
    gathered_bytes: float | None = None,
    flags: Flags,
) -> Layer:
    """Run operator *f* before column-parallel products, or *g* after a row-parallel one.

    Activation and gradient are whole where the pass communicates, and nothing where it does not; with sequence
    parallelism both are the share of a rank. `gathered_bytes` are bytes of an element where it is gathered, if fewer.

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
    narrow = 1.0 if gathered_bytes is None else gathered_bytes / dtype_bytes
    first, second = (
        narrow if operation == "all_gather" else 1.0 for operation in (forward, backward)
    )
    moved = layer.accessed
    return layer._replace(
        accessed=(first * moved[0], second * moved[1], 0.0),
        inputs=layer.outputs,
        activation=part if forward else 0.0,
        activation_grad=part if backward else 0.0,
        collective=Collective(
            size, *operator, outer=outer, gathered=None if narrow == 1.0 else narrow * size
        ),
    )
