"""``calculon import-flags`` and ``export-flags``: launch files in and out."""

import json
from pathlib import Path

import pytest

from calculon import inputs
from calculon.serving.records.read_records import read_deployment
from tests.helpers import ROOT

SCRIPT = ROOT / "examples/launch/llama3-8b.sh"
ENGINE = ROOT / "tests/launch/scripts/vllm/llama70b_fp8_h200.sh"


def test_execution_and_model_are_written_and_are_specs(run):
    code, out, _ = run("import-flags", "megatron-lm", SCRIPT, "-o", "plan.json", "-m", "model.json")
    assert (code, out.splitlines()[-2:]) == (0, ["Output: plan.json", "Output: model.json"])
    assert inputs.execution("plan.json").tensor_par == 4
    assert inputs.model("model.json") == inputs.model("llama3-8B")
    of_file = run("llm", "llama3-8B", "plan.json", "h100", "-", "--format", "json").out
    of_script = run("llm", "model.json", SCRIPT, "h100", "-", "--format", "json").out
    times = [json.loads(one)["total_time"] for one in (of_file, of_script)]
    assert times[0] == times[1]


def test_an_execution_is_printed_with_the_page_on_standard_error(run):
    code, out, err = run("import-flags", SCRIPT, "-o", "-")
    assert code == 0
    assert json.loads(out)["base"] == "megatron-lm"
    assert "Read: " in err


def test_a_script_comes_from_standard_input(run, standard_input):
    standard_input(SCRIPT.read_bytes())
    assert run("import-flags", "-").out.startswith("<stdin>: Megatron-LM")


TRAIN = "torchrun --nproc_per_node 8 x.py --tensor-model-parallel-size 2"


def test_wrong_arguments_are_one_message_each(refuses, tmp_path):
    (tmp_path / "litgpt.yaml").write_text("out_dir: out\ntrain:\n  micro_batch_size: 4\n")
    (tmp_path / "run.sh").write_text(f"{TRAIN} --micro-batch-size $M")
    rows = [
        ("import-flags run.sh", "--env M=VALUE"),
        ("import-flags none.sh", "none.sh: expected a readable file"),
        (f"import-flags megatron {SCRIPT}", "did you mean 'megatron-lm'"),
        ("import-flags litgpt.yaml", "found a file of LitGPT, which is not supported"),
        ("compare llama3-8B_h100x64 litgpt.yaml", "found a file of LitGPT"),
        (f"import-flags {SCRIPT} --env TP", "NAME=VALUE"),
        (f"import-flags {SCRIPT} -o plan.txt", "ends in .json"),
        (f"import-flags {SCRIPT} -o - -m -", "one output on standard output"),
        ("export-flags megatron llama3-8B_h100x64", "did you mean 'megatron-lm'"),
        ("export-flags megatron-lm none", "none"),
        ("export-flags megatron-lm llama3-8B_h100x64 gemma2-9B", "norms: expected 2"),
        ("export-flags megatron-lm llama3-8B_h100x64 --set optimizer=adam_8bit",
         "optimizer: expected a value that Megatron-LM can express"),
        ("export-flags vllm llama3.1-70B_h100x8 --set token_budget=0", "token_budget: expected a value that"),
        ("export-flags tensorrt-llm llama3.1-70B_h100x8 --set batching=static", "batching"),
        ("export-flags vllm llama3.1-70B_h100x8 --set memory_fraction=0.5", "--system"),
        ("export-flags vllm 8 llama3-70B", "8: expected a model and a system"),
        ("export-flags megatron-bridge llama3-8B_h100x64 -o run.py", "run.py: expected a name such as run.yaml"),
        ("export-flags torchtitan llama3-8B_h100x64 -o run.sh", "run.sh: expected a name such as run.py"),
        ("export-flags vllm 8 llama3-70B -o run.json", "run.json: expected a name such as run.sh"),
        ("export-flags vllm 8 llama3-70B", "found no system. Hint: name it: --system h100"),
        (f"llm llama3-8B {ENGINE} h100 -", "a server of vLLM. Hint: calculon serve takes it"),
    ]  # fmt: skip
    refuses((), rows)


def test_a_result_says_the_model_of_its_script(run, output_of):
    search = ("loe", "llama3-8B", 8, 8, "bfloat16", "h100_80g_sxm", "best.json", "--quiet")
    assert run(*search, "--preset", "megatron-lm", "--fix", "tensor_par=8").code == 0
    out = output_of("export-flags", "megatron-lm", "best.json#0")
    assert "--num-layers 32" in out
    assert out.startswith("#!/bin/bash\n# Megatron-LM, written for ")


def test_a_command_of_an_engine_is_a_deployment(output_of):
    command = "vllm serve some/model-AWQ -tp 8 --quantization awq --gpu-memory-utilization 0.9"
    known = ("--model", "llama3-70B", "--system", "h100")
    out = output_of("import-flags", command, *known, "-o", "served.json")
    assert "1 replica of TP 8" in out
    assert "weights int4_g128" in out
    assert "of the memory left by weights" in out
    found = read_deployment("served.json")
    assert (found.tensor_par, found.max_batch, found.admission) == (8, 1024, "mean")
    assert 0.9 < found.memory_fraction < 1


@pytest.mark.usefixtures("without_help")
def test_what_serves_becomes_a_command_with_the_batch_that_keeps_the_limits(run, output_of):
    asked = ("llama3-8B", 1, "h100", "--prompt", 2000, "--output", 500, "--tpot", "20ms")
    assert run("serve", *asked, "-o", "served.json").code == 0
    batch = json.loads(Path("served.json").read_text())["batch"]
    assert run("export-flags", "vllm", "served.json", "-o", "run.sh").code == 0
    script = Path("run.sh").read_text()
    assert f"--max-num-seqs {batch}" in script
    assert "--gpu-memory-utilization" in script
    out = output_of("serve", "llama3-8B", "run.sh", *asked[2:])
    assert f"{batch} sequences per replica: as many as max_batch allows" in out


@pytest.mark.usefixtures("without_help")
def test_a_script_stands_beside_a_deployment(output_of):
    Path("run.sh").write_text("vllm serve some/model --max-num-seqs 16")
    load = ("--prompt", 500, "--output", 100)
    out = output_of("compare", "llama3-8B,run.sh,h100", "llama3-8B,1,h100", *load)
    assert "16" in out
