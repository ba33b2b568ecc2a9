"""Model families, as described by the configuration classes of Hugging Face Transformers.

Each field of a model comes from a configuration key, from a rule over several keys, or from a constant of the family.
Defaults are the defaults of the configuration class; a key without a default common to all versions is required.
"""

from calculon.declarations.families import gated, hybrids, latent, mixtures, plain

FAMILIES = plain.FAMILIES | gated.FAMILIES | mixtures.FAMILIES | latent.FAMILIES | hybrids.FAMILIES
"""All families, by ``model_type``."""

_EXPERTS = "experts"
_LATENT = "multi-head latent attention"
_STATES = "layers without attention"
_INDEXED = "sparse attention, whose indexer chooses keys"

INEXPRESSIBLE = {
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts"), _EXPERTS),
    **dict.fromkeys(("moe_intermediate_size", "ffn_config.moe_num_experts"), _EXPERTS),
    **dict.fromkeys(("kv_lora_rank", "q_lora_rank"), _LATENT),
    "num_nextn_predict_layers": "prediction of several tokens",
    "moe_latent_size": "experts with a separate width",
    "index_topk": _INDEXED,
    "block_configs": "blocks whose widths differ",
    "num_kv_shared_layers": "keys and values that several blocks share",
    "vision_config": "a vision tower: use the content of its text_config",
    "add_cross_attention": "cross-attention",
    "is_encoder_decoder": "an encoder",
    "use_bidirectional_attention": "attention to later tokens",
    "quantization_config": "quantized weights",
}
"""Keys of features that a model cannot express, unless the family reads them."""

OTHERS = {
    **dict.fromkeys(
        (
            "mamba",
            "mamba2",
            "falcon_mamba",
            "jamba",
        ),
        _STATES,
    ),
    **dict.fromkeys(("gemma3n", "gemma3n_text"), "keys and values that several blocks share"),
    **dict.fromkeys(("bert", "roberta", "t5", "bart", "whisper"), "an encoder"),
    "mllama": "cross-attention",
}
"""Families that cannot be expressed, with the reason."""
