"""MLPerf configurations: the runs that they describe, and the common files that they source."""

from dataclasses import replace

import pytest

import calculon
from calculon import inputs
from calculon.base.errors import SpecError
from calculon.launch.dialect import read, write
from calculon.launch.dialects import recognized
from calculon.launch.launch_files import differences_of_model
from calculon.launch.megatron.mlperf import MLPERF
from calculon.launch.megatron.mlperf_words import BENCHMARKS
from calculon.validate.predict import predict
from calculon.validate.published_study import Library
from calculon.validate.study_rows import read_rows
from tests.cases import for_each
from tests.launch.laws import SCRIPTS, plain_execution
from tests.shipped_studies import shipped

FOLDER = SCRIPTS / "mlperf"
NEBIUS = FOLDER / "nebius_llama31_8b" / "config_DGXB200_1x8x2xtp1pp1cp1_8b_fp4.sh"
SMALL = "export MINIBS=4\nexport TENSOR_MODEL_PARALLEL=2\nexport CONTEXT_PARALLEL=1\nexport DGXNNODES=2\n"


def _read(text, file="config_x_8b.sh", **more):
    return read(MLPERF, text, str(file), **more)


def _fields(text, file="config_x_8b.sh"):
    return _read(text, file).execution


OF_MESH = {"mesh_order"}
"""The order of ranks has no effect with one pipeline stage."""


@for_each(
    ("study", "row", "path", "others"),
    [
        ("mlperf/llama31_8b", "llama8b#011", NEBIUS, OF_MESH),
        (
            "mlperf/llama31_8b",
            "llama8b#010",
            FOLDER / "config_DGXH100_16x8x1xtp2pp1cp1.sh",
            # the study states the default of a run without CUDA graphs
            OF_MESH | {"launch_mode"},
        ),
        (
            "mlperf/gpt3_175b",
            "gpt3#011",
            FOLDER / "config_DGXB200_8x8x1024x4x8_mbs2_cg.sh",
            # the study takes it from round 3.1; round 4.1 fuses it unless a variable says otherwise
            {"ce_impl"},
        ),
    ],
)
def test_a_configuration_is_the_run_that_a_study_has_of_it(study, row, path, others):
    rows = [one for one in read_rows(shipped()[study]) if one.cells["id"] == row]
    predicted = predict(Library.at(), shipped()[study], rows, ("total_time",), "corrected")
    (case,) = predicted.cases
    launch = _read(path.read_text(), path)
    one = inputs.execution(dict(launch.execution))
    compared = (MLPERF.fields & case.execution.keys()) - others
    assert {name: getattr(one, name) for name in compared} == {
        name: case.execution[name] for name in compared
    }
    model = inputs.model(launch.model.get("name") or launch.model)
    assert replace(model, name=case.model.name) == case.model
    found = calculon.estimate(model, one, case.system)
    assert found.stats["total_time"] == pytest.approx(predicted.values["total_time"][0], rel=0.006)


def test_the_batch_is_that_of_all_replicas():
    found = _fields(SMALL)
    replicas = 2 * 8 // 2
    assert (found["data_par"], found["batch_size"]) == (replicas, 4 * replicas)
    split = _fields(SMALL.replace("CONTEXT_PARALLEL=1", "CONTEXT_PARALLEL=4"))
    assert split["batch_size"] == 4 * replicas // 4


def test_values_that_a_file_does_not_state_are_those_of_its_benchmark():
    stages = f"{SMALL}export PIPELINE_MODEL_PARALLEL=4\n"
    assert _fields(stages)["pipeline_interleaving"] == 12
    assert _fields(f"{stages}export INTERLEAVED_PIPELINE=null\n")["pipeline_interleaving"] == 1
    unsplit = SMALL.replace("export CONTEXT_PARALLEL=1\n", "")
    assert _fields(unsplit)["context_par"] == 4
    assert _fields(unsplit, "gpt3/config_x.sh")["context_par"] == 1
    narrow = f"{SMALL}export FP8=True\n"
    assert _fields(narrow)["fp8_recipe"] == "tensorwise"
    assert _fields(narrow, "gpt3/config_x.sh")["fp8_recipe"] == "delayed"


