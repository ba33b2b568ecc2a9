"""Products of a token with the weights of a block, and with keys and values."""

from .counted_states import linear_products
from .fields import Model


def latent_matrices(model: Model) -> int:
    """Count the matrices of attention whose queries, keys and values come from latents."""
    h, heads = model.hidden, model.attn_heads
    nope, rope, value = model.qk_nope_head_dim, model.qk_rope_head_dim, model.v_head_dim
    rank = model.q_lora_rank
    queries = heads * (nope + rope)
    found = h * rank + rank * queries if rank else h * queries
    found += h * (model.kv_lora_rank + rope)
    found += model.kv_lora_rank * heads * nope + model.kv_lora_rank * heads * value
    return found + heads * value * h


def products(model: Model, keys: float) -> float:
    """Count the multiplications of a token in one of equal blocks."""
    h, width = model.hidden, model.attn_heads * model.attn_size
    weights = attended = 0.0
    letter = model.layer_pattern[:1]
    if model.linear and letter in ("", "M"):
        weights += linear_products(model)
    elif model.part in ("block", "attention") and letter in ("", "*"):
        weights += (2 + model.attention_gate) * h * width
        weights += 2 * h * model.key_heads * model.attn_size
        attended = 2 * keys * width
        if model.kv_lora_rank:
            weights = latent_matrices(model)
            attended = keys * width + keys * model.attn_heads * model.v_head_dim
    if model.part in ("block", "mlp") and letter in ("", "-", "E"):
        rows = h * model.inner_width
        if model.mixes:
            rows = model.experts_per_token * model.row_width * model.inner_width
            rows += h * model.shared_feedforward
            weights += 2 * h * model.moe_latent
        weights += (3 if model.gated else 2) * rows
    if model.part == "linear":
        weights += h * h
    return weights + attended
