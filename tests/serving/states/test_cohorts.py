"""Users who start at once: closed form and replay of the scheduler agree."""

import numpy as np
import pytest

from calculon.serving.states.cohorts import cohort_size
from tests.serving.given import small

LOW, HIGH = 0.75, 1.35
"""Stated bounds of the closed form's time to the first token over the replay's."""


def test_a_pass_takes_as_many_prompts_as_its_budget_allows():
    users = np.array([1.0, 3.0, 100.0, 100.0])
    sizes = cohort_size(users, np.ones(4), np.array([4000.0, 4000.0, 4000.0, 900.0]), 1000)
    assert sizes.tolist() == [1, 3, 4, 1]


@pytest.mark.parametrize("budget", [0, 2048, 8192])
@pytest.mark.parametrize("users", [1, 6, 40])
@pytest.mark.parametrize("variation", [0.0, 0.4])
def test_closed_form_is_within_its_stated_error_of_the_replay(budget, users, variation):
    load = {"users": users, "requests": 5 * users, "prompt_cv": variation, "output_cv": variation}
    found = small({"token_budget": budget}, **load)
    # a single user has few requests of random lengths
    replay = found.replay(requests=max(5 * users, 60)) if users == 1 else found.replay()
    assert LOW <= found["ttft"] / replay.record.ttft.mean <= HIGH
    assert 0.95 <= found["tpot"] / replay.record.tpot.mean <= 1.25


@pytest.mark.parametrize("budget", [0, 8192])
def test_equal_requests_of_users_share_passes(budget):
    """Equal lengths keep users together, who therefore wait longer than users with different lengths."""
    together, random = (
        small({"token_budget": budget}, users=40, output_cv=variation) for variation in (0.0, 0.01)
    )
    assert together["ttft"] > 1.3 * random["ttft"]
    assert together["request_rate"] == pytest.approx(random["request_rate"], rel=0.05)


def test_the_first_requests_of_a_finite_run_wait_longer():
    endless = small(users=40, output_cv=0.4)
    times = [small(users=40, output_cv=0.4, requests=40 * n)["ttft"] for n in (1, 4, 100)]
    assert times[0] > times[1] > times[2] > endless["ttft"]
    first, fourth = (one - endless["ttft"] for one in times[:2])
    assert fourth == pytest.approx(first / 4)
