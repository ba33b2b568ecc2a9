"""The answer is the best of a search, its rivals are the best of theirs, and every figure follows from a step."""

import math

import pytest

import calculon
from calculon.advise import answer as answers
from calculon.advise.answer import TOKENS, Answer, _implied_fields, baseline_plan
from calculon.advise.ask import ask
from calculon.advise.candidate import trainings
from calculon.advise.planning import plan
from calculon.base.units import chance
from calculon.declarations.statistics import FITS, RISK
from calculon.documents.plan_page import plan_page
from calculon.estimate.comparison_confidence import MAX_TIED, REPEATS
from calculon.plan.plan import all_fields
from calculon.search.within_risk import MIN_RISK
from tests.documents.drawing import drawn
from tests.store import cache


@cache
def answer() -> Answer:
    return plan("llama3-8B", 64, "h100_80g_sxm", batch=512, tokens="15T", mine="tp=2 pp=2 mbs=1")


@cache
def tight() -> Answer:
    """Return an answer without one's own plan and the tokens of a run, whose best plan has little memory left."""
    return plan("llama3-70B", (1024,), "h100_80g_sxm")


@cache
def search(num_procs: int = 64, where: str | None = f"{FITS} >= {1 - RISK}", **options):
    fixed = {"batch_size": 512, **options}
    asked = {"preset": "megatron-lm", "fix": fixed, "where": where, "risk": 1}
    return calculon.search("llama3-8B", "h100_80g_sxm", num_procs, 512, "bfloat16", **asked)


def test_a_launch_file_that_breaks_a_rule_is_named_before_the_search(tmp_path):
    file = tmp_path / "mine.sh"
    flags = "--micro-batch-size 1 --bf16 --fp8-format e4m3 --fp8-recipe mxfp8 --fp8-param-gather"
    file.write_text(f"torchrun pretrain_gpt.py {flags} --global-batch-size 8\n")
    question = ask("deepseek-v3", 8, "b200_sxm", mine=str(file))
    with pytest.raises(calculon.SpecError) as error:
        answers.answer(question, lambda *_: pytest.fail("searched"))
    assert (error.value.file, error.value.field) == (str(file), "fp8_param_gather")


def test_the_best_is_that_of_a_search():
    assert answer().best.execution == search().best.execution
    assert answer().found.counts == search().counts


def test_rivals_are_the_best_of_each_split_in_the_order_of_their_times():
    for one in answer().splits[:2]:
        tp, pp = one.execution["tensor_par"], one.execution["pipeline_par"]
        assert one.time == search(tensor_par=tp, pipeline_par=pp).best.stats["total_time"]
    times = [one.time for one in answer().splits]
    assert times == sorted(times)
    assert len(
        {(s.execution["tensor_par"], s.execution["pipeline_par"]) for s in answer().splits}
    ) == len(times)


def test_a_tie_is_all_within_its_ratio_and_names_the_simplest():
    tie, best = answer().tie, answer().plans[0].time
    pairs = list(zip(answer().plans, answer().orders, strict=True))
    assert tie.plans == tuple(one for one, order in pairs if not order.distinguishable)
    for one, order in pairs:
        longer = one.time / best - 1
        assert order.longer == pytest.approx(longer)
        least = max(math.exp(REPEATS) - 1, min(order.margin, MAX_TIED))
        assert order.distinguishable == (longer > least)
    assert tie.simplest.simplicity == min(one.simplicity for one in tie.plans)


def test_changes_lead_from_ones_own_plan_to_the_best():
    found = answer().waterfall
    assert found.mine.seconds == answer().mine.estimate.stats["total_time"]
    assert found.best.seconds == answer().best.stats["total_time"]
    assert found.seconds == pytest.approx(sum(step.seconds for step in found.steps))
    document = answer().to_dict()
    assert document["waterfall"] == found.to_dict()
    order = answer().order_of_mine
    assert document["mine"]["order"] == order.to_dict()
    assert order.longer == pytest.approx(found.mine.seconds / found.best.seconds - 1)


@pytest.mark.large
def test_a_plan_that_does_not_fit_has_a_way_to_the_best_too():
    found = plan("llama3-8B", (64,), "h100_80g_sxm", batch=512, mine="tp=1 mbs=8")
    assert found.mine.estimate is None
    assert found.order_of_mine is None
    assert not found.waterfall.mine.fits
    assert found.waterfall.best.fits
    assert "GiB" in found.mine.problem


def test_counts_are_half_and_twice_the_processors():
    counts = answer().counts
    assert [one.num_procs for one in counts] == [32, 64, 128]
    assert counts[1].best == answer().plans[0]
    assert counts[0].best.time == search(32).best.stats["total_time"]


