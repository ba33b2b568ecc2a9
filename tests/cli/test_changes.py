"""``--set``: every command changes the values that it is told to, and says so."""

import json

import pytest

from calculon.base.errors import SpecError
from calculon.cli.changes import parsed, with_changes
from calculon.inputs import Changed
from tests.helpers import refusal

KINDS = ("model", "execution", "system")
DEPLOYMENTS = ("workload", "model", "system")
"""Of a search for deployments."""

LLAMA = ("llama3-8B", "llama3-8B_h100x64", "h100_80g_sxm")
SPACE = ("llama3-8B", 8, 64, "bfloat16", "h100_80g_sxm")


def test_a_path_finds_its_spec_and_a_value_its_type():
    rows = [
        ("system.mem1.GiB=120", "system", "mem1.GiB", 120),
        ("mem1.GiB=1.5", "system", "mem1.GiB", 1.5),
        ("networks[1].size = 72", "system", "networks[1].size", 72),
        ("system.networks[0].latency=3e-6", "system", "networks[0].latency", 3e-6),
        ("mem1.MB_efficiency=[[0, 0.5]]", "system", "mem1.MB_efficiency", [[0, 0.5]]),
        ("model.seq_size=4096", "model", "seq_size", 4096),
        ("activation=gelu", "model", "activation", "gelu"),
        ("tensor_par=4", "execution", "tensor_par", 4),
        ("execution.zero_stage='1'", "execution", "zero_stage", "1"),
        ("stage_blocks=9-8-8-7", "execution", "stage_blocks", "9-8-8-7"),
        ("training=false", "execution", "training", False),
    ]
    for text, kind, path, value in rows:
        expected = {one: {path: value} if one == kind else {} for one in KINDS}
        assert parsed([text], KINDS) == expected, text


def test_what_is_no_change_says_why():
    rows = [
        ("tensor_par", KINDS, "expected PATH=VALUE, such as model.seq_size=4096"),
        ("=4", KINDS, "expected PATH=VALUE"),
        ("tensor_par=", KINDS, "expected PATH=VALUE"),
        ("mem1[=4", KINDS, "a path such as networks"),
        ("mem1.GiB=[", KINDS, "mem1.GiB: expected a value as in a YAML file"),
        ("tensor_paar=4", KINDS, "expected a field of the model, execution or system, found"),
        ("tensor_paar=4", KINDS, "did you mean 'tensor_par'?"),
        ("tensor_par=4", ("model", "system"), "in a search: --fix tensor_par=VALUE"),
        ("execution.tensor_par=4", ("model", "system"), "in a search: --fix tensor_par=VALUE"),
        ("max_batch=4", DEPLOYMENTS, "one of the deployment. Hint: in a search: --fix max_batch="),
        ("deployment.tensor_par=2", DEPLOYMENTS, "in a search: --fix tensor_par=VALUE"),
        ("nope=3", DEPLOYMENTS, "expected a field of the workload, model or system, found 'nope'"),
        ("workload=3", DEPLOYMENTS, "expected one of its fields, such as workload.prompt"),
        ("model=3", ("deployment", *DEPLOYMENTS), "expected one of its fields, such as model."),
        ("execution=3", DEPLOYMENTS, "found one of the execution"),
        ("num_procs=3", DEPLOYMENTS, "use the argument of the processor count"),
        ("num_procs=3", ("model", "system"), "use the argument of the processor count"),
        ("prefill.num_procs=3", DEPLOYMENTS, "--apart tries separate prefill pools"),
        ("promt=5", DEPLOYMENTS, "did you mean 'prompt'?"),
        ("hidden=4", ("system",), "expected a field of the system, found one of the model"),
        ("microbatch_size=2", ("deployment", *DEPLOYMENTS), "found one of the execution"),
    ]
    for text, kinds, said in rows:
        assert said in refusal(parsed, [text], kinds), text


def test_a_path_of_a_workload_finds_it_and_a_text_with_a_colon_stays_a_text():
    changes = parsed(["workload.rate=2", "prompt_cv=1", "hidden=512"], DEPLOYMENTS)
    assert changes == {
        "workload": {"rate": 2, "prompt_cv": 1},
        "model": {"hidden": 512},
        "system": {},
    }
    found = parsed(["draft=model:", "prefill={num_procs: 2}"], ("deployment", *DEPLOYMENTS))
    assert found["deployment"] == {"draft": "model:", "prefill": {"num_procs": 2}}


