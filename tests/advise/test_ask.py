"""What is asked is understood, and what is not said is assumed aloud."""

import json

import pytest

from calculon import inputs
from calculon.advise.answer import BEST, baseline_plan, space_of
from calculon.advise.ask import ask
from calculon.advise.planning import plan
from calculon.base.errors import Infeasible, SpecError
from calculon.declarations.usual_batch import (
    LONGEST_UNASKED,
    MAX_PER_PROCESSOR,
    TOKENS_PER_BATCH,
    TOKENS_PER_PROCESSOR,
)
from calculon.search.driver import run
from calculon.search.ranking import Best
from tests.cases import for_each


@for_each(
    ("procs", "tokens"),
    [
        (1, MAX_PER_PROCESSOR),
        (8, 8 * MAX_PER_PROCESSOR),
        (64, TOKENS_PER_BATCH),
        (1024, TOKENS_PER_BATCH),
        (16384, 16384 * TOKENS_PER_PROCESSOR),
    ],
)
def test_a_default_batch_has_4_mi_tokens_within_bounds_for_each_processor(procs, tokens):
    asked = ask("llama3-8B", procs, "h100_80g_sxm")
    assert asked.tokens_per_step == tokens
    assert "--batch" in asked.assumed


@for_each(
    ("procs", "system", "words", "preset"),
    [
        (15, "h100_80g_sxm", {}, "torchtitan"),
        (16, "h100_80g_sxm", {}, "megatron-lm"),
        ((8, 64), "mi300x", {}, "megatron-lm"),
        (8, "tpu_v6e", {}, "maxtext"),
        (8, "trainium2", {}, "common"),
        (8, "h100_80g_sxm", {"dtype": "fp8"}, "megatron-lm"),
        (8, "h100_80g_sxm", {"dtype": "fp8-tensorwise"}, "torchtitan"),
        (8, "h100_80g_sxm", {"mine": "tp=4 sp=off"}, "megatron-lm"),
        (8, "h100_80g_sxm", {"add": {"optimizer_offload": (True,)}}, "megatron-lm"),
    ],
)
def test_the_default_preset_shards_parameters_on_few_processors(procs, system, words, preset):
    asked = ask("llama3-8B", procs, system, **words)
    assert (asked.preset.name, asked.assumed["--preset"]) == (preset, preset)


def test_plans_of_experts_on_few_processors_say_why_they_have_another_preset():
    why = "megatron-lm, as torchtitan is not modeled for experts"
    assert ask("mixtral-8x7B", 8, "h100_80g_sxm").assumed["--preset"] == why
    assert ask("mixtral-8x7B", 16, "h100_80g_sxm").assumed["--preset"] == "megatron-lm"


@pytest.mark.parametrize(("procs", "odd"), [(1000, 125), (96, 3), (65, 65), (1024, 1)])
def test_replicas_can_share_an_assumed_batch(procs, odd):
    asked = ask("llama3-8B", procs, "h100_80g_sxm")
    assert asked.batch_size % odd == 0
    assert asked.tokens_per_step == pytest.approx(TOKENS_PER_BATCH, rel=1 / 16)


def test_what_is_stated_is_not_assumed():
    asked = ask(
        *("llama3-8B", "64", "h100_80g_sxm"),
        preset="torchtitan",
        batch="1M",
        seq="4k",
        dtype="bf16",
        tokens_of_run="15T",
    )
    assert asked.assumed == {}
    assert asked.model.seq_size == 4096
    assert asked.batch_size == 2**20 // 4096
    assert asked.tokens == 15e12


def test_long_sequences_are_not_assumed():
    asked = ask("gemma3-27B", 64, "h100_80g_sxm")
    assert asked.model.seq_size == LONGEST_UNASKED
    assert "32,768" in asked.assumed["--seq"]


def test_half_and_twice_as_many_are_planned_beside_one_count():
    assert ask("llama3-8B", 64, "h100_80g_sxm").counts == (32, 64, 128)
    assert ask("llama3-8B", 1, "h100_80g_sxm").counts == (1, 2)
    assert ask("llama3-8B", 65536, "h100_80g_sxm").counts == (32768, 65536)  # all that there are
    assert ask("llama3-8B", (8, 64), "h100_80g_sxm").counts == (8, 64)
    assert ask("llama3-8B", "8,64", "h100_80g_sxm").counts == (8, 64)


