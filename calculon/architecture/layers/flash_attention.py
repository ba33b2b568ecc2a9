"""Fused attention: scores, softmax and weighted values in one kernel that never has the score matrix in memory."""

from calculon.architecture.layer import Flags, Layer, Number

STATISTIC_BYTES = 4
"""Bytes of the log-sum-exp that is kept per query and head, and of an element of the query gradient's accumulator."""


def flash_attention(
    name: str,
    tokens: Number,
    heads: Number,
    key_value_heads: Number,
    size: int,
    *,
    keys: Number,
    causal: bool,
    dtype_bytes: float,
    flags: Flags,
) -> Layer:
    """Attention of `heads` query heads of width `size` on one rank, each query to `keys` keys on average.

    Two products forward; five backward (the scores again, and the gradients of values, probabilities, queries and
    keys), which is 2.5 times as much. Saves queries, keys and values (the output is saved by its reader) and a 4-byte
    log-sum-exp per query and head; the backward pass accumulates query gradients in 4 bytes.

    Source: Dao et al., *FlashAttention*, arXiv 2205.14135, section 3; Dao, *FlashAttention-2*, arXiv 2307.08691,
    section 4 (2.5 times).
    """
    queries = tokens * heads * size
    inputs = queries + 2 * tokens * key_value_heads * size
    statistic = STATISTIC_BYTES * tokens * heads
    flops = 4 * tokens * keys * heads * size
    return Layer(
        name=name,
        kernel="attention",
        flops=(flops, 2.5 * flops, 0.0),
        accessed=(
            dtype_bytes * (inputs + queries) + statistic,
            dtype_bytes * 2 * (inputs + queries) + statistic + 2 * STATISTIC_BYTES * queries,
            0.0,
        ),
        inputs=inputs,
        outputs=queries,
        output_bytes=dtype_bytes * queries,
        activation=dtype_bytes * inputs + statistic,
        activation_grad=dtype_bytes * queries,
        flags=flags,
        keys=keys,
        head_width=size,
        causal=causal,
        launches=(1, 2, 0),
    )
