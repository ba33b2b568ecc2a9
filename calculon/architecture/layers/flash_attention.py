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
    value_size: int = 0,
    key_tokens: Number | None = None,
    keys: Number,
    slowest: Number = 1.0,
    causal: bool,
    dtype_bytes: float,
    flags: Flags,
) -> Layer:
    """Attention of `heads` query heads of width `size` on one rank, each query to `keys` keys on average.

    The slowest rank has `slowest` times as many keys for its queries: its time counts, the mean FLOP.

    Values, and so the output, have heads of `value_size`; 0: as wide as those of queries and keys. Keys and values are
    of `key_tokens`, by default those of the queries; of others, other ranks keep them.

    Two products forward; five backward (the scores again, and the gradients of values, probabilities, queries and
    keys), which is 2.5 times as much. Saves queries, keys and values (the output is saved by its reader) and a 4-byte
    log-sum-exp per query and head; the backward pass accumulates query gradients in 4 bytes.

    Source: Dao et al., *FlashAttention*, arXiv 2205.14135, section 3; Dao, *FlashAttention-2*, arXiv 2307.08691,
    section 4 (2.5 times).
    """
    value_size = value_size or size
    queries, outputs = tokens * heads * size, tokens * heads * value_size
    saved = inputs = queries + tokens * key_value_heads * (size + value_size)
    if key_tokens is not None:
        inputs = queries + key_tokens * key_value_heads * (size + value_size)
    statistic = STATISTIC_BYTES * tokens * heads
    flops = 2 * tokens * keys * heads * (size + value_size)
    return Layer(
        name=name,
        kernel="attention",
        flops=(flops, 2.5 * flops, 0.0),
        accessed=(
            dtype_bytes * (inputs + outputs) + statistic,
            dtype_bytes * 2 * (inputs + outputs) + statistic + 2 * STATISTIC_BYTES * queries,
            0.0,
        ),
        inputs=inputs,
        outputs=outputs,
        output_bytes=dtype_bytes * outputs,
        activation=dtype_bytes * saved + statistic,
        activation_grad=dtype_bytes * outputs,
        flags=flags,
        keys=keys,
        slowest=slowest,
        head_width=size,
        value_width=value_size,
        causal=causal,
        launches=(1, 2, 0),
    )
