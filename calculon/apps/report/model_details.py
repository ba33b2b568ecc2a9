"""The optional fields of a model file in words."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from calculon.apps.report.texts import counted, percent

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
    "head_bias": "head",
}

_PARTS = {
    "attention": "attention alone",
    "mlp": "MLP alone",
    "linear": "one linear layer with its activation per block",
}

_WORDS: dict[str, Callable[[Any], str]] = {
    "part": _PARTS.__getitem__,
    "kv_heads": lambda heads: counted(heads, "key/value head"),
    "activation": _ACTIVATIONS.__getitem__,
    "norm": _NORMS.__getitem__,
    "norms": lambda norms: f"{counted(norms, 'norm')} per block",
    "qk_norm": _QK_NORMS.__getitem__,
    "parallel_attention": lambda _: "attention and MLP in parallel",
    "dropout": lambda _: "no dropout",
    "rotary": lambda share: "rotary positions" + ("" if share == 1 else f" ({percent(share)})"),
    "causal": lambda _: "attention in both directions",
    "sliding_window": lambda tokens: f"window of {tokens:,} tokens",
    "full_attention_every": lambda blocks: f"full attention in 1 of {blocks:,} blocks",
    "vocab": lambda tokens: f"vocabulary of {tokens:,}",
    "tied": lambda _: "tied head",
    "positions": lambda rows: f"{rows:,} learned positions",
    "embedding_norm": lambda _: "norm after the embedding",
}


def details(model: Mapping[str, Any]) -> Iterator[str]:
    """Name the optional fields that a model states.

    Parameters
    ----------
    model : mapping
        The fields of a model file; optional ones only where they differ from their default.
    """
    yield from (words(model[field]) for field, words in _WORDS.items() if field in model)
    if biases := [words for field, words in _BIASES.items() if field in model]:
        yield f"biases of {', '.join(biases)}"
