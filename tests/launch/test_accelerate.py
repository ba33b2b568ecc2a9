"""accelerate: its YAML configuration with FSDP, parallelism and DeepSpeed, in and out."""

import re

import pytest

from calculon import inputs
from calculon.errors import SpecError
from calculon.launch.accelerate import ACCELERATE
from calculon.launch.dialect import read, write
from tests.launch.laws import refusal, refused_by_field, round_trips, sampled

PLAIN = {
    "base": "huggingface",
    "num_procs": 16,
    "data_par": 16,
    "batch_size": 64,
    "microbatch_size": 2,
    "seq_length": 4096,
}
FSDP = "distributed_type: FSDP\nnum_processes: {procs}\nmixed_precision: bf16\n"


def _yaml(text, procs=8):
    return read(ACCELERATE, FSDP.format(procs=procs) + text, "config.yaml")


def test_what_ranks_share():
    """Of 16 processors, 8 in a node."""
    rows = [
        ("", ("fsdp", True, 0)),
        ("fsdp_config:\n  fsdp_sharding_strategy: FULL_SHARD", ("fsdp", True, 0)),
        ("fsdp_config:\n  fsdp_sharding_strategy: 2", ("fsdp", False, 0)),
        ("fsdp_config:\n  fsdp_sharding_strategy: NO_SHARD", ("0", True, 0)),
        (
            "num_machines: 2\nfsdp_config:\n  fsdp_sharding_strategy: HYBRID_SHARD",
            ("fsdp", True, 8),
        ),
        ("fsdp_config:\n  fsdp_reshard_after_forward: SHARD_GRAD_OP", ("fsdp", False, 0)),
        (
            "fsdp_config:\n  fsdp_version: 2\n  fsdp_reshard_after_forward: false",
            ("fsdp", False, 0),
        ),
        (
            "parallelism_config:\n  parallelism_config_dp_replicate_size: 4\n"
            "  parallelism_config_dp_shard_size: 4",
            ("fsdp", True, 4),
        ),
        (
            "parallelism_config:\n  parallelism_config_dp_replicate_size: 2\n"
            "  parallelism_config_cp_size: 2\n  parallelism_config_dp_shard_size: 4",
            ("fsdp", True, 8),
        ),
    ]
    names = ("zero_stage", "reshard_after_forward", "dp_shard")
    for text, expected in rows:
        found = _yaml(text, 16).execution
        assert tuple(found[name] for name in names) == expected, text


def test_arguments_of_a_trainer_are_read_where_they_stand():
    text = "per_device_train_batch_size: 2\ngradient_accumulation_steps: 4\nmax_length: 4096\n"
    launch = _yaml(text + "gradient_checkpointing: true\nmax_steps: 100\nsave_steps: 10\n")
    found = launch.execution
    assert (found["microbatch_size"], found["batch_size"]) == (2, 2 * 4 * 8)
    assert found["seq_length"] == 4096
    assert found["activation_recompute"] == "full"
    assert launch.campaign == {"tokens": 100 * 64 * 4096, "save_interval": 10}
    assert launch.notes == ()


def test_contradictions_have_both_numbers():
    rows = [
        (
            "parallelism_config:\n  parallelism_config_tp_size: 3",
            r"degrees of 8 processors, found 3 \(tp 3",
        ),
        (
            "parallelism_config:\n  parallelism_config_dp_shard_size: 4",
            r"found 4 \(tp 1 x cp 1 x sp 1 x dp_replicate 1 x dp_shard 4\)",
        ),
        ("fsdp_config:\n  fsdp_sharding_strategy: SOME", "one of FULL_SHARD, SHARD_GRAD_OP"),
        ("fsdp_config:\n  fsdp_activation_checkpointing: 3", "true or false"),
        ("gradient_accumulation_steps: many", "config.yaml:4: gradient_accumulation_steps"),
        ("distributed_type: MEGATRON_LM", "Hint: state its own format, such as megatron-lm"),
        ("mixed_precision: int4", "one of no, bf16, fp16, fp8"),
    ]
    wrong = [text for text, message in rows if not re.search(message, refusal(_yaml, text))]
    assert wrong == []


def test_processors_that_are_asked_for_are_those_of_the_file():
    with pytest.raises(SpecError, match="16 processors, which were asked for, found 8"):
        read(ACCELERATE, FSDP.format(procs=8), "config.yaml", num_procs=16)


@pytest.mark.parametrize(
    ("model", "num_procs", "options"),
    [
        ("llama3-8B", 32, {"fix": {"grad_comm_dtype": "same"}}),
        ("qwen3-8B", 8, {"fix": {"grad_comm_dtype": "same", "ce_impl": ["fused", "eager"]}}),
        ("llama3-8B", 16, {"fix": {"grad_comm_dtype": "same", "context_par": 2}}),
        ("llama3-8B", 16, {"fix": {"grad_comm_dtype": "same", "tensor_par": 2}}),
    ],
)
def test_what_is_written_is_read_as_it_was(model, num_procs, options):
    system, executions = sampled(model, num_procs, 128, "huggingface", **options)
    assert round_trips(ACCELERATE, model, system, executions) == len(executions)


def test_choices_are_read_as_they_were_written():
    rows = [
        {"zero_stage": "3"},
        {"zero_stage": "2", "data_par_overlap": False, "optimizer_offload": True},
        {"zero_stage": "0", "optimizer_sharding": False},
        {"dp_shard": 8},
        {"reshard_after_forward": False},
        {"fusion": "compile"},
        {"fp8_recipe": "tensorwise"},
        {"optimizer": "adam_8bit"},
        {"grad_clip": False},
        {"datatype": "float16"},
        {"context_par": 2, "data_par": 8, "cp_comm": "a2a", "zero_stage": "3"},
        {"context_par": 4, "data_par": 4, "cp_comm": "p2p"},
    ]
    for changes in rows:
        one = inputs.execution(PLAIN | changes)
        assert round_trips(ACCELERATE, "llama3.2-1B", inputs.system("h100_80g_sxm"), [one]) == 1


def test_what_it_cannot_say_is_refused_by_field():
    rows = [
        ({"zero_stage": "owner"}, "zero_stage", "fsdp"),
        ({"zero_stage": "1"}, "data_par_overlap", "false"),
        ({"fsdp_prefetch": 2}, "fsdp_prefetch", "1"),
        ({"activation_recompute": "attn_only"}, "activation_recompute", "full"),
        ({"fp8_recipe": "mxfp8"}, "fp8_recipe", "delayed"),
        ({"optimizer_offload": True}, "optimizer_offload", "DeepSpeed"),
        ({"optimizer": "muon"}, "optimizer", "adam"),
        ({"grad_comm_dtype": "float32"}, "grad_comm_dtype", "same"),
    ]
    refused_by_field(ACCELERATE, PLAIN, rows)


def test_arguments_of_the_training_script_are_a_comment():
    text = write(ACCELERATE, inputs.execution(PLAIN).to_dict(), None, {"tokens": 64 * 4096 * 10})
    (line,) = (line for line in text.splitlines() if "arguments" in line)
    assert line.startswith("# ")
    assert "--per_device_train_batch_size 2 --gradient_accumulation_steps 2" in line
    assert "--max_steps 10" in line
    names = {row.partition(":")[0].strip() for row in text.splitlines() if row[:1] != "#"}
    assert names.isdisjoint(("per_device_train_batch_size", "max_steps"))  # accelerate has none
