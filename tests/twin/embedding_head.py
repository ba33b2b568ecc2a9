"""Embedding, output head and loss, which the first and the last pipeline stage have."""

from .communication import TPComm, copied
from .fusion import fused
from .layers import Flags, Layer
from .operators import cast, dropout, linear, residual_norm
from .run import Run


def embedding_layers(run: Run) -> list[Layer]:
    """Look tokens up in a table that is split by rows, add the parts up, add positions."""
    model, size, rows = run.model, run.element_bytes, run.vocab_rows
    kept_nothing = Flags(stores_activation=False)
    count, weights = run.activation, rows * model.hidden
    lookup = Layer(
        run,
        "Embedding",
        Flags(),
        flops=(0, 0, count),
        # The gradient of the table is as large as the table, in 4 bytes.
        moved=(2 * size * count, 0, size * count + 4 * weights),
        inputs=run.tokens,
        outputs=count,
        weights=weights,
        output_space=size * count,
        grads=size * count,
    )
    lookup.table = rows, model.hidden
    layers = [
        lookup,
        *copied(run, TPComm(run, "Embedding_G", "reduce", kept_nothing, element=size)),
    ]
    if model.positions:
        layers.append(_positions(run))
    if model.embedding_norm:
        layers.append(residual_norm(run, "Embedding", Flags()))
    if model.dropout:
        layers.append(dropout(run, "Embedding_DropOut", run.residual, Flags(), element=size))
    return fused(layers, run)


def _positions(run: Run) -> Layer:
    """Add learned positions, all of which every rank has."""
    size, count = run.element_bytes, run.residual
    weights = run.model.positions * run.model.hidden
    layer = Layer(
        run,
        "Embedding_Positions",
        Flags(),
        flops=(count, 0, count),
        moved=(size * (2 * count + weights), 0, size * count + 4 * weights),
        inputs=count,
        outputs=count,
        weights=weights,
        output_space=size * count,
    )
    layer.table = run.model.positions, run.model.hidden
    return layer


def head_layers(run: Run) -> list[Layer]:
    """Normalize, gather, multiply by the vocabulary, and compare with the next tokens."""
    model, tokens, columns = run.model, run.tokens, run.vocab_rows
    bias = columns if model.head_bias else 0
    layers = [
        residual_norm(run, "Head", Flags()),
        *copied(run, TPComm(run, "Head_F", "gather", Flags(stores_activation=False))),
    ]
    if run.narrow:
        alone = run.execution.fusion not in ("compile", "max")
        counts = model.hidden * columns + bias, run.activation, tokens * columns
        casts = cast(run, "Head_Cast", counts, run.element_bytes, alone=alone)
        layers.append(casts)
    logits = linear(run, "Head_Logits", tokens, model.hidden, columns, Flags(), bias)
    logits.activation_grad_space = 0  # it is that of the loss
    layers += [logits, _loss(run, tokens * columns)]
    # All ranks need the largest logit, the sum of exponentials and the logit of the target.
    for name in ("Max", "Sum", "Target"):
        layers.append(TPComm(run, f"Head_{name}", "total", Flags(), count=tokens, element=4))
    return fused(layers, run)


def _loss(run: Run, count: int) -> Layer:
    """Compute the loss in 4 bytes: with all steps kept, in one copy, or in place of the logits.

    PyTorch reads logits for maximum, sum and result; backward, zeros are written, and gradient (twice) and result
    are read. Megatron reads for the maximum and the sum, and subtracts, exponentiates and divides in place.
    """
    size, how = run.result_bytes, run.execution.ce_impl
    copy = size + 4 if size < 4 else 0
    copied = int(copy > 0)
    if how == "fused":
        moved, kept, grads, kernels = (2 * size, 2 * size), size, 0, (1, 1, 0)
    elif how == "megatron":
        moved, kept, grads = (copy + 4 + 8 + 8 + 4 + 8, 8 + copy), size + 4 * copied, 0
        kernels = 5 + copied, 1 + copied, 0
    else:
        moved, kept, grads = (copy + 3 * 4 + 4, 4 + 2 * 4 + 4 + 4 + copy), size + 4 + 4 * copied, 4
        kernels = 2 + copied, 2 + copied, 0
    layer = Layer(
        run,
        "Head_Loss",
        Flags(),
        kind="loss",
        flops=(5 * count, 8 * count, 0),
        moved=(moved[0] * count, moved[1] * count, 0),
        inputs=count,
        saved=kept * count,
        grads=grads * count,
    )
    layer.kernels = kernels
    return layer
