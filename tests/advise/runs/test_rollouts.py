"""Phases of reinforcement learning: steps that generate before they train."""

import pytest

import calculon
from calculon.base.errors import Infeasible, SpecError
from tests.cases import for_each
from tests.helpers import LLAMA_X64_P4

MODEL, SYSTEM = "llama3-8B", "h100_80g_sxm"
ROLLOUT = {"prompt": 512, "output": 1536, "switch": 5, "deployment": {"tensor_par": 4}}


def run(rollout, **phase):
    """Return a run of one phase, with a rollout or without."""
    one = {"tokens": "1B", "batch": 512, "seq_size": "8k"} | phase
    one |= {} if rollout is None else {"rollout": rollout}
    return calculon.campaign(MODEL, {**LLAMA_X64_P4}, SYSTEM, {"phases": [one]})


def test_a_step_generates_what_it_trains_on_and_then_trains():
    plain, found = run(None), run(ROLLOUT)
    part = found.parts[0]
    answers = 512 * 8192 // (512 + 1536)
    served = calculon.serve(
        MODEL, {"num_procs": 64, "tensor_par": 4}, SYSTEM, prompt=512, output=1536, requests=answers
    )
    assert part.rollout_time == served.run_time + 5
    assert part.step_time == pytest.approx(plain.parts[0].step_time + part.rollout_time)
    assert part.estimate.stats == plain.parts[0].estimate.stats
    assert found.whole.useful == pytest.approx(part.steps * part.step_time)
    # engines wait no longer for each other than without
    waits = [(1 - one.whole.working) * one.whole.useful for one in (plain, found)]
    assert waits[0] == pytest.approx(waits[1])
    assert found.figures["days"] > plain.figures["days"]
    ends = [one.days_between[1] - one.days_between[0] for one in (plain, found)]
    assert ends[1] == pytest.approx(ends[0], rel=0.05)
    told = part.to_dict()
    assert told["rollout_time"] == part.rollout_time
    assert told["rollout"]["workload"]["requests"] == answers
    assert f"generate {answers:,} responses" in told["note"]
    assert "rollout" not in plain.parts[0].to_dict()


def test_answers_of_different_lengths_wait_for_the_longest():
    equal, varied = (run(ROLLOUT | {"output_cv": cv}).parts[0] for cv in (0, 0.7))
    assert varied.rollout_time > 1.2 * equal.rollout_time
    few = run(ROLLOUT | {"samples": 64}).parts[0]
    assert few.generated.workload.requests == 64
    assert few.rollout_time < equal.rollout_time


@for_each(
    ("rollout", "message"),
    [
        (ROLLOUT | {"output": 9000}, r"rollout\.output.*at most seq_size=8,192"),
        (ROLLOUT | {"deployment": {"num_procs": 8}}, r"rollout\.num_procs: expected 64"),
        (ROLLOUT | {"deployment": {"max_batsh": 8}}, r"rollout\.max_batsh"),
        (ROLLOUT | {"deployment": 3}, r"rollout\.deployment: expected a deployment"),
        (ROLLOUT | {"samples": 0}, r"rollout\.samples"),
        ({"prompt": 512}, r"rollout\.output"),
    ],
)
def test_bad_input(rollout, message):
    with pytest.raises(SpecError, match=message):
        run(rollout)


def test_what_does_not_fit_is_told():
    with pytest.raises(Infeasible, match="a sequence of 2,048 tokens does not fit"):
        run(ROLLOUT | {"deployment": {"tensor_par": 1, "reserve_gib": 70}})


def test_other_machines_are_not_followed():
    found = run(ROLLOUT)
    assert found.largest_elasticities == {}
    with pytest.raises(SpecError, match="phases without rollouts"):
        found.sensitivity("days")
