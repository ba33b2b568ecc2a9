"""Memory of a backward pass: from its last layer to the first, as autograd visits them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .layers import Layer


def needed(layers: Sequence[Layer]) -> Iterator[tuple[Layer, float]]:
    """Yield each layer, last first, with the gradients at its turn, less the activations freed before.

    A layer has the gradient of what it returned and makes that of what it read; the gradient of the stream stays.
    """
    stream = max((x.output_space for x in layers if x.name.endswith("_Residual")), default=0.0)
    loss = next((i for i, x in enumerate(layers) if x.kind == "loss"), len(layers))
    freed = 0.0
    for number in reversed(range(len(layers))):
        layer = layers[number]
        if number >= loss:  # the gradient of the logits has their place, or one of its own
            gradients = layer.activation_grad_space
        else:
            gradients = layer.output_space + stream
            if layer.kind != "fork" and not layer.name.endswith("_Residual"):
                before = [x.output_space for x in layers[:number] if x.output_space > 0]
                gradients += max(before[-1] if before else 0, layer.activation_space)
        yield layer, gradients - freed
        if not layer.flags.reuses_activation:
            freed += layer.activation_space


def own_weights(layer: Layer) -> int:
    """Weights of a product, whose gradients exist before they are added to a sum."""
    return layer.weights if layer.product is not None and layer.kind != "router" else 0


def gradient_per_shape(layers: Sequence[Layer]) -> float:
    """Bytes of a gradient for every shape that weights of products have."""
    products = [x.product for x in layers if own_weights(x) and x.product is not None]
    width = layers[0].run.element_bytes if layers else 0
    return sum(width * rows * columns for rows, columns in {(p[2], p[3]) for p in products})
