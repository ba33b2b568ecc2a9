"""Deployments with their workloads: laws of the answer."""

import re

import numpy as np
import pytest

import calculon
from calculon.base.errors import Infeasible, SpecError
from calculon.declarations import catalog
from calculon.declarations.decode import SpecWarning
from calculon.serving.default_deployment import deployment_of
from calculon.serving.passes.replica import Replica
from calculon.serving.records.deployment import Deployment
from calculon.serving.records.deployments import Deployments
from calculon.serving.records.read_records import read_deployment, read_workload
from calculon.serving.serve import serve
from tests.cases import for_each
from tests.serving.given import H100, LLAMA_70B, LOAD, SMALL, small


def test_a_question_without_a_workload_is_a_chat():
    asked = ("llama3-8B", 1, "h100_80g_sxm")
    chat = calculon.serve(*asked, "chat")
    assert calculon.serve(*asked).to_dict() == chat.to_dict()
    few = calculon.serve(*asked, users=4)
    assert (few.workload.prompt, few.workload.users) == (chat.workload.prompt, 4)
    assert calculon.search_deployments(*asked).best.workload == chat.workload
    with pytest.raises(SpecError, match="output: expected a number of tokens, found none"):
        calculon.serve(*asked, prompt=1000)


def test_a_limit_that_nothing_keeps():
    found = small(tpot_limit=1e-5)
    assert found.batch == 1
    assert [one.met for one in found.limits] == [False]
    assert "times the limit" in found.limits[0].in_words


def test_users_beyond_the_batch_wait():
    within, beyond = (small({"max_batch": 16}, users=users) for users in (16, 40))
    assert within.cut == "users"
    assert beyond.cut == "max_batch"
    late = (40 - 16) / beyond["request_rate"]
    assert beyond["queue_time"] == pytest.approx(within["queue_time"] + late)
    assert 0 < within["queue_time"] < 15 * within["prefill_time"]
    static = small({"batching": "static", "max_batch": 16}, users=40)
    assert static["queue_time"] == pytest.approx((40 - 16) / static["request_rate"])
    few = small({"max_batch": 16}, users=2)
    assert few["tpot"] < within["tpot"]


def test_fewer_users_than_replicas_leave_some_idle():
    few = small({"tensor_par": 1}, procs=4, users=1)
    alone = small({"tensor_par": 1}, users=1)
    assert few["tpot"] == alone["tpot"]
    assert few["request_rate"] == pytest.approx(alone["request_rate"])


def test_static_batches_start_together():
    found = small({"batching": "static", "max_batch": 32})
    alike = Deployments.of(found.deployment, num_procs=np.ones(299))
    replica = Replica(SMALL, H100, alike, found.workload)
    contexts = 900.0 + np.arange(1, 300)
    steps = replica.decode(np.full(299, 32.0), contexts).sum()
    prefill = replica.prefill(np.full(1, 32.0))[0][0]
    assert 32 / found["request_rate"] == pytest.approx(prefill + steps, rel=1e-3)


def test_a_finite_run():
    found, last = (small({"max_batch": 32}, requests=n) for n in (1000, 8))
    assert last.cut == "requests"
    ends = 31 * 32 / found["request_rate"] + last.run_time
    assert found.run_time == pytest.approx(ends)
    assert found["run_output_rate"] == pytest.approx(1000 * 300 / ends)
    assert small({"max_batch": 32}).run_time is None
    several = small({"tensor_par": 1, "max_batch": 32}, procs=4, requests=4000)
    assert several.run_time == found.run_time


def test_a_number_of_processors_is_nodes():
    load = read_workload(LOAD)
    assert deployment_of(SMALL, H100, 16, load) == Deployment(num_procs=16, tensor_par=8)
    assert deployment_of(SMALL, H100, 6, load).tensor_par == 2  # of 16 heads
    found = deployment_of(LLAMA_70B, H100, 2, load, {"tensor_par": 1})
    assert found.pipeline_par == 2


def test_what_does_not_fit_says_by_how_much():
    with pytest.raises(
        Infeasible, match=r"does not fit: a rank needs .* GiB .* of 79.1 GiB"
    ) as failed:
        serve(LLAMA_70B, 1, H100, LOAD)
    assert failed.value.needed > failed.value.available
    assert (failed.value.reason, failed.value.tier) == ("mem1_capacity", 1)
    parts = re.findall(r"(?:weights|activations|reserve|cache) ([\d.]+)", str(failed.value))
    assert sum(map(float, parts)) == pytest.approx(failed.value.needed / 2**30, abs=0.3)


