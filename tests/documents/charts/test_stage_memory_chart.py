"""The memory of stages, and the time of steps over capacities."""

import pytest

from calculon.base.units import GIB
from calculon.declarations.statistics import KINDS_OF_MEMORY
from calculon.documents.charts.capacity_chart import CapacityStep, capacity_steps
from calculon.documents.charts.stage_memory_chart import kinds_in, stage_memory
from calculon.render.chart import Bars, Line, Rule
from calculon.render.digits import Digits
from tests.documents.charts.reading import assert_in_sight, marks


def stages(sizes):
    """Return stages whose kinds have these sizes in GiB."""
    return [dict(zip(KINDS_OF_MEMORY, (size * GIB for size in row))) for row in sizes]  # noqa: B905


def chart_of(sizes):
    chart = stage_memory("a plan", "corrected", stages(sizes), 80 * GIB)
    assert_in_sight(chart)
    return chart.panels[0]


@pytest.mark.parametrize("count", [1, 4, len(KINDS_OF_MEMORY)])
def test_the_kinds_of_every_stage_add_up_to_its_need(count):
    sizes = [[n + 1.0 for n in range(count)], [2.0 * n + 1 for n in range(count)]]
    bars = marks(chart_of(sizes), Bars)
    assert len({one.color for one in bars}) == len(bars) == count
    for place, row in enumerate(sizes):
        assert sum(one.lengths[place] for one in bars) == pytest.approx(sum(row))


def test_a_kind_has_one_colour_and_one_place_whatever_its_size():
    looks = [
        [(one.name, one.color) for one in marks(chart_of([row]), Bars)]
        for row in ([1.0, 9.0, 3.0], [9.0, 1.0, 2.0])
    ]
    assert looks[0] == looks[1]
    assert kinds_in(stages([[1.0, 0.0, 4.0]])) == [KINDS_OF_MEMORY[0], KINDS_OF_MEMORY[2]]


def test_the_line_is_the_usable_capacity():
    (line,) = marks(chart_of([[1.0]]), Rule)
    assert line.at == 80.0


def test_stairs_have_the_capacities_that_are_near_those_of_the_machine():
    steps = [CapacityStep(size * GIB, 1 / size, "TP 1", f"/?{size}") for size in (1, 10, 50, 900)]
    chart = capacity_steps("title", "corrected", steps, (40 * GIB, 80 * GIB), Digits(0.01))
    assert_in_sight(chart)
    (panel,) = chart.panels
    stairs, points = marks(panel, Line)
    assert (list(points.x), list(points.links)) == ([10, 50], ["/?10", "/?50"])
    assert list(stairs.x) == [10, 50, 320]
    assert points.y == pytest.approx([100.0, 20.0])  # milliseconds
    rules = [(rule.at, rule.text, rule.side) for rule in marks(panel, Rule)]
    assert rules == [(40, "40 now", "right"), (80, "80 system file", "left")]
