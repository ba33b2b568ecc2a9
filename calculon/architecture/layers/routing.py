"""Layers of MoE routing: router, top-k choice, copies of rows, and the grouped product of all experts."""

from calculon.architecture.layer import Flags, Layer, Number, Product, Widths
from calculon.architecture.layers.matmul import product_traffic

SCORE_BYTES = 4
"""Bytes of the score of an expert: routers compute in 4 (Zoph et al., *ST-MoE*, arXiv 2202.08906, section 3.3)."""

INDEX_BYTES = 1
"""Bytes of the mark of a chosen expert."""

CHOICE_BYTES = 12
"""Bytes saved per row: its score, its token, and its position."""

_ROUTER_KERNELS = 3, 2, 2
"""Kernels of the router: products, and conversions to 4 bytes.

Source: Megatron-LM, ``moe/moe_utils.py``, ``RouterGatingLinearFunction``.
"""

_CHOICE_KERNELS, _CHOICE_KERNELS_BIASED, _CHOICE_KERNELS_FUSED = (22, 10, 0), (34, 27, 0), (5, 4, 0)
"""Kernels of the choice of experts: operator by operator with softmax scores, or with sigmoid scores and a bias; fused.

Fused: scores with choice, scores of the load-balancing loss, row counts, this loss, and its sum for the log; backward
all but row counts. Source: Megatron-LM, ``moe/router.py``, ``moe/moe_utils.py``, ``--moe-router-fusion``. The other
counts are of PyTorch operators with a result of their own that the router of Megatron-Core 0.14.0 dispatches besides
its product, with a load-balancing loss (``aux_loss``, ``seq_aux_loss``).
"""

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
    """Return the scores of the experts for each token: a small product in 4 bytes.

    It reads tokens in `dtype_bytes`; weights and their gradients move in 4 bytes, but weights are stored like others.
    Another layer saves its input. Source: Megatron-LM, ``moe/router.py``, ``--moe-router-dtype fp32``.
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
        launches=_ROUTER_KERNELS,
    )


def chosen_experts(
    name: str, tokens: Number, experts: int, each: int, *, biased: bool, fused: bool, flags: Flags
) -> Layer:
    """Return the choice of the best experts per token, with probabilities and counts for the load-balancing loss.

    It takes three passes over the scores and ten FLOP per score; it saves the scores, and 12 bytes per row. A `biased`
    choice has sigmoid scores (DeepSeek-AI, arXiv 2412.19437, section 2.1.2).
    """
    alone = _CHOICE_KERNELS_BIASED if biased else _CHOICE_KERNELS
    scores = tokens * experts
    moved = 3 * SCORE_BYTES * scores
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
        launches=_CHOICE_KERNELS_FUSED if fused else alone,
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
    """Return the copy of tokens to rows (*permute*), or with `back` the sum of the rows of a token (*unpermute*).

    `elements` counts tokens, `rows` their rows; rows contain their scores. Each is the backward pass of the other.
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
    """Return the sorting of received rows by expert, or its inverse: a copy in each pass.

    Source: Megatron-LM, ``moe/moe_utils.py``, ``sort_chunks_by_idxs``: a split and a concatenation, or one kernel.
    """
    kernels = _SORT_KERNELS_FUSED if fused else _SORT_KERNELS
    return moved_rows(name, elements, kernels, dtype_bytes=dtype_bytes, flags=flags)


def moved_rows(
    name: str, elements: Number, kernels: int, *, dtype_bytes: float, flags: Flags
) -> Layer:
    """Return a copy of rows in each pass, by a number of kernels."""
    moved = 2 * dtype_bytes * elements
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
    """Return the conversion of rows from `result` bytes per element before they are sent, and back after that.

    `sent` contains the bytes per sent element, forward and backward. Each of the `elements`, sent and received, is read
    in one width and written in the other; a pass that sends results unchanged converts nothing.
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


def added_expert_bias(
    name: str, experts: Number, elements: Number, *, dtype_bytes: float, flags: Flags
) -> Layer:
    """Return the sum of `elements` results and the bias of each row's expert times its score, expert by expert.

    Scores have 4 bytes, and so have the products with them, the sums, and their concatenation, which is converted back:
    per element, 24 bytes and two results move. Backward, the gradient is converted, converted back for the rows, and
    multiplied and summed for the gradients of bias and scores: 32 bytes and two results.

    Source: Megatron-LM, ``moe/experts.py``, ``TEGroupedMLP._apply_bias``.
    """
    forward = (24 + 2 * dtype_bytes) * elements
    backward = (32 + 2 * dtype_bytes) * elements
    return Layer(
        name=name,
        kernel="add",
        flops=(2 * elements, 4 * elements, 0.0),
        accessed=(forward, backward, 0.0),
        inputs=elements,
        outputs=elements,
        output_bytes=dtype_bytes * elements,
        flags=flags,
        launches=(2, 5, 0),
        rounds=experts,
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
    loop: Number,
    widths: Widths,
    flags: Flags,
) -> Layer:
    """Return the product of `rows` with the ``(n, k)`` weights of their experts: 2 rows n k FLOP in every pass.

    It saves its input. It differs from :func:`~calculon.architecture.layers.matmul.linear` in that every pass reads or
    writes the weights of all experts, even with few rows. A token uses the fraction `active` of all experts, of which a
    rank has `experts`; each has `bias` columns with a bias. The host launches `loop` products.

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
        loop=loop,
        active=active,
        expert=True,
    )
