"""``calculon why``: pages, files and exit codes."""

import json

import pytest

import calculon
from tests.helpers import LLAMA_X64_P4

RUNS = ("megatron-1T", "3072_t4_p64_d12_mbs4_full", "a100_80g")
TODAY = ("llama3-8B", "llama3-8B_h100x64", "h100_80g_sxm")


def test_a_malformed_file_is_told_as_far_as_it_can_be_read(run, spec):
    plan = spec("examples", TODAY[1], microbatch_size="two", zero_stag=2)
    code, out, _ = run("why", TODAY[0], plan, TODAY[2])
    assert code == 1
    assert "assumed instead: microbatch_size=1" in out
    assert "did you mean 'zero_stage'?" in out


def test_what_cannot_be_read_at_all_is_bad_input(refuses, tmp_path):
    (tmp_path / "mine.json").write_text("[1, 2]")
    message = "calculon: error: mine.json: expected an object"
    refuses(("why", "llama3-8B"), [("mine.json h100_80g_sxm", message)])


def test_unusual_proposals_are_explained_in_words(run):
    page = run("explain", "mixtral-8x7b", "tp=1 dp=64 ep=8 batch=512", "h100").out
    assert "unusual: Context parallelism is for long sequences" in " ".join(page.split())


def test_proposals_of_a_file_are_executions_that_run(run, tmp_path):
    code, out, _ = run("why", *RUNS, "--set", "activation_recompute=none", "-o", "-")
    assert code == 1
    proposals = json.loads(out)["proposals"][:2]
    assert proposals
    for one in proposals:
        found = calculon.estimate(RUNS[0], one["execution"], RUNS[2])
        assert found.stats["total_time"] == pytest.approx(one["total_time"])


def test_fields_that_an_execution_leaves_out_change_from_their_defaults(run, tmp_path):
    """A change of the edition is among those proposed."""
    fields = LLAMA_X64_P4 | {"tensor_par_comm_type": "rs_ag", "optimizer_sharding": False}
    fields |= {"coll_algo": "ring"}
    del fields["edition"]
    (tmp_path / "e.json").write_text(json.dumps(fields))
    code, out, _ = run("why", "llama3-8B", "e.json", "h100_80g_sxm")
    assert code == 1
    assert "edition sc23 -> corrected" in out


def test_a_number_of_processors_is_planned_first(run):
    code, out, err = run("explain", "gpt2-124M", "2", "h100", "-o", "-")
    best = calculon.plan("gpt2-124M", 2, "h100").best
    assert code == 0
    assert "explains the best plan for 2 processors" in err
    assert json.loads(out)["stats"]["total_time"] == best.stats["total_time"]
