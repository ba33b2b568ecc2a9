"""What a module that predicts a further token does before its block (multi-token prediction).

It joins the hidden state of each token with the embedding of the token that comes next: both are normalised, laid side
by side, and multiplied by a matrix that is twice as high as wide. A block follows, then the head of the model. Source:
DeepSeek-V3, arXiv 2412.19437, section 2.2.

Under tensor parallelism the product is split by columns, and its output is gathered whole; where sequences are split,
each rank then takes its tokens of it. Source: Megatron-LM, ``core/transformer/multi_token_prediction.py``,
``MultiTokenPredictionLayer._concat_embeddings``.
"""

from collections.abc import Callable, Iterable, Iterator

from calculon.architecture.fusion import fused
from calculon.architecture.layer import COLUMN_INPUT
from calculon.architecture.layers import (
    RECOMPUTED,
    Flags,
    Layer,
    When,
    communication,
    fork,
    tensor_collective,
)
from calculon.architecture.projection import DROPPED, SENT, converted, project, with_copy
from calculon.architecture.residual import SHARED, residual_norm
from calculon.architecture.shape import BlockShape


def joined_with(
    *blocks: Callable[[BlockShape], Iterable[Layer]],
) -> Callable[[BlockShape], Iterator[Layer]]:
    """Return a generator of the layers of a module: what joins its inputs, then those of its block, or of its parts."""

    def layers(shape: BlockShape) -> Iterator[Layer]:
        yield from joining_layers(shape)
        for block in blocks:
            yield from block(shape)

    return layers


@fused
def joining_layers(shape: BlockShape) -> Iterator[Layer]:
    """Yield norms of hidden state and embedding, their concatenation, the product of both, and its gathered output.

    The LM head reads the hidden state, too. The product keeps its input as those of the MLP do.
    """
    model, result = shape.model, shape.widths.result
    again = When.RECOMPUTE_NORM
    yield fork("Mtp_Fork", shape.residual, 2, dtype_bytes=shape.dtype_bytes, flags=RECOMPUTED)
    yield residual_norm("Mtp_Hidden", shape, flags=SHARED._replace(recompute=again))
    yield residual_norm("Mtp_Embedding", shape, flags=RECOMPUTED._replace(recompute=again))
    moved = 2 * shape.dtype_bytes * (2 * shape.residual)
    yield Layer(
        name="Mtp_Concat",
        kernel="cast",
        flops=(0.0, 0.0, 0.0),
        accessed=(moved, moved, 0.0),
        inputs=2 * shape.residual,
        flags=Flags(recompute=again),
    )
    both, columns = 2 * model.hidden, shape.split(model.hidden)
    yield from converted("Mtp_Product_Cast", shape, both, columns, 0, side="gather")
    narrow = shape.widths.operand < result
    gathered = tensor_collective(
        "Mtp_F",
        COLUMN_INPUT,
        2 * shape.activation,
        shape.tensor_par,
        sequence_parallel=shape.choice.sequence_parallel,
        dtype_bytes=result,
        gathered_bytes=shape.widths.operand if narrow else None,
        flags=Flags(recommunicate=When.REGATHER_MLP, drops_activation=When.GATHERED_MLP),
    )
    yield from with_copy(gathered, shape)
    flags = RECOMPUTED._replace(drops_activation=DROPPED[When.REGATHER_MLP])
    yield project("Mtp_Product", shape, both, columns, 0, flags)
    yield communication(
        "Mtp_Gather",
        "tp",
        shape.activation,
        shape.tensor_par,
        forward="all_gather",
        backward="all_gather" if shape.choice.sequence_parallel else None,
        dtype_bytes=result,
        flags=SENT,
    )
