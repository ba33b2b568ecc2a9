"""DeepSpeed: its JSON configuration, in and out."""

import json

import pytest

from calculon import inputs
from calculon.base.errors import SpecError
from calculon.launch.deepspeed import DEEPSPEED
from calculon.launch.dialect import read, write
from calculon.launch.dialects import recognized
from tests.launch.laws import not_refused, plain_execution


def _json(num_procs=8, **document):
    return read(DEEPSPEED, json.dumps(document), "ds.json", num_procs=num_procs)


def test_of_three_fields_of_the_batch_any_may_be_left_out():
    """Batch, microbatch and steps; without all three the trainer of transformers has 8 sequences and 1 step."""
    rows = [
        ((64, 4, 2), 8, (64, 4, 8)),
        ((64, 4, None), 8, (64, 4, 8)),
        ((64, None, 2), 8, (64, 4, 8)),
        ((None, 4, 2), 8, (64, 4, 8)),
        ((64, None, None), 8, (64, 8, 8)),
        ((64, 4, 2), None, (64, 4, 8)),
        ((None, None, None), 8, (64, 8, 8)),
        (("auto", "auto", "auto"), 8, (64, 8, 8)),
    ]
    names = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    for fields, num_procs, expected in rows:
        document = {n: value for n, value in zip(names, fields, strict=True) if value is not None}
        found = _json(num_procs, zero_optimization={"stage": 1}, **document).execution
        read_as = tuple(found[n] for n in ("batch_size", "microbatch_size", "data_par"))
        assert read_as == expected, fields


def test_contradictions_have_both_numbers():
    rows = [
        (
            {"train_batch_size": 64, "train_micro_batch_size_per_gpu": 4}
            | {"gradient_accumulation_steps": 3},
            r"expected .* 4 x gradient_accumulation_steps 3 x data 8 = 96, found 64",
        ),
        ({"train_batch_size": 4}, "data 8 = 0, found 4"),
        (
            dict.fromkeys(("train_micro_batch_size_per_gpu", "gradient_accumulation_steps"), 4)
            | {"train_batch_size": 40, "num_procs": None},  # no multiple of 4 x 4
            "processors: expected a number",
        ),
        (
            {"train_batch_size": 8, "tensor_parallel": {"autotp_size": 3}},
            "a divisor of 8 processors, found 3",
        ),
        ({"zero_optimization": {"stage": 4}}, "0, 1, 2 or 3"),
        ({"zero_optimization": {"stage": "two"}}, "zero_optimization.stage: expected a whole"),
        ({"bf16": {"enabled": "yes"}}, "true, false or auto"),
        ({"zero_optimization": {"offload_optimizer": {"device": "disk"}}}, "cpu, nvme or none"),
        ({"communication_data_type": "int8"}, "one of fp32, fp16, bf16"),
    ]
    assert not_refused(lambda document: _json(**document), rows) == []


def test_stages_overlap_and_buckets():
    """Buckets are counted in elements: 5e8 by default, of 2 bytes with bfloat16."""
    rows = [
        ({"stage": 0, "overlap_comm": True}, ("0", False, 0)),
        ({"stage": 1}, ("1", False, 0)),
        ({"stage": 2, "overlap_comm": True}, ("2", True, -(-500_000_000 * 2 // 2**20))),
        ({"stage": 2, "overlap_comm": True, "reduce_bucket_size": 2**20}, ("2", True, 2)),
        ({"stage": 3}, ("3", True, 0)),
        ({"stage": 3, "overlap_comm": False}, ("3", False, 0)),
    ]
    names = ("zero_stage", "data_par_overlap", "ddp_bucket_mib")
    for section, expected in rows:
        found = _json(zero_optimization=section, bf16={"enabled": True}).execution
        assert tuple(found[name] for name in names) == expected, section


@pytest.mark.parametrize("section", ["bf16", "fp16"])
@pytest.mark.parametrize("stage", range(4))
def test_gradients_have_the_type_of_the_weights_but_of_bfloat16_without_zero(section, stage):
    """DeepSpeed up to 0.17, runtime/engine.py, get_data_types; preset and configurations agree."""
    launch = _json(zero_optimization={"stage": stage}, **{section: {"enabled": True}})
    datatype = {"bf16": "bfloat16", "fp16": "float16"}[section]
    expected = "float32" if (section, stage) == ("bf16", 0) else datatype
    assert launch.execution["grad_dtype"] == expected
    stated = {"datatype": datatype, "zero_stage": str(stage), "data_par": 8, "batch_size": 64}
    found = inputs.execution({"base": "deepspeed", "tensor_par": 1, "pipeline_par": 1} | stated)
    assert (found.grad_dtype, found.main_grad) == (expected, expected != "float32")


def test_what_is_taken_for_granted_is_said():
    launch = _json(zero_optimization={"stage": 3}, bf16={"enabled": "auto"})
    told = " ".join(launch.notes)
    assert "train_micro_batch_size_per_gpu comes from the training script: 8" in told
    assert "bf16.enabled is auto" in told
    assert "recomputation is set in the training script" in told


def test_the_length_of_sequences_is_said_by_the_training_script():
    one = plain_execution("deepspeed", seq_length=4096)
    text = write(DEEPSPEED, one.to_dict(), inputs.model("llama3-8B"))
    assert "seq_length: 4096, set in the training script" in json.loads(text)["_comment"]


def test_what_is_no_json_object_is_refused():
    rows = ["[1]", "{", "", '{"a": 1', "zero_optimization: 1"]
    for text in rows:
        assert recognized(text, "ds.json") is not DEEPSPEED
        with pytest.raises(SpecError, match=r"ds\.json"):
            read(DEEPSPEED, text, "ds.json", num_procs=8)