@for_each(
    ("changes", "load", "message"),
    [
        ({"tensor_par": 3, "num_procs": 3}, {}, "tensor_par: expected a divisor of attn_heads=16"),
        ({"pipeline_par": 8, "num_procs": 8}, {}, "pipeline_par: expected at most num_blocks=4"),
        ({"tensor_par": 2, "num_procs": 2, "expert_par": 2}, {}, "expert_par: expected 1"),
        ({"num_procs": 3, "tensor_par": 2}, {}, "num_procs: expected a multiple"),
        ({"max_batch": 64, "token_budget": 32}, {}, "token_budget: expected at least max_batch"),
        ({"weights_dtype": "fp9"}, {}, "weights_dtype"),
        ({}, {"rate": 1, "users": 2}, "one of rate and users"),
        ({}, {"output": 1}, "output: expected at least 2"),
        ({}, {"prompt": 0}, "prompt"),
    ],
)
def test_bad_input(changes, load, message):
    with pytest.raises(SpecError, match=message):
        serve(SMALL, {"num_procs": 1, **changes}, H100, LOAD | load)


RELEASED = {"prompt": 100, "output": 20, "users": 4}


def test_released_types_are_the_default_except_in_files():
    for source in (1, "tp=1", "vllm serve openai/gpt-oss-20b"):
        found = calculon.serve("gpt-oss-20b", source, "h100_80g_sxm", **RELEASED)
        assert (found.deployment.experts_dtype, found.arithmetic) == ("mxfp4", "bfloat16"), source
    stated = calculon.serve("gpt-oss-20b", {"num_procs": 1}, "h100_80g_sxm", **RELEASED)
    assert stated.deployment.experts_dtype == "same"
    changes = {"experts_dtype": "float8"}
    wider = calculon.serve("gpt-oss-20b", 1, "h100_80g_sxm", changes=changes, **RELEASED)
    assert (wider.deployment.experts_dtype, wider.arithmetic) == ("float8", "")


def test_a_script_of_another_model_warns():
    command = "vllm serve openai/gpt-oss-20b -tp 1"
    with pytest.warns(SpecWarning, match="it serves openai/gpt-oss-20b; llama3-8B is used"):
        calculon.serve("llama3-8B", command, "h100_80g_sxm", **RELEASED)


def test_records_are_read_as_they_are_written():
    for name in catalog.names("deployment"):
        found = read_deployment(name)
        assert read_deployment(found.to_dict()) == found
    words = read_workload({"prompt": "8k", "output": 100, "tpot_limit": "50ms"})
    assert (words.prompt, words.tpot_limit) == (8192, 0.05)
    assert read_workload({"prompt": 10, "output": 10, "think": "0s"}).think == 0
    with pytest.raises(SpecError, match="tpot_limit: expected"):
        read_workload({"prompt": 10, "output": 10, "tpot_limit": "0s"})


def test_a_frame_of_one_row_as_that_of_a_search():
    found = small({"max_batch": 8, "token_budget": 2048}, procs=2)
    options = {"fix": {"max_batch": 8, "token_budget": 2048, "pipeline_par": 1}, "top": 9}
    search = calculon.search_deployments(SMALL, 2, H100, **LOAD, **options).to_frame()
    frame = found.to_frame()
    assert set(frame.columns) == set(search.columns)
    assert frame.loc[0, "tpot"] == found["tpot"]
    assert frame.loc[0, "tensor_par"] == found.deployment.tensor_par


def test_one_line_tells_what_is_served():
    text = repr(small({"max_batch": 8}, tpot_limit=1e-6))
    assert text.startswith(f"<Served: {SMALL.name} on 1 x {H100.name}, 1 replica of TP 1, batch 1,")
    assert text.endswith(", misses tpot>")
    assert "\n" not in text
    assert len(text) < 200


def test_what_is_no_deployment_workload_or_number_of_processors_is_named():
    for given in (None, 1.5, True, "", [8]):
        with pytest.raises(SpecError, match="deployment: expected a name of the catalog, a p") as e:
            serve(SMALL, given, H100, LOAD)
        assert "a number of processors gives a default deployment" in str(e.value), given
    for given in (3, 1.5, ["chat"]):
        with pytest.raises(SpecError, match="workload: expected a name of the catalog, a path"):
            serve(SMALL, 1, H100, given)
    for given in (None, 1.5, [1.5], True):
        with pytest.raises(SpecError, match="num_procs: expected a whole number of at least 1"):
            calculon.search_deployments(SMALL, given, H100, **LOAD)
    assert serve(SMALL, np.int64(2), H100, LOAD).deployment.num_procs == 2
