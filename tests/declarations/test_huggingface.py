"""Configurations of Hugging Face become models: exactly, or with an error that names the key."""

import copy
import tracemalloc
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calculon import inputs
from calculon.architecture.parameters import parameter_count
from calculon.base.errors import SpecError
from calculon.declarations.families import FAMILIES, INEXPRESSIBLE, OTHERS
from calculon.declarations.huggingface import about_of, from_huggingface, source_of
from tests.declarations.configurations import CASES, HUB, llama
from tests.helpers import document


def without(config: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in config.items() if key not in keys}


def text_of(config: dict[str, Any]) -> dict[str, Any]:
    """Return the part of a configuration that describes the text model."""
    inside = config.get("text_config") or config.get("llm_config") or config
    return {"model_type": config["model_type"]} | inside


def refused(config: object, **options: Any) -> SpecError:
    with pytest.raises(SpecError) as error:
        from_huggingface(config, "config.json", **options)
    assert error.value.file == "config.json"
    return error.value


def test_the_model_has_as_many_parameters_as_the_weights():
    known = {name: case.parameters for name, case in CASES.items() if case.parameters}
    found = {name: parameter_count(from_huggingface(CASES[name].config, name)) for name in known}
    assert found == known


def test_the_model_is_that_of_the_catalog():
    for name, (config, _, known) in CASES.items():
        if known:
            shipped = inputs.model(known)
            assert from_huggingface(config, name, seq_size=shipped.seq_size) == shipped, name


def test_every_family_has_an_example():
    texts = [text_of(config) for config in HUB.values()]
    kinds = {text["model_type"].removesuffix("_text") for text in texts}
    assert kinds == set(FAMILIES)


# -- sequence, name and source ----------------------------------------------------------------------------------------


def test_the_sequence_is_the_longest_of_the_configuration_unless_stated():
    assert from_huggingface(llama(), "file").seq_size == 8192
    assert from_huggingface(llama(), "file", seq_size=100).seq_size == 100
    assert from_huggingface(without(llama(), "max_position_embeddings"), "file", seq_size=100)


def test_a_sequence_that_nothing_states_is_asked_for():
    error = refused(without(HUB["bloom"], "seq_length"))
    assert error.field == "max_position_embeddings"
    assert "--seq-size" in error.hint


def test_a_sequence_fits_the_learned_positions():
    for config, longest in [(HUB["gpt2"], 1024), (HUB["opt-125M"], 2050)]:
        assert from_huggingface(config, "file", seq_size=longest).positions == longest, longest
        error = refused(config, seq_size=longest + 1)
        assert error.field == "seq_size", longest
        assert str(longest) in error.expected, longest


def test_the_source_names_the_model_if_the_configuration_does():
    assert source_of(HUB["llama2-7B"]) == (
        "Hugging Face config.json of meta-llama/Llama-2-7b-hf, model_type llama"
    )
    assert source_of(HUB["gemma3-4B"]).endswith("model_type gemma3, the text model only")
    assert source_of(HUB["gpt2"]) == "Hugging Face config.json, model_type gpt2"


# -- what a key means -------------------------------------------------------------------------------------------------


def test_a_key_of_llama_changes_its_field():
    for config, changes in [
        (llama(attention_bias=True), {"qkv_bias": True, "out_bias": True}),
        (llama(mlp_bias=True), {"mlp_bias": True}),
        (llama(head_dim=256), {"attn_size": 256}),
        (llama(num_key_value_heads=None), {"kv_heads": 0}),
        (llama(num_key_value_heads=32), {"kv_heads": 0}),
        (llama(attention_dropout=0.1), {"dropout": True}),
        (llama(hidden_act="gelu_pytorch_tanh"), {"activation": "geglu"}),
        (llama(num_local_experts=None, num_experts=0), {}),
        (without(llama(), "tie_word_embeddings", "hidden_act", "attention_dropout"), {}),
        (llama(layer_types=["full_attention"] * 32), {}),
    ]:
        plain = from_huggingface(llama(), "file")
        assert from_huggingface(config, "file") == replace(plain, **changes), changes


