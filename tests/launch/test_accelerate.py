"""accelerate: its YAML configuration with FSDP, parallelism and DeepSpeed, in and out."""

import pytest

from calculon.base.errors import SpecError
from calculon.launch.accelerate import ACCELERATE
from calculon.launch.dialect import read, write
from tests.launch.laws import not_refused, plain_execution

FSDP = "distributed_type: FSDP\nnum_processes: {procs}\nmixed_precision: bf16\n"


def _yaml(text, procs=8):
    return read(ACCELERATE, FSDP.format(procs=procs) + text, "config.yaml")


def _fsdp(**settings):
    return "fsdp_config:\n" + "".join(f"  fsdp_{n}: {value}\n" for n, value in settings.items())


def _parallel(**sizes):
    lines = (f"  parallelism_config_{n}_size: {size}\n" for n, size in sizes.items())
    return "parallelism_config:\n" + "".join(lines)


def test_what_ranks_share():
    """Of 16 processors, 8 in a node."""
    rows = [
        ("", ("fsdp", True, 0)),
        (_fsdp(sharding_strategy="FULL_SHARD"), ("fsdp", True, 0)),
        (_fsdp(sharding_strategy=2), ("fsdp", False, 0)),
        (_fsdp(sharding_strategy="NO_SHARD"), ("0", True, 0)),
        ("num_machines: 2\n" + _fsdp(sharding_strategy="HYBRID_SHARD"), ("fsdp", True, 8)),
        (_fsdp(reshard_after_forward="SHARD_GRAD_OP"), ("fsdp", False, 0)),
        (_fsdp(version=2, reshard_after_forward="false"), ("fsdp", False, 0)),
        (_parallel(dp_replicate=4, dp_shard=4), ("fsdp", True, 4)),
        (_parallel(dp_replicate=2, cp=2, dp_shard=4), ("fsdp", True, 8)),
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
        (_parallel(tp=3), r"degrees of 8 processors, found 3 \(tp 3"),
        (
            _parallel(dp_shard=4),
            r"found 4 \(tp 1 x cp 1 x sp 1 x dp_replicate 1 x dp_shard 4\)",
        ),
        (_fsdp(sharding_strategy="SOME"), "one of FULL_SHARD, SHARD_GRAD_OP"),
        (_fsdp(activation_checkpointing=3), "true or false"),
        ("gradient_accumulation_steps: many", "config.yaml:4: gradient_accumulation_steps"),
        ("distributed_type: MEGATRON_LM", "Hint: use the format megatron-lm"),
        ("mixed_precision: int4", "one of no, bf16, fp16, fp8"),
    ]
    assert not_refused(_yaml, rows) == []


def test_processors_that_are_asked_for_are_those_of_the_file():
    with pytest.raises(SpecError, match="16 processors, as requested, found 8"):
        read(ACCELERATE, FSDP.format(procs=8), "config.yaml", num_procs=16)


def test_arguments_of_the_training_script_are_a_comment():
    text = write(
        ACCELERATE, plain_execution("accelerate").to_dict(), None, {"tokens": 64 * 4096 * 10}
    )
    (line,) = (line for line in text.splitlines() if "arguments" in line)
    assert line.startswith("# ")
    assert "--per_device_train_batch_size 2 --gradient_accumulation_steps 2" in line
    assert "--max_steps 10" in line
    names = {row.partition(":")[0].strip() for row in text.splitlines() if row[:1] != "#"}
    assert names.isdisjoint(("per_device_train_batch_size", "max_steps"))  # accelerate has none
