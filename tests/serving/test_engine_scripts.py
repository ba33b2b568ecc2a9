"""Commands of engines as deployments of a model on a machine: shares of memory are those of its ranks."""

import re
import warnings
from dataclasses import replace

import pytest

import calculon
from calculon import inputs
from calculon.base.errors import SpecError
from calculon.base.units import GIB
from calculon.declarations.decode import SpecWarning
from calculon.launch.dialects import ENGINES
from calculon.launch.engines.engine_rows import OF_EXPERTS
from calculon.serving.engine_scripts import (
    UNCUT_TOKENS,
    deployment_defaults,
    deployment_text,
    fields_of,
    launched_server,
    server_of,
)
from calculon.serving.records.deployment import Deployment
from calculon.serving.records.engine_presets import facts_of
from calculon.serving.records.read_records import read_deployment, read_workload

MODEL, SYSTEM = inputs.model("llama3-8B"), inputs.system("h100_80g_sxm")
LOAD = {"prompt": 1000, "output": 200}


def test_defaults_are_as_a_file_states_them():
    defaults = deployment_defaults()
    assert defaults["reserve_gib"] == Deployment(num_procs=1).reserve / GIB
    assert read_deployment({"num_procs": 1}) == Deployment(num_procs=1)
    stated = {name: value for name, value in defaults.items() if value is not None}
    assert read_deployment({"num_procs": 1, **stated}) == Deployment(num_procs=1)
    assert fields_of(Deployment(num_procs=2)).keys() == {*defaults, "num_procs"}


def test_a_rank_holds_what_the_model_has_of_it():
    server = server_of(MODEL, SYSTEM)
    whole, half = (server.rank({"num_procs": t, "tensor_par": t}) for t in (1, 2))
    narrow = server.rank({"num_procs": 1, "weights_dtype": "float8"})
    assert whole.capacity == SYSTEM.usable[0]
    assert half.weights < whole.weights
    assert narrow.weights < whole.weights
    assert whole.free == whole.capacity - whole.weights - whole.activation - whole.reserve


def test_prompts_that_are_not_cut_are_the_largest_pass():
    uncut = {"num_procs": 1, "token_budget": 0}
    load = read_workload(options=LOAD)
    asked = server_of(MODEL, SYSTEM, load).rank(uncut).activation
    assert server_of(MODEL, SYSTEM).rank(uncut).activation * 1000 == pytest.approx(
        asked * UNCUT_TOKENS
    )


@pytest.mark.parametrize("engine", ENGINES)
def test_a_command_gives_the_figures_of_its_deployment(engine, tmp_path):
    one = read_deployment({"num_procs": 2, "max_batch": 64, "memory_fraction": 0.8})
    load = read_workload(options=LOAD)
    text = deployment_text(ENGINES[engine], one, server_of(MODEL, SYSTEM, load))
    file = tmp_path / "run.sh"
    file.write_text(text)
    of_command = calculon.serve(MODEL, str(file), SYSTEM, **LOAD)
    fields = {"num_procs": 2, "max_batch": 64, "engine": engine}
    own = read_deployment(fields, facts=facts_of(MODEL, SYSTEM)).to_dict()
    host = ("async_host", "request_time", "pass_host", "sequence_host")
    names = ("engine", "admission", "prefill_graphs", "graph_tokens", *host, *OF_EXPERTS)
    changes = {name: own[name] for name in names if name in own}
    of_record = calculon.serve(MODEL, one, SYSTEM, changes=changes, **LOAD)
    assert of_command.deployment == of_record.deployment
    assert of_command.stats == of_record.stats


