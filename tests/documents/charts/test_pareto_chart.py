"""Plans by two statistics, and those that no other one beats."""

import numpy as np
import pytest

from calculon.base.units import GIB
from calculon.cli.plot_curves import requested_pareto as asked
from calculon.documents.charts.pareto_chart import (
    Pareto,
    PlanPoint,
    ascends,
    pareto,
    plans_chart,
    scattered,
    spread,
)
from tests.cases import for_each
from tests.documents.charts.reading import assert_in_sight, legend, notes, plot_arguments

SPACE = ("megatron-22B", "8", "8", "float16", "a100_80g")
FIX = ("microbatch_size=1", "weight_offload=false", "optimizer_offload=false")
EDITION = ("--edition", "corrected", "--fix=tensor_par=8")


def found(*options):
    fixed = [f"--fix={one}" for one in (*FIX, "activations_offload=false")]
    return asked(plot_arguments("pareto", *SPACE, *fixed, *options))


@pytest.fixture(scope="module")
def front():
    return found()


def test_a_front_is_not_beaten(front):
    x, y = front.columns
    for row in front.optimal:
        better = (x <= x[row]) & (y >= y[row]) & ((x < x[row]) | (y > y[row]))
        assert not better.any()
    assert front.complete
    chart = pareto(front)
    assert_in_sight(chart)
    (panel,) = chart.panels
    assert panel.x.text == "Memory per processor (GiB)"
    dots, points, _ = panel.marks
    assert list(points.x) == pytest.approx(x[front.optimal] / GIB)
    assert len(dots.x) > len(points.x)
    assert set(notes(panel)) <= set(front.names)
    assert legend(chart)[0] == f"{len(x):,} executions that can run"


def test_a_large_space_gives_its_front_only(front, monkeypatch):
    monkeypatch.setattr("calculon.cli.plot_curves.SMALL", 10)
    few = found()
    assert not few.complete
    assert np.array_equal(few.columns[:, few.optimal], front.columns[:, front.optimal])
    assert few.names == front.names
    assert len(pareto(few).panels[0].marks) == 2


def test_a_chart_of_today_names_its_edition():
    assert pareto(found(*EDITION)).heading[-1] == "edition corrected, torchtitan"


def test_numbers_of_processors_are_counts():
    columns = np.array([[8, 16, 32, 64], [1.0, 2.0, 4.0, 8.0]])
    (panel,) = pareto(Pareto("", "num_procs", "sample_rate", columns, np.arange(4), "abcd")).panels
    assert [text for _, text in panel.x.ticks] == ["8", "16", "32", "64"]
    assert (panel.x.scale, panel.y.scale) == ("log", "log")


@pytest.mark.parametrize(("ratio", "scale"), [(19.9, "linear"), (20.1, "log")])
def test_an_axis_is_logarithmic_if_the_front_has_a_wide_range(ratio, scale):
    front = [PlanPoint(x=value * GIB, y=value / 100) for value in (1.0, ratio)]
    far = [PlanPoint(x=1000.0 * GIB, y=0.9, words="far", link="/?far", key="1.1")]
    names = ("proc_mem_tier1_cap_req", "total_time")
    chart = plans_chart("q", "corrected", names, front=front, splits=far, best=far[0])
    (panel,) = chart.panels
    assert_in_sight(chart)
    assert panel.y.text == "Iteration time (ms)"
    assert panel.x.scale == "log"  # with the best of all
    assert plans_chart("", "", names, front=front, splits=far).panels[0].x.scale == scale
    assert legend(chart) == ["each split", "Pareto-optimal", "best"]
    splits = panel.marks[0]
    assert (splits.words, splits.links, splits.keys) == (["far"], ["/?far"], ["1.1"])


@for_each(
    ("function", "inputs", "expected"),
    [
        # a twentieth of the height or a fifth of the width from each other, the highest first
        (lambda x: spread(np.array([[0, x, 1], [0, 0.04, 1]]), 9), [0.19, 0.21], [[2, 1], [2, 1, 0]]),
        (lambda y: spread(np.array([[0, 0, 1], [0, y, 1]]), 9), [0.04, 0.06], [[2, 1], [2, 1, 0]]),
        (lambda most: spread(np.array([[0, 1, 2], [0, 1, 2]]), most), [2], [[2, 1]]),
        (lambda x: spread(np.array([[x, x], [1, 1]]), 9), [5], [[0]]),
        (lambda x: [*scattered(np.array([[0, x, 1], [0, 0, 1]]))], [1 / 361, 1 / 358], [[0, 2], [0, 1, 2]]),
        (lambda x: [*scattered(np.array([[x, x], [0, 1]]))], [3], [[0, 1]]),
        (lambda y: ascends(np.array([[0, 1], [1, y]])), [0, 1], [False, True]),
    ],
)  # fmt: skip
def test_labels_and_dots_are_apart(function, inputs, expected):
    assert [function(one) for one in inputs] == expected
