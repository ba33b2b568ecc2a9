"""Launch files in and out of Python, and a plan of one's own that is one."""

from pathlib import Path

import pytest

import calculon
from calculon.errors import SpecError
from calculon.launch.dialect import nearest_settings
from calculon.launch.dialects import DIALECTS
from calculon.plan.plan import NAMES
from calculon.planner.ask import ask
from calculon.planner.launch_flags import launch_in

PLAN = {"base": "megatron-lm", "num_procs": 64, "tensor_par": 4, "pipeline_par": 2}
PLAN |= {"batch_size": 128, "activation_recompute": "full"}
MODEL, SYSTEM = "llama3-8B", "h100_80g_sxm"


@pytest.fixture(scope="module", name="script")
def _script(tmp_path_factory) -> Path:
    """Return a launch script of a plan that recomputes everything."""
    path = tmp_path_factory.mktemp("launch") / "run.sh"
    path.write_text(calculon.export_flags(PLAN, "megatron-lm", model=MODEL))
    return path


@pytest.fixture(scope="module", name="answer")
def _answer(script):
    return calculon.plan(MODEL, (64,), "h100", mine=str(script))


def test_what_is_exported_is_imported_again(script):
    launch = calculon.import_flags(script)
    assert launch.dialect.name == "megatron-lm"
    mine = calculon.estimate(launch.model, launch.execution, SYSTEM)
    again = calculon.estimate(MODEL, PLAN, SYSTEM)
    assert {**mine.stats} == {**again.stats}
    assert launch.unknown == ()
    assert repr(launch) == f"<Launch megatron-lm: {len(launch.stated)} settings, 0 not read>"
    assert set(launch.to_dict()) >= {"format", "execution", "model", "used", "ignored"}


def test_other_sources_of_executions_are_no_launch_files(tmp_path):
    plan = tmp_path / "plan.json"
    plan.write_text('{"tensor_par": 1}')
    assert [launch_in(one) for one in (PLAN, str(plan), "nowhere.sh", "-")] == [None] * 4


def test_a_launch_file_as_mine_says_the_question(answer, script):
    question = answer.question
    assert question.batch_size == PLAN["batch_size"]
    assert question.framework == "megatron-lm"
    assert set(question.assumed) == {"--preset", "--batch", "--seq", "--dtype"}
    assert all(words.endswith(f"as {script}") for words in question.assumed.values())
    assert answer.mine.execution.activation_recompute == "full"
    assert ask(MODEL, 64, "h100", mine=str(script), batch=256).batch_size == 256


def test_processors_that_a_file_does_not_say_are_those_of_the_question(tmp_path):
    text = "model: {tensor_model_parallel_size: 2}\ntrain: {micro_batch_size: 1, global_batch_size: 64}\n"
    path = tmp_path / "over.yaml"
    path.write_text(text)
    with pytest.raises(SpecError, match="--procs N says how many"):
        launch_in(str(path))
    assert launch_in(str(path), 16).execution["data_par"] == 8


def test_the_answer_says_the_changes_to_the_best_plan(answer):
    told = answer.to_dict()["settings"]
    assert told["format"] == "megatron-lm"
    settings = {name: one.value for name, one in answer.mine.launch.stated.items()}
    for change in told["changes"]:
        if change["kind"] == "drop":
            del settings[change["name"]]
        else:
            settings[change["name"]] = change["after"]
    fields = {name: getattr(answer.best.execution, name) for name in NAMES}
    wanted, unsaid = nearest_settings(DIALECTS["megatron-lm"], fields, answer.question.model)
    assert {one["field"] for one in told["refused"]} == {one.field for one in unsaid}
    rows = [row for row in DIALECTS["megatron-lm"].rows if row.subject == "execution"]
    own = {name for row in rows for name in row.settings}
    assert {n: v for n, v in settings.items() if n in own} == {
        n: v for n, v in wanted.items() if n in own
    }