@pytest.mark.parametrize("engine", [*ENGINES, "vllm@0.8"])
def test_a_deployment_with_the_defaults_of_an_engine_is_written_and_read(engine, tmp_path):
    """Its share of all memory becomes one of the free memory, and the release stays in a comment."""
    changes = {"engine": engine, "max_batch": 64, "request_time": 0.02, "pass_host": 1e-3}
    one = calculon.serve(MODEL, "tp=2", SYSTEM, changes=changes, **LOAD)
    dialect = ENGINES[engine.partition("@")[0]]
    load = read_workload(options=LOAD)
    facts = facts_of(MODEL, SYSTEM)
    text = deployment_text(dialect, one.deployment, server_of(MODEL, SYSTEM, load), facts)
    assert ("engine=vllm@0.8" in text) == ("@" in engine)
    file = tmp_path / "run.sh"
    file.write_text(text)
    found = calculon.serve(MODEL, str(file), SYSTEM, **LOAD)
    assert found.deployment.engine == engine
    for name in ("ttft", "tpot", "output_rate", "max_concurrency"):
        assert found[name] == pytest.approx(one[name], rel=1e-3), name
    if one.deployment.memory_share == "free":
        return
    plain = deployment_text(dialect, one.deployment, facts=facts)  # its own share stays open
    assert dialect.name == "sglang" or "gpu-memory-utilization" not in plain
    other = replace(one.deployment, memory_fraction=0.3)
    assert re.search(r"(utilization|static) 0\.3\b", deployment_text(dialect, other, facts=facts))
    with pytest.raises(SpecError, match=r"memory_share: expected free.*--system"):
        deployment_text(ENGINES["tensorrt-llm"], other, facts=facts)


COMMANDS = {
    "vllm": "vllm serve m -tp 4",
    "sglang": "python -m sglang.launch_server --model-path m --tp 4",
    "tensorrt-llm": "trtllm-serve m --tp_size 4",
}


@pytest.mark.parametrize("machine", ["h100_80g_sxm", "a100_80g_sxm", "l40s", "b200_sxm"])
@pytest.mark.parametrize("engine", ENGINES)
def test_a_command_without_options_has_the_defaults_of_the_preset(engine, machine):
    """Launch files and presets state the same engine; a share of all memory becomes one of the free memory."""
    system = inputs.system(machine)
    fields = {"num_procs": 4, "tensor_par": 4, "engine": engine}
    known = read_deployment(fields, facts=facts_of(MODEL, system))
    found = calculon.serve(MODEL, COMMANDS[engine], system, **LOAD)
    shares = ("memory_share", "memory_fraction")
    same = {name: getattr(known, name) for name in shares}
    assert replace(found.deployment, **same) == known
    ours = calculon.serve(MODEL, known, system, **LOAD)
    assert found["max_concurrency"] == pytest.approx(ours["max_concurrency"], rel=1e-3)


def test_a_checkpoint_in_8_bits_is_loaded_as_released():
    """671 GB of DeepSeek-V3 leave memory on 8 H200; in 16 bits they would not fit."""
    command, system = "vllm serve m -tp 8 -ep", inputs.system("h200_141g_sxm")
    found = calculon.serve("deepseek-v3", command, system, users=8, **LOAD)
    assert found.deployment.weights_dtype == "float8_block"
    stated = calculon.import_flags(command, model="deepseek-v3", system=system).deployment
    assert stated["weights_dtype"] == "float8_block"
    share = stated["memory_fraction"]
    assert share == pytest.approx(found.deployment.memory_fraction, rel=0.02)


def test_processors_and_fields_are_changed(tmp_path):
    file = tmp_path / "run.sh"
    file.write_text("vllm serve m -tp 2 --max-num-seqs 8 --cpu-offload-gb 3")
    with pytest.warns(SpecWarning, match="--cpu-offload-gb: changes the result"):
        found = calculon.serve(
            MODEL, file, SYSTEM, changes={"num_procs": 4, "max_batch": 16}, **LOAD
        )
    assert (found.deployment.replicas, found.deployment.max_batch) == (2, 16)
    with pytest.raises(SpecError, match="processors: expected a multiple of 2 x 1"):
        calculon.serve(MODEL, file, SYSTEM, changes={"num_procs": 3}, **LOAD)


def test_what_starts_no_engine_is_no_launch(tmp_path):
    other = tmp_path / "other.sh"
    other.write_text("echo hello")
    assert launched_server(str(other)) is None
    assert launched_server({"num_procs": 1}) is None
    assert launched_server("-") is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(SpecError):
            calculon.serve(MODEL, str(other), SYSTEM, **LOAD)
