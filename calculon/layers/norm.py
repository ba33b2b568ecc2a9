"""Layer normalisation."""

from calculon.layers.layer import Flags, Layer, Number, operator


def layer_norm(
    name: str, elements: Number, hidden: int, *, dtype_bytes: float, flags: Flags
) -> Layer:
    """Layer normalisation over `hidden`, with gain and bias.

    FLOP per element: forward 9, input gradient 14, weight gradient 7.
    """
    return operator(
        name,
        "vector",
        (9 * elements, 14 * elements, 7 * elements),
        inputs=elements,
        outputs=elements,
        weights=2 * hidden,
        saved=elements,
        grad=elements,
        dtype_bytes=dtype_bytes,
        flags=flags,
    )
