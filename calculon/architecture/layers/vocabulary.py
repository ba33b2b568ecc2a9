"""Layers of the vocabulary: token embedding, learned positions, and cross-entropy loss of the LM head."""

from collections.abc import Mapping
from typing import NamedTuple

from calculon.architecture.layer import Layer, Number

FLOAT_BYTES = 4
"""Bytes per element of the loss, and of the embedding's gradient."""


def lookup(name: str, tokens: Number, hidden: int, rows: Number, *, dtype_bytes: float) -> Layer:
    """Return the token embedding: it reads and writes one of `rows` rows per token, and accumulates its gradient.

    The gradient is a table of the size of the weights, written once per pass. Source: Shoeybi et al., arXiv 1909.08053,
    section 3 (the vocabulary is split over tensor parallelism).
    """
    elements = tokens * hidden
    weights = rows * hidden
    return Layer(
        name=name,
        kernel="embedding",
        flops=(0.0, 0.0, elements),
        accessed=(2 * dtype_bytes * elements, 0.0, dtype_bytes * elements + FLOAT_BYTES * weights),
        inputs=tokens,
        outputs=elements,
        weights=weights,
        weight_bytes=dtype_bytes * weights,
        output_bytes=dtype_bytes * elements,
        activation_grad=dtype_bytes * elements,
        table=(rows, float(hidden)),
    )


def positions(name: str, elements: Number, rows: int, hidden: int, *, dtype_bytes: float) -> Layer:
    """Return the addition of learned positions, with all `rows` on every rank: one FLOP per element and pass."""
    weights = float(rows * hidden)
    moved = dtype_bytes * (2 * elements + weights)
    return Layer(
        name=name,
        kernel="add",
        flops=(elements, 0.0, elements),
        accessed=(moved, 0.0, dtype_bytes * elements + FLOAT_BYTES * weights),
        inputs=elements,
        outputs=elements,
        weights=weights,
        weight_bytes=dtype_bytes * weights,
        output_bytes=dtype_bytes * elements,
        table=(float(rows), float(hidden)),
    )


class Loss(NamedTuple):
    """Traffic and memory of an implementation of the loss per logit: logits, and values of 4 bytes.

    Attributes:
        forward, backward: Values moved, in the width of logits and in 4 bytes, without conversions between both.
        kept, grad: 4-byte values in addition to the logits, saved until the backward pass, and of the gradient.
        copies: True if narrower logits are converted to 4 bytes, and the gradient back.
        launches: Kernels forward and backward, without conversions.
    """

    forward: tuple[int, int]
    backward: tuple[int, int]
    kept: int = 0
    grad: int = 0
    copies: bool = False
    launches: tuple[int, int] = (1, 1)

    def moved(self, width: float) -> tuple[float, float]:
        """Return the bytes moved per logit of `width` bytes, forward and backward."""
        cast = width + FLOAT_BYTES if self.copies and width < FLOAT_BYTES else 0
        (logits, floats), (gradients, others) = self.forward, self.backward
        return (
            cast + width * logits + FLOAT_BYTES * floats,
            cast + width * gradients + FLOAT_BYTES * others,
        )

    def launched(self, width: float) -> tuple[int, int, int]:
        """Return the number of kernels of each pass."""
        cast = int(self.copies and width < FLOAT_BYTES)
        return self.launches[0] + cast, self.launches[1] + cast, 0

    def held(self, width: float) -> tuple[float, float]:
        """Return the bytes held per logit of `width` bytes: saved for the backward pass, and of the gradient."""
        floats = self.kept + (self.copies and width < FLOAT_BYTES)
        return width + FLOAT_BYTES * floats, FLOAT_BYTES * self.grad


EAGER_LOSS = Loss(forward=(0, 4), backward=(0, 5), kept=1, grad=1, copies=True, launches=(2, 2))
"""PyTorch's loss on logits converted to 4 bytes: log-softmax (reads three times, writes), its entry of the target;
backward zeros, a sum over the gradient, and the gradient from both. It holds logits, copy, logarithm and gradient.
Source: aten/src/ATen/native/cuda/SoftMax.cu; Hugging Face transformers, ``ForCausalLMLoss``."""

MEGATRON_LOSS = Loss(forward=(0, 8), backward=(0, 2), copies=True, launches=(5, 1))
"""Megatron-LM's loss with a vocabulary that ranks share: largest logit, difference, exponential, sum and division, each
over the same 4-byte copy, which becomes the gradient. Source: megatron/core/tensor_parallel/cross_entropy.py."""

FUSED_LOSS = Loss(forward=(2, 0), backward=(2, 0))
"""Loss that reads logits twice; the gradient overwrites them (Hsu et al., *Liger Kernel*, arXiv 2410.10989, 3.2)."""

LOSSES: Mapping[str, Loss] = {
    "eager": EAGER_LOSS,
    "megatron": MEGATRON_LOSS,
    "fused": FUSED_LOSS,
}
"""Implementations by value of the execution field ``ce_impl``."""


def cross_entropy(name: str, logits: Number, *, impl: str, dtype_bytes: float) -> Layer:
    """Return softmax and loss over the vocabulary: 5 FLOP per logit forward, 8 backward (`impl`: :data:`LOSSES`)."""
    loss = LOSSES[impl]
    forward, backward = loss.moved(dtype_bytes)
    kept, grad = loss.held(dtype_bytes)
    return Layer(
        name=name,
        kernel="loss",
        flops=(5 * logits, 8 * logits, 0.0),
        accessed=(forward * logits, backward * logits, 0.0),
        inputs=logits,
        activation=kept * logits,
        activation_grad=grad * logits,
        launches=loss.launched(dtype_bytes),
    )
