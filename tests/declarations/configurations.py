"""Configurations as they stand on Hugging Face, one or two per family, without keys that say nothing of the shape."""

from typing import Any, NamedTuple


class Case(NamedTuple):
    """A configuration, the parameters that its weights have (where that is public), and its name in the catalog."""

    config: dict[str, Any]
    parameters: int | None
    catalog: str = ""


def shape(
    model_type: str, *, hidden: int, inner: int, blocks: int, heads: int, vocab: int, longest: int
) -> dict[str, Any]:
    """Return the keys of sizes that most configurations have."""
    return {
        "hidden_size": hidden,
        "intermediate_size": inner,
        "max_position_embeddings": longest,
        "model_type": model_type,
        "num_attention_heads": heads,
        "num_hidden_layers": blocks,
        "vocab_size": vocab,
    }


def decoder(model_type: str, **sizes: int) -> dict[str, Any]:
    """Return the keys of sizes, of a model with SiLU and a head of its own."""
    return shape(model_type, **sizes) | {"hidden_act": "silu", "tie_word_embeddings": False}


def llama(**changes: Any) -> dict[str, Any]:
    """Return the configuration of Llama 3 8B, changed."""
    return {
        **decoder(
            "llama", hidden=4096, inner=14336, blocks=32, heads=32, vocab=128256, longest=8192
        ),
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "num_key_value_heads": 8,
        "rms_norm_eps": 1e-05,
        "rope_scaling": None,
    } | changes


