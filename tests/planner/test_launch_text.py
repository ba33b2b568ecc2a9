"""Executions as launch files."""

import pytest

import calculon
from calculon import inputs
from calculon.errors import SpecError
from calculon.launch.dialect import read
from calculon.launch.megatron.megatron_lm import MEGATRON_LM
from calculon.planner.launch_text import launch_text, with_listed_stages
from calculon.spec.lists_of_counts import ListsOfCounts

PLAN = {
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
    balanced = inputs.execution({**PLAN, **fields, "pp_layout": "balanced"})
    listed = with_listed_stages(balanced, model)
    counts = ListsOfCounts.counts(listed.stage_blocks)
    assert (len(counts), sum(counts)) == (PLAN["pipeline_par"] * chunks, model.num_blocks)
    before, after = (calculon.estimate(model, one, "h100").stats for one in (balanced, listed))
    assert before == after


def test_other_stages_stay():
    model = inputs.model("llama3-8B")
    for fields in ({}, {"pp_layout": "balanced", "pipeline_par": 1, "data_par": 16}):
        execution = inputs.execution({**PLAN, **fields})
        assert with_listed_stages(execution, model) == execution


def test_a_script_has_the_stages_that_the_plan_balances():
    model = inputs.model("llama3-8B")
    execution = inputs.execution({**PLAN, "pp_layout": "balanced"})
    launch = read(MEGATRON_LM, launch_text(MEGATRON_LM, execution, model), "run.sh")
    assert launch.execution["stage_blocks"] == with_listed_stages(execution, model).stage_blocks
    with pytest.raises(SpecError, match="pp_layout"):
        launch_text(MEGATRON_LM, execution)  # of no model
