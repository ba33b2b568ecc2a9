"""The largest model that a fleet trains: on the optimum, at the rate of a model of its size."""

import math
import re

import pytest

import calculon
from calculon.advise.runs.largest_model import RULE, SMALLEST
from calculon.architecture.parameters import active_count
from calculon.base.errors import Infeasible, SpecError
from calculon.campaign.scaling_laws import LAWS
from tests.cases import for_each

SYSTEM = "h100_80g_sxm"


@pytest.fixture(scope="module", name="found")
def _found():
    return calculon.largest_model(SYSTEM, 64, "30d")


def test_all_optima_take_the_compute(found):
    assert [one.law for one in found.optima] == [RULE, *LAWS]
    for one in found.optima:
        assert 6 * one.parameters * one.tokens == pytest.approx(found.compute)
    rule = found.optima[0]
    assert rule.tokens == 20 * rule.parameters


def test_each_law_likes_its_own_optimum_best(found):
    for name in LAWS:
        losses = {one.law: one.loss[name] for one in found.optima}
        assert min(losses, key=losses.get) == name


def test_the_rate_is_that_of_the_nearest_model(found):
    """Trained on as many tokens as the compute is, it takes the days that there are."""
    run = found.nearest
    tokens = found.compute / (6 * active_count(run.model))
    again = calculon.campaign(run.model, run.main.estimate.execution, SYSTEM, tokens=tokens)
    assert again.figures["days"] == pytest.approx(found.days, rel=2e-3)
    assert found.rate == pytest.approx(found.compute / 30)


def test_the_nearest_model_is_that_of_the_catalog(found):
    wanted = math.log(found.optima[0].parameters)
    own = abs(math.log(active_count(found.nearest.model)) - wanted)
    names = ("llama2-7B", "llama3-8B", "gemma3-27B", "olmo2-32B", "llama3-70B", "opt-175B")
    for name in names:
        other = abs(math.log(active_count(calculon.inputs.model(name))) - wanted)
        assert own <= other, name


def test_failures_of_the_campaign_count(found):
    often = calculon.largest_model(SYSTEM, 64, 30, reliability__mtbf_processor="100h")
    assert often.compute < found.compute
    deadline = calculon.largest_model(SYSTEM, 64, run={"deadline": "30d", "tokens": "1T"})
    assert deadline.compute == found.compute


def test_what_does_not_fit_gives_way_to_a_smaller_one():
    found = calculon.largest_model("rtx4090", 8, 900)
    assert found.too_large
    fits = active_count(found.nearest.model)
    for name in found.too_large:
        assert active_count(calculon.inputs.model(name)) > fits
        with pytest.raises(Infeasible):
            calculon.campaign(name, 8, "rtx4090", tokens="chinchilla")


@for_each("days", [None, 0, "soon", -1])
def test_it_takes_some_days(days):
    with pytest.raises(SpecError):
        calculon.largest_model(SYSTEM, 64, days)
    with pytest.raises(SpecError, match="tokens: expected a run of one particular model"):
        calculon.largest_model(SYSTEM, 64, 30, tokens="1T")


def test_the_fewest_days_are_those_of_the_smallest_model_of_the_laws():
    """The days that the message says are enough, and a tenth less are not."""
    with pytest.raises(Infeasible, match="scaling laws hold only") as refused:
        calculon.largest_model(SYSTEM, 64, 1e-5)
    need = float(re.search(r"at least (\S+) days", str(refused.value))[1])
    enough = calculon.largest_model(SYSTEM, 64, 1.01 * need)
    assert enough.optima[0].parameters == pytest.approx(SMALLEST, rel=0.02)
    with pytest.raises(Infeasible):
        calculon.largest_model(SYSTEM, 64, 0.9 * need)
