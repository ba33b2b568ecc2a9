"""Files of a page are what commands write of the same state, and carry the numbers that the page shows."""

import csv
import io
import json
import shlex

import pytest

from calculon import inputs
from calculon import report as write_report
from calculon.apps.cli.main import main
from calculon.apps.explore.answers import Answers
from calculon.apps.explore.exports import EXPORTS, LAUNCH_FILES, offered, whole_answer, written
from calculon.apps.explore.offer import Offer
from calculon.apps.explore.page_state import VIEWS, State, read_state
from calculon.apps.explore.same_command import same, script
from calculon.errors import Infeasible, SpecError
from calculon.launch.dialects import read_launch
from calculon.plan.plan import NAMES
from calculon.spec.files import json_text
from calculon.spec.result_selection import QUESTION

OWN = "tensor_par=4&pipeline_par=2&data_par=8&microbatch_size=2&activation_recompute=full"
MACHINE = "system.mem1.GiB=120&system.networks[0].latency=3e-6"
SMALL = "model=llama3-8B&system=h100_80g_sxm&procs=64"

STATES = {
    "best": SMALL,
    "own": f"{SMALL}&{OWN}",
    "best on a changed machine": f"{SMALL}&{MACHINE}&tokens=15T",
    "own, all words": f"{SMALL}&{OWN}&{MACHINE}&seq=4k&batch=1M&dtype=fp8&preset=megatron-lm&tokens=1T",
    "uneven stages": f"{SMALL}&tensor_par=2&pipeline_par=4&pipeline_interleaving=2&zero_stage=1",
    "a machine of another framework": "model=llama3-8B&system=tpu_v5p&procs=64",
}
CANNOT = {
    "it is none": f"{SMALL}&tensor_par=7",
    "it breaks a rule": f"{SMALL}&tensor_par=64&pipeline_par=1",
    "memory is too small": "model=llama3-70B&system=h100_80g_sxm&procs=64&tensor_par=1&pipeline_par=1",
}
"""Plans that cannot run."""


@pytest.fixture(scope="module")
def answers():
    return Answers(Offer())


def state_of(answers, address, view="plan"):
    pairs = [tuple(one.split("=", 1)) for one in address.split("&")]
    first = State(model="llama3-8B", system="h100_80g_sxm", procs=8)
    return read_state([*pairs, ("view", view)], answers.offer, first)


def commands(answers, address, view="plan"):
    """Return the commands of a view by the name of the command."""
    return {one.argv[0]: one for one in same(state_of(answers, address, view), answers)}


def printed(one, capsys, monkeypatch, *options):
    """Return what a command prints, read as JSON."""
    words = shlex.split(one.text.rpartition("|")[2])[1:]  # as a shell reads it
    given = shlex.split(one.text)[2] if one.given else ""
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(given.encode())))
    assert main([*words, *options]) == 0
    return json.loads(capsys.readouterr().out)


def exported(name, state, answers):
    text = written(name, state, answers).text
    return json.loads(text) if name.endswith(".json") else text


@pytest.mark.parametrize("name", STATES)
def test_the_answer_is_the_document_of_the_command_that_plans(name, answers, capsys, monkeypatch):
    state = state_of(answers, STATES[name])
    told = printed(commands(answers, STATES[name])["plan"], capsys, monkeypatch, "-o", "-")
    assert exported("answer.json", state, answers) == told
    shown = answers.plan(state)
    plan = told["mine"] if state.plan else told["plans"]["0"]
    assert plan["stats"].items() >= json.loads(json_text(shown.estimate.stats)).items()
    assert plan["execution"] == {one: shown.fields[one] for one in NAMES}


@pytest.mark.parametrize("name", STATES)
def test_commands_about_a_plan_say_what_its_files_say(name, answers, capsys, monkeypatch):
    state = state_of(answers, STATES[name], "pipeline")
    known = commands(answers, STATES[name], "pipeline")
    told = printed(known["llm"], capsys, monkeypatch, "-f", "json")
    found = exported("statistics.json", state, answers)
    for one in (told, found):  # which say too where the plan was read
        del one[QUESTION]
    assert found == told
    found = exported("block.json", state, answers)
    assert found == printed(known["block"], capsys, monkeypatch, "-o", "-")


@pytest.mark.parametrize("name", ["best", "own, all words"])
def test_a_sensitivity_is_that_of_the_command(name, answers, capsys, monkeypatch):
    state = state_of(answers, STATES[name], "machine")
    told = printed(
        commands(answers, STATES[name], "machine")["sensitivity"], capsys, monkeypatch, "-f", "json"
    )
    assert exported("sensitivity.json", state, answers) == told
    rows = list(csv.DictReader(io.StringIO(exported("sensitivity.csv", state, answers))))
    assert [float(row["value"]) for row in rows] == [one["value"] for one in told["figures"]]


