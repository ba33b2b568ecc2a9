"""Families with mixtures of experts in place of the MLP, in every block or in some of them."""

from typing import Any

from calculon.declarations.families.configuration import Configuration, Key
from calculon.declarations.families.family import (
    ATTENTION_BIAS,
    GATED,
    PREDICTED,
    REGULAR,
    SHAPE,
    TIED,
    Family,
    Fields,
    Rule,
    Sources,
    dropout,
    head_size,
    one_in,
    rotary,
    switch,
)
from calculon.declarations.families.gated import first_blocks, used_window
from calculon.declarations.fields import shown

_EXPERTS = Key("num_experts", also=("num_local_experts",))
_EACH = Key("num_experts_per_tok")
_WIDTH = Key("moe_intermediate_size")

PATTERN = "the first blocks, and fewer than all"
"""Dense blocks that a model can express in addition to a period, for a message."""


def _step(name: str) -> Rule:
    """Return a rule for n if the last of every n blocks has experts."""

    def rule(config: Configuration, _: Fields) -> int:
        step: int = config.read(Key(name, 1, null=1))
        if not step:
            config.refuse(name, "at least 1: the last of every n blocks has experts", "0")
        return step

    return rule


_SPARSE, _INTERLEAVED = _step("decoder_sparse_step"), _step("interleave_moe_layer_step")


def _first_dense(config: Configuration, fields: Fields) -> int:
    """Return the number of leading dense blocks: the listed ones, rounded down to whole periods."""
    listed = config.get("mlp_only_layers") or []
    leading = isinstance(listed, list) and len(listed) < fields["num_blocks"]
    if not leading or any(block != i for i, block in enumerate(listed)):
        config.refuse("mlp_only_layers", f"none, or {PATTERN}", shown(listed))
    step: int = _SPARSE(config, fields)
    return len(listed) // step * step


def all_shared(config: Configuration, _: Fields) -> int:
    """Return the total width of all shared experts."""
    experts: int = config.read(Key("n_shared_experts", null=0))
    return experts * int(config.read(_WIDTH))


_BASE: Sources = {
    **SHAPE,
    "activation": Key("hidden_act", "silu", str, words=GATED),
    "norm": "rmsnorm",
    "rotary": 1.0,
}
_MIXTRAL: Sources = {
    **_BASE,
    "num_experts": _EXPERTS,
    "experts_per_token": _EACH,
}
_PHIMOE: Sources = {
    **_MIXTRAL,
    **ATTENTION_BIAS,
    "norm": "layernorm",
    "head_bias": switch("lm_head_bias", default=False),
    "dropout": dropout("hidden_dropout", "attention_dropout"),
}
QWEN: Sources = {
    **_BASE,
    "num_experts": _EXPERTS,
    "experts_per_token": _EACH,
    "expert_feedforward": _WIDTH,
    "first_k_dense": _first_dense,
    "moe_layer_freq": _SPARSE,
}
_GPT_OSS: Sources = {
    **_MIXTRAL,
    **dict.fromkeys(("qkv_bias", "out_bias"), switch("attention_bias", default=True)),
    "attn_size": Key("head_dim", 64),
    "attention_sinks": True,
    "router_bias": True,
    "expert_bias": True,
}


def _window(config: Configuration, fields: Fields) -> int:
    """Return the window; 0 for one as long as the sequence."""
    tokens: int = config.read(Key("sliding_window", 0, null=0))
    return tokens if tokens < fields["seq_size"] else 0


def _alternates(_: Configuration, __: Fields) -> int:
    return 2


def _minimax_attention(config: Configuration, _: Fields) -> str:
    """Return the norm of queries and keys; blocks with linear attention are refused."""
    kinds = config.get("attn_type_list")
    if kinds is not None and (not isinstance(kinds, list) or any(kind != 1 for kind in kinds)):
        wanted = "1 for each block: attention with softmax"
        config.refuse("attn_type_list", wanted, shown(kinds))
    return "full" if config.read(switch("use_qk_norm", default=True)) else "none"


def _minimax_modules(config: Configuration, _: Fields) -> int:
    """Return the modules that predict further tokens, of one block each."""
    if not config.read(switch("use_mtp", default=True)):
        return 0
    modules: int = config.read(Key("num_mtp_modules", 0, null=0))
    layers: int = config.read(Key("mtp_transformer_layers", 1))
    if modules and layers != 1:
        config.refuse("mtp_transformer_layers", "1: a block for each module", str(layers))
    return modules


def _minimax_rotary(config: Configuration, fields: Fields) -> float:
    return float(config.read(Key("rotary_dim", fields["attn_size"]))) / float(fields["attn_size"])


MINIMAX_TEXT: Sources = {**_MIXTRAL, "attn_size": Key("head_dim"), "rotary": _minimax_rotary}
_MINIMAX: Sources = {
    **MINIMAX_TEXT,
    "qk_norm": _minimax_attention,
    "router_bias": switch("use_routing_bias", default=True),
    "mtp_layers": _minimax_modules,
}


def _glm_norm(config: Configuration, _: Fields) -> str:
    return "head" if config.read(switch("use_qk_norm", default=False)) else "none"