def test_sliding_windows_follow_the_family_or_the_list_of_blocks():
    for config, window, every in [
        (HUB["mistral-7B"], 4096, 0),
        (without(HUB["mistral-7B"], "sliding_window"), 4096, 0),
        (HUB["mistral-7B"] | {"sliding_window": None}, 0, 0),
        (HUB["phi-3-medium"], 2047, 0),
        (without(HUB["phi-3-medium"], "sliding_window"), 0, 0),
        (HUB["gemma2-27B"], 4096, 2),
        (
            HUB["gemma2-27B"] | {"layer_types": ["sliding_attention", "full_attention"] * 23},
            4096,
            2,
        ),
        (HUB["gemma3-1B"], 512, 6),
        (without(HUB["gemma3-1B"], "sliding_window_pattern"), 512, 6),
        (
            without(HUB["gemma3-1B"], "sliding_window_pattern") | {"_sliding_window_pattern": 3},
            512,
            3,
        ),
        (HUB["gemma3-1B"] | {"layer_types": ["sliding_attention"] * 26}, 512, 0),
        (HUB["gemma3-4B"], 1024, 6),
        (HUB["gemma3-1B"] | {"num_hidden_layers": 6}, 512, 6),
        (HUB["gemma3-1B"] | {"num_hidden_layers": 5}, 512, 0),
        (HUB["qwen2.5-0.5B"], 0, 0),
        (HUB["qwen2.5-0.5B"] | {"use_sliding_window": True}, 0, 0),
        (HUB["qwen2.5-0.5B"] | {"use_sliding_window": True, "max_window_layers": 0}, 32768, 0),
        (HUB["qwen3-32B"] | {"use_sliding_window": True}, 0, 0),
    ]:
        model = from_huggingface(config, "file")
        assert (model.sliding_window, model.full_attention_every) == (window, every), config


def test_falcon_and_mpt_have_many_forms():
    forms = {
        "falcon-7B": [
            ({"multi_query": False}, {"kv_heads": 0}),
            ({"bias": True}, {"qkv_bias": True, "out_bias": True, "mlp_bias": True}),
            ({"parallel_attn": False}, {"norms": 2, "parallel_attention": False}),
            ({"alibi": True}, {"rotary": 0.0}),
            ({"ffn_hidden_size": 100}, {"feedforward": 100}),
            ({"tie_word_embeddings": False}, {"tied": False}),
            ({"new_decoder_architecture": True, "num_kv_heads": 1}, {"norms": 2}),
            (
                {
                    "new_decoder_architecture": True,
                    "num_kv_heads": 1,
                    "num_ln_in_parallel_attn": 1,
                },
                {},
            ),
        ],
        "mpt-7B": [
            (
                {"no_bias": False},
                {"norm": "layernorm", "qkv_bias": True, "out_bias": True, "mlp_bias": True},
            ),
            ({"attn_config": {"alibi": False}}, {"positions": 2048}),
            ({"attn_config": {"alibi": False}, "learned_pos_emb": False}, {}),
            (
                {"attn_config": {"alibi": True, "attn_type": "multiquery_attention"}},
                {"kv_heads": 1},
            ),
            ({"resid_pdrop": 0.1}, {"dropout": True}),
            ({"expansion_ratio": 3}, {"feedforward": 3 * 4096}),
        ],
    }
    for name, cases in forms.items():
        config = HUB[name]
        plain = from_huggingface(config, "file")
        for changes, fields in cases:
            found = from_huggingface(config | changes, "file")
            assert found == replace(plain, **fields), (name, changes)


