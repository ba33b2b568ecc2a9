"""Layers of the vocabulary: token embedding, learned positions, and the cross-entropy loss of the LM head."""

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


def cross_entropy(name: str, logits: Number, *, fused: bool, dtype_bytes: float) -> Layer:
    """Softmax and loss over the vocabulary: 5 FLOP per logit forward, 8 backward.

    Eager: logits are copied to 4 bytes, two passes make the loss; the gradient is a third tensor, cast back. It holds
    the logits, the copy and its gradient. Fused: read twice forward; the gradient takes the place of the logits.

    Source: Hsu et al., *Liger Kernel*, arXiv 2410.10989, section 3.2.
    """
    if fused:
        accessed = (2 * dtype_bytes * logits, 2 * dtype_bytes * logits)
        kept, grad = dtype_bytes * logits, 0.0 * logits
    else:
        cast = (dtype_bytes + FLOAT_BYTES) * logits
        accessed = (cast + 3 * FLOAT_BYTES * logits, 4 * FLOAT_BYTES * logits + cast)
        kept, grad = cast, FLOAT_BYTES * logits
    return Layer(
        name=name,
        kernel="loss",
        flops=(5 * logits, 8 * logits, 0.0),
        accessed=(*accessed, 0.0),
        inputs=logits,
        activation=kept,
        activation_grad=grad,
    )
