"""A plan in the words of the field, and short names of fields and statistics."""

import re

import pytest

from calculon.base.records import columns
from calculon.declarations.axes import AXES
from calculon.declarations.execution import Execution
from calculon.declarations.fields import spec_fields
from calculon.declarations.named_values import ZERO_STAGES
from calculon.declarations.plan_words import choices_words, degrees_words, plan_words
from calculon.declarations.presets import find_preset
from calculon.declarations.short_names import FIELDS, STATISTICS, field_name, field_value, short_of
from calculon.declarations.spellings.plan_pairs import plan_fields
from calculon.declarations.statistics import CorrectedStats
from calculon.plan.plan import NAMES


def _execution(preset="megatron-lm", **fields):
    stated = {
        "num_procs": 1024,
        "tensor_par": 4,
        "pipeline_par": 4,
        "data_par": 64,
        "pipeline_interleaving": 5,
        "batch_size": 1024,
        "microbatch_size": 1,
        "datatype": "bfloat16",
        "edition": "corrected",
        **fields,
    }
    whole = {one.name: one.default for one in spec_fields(Execution)}
    return whole | find_preset(preset).completed(stated)


def _words(preset="megatron-lm", **fields):
    execution = _execution(preset, **fields)
    return plan_words(execution, find_preset(preset).usual(execution))


def test_a_plan_as_people_say_it():
    assert _words(recompute_modules="norm") == (
        "TP 4, PP 4 x 5 chunks, DP 64, microbatch 1, ZeRO-1, sequence parallel, recompute norms"
    )


@pytest.mark.parametrize(
    ("degrees", "expected"),
    [
        ((4, 4, 64, 5), "TP 4, PP 4 x 5, DP 64"),
        ((1, 1, 1024, 1), "DP 1,024"),
        ((1, 1, 1, 1), "one processor"),
        ((8, 16, 1, 1), "TP 8, PP 16"),
        ((2, 2, 2, 2), "TP 2, PP 2 x 2, DP 2"),
    ],
)
def test_degrees_of_1_are_left_out(degrees, expected):
    names = ("tensor_par", "pipeline_par", "data_par", "pipeline_interleaving")
    fields = dict(zip(names, degrees, strict=True))
    assert degrees_words(_execution(**fields)) == expected
    assert _words(**fields).startswith(re.sub("( x .)", r"\1 chunks", expected))


def test_what_is_not_usual_has_its_word():
    for fields, expected in [
        ({"activation_recompute": "full"}, "full recompute"),
        ({"activation_recompute": "full", "recompute_every": 3}, "full recompute in 1 of 3 blocks"),
        (
            {"activation_recompute": "full", "recompute_every": 8, "recompute_blocks": 3},
            "full recompute in 3 of 8 blocks",
        ),
        (
            {"activation_recompute": "full", "recompute_every": 3, "recompute_blocks": 3},
            "full recompute",
        ),
        ({"activation_recompute": "attn_only"}, "recompute attention"),
        ({"recompute_modules": "mlp+moe"}, "recompute MLPs and experts"),
        (
            {"recompute_modules": "norm+mla_up_proj+moe_act"},
            "recompute norms and latent heads and expert activations",
        ),
        (
            {"activation_recompute": "attn_only", "recompute_modules": "shared_experts"},
            "recompute attention and shared experts",
        ),
        ({"tensor_par_comm_type": "ar"}, "no sequence parallelism"),
        ({"data_par_overlap": False}, "no DP overlap"),
        ({"overlap_param_gather": False}, "no param-gather overlap"),
        ({"p2p_overlap": False}, "no p2p overlap"),
        ({"weight_offload": True, "optimizer_offload": True}, "offload weights + optimizer"),
        ({"matmul_dtype": "float8"}, "FP8 matmuls (delayed scaling)"),
        ({"fp8_recipe": "tensorwise"}, "FP8 matmuls (tensorwise scaling)"),
        ({"fp8_recipe": "nvfp4"}, "NVFP4 matmuls"),
        ({"fp8_recipe": "nvfp4_plain"}, "NVFP4 matmuls (without rotation)"),
        ({"pp_layout": "both_as_blocks"}, "embedding and head count as layers"),
        ({"first_stage_blocks": 7, "last_stage_blocks": 1}, "first stage 7 blocks"),
        ({"first_stage_blocks": 7, "last_stage_blocks": 1}, "last stage 1 block"),
        ({"stage_blocks": "9-8-8-7"}, "stages of 9-8-8-7 blocks"),
        ({"stage_blocks": "11-11-10m-0"}, "MTP modules on stage 2"),
        ({"stage_blocks": "5-4-4-4-4-4-4-3"}, "stages of 5-4-4-4-4-4-4-3 blocks"),
        ({"stage_blocks": "5-4-4-4-4-4-4-4-3"}, "3 to 5 blocks per chunk"),
        ({"stage_blocks": "5-4-4-4-4-4-4-4-3", "pipeline_par": 9}, "3 to 5 blocks per stage"),
        ({"zero_stage": "fsdp", "dp_shard": 8}, "FSDP over groups of 8"),
        ({"grad_comm_dtype": "bfloat16"}, "bfloat16 gradients"),
        ({"grad_comm_dtype": "same"}, "grad_comm_dtype=same"),
        ({"fusion": "none"}, "unfused"),
        ({"attn_impl": "eager"}, "eager"),
        ({"mesh_order": "tp-pp-dp"}, "tp-pp-dp"),
    ]:
        usual = set(_words().split(", "))
        assert expected in _words(**fields).split(", ")
        assert expected not in usual, fields


