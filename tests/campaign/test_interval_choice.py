"""Why checkpoints are as far apart as they are."""

import math

import numpy as np
import pytest

import calculon
from calculon.campaign.interval_choice import BEST, RUN, STATED, STORAGE, interval_choice

LLAMA = ("llama3-8B", "llama3-8B_h100x64", "h100_80g_sxm")


def choice(tokens="1T", **checkpoints):
    run = {"tokens": tokens, "checkpoints": checkpoints}
    whole = calculon.campaign(*LLAMA, run).whole
    return interval_choice(whole), whole


def test_by_itself_the_run_is_the_shortest():
    found, whole = choice()
    assert found.reason == BEST
    assert math.isclose(found.best, float(whole.best_interval))
    assert abs(float(whole.checkpoint_interval) - found.best) <= float(whole.step)
    assert found.memory_interval is None


@pytest.mark.parametrize("stated", [{"interval": "30min"}, {"interval_steps": 100}])
def test_what_is_stated_counts(stated):
    assert choice(**stated)[0].reason == STATED


@pytest.mark.parametrize("stated", [{}, {"interval": "30min"}])
def test_a_slow_storage_limits_it_and_the_rate_that_would_not_does_not(stated):
    found, whole = choice(bandwidth=0.01, **stated)
    assert found.reason == STORAGE
    assert math.isclose(found.write, float(whole.saves.size) / 1e7)
    if not stated:
        faster, _ = choice(bandwidth=1.001 * found.bandwidth_needed / 1e9)
        assert faster.reason == BEST


def test_steps_that_wait_for_the_storage_are_not_limited_by_it():
    assert choice(mode="sync", bandwidth=0.01)[0].reason == BEST


def test_a_short_run_ends_before_a_checkpoint():
    _, whole = choice(tokens="1G")
    for share, reason in ((1, RUN), (0.99, STATED)):
        assert choice(tokens="1G", interval=share * float(whole.useful))[0].reason == reason
    assert choice(tokens="1G")[0].reason == RUN


def test_two_levels_have_two_intervals():
    found, whole = choice(levels=2)
    assert np.isclose(found.memory_interval, float(whole.memory_interval))
    assert found.memory_interval < float(whole.checkpoint_interval)
    assert found.to_dict()["memory_interval"] == found.memory_interval
