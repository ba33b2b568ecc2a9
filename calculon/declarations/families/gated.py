"""Families with a gated MLP and norms without bias: Llama and its successors."""

from calculon.declarations.families.configuration import Configuration, Key
from calculon.declarations.families.family import (
    ATTENTION_BIAS,
    GATED,
    REGULAR,
    SHAPE,
    TIED,
    Family,
    Fields,
    Rule,
    Sources,
    dropout,
    rotary,
    switch,
)

_WINDOW = Key("sliding_window", 4096, null=0)
_WITHOUT_BIAS = {"attention_bias": (False,), "mlp_bias": (False,)}


def used_window(config: Configuration, _: Fields) -> int:
    """Return the stated window if it is in use, else 0."""
    return config.read(_WINDOW) if config.read(switch("use_sliding_window", default=False)) else 0


def first_blocks(config: Configuration, fields: Fields) -> int:
    """Return 1 if the first blocks have full attention (only accepted for all blocks), else 0."""
    first = config.read(Key("max_window_layers", 28))
    if 0 < first < fields["num_blocks"]:
        config.refuse("max_window_layers", REGULAR, str(first))
    return int(first > 0)


def _one_in(default: int) -> Rule:
    """Return a rule for the period of full attention (one of every n blocks)."""
    key = Key("sliding_window_pattern", default, also=("_sliding_window_pattern",))
    return lambda config, _: config.read(key)


def _value_size(config: Configuration, fields: Fields) -> int:
    """Return the width of a value head: as stated, or the hidden width divided by the number of heads."""
    stated: int = config.read(Key("v_head_dim", 0))
    return stated or fields["hidden"] // fields["attn_heads"]


_LLAMA: Sources = {
    **SHAPE,
    **ATTENTION_BIAS,
    "activation": Key("hidden_act", "silu", str, words=GATED),
    "norm": "rmsnorm",
    "rotary": 1.0,
}
_STATED_GROUPS: Sources = {"kv_heads": Key("num_key_value_heads", null=0)}
_WITHOUT: Sources = {"qkv_bias": False, "out_bias": False}
_GEMMA: Sources = {
    **_LLAMA,
    **TIED,
    "attn_size": Key("head_dim", 256),
    "kv_heads": Key("num_key_value_heads"),
    "activation": Key(
        "hidden_activation", "gelu_pytorch_tanh", str, also=("hidden_act",), words=GATED
    ),
}
_GEMMA3: Sources = _GEMMA | {
    "norms": 4,
    "qk_norm": "head",
    "attn_heads": Key("num_attention_heads", 8),
    "kv_heads": Key("num_key_value_heads", 4),
    "seq_size": Key("max_position_embeddings", 131_072),
    "vocab": Key("vocab_size", 262_208),
}
_PHI3: Sources = {
    **_LLAMA,
    **_WITHOUT,
    "rotary": rotary(1.0),
    "dropout": dropout("resid_pdrop", "embd_pdrop", "attention_dropout"),
}
_QWEN3: Sources = _LLAMA | _STATED_GROUPS | {"attn_size": Key("head_dim", 128), "qk_norm": "head"}
_MINICPM3: Sources = {
    **{name: source for name, source in _LLAMA.items() if name not in ("kv_heads", "rotary")},
    **TIED,
    **_WITHOUT,
    "q_lora_rank": Key("q_lora_rank", 768, null=0),
    "kv_lora_rank": Key("kv_lora_rank", 256),
    "qk_nope_head_dim": Key("qk_nope_head_dim", 64),
    "qk_rope_head_dim": Key("qk_rope_head_dim", 32),
    "v_head_dim": _value_size,
    "attn_size": lambda _, fields: fields["qk_nope_head_dim"] + fields["qk_rope_head_dim"],
}

FAMILIES = {
    "llama": Family(fields=_LLAMA | {"mlp_bias": switch("mlp_bias", default=False)}),
    "mistral": Family(
        fields=_LLAMA | _WITHOUT | _STATED_GROUPS, window=_WINDOW, only=_WITHOUT_BIAS
    ),
    "minicpm3": Family(
        fields=_MINICPM3,
        only=_WITHOUT_BIAS | {"mlp_bias": (False,)},
        equal={"num_key_value_heads": "attn_heads"},
    ),
    "phi3": Family(fields=_PHI3, window=Key("sliding_window", 0), only=_WITHOUT_BIAS),
    "qwen2": Family(
        fields=_LLAMA | _STATED_GROUPS | {"qkv_bias": True, "out_bias": False},
        window=used_window,
        full_every=first_blocks,
    ),
    "qwen3": Family(fields=_QWEN3, window=used_window, full_every=first_blocks),
    "olmo": Family(fields=_LLAMA | {"norm": "layernorm_plain"}),
    "olmo2": Family(fields=_LLAMA | {"qk_norm": "full"}),
    "gemma": Family(fields=_GEMMA),
    "gemma2": Family(fields=_GEMMA | {"norms": 4}, window=_WINDOW, full_every=_one_in(2)),
    "gemma3": Family(
        fields=_GEMMA3,
        window=_WINDOW,
        full_every=_one_in(6),
        inside="text_config",
        reads=("vision_config",),
    ),
    "gemma3_text": Family(fields=_GEMMA3, window=_WINDOW, full_every=_one_in(6)),
}
"""Families by ``model_type``."""
