"""Parameters of a model by hand: what the sums over its layers are held against."""

from dataclasses import replace

from calculon.spec.model import Model

_PER_NORM = {"layernorm": 2, "layernorm_no_bias": 1, "layernorm_plain": 0, "rmsnorm": 1}
"""Vectors as wide as the residual stream that a norm has: gain and bias."""

_NO_EXPERTS = {
    "experts_per_token": 1,
    "expert_feedforward": 0,
    "shared_feedforward": 0,
    "shared_gate": False,
    "first_k_dense": 0,
    "moe_layer_freq": 1,
    "router_bias": False,
    "expert_bias": False,
    "moe_latent": 0,
    "router_groups": 0,
    "router_group_topk": 0,
}


_NO_LINEAR = {
    "linear_attention": "none",
    "full_attention_every": 0,
    "linear_key_heads": 0,
    "linear_value_heads": 0,
    "linear_key_dim": 128,
    "linear_value_dim": 128,
    "linear_conv": 4,
    "ssm_heads": 0,
    "ssm_head_dim": 64,
    "ssm_state": 128,
    "ssm_groups": 8,
    "ssm_conv": 4,
    "ssm_chunk": 128,
}


def counted_by_hand(model: Model) -> int:
    """Count the parameters of a model of any fields."""
    return embedding_parameters(model) + blocks_parameters(model) + head_parameters(model)


def blocks_parameters(model: Model) -> int:
    """Count the parameters of all blocks, of which some may have an MLP in place of experts, or linear attention."""
    if model.layer_pattern:
        return sum(part_parameters(model, letter) for letter in model.layer_pattern)
    if model.linear_attention != "none":
        every = model.full_attention_every
        full = model.num_blocks // every if every else 0
        own = linear_parameters(model) - attention_parameters(model)
        plain = replace(model, **_NO_LINEAR)
        return blocks_parameters(plain) + (model.num_blocks - full) * own
    mixed = (model.num_blocks - model.first_k_dense) // model.moe_layer_freq
    dense = replace(model, num_experts=0, **_NO_EXPERTS)
    left = model.num_blocks - mixed
    return mixed * block_parameters(model) + left * block_parameters(dense)


def part_parameters(model: Model, letter: str) -> int:
    """Count the parameters of one part of a block and its norm.

    Source: NVIDIA, *Nemotron-H*, arXiv 2504.03624, section 2.1.
    """
    columns = 2 if model.gated else 1
    counts = {
        "M": lambda: linear_parameters(model),
        "*": lambda: attention_parameters(model),
        "-": lambda: mlp_products(model, columns),
        "E": lambda: mixture_parameters(model, columns),
    }
    return counts[letter]() + norm_parameters(model)


def linear_parameters(model: Model) -> int:
    """Count the projections, convolutions, scalars of heads and gains of one block's linear attention.

    Source: Yang et al., arXiv 2412.06464, section 3.4 (Qwen3-Next); Dao and Gu, arXiv 2405.21060, section 7; MiniMax,
    arXiv 2501.08313, section 2.2.
    """
    hidden = model.hidden
    if model.linear_attention == "lightning":
        width = model.attn_heads * model.attn_size
        return 5 * hidden * width + width
    if model.linear_attention == "mamba2":
        inner, shared = model.ssm_heads * model.ssm_head_dim, 2 * model.ssm_groups * model.ssm_state
        projected = hidden * (2 * inner + shared + model.ssm_heads) + inner * hidden
        return projected + (model.ssm_conv + 1) * (inner + shared) + 3 * model.ssm_heads + inner
    keys = model.linear_key_heads * model.linear_key_dim
    values, heads = model.linear_value_heads * model.linear_value_dim, model.linear_value_heads
    projected = hidden * (2 * keys + 2 * values + 2 * heads) + values * hidden
    convolved = model.linear_conv * (2 * keys + values)
    return projected + convolved + 2 * heads + model.linear_value_dim


