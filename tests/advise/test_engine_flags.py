"""Commands of engines for results: the batch that keeps limits, and shares of memory by model and machine."""

import json

import pytest

import calculon
from calculon import inputs
from calculon.advise.engine_flags import engine_text
from calculon.launch.dialects import ENGINES, read_launch
from calculon.serving.engine_scripts import server_of
from calculon.serving.records.read_records import read_workload

VLLM = ENGINES["vllm"]
LIMITED = {"prompt": 500, "output": 100, "tpot_limit": 0.012}


@pytest.fixture(scope="module")
def served():
    return calculon.serve("llama3-8B", 1, "h100_80g_sxm", **LIMITED)


def _batch(text):
    return read_launch(text, "run.sh").deployment["max_batch"]


def test_a_result_says_batch_model_and_machine(served):
    text = engine_text(VLLM, served)
    assert served.cut == "tpot"
    assert _batch(text) == served.batch
    server = server_of(
        inputs.model("llama3-8B"), inputs.system("h100_80g_sxm"), read_workload(options=LIMITED)
    )
    read = read_launch(text, "run.sh", server=server).deployment
    assert read["memory_fraction"] == served.deployment.memory_fraction


def test_a_rate_bounds_no_batch():
    served = calculon.serve("llama3-8B", "tp=1", "h100_80g_sxm", prompt=500, output=100, rate=2)
    assert served.cut == "rate"
    assert _batch(engine_text(VLLM, served)) == 1024


def test_what_is_stated_counts(served):
    assert _batch(engine_text(VLLM, served, changes={"max_batch": 7})) == 7
    one = calculon.serve("llama3-8B", 1, "h100_80g_sxm", changes={"max_batch": 9}, **LIMITED)
    assert _batch(engine_text(VLLM, one)) == 9


def test_the_best_of_a_search_is_written(tmp_path):
    found = calculon.search_deployments("llama3-8B", 1, "h100_80g_sxm", **LIMITED)
    text = calculon.export_flags(found, "vllm")
    assert _batch(text) == found.best.batch
    file = tmp_path / "best.json"
    file.write_text(json.dumps(found.to_dict()))
    assert engine_text(VLLM, f"{file}#0") == text


def test_other_sources_say_no_more_than_the_deployment(tmp_path):
    text = engine_text(VLLM, {"num_procs": 2, "tensor_par": 2})
    assert "--gpu-memory-utilization" not in text
    assert engine_text(VLLM, {"num_procs": 2, "tensor_par": 2}, model="llama3-8B") == text
    whole = engine_text(VLLM, {"num_procs": 2, "tensor_par": 2}, model="llama3-8B", system="h100")
    assert "--gpu-memory-utilization" in whole
    file = tmp_path / "plain.json"
    file.write_text('{"num_procs": 2, "tensor_par": 2}')
    assert engine_text(VLLM, str(file)) == text
