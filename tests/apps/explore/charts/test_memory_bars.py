"""The bars of the memory of stages: what they add up to, and which kinds have a colour of their own."""

import pytest

from calculon.apps.explore.charts.memory_bars import MOST_KINDS, kinds_of, memory_bars
from calculon.planner.stage_needs import StageNeed
from calculon.units import GIB


def stages(sizes):
    """Return stages whose kinds have so many GiB."""
    parts = [{f"kind {n}": size * GIB for n, size in enumerate(row)} for row in sizes]
    return [
        StageNeed(number, 4, (sum(part.values()), 0.0), (80 * GIB, 0.0), (part, {}))
        for number, part in enumerate(parts)
    ]


@pytest.mark.parametrize("count", [1, MOST_KINDS, MOST_KINDS + 1, 3 * MOST_KINDS])
def test_the_kinds_of_every_stage_add_up_to_what_it_needs(count):
    several = stages([[n + 1.0 for n in range(count)], [2.0 * n + 1 for n in range(count)]])
    data = memory_bars(several)["data"]
    assert len(data) == min(count, MOST_KINDS)
    colours = [one["marker"]["color"] for one in data]
    assert len({*colours}) == len(colours)
    for place, stage in enumerate(several):
        assert sum(one["x"][place] for one in data) == pytest.approx(stage.needed[0] / GIB)


def test_the_largest_kind_is_next_to_the_axis():
    several = stages([[1.0, 9.0, 3.0], [1.0, 0.0, 4.0]])
    assert kinds_of(several) == ["kind 1", "kind 2", "kind 0"]
    assert [one["name"] for one in memory_bars(several)["data"]] == kinds_of(several)


def test_the_line_is_what_is_usable():
    (line,) = memory_bars(stages([[1.0]]))["layout"]["shapes"]
    assert line["x0"] == line["x1"] == 80.0
