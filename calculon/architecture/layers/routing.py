"""Layers of a mixture of experts: router, choice, copies of rows, and products of all experts in one kernel."""

from calculon.architecture.layer import Flags, Layer, Number, Product, Widths
from calculon.architecture.layers.matmul import product_traffic

SCORE_BYTES = 4
"""Bytes of the score of an expert: routers compute in 4 (Zoph et al., *ST-MoE*, arXiv 2202.08906, section 3.3)."""

INDEX_BYTES = 1
"""Bytes of the mark of an expert that is chosen."""

CHOICE_BYTES = 12
"""Bytes of a row that stay: its score, its token, and its place."""

_CHOICE_KERNELS, _CHOICE_KERNELS_FUSED = 8, 2
_COPY_KERNELS, _COPY_KERNELS_FUSED = 6, 3
_SORT_KERNELS, _SORT_KERNELS_FUSED = 2, 1


def router(
    name: str,
    tokens: Number,
    hidden: int,
    experts: int,
    *,
    bias: Number,
    dtype_bytes: float,
    flags: Flags,
) -> Layer:
    """Score each expert for each token: a product in 4 bytes, of which neither pass is large.

    It reads tokens in `dtype_bytes`; weights and their gradients are in 4 bytes as they move, and stored as others are.
    What it reads another layer saves. Source: Megatron-LM, ``moe/router.py``, ``--moe-router-dtype fp32``.
    """
    flops = 2 * tokens * hidden * experts
    weights = hidden * experts + bias
    moved = tokens * (dtype_bytes * hidden + SCORE_BYTES * experts) + SCORE_BYTES * weights
    scores = SCORE_BYTES * tokens * experts
    return Layer(
        name=name,
        kernel="router",
        flops=(flops, flops, flops),
        accessed=(moved, moved, moved),
        inputs=tokens * hidden,
        outputs=tokens * experts,
        weights=weights,
        weight_bytes=dtype_bytes * weights,
        output_bytes=scores,
        activation_grad=scores,
        flags=flags,
        product=Product(1, tokens, hidden, experts),
    )


def chosen_experts(
    name: str, tokens: Number, experts: int, each: int, *, fused: bool, flags: Flags
) -> Layer:
    """Turn scores into probabilities, choose the best experts of a token, and count for the loss of balance.

    Three passes over the scores and ten FLOP per score; it keeps the scores, and 12 bytes of each row.
    """
    scores = tokens * experts
    moved = 3 * SCORE_BYTES * scores
    kernels = _CHOICE_KERNELS_FUSED if fused else _CHOICE_KERNELS
    return Layer(
        name=name,
        kernel="routing",
        flops=(10 * scores, 10 * scores, 0.0),
        accessed=(moved, moved, 0.0),
        inputs=scores,
        outputs=scores,
        output_bytes=SCORE_BYTES * scores,
        activation=SCORE_BYTES * scores + CHOICE_BYTES * tokens * each,
        activation_grad=SCORE_BYTES * scores,
        flags=flags,
        launches=(kernels, kernels, 0),
    )


def copied_rows(
    name: str,
    elements: Number,
    rows: Number,
    *,
    back: bool,
    fused: bool,
    dtype_bytes: float,
    flags: Flags,
) -> Layer:
    """Copy tokens to rows (*permute*), or `back`: add the rows of a token up, whose scores are in them (*unpermute*).

    `elements` are those of tokens, `rows` those of their rows. The backward pass is that of the other.
    """
    inputs, outputs = (rows, elements) if back else (elements, rows)
    moved = dtype_bytes * (elements + rows)
    kernels = _COPY_KERNELS_FUSED if fused else _COPY_KERNELS
    return Layer(
        name=name,
        kernel="routing",
        flops=(rows, 0.0, 0.0) if back else (0.0, rows, 0.0),
        accessed=(moved, moved, 0.0),
        inputs=inputs,
        outputs=outputs,
        output_bytes=dtype_bytes * outputs,
        activation_grad=dtype_bytes * outputs,
        flags=flags,
        launches=(kernels, kernels, 0),
    )


def sorted_rows(
    name: str, elements: Number, *, fused: bool, dtype_bytes: float, flags: Flags
) -> Layer:
    """Order rows by expert that have come rank by rank, or the other way: a copy in each pass.

    Source: Megatron-LM, ``moe/moe_utils.py``, ``sort_chunks_by_idxs``: a split and a concatenation, or one kernel.
    """
    moved = 2 * dtype_bytes * elements
    kernels = _SORT_KERNELS_FUSED if fused else _SORT_KERNELS
    return Layer(
        name=name,
        kernel="routing",
        flops=(0.0, 0.0, 0.0),
        accessed=(moved, moved, 0.0),
        inputs=elements,
        outputs=elements,
        output_bytes=dtype_bytes * elements,
        flags=flags,
        launches=(kernels, kernels, 0),
    )


def converted_rows(
    name: str, elements: Number, sent: tuple[float, float], result: float, *, flags: Flags
) -> Layer:
    """Convert rows of `result` bytes an element before they are sent, and back: of so many bytes, forward and backward.

    Each of the `elements`, sent and received, is read in one width and written in the other; a pass that sends results
    as they are has nothing to convert.
    """
    forward, backward = (elements * (result + one) * (one < result) for one in sent)
    return Layer(
        name=name,
        kernel="routing",
        flops=(0.0, 0.0, 0.0),
        accessed=(forward, backward, 0.0),
        inputs=elements,
        flags=flags,
    )


def grouped_linear(
    name: str,
    experts: Number,
    active: float,
    rows: Number,
    n: Number,
    k: Number,
    *,
    bias: Number = 0.0,
    widths: Widths,
    flags: Flags,
) -> Layer:
    """Multiply `rows` by the ``(n, k)`` weights of their experts: 2 rows n k FLOP in every pass; saves its input.

    As :func:`~calculon.architecture.layers.matmul.linear`, but for the weights of all experts, which every pass reads
    or writes, however few rows they have. A token passes the share `active` of all experts, of which a rank has
    `experts`; `bias` columns of each have one.

    Source: Gale et al., *MegaBlocks*, arXiv 2211.15841, section 5; CUTLASS, *Grouped Kernel Schedulers*.
    """
    flops = 2 * rows * n * k
    inputs, outputs = rows * n, rows * k
    stored, operand, result, _ = widths
    weights = experts * (n * k + bias)
    written = result * outputs
    return Layer(
        name=name,
        kernel="grouped_product",
        flops=(flops, flops, flops),
        accessed=product_traffic(weights, inputs, outputs, widths),
        inputs=inputs,
        outputs=outputs,
        weights=weights,
        weight_bytes=stored * weights,
        output_bytes=written,
        activation=operand * inputs,
        activation_grad=written,
        flags=flags,
        product=Product(experts, rows / experts, n, k),
        active=active,
        expert=True,
    )
