"""What is written for a launcher is read again as it was, and what it cannot say is refused by field."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import calculon
from calculon import inputs
from calculon.base.errors import SpecError
from calculon.declarations.execution import Execution
from calculon.launch.dialect import Dialect, read, settings_of, write
from calculon.launch.dialects import DIALECTS
from calculon.plan.columns import field_of
from calculon.plan.plan import Plan
from calculon.plan.rules.all_rules import check
from calculon.search.driver import feasible_numbers
from calculon.search.request import make_space
from tests.cases import for_each
from tests.draws import draws
from tests.launch.laws import plain_execution


def is_read_again(dialect: Dialect, model: calculon.Model, one: Execution) -> bool:
    """Hold that an execution and its model are read as they were written; return whether they can be written."""
    try:
        text = write(dialect, one.to_dict(), model)
    except SpecError:
        return False  # what the launcher cannot express
    launch = read(dialect, text, f"plan{dialect.suffix}", num_procs=one.num_procs)
    assert (launch.unknown, launch.not_modelled, launch.unresolved) == ((), (), ())
    length = one.seq_length or model.seq_size
    expected = replace(one, seq_length=length) if "seq_length" in dialect.fields else one
    again = replace(inputs.execution(launch.execution), preset=one.preset)
    for name in dialect.fields:
        assert getattr(again, name) == getattr(expected, name), name
    if again != expected:  # in fields that are without effect here
        machine = inputs.system("h100_80g_sxm")
        found, known = (calculon.estimate(model, each, machine) for each in (again, one))
        assert found.stats == known.stats
    if "hidden" in launch.model:
        heads = {"kv_heads": 0} if model.kv_heads == model.attn_heads else {}
        assert inputs.model(launch.model) == replace(model, seq_size=length, **heads)
    return True


FSDP = {"grad_comm_dtype": "same"}
ONE_STAGE = {"pipeline_par": 1}
STORING = {"activation_recompute": "none", "recompute_modules": "none"}


@pytest.mark.parametrize(
    ("launcher", "model", "options", "least"),
    [
        ("accelerate", "llama3-8B", {"fix": FSDP}, 4),
        ("accelerate", "qwen3-8B", {"fix": FSDP | {"ce_impl": ["fused", "eager"]}}, 4),
        ("accelerate", "llama3-8B", {"fix": FSDP | {"context_par": 2}}, 4),
        ("accelerate", "llama3.2-1B", {"fix": FSDP | {"tensor_par": 2}}, 4),
        ("deepspeed", "llama3-8B", {"fix": ONE_STAGE}, 1),
        ("deepspeed", "llama3-8B", {"fix": ONE_STAGE | {"optimizer_offload": True}}, 1),
        ("deepspeed", "llama3-8B", {"fix": ONE_STAGE | {"context_par": 2, "cp_comm": "a2a"}}, 1),
        ("deepspeed", "qwen3-30B-a3B", {"fix": ONE_STAGE | {"tensor_par": 1}}, 1),
        ("torchtitan", "llama3-8B", {}, 2),
        ("torchtitan", "qwen3-8B", {"add": {"dp_shard": [4], "compile_scope": ["blocks"]}}, 2),
        ("torchtitan", "qwen3-30B-a3B", {"fix": {"expert_tensor_par": 0, "tensor_par": 1}}, 2),
        ("torchtitan", "mistral-7B", {"fix": {"optimizer_impl": "foreach"}}, 2),
        ("megatron-bridge", "mixtral-8x7B", {"fix": {"tp_async": True}}, 4),
        ("nemo", "llama3-8B", {"fix": STORING | {"tp_async": True}}, 2),
    ],
)
def test_plans_of_a_search_are_read_as_they_were_written(launcher, model, options, least):
    dialect = DIALECTS[launcher]
    asked = ("h100_80g_sxm", 16, 32, "bfloat16")
    space = make_space(model, *asked, preset=dialect.preset, **options)
    numbers = np.concatenate(list(feasible_numbers(space)))
    chosen = np.random.default_rng(1).choice(numbers, min(4, len(numbers)), replace=False)
    plan, shape = space.plan(chosen), inputs.model(model)
    written = [is_read_again(dialect, shape, plan.row(row)) for row in range(len(chosen))]
    assert sum(written) >= min(least, len(chosen))


@for_each(
    ("launcher", "changes"),
    [
        ("accelerate", {"zero_stage": "3"}),
        (
            "accelerate",
            {"zero_stage": "2", "data_par_overlap": False, "optimizer_offload": True},
        ),
        ("accelerate", {"zero_stage": "0", "optimizer_sharding": False}),
        ("accelerate", {"dp_shard": 8}),
        ("accelerate", {"reshard_after_forward": False}),
        ("accelerate", {"fusion": "compile"}),
        ("accelerate", {"fp8_recipe": "tensorwise"}),
        ("accelerate", {"optimizer": "adam_8bit"}),
        ("accelerate", {"grad_clip": False}),
        ("accelerate", {"datatype": "float16"}),
        ("accelerate", {"context_par": 2, "data_par": 8, "cp_comm": "a2a", "zero_stage": "3"}),
        ("accelerate", {"context_par": 4, "data_par": 4, "cp_comm": "p2p"}),
        ("deepspeed", {"zero_stage": "2", "data_par_overlap": True, "ddp_bucket_mib": 25}),
        ("deepspeed", {"zero_stage": "3", "dp_shard": 4}),
        ("deepspeed", {"zero_stage": "3", "fsdp_prefetch": 0}),
        ("deepspeed", {"activations_offload": True}),
        ("deepspeed", {"optimizer": "lion"}),
        ("deepspeed", {"datatype": "float16"}),
        ("deepspeed", {"grad_dtype": "float32", "grad_comm_dtype": "float32"}),
        ("torchtitan", {"pp_schedule": "zbv", "pipeline_interleaving": 2}),
        ("torchtitan", {"stage_blocks": "17-15"}),
        (
            "torchtitan",
            {"zero_stage": "0", "optimizer_sharding": False, "reshard_after_forward": True},
        ),
        (
            "torchtitan",
            {"context_par": 2, "data_par": 2, "cp_comm": "all_gather", "cp_balance": "contiguous"},
        ),
        ("torchtitan", {"fp8_recipe": "mxfp8"}),
        ("torchtitan", {"launch_mode": "graph"}),
        ("torchtitan", {"optimizer_impl": "foreach", "grad_comm_dtype": "bfloat16"}),
        ("torchtitan", {"tensor_par_overlap": "ring"}),
    ],
)
def test_choices_are_read_as_they_were_written(launcher, changes):
    one = plain_execution(launcher, **changes)
    assert is_read_again(DIALECTS[launcher], inputs.model("llama3-8B"), one)


def test_graphs_of_padded_experts_are_read_as_they_were_written():
    padded = {"expert_par": 8, "moe_capacity_percent": 100, "moe_pad_to_capacity": True}
    one = plain_execution("megatron-lm", **padded, launch_mode="graph")
    assert is_read_again(DIALECTS["megatron-lm"], inputs.model("mixtral-8x7B"), one)


@for_each(
    ("launcher", "changes", "near"),
    [
        ("accelerate", {"zero_stage": "owner"}, "fsdp"),
        ("accelerate", {"data_par_overlap": True, "zero_stage": "1"}, "false"),
        ("accelerate", {"fsdp_prefetch": 2}, "1"),
        ("accelerate", {"activation_recompute": "attn_only"}, "full"),
        ("accelerate", {"optimizer_offload": True}, "DeepSpeed"),
        ("accelerate", {"grad_comm_dtype": "float32"}, "same"),
        ("deepspeed", {"pipeline_par": 2, "data_par": 4}, "PipelineModule"),
        ("deepspeed", {"zero_stage": "owner"}, "3"),
        ("deepspeed", {"ddp_bucket_mib": 0, "zero_stage": "2", "data_par_overlap": True}, "954"),
        ("deepspeed", {"activation_recompute": "attn_only"}, "full"),
        ("deepspeed", {"tensor_par_overlap": "ring"}, "none"),
        ("deepspeed", {"cp_comm": "p2p", "context_par": 2, "data_par": 4}, "a2a"),
        ("torchtitan", {"zero_stage": "2"}, "fsdp"),
        ("torchtitan", {"pp_schedule": "zb_h1"}, "zbv"),
        ("torchtitan", {"first_stage_blocks": 15, "last_stage_blocks": 17}, "stage_blocks"),
        ("torchtitan", {"pp_layout": "balanced"}, "both_as_blocks"),
        ("torchtitan", {"stage_blocks": "16-0-16-0", "pipeline_interleaving": 2}, "at least 1"),
        ("torchtitan", {"pipeline_interleaving": 5}, "stage_blocks"),
        ("torchtitan", {"recompute_every": 2, "activation_recompute": "full"}, "1"),
        ("torchtitan", {"recompute_modules": "norm"}, "ops"),
        ("torchtitan", {"fp8_recipe": "delayed"}, "tensorwise"),
        ("torchtitan", {"grad_clip": False}, "true"),
        ("torchtitan", {"optimizer_offload": True}, "false"),
        ("torchtitan", {"cp_comm": "p2p", "context_par": 2, "data_par": 2}, "all_gather"),
        ("megatron-lm", {"tp_async": False, "tensor_par": 2, "data_par": 8}, "true"),
        ("megatron-lm", {"recompute_every": 4, "activation_recompute": "full"}, "32"),
        ("megatron-lm", {"optimizer": "adam_8bit"}, "adam"),
        ("megatron-lm", {"rotary_impl": "complex"}, "real"),
        ("megatron-lm", {"recompute_modules": "ops"}, "core_attn"),
        ("megatron-lm", {"cp_skip": True, "context_par": 2, "data_par": 8}, "false"),
        ("megatron-lm", {"training": False}, "true"),
        (
            "megatron-lm",
            {"pp_layout": "balanced", "pipeline_par": 2, "data_par": 8},
            "stage_blocks",
        ),
    ],
)
def test_what_a_launcher_cannot_say_is_refused_by_field(launcher, changes, near):
    """Of the changes, the launcher lacks the first."""
    one = plain_execution(launcher, **changes)
    with pytest.raises(SpecError) as caught:
        settings_of(DIALECTS[launcher], one.to_dict(), inputs.model("llama3-8B"))
    assert caught.value.field == next(iter(changes))
    assert near in f"{caught.value.expected} {caught.value.hint}"


# Plans of Megatron-LM, in the forms of all three launchers that start it

OF_MEGATRON = [DIALECTS[name] for name in ("megatron-lm", "megatron-bridge", "nemo")]
VALUES = {name: field_of(name).values for name in OF_MEGATRON[0].fields}
CHOICES = {name: values for name, values in VALUES.items() if values != (None,)}
CHOICES |= {"pipeline_interleaving": (1, 2, 4), "expert_par": (2, 4, 8), "dp_shard": (2, 4)}


@st.composite
def plans(draw: st.DrawFn) -> dict[str, Any]:
    """Executions of preset megatron-lm, most of which can run."""
    powers = st.sampled_from((1, 1, 2, 4, 8))
    degrees = {name: draw(powers) for name in ("tensor_par", "pipeline_par", "data_par")}
    degrees["context_par"] = draw(st.sampled_from((1, 1, 2, 4)))
    plan: dict[str, Any] = {**degrees, "microbatch_size": draw(st.sampled_from((1, 2)))}
    sequences = plan["microbatch_size"] * plan["data_par"]
    plan["batch_size"] = sequences * draw(st.sampled_from((8, 16, 32)))
    for name in draw(st.sets(st.sampled_from(sorted(CHOICES)), min_size=1, max_size=4)):
        plan[name] = draw(st.sampled_from(CHOICES[name]))
    if "zero_stage" in plan:
        plan["optimizer_sharding"] = plan["zero_stage"] != "0"
    if "grad_dtype" in plan:
        plan["grad_comm_dtype"] = plan["grad_dtype"]
    return plan


MODELS = ("llama3-8B", "mixtral-8x7B", "deepseek-v3", "gpt3-175B-hf")


@settings(max_examples=draws(40))
@given(st.sampled_from(MODELS), st.sampled_from(("megatron-lm", "megatron-lm-ub")), plans())
def test_plans_of_megatron_are_read_as_they_were_written(name, preset, plan):
    model = inputs.model(name)
    try:
        execution = inputs.execution(plan, edition="corrected", preset=preset)
    except SpecError:
        return
    if check(model, inputs.system("b200_sxm"), Plan.of(execution))[0]:
        return  # values that do not go together
    for dialect in OF_MEGATRON:
        is_read_again(dialect, model, execution)


@for_each("letters", ["Et|(tt|)*30mL", "E|(tt|)*29t*3|L", "Et*3|(tt|)*29m|L"])
def test_layouts_in_letters_are_read_as_they_were_written(letters):
    fields = {"pipeline_par": 8, "data_par": 2, "pipeline_interleaving": 4, "p2p_overlap": True}
    execution = plain_execution("megatron-lm", **fields, stage_blocks=letters)
    for dialect in OF_MEGATRON:
        assert is_read_again(dialect, inputs.model("deepseek-v3"), execution)
