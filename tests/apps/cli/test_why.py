"""``calculon why``: pages, files and exit codes."""

import json

import pytest

import calculon
from tests.helpers import document

RUNS = ("megatron-1T", "3072_t4_p64_d12_mbs4_full", "a100_80g")
TODAY = ("llama3-8B", "llama3-8B_h100x64", "h100_80g_sxm")


def test_what_runs_is_told_with_exit_code_0(run):
    code, out, err = run("why", *RUNS)
    assert (code, err) == (0, "")
    for words in ("What takes the time", "Memory", "What would be faster", "What the options save"):
        assert words in out
    assert "pipeline bubble" in out
    assert "activation_recompute=full" in out


def test_what_does_not_fit_is_told_with_exit_code_1(run):
    code, out, err = run("why", *RUNS, "--set", "activation_recompute=none")
    said = "calculon: infeasible: it cannot run: tier-1 memory is too small by 606.9 GiB\n"
    assert (code, err) == (1, said)
    assert "606.88 GiB too much" in out
    assert "59 of 64 stages need too much" in out
    assert "activation_recompute none -> full" in out


def test_every_broken_rule_is_told(run):
    changes = ("--set", "tensor_par=5", "--set", "batch_size=1000")
    code, out, err = run("why", *RUNS, *changes)
    assert code == 1
    assert err.startswith("calculon: infeasible: it cannot run: num_procs: expected")
    assert err.endswith("; and 3 more\n")
    for words in ("What is wrong", "num_procs", "a multiple of data_par=12", "seq_size = 8192"):
        assert words in out


def test_a_rule_of_several_sides_is_told_under_a_field_that_it_names(run):
    code, out, _ = run("why", *TODAY, "--set", "pipeline_interleaving=9")
    wrong, _, _ = out.partition("What would do")
    assert code == 1
    assert "\n  pipeline_interleaving  the 32 blocks of a pipeline stage" in wrong
    assert "\n  system " not in wrong


def test_a_malformed_file_is_told_as_far_as_it_can_be_read(run, tmp_path):
    fields = document("examples", "llama3-8B_h100x64") | {"microbatch_size": "two", "zero_stag": 2}
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(fields))
    code, out, _ = run("why", "llama3-8B", str(path), "h100_80g_sxm")
    assert code == 1
    assert "read as with microbatch_size=1" in out
    assert "did you mean 'zero_stage'?" in out


def test_what_cannot_be_read_at_all_is_bad_input(run, tmp_path):
    path = tmp_path / "mine.json"
    path.write_text("[1, 2]")
    code, out, err = run("why", "llama3-8B", str(path), "h100_80g_sxm")
    assert (code, out) == (2, "")
    assert err.startswith(f"calculon: error: {path}: expected an object")


def test_a_file_has_what_the_function_answers(run, tmp_path):
    path = tmp_path / "why.json"
    code, out, _ = run("why", *RUNS, "--set", "tensor_par_overlap=ring", "-o", str(path))
    assert (code, out) == (0, f"Output: {path}\n")
    told = json.loads(path.read_text())
    execution = document("examples", RUNS[1]) | {"tensor_par_overlap": "ring"}
    assert told == json.loads(json.dumps(calculon.why(RUNS[0], execution, RUNS[2]).to_dict()))


def test_proposals_of_a_file_are_executions_that_run(run, tmp_path):
    code, out, _ = run("why", *RUNS, "--set", "activation_recompute=none", "-o", "-")
    assert code == 1
    proposals = json.loads(out)["proposals"][:2]
    assert proposals
    for one in proposals:
        found = calculon.estimate(RUNS[0], one["execution"], RUNS[2])
        assert found.stats["total_time"] == pytest.approx(one["total_time"])


@pytest.mark.parametrize("width", ["80", "160"])
def test_lines_are_no_wider_than_the_screen(run, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", width)
    for options in ((), ("--set", "activation_recompute=none")):
        _, out, _ = run("why", *RUNS, *options)
        assert max(map(len, out.splitlines())) <= int(width)


def test_fields_that_an_execution_leaves_out_change_from_their_defaults(run, tmp_path):
    """A change of the edition is among those proposed."""
    fields = document("examples", "3072_t4_p64_d12_mbs4_full") | {
        **{"num_procs": 64, "tensor_par": 2, "pipeline_par": 4, "data_par": 8, "batch_size": 512},
        **{"microbatch_size": 2, "datatype": "bfloat16", "activation_recompute": "none"},
        **{
            "tensor_par_comm_type": "rs_ag",
            "pipeline_interleaving": 1,
            "optimizer_sharding": False,
        },
        **{"attn_impl": "flash", "ce_impl": "fused", "grad_buffer": "full", "preset": "published"},
        **{"coll_algo": "ring"},
    }
    (tmp_path / "e.json").write_text(json.dumps(fields))
    code, out, _ = run("why", "llama3-8B", "e.json", "h100_80g_sxm")
    assert code == 1
    assert "edition sc23 -> corrected" in out
