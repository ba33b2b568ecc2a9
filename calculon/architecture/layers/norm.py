"""Normalisation."""

from collections.abc import Mapping
from typing import NamedTuple

from calculon.architecture.layer import Flags, Layer, Number, operator


class Kind(NamedTuple):
    """FLOP per element (forward, input gradient, weight gradient), and weights per unit of width."""

    flops: tuple[int, int, int]
    weights: int


KINDS: Mapping[str, Kind] = {
    "layernorm": Kind((9, 14, 7), 2),
    "layernorm_no_bias": Kind((9, 14, 5), 1),
    "layernorm_plain": Kind((7, 12, 0), 0),
    "rmsnorm": Kind((4, 7, 3), 1),
}
"""Norms by name: layer normalisation as published, without bias, without gain; RMSNorm (arXiv 1910.07467)."""


def norm(
    name: str,
    kind: str,
    elements: Number,
    width: int,
    *,
    gain_only: bool = False,
    input_grad: bool = False,
    dtype_bytes: float,
    stored_bytes: float | None = None,
    flags: Flags,
) -> Layer:
    """Normalise `elements` over their last axis of `width`; saves its input.

    With `gain_only` it has one weight per unit of width, whatever its kind. A weight is stored in `stored_bytes`, by
    default as an element is.

    Source: Ba et al., *Layer normalization*, arXiv 1607.06450; Zhang and Sennrich, *RMSNorm*, arXiv 1910.07467.
    """
    (forward, agrad, wgrad), weights = KINDS[kind]
    layer = operator(
        name,
        "norm",
        (forward * elements, agrad * elements, wgrad * elements),
        inputs=elements,
        outputs=elements,
        weights=float(width if gain_only else weights * width),
        saved=elements,
        grad=elements,
        input_grad=input_grad,
        dtype_bytes=dtype_bytes,
        flags=flags,
    )
    if stored_bytes is None:
        return layer
    return layer._replace(weight_bytes=stored_bytes * layer.weights)