def test_keys_of_a_family_fill_their_fields():
    for config, field, value in [
        (HUB["gpt2"] | {"n_inner": 100}, "feedforward", 100),
        (HUB["gpt2"] | {"n_inner": None}, "feedforward", 4 * 768),
        (HUB["gpt2"] | {"attn_pdrop": 0, "embd_pdrop": 0, "resid_pdrop": 0}, "dropout", False),
        (without(HUB["gpt2"], "attn_pdrop", "embd_pdrop", "resid_pdrop"), "dropout", True),
        (HUB["opt-125M"] | {"dropout": 0.0}, "dropout", False),
        (HUB["opt-125M"] | {"enable_bias": False}, "mlp_bias", False),
        (without(HUB["phi-2"], "partial_rotary_factor"), "rotary", 0.5),
        (
            without(HUB["phi-2"], "partial_rotary_factor")
            | {"rope_parameters": {"partial_rotary_factor": 0.4}},
            "rotary",
            0.4,
        ),
        (HUB["pythia-6.9B"] | {"use_parallel_residual": False}, "parallel_attention", False),
        (HUB["pythia-6.9B"] | {"attention_bias": False}, "qkv_bias", False),
        (HUB["pythia-6.9B"] | {"attention_bias": False}, "mlp_bias", True),
        (HUB["deepseek-v3"] | {"topk_method": "greedy"}, "router_bias", False),
        (HUB["deepseek-v3"] | {"n_shared_experts": None}, "shared_feedforward", 0),
        (HUB["deepseek-v2"], "shared_feedforward", 2 * 1536),
        (HUB["deepseek-v2"], "mtp_layers", 0),
        (without(HUB["deepseek-v3"], "num_nextn_predict_layers"), "mtp_layers", 0),
        (HUB["deepseek-v3"] | {"num_nextn_predict_layers": None}, "mtp_layers", 0),
        (HUB["glm-4.5-air"] | {"use_qk_norm": True}, "qk_norm", "head"),
        (HUB["glm-4.5-air"] | {"attention_bias": False}, "qkv_bias", False),
        (HUB["glm-4.5-air"], "out_bias", False),
        (HUB["minimax-m2"], "mtp_layers", 3),
        (HUB["minimax-m2"] | {"use_mtp": False}, "mtp_layers", 0),
        (without(HUB["minimax-m2"], "num_mtp_modules"), "mtp_layers", 0),
        (HUB["minimax-m2"] | {"num_mtp_modules": None}, "mtp_layers", 0),
        (HUB["nemotron3-nano"] | {"n_shared_experts": None}, "shared_feedforward", 0),
        (HUB["nemotron3-nano"] | {"n_shared_experts": 0}, "shared_feedforward", 0),
        (HUB["nemotron3-nano"] | {"mlp_bias": True}, "mlp_bias", False),  # no part is an MLP
        (HUB["nemotron-h-56B"] | {"mlp_bias": True}, "mlp_bias", True),
        (HUB["mixtral-8x7B"] | {"sliding_window": 32767}, "sliding_window", 32767),
        (HUB["mixtral-8x7B"] | {"sliding_window": 32768}, "sliding_window", 0),
        (without(HUB["nemotron3-nano"], "n_shared_experts"), "shared_feedforward", 3712),
        (HUB["granite4-h-small"] | {"position_embedding_type": "rope"}, "rotary", 1.0),
        (without(HUB["qwen3-next"], "full_attention_interval"), "full_attention_every", 4),
        (without(HUB["opt-125M"], "dropout"), "dropout", True),
        (HUB["opt-125M"] | {"dropout": 0.0, "attention_dropout": 0.1}, "dropout", True),
        (HUB["llama4-scout"] | {"moe_layers": [*range(2, 48, 3)]}, "moe_layer_freq", 3),
        (HUB["qwen3-next"] | {"full_attention_interval": 48}, "full_attention_every", 48),
        (HUB["qwen3-next"] | {"full_attention_interval": 49}, "full_attention_every", 0),
        (HUB["qwen3-next"] | {"full_attention_interval": 49}, "kv_heads", 0),
    ]:
        assert getattr(from_huggingface(config, "file"), field) == value, field