def test_trainings_are_the_whole_runs_of_their_plans():
    asked, plans = answer().question, answer().plans[:3]
    told = trainings(plans, asked.campaign, asked.model, asked.system, 15e12, asked.tokens_per_step)
    for row, one in zip(told, plans, strict=True):
        run = calculon.campaign(asked.model, dict(one.execution), asked.system, tokens="15T")
        whole = dict(row["campaign"])
        ends = whole.pop("days_low"), whole.pop("days_high")
        known = {name: value for name, value in run.figures.items() if value is not None}
        assert {name: whole[name] for name in known} == pytest.approx(known, rel=1e-12)
        assert all(whole[name] is None for name in whole.keys() - known.keys())
        assert ends == pytest.approx(run.days_between, rel=1e-12)
        assert row["price"]["usd"] == pytest.approx(run.whole.quote.usd)


def test_a_plan_of_ones_own_is_its_estimate(tmp_path):
    fields = {"num_procs": 64, "tensor_par": 2, "pipeline_par": 2, "microbatch_size": 1}
    fields |= {"batch_size": 512, "datatype": "bfloat16", "base": "megatron-lm"}
    wanted = calculon.estimate("llama3-8B", fields, "h100_80g_sxm")
    assert answer().mine.estimate.execution == wanted.execution
    assert answer().mine.candidate.time == wanted.stats["total_time"]
    file = tmp_path / "mine.json"
    file.write_text('{"tensor_par": 2, "pipeline_par": 2}')
    question = ask("llama3-8B", 64, "h100_80g_sxm", batch=512, mine=str(file))
    assert baseline_plan(question).estimate.execution == wanted.execution


@pytest.mark.parametrize(
    ("own", "degrees"),
    [
        ("tp=2 dp=8", (2, 4, 8)),
        ("mbs=1", (1, 1, 64)),
        ("tp=4", (4, 1, 16)),
        ({"tensor_par": 2, "pipeline_par": 2}, (2, 2, 16)),
    ],
)
def test_degrees_that_are_not_said_follow(own, degrees):
    question = ask("llama3-8B", 64, "h100_80g_sxm", batch=512, mine=own)
    fields = {**_implied_fields(question, question.mine.fields), **question.mine.fields}
    execution = calculon.inputs.execution(fields, edition="corrected", preset="megatron-lm")
    found = execution.tensor_par, execution.pipeline_par, execution.data_par
    assert found == degrees
    assert execution.batch_size == 512


def test_the_best_is_within_the_risk_and_the_fastest_of_all_is_named():
    found, fastest = answer(), search(where=None).best
    assert all(one.stats[FITS] >= 1 - RISK for one in found.plans)
    assert found.fastest.execution == all_fields(fastest.execution)
    assert found.fastest.time == fastest.stats["total_time"] < found.plans[0].time
    assert found.fastest.stats[FITS] == fastest.belief.memory.fits < 1 - RISK
    assert found.to_dict()["fastest"]["execution"] == found.fastest.execution


def test_any_risk_recommends_the_fastest_that_is_predicted_to_fit():
    found = plan("llama3-8B", (64,), "h100_80g_sxm", batch=512, risk="100%")
    assert found.best.execution == search(where=None).best.execution
    assert found.fastest is None


def test_where_no_plan_is_within_the_risk_three_times_the_risk_is_tried():
    found = plan("llama3-8B", (64,), "h100_80g_sxm", batch=512, risk=0)
    risks = [MIN_RISK * 3**n for n in range(6)]
    best = next(within for risk in risks if len(within := search(where=f"{FITS} >= {1 - risk}")))
    assert found.best.execution == best[0].execution
    text = " ".join(drawn(plan_page(found)).split())
    risk = chance(1 - best[0].stats[FITS])
    most = "No plan has a risk of running out of memory of at most 0 % (--risk)"
    assert f"{most}; this one has {risk}." in text


def test_plain_data_have_the_plans_by_rank_and_the_training():
    told = answer().to_dict()
    assert told["plans"]["0"]["execution"] == answer().plans[0].execution
    assert told["plans"]["0"]["training"]["tokens"] == 15e12
    assert told["question"]["preset"]["name"] == "megatron-lm"
    assert told["mine"]["execution"]["tensor_par"] == 2
    assert "settings" not in told  # as no launch file is given
    plain = tight().to_dict()
    assert tight().waterfall is plain["question"]["tokens"] is None
    assert plain["plans"]["0"]["training"]["tokens"] == TOKENS


@pytest.mark.large
def test_nothing_that_fits_says_why_and_what_would():
    found = plan("llama3-8B", (1,), "a100_40g_sxm", batch=8)
    assert found.best is None
    assert found.to_dict()["unfit"]["lines"]
    assert found.counts[0].reason
