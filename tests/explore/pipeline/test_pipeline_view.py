"""The view of the pipeline: numbers as the commands have them, and what addresses may ask for."""

import re
from dataclasses import replace
from html import unescape

import pytest

from calculon import inputs
from calculon.base.errors import SpecError
from calculon.base.units import duration
from calculon.documents.stage_table import stages_section
from calculon.estimate.operators import block
from calculon.explore.page_state import State
from calculon.explore.pipeline.pipeline_view import MOST, PARTS
from calculon.explore.web.page_server import app
from calculon.inputs import Changed
from calculon.render.texts import percent
from tests.cases import for_each
from tests.explore.asking import answers, asked, found, made, words

PLAN = {
    "tensor_par": 2,
    "pipeline_par": 4,
    "microbatch_size": 1,
    "pipeline_interleaving": 1,
    "activation_recompute": "full",
}
STATE = State(
    model="llama3-8B", system="h100_80g_sxm", procs=64, batch="256", plan=PLAN, view="pipeline"
)
EXPERTS = State(
    model="mixtral-8x7B",
    system="h200_sxm",
    procs=64,
    batch="512",
    plan={"tensor_par": 1, "pipeline_par": 2, "microbatch_size": 1, "pipeline_interleaving": 1}
    | {"expert_par": 8},
    view="pipeline",
)
HYBRID = State(model="deepseek-v3", system="gb200_nvl72", procs=512, view="pipeline")


def _parts(state):
    parts = {kind.name: made(kind.name, state) for kind in PARTS}
    return {name: part for name, part in parts.items() if part is not None}


def _own(**changes):
    return replace(STATE, plan={**PLAN, **changes})


def test_a_plan_has_its_schedule_stages_and_operators():
    assert list(_parts(STATE)) == ["schedule", "stages", "stage", "block", "roofline", "operator"]


def test_stages_have_the_numbers_of_the_command():
    result = answers().plan(STATE).result
    told = words(made("stages", STATE))
    remark = stages_section(result.stages, result.digits).remark
    assert told.lower().startswith(remark.lower())
    for stage in result.stages:
        assert f"stage {stage['stage']} " in told
        assert result.digits.gib(stage["proc_mem_tier1_cap_req"]) in told


@for_each("number", range(4))
def test_the_memory_of_a_stage_adds_up(number):
    estimate = answers().plan(STATE).estimate
    part = made("stage", replace(STATE, options={"stage": str(number)}))
    told = words(part)
    digits = answers().plan(STATE).result.digits
    needed = digits.gib(estimate.stages[number]["proc_mem_tier1_cap_req"])
    assert told.count(needed) >= 1
    assert part.title == f"Stage {number}"
    assert ("the embedding" in told) == (number == 0)
    assert ("LM head" in told) == (number == 3)
    blocks = estimate.model.num_blocks // 4
    assert f"({number * blocks + 1} to {(number + 1) * blocks})" in told


def test_a_stage_that_is_not_there_is_refused():
    told = made("stage", replace(STATE, options={"stage": "4"}))
    assert "There is no stage 4: this plan has stages 0 to 3." in words(told)
    for nonsense in ("-1", "last", "1.5", "1e3"):
        with pytest.raises(SpecError, match="stage"):
            made("stage", replace(STATE, options={"stage": nonsense}))


def test_as_many_microbatches_are_drawn_as_asked_and_there_are():
    batch = 256 // (64 // 8)
    for wish, drawn in (("3", 3), ("0", 8), ("", 8), ("100000", batch)):
        part = made("schedule", replace(STATE, options={"microbatches": wish}))
        assert f"{drawn} of {batch} microbatches" in words(part)
    with pytest.raises(SpecError, match="microbatches"):
        made("schedule", replace(STATE, options={"microbatches": "many"}))


def test_the_passes_of_the_stage_are_listed_in_order():
    told = words(made("schedule", replace(STATE, options={"stage": "3", "microbatches": "2"})))
    listed = re.findall(r"(forward|backward) (\d+) [\d.]+ m?s", told[told.index("in order") :])
    assert listed == [("forward", "1"), ("backward", "1"), ("forward", "2"), ("backward", "2")]


def test_no_more_passes_are_drawn_than_a_browser_is_quick_with():
    deep = replace(_own(pipeline_par=32, tensor_par=1), procs=32, batch="1024")
    state = replace(deep, options={"microbatches": "1024"})
    told = words(made("schedule", state))
    assert f"{MOST // 64} of 1,024 microbatches" in told
    assert "the number is limited to keep the chart fast" in told