def test_blocks_without_experts_lead_or_come_in_steps():
    """Source: Hugging Face Transformers, models/qwen3_moe: not listed, and (number + 1) % step == 0."""
    for changes, leading, every in [
        ({}, 0, 1),
        ({"mlp_only_layers": None, "decoder_sparse_step": None}, 0, 1),
        ({"decoder_sparse_step": 2}, 0, 2),
        ({"mlp_only_layers": [0, 1, 2]}, 3, 1),
        ({"mlp_only_layers": [0, 1, 2], "decoder_sparse_step": 2}, 2, 2),
        ({"mlp_only_layers": [0, 1, 2, 3], "decoder_sparse_step": 3}, 3, 3),
    ]:
        config = HUB["qwen3-30B"] | changes
        model = from_huggingface(config, "file")
        assert (model.first_k_dense, model.moe_layer_freq) == (leading, every), changes
        listed, step = config["mlp_only_layers"] or [], config["decoder_sparse_step"] or 1
        for block in range(48):
            with_experts = block not in listed and (block + 1) % step == 0
            assert model.expert_block(block) == with_experts, changes


def test_groups_of_experts_limit_where_tokens_go():
    for config, groups, reached in [
        (HUB["deepseek-v2"], 8, 3),
        (HUB["deepseek-v2"] | {"topk_method": "greedy"}, 0, 0),
        (HUB["deepseek-v3"], 8, 4),
        (without(HUB["deepseek-v3"], "topk_method", "n_group", "topk_group"), 8, 4),
        (without(HUB["deepseek-v2"], "n_group"), 0, 0),
        (HUB["deepseek-v3"] | {"topk_group": 8}, 0, 0),
        (HUB["kimi-k2"], 0, 0),
        (HUB["kimi-k2"] | {"n_group": None, "topk_group": None}, 0, 0),
    ]:
        model = from_huggingface(config, "file")
        assert (model.router_groups, model.router_group_topk) == (groups, reached), config


def test_llama_4_attends_in_chunks_but_for_blocks_without_rotary_positions():
    for changes, window, every in [
        ({}, 8192, 4),
        ({"attention_chunk_size": None}, 0, 0),
        ({"no_rope_layer_interval": 2}, 8192, 2),
        ({"no_rope_layers": 24 * [1, 0]}, 8192, 2),
        ({"no_rope_layers": 48 * [1]}, 8192, 0),
        (
            {"layer_types": 16 * ["chunked_attention", "chunked_attention", "full_attention"]},
            8192,
            3,
        ),
    ]:
        model = from_huggingface(HUB["llama4-scout"] | changes, "file")
        assert (model.sliding_window, model.full_attention_every) == (window, every), changes
        assert model.chunked_window == (window > 0), changes


def test_the_text_model_of_several_is_read_and_said():
    kimi = HUB["kimi-k2"]
    for outer in [
        {"model_type": "kimi_vl", "text_config": kimi, "vision_config": {}},
        {"model_type": "new_vl", "llm_config": kimi},
        {"model_type": "omni", "thinker_config": {"text_config": kimi}},
        {"model_type": "kimi_k2", "text_config": without(kimi, "model_type")},
    ]:
        assert from_huggingface(outer, "file") == from_huggingface(kimi, "file")
        assert source_of(outer).endswith("the text model only")
    assert source_of(llama(vision_config={"depth": 3})).endswith("the text model only")


def test_the_text_model_inherits_tied_embeddings():
    for tied in (True, False):
        outer = {"model_type": "x", "tie_word_embeddings": tied}
        text = {"text_config": without(llama(), "tie_word_embeddings")}
        assert from_huggingface(outer | text, "file").tied == tied
        assert not from_huggingface(outer | {"text_config": llama()}, "file").tied


def test_layers_of_granite_that_are_in_no_equal_groups_become_two_parts_each():
    for changes, pattern, every in [
        ({}, "ME" * 5 + 3 * ("*E" + 9 * "ME") + "*E" + 4 * "ME", 0),
        ({"layer_types": 4 * [*9 * ["mamba"], "attention"]}, "", 10),
        ({"layer_types": 40 * ["mamba"]}, "", 0),
        ({"num_local_experts": 0}, "M-" * 5 + 3 * ("*-" + 9 * "M-") + "*-" + 4 * "M-", 0),
    ]:
        model = from_huggingface(HUB["granite4-h-small"] | changes, "file", seq_size=4096)
        assert (model.layer_pattern, model.full_attention_every) == (pattern, every), changes
        assert model.num_blocks == (80 if pattern else 40), changes
        assert model.linear_attention == "mamba2", changes


