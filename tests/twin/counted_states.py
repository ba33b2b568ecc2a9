"""Parameters, products and FLOP of attention without scores, as they are counted of a model."""

from .fields import Model


def inner(model: Model) -> int:
    """Width of what the output product reads."""
    return {
        "gated_delta": model.linear_value_heads * model.linear_value_dim,
        "mamba2": model.ssm_heads * model.ssm_head_dim,
        "lightning": model.attn_heads * model.attn_size,
    }[model.linear_attention]


def linear_parameters(model: Model) -> int:
    """Count the parameters of attention without scores."""
    h, width = model.hidden, inner(model)
    if model.linear_attention == "gated_delta":
        keys = model.linear_key_heads * model.linear_key_dim
        heads = model.linear_value_heads
        own = model.linear_conv * (2 * keys + width) + 2 * heads + model.linear_value_dim
        return h * (2 * keys + 2 * width + 2 * heads) + own + width * h
    if model.linear_attention == "mamba2":
        shared, heads = 2 * model.ssm_groups * model.ssm_state, model.ssm_heads
        own = (model.ssm_conv + 1) * (width + shared) + 3 * heads + width
        return h * (2 * width + shared + heads) + own + width * h
    return 5 * h * width + width


def linear_products(model: Model) -> float:
    """Count the multiplications of a token with matrices."""
    h, width = model.hidden, inner(model)
    if model.linear_attention == "gated_delta":
        keys = model.linear_key_heads * model.linear_key_dim
        return h * (2 * keys + 3 * width + 2 * model.linear_value_heads)
    if model.linear_attention == "mamba2":
        return h * (3 * width + 2 * model.ssm_groups * model.ssm_state + model.ssm_heads)
    return 5 * h * width


def counted_flops(model: Model) -> float:
    """FLOP of a token that model FLOP have of states, by the convention of each."""
    width = inner(model)
    if model.linear_attention == "gated_delta":
        keys = model.linear_key_heads * model.linear_key_dim
        taps = 2 * model.linear_conv * (2 * keys + width)
        return 8 * width * model.linear_key_dim + taps
    if model.linear_attention == "mamba2":
        return 7 * width * model.ssm_state
    return 4 * width * model.attn_size
