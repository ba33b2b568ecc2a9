"""Commands take what people write: models, systems, counts, batches in tokens, types of numbers, configurations."""

import json
import re

import calculon
from calculon.advise.ask import ask
from tests.declarations.configurations import llama

SEARCH = ("loe", "megatron-22B", "8", "4", "float16", "a100_80g", "-q")


def _answers(path):
    """Return a result without its question, which says in what words it was asked."""
    document = json.loads(path.read_text())
    for one in (document, document.get("0", {})):
        one.pop("question", None)
    return document


def test_a_search_of_words_is_that_of_exact_names(run, tmp_path):
    fix = ("-q", "--fix", "tensor_par=8", "--fix", "pipeline_par=1")
    run("loe", "llama3-8B", "1024", "512", "bfloat16", "h100_80g_sxm", "exact.json", *fix)
    told = run("loe", "Llama 3.1 8B", "1k", "4M", "bf16", "h100", "words.json", *fix)
    assert _answers(tmp_path / "words.json") == _answers(tmp_path / "exact.json")
    assert "MAX_BATCH 4M: 512 sequences = 4.19 M tokens" in told.err


def test_fp8_is_a_recipe_and_float8_what_it_was(run, tmp_path):
    arguments = ("loe", "-q", "--fix", "tensor_par=8", "llama3-8B", "8", "64")
    told = run(*arguments, "fp8", "h100", "recipe.json")
    assert (told.code, told.err) == (0, "fp8: datatype=bfloat16, fp8_recipe=delayed\n")
    execution = json.loads((tmp_path / "recipe.json").read_text())["0"]["execution"]
    assert (execution["datatype"], execution["fp8_recipe"]) == ("bfloat16", "delayed")
    run(*arguments, "float8", "h100", "stored.json")
    execution = json.loads((tmp_path / "stored.json").read_text())["0"]["execution"]
    assert (execution["datatype"], execution["matmul_dtype"]) == ("float8", "same")


def test_what_is_unclear_is_refused(run, refuses):
    rows = [
        (2, "512 - 1k", "NUM_PROCS: expected counts such as 512,1024"),
        (3, "2k", "MAX_BATCH: expected a batch in sequences (512) or in tokens"),
        (4, "fp9", "expected one of float8, float16, bfloat16, float32, bf16"),
        (5, "8xh100", "system: h100_80g_sxm; state the number of processors separately"),
    ]
    for place, text, said in rows:
        words = [*SEARCH[:6], "-", "-q"]
        words[place] = text
        refuses((), [(words, said)])
    done = run(*SEARCH[:4], "fp8", "h100", "-", "-q", "--edition", "sc23")
    assert done.code == 2
    assert "edition: expected corrected, which fp8_recipe=delayed needs" in done.err


def test_a_configuration_is_a_model_everywhere(run, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(llama()))
    assert run("lpc", "config.json").out.endswith("-> 8.030 T\n".replace("T", "G"))
    exact = run("llm", "llama3-8B", "llama3-8B_h100x64", "h100", "exact.json")
    words = run("llm", "config.json", "llama3-8B_h100x64", "h100", "words.json")
    assert exact.code == words.code == 0
    assert _answers(tmp_path / "words.json") == _answers(tmp_path / "exact.json")


def test_a_strict_value_of_a_file_names_the_one_that_was_meant(refuses, spec):
    plan = spec("examples", "llama3-8B_h100x64", datatype="bf16")
    refuses(("llm", "llama3-8B", plan, "h100"), [("-", "did you mean 'bfloat16'?")])


def test_every_command_takes_and_names_the_same_preset(run, tmp_path):
    machine, usual = "trainium2", "common"  # others have megatron-lm, as in recorded screens
    short = {"edition": "corrected", "num_procs": 4, "batch_size": 8, "microbatch_size": 1}
    execution = tmp_path / "short.json"
    execution.write_text(json.dumps(short | {"tensor_par": 1, "pipeline_par": 1}))
    one = ("mlp-4x1024", str(execution), machine)
    fix = ("--fix", "tensor_par=1")
    for call in (
        *(("llm", *one, "-"), ("why", *one)),
        ("loe", "mlp-4x1024", "4", "8", "bf16", machine, "-", "-q", *fix),
        ("plan", "mlp-4x1024", "4", machine, "--batch", "8", *fix),
    ):
        found = " ".join(run(*call).out.split()[:120])
        assert re.search(rf"(preset|corrected,|framework) {usual}\b", found), call
    assert ask("mlp-4x1024", 4, machine).preset.name == usual  # explore asks with it, too


def test_a_plan_of_ones_own_is_completed_as_by_other_commands(tmp_path):
    fields = {"edition": "corrected", "num_procs": 2, "tensor_par": 2, "pipeline_par": 1}
    fields |= {"data_par": 1, "batch_size": 8, "microbatch_size": 1, "datatype": "bfloat16"}
    file = tmp_path / "mine.json"
    file.write_text(json.dumps(fields))
    answer = calculon.plan("gpt2-124M", 2, "h100_80g_sxm", mine=file, fix={"tensor_par": 2})
    estimate = calculon.estimate("gpt2-124M", file, "h100_80g_sxm")
    assert answer.mine.execution == estimate.execution