def test_granite_without_states_has_none_of_their_fields():
    plain = HUB["granite4-h-small"] | {"layer_types": 40 * ["attention"], "num_local_experts": 0}
    model = from_huggingface(plain, "file", seq_size=4096)
    assert (model.linear_attention, model.ssm_heads, model.layer_pattern) == ("none", 0, "")
    assert (model.feedforward, model.kv_heads, model.rotary) == (1536, 8, 0)


def test_kinds_of_parts_are_a_pattern_or_a_list():
    words = {"M": "mamba", "E": "moe", "*": "attention", "-": "mlp"}
    listed = [words[letter] for letter in HUB["nemotron3-nano"]["hybrid_override_pattern"]]
    other = without(HUB["nemotron3-nano"], "hybrid_override_pattern") | {
        "layers_block_type": listed
    }
    assert from_huggingface(other, "file") == from_huggingface(HUB["nemotron3-nano"], "file")


# -- errors -----------------------------------------------------------------------------------------------------------


def test_a_configuration_is_an_object():
    for raw in [None, [], 3, "text"]:
        assert refused(raw).expected == "an object with named fields", raw


def test_a_family_that_cannot_be_expressed_is_refused_with_the_reason():
    for kind in OTHERS:
        error = refused(llama(model_type=kind))
        assert error.field == "model_type", kind
        assert error.found == repr(kind), kind
        assert error.hint == f"not supported: {OTHERS[kind]}", kind


def test_an_unknown_family_is_refused():
    for kind, hint in [("lama", "did you mean 'llama'?"), ("zzz", ""), (3, ""), (["llama"], "")]:
        error = refused(llama(model_type=kind))
        assert error.field == "model_type", kind
        assert error.hint.startswith(hint), kind
        assert str(error).count("\n") == 0


def test_a_document_of_another_kind_is_refused():
    error = refused(inputs.model("gpt3-175B").to_dict())
    assert (error.field, error.hint) == ("model_type", "it is a model already")
    assert refused({"hidden_size": 3}).hint == "is this a config.json?"


def test_a_feature_that_cannot_be_expressed_is_named():
    for key in INEXPRESSIBLE:
        name, _, inner = key.partition(".")
        error = refused(llama(**{name: {inner: 8} if inner else {"bits": 4}}))
        assert error.field == key, key
        assert error.expected == f"a model without {INEXPRESSIBLE[key][0]}", key


def test_a_key_that_is_null_under_one_of_its_names_is_not_missing():
    config = without(HUB["qwen3.5-397B-text"], "moe_intermediate_size") | {
        "intermediate_size": None
    }
    assert (refused(config).field, refused(config).found) == ("intermediate_size", "null")


ACT_OF_DBRX = "ffn_config.ffn_act_fn.name"