LLAMA2_7B = {
    **decoder("llama", hidden=4096, inner=11008, blocks=32, heads=32, vocab=32000, longest=4096),
    "_name_or_path": "meta-llama/Llama-2-7b-hf",
    "num_key_value_heads": 32,
}
MISTRAL_7B = {
    **decoder("mistral", hidden=4096, inner=14336, blocks=32, heads=32, vocab=32000, longest=32768),
    "num_key_value_heads": 8,
    "sliding_window": 4096,
}
QWEN25_05B = {
    **decoder("qwen2", hidden=896, inner=4864, blocks=24, heads=14, vocab=151936, longest=32768),
    "max_window_layers": 24,
    "num_key_value_heads": 2,
    "sliding_window": 32768,
    "tie_word_embeddings": True,
    "use_sliding_window": False,
}
QWEN3_32B = {
    **decoder("qwen3", hidden=5120, inner=25600, blocks=64, heads=64, vocab=151936, longest=40960),
    "head_dim": 128,
    "max_window_layers": 64,
    "num_key_value_heads": 8,
    "sliding_window": None,
    "use_sliding_window": False,
}
GEMMA_2B = {
    **shape("gemma", hidden=2048, inner=16384, blocks=18, heads=8, vocab=256000, longest=8192),
    "head_dim": 256,
    "hidden_act": "gelu",
    "hidden_activation": "gelu_pytorch_tanh",
    "num_key_value_heads": 1,
}
GEMMA2_27B = {
    **shape("gemma2", hidden=4608, inner=36864, blocks=46, heads=32, vocab=256000, longest=8192),
    "head_dim": 128,
    "hidden_act": "gelu_pytorch_tanh",
    "hidden_activation": "gelu_pytorch_tanh",
    "num_key_value_heads": 16,
    "sliding_window": 4096,
}
GEMMA3_1B = {
    **shape(
        "gemma3_text", hidden=1152, inner=6912, blocks=26, heads=4, vocab=262144, longest=32768
    ),
    "head_dim": 256,
    "hidden_activation": "gelu_pytorch_tanh",
    "num_key_value_heads": 1,
    "sliding_window": 512,
    "sliding_window_pattern": 6,
}
GEMMA3_4B = {
    "model_type": "gemma3",
    "text_config": {
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "model_type": "gemma3_text",
        "num_hidden_layers": 34,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
        "sliding_window": 1024,
    },
    "vision_config": {"hidden_size": 1152, "model_type": "siglip_vision_model"},
}
PHI3_MEDIUM = {
    **decoder("phi3", hidden=5120, inner=17920, blocks=40, heads=40, vocab=32064, longest=4096),
    "num_key_value_heads": 10,
    "sliding_window": 2047,
}
OLMO_7B = {
    **decoder("olmo", hidden=4096, inner=11008, blocks=32, heads=32, vocab=50304, longest=2048),
    "num_key_value_heads": 32,
}
OLMO2_32B = {
    **decoder("olmo2", hidden=5120, inner=27648, blocks=64, heads=40, vocab=100352, longest=4096),
    "num_key_value_heads": 8,
}
GPT2 = {
    "activation_function": "gelu_new",
    "attn_pdrop": 0.1,
    "embd_pdrop": 0.1,
    "model_type": "gpt2",
    "n_ctx": 1024,
    "n_embd": 768,
    "n_head": 12,
    "n_layer": 12,
    "n_positions": 1024,
    "resid_pdrop": 0.1,
    "vocab_size": 50257,
}
OPT_125M = {
    "activation_function": "relu",
    "attention_dropout": 0.0,
    "do_layer_norm_before": True,
    "dropout": 0.1,
    "ffn_dim": 3072,
    "hidden_size": 768,
    "max_position_embeddings": 2048,
    "model_type": "opt",
    "num_attention_heads": 12,
    "num_hidden_layers": 12,
    "vocab_size": 50272,
    "word_embed_proj_dim": 768,
}
BLOOM = {
    "model_type": "bloom",
    "n_embed": 14336,
    "n_layer": 70,
    "num_attention_heads": 112,
    "seq_length": 2048,
    "vocab_size": 250880,
}
FALCON_7B = {
    "alibi": False,
    "bias": False,
    "hidden_size": 4544,
    "model_type": "falcon",
    "multi_query": True,
    "new_decoder_architecture": False,
    "num_attention_heads": 71,
    "num_hidden_layers": 32,
    "parallel_attn": True,
    "vocab_size": 65024,
}
FALCON_180B = FALCON_7B | {
    "hidden_size": 14848,
    "new_decoder_architecture": True,
    "num_attention_heads": 232,
    "num_hidden_layers": 80,
    "num_kv_heads": 8,
    "tie_word_embeddings": False,
}
MPT_7B = {
    "attn_config": {
        "alibi": True,
        "attn_pdrop": 0,
        "attn_type": "multihead_attention",
        "qk_ln": False,
    },
    "d_model": 4096,
    "emb_pdrop": 0,
    "expansion_ratio": 4,
    "learned_pos_emb": True,
    "max_seq_len": 2048,
    "model_type": "mpt",
    "n_heads": 32,
    "n_layers": 32,
    "no_bias": True,
    "norm_type": "low_precision_layernorm",
    "resid_pdrop": 0,
    "vocab_size": 50432,
}
PHI2 = {
    **decoder("phi", hidden=2560, inner=10240, blocks=32, heads=32, vocab=51200, longest=2048),
    "attention_dropout": 0.0,
    "embd_pdrop": 0.0,
    "hidden_act": "gelu_new",
    "num_key_value_heads": 32,
    "partial_rotary_factor": 0.4,
    "qk_layernorm": False,
    "resid_pdrop": 0.1,
}
PYTHIA_69B = {
    **decoder("gpt_neox", hidden=4096, inner=16384, blocks=32, heads=32, vocab=50432, longest=2048),
    "hidden_act": "gelu",
    "rotary_pct": 0.25,
    "use_parallel_residual": True,
}
NEMOTRON_15B = {
    **decoder(
        "nemotron", hidden=6144, inner=24576, blocks=32, heads=48, vocab=256000, longest=4096
    ),
    "head_dim": None,
    "hidden_act": "relu2",
    "num_key_value_heads": 8,
    "partial_rotary_factor": 0.5,
}
MINICPM3_4B = {
    **shape("minicpm3", hidden=2560, inner=6400, blocks=62, heads=40, vocab=73448, longest=32768),
    "hidden_act": "silu",
    "kv_lora_rank": 256,
    "num_key_value_heads": 40,
    "q_lora_rank": 768,
    "qk_nope_head_dim": 64,
    "qk_rope_head_dim": 32,
}
MIXTRAL_8X7B = {
    **decoder("mixtral", hidden=4096, inner=14336, blocks=32, heads=32, vocab=32000, longest=32768),
    "num_experts_per_tok": 2,
    "num_key_value_heads": 8,
    "num_local_experts": 8,
    "sliding_window": None,
}
PHI35_MOE = {
    **decoder("phimoe", hidden=4096, inner=6400, blocks=32, heads=32, vocab=32064, longest=131072),
    "attention_bias": True,
    "lm_head_bias": True,
    "num_experts_per_tok": 2,
    "num_key_value_heads": 8,
    "num_local_experts": 16,
    "sliding_window": 131072,
}
GRANITE_1B = {
    **decoder(
        "granitemoe", hidden=1024, inner=512, blocks=24, heads=16, vocab=49155, longest=131072
    ),
    "num_experts_per_tok": 8,
    "num_key_value_heads": 8,
    "num_local_experts": 32,
    "tie_word_embeddings": True,
}
OLMOE_7B = {
    **decoder("olmoe", hidden=2048, inner=1024, blocks=16, heads=16, vocab=50304, longest=4096),
    "num_experts": 64,
    "num_experts_per_tok": 8,
    "num_key_value_heads": 16,
}
DBRX = {
    "attn_config": {"clip_qkv": 8, "kv_n_heads": 8, "rope_theta": 500000},
    "d_model": 6144,
    "emb_pdrop": 0.0,
    "ffn_config": {
        "ffn_act_fn": {"name": "silu"},
        "ffn_hidden_size": 10752,
        "moe_num_experts": 16,
        "moe_top_k": 4,
    },
    "max_seq_len": 32768,
    "model_type": "dbrx",
    "n_heads": 48,
    "n_layers": 40,
    "tie_word_embeddings": False,
    "vocab_size": 100352,
}
GROK_1 = {
    **shape("grok-1", hidden=6144, inner=32768, blocks=64, heads=48, vocab=131072, longest=8192),
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "num_key_value_heads": 8,
    "tie_word_embeddings": True,
}
QWEN2_57B = {
    **decoder(
        "qwen2_moe", hidden=3584, inner=18944, blocks=28, heads=28, vocab=151936, longest=131072
    ),
    "decoder_sparse_step": 1,
    "max_window_layers": 28,
    "mlp_only_layers": [],
    "moe_intermediate_size": 2560,
    "num_experts": 64,
    "num_experts_per_tok": 8,
    "num_key_value_heads": 4,
    "shared_expert_intermediate_size": 20480,
    "sliding_window": 65536,
    "use_sliding_window": False,
}
QWEN3_30B = {
    **decoder(
        "qwen3_moe", hidden=2048, inner=6144, blocks=48, heads=32, vocab=151936, longest=40960
    ),
    "decoder_sparse_step": 1,
    "head_dim": 128,
    "max_window_layers": 48,
    "mlp_only_layers": [],
    "moe_intermediate_size": 768,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "num_key_value_heads": 4,
    "sliding_window": None,
    "use_sliding_window": False,
}
GPT_OSS_20B = {
    **decoder(
        "gpt_oss", hidden=2880, inner=2880, blocks=24, heads=64, vocab=201088, longest=131072
    ),
    "attention_bias": True,
    "head_dim": 64,
    "layer_types": 12 * ["sliding_attention", "full_attention"],
    "num_experts_per_tok": 4,
    "num_key_value_heads": 8,
    "num_local_experts": 32,
    "quantization_config": {"quant_method": "mxfp4"},
    "sliding_window": 128,
}
MINIMAX_M2 = {
    **decoder(
        "minimax_m2", hidden=3072, inner=1536, blocks=62, heads=48, vocab=200064, longest=196608
    ),
    "attn_type_list": 62 * [1],
    "head_dim": 128,
    "num_experts_per_tok": 8,
    "num_key_value_heads": 8,
    "num_local_experts": 256,
    "num_mtp_modules": 3,
    "quantization_config": {"quant_method": "fp8"},
    "rotary_dim": 64,
    "use_qk_norm": True,
    "use_routing_bias": True,
}
DEEPSEEK_V2_LITE = {
    **decoder(
        "deepseek_v2", hidden=2048, inner=10944, blocks=27, heads=16, vocab=102400, longest=163840
    ),
    "first_k_dense_replace": 1,
    "kv_lora_rank": 512,
    "moe_intermediate_size": 1408,
    "moe_layer_freq": 1,
    "n_group": 1,
    "n_routed_experts": 64,
    "n_shared_experts": 2,
    "num_experts_per_tok": 6,
    "num_key_value_heads": 16,
    "q_lora_rank": None,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "topk_group": 1,
    "topk_method": "greedy",
    "v_head_dim": 128,
}
DEEPSEEK_V2 = DEEPSEEK_V2_LITE | {
    "hidden_size": 5120,
    "intermediate_size": 12288,
    "moe_intermediate_size": 1536,
    "n_group": 8,
    "n_routed_experts": 160,
    "num_attention_heads": 128,
    "num_hidden_layers": 60,
    "num_key_value_heads": 128,
    "q_lora_rank": 1536,
    "topk_group": 3,
    "topk_method": "group_limited_greedy",
}
DEEPSEEK_V3 = DEEPSEEK_V2 | {
    "first_k_dense_replace": 3,
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "model_type": "deepseek_v3",
    "moe_intermediate_size": 2048,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 61,
    "num_nextn_predict_layers": 1,
    "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
    "topk_group": 4,
    "topk_method": "noaux_tc",
    "vocab_size": 129280,
}
KIMI_K2 = DEEPSEEK_V3 | {
    "first_k_dense_replace": 1,
    "max_position_embeddings": 131072,
    "model_type": "kimi_k2",
    "n_group": 1,
    "n_routed_experts": 384,
    "num_attention_heads": 64,
    "num_key_value_heads": 64,
    "num_nextn_predict_layers": 0,
    "topk_group": 1,
    "vocab_size": 163840,
}
GLM45_AIR = {
    **decoder(
        "glm4_moe", hidden=4096, inner=10944, blocks=46, heads=96, vocab=151552, longest=131072
    ),
    "attention_bias": True,
    "first_k_dense_replace": 1,
    "head_dim": 128,
    "moe_intermediate_size": 1408,
    "n_group": 1,
    "n_routed_experts": 128,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "num_key_value_heads": 8,
    "num_nextn_predict_layers": 1,
    "partial_rotary_factor": 0.5,
    "topk_group": 1,
    "use_qk_norm": False,
}
LLAMA4_SCOUT_TEXT = {
    **shape(
        "llama4_text", hidden=5120, inner=8192, blocks=48, heads=40, vocab=202048, longest=10485760
    ),
    "attention_chunk_size": 8192,
    "head_dim": 128,
    "hidden_act": "silu",
    "interleave_moe_layer_step": 1,
    "intermediate_size_mlp": 16384,
    "no_rope_layers": [],
    "num_experts_per_tok": 1,
    "num_key_value_heads": 8,
    "num_local_experts": 16,
    "use_qk_norm": True,
}
LLAMA4_MAVERICK = {
    "model_type": "llama4",
    "text_config": LLAMA4_SCOUT_TEXT
    | {
        "interleave_moe_layer_step": 2,
        "max_position_embeddings": 1048576,
        "moe_layers": list(range(1, 48, 2)),
        "num_local_experts": 128,
        "use_qk_norm": False,
    },
    "vision_config": {"hidden_size": 1408, "model_type": "llama4_vision_model"},
}
QWEN3_NEXT = {
    **decoder(
        "qwen3_next", hidden=2048, inner=5120, blocks=48, heads=16, vocab=151936, longest=262144
    ),
    "decoder_sparse_step": 1,
    "full_attention_interval": 4,
    "head_dim": 256,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_value_head_dim": 128,
    "mlp_only_layers": [],
    "moe_intermediate_size": 512,
    "num_experts": 512,
    "num_experts_per_tok": 10,
    "num_key_value_heads": 2,
    "partial_rotary_factor": 0.25,
    "shared_expert_intermediate_size": 512,
}
QWEN35_397B_TEXT = {
    "attn_output_gate": True,
    "head_dim": 256,
    "hidden_act": "silu",
    "hidden_size": 4096,
    "layer_types": 15 * [*3 * ["linear_attention"], "full_attention"],
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 64,
    "linear_value_head_dim": 128,
    "max_position_embeddings": 262144,
    "model_type": "qwen3_5_moe_text",
    "moe_intermediate_size": 1024,
    "mtp_num_hidden_layers": 1,
    "num_attention_heads": 32,
    "num_experts": 512,
    "num_experts_per_tok": 10,
    "num_hidden_layers": 60,
    "num_key_value_heads": 2,
    "rope_parameters": {"partial_rotary_factor": 0.25, "rope_type": "default"},
    "shared_expert_intermediate_size": 1024,
    "tie_word_embeddings": False,
    "vocab_size": 248320,
}
QWEN35_397B = {
    "model_type": "qwen3_5_moe",
    "text_config": QWEN35_397B_TEXT,
    "vision_config": {"hidden_size": 1152},
}
MINIMAX_TEXT_01 = {
    **decoder(
        "minimax_text_01",
        hidden=6144,
        inner=9216,
        blocks=80,
        heads=64,
        vocab=200064,
        longest=10240000,
    ),
    "attn_type_list": 10 * [*7 * [0], 1],
    "head_dim": 128,
    "num_experts_per_tok": 2,
    "num_key_value_heads": 8,
    "num_local_experts": 32,
    "postnorm": True,
    "rotary_dim": 64,
    "shared_intermediate_size": 0,
}
MINIMAX_HF = {key: MINIMAX_TEXT_01[key] for key in MINIMAX_TEXT_01 if key != "attn_type_list"} | {
    "layer_types": 10 * [*7 * ["linear_attention"], "full_attention"],
    "model_type": "minimax",
}
GRANITE4_H_SMALL = {
    **decoder(
        "granitemoehybrid",
        hidden=4096,
        inner=768,
        blocks=40,
        heads=32,
        vocab=100352,
        longest=131072,
    ),
    "layer_types": [
        *5 * ["mamba"],
        *3 * ["attention", *9 * ["mamba"]],
        "attention",
        *4 * ["mamba"],
    ],
    "mamba_conv_bias": True,
    "mamba_d_conv": 4,
    "mamba_d_head": 64,
    "mamba_d_state": 128,
    "mamba_expand": 2,
    "mamba_n_groups": 1,
    "mamba_n_heads": 128,
    "num_experts_per_tok": 10,
    "num_key_value_heads": 8,
    "num_local_experts": 72,
    "position_embedding_type": "nope",
    "shared_intermediate_size": 1536,
    "tie_word_embeddings": True,
}