def test_a_preset_says_what_is_usual():
    alone = {"tensor_par": 1, "pipeline_par": 1, "data_par": 8, "pipeline_interleaving": 1}
    assert _words("torchtitan", **alone) == "DP 8, microbatch 1, FSDP, selective recompute"
    none = {"recompute_modules": "none", "reshard_after_forward": False}
    assert _words("torchtitan", **alone, **none) == (
        "DP 8, microbatch 1, FSDP, no recompute, kept weights"
    )


def test_every_form_of_data_parallelism_has_a_name():
    alone = {"tensor_par": 1, "pipeline_par": 1, "data_par": 8, "pipeline_interleaving": 1}
    named = [_words("common", zero_stage=stage, **alone).split(", ")[2] for stage in ZERO_STAGES]
    assert named == ["ZeRO-1", "DDP", "ZeRO-1", "ZeRO-2", "ZeRO-3", "FSDP", "owned layers"]


def test_every_value_of_every_field_has_words():
    for field in spec_fields(Execution):
        for value in field.declaration.choices or ():
            assert plan_words(_execution(**{field.name: value}))


def test_a_plan_with_experts_says_how_they_are_spread():
    words = _words(expert_par=32, expert_tensor_par=1)
    assert words.startswith("TP 4, PP 4 x 5 chunks, DP 64, EP 32, ETP 1, EDP 8, microbatch 1, ")
    assert words.count("ETP") == 1
    as_tensor = _words(expert_par=32)
    assert "EP 32, ETP 4, EDP 2, " in as_tensor
    assert "EP 2, ETP 4, EDP 32, " in _words(expert_par=2)  # 4 * 64 over 2 * 4
    assert "ETP" not in _words() + _words(expert_tensor_par=4)
    execution = _execution("megatron-lm", expert_par=32, expert_tensor_par=1)
    assert degrees_words(execution) == "TP 4, PP 4 x 5, DP 64, EP 32"
    assert "ETP 1" in choices_words(execution)
    execution = _execution("megatron-bridge", expert_par=32) | plan_fields({"etp": "0"}, "plan")
    usual = find_preset("megatron-bridge").usual(execution)
    assert plan_words(execution, usual).count("ETP") == 1
    assert "ETP as TP" in choices_words(execution, usual)


KNOWN = [one.name for one in columns(CorrectedStats)]


def test_short_names_mean_one_field_or_statistic_each():
    assert {*FIELDS.values()} <= {*NAMES}
    assert {*STATISTICS.values()} <= {*KNOWN}
    assert not {*FIELDS} & {*STATISTICS}
    assert not ({*FIELDS} | {*STATISTICS}) & ({*NAMES} | {*KNOWN})


def test_every_axis_has_a_short_name():
    assert {axis.name: axis.degree for axis in AXES}.items() <= FIELDS.items()


def test_short_names_in_capitals_mean_the_same():
    for short in FIELDS:
        assert field_name(short.upper()) == FIELDS[short]
        assert field_name(short_of(FIELDS[short])) == FIELDS[short]


def test_values_are_translated_after_their_short_name_alone():
    assert field_value("recompute", "off") == "none"
    assert field_value("activation_recompute", "off") == "off"