def test_a_value_without_meaning_is_refused_with_its_key():
    for config, field in [
        (llama(architectures=["LlamaForSequenceClassification"]), "architectures"),
        (HUB["mistral-7B"] | {"attention_bias": True}, "attention_bias"),
        (HUB["opt-125M"] | {"do_layer_norm_before": False}, "do_layer_norm_before"),
        (HUB["opt-125M"] | {"_remove_final_layer_norm": True}, "_remove_final_layer_norm"),
        (HUB["opt-125M"] | {"word_embed_proj_dim": 512}, "word_embed_proj_dim"),
        (HUB["phi-2"] | {"qk_layernorm": True}, "qk_layernorm"),
        (HUB["mpt-7B"] | {"norm_type": "rmsnorm"}, "norm_type"),
        (HUB["mpt-7B"] | {"attn_config": {"alibi": True, "qk_ln": True}}, "attn_config.qk_ln"),
        (
            HUB["mpt-7B"]
            | {"attn_config": {"alibi": True, "attn_type": "grouped_query_attention"}},
            "attn_config.attn_type",
        ),
        (HUB["qwen3-30B"] | {"decoder_sparse_step": 0}, "decoder_sparse_step"),
        (HUB["qwen3-30B"] | {"mlp_only_layers": [0, 47]}, "mlp_only_layers"),
        (HUB["qwen3-30B"] | {"num_experts_per_tok": 0}, "num_experts_per_tok"),
        (HUB["mixtral-8x7B"] | {"quantization_config": {"bits": 4}}, "quantization_config"),
        (HUB["minimax-m2"] | {"attn_type_list": [0, *61 * [1]]}, "attn_type_list"),
        (HUB["minimax-m2"] | {"mtp_transformer_layers": 2}, "mtp_transformer_layers"),
        (HUB["deepseek-v3"] | {"moe_layer_freq": 2}, "moe_layer_freq"),
        (HUB["deepseek-v3"] | {"attention_bias": True}, "attention_bias"),
        (HUB["deepseek-v3"] | {"num_key_value_heads": 8}, "num_key_value_heads"),
        (HUB["deepseek-v2"] | {"num_nextn_predict_layers": 1}, "num_nextn_predict_layers"),
        (HUB["glm-4.5-air"] | {"head_dim": None}, "head_dim"),
        (HUB["llama4-scout"] | {"moe_layers": [1, 3]}, "moe_layers"),
        (HUB["llama4-scout"] | {"interleave_moe_layer_step": 0}, "interleave_moe_layer_step"),
        (HUB["llama4-scout"] | {"no_rope_layers": 47 * [1]}, "no_rope_layers"),
        (HUB["llama4-scout"] | {"layer_types": 48 * ["sliding_attention"]}, "layer_types"),
        (without(HUB["llama4-maverick"], "text_config"), "hidden_size"),
        (
            HUB["dbrx"]
            | {"ffn_config": HUB["dbrx"]["ffn_config"] | {"ffn_act_fn": {"name": "relu"}}},
            ACT_OF_DBRX,
        ),
        (llama(hidden_act="mish"), "hidden_act"),
        (llama(num_key_value_heads=5), "num_key_value_heads"),
        (llama(hidden_size=4095), "head_dim"),
        (llama(hidden_size="4096"), "hidden_size"),
        (llama(tie_word_embeddings="no"), "tie_word_embeddings"),
        (HUB["falcon-180B"] | {"num_kv_heads": 7}, "num_key_value_heads"),
        (
            HUB["gemma3-4B"] | {"text_config": {"hidden_size": 2560}},
            "text_config.intermediate_size",
        ),
        (
            HUB["qwen2.5-0.5B"] | {"use_sliding_window": True, "max_window_layers": 12},
            "max_window_layers",
        ),
        (
            HUB["gemma2-27B"] | {"layer_types": ["full_attention", "sliding_attention"] * 23},
            "layer_types",
        ),
        (HUB["gemma2-27B"] | {"layer_types": ["full_attention"]}, "layer_types"),
        (HUB["gemma2-27B"] | {"layer_types": ["linear_attention"] * 46}, "layer_types"),
        (HUB["gemma2-27B"] | {"layer_types": "full_attention"}, "layer_types"),
        (llama(layer_types=["sliding_attention"] * 32), "layer_types"),
        (HUB["qwen3-next"] | {"full_attention_interval": 1}, "full_attention_interval"),
        (HUB["qwen3-next"] | {"layer_types": 48 * ["full_attention"]}, "layer_types"),
        (
            HUB["qwen3-next"] | {"layer_types": 24 * ["full_attention", "linear_attention"]},
            "layer_types",
        ),
        (HUB["qwen3-next"] | {"layer_types": 12 * ["linear_attention"]}, "layer_types"),
        (HUB["minimax-text-01"] | {"attn_type_list": 80 * [2]}, "attn_type_list"),
        (HUB["minimax-text-01"] | {"shared_intermediate_size": 4736}, "shared_intermediate_size"),
        (HUB["nemotron3-nano"] | {"hybrid_override_pattern": "MEX"}, "hybrid_override_pattern"),
        (HUB["nemotron3-nano"] | {"num_hidden_layers": 51}, "hybrid_override_pattern"),
        (HUB["nemotron3-nano"] | {"block_configs": [{"block_type": "moe"}]}, "block_configs"),
        (HUB["nemotron3-nano"] | {"use_bias": True}, "use_bias"),
        (
            HUB["nemotron3-super"] | {"mtp_hybrid_override_pattern": "M"},
            "mtp_hybrid_override_pattern",
        ),
        (HUB["granite4-h-small"] | {"layer_types": 40 * ["lstm"]}, "layer_types"),
        (HUB["tencent/Hunyuan-A13B-Pretrain"] | {"moe_topk": [8, 4]}, "moe_topk"),
        (HUB["CohereLabs/c4ai-command-r-v01"] | {"use_qk_norm": True}, "use_qk_norm"),
    ]:
        assert refused(config).field == field, field