def test_one_stage_is_no_pipeline():
    parts = _parts(_own(pipeline_par=1))
    assert "stages" not in parts
    blocks = answers().plan(STATE).estimate.model.num_blocks
    assert f"No pipeline: each processor has all {blocks} blocks." in words(parts["schedule"])
    assert parts["stage"].title == "The processor"


def test_a_plan_that_cannot_run_leads_to_the_view_that_mends_it():
    state = replace(_own(tensor_par=1, pipeline_par=1), model="llama3-70B")
    (part,) = _parts(state).values()
    assert "too small" in words(part)
    assert "view=" not in re.search('href="([^"]*)"', part.html)[1]  # the first view


def test_an_operator_says_what_a_faster_machine_would_save():
    state = replace(STATE, options={"operator": "MlpBlock_SwiGLU"})
    part = made("operator", state)
    assert part.title == "Operator MlpBlock SwiGLU"
    found, path = answers().plan(STATE).estimate, "mem1.GBps"
    faster = inputs.system(Changed.of("h100_80g_sxm", {path: 6700}))
    times = [
        sum(
            sum(one["time"].values())
            for one in block(found.model, found.execution, system).operators
            if one["name"] == "MlpBlock_SwiGLU"
        )
        for system in (found.system, faster)
    ]
    row = f"twice the memory bandwidth {duration(times[1])} {percent(1 - times[1] / times[0])}"
    assert row in words(part)
    assert "system.mem1.GBps=6700" in unescape(part.html)


def test_several_kinds_of_block_are_looked_at_one_by_one():
    assert "Experts" in words(made("block", EXPERTS))
    model = inputs.model("deepseek-v3")
    state = replace(
        HYBRID,
        plan={"tensor_par": 1, "pipeline_par": 8, "expert_par": 64, "microbatch_size": 1}
        | {"pipeline_interleaving": 1, "activation_recompute": "full"},
    )
    assert answers().plan(state).problem == ""
    titles = {
        kind: made("block", replace(state, options={"block": kind})).title
        for kind in ("dense", "experts")
    }
    assert model.num_blocks == sum(
        int(re.search(r"block of (\d+)", title)[1]) for title in titles.values()
    )
    assert made("block", state).title == titles["experts"]  # most of them


def test_ranks_with_both_directions_have_half_of_the_microbatches_of_each():
    plan = {**EXPERTS.plan, "pipeline_par": 4, "pp_schedule": "dualpipe", "ep_overlap": "1f1b"}
    state = replace(EXPERTS, preset="common", plan=plan, machine={"mem1.GiB": 10_000})
    assert answers().plan(state).problem == ""
    for rank in range(4):
        told = words(made("stage", replace(state, options={"stage": str(rank)})))
        share = int(re.search(r"microbatches are (\d+) % of the time", told)[1])
        assert 50 < share <= 100
        assert ("the embedding, the LM head with the loss" in told) == (rank in (0, 3))


def test_the_server_gives_the_quick_parts_first_and_refuses_nonsense():
    site = app(answers(), STATE, ["localhost"])
    told = found(site, STATE.query)["main"]
    for kind in PARTS:
        assert (f'data-later="{kind.name}"' in told) == kind.later
    part = asked(site, f"/part/operator?{STATE.query}").json()["html"]
    assert "What would make it faster" in part
    assert asked(site, f"/parts?{STATE.query}&stage=last").status_code == 400


@for_each("name", ["block", "operator"])
def test_names_that_are_not_there_are_said_and_escaped(name):
    told = made("block", replace(STATE, options={name: "<b>x</b>"})).html
    assert "called &#x27;&lt;b&gt;x&lt;/b&gt;&#x27;" in told
    assert "<b>" not in told


def test_a_larger_microbatch_that_cannot_run_says_so():
    state = replace(STATE, options={"operator": "MlpBlock_SwiGLU"})
    said = set()
    for more in (1, 16):
        mine = {**answers().stated(STATE), "microbatch_size": more}
        one, larger = (
            replace(state, plan={**mine, "microbatch_size": n}) for n in (more, 2 * more)
        )
        runs = answers().plan(larger).estimate is not None
        assert ("such a plan cannot run here" in made("operator", one).html) is not runs
        said.add(runs)
    assert said == {True, False}
