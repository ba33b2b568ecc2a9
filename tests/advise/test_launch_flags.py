"""Launch files in and out of Python, and a plan of one's own that is one."""

from pathlib import Path

import pytest

import calculon
from calculon import inputs
from calculon.advise.ask import ask
from calculon.advise.launch_text import launch_text, with_listed_stages
from calculon.base.errors import SpecError
from calculon.declarations.lists_of_counts import ListsOfCounts
from calculon.inputs import launch_in
from calculon.launch.dialect import nearest_settings, read
from calculon.launch.dialects import DIALECTS
from calculon.launch.megatron.megatron_lm import MEGATRON_LM
from tests.advise.by_hand import fields_of

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
    with pytest.raises(SpecError, match="set it with calculon import-flags FILE --procs N"):
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
    fields = fields_of(answer.best.execution)
    wanted, unsaid = nearest_settings(DIALECTS["megatron-lm"], fields, answer.question.model)
    assert {one["field"] for one in told["refused"]} == {one.field for one in unsaid}
    rows = [row for row in DIALECTS["megatron-lm"].rows if row.subject == "execution"]
    own = {name for row in rows for name in row.settings}
    assert {n: v for n, v in settings.items() if n in own} == {
        n: v for n, v in wanted.items() if n in own
    }


STAGES = {
    "base": "megatron-lm",
    "num_procs": 32,
    "tensor_par": 2,
    "pipeline_par": 4,
    "batch_size": 64,
}


@pytest.mark.parametrize("chunks", [1, 2])
@pytest.mark.parametrize("recompute", ["none", "full"])
def test_balanced_stages_are_listed_and_cost_the_same(chunks, recompute):
    model = inputs.model("llama3-8B")
    fields = {"pipeline_interleaving": chunks, "activation_recompute": recompute}
    balanced = inputs.execution({**STAGES, **fields, "pp_layout": "balanced"})
    listed = with_listed_stages(balanced, model)
    counts = ListsOfCounts.counts(listed.stage_blocks)
    assert (len(counts), sum(counts)) == (STAGES["pipeline_par"] * chunks, model.num_blocks)
    before, after = (calculon.estimate(model, one, "h100").stats for one in (balanced, listed))
    assert before == after


def test_other_stages_stay():
    model = inputs.model("llama3-8B")
    for fields in ({}, {"pp_layout": "balanced", "pipeline_par": 1, "data_par": 16}):
        execution = inputs.execution({**STAGES, **fields})
        assert with_listed_stages(execution, model) == execution


def test_a_script_has_the_stages_that_the_plan_balances():
    model = inputs.model("llama3-8B")
    execution = inputs.execution({**STAGES, "pp_layout": "balanced"})
    launch = read(MEGATRON_LM, launch_text(MEGATRON_LM, execution, model), "run.sh")
    assert launch.execution["stage_blocks"] == with_listed_stages(execution, model).stage_blocks
    with pytest.raises(SpecError, match="pp_layout"):
        launch_text(MEGATRON_LM, execution)  # of no model