@pytest.mark.parametrize("name", ["own", "own, all words"])
def test_python_gives_what_commands_give(name, answers):
    state = state_of(answers, STATES[name], "pipeline")
    names: dict = {}
    exec(script(same(state, answers)), names)
    answer, found = names["answer"], json.loads(json_text(names["answer"].to_dict()))
    assert found == exported("answer.json", state, answers)
    assert names["plan"] is answer.mine.estimate
    assert (
        json.loads(json_text(names["operators"].stats))
        == (exported("block.json", state, answers)["stats"])
    )


@pytest.mark.parametrize("name", CANNOT)
def test_plans_that_cannot_run_have_commands_that_say_why(name, answers, capsys, monkeypatch):
    state = state_of(answers, CANNOT[name])
    known = commands(answers, CANNOT[name])
    assert set(known) == {"plan", "why"}
    shown = answers.plan(state)
    told = exported("answer.json", state, answers)
    too_small = name == "memory is too small"  # else commands refuse the plan itself
    mine = told.get("mine")  # also says what would make it run
    assert mine["problem"].startswith(shown.problem) if too_small else mine is None
    assert not any(one.runs for one in offered(state, answers).values())
    with pytest.raises(Infeasible):
        written("statistics.json", state, answers)
    words = shlex.split(known["why"].text.rpartition("|")[2])[1:]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(known["why"].given.encode())))
    assert main(words) in (1, 2)
    if not too_small:
        assert "expected" in shown.problem
        assert shown.problem.split("expected")[1].split(".")[0] in "".join(capsys.readouterr())


def test_an_execution_is_read_as_the_plan_that_is_shown(answers, tmp_path, capsys):
    state = state_of(answers, STATES["own, all words"])
    path = tmp_path / "execution.json"
    path.write_text(exported_text("execution.json", state, answers))
    changes = [f"system.{path}={value}" for path, value in state.machine.items()]
    options = [word for one in (*changes, "model.seq_size=4096") for word in ("--set", one)]
    assert main(["llm", state.model, str(path), state.system, "-", "-f", "json", *options]) == 0
    told = json.loads(capsys.readouterr().out)
    shown = answers.plan(state).estimate.stats
    assert {one: told[one] for one in shown} == json.loads(json_text(shown))


def exported_text(name, state, answers):
    return written(name, state, answers).text


def test_plans_are_the_table_of_the_search(answers):
    state = state_of(answers, STATES["best"])
    rows = list(csv.DictReader(io.StringIO(exported("plans.csv", state, answers))))
    found = answers.found(state)
    assert [float(row["total_time"]) for row in rows] == found.evaluation["total_time"].tolist()
    assert len(rows) == len(found)


def test_the_report_is_that_of_python(answers, tmp_path):
    state = state_of(answers, STATES["own"])
    path = tmp_path / "report.html"
    write_report(whole_answer(state, answers), path)
    assert exported("report.html", state, answers) == path.read_text()


def test_launch_files_are_read_as_the_plan(answers):
    state = state_of(answers, STATES["own"])
    text = written("megatron-lm.sh", state, answers).text
    fields = {**answers.plan(state).fields, "seq_length": answers.question(state).model.seq_size}
    assert (
        fields.items()
        >= {
            name: value
            for name, value in read_launch(text, "run.sh").execution.items()
            if name in fields
        }.items()
    )


def test_names_of_files_say_what_is_in_them_with_plain_letters_alone(answers, tmp_path):
    state = state_of(answers, STATES["own"])
    name = written("execution.json", state, answers).name
    assert name == "llama3-8B_h100_80g_sxm_64_t4_p2_d8_mbs2_execution.json"
    strange = tmp_path / 'a"b;ü ..json'
    strange.write_text(json.dumps(inputs.model("llama3-8B").to_dict()))
    known = Answers(Offer(str(strange)))
    assert known.offer.model
    odd = State(model=known.offer.model, system="h100_80g_sxm", procs=8)
    found = written("execution.json", odd, known).name
    assert set(found) <= set(name) | set("ab.-")


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_offers_files_that_it_can_give(view, answers):
    state = state_of(answers, STATES["own"], view)
    names = set(offered(state, answers))
    assert names
    assert names <= set(EXPORTS)
    assert not names & set(LAUNCH_FILES)
    for name in names - {"report.html"}:
        assert written(name, state, answers).text


def test_other_names_are_no_files(answers):
    with pytest.raises(SpecError, match="no such file"):
        written("../../etc/passwd", state_of(answers, SMALL), answers)
