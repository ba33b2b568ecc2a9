"""Quantized weights of released configurations: the fields of a deployment that have as many bytes."""

import pytest

from calculon.declarations.huggingface import about_of, from_huggingface, released_types
from calculon.declarations.quantized_weights import KEY, quantized_weights
from calculon.serving.records.read_records import read_deployment
from tests.declarations.configurations import HUB

_FP8 = {"num_bits": 8, "type": "float"}
_INT4 = {"num_bits": 4, "type": "int", "group_size": 128}


def _compressed(weights, **further):
    groups = {"group_0": {"targets": ["Linear"], "weights": weights}}
    return {"quant_method": "compressed-tensors", "config_groups": groups, **further}


def test_methods_have_their_fields():
    for raw, fields in [
        ({"quant_method": "mxfp4"}, {"experts_dtype": "mxfp4"}),
        ({"quant_method": "fp8"}, {"weights_dtype": "float8"}),
        (
            {"quant_method": "fp8", "weight_block_size": [128, 128]},
            {"weights_dtype": "float8_block"},
        ),
        ({"quant_method": "fp8", "weight_block_size": [64, 64]}, {}),
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, {"weights_dtype": "int4_g128"}),
        ({"quant_method": "gptq", "bits": 3, "group_size": 128}, {}),
        (_compressed(_FP8), {"weights_dtype": "float8"}),
        (_compressed(_INT4, ignore=["re:.*self_attn.*"]), {"experts_dtype": "int4_g128"}),
        (
            _compressed(_FP8, kv_cache_scheme=_FP8),
            {"weights_dtype": "float8", "kv_dtype": "float8"},
        ),
        (
            _compressed({"num_bits": 4, "type": "float", "group_size": 16}),
            {"weights_dtype": "nvfp4"},
        ),
        (_compressed({"num_bits": 3, "type": "int"}), {}),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, {"weights_dtype": "nvfp4"}),
        (
            {"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_quant_algo": "FP8"},
            {"weights_dtype": "float8", "kv_dtype": "float8"},
        ),
        ({"quant_method": "modelopt", "quant_algo": "W4A8"}, {}),
    ]:
        found = quantized_weights(raw)
        assert found is not None, (raw, fields)
        assert dict(found.fields) == fields, (raw, fields)
        assert read_deployment({"num_procs": 1, **found.fields}), (raw, fields)
        for name, value in fields.items():
            assert f"--set {name}={value}" in found.note, raw
        assert ("no weight type of a deployment" in found.note) is (not fields), (raw, fields)


def test_what_is_not_known_is_none():
    for raw in [None, 4, {}, {"bits": 4}, {"quant_method": "bitsandbytes"}]:
        assert quantized_weights(raw) is None


@pytest.mark.parametrize("config", [HUB["mixtral-8x7B"], HUB["deepseek-v2"]])
def test_a_quantized_model_is_the_same_model(config):
    quantized = config | {KEY: {"quant_method": "fp8", "weight_block_size": [128, 128]}}
    plain, narrow = (from_huggingface(one, "config.json") for one in (config, quantized))
    assert narrow == plain
    assert released_types(config) is None
    assert about_of(quantized)["deployment"] == {"weights_dtype": "float8_block"}
    assert "deployment" not in about_of(config)


def test_the_text_model_of_several_has_its_own():
    raw = {"text_config": {KEY: {"quant_method": "mxfp4"}}}
    found = released_types(raw)
    assert found is not None
    assert found.fields == {"experts_dtype": "mxfp4"}
    assert released_types([]) is None