USUAL = {
    "hidden_size",
    "intermediate_size",
    "max_position_embeddings",
    "num_attention_heads",
    "num_hidden_layers",
    "vocab_size",
}
GROUPED = USUAL | {"num_key_value_heads"}
GPT2 = {"n_embd", "n_head", "n_layer", "vocab_size"}
GEMMA3 = {"hidden_size", "intermediate_size", "num_hidden_layers"}
CHOSEN = USUAL | {"num_experts_per_tok"}
ROUTED = CHOSEN | {"moe_intermediate_size", "n_routed_experts", "n_shared_experts"}
NEMOTRON_H = USUAL | {"head_dim", "hybrid_override_pattern", "mamba_num_heads"}
NEMOTRON_3 = NEMOTRON_H | {
    *("n_routed_experts", "num_experts_per_tok", "moe_intermediate_size"),
    "moe_shared_expert_intermediate_size",
}
SHARED = CHOSEN | {"num_experts", "moe_intermediate_size", "shared_expert_intermediate_size"}
NEEDED = {
    **dict.fromkeys(("mixtral", "phimoe", "granitemoe", "gpt_oss"), CHOSEN | {"num_local_experts"}),
    **dict.fromkeys(("olmoe", "grok-1"), CHOSEN | {"num_experts"}),
    "minimax_m2": CHOSEN | {"num_local_experts", "head_dim"},
    "qwen2_moe": SHARED,
    **dict.fromkeys(
        ("qwen3_moe", "qwen3_vl_moe"), CHOSEN | {"num_experts", "moe_intermediate_size"}
    ),
    **dict.fromkeys(
        ("deepseek_v2", "deepseek_v3", "deepseek_v32", "glm_moe_dsa", "kimi_k2"),
        ROUTED | {"first_k_dense_replace"},
    ),
    **dict.fromkeys(("deepseek", "dots1", "glm4_moe_lite", "mistral4"), ROUTED),
    **dict.fromkeys(("glm4_moe", "glm4v_moe"), ROUTED | {"head_dim"}),
    "llama4": CHOSEN | {"intermediate_size_mlp", "num_local_experts"},
    "qwen3_next": SHARED,
    "qwen3_5_moe": SHARED - {"intermediate_size"},
    **dict.fromkeys(
        ("minimax", "minimax_text_01", "minimax_m1"), CHOSEN | {"num_local_experts", "head_dim"}
    ),
    "granitemoehybrid": CHOSEN | {"layer_types", "shared_intermediate_size"},
    "nemotron_h": NEMOTRON_H,
    **dict.fromkeys(("nemotron3-nano", "nemotron3-super"), NEMOTRON_3),
    "dbrx": {
        *("d_model", "n_heads", "n_layers", "max_seq_len", "vocab_size"),
        *("attn_config", "ffn_config"),
    },
    **dict.fromkeys(
        ("mistral", "ministral3", "qwen2", "qwen2_vl", "qwen2_5_vl", "qwen3", "qwen3_vl"), GROUPED
    ),
    **dict.fromkeys(("gemma", "gemma2"), GROUPED),
    "gemma3": GEMMA3,
    **dict.fromkeys(("gptj", "gpt_bigcode", "codegen"), GPT2 | {"n_positions"}),
    "chatglm": {
        *("ffn_hidden_size", "hidden_size", "num_attention_heads", "num_layers"),
        *("padded_vocab_size", "seq_length"),
    },
    "bamba": USUAL | {"attn_layer_indices"},
    "hunyuan_v1_moe": USUAL | {"moe_topk", "num_experts", "num_shared_expert"},
    **dict.fromkeys(
        ("bailing_moe", "bailing_moe_v2"),
        CHOSEN | {"moe_intermediate_size", "num_experts", "num_shared_experts"},
    ),
    "ernie4_5_moe": USUAL
    | {"moe_intermediate_size", "moe_k", "moe_num_experts", "moe_num_shared_experts"},
    "opt": USUAL - {"intermediate_size"} | {"ffn_dim"},
    "falcon": USUAL - {"intermediate_size", "max_position_embeddings"},
    "gpt2": GPT2,
    "bloom": {"n_embed", "num_attention_heads", "n_layer", "seq_length", "vocab_size"},
    "mpt": {
        *("d_model", "n_heads", "n_layers", "expansion_ratio", "max_seq_len", "vocab_size"),
        *("no_bias", "attn_config"),
    },
}
"""Keys without default, or with one that differs between versions, by family or example; the usual ones for others."""