def nemotron_h(pattern: str, **changes: Any) -> dict[str, Any]:
    """Return a configuration of Nemotron-H: that of the 56B model, changed."""
    return {
        **shape(
            "nemotron_h",
            hidden=8192,
            inner=32768,
            blocks=len(pattern),
            heads=64,
            vocab=131072,
            longest=8192,
        ),
        "conv_kernel": 4,
        "expand": 2,
        "head_dim": 128,
        "hybrid_override_pattern": pattern,
        "mamba_head_dim": 64,
        "mamba_num_heads": 256,
        "mlp_hidden_act": "relu2",
        "n_groups": 8,
        "num_key_value_heads": 8,
        "ssm_state_size": 256,
        "tie_word_embeddings": False,
        "use_bias": False,
        "use_conv_bias": True,
    } | changes


NEMOTRON_H_56B = nemotron_h("M-M-M-M*-" + 9 * "M-M-M-M-M*-" + "M-M-M-M-M-")
NEMOTRON_NANO = nemotron_h(
    5 * "MEMEM*E" + "MEMEMEM*EMEMEMEME",
    hidden_size=2688,
    intermediate_size=1856,
    mamba_num_heads=64,
    max_position_embeddings=262144,
    moe_intermediate_size=1856,
    moe_shared_expert_intermediate_size=3712,
    n_group=1,
    n_routed_experts=128,
    n_shared_experts=1,
    num_attention_heads=32,
    num_experts_per_tok=6,
    num_key_value_heads=2,
    ssm_state_size=128,
    topk_group=1,
)
NEMOTRON_SUPER = NEMOTRON_NANO | nemotron_h(
    3 * "MEMEMEM*E" + 4 * "MEMEMEMEM*E" + "MEMEMEM*EMEMEMEME",
    hidden_size=4096,
    intermediate_size=2688,
    mamba_num_heads=128,
    max_position_embeddings=262144,
    moe_intermediate_size=2688,
    moe_latent_size=1024,
    moe_shared_expert_intermediate_size=5376,
    mtp_hybrid_override_pattern="*E",
    n_routed_experts=512,
    num_attention_heads=32,
    num_experts_per_tok=22,
    num_key_value_heads=2,
    num_nextn_predict_layers=1,
    ssm_state_size=128,
)
DEEPSEEK_V32 = DEEPSEEK_V3 | {
    "model_type": "deepseek_v32",
    "index_topk": 2048,
}
GLM5 = DEEPSEEK_V32 | {
    "hidden_size": 6144,
    "intermediate_size": 12288,
    "model_type": "glm_moe_dsa",
    "moe_intermediate_size": 2048,
    "n_group": 1,
    "num_attention_heads": 64,
    "num_hidden_layers": 78,
    "num_key_value_heads": 64,
    "q_lora_rank": 2048,
    "qk_nope_head_dim": 192,
    "topk_group": 1,
    "v_head_dim": 256,
    "vocab_size": 154880,
}

