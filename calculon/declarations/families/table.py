"""Model families by ``model_type``, each as its differences from a base family.

Source: configuration and modeling classes of Hugging Face Transformers (``src/transformers/models``), and for families
outside of it the configuration classes in the model's repository.
"""

from collections.abc import Mapping
from dataclasses import replace

from calculon.declarations.families.configuration import Key
from calculon.declarations.families.family import Family, Source
from calculon.declarations.families.rules import (
    SPARSE,
    WINDOW,
    corrected,
    dropout,
    either,
    first_blocks,
    first_dense,
    granite_feedforward,
    granite_rotary,
    head_size,
    inner,
    interleaved,
    latent_size,
    linear_period,
    mamba_blocks,
    minimax_modules,
    minimax_norm,
    nemotron_parts,
    period,
    rotary,
    router_groups,
    same_everywhere,
    shared,
    shorter_window,
    step,
    switch,
    used_window,
    value_size,
    with_experts,
    without_rotary,
)

_GELUS = ("gelu", "gelu_new", "gelu_fast", "gelu_python", "gelu_pytorch_tanh")
_GATED = {"silu": "swiglu", "swish": "swiglu", **dict.fromkeys(_GELUS, "geglu")}
_PLAIN = {"relu": "relu", "relu2": "squared_relu", **dict.fromkeys(_GELUS, "gelu")}


def _activation(words: dict[str, str], default: str) -> Key:
    names = ("hidden_activation", "hidden_act", "activation_function", "activation")
    return Key(names[0], default, str, (*names[1:], "mlp_hidden_act"), words)


_SEQUENCE = Key(
    "max_position_embeddings", also=("n_positions", "seq_length", "max_seq_len", "n_ctx")
)
_GROUPS = Key("num_key_value_heads", null=0)
_TIED = {"tied": switch("tie_word_embeddings", default=True)}
_PREDICTED = {"mtp_layers": Key("num_nextn_predict_layers", 0, null=0)}
_BIAS, _NO_MLP_BIAS = {"attention_bias": (False,)}, {"mlp_bias": (False,)}
_UNBIASED = _BIAS | _NO_MLP_BIAS


def _biases(key: Key | bool, *fields: str) -> dict[str, Key | bool]:
    return dict.fromkeys(fields or ("qkv_bias", "out_bias", "mlp_bias"), key)


_ATTENTION = ("qkv_bias", "out_bias")
_NO_BIAS = _biases(False, *_ATTENTION)
_ATTENTION_BIAS = _biases(switch("attention_bias", default=False), *_ATTENTION)

# -- base families ----------------------------------------------------------------------------------------------------

_BASE = Family(
    fields={
        "hidden": Key("hidden_size", also=("n_embd", "d_model", "n_embed")),
        "feedforward": Key("intermediate_size", also=("ffn_dim",)),
        "seq_size": _SEQUENCE,
        "attn_heads": Key("num_attention_heads", also=("n_head", "n_heads")),
        "attn_size": head_size,
        "num_blocks": Key("num_hidden_layers", also=("n_layer", "n_layers", "num_layers")),
        "kv_heads": Key("num_key_value_heads", 0),
        "dropout": dropout(),
        "vocab": Key("vocab_size"),
        "tied": switch("tie_word_embeddings", default=False),
    }
)
_GPT = _BASE.but(_biases(True), activation=_activation(_PLAIN, "gelu"))
"""An MLP of two matrices, layer norms, and biases: GPT-2 and its successors."""

_LLAMA = _BASE.but(
    _ATTENTION_BIAS, activation=_activation(_GATED, "silu"), norm="rmsnorm", rotary=rotary(1.0)
)
"""A gated MLP, RMS norms and rotary positions: Llama and its successors."""

