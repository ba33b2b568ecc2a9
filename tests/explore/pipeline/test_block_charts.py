"""The bars of operators, and their points on the roofline."""

import math
from dataclasses import replace

import pytest

from calculon.documents.charts.operator_chart import EXPOSED, MOST, by_time, operator_bars
from calculon.documents.operator_page import PASSES
from calculon.estimate.operator_passes import operator_passes
from calculon.estimate.operators import block
from calculon.explore.pipeline.roofline_chart import LARGEST, LEAST, drawn, roofline
from tests.documents.charts.reading import assert_in_sight, ends, tick_texts
from tests.helpers import LLAMA_X64

PLAIN = LLAMA_X64 | {"tensor_par_overlap": "none", "activation_recompute": "full"}
STATS = dict(zip(PASSES, ("fw", "agrad", "wgrad", "re"), strict=True))
TERA = 1e12


@pytest.fixture(scope="module")
def found():
    return block("llama3-8B", PLAIN, "h100_80g_sxm")


@pytest.fixture(scope="module")
def bars(found):
    operators = by_time(found.operators)
    names = [one["name"] for one in operators]
    links = [f"/?operator={name}" for name in names]
    chart = operator_bars("a block", "corrected", operators, names, links)
    assert_in_sight(chart)
    return chart


def test_bars_add_up_to_the_statistics_of_the_block(found, bars):
    (panel,) = bars.panels
    sums = {one.name: sum(one.lengths) for one in panel.marks}
    assert panel.x.unit == "ms"
    for work, title in PASSES.items():
        assert sums[title] / 1e3 == pytest.approx(found.stats[f"block_{STATS[work]}_time"])
    kinds = ("fw_tp", "agrad_tp", "recomm")
    exposed = sum(found.stats[f"baseblock_{kind}_time_exposed"] for kind in kinds)
    assert sums[EXPOSED] / 1e3 == pytest.approx(exposed)


def test_bars_are_sorted_and_the_rest_is_one_of_them(found, bars):
    operators = by_time(found.operators)
    assert len(operators) > MOST
    (panel,) = bars.panels
    lengths = [end for _, end in ends(panel.marks[-1])]
    assert lengths[:MOST] == sorted(lengths[:MOST], reverse=True)
    assert tick_texts(panel.y)[-1] == f"{len(operators) - MOST} others"
    assert list(panel.marks[0].links[-2:]) == [f"/?operator={operators[MOST - 1]['name']}", ""]


def test_points_lie_below_the_roofs_and_lead_to_their_operators(found):
    passes = operator_passes(found)
    names = {one.operator: one.operator for one in passes}
    links = {name: f"/?operator={name}" for name in names}
    chart = roofline("a block", "corrected", passes, names, links, "MlpBlock_Mlp1")
    assert_in_sight(chart)
    (panel,) = chart.panels
    memory, *peaks = (one for one in panel.marks if one.dash != "none")
    points = [one for one in panel.marks if one.words]
    (ring,) = (one for one in panel.marks if one.hollow)
    assert sum(len(one.x) for one in points) == len(drawn(passes))
    assert len(ring.x) == sum(one.operator == "MlpBlock_Mlp1" for one in drawn(passes))
    slope = memory.y[0] / memory.x[0]
    assert slope * TERA == pytest.approx(found.system.mem1.bandwidth)
    highest = max(one.y[0] for one in peaks)
    assert highest * TERA == found.system.matrix["bfloat16"].peak
    for one in points:
        for x, y, words, link in zip(one.x, one.y, one.words, one.links, strict=True):
            assert y <= min(slope * x, highest) * (1 + 1e-9)
            assert link == links[words.partition(",")[0]]
            assert math.isfinite(math.log(x))


def test_points_are_as_wide_beyond_the_least_as_the_root_of_their_share_of_the_time(found):
    one = drawn(operator_passes(found))[0]
    both = [replace(one, time=time) for time in (9.0, 16.0)]
    chart = roofline("", "", both, {one.operator: ""}, {one.operator: ""}, "")
    wide = [size - LEAST for size in chart.panels[0].marks[-1].sizes]
    assert wide == pytest.approx([(LARGEST - LEAST) * root for root in (3 / 5, 4 / 5)])
