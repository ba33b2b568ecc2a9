"""One tensor with several readers: its gradients are added up."""

from calculon.architecture.layer import Flags, Layer, Number


def fork(name: str, elements: Number, users: int, *, dtype_bytes: float, flags: Flags) -> Layer:
    """Hand one tensor to several layers: nothing forward, one sum per user backward."""
    return Layer(
        name=name,
        kernel="fork",
        flops=(0.0, users * elements, 0.0),
        accessed=(0.0, dtype_bytes * elements * (users + 1), 0.0),
        inputs=elements,
        outputs=0.0,
        weights=0.0,
        weight_bytes=0.0,
        output_bytes=0.0,
        activation=dtype_bytes * elements,
        activation_grad=0.0,
        flags=flags,
    )
