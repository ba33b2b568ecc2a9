"""Launch files as results of ``compare``, as one's own plan, and as what ``plan --emit`` writes."""

import json
from difflib import unified_diff
from pathlib import Path

import pytest
import yaml

import calculon
from calculon.base.errors import Problem, SpecError
from calculon.cli.emission import Emission

PLAN = {"base": "megatron-lm", "num_procs": 8, "tensor_par": 1, "pipeline_par": 1}
PLAN |= {"batch_size": 32, "activation_recompute": "full"}
QUESTION = ("plan", "gpt2-124M", "8", "h100_80g_sxm", "--batch", "32", "--fix", "pipeline_par=1")
WORDS = {"batch": 32, "fix": {"pipeline_par": 1}, "preset": "megatron-lm"}
SPECS = ("--model", "gpt2-124M", "--system", "h100_80g_sxm")


@pytest.fixture(scope="module", name="best")
def _best():
    return calculon.plan("gpt2-124M", 8, "h100_80g_sxm", **WORDS)


@pytest.fixture(scope="module", name="folder")
def _folder(tmp_path_factory, best):
    """Return a folder with a launch script, and with the answer to a question."""
    folder = tmp_path_factory.mktemp("launch")
    (folder / "run.sh").write_text(calculon.export_flags(PLAN, "megatron-lm", model="gpt2-124M"))
    (folder / "best.json").write_text(json.dumps(best.to_dict()))
    return folder


@pytest.fixture(name="files")
def _files(folder):
    return f"mine={folder / 'run.sh'}", f"best={folder / 'best.json'}"


def test_a_launch_file_is_compared_with_the_model_and_system_of_the_others(output_of, files):
    out = output_of("compare", *files)
    assert out.startswith("A  mine (edition corrected)\nB  best (edition corrected)\n")
    section = out.partition("\nSettings of Megatron-LM, from A to B: ")[2].partition("\n\n")[0]
    assert "tie margin" in section.splitlines()[0]
    assert "drop" in section
    assert "--recompute-granularity full" in section
    assert "run.sh:" in section
    assert "seq_length" not in out.partition("\nTime:")[0]


def test_scripts_may_be_larger_than_documents_of_launchers(output_of, files, folder):
    large = folder / "large.sh"
    large.write_text((folder / "run.sh").read_text() + "# more\n" * 40_000)
    said = output_of("compare", f"mine={large}", files[1])
    assert said == output_of("compare", *files).replace("run.sh:", "large.sh:")


def test_changes_lead_from_the_launch_file_also_in_another_dialect(run, files, folder):
    triple = f"gpt2-124M,{folder / 'run.sh'},h100_80g_sxm"
    call = ("compare", files[1], f"mine={triple}", "--dialect", "megatron-bridge")
    told = json.loads(run(*call, "--format", "json").out)["settings"]
    assert set(told) == {"A"}
    assert (told["A"]["from"], told["A"]["format"]) == ("B", "megatron-bridge")
    words = [one["words"] for one in told["A"]["changes"]]
    assert "drop model.recompute_granularity: full" in words


def test_results_without_a_launch_file_are_told_in_a_dialect_that_is_asked_for(run, files):
    best = files[1].partition("=")[2]
    without = json.loads(run("compare", f"{best}#0", f"{best}#1", "--format", "json").out)
    assert without["settings"] == {}
    words = ("compare", f"{best}#0", f"{best}#1", "--format", "json", "--dialect", "megatron-lm")
    told = json.loads(run(*words).out)["settings"]["B"]
    assert told["from"] == "A"
    assert told["changes"]
    assert not any(one["place"] for one in told["changes"])


def test_a_launch_file_needs_a_system_that_may_be_named(output_of, refuses, files):
    both = ("compare", files[0], f"other={files[0].partition('=')[2]}")
    out = output_of(*both, *SPECS)
    assert "Settings of" not in out  # which are the same
    rows = [((), "a launch file of a known system"), ((), "Hint: --system names it")]
    refuses(both, rows)


def test_an_imported_execution_is_compared_like_its_launch_file(run, output_of, files, folder):
    assert run("import-flags", folder / "run.sh", "-o", folder / "read.json").code == 0
    out = output_of("compare", files[0], folder / "read.json", *SPECS)
    assert "Statistics: 0 differ" in out