_GEMMA = _LLAMA.but(
    _TIED,
    attn_size=Key("head_dim", 256),
    kv_heads=_GROUPS,
    activation=_activation(_GATED, "gelu_pytorch_tanh"),
)
_QWEN2 = _LLAMA.but(kv_heads=_GROUPS, qkv_bias=True, out_bias=False).with_window(
    used_window, first_blocks
)
_QWEN3 = _LLAMA.but(kv_heads=_GROUPS, attn_size=Key("head_dim", 128), qk_norm="head").with_window(
    used_window, first_blocks
)

_WIDTH = Key("moe_intermediate_size")
_MIXTRAL = _LLAMA.but(
    _NO_BIAS,
    num_experts=Key("num_experts", also=("num_local_experts", "n_routed_experts")),
    experts_per_token=Key("num_experts_per_tok"),
)
"""Experts in every block, of the width of the MLP."""

_QWEN_MOE = _MIXTRAL.but(
    expert_feedforward=_WIDTH, first_k_dense=first_dense, moe_layer_freq=SPARSE
)
_LEADING = _MIXTRAL.but(
    router_groups(),
    expert_feedforward=_WIDTH,
    shared_feedforward=shared(Key("n_shared_experts", null=0), _WIDTH),
    first_k_dense=Key("first_k_dense_replace", 1),
    router_bias=True,
)
"""Experts after leading dense blocks, and shared experts."""

_EVERY_HEAD = {"num_key_value_heads": "attn_heads"}
_LATENT: Mapping[str, Source] = {
    "kv_heads": 0,
    "rotary": 0.0,
    "q_lora_rank": Key("q_lora_rank", 1536, null=0),
    "kv_lora_rank": Key("kv_lora_rank", 512),
    "qk_nope_head_dim": Key("qk_nope_head_dim", 128),
    "qk_rope_head_dim": Key("qk_rope_head_dim", 64),
    "v_head_dim": Key("v_head_dim", 128),
    "attn_size": latent_size,
}
_DEEPSEEK_V2 = replace(
    _LEADING.but(
        _LATENT,
        router_groups(methods=("group_limited_greedy",), usual="greedy"),
        first_k_dense=Key("first_k_dense_replace"),
        router_bias=False,
    ),
    only=_UNBIASED | {"moe_layer_freq": (1,)},
    equal=_EVERY_HEAD,
)
_DEEPSEEK_V3 = _DEEPSEEK_V2.but(
    _PREDICTED,
    router_groups(8, 4, methods=("group_limited_greedy", "noaux_tc"), usual="noaux_tc"),
    router_bias=corrected,
)

_DELTA: Mapping[str, Source] = {
    "attn_size": Key("head_dim", 256),
    "qk_norm": "head",
    "rotary": rotary(0.25),
    "attention_gate": switch("attn_output_gate", default=True),
    "linear_attention": "gated_delta",
    "linear_key_heads": Key("linear_num_key_heads", 16),
    "linear_value_heads": Key("linear_num_value_heads", 32),
    "linear_key_dim": Key("linear_key_head_dim", 128),
    "linear_value_dim": Key("linear_value_head_dim", 128),
    "linear_conv": Key("linear_conv_kernel_dim", 4),
}
_PREDICTED_BY_QWEN = {"mtp_layers": Key("mtp_num_hidden_layers", 0, null=0)}
_SHARED_GATE: Mapping[str, Source] = {
    "shared_feedforward": Key("shared_expert_intermediate_size"),
    "shared_gate": True,
}
_QWEN_NEXT = _QWEN_MOE.but(_ATTENTION_BIAS, _DELTA, _SHARED_GATE).by_blocks(linear_period)
_MINIMAX = _MIXTRAL.but(attn_size=Key("head_dim"))
_LIGHTNING = (
    _MINIMAX.but(linear_attention="lightning")
    .by_blocks(linear_period)
    .only_if({"shared_intermediate_size": (0, [0])})
)
_STATES: Mapping[str, Source] = {
    "linear_attention": "mamba2",
    "ssm_heads": Key("mamba_n_heads", 128),
    "ssm_head_dim": Key("mamba_d_head", 64),
    "ssm_state": Key("mamba_d_state", 256),
    "ssm_groups": Key("mamba_n_groups", 1),
    "ssm_conv": Key("mamba_d_conv", 4),
    "ssm_chunk": Key("mamba_chunk_size", 256),
}
_STATE_BIASES = {
    "use_bias": (False,),
    "mamba_proj_bias": (False,),
    "use_conv_bias": (True,),
    "mamba_conv_bias": (True,),
}

