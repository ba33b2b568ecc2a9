"""Peak memory of a block's backward pass: gradients of activations, and of weights before they are accumulated.

The backward pass visits the layers from the last to the first. Each layer needs the gradient of its output and makes
the gradient of its input; then its saved input is freed. The gradient of the residual stream stays until the block's
input is reached. Source: PyTorch, ``torch/csrc/autograd/engine.cpp`` (a node's buffers are released after it ran), and
*Autograd mechanics*, saved tensors.
"""

import numpy as np

from calculon.base.arrays import cached_property, ordered_sum, shared_zeros
from calculon.base.units import Array, Bytes
from calculon.cost.layer_cost import LayerTable
from calculon.declarations.scope_choices import BlockChoice
from calculon.editions.edition import Edition

PASSED_ON = ("fork", "sum")
"""Kernels whose input gradient is the gradient of their output, in the same buffer."""


class GradientSpace:
    """Gradients that exist in the backward pass of a block's layers.

    Args:
        element_bytes: Bytes of an element of the weights.
    """

    def __init__(self, table: LayerTable, element_bytes: int, edition: Edition):
        self._table, self._element_bytes, self._edition = table, element_bytes, edition

    @cached_property
    def of_activations(self) -> Bytes:
        """Bytes of activation gradients at the peak of the pass; in edition ``sc23``, of all layers at once."""
        if not self._edition.peak_of_gradients:
            return ordered_sum(self._table.activation_grad)
        return self._by_layer.max(axis=0)

    def of_weights(self, choice: BlockChoice) -> tuple[Bytes, Bytes]:
        """Return the memory of weight gradients of products until they are added to sums, if a choice accumulates.

        Returns:
            Bytes that single gradients add to the peak of the pass, and bytes of one gradient of each shape.
        """
        if not (choice.accumulates and self._edition.peak_of_gradients):
            return shared_zeros(), shared_zeros()
        return self._of_weights

    @cached_property
    def _by_layer(self) -> Bytes:
        return gradients_by_layer(self._table)

    @cached_property
    def _of_weights(self) -> tuple[Bytes, Bytes]:
        width = self._element_bytes
        peak = peak_with_weights(self._table, self._by_layer, width)
        return peak - self.of_activations, distinct_products(self._table, width)


def gradients_by_layer(table: LayerTable) -> Bytes:
    """Return the gradients that exist in the backward pass of each layer, less what later layers have freed.

    The gradient of a tensor has the size of the tensor: of the layer's output, and of its input, which is the output of
    the layer before or what the layer saved (attention saves queries, keys and values). The gradient of the loss takes
    the place of the logits, unless the loss has a buffer for it.

    Returns:
        Bytes of shape (layers, blocks); their maximum plus all activations of the block is the peak of the pass.
    """
    output, saved = table.output_bytes, table.activation
    kernels = [layer.kernel for layer in table.layers]
    # The sums of the loss over ranks follow it, with values per token only.
    is_loss = np.maximum.accumulate(np.array([[kernel == "loss"] for kernel in kernels]), axis=0)
    passed_on = np.array([[kernel in PASSED_ON] for kernel in kernels])
    made = np.where(passed_on, 0.0, np.maximum(_before(output), saved))
    sums = [i for i, kernel in enumerate(kernels) if kernel == "sum"]
    residual = output[sums].max(axis=0) if sums else 0.0
    there = np.where(is_loss, table.activation_grad, output + made + residual)
    return there - _freed_after(table)


def peak_with_weights(table: LayerTable, gradients: Bytes, element_bytes: int) -> Bytes:
    """Return the peak of :func:`gradients_by_layer` with the gradient of the weights of a product.

    A product first writes its weight gradient in the type of the weights; then the gradient is added to its sum.
    """
    weighted = np.array(
        [[layer.product is not None and layer.kernel != "router"] for layer in table.layers]
    )
    found: Bytes = (gradients + element_bytes * table.weights * weighted).max(axis=0)
    return found


def _before(output: Bytes) -> Bytes:
    """Return the output of the last layer before each layer that has any; 0 before the first."""
    rows = np.arange(len(output))[:, None]
    last = np.maximum.accumulate(np.where(output > 0, rows, 0), axis=0)
    found = np.zeros_like(output)
    found[1:] = np.take_along_axis(output, last, axis=0)[:-1]
    return found


def _freed_after(table: LayerTable) -> Bytes:
    """Return the bytes of activations of the layers after each layer; layers that share a buffer count it once."""
    shared = np.array([[layer.flags.shares_activation] for layer in table.layers])
    freed = np.zeros_like(table.activation)
    freed[:-1] = np.cumsum((table.activation * ~shared)[:0:-1], axis=0)[::-1]
    return freed


def distinct_products(table: LayerTable, element_bytes: int) -> Bytes:
    """Return the bytes of one weight gradient of each shape among the products.

    If a product adds its weight gradient to the sum itself, Transformer Engine returns a placeholder that all products
    with weights of this shape share, and keeps it. Source: Transformer Engine, ``pytorch/module/base.py``,
    ``get_dummy_wgrad``; of experts, each has a weight of its own (``module/grouped_linear.py``).
    """
    shapes: list[tuple[Array, Array]] = []
    total = np.zeros(table.weights.shape[1])
    for layer, weights in zip(table.layers, table.weights, strict=True):
        if layer.product is None or layer.kernel == "router" or not weights.any():
            continue
        n, k = (np.zeros_like(total) + side for side in (layer.product.n, layer.product.k))
        known = np.zeros(total.shape, bool)
        for others in shapes:
            known |= (others[0] == n) & (others[1] == k)
        total = total + np.where(known, 0.0, element_bytes * n * k)
        shapes.append((n, k))
    return total