_GLM: Sources = {
    **_BASE,
    "qkv_bias": switch("attention_bias", default=False),
    "qk_norm": _glm_norm,
    "attn_size": Key("head_dim"),
    "rotary": rotary(0.5),
    "num_experts": Key("n_routed_experts"),
    "experts_per_token": _EACH,
    "expert_feedforward": _WIDTH,
    "shared_feedforward": all_shared,
    "first_k_dense": Key("first_k_dense_replace", 1),
    "router_bias": True,
    **PREDICTED,
}


def _interleaved(config: Configuration, fields: Fields) -> int:
    """Return n if the last of every n blocks has experts: from the list of these blocks, or from the step."""
    listed = config.get("moe_layers")
    if listed is None:
        return int(_INTERLEAVED(config, fields))
    first = listed[0] if isinstance(listed, list) and listed else -1
    step = first + 1 if type(first) is int else 0
    blocks = range(first, fields["num_blocks"], step) if step > 0 else range(0)
    same = bool(blocks) and len(listed) == len(blocks)
    if not same or any(one != block for one, block in zip(listed, blocks, strict=True)):
        config.refuse("moe_layers", "the last of every n blocks", shown(listed))
    return step


def _without_rotary(config: Configuration, fields: Fields) -> int:
    """Return n if one in n blocks has no rotary positions; such blocks attend to the whole sequence."""
    turned = config.get("no_rope_layers")
    if not turned:
        return int(config.read(Key("no_rope_layer_interval", 4)))
    listed = isinstance(turned, list) and len(turned) == fields["num_blocks"]
    every = one_in([not one for one in turned]) if listed else None
    if every is None:
        config.refuse("no_rope_layers", REGULAR, shown(turned))
    return every


_LLAMA4: Sources = {
    **_BASE,
    **ATTENTION_BIAS,
    "feedforward": Key("intermediate_size_mlp"),
    "attn_size": Key("head_dim", 128),
    "num_experts": Key("num_local_experts"),
    "experts_per_token": _EACH,
    "expert_feedforward": Key("intermediate_size"),
    "shared_feedforward": Key("intermediate_size"),
    "moe_layer_freq": _interleaved,
}
_DBRX: Sources = {
    "hidden": Key("d_model"),
    "feedforward": Key("ffn_config.ffn_hidden_size"),
    "seq_size": Key("max_seq_len"),
    "attn_heads": Key("n_heads"),
    "attn_size": head_size,
    "num_blocks": Key("n_layers"),
    "kv_heads": Key("attn_config.kv_n_heads"),
    "activation": "swiglu",
    "norm": "layernorm_no_bias",
    "dropout": dropout("resid_pdrop", "emb_pdrop", "attn_config.attn_pdrop"),
    "rotary": 1.0,
    "num_experts": Key("ffn_config.moe_num_experts"),
    "experts_per_token": Key("ffn_config.moe_top_k"),
    "vocab": Key("vocab_size"),
    "tied": switch("tie_word_embeddings", default=False),
}
_GROK: Sources = {
    **_MIXTRAL,
    **TIED,
    "activation": "geglu",
    "norms": 4,
    "vocab": Key("vocab_size"),
}
READS = (
    "num_experts",
    "num_local_experts",
    "n_routed_experts",
    "moe_intermediate_size",
    "ffn_config.moe_num_experts",
)
RELEASED = (*READS, "quantization_config")
"""Keys read for models that were trained in 16 bits but released with quantized weights."""
_SILU: dict[str, tuple[Any, ...]] = {"ffn_config.ffn_act_fn.name": ("silu",)}

FAMILIES = {
    "mixtral": Family(reads=READS, fields=_MIXTRAL, window=_window),
    "phimoe": Family(reads=READS, fields=_PHIMOE),
    "granitemoe": Family(reads=READS, fields=_MIXTRAL | TIED | ATTENTION_BIAS),
    "olmoe": Family(
        reads=READS,
        fields=_BASE
        | ATTENTION_BIAS
        | {"num_experts": _EXPERTS, "experts_per_token": _EACH, "qk_norm": "full"},
    ),
    "dbrx": Family(reads=READS, fields=_DBRX, only=_SILU),
    "grok-1": Family(reads=READS, fields=_GROK),
    "qwen2_moe": Family(
        reads=READS,
        fields=QWEN
        | {
            "qkv_bias": switch("qkv_bias", default=True),
            "shared_feedforward": Key("shared_expert_intermediate_size"),
            "shared_gate": True,
        },
        window=used_window,
        full_every=first_blocks,
    ),
    "qwen3_moe": Family(
        reads=READS,
        fields=QWEN | ATTENTION_BIAS | {"attn_size": Key("head_dim", 128), "qk_norm": "head"},
        window=used_window,
        full_every=first_blocks,
    ),
    "gpt_oss": Family(
        reads=RELEASED,
        fields=_GPT_OSS,
        window=Key("sliding_window", 128, null=0),
        full_every=_alternates,
    ),
    "minimax_m2": Family(reads=RELEASED, fields=_MINIMAX, window=_window),
    "glm4_moe": Family(reads=READS, fields=_GLM),
    **{
        kind: Family(
            reads=(*READS, "vision_config"),
            fields=_LLAMA4,
            window=Key("attention_chunk_size", 8192, null=0),
            chunked=True,
            full_every=_without_rotary,
            inside=inside,
        )
        for kind, inside in {"llama4": "text_config", "llama4_text": ""}.items()
    },
}
"""The families, by ``model_type``."""
