"""Families with a plain MLP and layer norms: GPT-2 and its successors."""

from calculon.declarations.families.configuration import Configuration, Key
from calculon.declarations.families.family import (
    ALL_BIASES,
    ATTENTION_BIAS,
    PLAIN,
    SHAPE,
    TIED,
    Family,
    Fields,
    Sources,
    dropout,
    head_size,
    inner,
    rotary,
    switch,
)

_POSITIONS = Key("n_positions", also=("max_position_embeddings", "n_ctx"))
_GPT2: Sources = {
    **ALL_BIASES,
    **TIED,
    "hidden": Key("n_embd", also=("hidden_size",)),
    "feedforward": inner("n_inner"),
    "seq_size": _POSITIONS,
    "attn_heads": Key("n_head", also=("num_attention_heads",)),
    "attn_size": head_size,
    "num_blocks": Key("n_layer", also=("num_hidden_layers",)),
    "activation": Key("activation_function", "gelu_new", str, words=PLAIN),
    "dropout": dropout("resid_pdrop", "embd_pdrop", "attn_pdrop", default=0.1),
    "vocab": Key("vocab_size"),
    "positions": _POSITIONS,
}


def _opt_dropout(config: Configuration, _: Fields) -> bool:
    layers, scores = Key("dropout", 0.1, float), Key("attention_dropout", 0.0, float)
    return bool(max(config.read(layers), config.read(scores)) > 0)


_OPT: Sources = {
    **SHAPE,
    **TIED,
    **dict.fromkeys(ALL_BIASES, switch("enable_bias", default=True)),
    "feedforward": Key("ffn_dim"),
    "kv_heads": 0,
    "activation": Key("activation_function", "relu", str, words=PLAIN),
    "dropout": _opt_dropout,
    "positions": lambda config, _: config.read(Key("max_position_embeddings")) + 2,  # two unused
}
_BLOOM: Sources = {
    **ALL_BIASES,
    **TIED,
    "hidden": Key("hidden_size", also=("n_embed",)),
    "feedforward": lambda _, fields: 4 * fields["hidden"],
    "seq_size": Key("seq_length"),
    "attn_heads": Key("n_head", also=("num_attention_heads",)),
    "attn_size": head_size,
    "num_blocks": Key("n_layer", also=("num_hidden_layers",)),
    "dropout": dropout("hidden_dropout", "attention_dropout"),
    "vocab": Key("vocab_size"),
    "embedding_norm": True,
}

_GROUPED = switch("new_decoder_architecture", default=False)


def _falcon_groups(config: Configuration, _: Fields) -> int:
    if not config.read(_GROUPED) and config.read(switch("multi_query", default=True)):
        return 1
    return int(config.read(Key("num_kv_heads", 0, also=("n_head_kv",))))


def _falcon_norms(config: Configuration, fields: Fields) -> int:
    norms = config.read(Key("num_ln_in_parallel_attn", 2 if config.read(_GROUPED) else 1))
    return norms if fields["parallel_attention"] else 2


_FALCON: Sources = {
    **SHAPE,
    **TIED,
    **dict.fromkeys(ALL_BIASES, switch("bias", default=False)),
    "feedforward": inner("ffn_hidden_size"),
    "seq_size": Key("max_position_embeddings", 2048),
    "attn_heads": Key("num_attention_heads", also=("n_head",)),
    "num_blocks": Key("num_hidden_layers", also=("n_layer",)),
    "kv_heads": _falcon_groups,
    "activation": Key("activation", "gelu", str, words=PLAIN),
    "norms": _falcon_norms,
    "parallel_attention": switch("parallel_attn", default=True),
    "dropout": dropout("hidden_dropout", "attention_dropout"),
    "rotary": lambda config, _: 0.0 if config.read(switch("alibi", default=False)) else 1.0,
}

_UNBIASED = Key("no_bias", kind=bool)
_GROUPS = {"multihead_attention": 0, "multiquery_attention": 1}


def _mpt_positions(config: Configuration, _: Fields) -> int:
    learned = config.read(switch("learned_pos_emb", default=True))
    alibi = config.read(Key("attn_config.alibi", kind=bool))
    return int(config.read(Key("max_seq_len"))) if learned and not alibi else 0


_MPT: Sources = {
    **TIED,
    **dict.fromkeys(ALL_BIASES, lambda config, _: not config.read(_UNBIASED)),
    "hidden": Key("d_model", also=("hidden_size",)),
    "feedforward": lambda config, fields: config.read(Key("expansion_ratio")) * fields["hidden"],
    "seq_size": Key("max_seq_len"),
    "attn_heads": Key("n_heads", also=("num_attention_heads",)),
    "attn_size": head_size,
    "num_blocks": Key("n_layers", also=("num_hidden_layers",)),
    "kv_heads": Key("attn_config.attn_type", "multihead_attention", str, words=_GROUPS),
    "norm": lambda config, _: "layernorm_no_bias" if config.read(_UNBIASED) else "layernorm",
    "dropout": dropout("resid_pdrop", "emb_pdrop", "attn_config.attn_pdrop"),
    "vocab": Key("vocab_size"),
    "positions": _mpt_positions,
}
_PHI: Sources = {
    **SHAPE,
    **ALL_BIASES,
    "head_bias": True,
    "activation": Key("hidden_act", "gelu_new", str, words=PLAIN),
    "norms": 1,
    "parallel_attention": True,
    "dropout": dropout("resid_pdrop", "embd_pdrop", "attention_dropout"),
    "rotary": rotary(0.5),
}
_NEOX: Sources = {
    **SHAPE,
    **ALL_BIASES,
    **dict.fromkeys(("qkv_bias", "out_bias"), switch("attention_bias", default=True)),
    "activation": Key("hidden_act", "gelu", str, words=PLAIN),
    "parallel_attention": switch("use_parallel_residual", default=True),
    "dropout": dropout("hidden_dropout", "attention_dropout"),
    "rotary": rotary(0.25),
}
_NEMOTRON: Sources = {
    **SHAPE,
    **ATTENTION_BIAS,
    "mlp_bias": switch("mlp_bias", default=False),
    "activation": Key("hidden_act", "relu2", str, words=PLAIN),
    "rotary": rotary(0.5),
}

FAMILIES = {
    "gpt2": Family(fields=_GPT2),
    "opt": Family(
        fields=_OPT,
        only={
            "do_layer_norm_before": (True,),
            "_remove_final_layer_norm": (False,),
            "layer_norm_elementwise_affine": (True,),
        },
        equal={"word_embed_proj_dim": "hidden"},
    ),
    "bloom": Family(fields=_BLOOM),
    "falcon": Family(fields=_FALCON),
    "mpt": Family(
        fields=_MPT,
        only={
            "attn_config.qk_ln": (False,),
            "attn_config.prefix_lm": (False,),
            "ffn_config.ffn_type": ("mptmlp",),
            "norm_type": ("low_precision_layernorm", "layernorm"),
        },
    ),
    "phi": Family(fields=_PHI, only={"qk_layernorm": (False,)}),
    "gpt_neox": Family(fields=_NEOX),
    "nemotron": Family(fields=_NEMOTRON),
}
"""The families, by ``model_type``."""