@for_each(
    ("line", "field", "value"),
    [
        ("SEQ_PARALLEL=False", "tensor_par_comm_type", "ar"),
        ("TP_COMM_OVERLAP=1", "tensor_par_overlap", "ring"),
        ("ACT_CKPT_GRANULARITY=full", "activation_recompute", "full"),
        ("OVERLAP_GRAD_REDUCE=0", "data_par_overlap", False),
        ("USE_DIST_OPTIMIZER=False", "zero_stage", "0"),
        ("LAYER_CUDA_GRAPH=1", "launch_mode", "graph"),
        ("FULL_CUDA_GRAPH=1", "launch_mode", "auto"),  # only the scope
        ("FP8_HYBRID=True", "fp8_recipe", "none"),
        ("FP8=True\nexport FP8_DPA=1", "fp8_attention", True),
        ("FP8=True\nexport FP8_DPA=1\nexport NVTE_DPA_FP8_RECIPE=F16", "fp8_attention", False),
        ("FP4=True", "fp8_recipe", "nvfp4"),
        ("TRANSFORMER_ENGINE=False", "attn_impl", "eager"),
        ("BUCKET_SIZE=768000000", "ddp_bucket_mib", round(768000000 * 2 / 2**20)),
    ],
)
def test_variables_become_fields(line, field, value):
    launch = _read(f"{SMALL}export {line}\n")
    assert (launch.execution[field], launch.unknown) == (value, ())


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_benchmark_has_its_model(name):
    launch = _read(SMALL, f"{name}/config_x.sh")
    model = inputs.model(launch.model.get("name") or launch.model)
    known = inputs.model(BENCHMARKS[name].model)
    assert differences_of_model(launch, known) == ""
    assert model.vocab > 0
    assert ("adapters" in " ".join(launch.notes)) == (name == "llama2_70b_lora")