def block_parameters(model: Model) -> int:
    """Count the parameters of one block: attention, MLP and norms; or of the part of it that there is."""
    match model.part:
        case "attention":
            return attention_parameters(model)
        case "mlp":
            return mlp_parameters(model)
        case "linear":
            return model.hidden**2 + model.hidden * model.mlp_bias
    return (
        attention_parameters(model) + mlp_parameters(model) + model.norms * norm_parameters(model)
    )


def attention_parameters(model: Model) -> int:
    """Count the projections of one block's attention, and its norms of queries and keys (a gain, no bias).

    Source: Ainslie et al., *GQA*, arXiv 2305.13245; a norm over each head is shared by all heads (Qwen3,
    arXiv 2505.09388), one over the full width is not (OLMo 2, arXiv 2501.00656).
    """
    if model.kv_lora_rank:
        return latent_parameters(model)
    size, heads, groups = model.attn_size, model.attn_heads, model.key_value_heads
    queries = heads * (2 if model.attention_gate else 1)
    inner, outer = (queries + 2 * groups) * size, heads * size
    weights = model.hidden * (inner + outer)
    biases = inner * model.qkv_bias + model.hidden * model.out_bias
    gains = {"none": 0, "head": 2 * size, "full": (heads + groups) * size}[model.qk_norm]
    return weights + biases + gains + heads * model.attention_sinks


def latent_parameters(model: Model) -> int:
    """Count the projections of latent attention, and the gains of the norms of its latents.

    Source: DeepSeek-V2, arXiv 2405.04434, section 2.1 and its table of notation.
    """
    hidden, heads, query, latent = (
        model.hidden,
        model.attn_heads,
        model.q_lora_rank,
        model.kv_lora_rank,
    )
    head = model.qk_nope_head_dim + model.qk_rope_head_dim
    queries = query * (hidden + 1 + heads * head) if query else hidden * heads * head
    down = hidden * (latent + model.qk_rope_head_dim) + latent
    up = latent * heads * (model.qk_nope_head_dim + model.v_head_dim)
    return queries + down + up + hidden * (heads * model.v_head_dim + model.out_bias)


def mlp_parameters(model: Model) -> int:
    """Count the products of one block's MLP: two, or three when it is gated.

    Source: Shazeer, *GLU variants*, arXiv 2002.05202.
    """
    columns = 2 if model.gated else 1
    if model.num_experts:
        return mixture_parameters(model, columns)
    return mlp_products(model, columns)


def mlp_products(model: Model, columns: int) -> int:
    """Count the products of an MLP of the width ``feedforward``, with biases."""
    weights = (columns + 1) * model.hidden * model.feedforward
    return weights + (columns * model.feedforward + model.hidden) * model.mlp_bias


def mixture_parameters(model: Model, columns: int) -> int:
    """Count the experts of one block, their router, and those that every token passes with their gate."""
    width = model.expert_feedforward or model.feedforward
    rows = model.moe_latent or model.hidden
    expert = (columns + 1) * rows * width
    expert += (columns * width + rows) * model.expert_bias
    shared = (columns + 1) * model.hidden * model.shared_feedforward
    router = (model.hidden + model.router_bias) * model.num_experts
    latent = 2 * model.hidden * model.moe_latent
    return router + model.num_experts * expert + latent + shared + model.hidden * model.shared_gate


def norm_parameters(model: Model) -> int:
    """Count gain and bias of one norm over the residual stream."""
    return _PER_NORM[model.norm] * model.hidden


def embedding_parameters(model: Model) -> int:
    """Count what stands before the blocks: token embedding, learned positions, and the norm of both."""
    if not model.vocab:
        return 0
    rows = (model.vocab + model.positions) * model.hidden
    return rows + norm_parameters(model) * model.embedding_norm


def head_parameters(model: Model) -> int:
    """Count what stands after the blocks: final norm and output head, without weights that the embedding lends."""
    if not model.vocab:
        return 0
    weights = 0 if model.tied else model.vocab * model.hidden
    return norm_parameters(model) + weights + model.vocab * model.head_bias