def test_exactly_what_has_no_certain_default_is_needed():
    for name, config in HUB.items():
        text = text_of(config)
        kind = text["model_type"].removesuffix("_text")
        needed = NEEDED.get(name, NEEDED.get(kind, USUAL))
        for key in set(text) - {"model_type"}:
            less = without(text, key)
            if key in needed:
                assert refused(less).found == "nothing (the key is missing)", (name, key)
            else:
                assert from_huggingface(less, "config.json"), (name, key)


def test_every_missing_key_is_told_at_once():
    error = refused({"model_type": "llama", "tie_word_embeddings": 3, "num_experts": 8})
    told = [problem.field for problem in error.problems]
    assert told == ["num_experts", *sorted(USUAL), "tie_word_embeddings"]


ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 200),
    st.floats(),
    st.text(max_size=3),
    st.lists(st.sampled_from(["full_attention", "sliding_attention", 3, {}]), max_size=3),
    st.dictionaries(st.sampled_from(["alibi", "hidden_size", "bits"]), st.integers(), max_size=2),
)


@given(st.data())
def test_whatever_a_configuration_holds_it_is_a_model_or_an_error_of_ours(data):
    config = copy.deepcopy(CASES[data.draw(st.sampled_from(sorted(CASES)))].config)
    text = config.get("text_config", config)
    keys = [*text, "layer_types", "head_dim", "architectures", "rope_parameters", "_name_or_path"]
    for key in data.draw(st.lists(st.sampled_from(keys), min_size=1, max_size=3)):
        text[key] = data.draw(ODD)
    assert isinstance(source_of(config), str)
    try:
        model = from_huggingface(config, "config.json")
    except SpecError as error:
        assert error.problems  # noqa: PT017
    else:
        assert parameter_count(model) > 0


@pytest.mark.parametrize(
    "config",
    [
        llama(num_hidden_layers=100_000),
        HUB["gemma2-27B"] | {"num_hidden_layers": 100_000},
        HUB["qwen2.5-0.5B"]
        | {"use_sliding_window": True, "num_hidden_layers": 100_000, "max_window_layers": 0},
    ],
)
def test_many_blocks_are_not_made_one_by_one(config):
    tracemalloc.start()
    assert from_huggingface(config, "file").num_blocks == 100_000
    assert tracemalloc.get_traced_memory()[1] < 2**20
    tracemalloc.stop()


def test_a_model_with_an_indexer_says_that_it_is_without():
    assert about_of(HUB["glm-5"])["note"] == document("models", "glm-5")["about"]["note"]
    assert "note" not in about_of(HUB["deepseek-v3"])
