"""Optional fields of a model file in words."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from calculon.render.texts import counted, percent

_ACTIVATIONS = {
    "relu": "ReLU",
    "squared_relu": "squared ReLU",
    "swiglu": "SwiGLU",
    "geglu": "GeGLU",
}
_NORMS = {
    "layernorm_no_bias": "LayerNorm without bias",
    "layernorm_plain": "LayerNorm without gain and bias",
    "rmsnorm": "RMSNorm",
}
_QK_NORMS = {
    "head": "norm of queries and keys over each head",
    "full": "norm of queries and keys over the full width",
}
_BIASES = {
    "qkv_bias": "QKV",
    "out_bias": "attention output",
    "mlp_bias": "MLP",
    "expert_bias": "experts",
    "router_bias": "router",
    "head_bias": "head",
}

_LINEAR = {
    "gated_delta": "gated delta rule",
    "mamba2": "Mamba-2",
    "lightning": "lightning attention",
}

_PARTS = {
    "attention": "attention alone",
    "mlp": "MLP alone",
    "linear": "one linear layer with its activation per block",
}

_LETTERS = {"M": "linear attention", "*": "attention", "-": "MLP", "E": "experts"}
"""Parts of blocks, by letter."""


def _of_parts(letters: str) -> str:
    """Return the number of blocks per part.

    >>> _of_parts("M-M*-")
    'each block one part: 2 linear attention, 1 attention, 2 MLP'
    """
    counts = (f"{letters.count(one)} {word}" for one, word in _LETTERS.items() if one in letters)
    return f"each block one part: {', '.join(counts)}"


_WORDS: dict[str, Callable[[Any], str]] = {
    "part": _PARTS.__getitem__,
    "kv_heads": lambda heads: counted(heads, "key/value head"),
    "activation": _ACTIVATIONS.__getitem__,
    "norm": _NORMS.__getitem__,
    "norms": lambda norms: f"{counted(norms, 'norm')} per block",
    "kv_lora_rank": lambda width: f"latent attention: keys and values from {width:,}",
    "q_lora_rank": lambda width: f"queries from {width:,}",
    "qk_nope_head_dim": lambda width: f"{width:,} of a head without rotary positions",
    "qk_rope_head_dim": lambda width: f"{width:,} with them",
    "v_head_dim": lambda width: f"value heads of {width:,}",
    "qk_norm": _QK_NORMS.__getitem__,
    "parallel_attention": lambda _: "attention and MLP in parallel",
    "dropout": lambda _: "no dropout",
    "rotary": lambda share: "rotary positions" + ("" if share == 1 else f" ({percent(share)})"),
    "causal": lambda _: "attention in both directions",
    "sliding_window": lambda tokens: f"window of {tokens:,} tokens",
    "full_attention_every": lambda blocks: f"full attention in 1 of {blocks:,} blocks",
    "chunked_window": lambda _: "windows restart",
    "attention_sinks": lambda _: "attention sinks",
    "attention_gate": lambda _: "attention gate",
    "linear_attention": _LINEAR.__getitem__,
    "layer_pattern": _of_parts,
    "linear_key_heads": lambda heads: counted(heads, "key head"),
    "linear_value_heads": lambda heads: counted(heads, "value head"),
    "linear_key_dim": lambda width: f"key heads of {width:,}",
    "linear_value_dim": lambda width: f"value heads of {width:,}",
    "linear_conv": lambda tokens: f"convolution over {counted(tokens, 'token')}",
    "ssm_heads": lambda heads: counted(heads, "state-space head"),
    "ssm_head_dim": lambda width: f"state-space heads of {width:,}",
    "ssm_state": lambda size: f"states of {size:,}",
    "ssm_groups": lambda groups: counted(groups, "state-space group"),
    "ssm_conv": lambda tokens: f"convolution over {counted(tokens, 'token')}",
    "ssm_chunk": lambda tokens: f"chunks of {counted(tokens, 'token')}",
    "num_experts": lambda experts: counted(experts, "expert"),
    "experts_per_token": lambda experts: f"{experts:,} per token",
    "expert_feedforward": lambda width: f"experts of {width:,}",
    "shared_feedforward": lambda width: f"shared experts of {width:,}",
    "shared_gate": lambda _: "shared-expert gate",
    "moe_latent": lambda width: f"routed experts in a latent of {width:,}",
    "first_k_dense": lambda blocks: f"{counted(blocks, 'dense block')} first",
    "moe_layer_freq": lambda blocks: f"experts in 1 of {blocks:,} blocks",
    "router_groups": lambda groups: f"{groups:,} groups of experts",
    "router_group_topk": lambda groups: f"{groups:,} of them per token",
    "vocab": lambda tokens: f"vocabulary of {tokens:,}",
    "tied": lambda _: "tied head",
    "positions": lambda rows: f"{rows:,} learned positions",
    "embedding_norm": lambda _: "norm after the embedding",
    "mtp_layers": lambda modules: f"{counted(modules, 'further token')} predicted in training",
}


def details(model: Mapping[str, Any]) -> Iterator[str]:
    """Yield the optional fields that a model states.

    Args:
        model: Fields of a model file; optional ones only if they differ from their defaults.
    """
    yield from (words(model[field]) for field, words in _WORDS.items() if field in model)
    if biases := [words for field, words in _BIASES.items() if field in model]:
        yield f"biases of {', '.join(biases)}"