# -- families ---------------------------------------------------------------------------------------------------------

_GPT2 = _GPT.but(
    _TIED,
    feedforward=inner("n_inner"),
    kv_heads=0,
    dropout=dropout("resid_pdrop", "embd_pdrop", "attn_pdrop", default=0.1),
    positions=_SEQUENCE,
)
_GPT_J = _GPT2.but(
    _NO_BIAS,
    tied=switch("tie_word_embeddings", default=False),
    dropout=dropout(),
    positions=0,
    head_bias=True,
    norms=1,
    parallel_attention=True,
    rotary=rotary(1.0),
)
_COHERE = _LLAMA.but(_TIED, norm="layernorm_no_bias", norms=1, parallel_attention=True).only_if(
    {"use_qk_norm": (False,)}
)
_GLM4 = _LLAMA.but(attn_size=Key("head_dim", 128), out_bias=False, rotary=rotary(0.5))
_ERNIE: Mapping[str, Source] = {
    **_TIED,
    **_biases(switch("use_bias", default=False)),
}
_LLAMA4 = replace(
    _MIXTRAL.but(
        _ATTENTION_BIAS,
        feedforward=Key("intermediate_size_mlp"),
        attn_size=Key("head_dim", 128),
        expert_feedforward=Key("intermediate_size"),
        shared_feedforward=Key("intermediate_size"),
        moe_layer_freq=interleaved,
    ).with_window(Key("attention_chunk_size", 8192, null=0), without_rotary),
    chunked=True,
)
_BAILING = _LEADING.but(
    _biases(switch("use_qkv_bias", default=False), "qkv_bias"),
    out_bias=switch("use_bias", default=False),
    shared_feedforward=shared(Key("num_shared_experts", null=0), _WIDTH),
    router_bias=switch("moe_router_enable_expert_bias", default=False),
    first_k_dense=Key("first_k_dense_replace", 0),
)
_NEW_FALCON = switch("new_decoder_architecture", default=False)
_MPT_UNBIASED = Key("no_bias", kind=bool)