CASES = {
    "deepseek-v3.2": Case(DEEPSEEK_V32, None, "deepseek-v3"),
    "glm-5": Case(GLM5, None, "glm-5"),
    "llama2-7B": Case(LLAMA2_7B, 6_738_415_616, "llama2-7B"),
    "llama3-8B": Case(llama(), 8_030_261_248, "llama3-8B"),
    "minicpm3-4B": Case(MINICPM3_4B, 4_073_875_968, "minicpm3-4B"),
    "mistral-7B": Case(MISTRAL_7B, 7_241_732_096, "mistral-7B"),
    "qwen2.5-0.5B": Case(QWEN25_05B, 494_032_768, "qwen2.5-0.5B"),
    "qwen3-32B": Case(QWEN3_32B, 32_762_123_264, "qwen3-32B"),
    "gemma-2B": Case(GEMMA_2B, 2_506_172_416),
    "gemma2-27B": Case(GEMMA2_27B, 27_227_128_320, "gemma2-27B"),
    "gemma3-1B": Case(GEMMA3_1B, 999_885_952, "gemma3-1B"),
    "gemma3-4B": Case(GEMMA3_4B, 3_880_263_168),
    "phi-3-medium": Case(PHI3_MEDIUM, 13_960_238_080, "phi-3-medium"),
    "olmo-7B": Case(OLMO_7B, 6_888_095_744, "olmo-7B"),
    "olmo2-32B": Case(OLMO2_32B, 32_234_279_936, "olmo2-32B"),
    "gpt2": Case(GPT2, 124_439_808, "gpt2-124M"),
    "opt-125M": Case(OPT_125M, 125_239_296),
    "bloom": Case(BLOOM, 176_247_271_424, "bloom-176B"),
    "falcon-7B": Case(FALCON_7B, 6_921_720_704),
    "falcon-180B": Case(FALCON_180B, 179_522_565_120, "falcon-180B"),
    "mpt-7B": Case(MPT_7B, 6_649_286_656, "mpt-7B"),
    "phi-2": Case(PHI2, 2_779_683_840, "phi-2"),
    "pythia-6.9B": Case(PYTHIA_69B, 6_857_302_016),
    "nemotron-15B": Case(NEMOTRON_15B, None, "nemotron4-15B"),
    "mixtral-8x7B": Case(MIXTRAL_8X7B, 46_702_792_704, "mixtral-8x7B"),
    "phi-3.5-moe": Case(PHI35_MOE, None, "phi-3.5-moe"),
    "granite3.1-1B": Case(GRANITE_1B, None, "granite3-1B"),
    "olmoe-7B": Case(OLMOE_7B, 6_919_161_856, "olmoe-1B-7B"),
    "dbrx": Case(DBRX, 131_596_523_520, "dbrx"),
    "grok-1": Case(GROK_1, None, "grok-1"),
    "qwen2-57B": Case(QWEN2_57B, None, "qwen2-57B-a14B"),
    "qwen3-30B": Case(QWEN3_30B, 30_532_122_624, "qwen3-30B-a3B"),
    "gpt-oss-20B": Case(GPT_OSS_20B, None, "gpt-oss-20b"),
    "minimax-m2": Case(MINIMAX_M2, None, "minimax-m2"),
    "deepseek-v2-lite": Case(DEEPSEEK_V2_LITE, 15_706_484_224, "deepseek-v2-lite"),
    "deepseek-v2": Case(DEEPSEEK_V2, 235_741_434_880, "deepseek-v2"),
    "deepseek-v3": Case(DEEPSEEK_V3, 671_026_419_200, "deepseek-v3"),
    "kimi-k2": Case(KIMI_K2, None, "kimi-k2"),
    "glm-4.5-air": Case(GLM45_AIR, None, "glm-4.5-air"),
    "llama4-scout": Case(LLAMA4_SCOUT_TEXT, None, "llama4-scout"),
    "llama4-maverick": Case(LLAMA4_MAVERICK, None, "llama4-maverick"),
    "qwen3-next": Case(QWEN3_NEXT, 79_674_391_296, "qwen3-next-80B"),
    "qwen3.5-397B": Case(QWEN35_397B, None, "qwen3.5-397B"),
    "qwen3.5-397B-text": Case(QWEN35_397B_TEXT, None, "qwen3.5-397B"),
    "minimax-text-01": Case(MINIMAX_TEXT_01, None, "minimax-text-01"),
    "minimax-hf": Case(MINIMAX_HF, None, "minimax-text-01"),
    "granite4-h-small": Case(GRANITE4_H_SMALL, None, "granite4-h-small"),
    "nemotron-h-56B": Case(NEMOTRON_H_56B, None, "nemotron-h-56B"),
    "nemotron3-nano": Case(NEMOTRON_NANO, None, "nemotron3-nano"),
    "nemotron3-super": Case(NEMOTRON_SUPER, None, "nemotron3-super"),
}
"""Published facts: the totals of the weights on Hugging Face; the one of Gemma 3 4B without its vision tower."""
