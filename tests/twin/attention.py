"""The attention of a block: projections, scores and weighted values."""

from __future__ import annotations

from .layers import Flags, Layer
from .operators import batch_matmul, dropout, flash, norm, rotary, softmax
from .run import Run


def key_heads(run: Run) -> int:
    """Key heads on one rank: its share, or one that it has together with others."""
    heads = 1 if run.execution.attention_type == "multiquery" else run.model.key_heads
    return -(-heads // run.execution.tensor_par)


def projected_widths(run: Run) -> tuple[int, int]:
    """Return the width of the queries and of the keys (or values) on one rank."""
    model, t = run.model, run.execution.tensor_par
    queries = model.attn_heads * model.attn_size // t
    if run.rules.one_key_value_head:
        return queries, key_heads(run) * model.attn_size
    # [O22] In multiquery every TP rank has the one key and value head.
    one = run.execution.attention_type == "multiquery"
    return queries, model.attn_size if one else queries


def attention_core(run: Run) -> list[Layer]:
    """Return what is between the projections."""
    model = run.model
    again = Flags(recompute=run.redoes_operators)
    queries, keys = projected_widths(run)
    turned = run.tokens * (queries + keys)
    layers = []
    if model.qk_norm != "none":
        gains = 2 if model.qk_norm == "head" else model.attn_heads + model.key_heads
        size = run.result_bytes
        weights = gains * model.attn_size
        layers.append(norm(run, "AttnBlock_QK_Norm", turned, weights, again, element=size))
    if model.rotary:
        layers.append(rotary(run, "AttnBlock_Rotary", turned * model.rotary, again))
    if run.execution.attn_impl == "flash":
        heads = model.attn_heads // run.execution.tensor_par
        core = Flags(recompute=run.recomputes_attention)
        kernel = flash(run, "AttnBlock_Flash", heads, key_heads(run), core)
        kernel.remade = run.result_bytes * run.tokens * key_heads(run) * model.attn_size
        return [*layers, kernel]
    return layers + _eager(run)


def _eager(run: Run) -> list[Layer]:
    """Scores, probabilities and weighted values, each in memory."""
    model, ex, again = run.model, run.execution, run.recomputes_attention
    s, d, heads = model.seq_size, model.attn_size, model.attn_heads // ex.tensor_par
    products = ex.microbatch_size * heads
    scores = heads * s**2 * ex.microbatch_size
    # [O22] Published is a key and a value per query head, in multiquery too.
    one = run.rules.one_key_value_head
    factors = ex.microbatch_size * key_heads(run) if one else products
    unstored = Flags(recompute=again, stores_output=not again)
    mask = Flags(recompute=again, stores_activation=not again)
    weighted = Flags(recompute=again if run.rules.values_recomputed else run.full_recompute)
    if model.dropout:
        first = probabilities = unstored
        dropped = [dropout(run, "AttnBlock_Multihead_DropOut", scores, mask)]
    else:  # probabilities are the saved input of the next product
        first = Flags(recompute=again)
        probabilities = Flags(
            recompute=again,
            stores_output=not again,
            stores_activation=False,
            reuses_activation=True,
        )
        dropped = []
    return [
        batch_matmul(run, "AttnBlock_Multihead_Key_Query", (products, s, d, s), factors, first),
        softmax(run, "AttnBlock_Multihead_SoftMax", scores, probabilities),
        *dropped,
        batch_matmul(run, "AttnBlock_Multihead_Attn", (products, s, s, d), factors, weighted),
    ]