FAMILIES = {
    # -- an MLP of two matrices
    "gpt2": _GPT2,
    "gpt_bigcode": _GPT2.but(kv_heads=either(switch("multi_query", default=True), 1, 0)),
    **dict.fromkeys(("gptj", "codegen"), _GPT_J),
    "opt": replace(
        _GPT.but(
            _TIED,
            _biases(switch("enable_bias", default=True)),
            kv_heads=0,
            activation=_activation(_PLAIN, "relu"),
            dropout=lambda config, _: (
                config.read(Key("dropout", 0.1, float))
                + config.read(Key("attention_dropout", 0.0, float))
                > 0
            ),
            positions=lambda config, _: config.read(_SEQUENCE) + 2,  # two unused
        ),
        only={
            "do_layer_norm_before": (True,),
            "_remove_final_layer_norm": (False,),
            "layer_norm_elementwise_affine": (True,),
        },
        equal={"word_embed_proj_dim": "hidden"},
    ),
    "bloom": _GPT.but(
        _TIED,
        feedforward=lambda _, fields: 4 * fields["hidden"],
        kv_heads=0,
        activation="gelu",
        embedding_norm=True,
    ),
    "falcon": _GPT.but(
        _TIED,
        _biases(switch("bias", default=False)),
        feedforward=inner("ffn_hidden_size"),
        seq_size=Key("max_position_embeddings", 2048),
        kv_heads=lambda config, _: (
            1
            if not config.read(_NEW_FALCON) and config.read(switch("multi_query", default=True))
            else config.read(Key("num_kv_heads", 0, also=("n_head_kv",)))
        ),
        norms=lambda config, fields: (
            config.read(Key("num_ln_in_parallel_attn", 2 if config.read(_NEW_FALCON) else 1))
            if fields["parallel_attention"]
            else 2
        ),
        parallel_attention=switch("parallel_attn", default=True),
        rotary=either(switch("alibi", default=False), 0.0, 1.0),
    ),
    "mpt": _GPT.but(
        _TIED,
        dict.fromkeys(("qkv_bias", "out_bias", "mlp_bias"), either(_MPT_UNBIASED, False, True)),
        feedforward=lambda config, fields: config.read(Key("expansion_ratio")) * fields["hidden"],
        kv_heads=Key(
            "attn_config.attn_type",
            "multihead_attention",
            str,
            words={"multihead_attention": 0, "multiquery_attention": 1},
        ),
        activation="gelu",
        norm=either(_MPT_UNBIASED, "layernorm_no_bias", "layernorm"),
        positions=lambda config, fields: (
            fields["seq_size"]
            if config.read(switch("learned_pos_emb", default=True))
            and not config.read(Key("attn_config.alibi", kind=bool))
            else 0
        ),
    ).only_if(
        {
            "attn_config.qk_ln": (False,),
            "attn_config.prefix_lm": (False,),
            "ffn_config.ffn_type": ("mptmlp",),
            "norm_type": ("low_precision_layernorm", "layernorm"),
        }
    ),
    "phi": _GPT.but(head_bias=True, norms=1, parallel_attention=True, rotary=rotary(0.5)).only_if(
        {"qk_layernorm": (False,)}
    ),
    "gpt_neox": _GPT.but(
        _biases(switch("attention_bias", default=True), *_ATTENTION),
        parallel_attention=switch("use_parallel_residual", default=True),
        rotary=rotary(0.25),
    ),
    "nemotron": _GPT.but(
        _ATTENTION_BIAS,
        mlp_bias=switch("mlp_bias", default=False),
        activation=_activation(_PLAIN, "relu2"),
        rotary=rotary(0.5),
    ),
    "starcoder2": _GPT.but(
        _TIED, _biases(switch("use_bias", default=True)), rotary=rotary(1.0)
    ).with_window(shorter_window),
    "arcee": _LLAMA.but(
        activation=_activation(_PLAIN, "relu2"), mlp_bias=switch("mlp_bias", default=False)
    ),
    # -- a gated MLP
    **dict.fromkeys(("llama", "granite"), _LLAMA.but(mlp_bias=switch("mlp_bias", default=False))),
    "smollm3": _LLAMA.but(_TIED, mlp_bias=switch("mlp_bias", default=False)),
    "minicpm": _LLAMA.but(_TIED),
    "internlm2": _LLAMA.but(_biases(switch("bias", default=False), *_ATTENTION)),
    "exaone": _LLAMA.but(_NO_BIAS),
    "mistral": _LLAMA.but(_NO_BIAS, kv_heads=_GROUPS).with_window(WINDOW).only_if(_UNBIASED),
    "ministral3": _LLAMA.but(_NO_BIAS, kv_heads=_GROUPS)
    .with_window(shorter_window)
    .only_if(_UNBIASED),
    "phi3": _LLAMA.but(_NO_BIAS).with_window(Key("sliding_window", 0)).only_if(_UNBIASED),
    **dict.fromkeys(("qwen2", "qwen2_vl", "qwen2_5_vl"), _QWEN2),
    **dict.fromkeys(("qwen3", "qwen3_vl"), _QWEN3),
    "seed_oss": _LLAMA.but(
        attn_size=Key("head_dim", 128),
        qkv_bias=switch("attention_bias", default=True),
        out_bias=switch("attention_out_bias", default=False),
        mlp_bias=switch("mlp_bias", default=False),
    ),
    "hunyuan_v1_dense": _LLAMA.but(qk_norm="head"),
    "exaone4": _LLAMA.but(_NO_BIAS, qk_norm="head").with_window(WINDOW, period(4)),
    "ernie4_5": _LLAMA.but(_ERNIE, attn_size=Key("head_dim", 128)),
    "olmo": _LLAMA.but(norm="layernorm_plain"),
    "olmo2": _LLAMA.but(qk_norm="full"),
    "olmo3": _LLAMA.but(qk_norm="full").with_window(WINDOW, period(4)),
    "stablelm": _LLAMA.but(
        _NO_BIAS,
        qkv_bias=switch("use_qkv_bias", default=False),
        norm="layernorm",
        norms=either(switch("use_parallel_residual", default=False), 1, 2),
        parallel_attention=switch("use_parallel_residual", default=False),
        rotary=rotary(0.25),
    ).only_if({"qk_layernorm": (False,)}),
    "cohere": _COHERE,
    "cohere2": _COHERE.with_window(WINDOW, period(4)),
    "glm": _GLM4,
    "glm4": _GLM4.but(norms=4),
    "chatglm": _LLAMA.but(
        _NO_BIAS,
        feedforward=Key("ffn_hidden_size"),
        kv_heads=lambda config, _: (
            config.read(Key("multi_query_group_num", 1))
            if config.read(switch("multi_query_attention", default=False))
            else 0
        ),
        qkv_bias=switch("add_qkv_bias", default=False),
        rotary=0.5,
        vocab=Key("padded_vocab_size"),
    ),
    "minicpm3": replace(
        _LLAMA.but(
            _TIED,
            _NO_BIAS,
            _LATENT,
            q_lora_rank=Key("q_lora_rank", 768, null=0),
            kv_lora_rank=Key("kv_lora_rank", 256),
            qk_nope_head_dim=Key("qk_nope_head_dim", 64),
            qk_rope_head_dim=Key("qk_rope_head_dim", 32),
            v_head_dim=value_size,
        ),
        only=_UNBIASED,
        equal=_EVERY_HEAD,
    ),
    "gemma": _GEMMA,
    "gemma2": _GEMMA.but(norms=4).with_window(WINDOW, period(2)),
    "gemma3": _GEMMA.but(
        norms=4,
        qk_norm="head",
        attn_heads=Key("num_attention_heads", 8),
        kv_heads=Key("num_key_value_heads", 4),
        seq_size=Key("max_position_embeddings", 131_072),
        vocab=Key("vocab_size", 262_208),
    ).with_window(WINDOW, period(6)),
    # -- experts
    "mixtral": _MIXTRAL.with_window(shorter_window),
    "phimoe": _MIXTRAL.but(
        _ATTENTION_BIAS, norm="layernorm", head_bias=switch("lm_head_bias", default=False)
    ),
    "granitemoe": _MIXTRAL.but(_TIED, _ATTENTION_BIAS),
    "olmoe": _MIXTRAL.but(_ATTENTION_BIAS, qk_norm="full"),
    "dbrx": _MIXTRAL.but(
        feedforward=Key("ffn_config.ffn_hidden_size"),
        kv_heads=Key("attn_config.kv_n_heads"),
        activation="swiglu",
        norm="layernorm_no_bias",
        rotary=1.0,
        num_experts=Key("ffn_config.moe_num_experts"),
        experts_per_token=Key("ffn_config.moe_top_k"),
    ).only_if({"ffn_config.ffn_act_fn.name": ("silu",)}),
    "grok-1": _MIXTRAL.but(_TIED, activation="geglu", norms=4),
    "qwen2_moe": _QWEN_MOE.but(_SHARED_GATE, qkv_bias=switch("qkv_bias", default=True)).with_window(
        used_window, first_blocks
    ),
    **dict.fromkeys(
        ("qwen3_moe", "qwen3_vl_moe"),
        _QWEN_MOE.but(_ATTENTION_BIAS, attn_size=Key("head_dim", 128), qk_norm="head").with_window(
            used_window, first_blocks
        ),
    ),
    "gpt_oss": _MIXTRAL.but(
        _biases(switch("attention_bias", default=True), *_ATTENTION),
        attn_size=Key("head_dim", 64),
        attention_sinks=True,
        router_bias=True,
        expert_bias=True,
    ).with_window(Key("sliding_window", 128, null=0), period(2)),
    "minimax_m2": _MINIMAX.but(
        qk_norm=minimax_norm,
        router_bias=switch("use_routing_bias", default=True),
        mtp_layers=minimax_modules,
    ).with_window(shorter_window),
    "hunyuan_v1_moe": _MIXTRAL.but(
        _ATTENTION_BIAS,
        qk_norm="head",
        experts_per_token=same_everywhere("moe_topk"),
        shared_feedforward=lambda config, fields: (
            fields["feedforward"] * same_everywhere("num_shared_expert")(config, fields)
        ),
    ).only_if({"use_mixed_mlp_moe": (False,)}),
    "deepseek": _LEADING.but(_ATTENTION_BIAS, router_bias=False).only_if({"moe_layer_freq": (1,)}),
    "dots1": _LEADING.but(
        _ATTENTION_BIAS, qk_norm="head", first_k_dense=Key("first_k_dense_replace", 0)
    ).only_if({"sliding_window": (None,)}),
    "bailing_moe": _BAILING,
    "bailing_moe_v2": _BAILING.but(
        _PREDICTED,
        qk_norm=either(switch("use_qk_norm", default=True), "head", "none"),
        router_bias=switch("moe_router_enable_expert_bias", default=True),
    ),
    "ernie4_5_moe": _LEADING.but(
        _ERNIE,
        mlp_bias=False,
        num_experts=Key("moe_num_experts"),
        experts_per_token=Key("moe_k"),
        shared_feedforward=shared(Key("moe_num_shared_experts", null=0), _WIDTH),
        first_k_dense=Key("moe_layer_start_index", 1),
        moe_layer_freq=step("moe_layer_interval"),
    ).only_if({"use_bias": (False,)}),
    **dict.fromkeys(
        ("glm4_moe", "glm4v_moe"),
        _LEADING.but(
            _PREDICTED,
            qkv_bias=switch("attention_bias", default=False),
            qk_norm=either(switch("use_qk_norm", default=False), "head", "none"),
            attn_size=Key("head_dim"),
            rotary=rotary(0.5),
        ),
    ),
    "llama4": _LLAMA4,
    # -- latent attention
    "deepseek_v2": _DEEPSEEK_V2,
    **dict.fromkeys(("deepseek_v3", "kimi_k2", "deepseek_v32", "glm_moe_dsa"), _DEEPSEEK_V3),
    "glm4_moe_lite": _DEEPSEEK_V3.but(
        router_groups(), first_k_dense=Key("first_k_dense_replace", 1)
    ),
    "mistral4": _DEEPSEEK_V2.but(router_groups(), first_k_dense=Key("first_k_dense_replace", 0)),
    # -- linear attention and states
    "qwen3_next": _QWEN_NEXT,
    "qwen3_5": _LLAMA.but(_DELTA, _PREDICTED_BY_QWEN).by_blocks(linear_period),
    "qwen3_5_moe": _QWEN_NEXT.but(
        _PREDICTED_BY_QWEN,
        feedforward=Key("intermediate_size", also=("moe_intermediate_size",)),
    ),
    **dict.fromkeys(("minimax", "minimax_text_01", "minimax_m1"), _LIGHTNING),
    "granitemoehybrid": _LLAMA.but(
        _TIED,
        _STATES,
        feedforward=granite_feedforward,
        rotary=granite_rotary,
        num_experts=Key("num_local_experts", 0, null=0),
        experts_per_token=with_experts(Key("num_experts_per_tok"), 1),
        shared_feedforward=with_experts(Key("shared_intermediate_size"), 0),
    )
    .by_blocks(mamba_blocks)
    .only_if(_STATE_BIASES),
    "bamba": _LLAMA.but(_STATES, rotary=rotary(0.5), mlp_bias=switch("mlp_bias", default=False))
    .by_blocks(mamba_blocks)
    .only_if(_STATE_BIASES),
    "nemotron_h": _LLAMA.but(
        attn_size=Key("head_dim", also=("attention_head_dim",)),
        activation=_activation(_PLAIN, "relu2"),
        rotary=0.0,
        mlp_bias=switch("mlp_bias", default=False),
        linear_attention="mamba2",
        ssm_heads=Key("mamba_num_heads"),
        ssm_head_dim=Key("mamba_head_dim", 64),
        ssm_state=Key("ssm_state_size", 128, also=("mamba_state_dim",)),
        ssm_groups=Key("n_groups", 8, also=("mamba_n_groups", "mamba_num_groups")),
        ssm_conv=Key("conv_kernel", 4),
        ssm_chunk=Key("chunk_size", 128, also=("mamba_chunk_size",)),
        mtp_layers=Key("num_nextn_predict_layers", 0, null=0),
    )
    .by_blocks(nemotron_parts, reads=("num_experts", "moe_latent"))
    .only_if(_STATE_BIASES),
}
"""The families. A configuration with ``text_config`` belongs to the family of that part, with or without ``_text``."""

