"""Layers of the vocabulary: token embedding, learned positions, and the cross-entropy loss of the LM head."""

from collections.abc import Mapping
from typing import NamedTuple

from calculon.architecture.layer import Layer, Number

FLOAT_BYTES = 4
"""Bytes of an element of the loss, and of the embedding's gradient."""


def lookup(name: str, tokens: Number, hidden: int, rows: Number, *, dtype_bytes: float) -> Layer:
    """Token embedding: one of `rows` rows per token is read and written, and its gradient added up.

    The gradient is a table as large as the weights, written once per pass. Source: Shoeybi et al., arXiv 1909.08053,
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
    """Add learned positions, of which every rank has all `rows`: one FLOP per element and pass."""
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
    """What an implementation of the loss moves and holds per logit: logits, and values of 4 bytes.

    Attributes:
        forward, backward: Values moved: of the width of logits, and of 4 bytes; conversions between both come on top.
        kept, grad: Values of 4 bytes beside the logits until the backward pass, and its gradient.
        copies: Whether narrower logits are converted to 4 bytes, and the gradient back.
        launches: Kernels forward and backward, conversions apart.
    """

    forward: tuple[int, int]
    backward: tuple[int, int]
    kept: int = 0
    grad: int = 0
    copies: bool = False
    launches: tuple[int, int] = (1, 1)

    def moved(self, width: float) -> tuple[float, float]:
        """Return bytes moved per logit of `width` bytes, forward and backward."""
        cast = width + FLOAT_BYTES if self.copies and width < FLOAT_BYTES else 0
        (logits, floats), (gradients, others) = self.forward, self.backward
        return (
            cast + width * logits + FLOAT_BYTES * floats,
            cast + width * gradients + FLOAT_BYTES * others,
        )

    def launched(self, width: float) -> tuple[int, int, int]:
        """Return the kernels that its passes launch."""
        cast = int(self.copies and width < FLOAT_BYTES)
        return self.launches[0] + cast, self.launches[1] + cast, 0

    def held(self, width: float) -> tuple[float, float]:
        """Return bytes held per logit of `width` bytes: kept for the backward pass, and its gradient."""
        floats = self.kept + (self.copies and width < FLOAT_BYTES)
        return width + FLOAT_BYTES * floats, FLOAT_BYTES * self.grad


EAGER_LOSS = Loss(forward=(0, 4), backward=(0, 5), kept=1, grad=1, copies=True, launches=(2, 2))
"""PyTorch's, of logits converted to 4 bytes: logarithm of the softmax (reads three times, writes), its entry of the
target; backward zeros, a sum over the gradient, and the gradient from both. It holds logits, copy, logarithm and
gradient. Source: aten/src/ATen/native/cuda/SoftMax.cu; Hugging Face transformers, ``ForCausalLMLoss``."""

MEGATRON_LOSS = Loss(forward=(0, 8), backward=(0, 2), copies=True, launches=(5, 1))
"""Megatron-LM's, of a vocabulary that ranks share: largest logit, difference, exponential, sum and division, each over
the same 4-byte copy, which becomes the gradient. Source: megatron/core/tensor_parallel/cross_entropy.py."""

FUSED_LOSS = Loss(forward=(2, 0), backward=(2, 0))
"""Reads logits twice; the gradient takes their place. Source: Hsu et al., *Liger Kernel*, arXiv 2410.10989, 3.2."""

LOSSES: Mapping[str, Loss] = {
    "eager": EAGER_LOSS,
    "megatron": MEGATRON_LOSS,
    "fused": FUSED_LOSS,
}
"""Implementations by value of the execution field ``ce_impl``."""


def cross_entropy(name: str, logits: Number, *, impl: str, dtype_bytes: float) -> Layer:
    """Softmax and loss over the vocabulary: 5 FLOP per logit forward, 8 backward; `impl` is one of :data:`LOSSES`."""
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