def test_8_bits_are_a_recipe_on_16():
    for word, recipe in {"fp8": "delayed", "MXFP8": "mxfp8", "fp4": "nvfp4"}.items():
        asked = ask("llama3-8B", 64, "b200_sxm", dtype=word)
        assert (asked.datatype, asked.fixed["fp8_recipe"]) == ("bfloat16", recipe)
        assert "matmul_dtype" not in asked.fixed


@pytest.mark.parametrize(
    ("system", "dtype", "words"),
    [
        ("a100_80g_sxm", "fp8", "bf16, fp16, fp32, tf32, found fp8"),
        ("h100_80g_sxm", "nvfp4", "fp8, fp8-tensorwise, fp8-blockwise, found nvfp4"),
    ],
)
def test_a_precision_that_a_system_lacks_is_refused_in_the_same_word(system, dtype, words):
    with pytest.raises(SpecError, match=rf"^--dtype: expected a precision .*{words}"):
        ask("llama3-8B", 64, system, dtype=dtype)


@for_each(
    ("procs", "options", "words"),
    [
        (64, {"preset": "published"}, "framework"),
        (64, {"batch": 4194304}, "did you mean 4194304tok"),
        ((), {}, "1 to 100 processor counts"),
        (65537, {}, r"1 fewer than 65,537. Hint: --set networks\[1\].size=65537 assumes"),
    ],
)
def test_what_cannot_be_planned_is_told_at_once(procs, options, words):
    with pytest.raises(Infeasible if procs == 65537 else SpecError, match=words):
        ask("llama3-8B", procs, "h100_80g_sxm", **options)


@for_each(
    ("name", "hint"),
    [
        (
            "foo",
            "the arguments are preset, tokens, batch, seq, dtype, mine, fix, add, campaign, risk, ob",
        ),
        ("batch_siz", "did you mean 'batch'?"),
        ("deadlin", "did you mean 'deadline'?"),
    ],
)
def test_an_unknown_argument_of_plan_is_named(name, hint):
    with pytest.raises(SpecError) as error:
        plan("llama3-8B", 8, "h100", **{name: 3})
    assert str(error.value).startswith(
        f"plan: {name}: expected an argument of plan, found '{name}'"
    )
    assert error.value.hint.startswith(hint)


@for_each(
    ("micro", "accumulated"),
    [(1, 4), (2, 8)],
)
def test_a_deepspeed_configuration_leaves_the_length_to_the_model(micro, accumulated, tmp_path):
    own = tmp_path / "ds.json"
    batch = {
        "train_micro_batch_size_per_gpu": micro,
        "gradient_accumulation_steps": accumulated,
    }
    zero = {"bf16": {"enabled": True}, "zero_optimization": {"stage": 3}}
    own.write_text(json.dumps({**batch, **zero}))
    asked = ask("llama3-8B", 64, "h100_80g_sxm", mine=str(own))
    assert asked.batch_size == 64 * micro * accumulated
    assert asked.model.seq_size == ask("llama3-8B", 64, "h100_80g_sxm").model.seq_size
    assert baseline_plan(asked).estimate.execution.zero_stage == "3"


def test_a_preset_of_a_file_is_that_of_the_plans(tmp_path):
    own = tmp_path / "mine.json"
    own.write_text(
        '{"title": "Ours", "base": "megatron-lm", '
        '"fields": {"ce_impl": {"value": "fused", "why": "Ours."}}}'
    )
    question = ask("llama3.2-1B", 8, "h100_80g_sxm", batch=32, preset=str(own), mine="tp=2")
    assert question.preset.name == "mine"
    assert baseline_plan(question).estimate.execution.ce_impl == "fused"
    assert run(space_of(question, 8), Best(BEST, 1)).best.execution.ce_impl == "fused"


@pytest.mark.parametrize("name", ["h100_80g_sxm", "mi300x", "tpu_v5p"])
def test_a_system_that_was_read_has_the_framework_of_its_name(name):
    by_name = ask("llama3-8B", 64, name)
    read = ask("llama3-8B", 64, inputs.system(name))
    changed = ask("llama3-8B", 64, inputs.system(inputs.Changed.of(name, {"mem1.GiB": 120})))
    assert {one.preset.name for one in (read, changed)} == {by_name.preset.name}
    assert (by_name.preset.name == "megatron-lm") == (name != "tpu_v5p")