# -- what no model can express ----------------------------------------------------------------------------------------

_EXPERTS = ("experts", "num_experts")
_LATENTS = ("multi-head latent attention", "kv_lora_rank")

INEXPRESSIBLE = {
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts"), _EXPERTS),
    **dict.fromkeys(
        ("moe_intermediate_size", "moe_num_experts", "ffn_config.moe_num_experts"), _EXPERTS
    ),
    **dict.fromkeys(("kv_lora_rank", "q_lora_rank"), _LATENTS),
    "num_nextn_predict_layers": ("prediction of several tokens", "mtp_layers"),
    "moe_latent_size": ("experts with a separate width", "moe_latent"),
    "index_topk": ("sparse attention, whose indexer chooses keys", "kv_lora_rank"),
    "block_configs": ("blocks whose widths differ", ""),
    "num_kv_shared_layers": ("keys and values that several blocks share", ""),
    "add_cross_attention": ("cross-attention", ""),
    "is_encoder_decoder": ("an encoder", ""),
    "use_bidirectional_attention": ("attention to later tokens", ""),
    "quantization_config": ("quantized weights", ""),
}
"""Keys of features: the feature, and the field of families that can express it."""

_MAMBA, _SHARED_KV = "Mamba-1 layers", "keys and values that several blocks share"

OTHERS = {
    **dict.fromkeys(("mamba", "falcon_mamba", "jamba"), _MAMBA),
    "mamba2": "blocks without attention and MLP",
    "falcon_h1": "attention and Mamba in parallel",
    **dict.fromkeys(("zamba", "zamba2"), "blocks that share their weights"),
    **dict.fromkeys(("gemma3n", "phi4flash"), _SHARED_KV),
    "gemma4": "heads of two widths and keys that are also values",
    "apertus": "the activation xIELU",
    "deepseek_v4": "attention to compressed keys",
    "kimi_linear": "linear attention with a gate per channel (KDA)",
    **dict.fromkeys(("lfm2", "lfm2_moe"), "blocks of short convolutions"),
    **dict.fromkeys(("rwkv", "recurrent_gemma"), "recurrent blocks"),
    "longcat_flash": "two attentions per block and experts that compute nothing",
    "nemotron-nas": "blocks whose widths differ",
    **dict.fromkeys(
        ("bert", "roberta", "modernbert", "t5", "t5gemma", "bart", "whisper"), "an encoder"
    ),
    "mllama": "cross-attention",
}
"""Families that cannot be expressed, with the missing feature."""
