"""The page of a plan says what its plain data say, within the width that it has."""

import re

import pytest

import calculon
from calculon.advise.planning import plan
from calculon.documents.confidence import chance, order_in_words
from calculon.documents.estimate_result import result_of
from calculon.documents.expert_section import experts_section
from calculon.documents.plan_page import _percent, changed_words, plan_page
from calculon.estimate.comparison_confidence import MAX_TIED
from tests.documents.drawing import drawn, flat
from tests.draws import some
from tests.helpers import document
from tests.store import cache

MINE = "tp=8 pp=2 mbs=1 recompute=full"
MORE = {"mine": "num_procs=32 tp=2 dp=16 mbs=2 ce_impl=fused", "tokens": "15T"}
"""A plan on twice the processors, with a loss that the search does not try."""


@cache
def answer(mine=MINE, **options):
    fix = {"microbatch_size": [1, 2], "pipeline_par": [1, 2]}
    return plan("llama3-8B", 16, "h100_80g_sxm", batch=64, mine=mine, fix=fix, **options)


@cache
def told(**options):
    """Return an answer as plain data."""
    return answer(**options).to_dict()


@cache
def shown(width=160, **options):
    return drawn(plan_page(answer(**options)), width=width)


@pytest.mark.parametrize("width", [80, 100, 160])
def test_the_way_from_ones_own_plan_to_the_best_has_a_line_for_each_change(width):
    text = shown(width)
    assert max(map(len, text.splitlines())) <= width
    section = text[text.index("From mine to the best, one change at a time") :]
    section = section[: section.index("Prediction interval")]
    places = [
        section.index(step["change"].split(" -> ")[0]) for step in told()["waterfall"]["steps"]
    ]
    assert places == sorted(places)
    assert len(places) >= 2
    assert "\n  mine " in section
    assert "\n  best " in section
    assert order_in_words(told()["mine"]["order"]) in flat(text)


SHORT = (
    ("llama3-8B", 16, "h100_80g_sxm", {}),
    ("llama3-8B", 64, "a100_80g_sxm", {"tokens": "15T"}),
    ("qwen3-30B-A3B", 16, "b200_sxm", {"tokens": "1T"}),
    ("mixtral-8x7B", 16, "h100", {"tokens": "1T"}),
    ("qwen3-30B-A3B", 8, "h20", {"tokens": "1T"}),
    ("gpt2-124M", 1, "a100", {}),
    ("llama3-8B", 64, "tpu_v6e", {}),
)


@pytest.mark.parametrize("case", some(SHORT, 2), ids=lambda case: f"{case[0]} on {case[2]}")
def test_a_short_page_answers_in_22_lines(case):
    model, procs, system, options = case
    found = plan(model, procs, system, **options)
    told, text = found.to_dict(), drawn(plan_page(found, short=True), width=80)
    assert len(text.splitlines()) <= 22
    best = told["plans"]["0"]["stats"]
    unpriced = told["plans"]["0"]["training"]["price"] is None
    assert ("No price is known (--price)" in flat(text)) is unpriced
    for one in (
        result_of(found.best).digits.duration(best["total_time"]),
        f"OOM risk {chance(1 - best['fits'])}",
        *(f"on {row['num_procs']:,}: " for row in told["counts"] if row["num_procs"] != procs),
        *(f"({option})" for option in told["question"]["assumed"]),
    ):
        assert one in flat(text), one
    assert ("  USD  " in text) == (told["plans"]["0"]["training"]["price"] is not None)
    assert ("1 T tokens (--tokens)" in flat(text)) == ("tokens" not in options)
    assert "other plans, same batch" in text
    assert ("faster, riskier: " in text) == (told["fastest"] is not None)


def test_plans_beside_the_best_say_how_sure_that_is():
    rows = list(told()["plans"].values())
    assert rows[0]["order"]["probability"] == 0.5
    assert all(chance(row["order"]["probability"]) in shown() for row in rows[1:6])


def test_days_are_of_the_tokens_asked_for():
    assert "days for 15 T tokens" in shown(**MORE)
    assert "days for 1 T tokens" in shown()


def test_a_plan_with_experts_says_where_their_time_goes():
    execution = document("examples", "mixtral-8x7B_h100x64")
    best = result_of(calculon.estimate("mixtral-8x7B", execution, "h100_80g_sxm"))
    text = drawn(experts_section(best))
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
    return {**execution.to_dict(), **changes}


def _changed(one, best):
    return changed_words(one, best, answer().question.preset.usual)


def test_widths_of_experts_are_compared_as_they_come_out():
    one, split = {"tensor_par": 1, "expert_tensor_par": 0}, {"tensor_par": 2}
    words = _changed(_spread(**split, expert_tensor_par=1), _spread(**one))
    assert not [word for word in words if "ETP" in word]
    assert "ETP 2" in _changed(_spread(**split, expert_tensor_par=0), _spread(**one))
    assert "ETP 1" in _changed(_spread(**one), _spread(**split, expert_tensor_par=2))


def test_a_plan_that_recomputes_nothing_says_so_beside_one_that_does():
    plain = _spread(recompute_modules="none")
    assert "no recompute" in _changed(plain, _spread(recompute_modules="moe_act"))
    assert "no recompute" not in _changed(plain, plain)


def test_a_plan_of_ones_own_on_other_processors_is_compared_by_the_processor():
    text = flat(shown(**MORE))
    mine, best = told(**MORE)["mine"], told(**MORE)["plans"]["0"]
    assert mine["execution"]["num_procs"] == 2 * best["execution"]["num_procs"]
    ratio = best["stats"]["sample_rate"] * 2 / mine["stats"]["sample_rate"] - 1
    assert f": {_percent(ratio)} processor time per token compared with the best" in text
    section = text[text.index("Mine:") : text.index("From mine to")]
    assert ", on 32 processors" in section
    assert "distinguishable" not in section


def test_a_plan_of_ones_own_with_another_batch_is_compared_by_the_sample():
    found = answer(mine="tp=2 dp=8 mbs=1 batch_size=32")
    mine, best = found.to_dict()["mine"], found.to_dict()["plans"]["0"]
    assert mine["execution"]["batch_size"] * 2 == best["execution"]["batch_size"]
    tokens = 32 * found.question.model.seq_size
    assert mine["training"]["steps"] == pytest.approx(mine["training"]["tokens"] / tokens)
    ratio = best["stats"]["sample_rate"] / mine["stats"]["sample_rate"] - 1
    text = flat(drawn(plan_page(found), width=160))
    assert f": {_percent(ratio)} processor time per token compared with the best" in text
    assert ", batch 32" in text


def test_the_simplest_of_equally_fast_plans_says_what_it_costs():
    found = plan("llama3-70B", (64,), "h100_80g_sxm")
    simplest, best = found.to_dict()["tie"]["simplest"], found.to_dict()["plans"]["0"]
    assert simplest["execution"] != best["execution"]
    longer = simplest["stats"]["total_time"] / best["stats"]["total_time"] - 1
    assert 0 < longer <= MAX_TIED
    words = f"the simplest (predicted {100 * longer:.0f} % slower): "
    assert words in flat(drawn(plan_page(found)))


def test_a_faster_value_that_the_search_did_not_try_is_named():
    steps = told(**MORE)["waterfall"]["steps"]
    (loss,) = (step for step in steps if "ce_impl" in step["fields"])
    assert loss["seconds"] > 0
    assert "Not tried by the search: ce_impl=fused (--add ce_impl=fused)" in flat(shown(**MORE))
    assert "Not tried" not in shown()
