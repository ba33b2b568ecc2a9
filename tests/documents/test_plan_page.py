"""The page of a plan says what its plain data say, within the width that it has."""

import re

import pytest

import calculon
from calculon.advise.planning import plan
from calculon.documents.expert_section import experts_section
from calculon.documents.how_sure import chance, order_in_words
from calculon.documents.plan_page import PlanPage, _percent
from calculon.documents.views.estimate_result import result_of
from calculon.render.terminal import drawn as blocks_drawn
from tests.documents.drawing import drawn
from tests.helpers import document
from tests.store import cache

MINE = "tp=8 pp=2 mbs=1 recompute=full"
MORE = {"mine": "num_procs=32 tp=2 dp=16 mbs=2 ce_impl=fused", "tokens": "15T"}
"""A plan on twice the processors, with a loss that the search does not try."""


@cache
def page(mine=MINE, **options) -> PlanPage:
    fix = {"microbatch_size": [1, 2], "pipeline_par": [1, 2]}
    answer = plan("llama3-8B", 16, "h100_80g_sxm", batch=64, mine=mine, fix=fix, **options)
    best = None if answer.best is None else result_of(answer.best)
    return PlanPage(
        answer.to_dict(), best, answer.question.preset.usual, answer.question.preset.words
    )


def test_no_line_is_wider_than_the_page():
    for width in (80, 100, 160):
        assert max(map(len, drawn(page(), width=width).splitlines())) <= width


@pytest.mark.parametrize("width", [80, 160])
def test_the_way_from_ones_own_plan_to_the_best_has_a_line_for_each_change(width):
    found = page()
    told = found.answer["waterfall"]
    text = drawn(found, width=width)
    section = text[text.index("From mine to the best, one change at a time") :]
    section = section[: section.index("How sure")]
    places = [section.index(step["change"].split(" -> ")[0]) for step in told["steps"]]
    assert places == sorted(places)
    assert len(places) >= 2
    assert "\n  mine " in section
    assert "\n  best " in section
    assert max(map(len, section.splitlines())) <= width
    order = found.answer["mine"]["order"]
    assert order_in_words(order) in " ".join(text.split())


def test_plans_beside_the_best_say_how_sure_that_is():
    rows = list(page().answer["plans"].values())
    assert rows[0]["order"]["probability"] == 0.5
    shown = drawn(page())
    assert all(chance(row["order"]["probability"]) in shown for row in rows[1:6])


def test_days_are_of_the_tokens_asked_for():
    assert "days for 15 T tokens" in drawn(page(**MORE))
    assert "days for 1 T tokens" in drawn(page())


def test_a_plan_with_experts_says_where_their_time_goes():
    execution = document("examples", "mixtral-8x7B_h100x64")
    best = result_of(calculon.estimate("mixtral-8x7B", execution, "h100_80g_sxm"))
    text = drawn(blocks_drawn(experts_section(best)))
    assert text.startswith("Experts: 1 of 8 on each processor\n")
    assert "EP 8 x ETP 1 x EDP 2" in text
    shares = dict(re.findall(r"(experts|attention|dispatch|combine|router) (\d+) %", text))
    times = {one["part"]: one["computing"] + one["sending"] for one in best.expert_parts["parts"]}
    whole = sum(times.values())
    assert {part: round(100 * times[part] / whole) for part in shares} == {
        part: int(share) for part, share in shares.items()
    }
    assert list(shares) == sorted(shares, key=times.__getitem__, reverse=True)


def _spread(**changes):
    execution = calculon.estimate("mixtral-8x7B", "mixtral-8x7B_h100x64", "h100_80g_sxm").execution
    return {"execution": {**execution.to_dict(), **changes}}


def test_widths_of_experts_are_compared_as_they_come_out():
    one, split = {"tensor_par": 1, "expert_tensor_par": 0}, {"tensor_par": 2}
    beside = page()._beside
    assert not [
        w for w in beside(_spread(**split, expert_tensor_par=1), _spread(**one)) if "ETP" in w
    ]
    assert "ETP 2" in beside(_spread(**split, expert_tensor_par=0), _spread(**one))
    assert "ETP 1" in beside(_spread(**one), _spread(**split, expert_tensor_par=2))


def test_a_plan_that_recomputes_nothing_says_so_beside_one_that_does():
    beside, plain = page()._beside, _spread(recompute_modules="none")
    assert "no recompute" in beside(plain, _spread(recompute_modules="moe_act"))
    assert "no recompute" not in beside(plain, plain)


def test_a_plan_of_ones_own_on_other_processors_is_compared_by_the_processor():
    found = page(**MORE)
    text = " ".join(drawn(found, width=160).split())
    mine, best = (found.answer["mine"], found.answer["plans"]["0"])
    assert mine["execution"]["num_procs"] == 2 * best["execution"]["num_procs"]
    ratio = best["stats"]["sample_rate"] * 2 / mine["stats"]["sample_rate"] - 1
    assert f": {_percent(ratio)} processor time a sample against the best" in text
    section = text[text.index("Mine:") : text.index("From mine to")]
    assert ", on 32 processors" in section
    assert "distinguishable" not in section


def test_the_simplest_of_equally_fast_plans_says_what_it_costs():
    ties = [tie for tie in page().answer["ties"] if tie["plans"] > 1]
    best = page().answer["plans"]["0"]
    text = " ".join(drawn(page(), width=160).split())
    others = [tie["simplest"] for tie in ties if tie["simplest"]["execution"] != best["execution"]]
    assert others
    for one in others:
        longer = one["stats"]["total_time"] / best["stats"]["total_time"] - 1
        assert f"the simplest of them ({100 * longer:.0f} % slower as predicted): " in text


def test_a_faster_value_that_the_search_did_not_try_is_named():
    found = page(**MORE)
    (loss,) = (step for step in found.answer["waterfall"]["steps"] if "ce_impl" in step["fields"])
    assert loss["seconds"] > 0
    text = " ".join(drawn(found).split())
    assert "Not tried by the search: ce_impl=fused (--add ce_impl=fused)" in text
    assert "Not tried" not in drawn(page())