OWN = " --no-masked-softmax-fusion --data-path mine  # my data\n"


@pytest.fixture(name="own")
def _own(folder, tmp_path):
    """Return a launch script with what is the user's alone."""
    own = tmp_path / "run.sh"
    own.write_text((folder / "run.sh").read_text().rstrip() + OWN)
    return own


def test_a_launch_file_as_mine_becomes_that_of_the_best(run, own, tmp_path):
    script = tmp_path / "emitted.sh"
    code, out, err = run(*QUESTION, "--mine", own, "--emit", f"megatron-lm:{script}")
    assert code == 0
    assert out.startswith("Plan for gpt2-124M")
    assert "From mine to the best, one change at a time" in out
    assert "Settings of Megatron-LM, from mine to the best: " in out
    assert "run.sh: --no-masked-softmax-fusion: changes the result, and is not modeled" in err
    shown = "".join(unified_diff(*(one.read_text().splitlines(True) for one in (own, script))))
    assert out.endswith(
        f"--- {own}\n+++ {script}\n{shown.partition('+++ ')[2][1:]}Output: {script}\n"
    )
    assert script.read_text().endswith(OWN)
    best = calculon.import_flags(script).execution
    assert best["activation_recompute"] == "none"


def test_a_launch_file_on_standard_output_has_its_changes_on_standard_error(run, own, monkeypatch):
    call = (*QUESTION, "--mine", own, "--emit")
    code, out, err = run(*call, "megatron-lm")
    assert code == 0
    assert out.endswith(OWN)
    assert f"\n--- {own}\n+++ megatron-lm: best plan\n@@ " in err
    assert run(*call, "megatron-lm:-").out == out
    data = run(*call, "megatron-lm:better.sh", "-o", "-")
    assert json.loads(data.out.partition("\nOutput: ")[0])["plans"]
    assert "+++ better.sh" in data.err
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    assert "\x1b[31m-    --recompute-granularity" in run(*call, "megatron-lm").err
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[31m" not in run(*call, "megatron-lm").err


def test_what_cannot_be_changed_is_written_anew(run, refuses, own, best):
    flag = "--recompute-granularity"
    own.write_text(f"NAME={flag[2:]}\n" + own.read_text().replace(flag, "--$NAME"))
    code, out, err = run(*QUESTION, "--mine", own, "--emit", "megatron-lm")
    told = f"Note: {own} cannot be patched: {flag}: expected a place in the file"
    assert "The new file lacks its settings --data-path" in err
    assert (code, out) == (0, calculon.export_flags(best, "megatron-lm"))
    assert told in err
    rows = [
        (f"--mine {own} --emit megatron-lm:{own}", "expected a separate file"),
        (f"--mine {own} --emit megatron-lm:run.toml", "expected a name such as run.sh"),
    ]
    refuses(QUESTION, rows)


def test_an_older_configuration_is_changed_in_its_language_or_not_at_all(run, tmp_path):
    own = tmp_path / "own.toml"
    question = ("plan", "llama3-8B", "64", "h100_80g_sxm", "--mine", own, "--emit")
    text = "[model]\nname = 'llama3'\nflavor = '8B'  # mine\n[training]\nseq_len = 8192\n"
    own.write_text(text + "local_batch_size = 1\n[parallelism]\ntensor_parallel_degree = 8\n")
    assert run(*question, "torchtitan:new.toml").code == 0
    assert Path("new.toml").read_text().startswith(text)
    code, out, _ = run(*question, "torchtitan:new.py")
    assert (code, "--- " in out) == (0, False)  # another language
    assert Path("new.py").read_text().startswith("# torchtitan, written for")


def test_an_execution_changes_a_launch_file(run, refuses, own, folder):
    call = ("export-flags", "megatron-lm", folder / "best.json", "--patch", own)
    code, out, err = run(*call, "-o", "better.sh")
    assert (code, err) == (0, "")
    assert out.startswith(f"--- {own}\n+++ better.sh\n")
    assert out.endswith("Output: better.sh\n")
    assert Path("better.sh").read_text().endswith(OWN)
    printed = run(*call)
    assert printed.out == Path("better.sh").read_text()
    assert printed.err.splitlines()[2:] == out.splitlines()[2:-1]
    Path("empty.sh").write_text("")
    refuses(call, [(("-o", own), "expected a separate file")])
    other = "empty.sh: expected a launch file of Megatron-LM, found another file"
    refuses(call[:3], [(("--patch", "empty.sh"), other)])


def test_a_launch_file_of_another_model_is_not_patched(refuses, own):
    call = ("plan", "gpt2-355M", *QUESTION[2:], "--mine", own, "--emit")
    wanted = f"{own}: expected a launch file that trains gpt2-355M, found another model (num_blocks 12, not 24"
    refuses(call, [(("megatron-lm:better.sh",), wanted)])
    assert not Path("better.sh").exists()


@pytest.mark.large
def test_another_model_than_that_of_mine_is_told(run, files):
    own = files[0].partition("=")[2]
    code, _, err = run("plan", "gpt2-355M", *QUESTION[2:], "--mine", own)
    assert code == 0
    assert "it describes another model than gpt2-355M" in err
    assert "num_blocks 12, not 24" in err


def test_the_best_plan_is_emitted_on_standard_output(output_of, tmp_path):
    """It is planned for the framework of the launcher."""
    answer = tmp_path / "answer.json"
    preset = Emission.of("megatron-bridge").preset
    best = calculon.plan("gpt2-124M", 8, "h100_80g_sxm", **{**WORDS, "preset": preset})
    out = output_of(*QUESTION, "--emit", "megatron-bridge", "-o", answer)
    flags = calculon.export_flags(best, "megatron-bridge")
    assert out.replace(f"Output: {answer}\n", "") == flags
    assert yaml.safe_load(flags)["model"]["num_layers"] == 12
    assert json.loads(answer.read_text())["plans"]


def test_what_cannot_be_emitted_is_refused(refuses):
    rows = [
        ("--emit megatron", "expected one of megatron-lm"),
        ("--emit nemo:", "expected a file after the colon"),
        ("--emit nemo:/nowhere/x.yaml", "expected a folder that exists"),
        ("--emit nemo:/tmp", "/tmp: expected a file, found a folder"),
        ("--emit torchtitan:run.toml", "run.toml: expected a name such as run.py"),
        ("--emit nemo -o -", "expected one output on standard output"),
        ("--emit vllm", "expected a launcher of training"),
    ]
    refuses(QUESTION, rows)
    other = ("plan", "llama3-8B", "64", "tpu_v5p", "--emit", "megatron-lm")
    wanted = "expected a machine that megatron-lm runs on: NVIDIA or AMD, found tpu_v5p"
    refuses(other, [((), wanted)])
    wanted = (
        "tp_async: expected true, the nearest that Megatron-Bridge can express, found false. "
        "Hint: --fix tp_async=true"
    )
    unfixed = ("--emit", "megatron-bridge", "--fix", "tp_async=false", "--fix", "tensor_par=2")
    refuses(QUESTION[:6], [(unfixed, wanted)])


def test_a_model_that_a_launcher_cannot_describe_is_left_out(run):
    code, out, err = run("plan", "gemma2-2B", *QUESTION[2:], "--emit", "megatron-lm")
    assert code == 0
    assert "Note: the settings of gemma2-2B are left out: " in err
    assert "--num-layers" not in out
    assert "--seq-length" in out


@pytest.mark.usefixtures("without_fixes")
def test_nothing_is_printed_on_standard_output_where_nothing_fits(run):
    code, out, err = run(
        "plan", "llama3-8B", "1", "a100_40g", "--batch", "1", "--emit", "megatron-lm"
    )
    assert (code, out) == (1, "")
    assert "no plan fits" in err


def test_a_field_without_a_setting_is_to_be_fixed_in_the_search():
    refusal = Emission("deepspeed", "", "deepspeed")._refusal
    stated = Problem("grad_flat", "true", "false", "--set grad_flat=true")
    balanced = Problem("pp_layout", "uniform, or stage_blocks", "'balanced'", "list them")
    found = refusal(SpecError("execution", [stated, balanced])).problems
    assert [one.hint for one in found] == ["--fix grad_flat=true", "--fix pp_layout=uniform"]
