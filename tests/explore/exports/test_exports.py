"""Files of a page carry what it shows, under names and of kinds that a browser saves."""

import json
from dataclasses import replace

import pytest

from calculon import inputs
from calculon import report as write_report
from calculon.advise.answer import plans_on as planned
from calculon.cli.main import main
from calculon.declarations.files import json_text
from calculon.documents import report_file
from calculon.explore import answers as explore_answers
from calculon.explore.allowed_inputs import AllowedInputs
from calculon.explore.answers import Answers
from calculon.explore.exports.exports import (
    EXPORTS,
    LAUNCH_FILES,
    offered,
    whole_answer,
    written,
)
from calculon.explore.view_names import VIEWS
from calculon.explore.web.page_server import app
from calculon.launch.dialects import read_launch
from tests.cli.conftest import unvalidated
from tests.explore.asking import answers, asked
from tests.explore.stated import SMALL, STATES, TINY, exported, state_of
from tests.helpers import csv_rows

__all__ = ["unvalidated"]

OWN = STATES["own, all words"]


def test_an_execution_is_read_as_the_plan_that_is_shown(tmp_path, capsys):
    state = state_of(OWN)
    path = tmp_path / "execution.json"
    path.write_text(written("execution.json", state, answers()).text)
    changes = [f"system.{path}={value}" for path, value in state.machine.items()]
    options = [word for one in (*changes, "model.seq_size=1024") for word in ("--set", one)]
    assert main(["llm", state.model, str(path), state.system, "-", "-f", "json", *options]) == 0
    told = json.loads(capsys.readouterr().out)
    shown = answers().plan(state).estimate.stats
    assert {one: told[one] for one in shown} == json.loads(json_text(shown))


def test_plans_are_the_table_of_the_search():
    state = state_of(STATES["best"])
    rows = csv_rows(exported("plans.csv", state))
    found = answers().best_plans(state)
    assert [float(row["total_time"]) for row in rows] == found.evaluation["total_time"].tolist()
    assert len(rows) == len(found)


@pytest.mark.usefixtures("unvalidated")
def test_the_report_is_that_of_python(tmp_path, monkeypatch):
    monkeypatch.setattr(report_file, "drawn", lambda results: ())
    state = state_of(STATES["tiny, own"])
    path = tmp_path / "report.html"
    write_report(whole_answer(state, answers()), path)
    assert exported("report.html", state) == path.read_text()


def test_what_the_page_searched_for_is_not_searched_for_again(monkeypatch):
    fresh = Answers(AllowedInputs())
    state = state_of(f"{TINY}&procs=2")
    found, searched = fresh.best_plans(state), []

    def plans_on(question, count, seen):
        searched.append(count)
        return planned(question, count, seen)

    monkeypatch.setattr(explore_answers, "plans_on", plans_on)
    whole = whole_answer(state, fresh)
    assert whole.found is found
    assert state.procs not in searched
    assert len(set(searched)) == len(searched)
    before = len(searched)
    assert before > 0
    whole_answer(state, fresh)
    assert len(searched) == before


def test_launch_files_are_read_as_the_plan():
    state = state_of(OWN)
    text = written("megatron-lm.sh", state, answers()).text
    length = answers().question(state).model.seq_size
    fields = {**answers().plan(state).fields, "seq_length": length}
    read = read_launch(text, "run.sh").execution
    known = fields.keys() & read.keys()
    assert len(known) > 10
    assert {name: read[name] for name in known} == {name: fields[name] for name in known}


def test_names_of_files_say_what_is_in_them_with_plain_letters_alone(tmp_path):
    state = state_of(STATES["own"])
    name = written("execution.json", state, answers()).name
    assert name == "gpt3-13B_a100_80g_sxm_64_t4_p2_d8_mbs2_execution.json"
    strange = tmp_path / 'a"b;ü ..json'
    strange.write_text(json.dumps(inputs.model("gpt3-13B").to_dict()))
    known = Answers(AllowedInputs(str(strange)))
    assert known.allowed.model
    odd = replace(state, model=known.allowed.model)
    found = written("execution.json", odd, known).name
    assert set(found) <= set(name) | set("ab.-")


def offered_by(view):
    return set(offered(state_of(OWN, view), answers()))


def test_views_offer_all_files_together():
    assert all(offered_by(view) for view in VIEWS)
    assert set.union(*map(offered_by, VIEWS)) == set(EXPORTS) - set(LAUNCH_FILES)


def test_a_browser_is_told_to_save_a_file_of_its_kind():
    site = app(answers(), state_of(SMALL), ["localhost"])
    state = state_of(STATES["own"])
    for name in ("execution.json", "plans.csv", "megatron-lm.sh", "torchtitan.py"):
        got = asked(site, f"/export/{name}?{state.query}")
        expected = written(name, state, answers())
        assert got.status_code == 200
        assert got.text == expected.text
        assert got.headers["Content-Type"] == expected.media_type
        assert got.headers["Content-Disposition"] == f'attachment; filename="{expected.name}"'
        assert got.headers["X-Content-Type-Options"] == "nosniff"


def test_what_is_no_file_is_told_as_text():
    site = app(answers(), state_of(SMALL), ["localhost"])
    for address, message in [
        ("answer.exe", "no such file"),
        ("..%2F..%2Fetc%2Fpasswd", ""),
        ("execution.json?model=/etc/passwd", "a model of the catalog"),
        ("statistics.json?tensor_par=7", "expected"),
        ("deepspeed.json?tensor_par=4&pipeline_par=2", "pipeline_par"),
    ]:
        got = asked(site, f"/export/{address}")
        assert got.status_code in (400, 404)
        assert got.headers["Content-Type"] == "text/plain; charset=utf-8"
        assert message in got.text
        assert "root:" not in got.text