def test_a_field_of_two_specs_needs_the_name_of_one(monkeypatch):
    both = {"model": ("part", "hidden"), "system": ("part",)}
    monkeypatch.setattr("calculon.inputs._FIELDS_OF", both)
    with pytest.raises(SpecError, match=r"part: expected model\.part or system\.part"):
        parsed(["part=mlp"], ("model", "system"))
    assert parsed(["model.part=mlp"], ("model", "system"))["model"] == {"part": "mlp"}


def test_specs_are_changed_where_something_is_set_and_no_others():
    found = with_changes(["mem1.GiB=120"], model="gpt3-175B", execution=None, system="a100_80g")
    assert found == {
        "model": "gpt3-175B",
        "execution": None,
        "system": Changed("a100_80g", {"mem1.GiB": 120}),
    }


def test_an_estimate_is_that_of_the_changed_files(run, output_of, tmp_path):
    changes = ("model.seq_size=4096", "mem1.GBps=3000", "microbatch_size=1", "coll_algo=ring")
    options = [word for text in changes for word in ("--set", text)]
    out = output_of("llm", *LLAMA, "-", "-f", "json", *options)
    (tmp_path / "system.json").write_text('{"base": "h100_80g_sxm", "mem1": {"GBps": 3000}}')
    plan = {"base": "llama3-8B_h100x64", "microbatch_size": 1, "coll_algo": "ring"}
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    short = ("--set", "seq_size=4096")
    same = run("llm", LLAMA[0], "plan.json", "system.json", "-", "-f", "json", *short)
    names = ("total_time", "sample_rate", "proc_mem_tier1_cap_req", "tp_comm_link_time")
    assert [json.loads(out)[n] for n in names] == [json.loads(same.out)[n] for n in names]


@pytest.mark.parametrize(("stated", "warned"), [(2048, True), (4096, False), (0, False)])
def test_a_length_of_the_model_that_does_not_count_is_told(run, tmp_path, stated, warned):
    (tmp_path / "plan.json").write_text(json.dumps({"base": LLAMA[1], "seq_length": stated}))
    specs = LLAMA[0], "plan.json", LLAMA[2]
    done = run("llm", *specs, "-", "-f", "json", "--set", "model.seq_size=4096")
    assert done.code == 0
    told = "plan.json: seq_length 2,048 is used, not the seq_size 4,096" in " ".join(
        done.err.split()
    )
    assert told is warned
    assert bool(done.err) is warned
    if warned:
        alone = run("llm", *specs, "-", "-f", "json")
        assert json.loads(alone.out)["total_time"] == json.loads(done.out)["total_time"]


def test_titles_say_what_was_set(output_of):
    rows = [
        (("llm", *LLAMA, "-"), "llama3-8B on 64 x h100_80g_sxm (mem1.GiB=94)"),
        (("collective", "all_reduce", "1GiB", 8, LLAMA[2]), "of h100_80g_sxm (mem1.GiB=94)"),
        (("matmul", 1024, 1024, 1024, LLAMA[2]), "on h100_80g_sxm (mem1.GiB=94)"),
        (("block", *LLAMA), "h100_80g_sxm (mem1.GiB=94)"),
    ]
    for arguments, titles in rows:
        out = output_of(*arguments, "--set", "mem1.GiB=94")
        assert titles in " ".join(out.split())


def test_a_search_finds_what_fits_the_changed_system(run):
    fixed = "tensor_par=4 pipeline_par=1 microbatch_size=1 weight_offload=false zero_stage=1"
    options = [*(f"--fix={one}" for one in fixed.split()), "--quiet", "-v"]
    whole, less = (
        run("loe", *SPACE, "-", *options, *changes).out.splitlines()
        for changes in ((), ("--set", "system.mem1.GiB=32"))
    )
    assert "System: h100_80g_sxm (mem1.GiB=32)" in less
    assert next(line for line in whole if line.startswith("Good ")) not in less


def test_a_change_that_cannot_be_is_one_message(refuses):
    refuses(
        ("llm", *LLAMA, "-", "--set"),
        [
            ("mem1.GB=9", "h100_80g_sxm: mem1.GB: expected a field"),
            ("mem1.GiB=x", "h100_80g_sxm: mem1.GiB: expected a number"),
        ],
    )
    refuses(
        ("plot", "heatmap", "t.csv", "-o", "x.png"), [("--set hidden=1", "--set: expected a sp")]
    )
