"""What the first and the last pipeline stage have beside blocks: embedding, output head and loss.

Source: Shoeybi et al., *Megatron-LM*, arXiv 1909.08053, section 3: the vocabulary is split over tensor parallelism, and
the loss sums over the ranks in place of gathering the logits.
"""

from collections.abc import Iterable, Iterator

from calculon.architecture.fusion import fuse
from calculon.architecture.layers import (
    Flags,
    Layer,
    When,
    cross_entropy,
    dropout,
    gather,
    linear,
    lookup,
    positions,
    reduce,
    total,
)
from calculon.architecture.layers.vocabulary import FLOAT_BYTES
from calculon.architecture.projection import converted
from calculon.architecture.residual import residual_norm
from calculon.architecture.shape import BlockShape

SUMS = ("Max", "Sum", "Target")
"""What the ranks of a split vocabulary agree on per token: the largest logit, the sum of exponentials, the target's."""


LOGITS = "Head_Logits"
"""The product whose weights a model may share with its embedding."""


def embedding_layers(shape: BlockShape) -> Iterable[Layer]:
    """Yield the layers of the embedding as the fusion policy runs them."""
    return fuse(_embedding_layers(shape), shape)


def head_layers(shape: BlockShape) -> Iterable[Layer]:
    """Yield the layers of output head and loss as the fusion policy runs them."""
    return fuse(_head_layers(shape), shape)


def _embedding_layers(shape: BlockShape) -> Iterator[Layer]:
    """Yield lookup, learned positions, reduction over the split vocabulary, norm and dropout."""
    model, dtype_bytes = shape.model, shape.dtype_bytes
    rows = shape.vocab_rows
    yield lookup("Embedding", shape.tokens, model.hidden, rows, dtype_bytes=dtype_bytes)
    yield reduce(
        "Embedding_G",
        shape.activation,
        shape.tensor_par,
        sequence_parallel=shape.choice.sequence_parallel,
        dtype_bytes=dtype_bytes,
        flags=Flags(drops_activation=When.ALWAYS),
    )
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


def _head_layers(shape: BlockShape) -> Iterator[Layer]:
    """Yield final norm, gathered input, logits, and the loss with its sums over the ranks."""
    model, result = shape.model, shape.widths.result
    columns = shape.vocab_rows
    yield residual_norm("Head", shape, flags=Flags())
    yield gather(
        "Head_F",
        shape.activation,
        shape.tensor_par,
        sequence_parallel=shape.choice.sequence_parallel,
        dtype_bytes=result,
        flags=Flags(drops_activation=When.ALWAYS),
    )
    weights = model.hidden * columns + columns * model.head_bias
    if shape.narrow:
        yield converted(
            "Head_Cast", shape, shape.activation, columns, weights, source=shape.dtype_bytes
        )
    logits = linear(
        LOGITS,
        shape.tokens,
        model.hidden,
        columns,
        bias=columns if model.head_bias else None,
        widths=shape.widths,
        flags=Flags(),
    )
    yield logits._replace(activation_grad=0.0)  # that of the loss, which counts it
    yield cross_entropy(
        "Head_Loss",
        shape.tokens * columns,
        fused=shape.choice.ce_impl == "fused",
        dtype_bytes=result,
    )
    for name in SUMS:
        yield total(f"Head_{name}", shape.tokens, shape.tensor_par, value_bytes=FLOAT_BYTES)
