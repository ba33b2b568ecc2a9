"""Families of transformers, as the configuration classes of Hugging Face Transformers describe them.

For each field of a model: the key that holds it, a rule over several keys, or what all members of the family have.
Defaults are those of the configuration class; a key without one that all versions agree on is required.
"""

from calculon.spec.families import gated, plain

FAMILIES = plain.FAMILIES | gated.FAMILIES
"""All families, by ``model_type``."""

_EXPERTS = "a mixture of experts"
_LATENT = "multi-head latent attention"
_STATES = "layers without attention"

INEXPRESSIBLE = {
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts"), _EXPERTS),
    **dict.fromkeys(("moe_intermediate_size", "ffn_config.moe_num_experts"), _EXPERTS),
    **dict.fromkeys(("kv_lora_rank", "q_lora_rank"), _LATENT),
    "num_nextn_predict_layers": "prediction of several tokens",
    "add_cross_attention": "cross-attention",
    "is_encoder_decoder": "an encoder",
    "use_bidirectional_attention": "attention to later tokens",
    "quantization_config": "quantised weights",
}
"""Keys of features that no model can express, in any family."""

OTHERS = {
    **dict.fromkeys(("mixtral", "dbrx", "qwen2_moe", "qwen3_moe", "olmoe", "phimoe"), _EXPERTS),
    **dict.fromkeys(("gpt_oss", "granitemoe", "llama4", "llama4_text", "glm4_moe"), _EXPERTS),
    **dict.fromkeys(("deepseek_v2", "deepseek_v3", "kimi_k2", "minicpm3"), _LATENT),
    **dict.fromkeys(("mamba", "mamba2", "falcon_mamba", "jamba", "qwen3_next"), _STATES),
    **dict.fromkeys(("bert", "roberta", "t5", "bart", "whisper"), "an encoder"),
    "mllama": "cross-attention",
}
"""Families that are known not to be expressible, and why."""
