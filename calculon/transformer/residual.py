"""The residual region around attention and MLP."""

from collections.abc import Iterator

from calculon.layers import Flags, Layer, When, dropout, elementwise, fork, layer_norm
from calculon.transformer.shape import BlockShape

SHARED = Flags(recompute=When.RECOMPUTE_ALL, drops_activation=When.ALWAYS, shares_activation=True)
"""A layer whose saved input lies in the buffer of another one."""


def entry_layers(prefix: str, shape: BlockShape) -> Iterator[Layer]:
    """Fork off the residual connection and normalise."""
    dtype_bytes = shape.choice.dtype_bytes
    yield fork(
        f"{prefix}_Fork",
        shape.residual,
        2,
        dtype_bytes=dtype_bytes,
        flags=Flags(recompute=When.RECOMPUTE_ALL),
    )
    yield layer_norm(
        f"{prefix}_LayerNorm",
        shape.residual,
        shape.model.hidden,
        dtype_bytes=dtype_bytes,
        flags=SHARED,
    )


def exit_layers(prefix: str, shape: BlockShape) -> Iterator[Layer]:
    """Drop out and add the residual connection."""
    dtype_bytes = shape.choice.dtype_bytes
    yield dropout(
        f"{prefix}_DropOut",
        shape.residual,
        grad_bytes=shape.edition.dropout_grad_bytes(dtype_bytes),
        dtype_bytes=dtype_bytes,
        flags=Flags(recompute=When.RECOMPUTE_ALL),
    )
    yield elementwise(
        f"{prefix}_Residual",
        shape.residual,
        dtype_bytes=dtype_bytes,
        flags=SHARED,
    )
