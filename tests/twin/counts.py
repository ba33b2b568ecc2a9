"""Numbers of elements and FLOP of a layer."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Counts:
    """Numbers of elements, and FLOP of the forward and the two gradient stages."""

    inputs: int
    outputs: int
    weights: int = 0
    saved: int  # activation kept for the backward pass
    grads: int  # gradient of the output
    fw: float = 0
    agrad: float = 0
    wgrad: float = 0
    unwritten: int = 0  # gradient of the input that is published as not written


def linear(m: int, n: int, k: int, saved: int | None = None, grads: int | None = None) -> Counts:
    """Count (m x n) times (n x k), the latter being the weights."""
    saved, grads = m * n if saved is None else saved, m * k if grads is None else grads
    sizes = {"inputs": m * n, "outputs": m * k, "weights": n * k, "saved": saved, "grads": grads}
    return Counts(**sizes, fw=2 * m * n * k, agrad=2 * m * n * k, wgrad=2 * m * n * k)


def batch_matmul(r: int, m: int, n: int, k: int, factors: int) -> Counts:
    """Count r products (m x n) times (n x k) of activations, of so many different (n x k)."""
    inputs, outputs, flops = r * m * n + factors * n * k, r * m * k, 2 * r * m * n * k
    sizes = {"inputs": inputs, "outputs": outputs, "saved": inputs, "grads": outputs}
    return Counts(**sizes, fw=flops, agrad=2 * flops, unwritten=inputs)


def layer_norm(size: int, hidden: int) -> Counts:
    """Count the normalization over the hidden width, with its scale and shift."""
    sizes = {"inputs": size, "outputs": size, "weights": 2 * hidden, "saved": size, "grads": size}
    return Counts(**sizes, fw=9 * size, agrad=14 * size, wgrad=7 * size, unwritten=size)


def pointwise(size: int, fw: int, agrad: int, fused: bool = False) -> Counts:
    """Count a function of `fw` FLOP per element and its derivative; fused, it keeps nothing."""
    kept = 0 if fused else size
    sizes = {"inputs": size, "outputs": size, "saved": kept, "grads": kept}
    return Counts(**sizes, fw=fw * size, agrad=agrad * size)


def add(size: int) -> Counts:
    """Count the sum of two tensors."""
    sizes = {"inputs": 2 * size, "outputs": size, "saved": 2 * size, "grads": size}
    return Counts(**sizes, fw=size, agrad=2 * size)
