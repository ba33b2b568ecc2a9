"""The three products of a matrix product's passes."""

from collections.abc import Callable

import numpy as np

from calculon.base.units import Array, Count, Fraction

Share = Callable[[Count, Count, Count, Count], Fraction]
"""From batch, m, n and depth of products with an ``m x n`` result to their rate or share of the peak."""


def of_passes(share: Share, shapes: Array, activations: Array) -> Fraction:
    """Return the shares of the three passes of products ``(m, n) x (n, k)``; the first axis is the pass.

    Args:
        share: The share of one product.
        shapes (shape (4, ...)): How many products, and their m, n and k.
        activations: Products of two activations: the gradients of both count in the second pass, like their FLOP.
    """
    batch, m, n, k = shapes
    # one call for all passes, which have the shapes (m, k), (m, n) and (n, k) and the depths n, k and m
    forward, inputs, weights = share(
        batch, np.stack([m, m, n]), np.stack([k, n, k]), np.stack([n, k, m])
    )
    both = 2 / (1 / inputs + 1 / weights)
    return np.stack([forward, np.where(activations, both, inputs), weights])
