"""The residual region around attention and MLP."""

from collections.abc import Iterator

from calculon.layers import Flags, Layer, dropout, elementwise, fork, layer_norm
from calculon.transformer.shape import BlockShape


def entry_layers(prefix: str, shape: BlockShape) -> Iterator[Layer]:
    """Fork off the residual connection and normalise."""
    again = shape.choice.recompute_all
    dtype_bytes = shape.choice.dtype_bytes
    shared = Flags(recompute=again, stores_activation=False, reuses_activation=True)
    yield fork(
        f"{prefix}_Fork",
        shape.residual,
        2,
        dtype_bytes=dtype_bytes,
        flags=Flags(recompute=again),
    )
    yield layer_norm(
        f"{prefix}_LayerNorm",
        shape.residual,
        shape.model.hidden,
        dtype_bytes=dtype_bytes,
        flags=shared,
    )


def exit_layers(prefix: str, shape: BlockShape) -> Iterator[Layer]:
    """Drop out and add the residual connection."""
    again = shape.choice.recompute_all
    dtype_bytes = shape.choice.dtype_bytes
    yield dropout(
        f"{prefix}_DropOut",
        shape.residual,
        grad_bytes=shape.edition.dropout_grad_bytes(dtype_bytes),
        dtype_bytes=dtype_bytes,
        flags=Flags(recompute=again),
    )
    yield elementwise(
        f"{prefix}_Residual",
        shape.residual,
        dtype_bytes=dtype_bytes,
        flags=Flags(recompute=again, stores_activation=False, reuses_activation=True),
    )
