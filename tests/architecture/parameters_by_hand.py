"""Parameters of a model by hand: what the sums over its layers are held against."""

from calculon.spec.model import Model

_PER_NORM = {"layernorm": 2, "layernorm_no_bias": 1, "layernorm_plain": 0, "rmsnorm": 1}
"""Vectors as wide as the residual stream that a norm has: gain and bias."""


def counted_by_hand(model: Model) -> int:
    """Count the parameters of a model of any fields."""
    blocks = model.num_blocks * block_parameters(model)
    return embedding_parameters(model) + blocks + head_parameters(model)


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
    size, heads, groups = model.attn_size, model.attn_heads, model.key_value_heads
    inner, outer = (heads + 2 * groups) * size, heads * size
    weights = model.hidden * (inner + outer)
    biases = inner * model.qkv_bias + model.hidden * model.out_bias
    gains = {"none": 0, "head": 2 * size, "full": (heads + groups) * size}[model.qk_norm]
    return weights + biases + gains


def mlp_parameters(model: Model) -> int:
    """Count the products of one block's MLP: two, or three when it is gated.

    Source: Shazeer, *GLU variants*, arXiv 2002.05202.
    """
    columns = 2 if model.gated else 1
    weights = (columns + 1) * model.hidden * model.feedforward
    return weights + (columns * model.feedforward + model.hidden) * model.mlp_bias


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
