"""The commands and the Python of a page give its numbers, every one to the digit."""

import io
import json
import shlex

import pytest

from calculon.base.errors import Infeasible
from calculon.cli.main import main
from calculon.declarations.files import json_text
from calculon.declarations.result_records import QUESTION
from calculon.explore.exports.equivalent_commands import equivalents, script
from calculon.explore.exports.export_view import LAUNCH_PART
from calculon.explore.exports.exports import offered, written
from calculon.explore.search.searches import best_alone, counts_of, each_split, on_count
from calculon.explore.serving.serving_results import displayed_deployment
from calculon.plan.plan import NAMES
from tests.explore.asking import answers
from tests.explore.stated import CANNOT, MACHINE, STATES, TINY, exported, state_of
from tests.helpers import csv_rows


def first_of(names, cases, count=1):
    """Run a test with the first cases in the full suite; the others are alike."""
    several = [pytest.param(*(one if isinstance(one, tuple) else (one,))) for one in cases]
    large = [pytest.param(*one.values, marks=pytest.mark.large) for one in several[count:]]
    return pytest.mark.parametrize(names, [*several[:count], *large])


def commands(address, view="plan"):
    """Return the commands of a view by the name of the command."""
    return {one.argv[0]: one for one in equivalents(state_of(address, view), answers())}


def printed(one, capsys, monkeypatch, *options):
    """Return what a command prints, read as JSON."""
    words = shlex.split(one.text.rpartition("|")[2])[1:]  # as a shell reads it
    given = shlex.split(one.text)[2] if one.given else ""
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(given.encode())))
    assert main([*words, *options]) == 0
    return json.loads(capsys.readouterr().out)


@first_of("name", sorted(STATES, key=["tiny, own", "tiny"].__contains__, reverse=True), 2)
def test_the_answer_is_the_document_of_the_command_that_plans(name, capsys, monkeypatch):
    state = state_of(STATES[name])
    told = printed(commands(STATES[name])["plan"], capsys, monkeypatch, "-o", "-")
    assert exported("answer.json", state) == told
    shown = answers().plan(state)
    plan = told["mine"] if state.plan else told["plans"]["0"]
    assert plan["stats"].items() >= json.loads(json_text(shown.estimate.stats)).items()
    assert plan["execution"] == {one: shown.fields[one] for one in NAMES}


@first_of("name", ["tiny, own", "own, all words", "best", "uneven stages"])
def test_commands_about_a_plan_say_what_its_files_say(name, capsys, monkeypatch):
    state = state_of(STATES[name], "pipeline")
    known = commands(STATES[name], "pipeline")
    told = printed(known["estimate"], capsys, monkeypatch, "-f", "json")
    found = exported("statistics.json", state)
    for one in (told, found):  # which say too where the plan was read
        del one[QUESTION]
    assert found == told
    found = exported("block.json", state)
    assert found == printed(known["block"], capsys, monkeypatch, "-o", "-")


@first_of(
    ("name", "options"),
    [
        ("tiny, own", "&of=mfu&spread=50%"),
        ("own, all words", "&of=mfu&spread=50%"),
        ("best", ""),
        ("best", "&of=bubble_time&spread=50%"),
    ],
)
def test_a_sensitivity_is_that_of_the_command(name, options, capsys, monkeypatch):
    address = STATES[name] + options
    state = state_of(address, "machine")
    one = commands(address, "machine")["sensitivity"]
    told = printed(one, capsys, monkeypatch, "-f", "json")
    assert exported("sensitivity.json", state) == told
    rows = csv_rows(exported("sensitivity.csv", state))
    assert [float(row["value"]) for row in rows] == [one["value"] for one in told["figures"]]
    shown = answers().sensitivity(state)
    assert json.loads(json_text(shown.rows())) == told["figures"]
    assert shown.value == told["value"]


def test_what_is_searched_again_is_that_of_the_command(capsys, monkeypatch):
    address = f"{STATES['tiny']}&replan=on&of=total_time"
    one = commands(address, "machine")["sensitivity"]
    told = printed(one, capsys, monkeypatch, "-f", "json", "-q")
    assert exported("sensitivity.json", state_of(address, "machine")) == told
    assert told["replanned"]["capacity"]


@first_of(
    ("name", "options"),
    [
        ("tiny, own", "open=optimizer_offload&objective=mfu&where=total_time < 20&fix=mbs=1,2"),
        ("own, all words", "fix=tensor_par=2,4 zero_stage=1&where=total_time < 20"),
        ("best", "objective=proc_mem_tier1_cap_req&where=total_time < 60"),
        ("a machine of another framework", ""),
    ],
)
def test_a_search_is_that_of_the_command(name, options, tmp_path, capsys):
    address = f"{STATES[name]}&{options}" if options else STATES[name]
    state = state_of(address, "search")
    one = commands(address, "search")["search"]
    path = tmp_path / "best.json"
    assert main([str(path) if word == "best.json" else word for word in one.argv]) == 0
    capsys.readouterr()
    told = json.loads(path.read_text())
    assert exported("search.json", state) == told
    shown = each_split(state, answers())
    execution, stats = next(iter(shown.winners()))
    assert told["0"]["execution"] == execution
    assert told["0"]["stats"] == json.loads(json_text(stats))
    names: dict = {}
    exec(script([one]), names)
    assert next(iter(names["found"].winners())) == (execution, stats)
    rows = csv_rows(exported("search.csv", state))
    assert [float(row["total_time"]) for row in rows] == shown.evaluation["total_time"].tolist()


