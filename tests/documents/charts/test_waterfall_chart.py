"""Waterfalls: bars lead from one time to the other."""

import pytest

from calculon.base.units import GIB
from calculon.cli.results import read_results
from calculon.documents.charts.waterfall_chart import (
    ADDED,
    SAVED,
    WaterfallData,
    change_waterfall,
    waterfall,
)
from calculon.documents.waterfalls import labeled_waterfalls
from calculon.render.chart import Bars, Notes, Rule
from calculon.render.digits import Digits
from tests.documents.charts.reading import assert_in_sight, ends, marks, tick_texts

MINE = "mine=llama3-8B,llama3-8B_h100x64_p4,h100_80g_sxm"
BEST = "best=llama3-8B,llama3-8B_h100x64,h100_80g_sxm"


def test_bars_lead_from_one_time_to_the_other():
    mine, best = read_results([MINE, BEST])
    (data,) = labeled_waterfalls([mine, best])
    chart = waterfall([data])
    assert_in_sight(chart)
    times, memory = chart.panels
    assert change_waterfall(data).panels == [times]
    (bars,) = marks(times, Bars)
    drawn = ends(bars)
    assert drawn[0][1] == pytest.approx(mine.value("total_time"))
    assert drawn[-1][1] == pytest.approx(best.value("total_time"))
    assert drawn[0][0] == drawn[-1][0] == times.x.limits[0]
    reached = drawn[0][1]
    for start, end in drawn[1:-1]:
        assert reached == pytest.approx(end)  # every change saves time
        reached = start
    assert reached == pytest.approx(drawn[-1][1])
    sizes = marks(memory, Bars)[0].lengths
    needed = [one.value("proc_mem_tier1_cap_req") / GIB for one in (mine, best)]
    assert [sizes[0], sizes[-1]] == pytest.approx(needed)
    assert [one.at for one in marks(memory, Rule)] == pytest.approx([best.capacities[0] / GIB])
    labels = tick_texts(times.y)
    assert (labels[0], labels[-1]) == ("mine", "best")
    assert len(labels) == len(drawn)


def data_to(after, capacity=1.0):
    """Return a waterfall from 10 s to another time, with a plan of 2 GiB that needs more than the capacity in GiB."""
    end = {"seconds": after, "bytes": 2 * GIB, "fits": True}
    step = {"change": "DP overlap", "seconds": after - 10.0, "time_after": after}
    step |= {"bytes": 0.0, "bytes_after": 2 * GIB, "fits": False}
    told = {"per": "sample", "mine": end | {"seconds": 10.0}, "best": end, "steps": [step]}
    return WaterfallData(told, ("A", "B"), "title", "", Digits(0.01), capacity * GIB)


@pytest.mark.parametrize(
    ("after", "start", "color"),
    [(8.0, 0.0, SAVED), (8.01, 8.01 - 0.6 * 1.99, SAVED), (12.6, 0.0, ADDED)],
)
def test_times_that_differ_by_less_than_a_fifth_do_not_start_at_0(after, start, color):
    chart = waterfall([data_to(after)])
    assert_in_sight(chart)
    times, _ = chart.panels
    assert times.x.limits[0] == pytest.approx(start)
    assert times.x.text == f"Time per sample (s{', not from 0' if start else ''})"
    (bars,) = marks(times, Bars)
    assert bars.color[1] == color
    assert sorted([10, after]) == pytest.approx(ends(bars)[1])


@pytest.mark.parametrize(
    ("capacity", "shown", "text"), [(40, False, 2), (39, True, 2), (3, True, 2), (2.9, True, 2.9)]
)
def test_a_capacity_is_a_line_if_bars_are_visible(capacity, shown, text):
    _, memory = waterfall([data_to(8.0, capacity)]).panels
    assert [rule.at for rule in marks(memory, Rule)] == [capacity] * shown
    assert list(marks(memory, Bars)[0].hatched) == [False, True, False]
    (notes,) = marks(memory, Notes)
    assert list(notes.x) == [text] * 3  # beyond a line that it would cross