def test_variables_change_the_shape_of_the_model():
    shallow = inputs.model(_read(f"{SMALL}export OVERWRITTEN_NUM_LAYERS=2\n").model)
    assert replace(shallow, name="llama3-8B", num_blocks=32) == inputs.model("llama3-8B")
    lines = "".join(
        f"export {name}\n"
        for name in ("HIDDEN_SIZE=4096", "NUM_LAYERS=24", "NUM_ATTENTION_HEADS=32")
    )
    small = inputs.model(_read(SMALL + lines, "gpt3/config_x.sh").model)
    found = (small.num_blocks, small.hidden, small.feedforward, small.attn_heads, small.attn_size)
    assert found == (24, 4096, 4 * 4096, 32, 4096 // 32)


def test_an_unknown_benchmark_is_reported():
    unknown = _read(f"{SMALL}export MODEL_SIZE=9b\n")
    assert (unknown.model, "state the model" in unknown.notes[-1]) == ({}, True)


SOURCING = f"source $(dirname ${{BASH_SOURCE[0]}})/config_common.sh\n{SMALL}"


def test_common_files_of_the_folder_are_read_and_the_file_overrides_them(tmp_path):
    file = tmp_path / "config_x_8b.sh"
    common = tmp_path / "config_common.sh"
    common.write_text("export SEQ_PARALLEL=False\nexport MINIBS=32\nsource ./config_more.sh\n")
    (tmp_path / "config_more.sh").write_text("export OVERLAP_GRAD_REDUCE=False\n")
    launch = _read(SOURCING, file)
    assert launch.notes == ()
    assert launch.execution["batch_size"] == 4 * launch.execution["data_par"]
    assert launch.stated["SEQ_PARALLEL"].place == f"{common}:1"
    assert launch.execution["data_par_overlap"] is False


def test_a_missing_common_file_has_its_published_values_and_a_note():
    launch = _read(SOURCING)
    assert "config_common.sh is not there: the published values are used" in launch.notes[0]
    assert launch.execution["fp8_recipe"] == "tensorwise"
    other = _read(SOURCING.replace("common", "of_mine"))
    assert other.notes == ("$(dirname ${BASH_SOURCE[0]})/config_of_mine.sh is not read",)


def test_the_name_of_a_missing_configuration_tells_its_sizes():
    text = "source ./config_GB200_18x4x3xtp2pp1cp2_8b.sh\nexport DGXSYSTEM=x\n"
    found = _fields(text, "config_x.sh")
    degrees = [found[name] for name in ("num_procs", "tensor_par", "context_par", "batch_size")]
    assert degrees == [18 * 4, 2, 2, 3 * 18 * 4 // 4]
    assert found["fp8_param_gather"] is True  # of config_common.sh, as in every configuration


def test_files_outside_the_folder_are_not_read(tmp_path):
    inside = tmp_path / "inside"
    inside.mkdir()
    (tmp_path / "config_secret.sh").write_text("export MINIBS=64\n")
    (inside / "config_link.sh").symlink_to(tmp_path / "config_secret.sh")
    for name in ("../config_secret.sh", "config_link.sh", f"{tmp_path}/config_secret.sh"):
        launch = _read(f"{SMALL}source {name}\n", inside / "config_x.sh")
        assert launch.notes == (f"{name} is not read",)
        assert launch.execution["batch_size"] == 4 * launch.execution["data_par"]


def test_a_file_that_sources_itself_is_refused(tmp_path):
    file = tmp_path / "config_x.sh"
    file.write_text(f"{SMALL}source ./config_x.sh\n")
    with pytest.raises(SpecError, match=r"config_x\.sh: expected (a less deeply|text of at most)"):
        _read(file.read_text(), file)


@for_each(
    ("text", "words"),
    [
        (
            SMALL.replace("MINIBS", "BATCHSIZE"),
            "MINIBS: expected sequences per replica, found none",
        ),
        (f"{SMALL}export MICRO_BATCH_SIZE=3\n", "MINIBS: expected a multiple of 3 .* found 4"),
        (SMALL.replace("PARALLEL=2", "PARALLEL=3"), "processors: expected a multiple of 3 x 1 x 1"),
        (f"{SMALL}export DGXNGPU=$GPUS\n", "processors: expected a number, found [$]GPUS"),
        (f"{SMALL}export FP8=maybe\n", "FP8: expected True or False, found 'maybe'"),
    ],
)
def test_wrong_values_name_the_variable(text, words):
    with pytest.raises(SpecError, match=words):
        _read(text)


@for_each(
    ("model", "changes"),
    [
        ("llama3-8B", {}),
        ("llama3.1-405B", {"tensor_par": 2, "data_par": 8, "tensor_par_comm_type": "rs_ag"}),
        ("gpt3-175B", {"activation_recompute": "full"}),
        ("llama3-8B", {"fp8_recipe": "nvfp4_plain", "fp8_attention": True}),
        ("deepseek-v3", {"expert_par": 8, "expert_tensor_par": 0, "moe_dispatcher": "hybridep"}),
    ],
)
def test_a_plan_is_read_as_it_was_written(model, changes):
    base = {"base": "megatron-lm", "num_procs": 16, "batch_size": 64, "data_par": 16}
    base |= {"tensor_par": 1, "pipeline_par": 1}
    usual = {"zero_stage": "1", "overlap_param_gather": True, "data_par_overlap": True}
    narrow = {"grad_dtype": "bfloat16", "grad_comm_dtype": "bfloat16", "ce_impl": "fused"}
    one = inputs.execution(base | usual | narrow | changes, edition="corrected")
    text = write(MLPERF, one.to_dict(), inputs.model(model))
    launch = _read(text, "config_plan.sh")
    again = inputs.execution(dict(launch.execution), edition="corrected")
    assert {name: getattr(again, name) for name in MLPERF.fields} == {
        name: getattr(one, name) for name in MLPERF.fields
    }
    assert differences_of_model(launch, inputs.model(model)) == ""
    assert recognized(text, "config_plan.sh") is MLPERF


def test_what_no_variable_expresses_is_refused():
    one = plain_execution("megatron-lm", optimizer="muon", edition="corrected")
    with pytest.raises(SpecError, match="optimizer: expected 'adam', the nearest that MLPerf"):
        write(MLPERF, one.to_dict(), inputs.model("llama3-8B"))
    with pytest.raises(SpecError, match="model: expected a model of an MLPerf benchmark"):
        write(MLPERF, plain_execution("megatron-lm").to_dict(), inputs.model("mistral-7B"))
