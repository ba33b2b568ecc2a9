"""Embedding and LM head with its loss: what the first and the last pipeline stage have besides blocks.

Source: Shoeybi et al., *Megatron-LM*, arXiv 1909.08053, section 3: the vocabulary is split over tensor parallelism, and
the loss sums over the ranks in place of gathering the logits.
"""

from collections.abc import Iterator

from calculon.architecture.fusion import fused
from calculon.architecture.layer import COLUMN_INPUT, ROW_OUTPUT
from calculon.architecture.layers import (
    Flags,
    Layer,
    When,
    communication,
    cross_entropy,
    dropout,
    lookup,
    positions,
)
from calculon.architecture.layers.vocabulary import FLOAT_BYTES
from calculon.architecture.projection import border_collective, converted, project
from calculon.architecture.residual import residual_norm
from calculon.architecture.shape import BlockShape

SUMS = ("Max", "Sum", "Target")
"""All-reduces per token over a split vocabulary: the largest logit, the sum of exponentials, the target's logit."""

LOGITS = "Head_Logits"
"""The product whose weights a model may share with its embedding."""


_DROPPED = Flags(drops_activation=When.ALWAYS)


@fused
def embedding_layers(shape: BlockShape) -> Iterator[Layer]:
    """Yield lookup, learned positions, reduction over the split vocabulary, norm and dropout."""
    model, dtype_bytes = shape.model, shape.dtype_bytes
    rows = shape.vocab_rows
    yield lookup("Embedding", shape.tokens, model.hidden, rows, dtype_bytes=dtype_bytes)
    yield border_collective("Embedding_G", ROW_OUTPUT, shape, _DROPPED, dtype_bytes=dtype_bytes)
    if model.positions:
        yield positions(
            "Embedding_Positions",
            shape.residual,
            model.positions,
            model.hidden,
            dtype_bytes=dtype_bytes,
        )
    if model.embedding_norm:
        yield residual_norm("Embedding", shape, flags=Flags())
    if model.dropout:
        yield dropout(
            "Embedding_DropOut",
            shape.residual,
            grad_bytes=shape.edition.dropout_grad_bytes(dtype_bytes),
            dtype_bytes=dtype_bytes,
            flags=Flags(),
        )


@fused
def head_layers(shape: BlockShape) -> Iterator[Layer]:
    """Yield final norm, gathered input, logits, and the loss with its sums over the ranks."""
    model, result = shape.model, shape.widths.result
    columns = shape.vocab_rows
    yield residual_norm("Head", shape, flags=Flags())
    yield border_collective("Head_F", COLUMN_INPUT, shape, _DROPPED)
    bias = columns * model.head_bias
    yield from converted("Head_Cast", shape, model.hidden, columns, bias)
    logits = project(LOGITS, shape, model.hidden, columns, bias, Flags())
    yield logits._replace(activation_grad=0.0)  # that of the loss, which counts it
    yield cross_entropy(
        "Head_Loss",
        shape.tokens * columns,
        impl=shape.choice.ce_impl,
        dtype_bytes=result,
    )
    for name in SUMS:
        yield communication(
            f"Head_{name}",
            "tp",
            shape.tokens,
            shape.tensor_par,
            forward="all_reduce",
            backward=None,
            dtype_bytes=FLOAT_BYTES,
            flags=Flags(),
        )
