"""Goodput over sizes: the figures of the campaign at the size of the plan, and the law at all others."""

import numpy as np
import pytest

import calculon
from calculon.advise.runs.goodput_by_size import goodput_by_size
from calculon.base.errors import SpecError
from calculon.campaign.goodput import best_interval, wall_per_useful
from tests.cases import for_each

HOUR = 3600.0
PLAN = ("llama3-8B", "llama3-8B_h100x64", "h100_80g_sxm")
QUIET = {"reliability__spares": 0, "reliability__hardware_share": 0.0}
"""No nodes in repair, for which a run might wait."""


def run_of(**options):
    return calculon.campaign(*PLAN, **{"tokens": "15T", **QUIET, **options})


@pytest.fixture(scope="module")
def run():
    return run_of()


def test_the_size_of_the_plan_has_the_figures_of_the_run(run):
    (curve,) = goodput_by_size(run, 64, [run.campaign.reliability.mtbf_processor / HOUR]).curves
    for name in ("goodput", "mtbf_hours", "checkpoint_interval", "checkpoint_time"):
        (found,) = np.broadcast_to(getattr(curve.whole, name), 1)
        assert found == pytest.approx(run.figures[name], rel=1e-12)


def test_goodput_is_that_of_the_exact_law(run):
    found = goodput_by_size(run, "64:65536:x4", ["50000h"])
    (curve,) = found.curves
    n = np.array(found.num_procs, float)
    assert curve.whole.mtbf_hours == pytest.approx(50_000 / n)
    mtbf, save = 50_000 * HOUR / n, curve.whole.checkpoint_time
    r = run.campaign.reliability
    storage = run.campaign.checkpoints.bandwidth_per_node * n / 8
    restart = r.detect + r.restart + curve.whole.checkpoint_size / storage
    wall = wall_per_useful(curve.whole.checkpoint_interval, save, restart, mtbf)
    assert curve.whole.goodput == pytest.approx(1 / wall, rel=1e-9)
    shortest = np.maximum(best_interval(save, mtbf), curve.whole.checkpoint_size / storage)
    assert np.all(np.abs(curve.whole.checkpoint_interval - shortest) <= run.main.step_time)


def test_half_once_and_twice_the_time_between_failures_where_none_is_asked_for(run):
    found = goodput_by_size(run)
    own = run.campaign.reliability.mtbf_processor / HOUR
    assert [one.mtbf_processor for one in found.curves] == pytest.approx([own / 2, own, own * 2])
    assert found.num_procs == (4, 8, 16, 32, 64, 128, 256, 512)
    told = found.to_dict()
    assert told["plan_num_procs"] == 64
    assert all(len(one["goodput"]) == len(told["num_procs"]) for one in told["curves"])


def test_without_failures_there_is_one_curve_without_losses():
    (curve,) = goodput_by_size(run_of(reliability__mtbf_processor="never"), "64:4096:x4").curves
    assert np.all(curve.whole.goodput == 1)


def test_says_where_the_storage_takes_no_more_checkpoints(run):
    slow = run_of(checkpoints__bandwidth=0.1)
    (curve,) = goodput_by_size(slow, "64:4096:x2", [50_000]).curves
    least = curve.whole.checkpoint_size / 0.1e9
    mtbf = curve.whole.mtbf_hours * HOUR
    best = best_interval(curve.whole.checkpoint_time, mtbf)
    assert curve.storage_limits.tolist() == (best < least).tolist()
    assert set(curve.storage_limits.tolist()) == {False, True}
    assert np.all(curve.whole.checkpoint_interval >= least)
    (fast,) = goodput_by_size(run, "64", [50_000]).curves
    assert not fast.storage_limits.any()


@for_each(
    ("asked", "words"),
    [
        ({"procs": 0}, "--procs"),
        ({"procs": "64:32"}, "--procs"),
        ({"mtbf": ["soon"]}, "--mtbf"),
        ({"mtbf": [0]}, "a time above 0"),
    ],
)
def test_says_what_is_wrong(run, asked, words):
    with pytest.raises(SpecError, match=words):
        goodput_by_size(run, **asked)
