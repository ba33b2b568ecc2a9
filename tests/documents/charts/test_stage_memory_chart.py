"""Memory of stages: bars add up to the needs, and each kind has one color and one place."""

import pytest

from calculon.base.units import GIB
from calculon.declarations.statistics import KINDS_OF_MEMORY
from calculon.documents.charts.stage_memory_chart import kinds_of, stage_memory
from calculon.render.chart import Bars, Rule
from tests.documents.charts.reading import assert_in_sight, ends, marks, notes, tick_texts


def stages(sizes):
    """Return stages whose kinds have these sizes in GiB."""
    return [dict(zip(KINDS_OF_MEMORY, (size * GIB for size in row), strict=False)) for row in sizes]


@pytest.mark.parametrize("count", [1, 4, len(KINDS_OF_MEMORY)])
def test_the_kinds_of_every_stage_add_up_to_its_needs(count):
    several = stages([[n + 1.0 for n in range(count)], [2.0 * n + 1 for n in range(count)]])
    chart = stage_memory(several, 80 * GIB)
    assert_in_sight(chart)
    (panel,) = chart.panels
    bars = marks(panel, Bars)
    assert [one.name for one in bars] == list(KINDS_OF_MEMORY[:count])
    assert len({one.color for one in bars}) == count
    sums = [sum(stage.values()) / GIB for stage in several]
    assert [end for _, end in ends(bars[-1])] == pytest.approx(sums)
    assert notes(panel) == [f"{size:.1f}" for size in sums]
    (rule,) = marks(panel, Rule)
    assert (rule.at, rule.name) == (80.0, "usable: 80.0 GiB")


def test_a_kind_has_one_color_and_one_place_whatever_its_size():
    looks = [
        [
            (one.name, one.color)
            for one in marks(stage_memory(stages([row]), 80 * GIB).panels[0], Bars)
        ]
        for row in ([1.0, 9.0, 3.0], [9.0, 1.0, 2.0])
    ]
    assert looks[0] == looks[1]
    assert kinds_of(stages([[1.0, 0.0, 4.0]])) == [KINDS_OF_MEMORY[0], KINDS_OF_MEMORY[2]]


def test_of_many_stages_some_have_a_number():
    (panel,) = stage_memory(stages([[1.0]] * 64), 80 * GIB).panels
    assert tick_texts(panel.y) == [str(number) for number in range(0, 64, 4)]
    assert notes(panel) == []
