"""The bars of the memory of stages: what they add up to, and the colour and place of each kind."""

import pytest

from calculon.advise.stage_needs import StageNeed
from calculon.base.units import GIB
from calculon.declarations.statistics import KINDS_OF_MEMORY
from calculon.explore.charts.memory_bars import kinds_of, memory_bars


def stages(sizes):
    """Return stages whose kinds have so many GiB."""
    parts = [
        dict(zip(KINDS_OF_MEMORY, (size * GIB for size in row), strict=False)) for row in sizes
    ]
    return [
        StageNeed(number, 4, (sum(part.values()), 0.0), (80 * GIB, 0.0), (part, {}))
        for number, part in enumerate(parts)
    ]


@pytest.mark.parametrize("count", [1, 4, len(KINDS_OF_MEMORY)])
def test_the_kinds_of_every_stage_add_up_to_what_it_needs(count):
    several = stages([[n + 1.0 for n in range(count)], [2.0 * n + 1 for n in range(count)]])
    data = memory_bars(several)["data"]
    assert len(data) == count
    assert len({one["marker"]["color"] for one in data}) == count
    for place, stage in enumerate(several):
        assert sum(one["x"][place] for one in data) == pytest.approx(stage.needed[0] / GIB)


def test_a_kind_has_one_colour_and_one_place_whatever_its_size():
    looks = [
        [(one["name"], one["marker"]["color"]) for one in memory_bars(stages([row]))["data"]]
        for row in ([1.0, 9.0, 3.0], [9.0, 1.0, 2.0])
    ]
    assert looks[0] == looks[1]
    assert kinds_of(stages([[1.0, 0.0, 4.0]])) == [KINDS_OF_MEMORY[0], KINDS_OF_MEMORY[2]]


def test_the_line_is_what_is_usable():
    (line,) = memory_bars(stages([[1.0]]))["layout"]["shapes"]
    assert line["x0"] == line["x1"] == 80.0
