"""Figures that people quote, which only the corrected edition has."""

from __future__ import annotations

from dataclasses import replace

from .batch import Batch
from .fields import Execution, Model


def parameters(model: Model) -> int:
    """Count the parameters, of a model of the published fields as published."""
    h, f, blocks = model.hidden, model.feedforward, model.num_blocks
    width, keys = model.attn_heads * model.attn_size, model.key_heads * model.attn_size
    if model.plain:  # biases everywhere, two norms, 51200 words and learned positions
        block = 2 * h * f + f + h + 4 * h * width + 3 * width + h + 2 * 2 * h
        return blocks * block + (51200 + model.seq_size) * h
    norm = {"layernorm": 2, "layernorm_plain": 0}.get(model.norm, 1) * h
    inner = width + 2 * keys
    gains = {"none": 0, "head": 2 * model.attn_size, "full": width + keys}[model.qk_norm]
    attention = h * inner + inner * model.qkv_bias + width * h + h * model.out_bias + gains
    columns = f * (2 if model.gated else 1)
    mlp = h * columns + f * h + (columns + h) * model.mlp_bias
    block = {
        "block": attention + mlp + model.norms * norm,
        "attention": attention,
        "mlp": mlp,
        "linear": h * h + h * model.mlp_bias,
    }[model.part]
    embedding_head = 0
    if model.vocab:
        embedding_head = (model.vocab + model.positions) * h + norm * model.embedding_norm
        embedding_head += (
            norm + (0 if model.tied else model.vocab * h) + model.vocab * model.head_bias
        )
    return blocks * block + embedding_head


def padding(model: Model, ex: Execution) -> int:
    """Count the parameters of words that fill up the vocabulary: to a multiple on every rank."""
    rows = ex.vocab_pad_multiple
    while rows * ex.tensor_par < model.vocab:
        rows += ex.vocab_pad_multiple
    words = rows * ex.tensor_par - model.vocab if model.vocab else 0
    tables = 1 if model.tied else 2
    return words * (tables * model.hidden + model.head_bias)


def flops_per_token(model: Model, keys: float, *, training: bool) -> float:
    """Count the products of a token with weights, and with so many keys and values."""
    h, width = model.hidden, model.attn_heads * model.attn_size
    weights = attended = 0.0
    if model.part in ("block", "attention"):
        weights += 2 * h * width + 2 * h * model.key_heads * model.attn_size
        attended = 2 * keys * width
    if model.part in ("block", "mlp"):
        weights += (3 if model.gated else 2) * h * model.feedforward
    if model.part == "linear":
        weights += h * h
    forward = 2 * (model.num_blocks * (weights + attended) + h * model.vocab)
    return 3 * forward if training else forward


def figures(batch: Batch) -> dict[str, float]:
    """Return the figures of a batch, in order."""
    run, ex, model, block = batch.run, batch.execution, batch.run.model, batch.block
    if ex.attention_type == "multiquery":
        model = replace(model, kv_heads=1)
    rate = ex.batch_size * model.seq_size / batch.total_time
    each = rate / ex.num_procs
    whole = flops_per_token(model, model.seq_size, training=ex.training)
    seen = flops_per_token(model, model.mean_keys, training=ex.training)
    executed: float = model.num_blocks * block.matrix_flops
    of_embedding_head = (0.0, 0.0)
    if batch.embedding_head is not None:
        executed += (
            batch.embedding_head.embedding.matrix_flops + batch.embedding_head.head.matrix_flops
        )
        of_embedding_head = batch.embedding_head.whole
    executed *= run.microbatches / ex.pipeline_par
    return {
        "parameters": parameters(model),
        "padded_parameters": parameters(model) + padding(model, ex),
        "tokens_per_second": rate,
        "tokens_per_second_per_proc": each,
        "model_flops_per_token": whole,
        "model_flops_per_second_per_proc": whole * each,
        "mfu": whole * each / batch.peak,
        "mfu_causal": seen * each / batch.peak,
        "hfu": executed / batch.total_time / batch.peak,
        "block_act_bytes_per_token": batch.block_activation / run.tokens,
        "embedding_time": run.microbatches * of_embedding_head[0],
        "head_time": run.microbatches * of_embedding_head[1],
        "host_time": run.host,
        "copy_time": batch.copy_time,
        "gathered_space": batch.memory.gathered,
        "comm_buffer_space": batch.memory.passing,
        "fragment_space": batch.memory.fragments,
        "reserved_space": batch.memory.reserved,
    }
