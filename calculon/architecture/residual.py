"""Residual stream around attention and MLP: norms, dropout and residual sum."""

from collections.abc import Iterator

from calculon.architecture.layers import (
    RECOMPUTED,
    Flags,
    Layer,
    When,
    dropout,
    fork,
    norm,
    residual_sum,
)
from calculon.architecture.shape import BlockShape

SHARED = RECOMPUTED._replace(drops_activation=When.ALWAYS, shares_activation=True)
"""Flags of a layer whose saved input is in the buffer of another layer."""

NORM_NAMES = {"rmsnorm": "RMSNorm"}
"""Names of norms in the list of layers, except layer normalization."""


def entry_layers(
    prefix: str, shape: BlockShape, *, norms: int = 1, drops: str = When.NEVER
) -> Iterator[Layer]:
    """Yield the fork of the residual connection and the norms; several norms read the same input.

    `drops` is the condition under which the input is not saved.
    """
    flags = RECOMPUTED._replace(drops_activation=drops)
    yield fork(
        f"{prefix}_Fork", shape.residual, 1 + norms, dtype_bytes=shape.dtype_bytes, flags=flags
    )
    for _ in range(norms):
        yield residual_norm(prefix, shape, flags=SHARED._replace(recompute=When.RECOMPUTE_NORM))


def residual_norm(prefix: str, shape: BlockShape, *, flags: Flags) -> Layer:
    """Return the norm of the residual stream, or of a branch before it is added."""
    return norm(
        f"{prefix}_{NORM_NAMES.get(shape.model.norm, 'LayerNorm')}",
        shape.model.norm,
        shape.residual,
        shape.model.hidden,
        input_grad=shape.edition.writes_input_gradients,
        dtype_bytes=shape.dtype_bytes,
        flags=flags,
    )


def exit_layers(
    prefix: str, shape: BlockShape, *, recompute: str = When.RECOMPUTE_ALL
) -> Iterator[Layer]:
    """Yield a second norm for blocks with four norms, dropout, and the residual sum."""
    result, plain = shape.widths.result, Flags(recompute=recompute)
    if shape.model.norms == 4:
        yield residual_norm(f"{prefix}_Post", shape, flags=plain)
    if shape.model.dropout:
        yield dropout(
            f"{prefix}_DropOut",
            shape.residual,
            grad_bytes=shape.edition.dropout_grad_bytes(result),
            dtype_bytes=result,
            flags=plain,
        )
    yield residual_sum(
        f"{prefix}_Residual",
        shape.residual,
        dtype_bytes=shape.dtype_bytes,
        flags=SHARED._replace(recompute=recompute),
    )