def test_the_table_of_other_counts_is_that_of_the_command(tmp_path, capsys):
    address = f"{TINY}&procs=2&counts=1&open=optimizer_offload&fix=tp=1"
    state = state_of(address, "search")
    one = equivalents(state, answers())[-1]
    path = tmp_path / "counts.csv"
    assert main([str(path) if word == "counts.csv" else word for word in one.argv]) == 0
    capsys.readouterr()
    told = {int(row["num_procs"]): row for row in csv_rows(path.read_text())}
    counts = counts_of(state, answers())
    assert [*told] == [*counts]
    assert state.procs in counts
    names: dict = {}
    exec(script([one]), names)
    for procs, found in names["by_count"].items():
        shown = best_alone(on_count(state, answers(), procs), answers())
        times = [float(one.evaluation["total_time"][0]) for one in (found, shown)]
        assert times == [float(told[procs]["total_time"])] * 2


@first_of("name", ["tiny, own", "own, all words", "own"])
def test_python_gives_what_commands_give(name):
    state = state_of(STATES[name], "pipeline")
    names: dict = {}
    exec(script(equivalents(state, answers())), names)
    answer, found = names["answer"], json.loads(json_text(names["answer"].to_dict()))
    assert found == exported("answer.json", state)
    assert names["plan"] is answer.mine.estimate
    assert (
        json.loads(json_text(names["operators"].stats)) == (exported("block.json", state)["stats"])
    )


@first_of("name", ["it breaks a rule", "memory is too small", "it is none"], 2)
def test_plans_that_cannot_run_have_commands_that_say_why(name, capsys, monkeypatch):
    state = state_of(CANNOT[name])
    known = commands(CANNOT[name])
    assert set(known) == {"plan", "explain"}
    shown = answers().plan(state)
    told = exported("answer.json", state)
    too_small = name == "memory is too small"  # else commands refuse the plan itself
    assert ("mine" in told) == too_small
    if too_small:  # the command says what mends it, too
        assert told["mine"]["problem"].startswith(shown.problem.removesuffix("."))
    assert not any(one.runs for one in offered(state, answers()).values())
    with pytest.raises(Infeasible):
        written("statistics.json", state, answers())
    words = shlex.split(known["explain"].text.rpartition("|")[2])[1:]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(known["explain"].given.encode())))
    assert main(words) in (1, 2)
    if not too_small:
        assert "expected" in shown.problem
        assert shown.problem.split("expected")[1].split(".")[0] in "".join(capsys.readouterr())


@first_of(
    ("address", "dialect", "left_out"),
    [
        (
            "model=nanogpt-mlp&system=a100_80g_sxm&procs=8&preset=megatron-lm",
            "megatron-lm.sh",
            True,
        ),
        (f"model=llama3-8B&system=h100_80g_sxm&procs=64&{MACHINE}", "nemo.yaml", False),
        (f"model=llama3-8B&system=h100_80g_sxm&procs=64&{MACHINE}", "megatron-lm.sh", False),
    ],
)
def test_launch_files_are_those_that_the_command_emits(address, dialect, left_out, capsys):
    state = state_of(address)
    argv = commands(address)["plan"].argv
    name = dialect.partition(".")[0]
    assert main([*argv, "--preset", "megatron-lm", "--emit", name]) == 0
    told = capsys.readouterr()
    assert told.out.rstrip() == written(dialect, state, answers()).text.rstrip()
    assert ("are left out" in told.err) == left_out
    page = LAUNCH_PART.make(state, answers()).html
    assert ("the settings of the model are left out" in page) == left_out
    assert "pipeline_par" in page or "ddp_bucket_mib" in page  # what DeepSpeed lacks


@first_of(
    "options",
    [
        "deployment.tensor_par=2&deployment.max_batch=9&workload.prompt=1k",
        "workload=rag&workload.rate=3&workload.ttft_limit=500ms&system.mem1.GBps=4000",
        "deployment.kv_dtype=float8&workload.tpot_limit=1ms",
    ],
    2,
)
def test_deployments_are_those_of_the_commands(options, capsys, monkeypatch):
    address = f"model=llama3-8B&system=h100_80g_sxm&procs=4&{options}"
    state, known = state_of(address, "serving"), commands(address, "serving")
    names: dict = {}
    exec(script(equivalents(state, answers())), names)
    missed = not len(names["deployments"])
    found = exported("deployments.json", state)
    assert json.loads(json_text(names["deployments"].to_dict())) == found
    if not missed:
        assert printed(known["serve-optimal"], capsys, monkeypatch, "--format", "json") == found
        assert printed(known["serve"], capsys, monkeypatch, "-f", "json") == exported(
            "served.json", state
        )
    assert missed == bool(
        names["served"].limits and not all(one.met for one in names["served"].limits)
    )
    assert names["served"].stats == displayed_deployment(state, answers()).served.stats
