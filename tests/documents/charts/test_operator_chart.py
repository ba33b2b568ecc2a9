"""Bars of operators, and their points on the roofline."""

from dataclasses import replace

import pytest

import calculon
from calculon.documents.charts.operator_chart import EXPOSED, MOST, by_time, operator_chart
from calculon.documents.estimate_result import result_of
from calculon.documents.operator_page import PASS_WORDS
from calculon.documents.roofline_chart import _LARGEST, _LEAST, drawn, roofline_chart
from calculon.estimate.operator_passes import operator_passes
from calculon.estimate.operators import block
from calculon.render.chart import Bars, Line
from tests.documents.charts.reading import assert_in_sight, ends, marks, tick_texts
from tests.helpers import LLAMA_X64

PLAIN = LLAMA_X64 | {"tensor_par_overlap": "none", "activation_recompute": "full"}
STATS = dict(zip(PASS_WORDS, ("fw", "agrad", "wgrad", "re"), strict=True))
TERA = 1e12


@pytest.fixture(scope="module")
def found():
    return block("llama3-8B", PLAIN, "h100_80g_sxm")


@pytest.fixture(scope="module")
def result():
    return result_of(calculon.estimate("llama3-8B", PLAIN, "h100_80g_sxm"), details=False)


def test_bars_add_up_to_the_statistics_and_are_sorted(found, result):
    operators = by_time(found.operators)
    names = [one["name"] for one in operators]
    chart = operator_chart(result, operators, names, [f"/?operator={name}" for name in names])
    assert_in_sight(chart)
    (panel,) = chart.panels
    assert panel.x.unit == "ms"
    pieces = marks(panel, Bars)
    sums = {one.name: sum(one.lengths) / 1e3 for one in pieces}
    for work, title in PASS_WORDS.items():
        assert sums[title] == pytest.approx(found.stats[f"block_{STATS[work]}_time"])
    kinds = ("fw_tp", "agrad_tp", "recomm")
    exposed = sum(found.stats[f"baseblock_{kind}_time_exposed"] for kind in kinds)
    assert sums[EXPOSED] == pytest.approx(exposed)

    assert len(operators) > MOST
    lengths = [end for _, end in ends(pieces[-1])]
    assert lengths[:MOST] == sorted(lengths[:MOST], reverse=True)
    assert tick_texts(panel.y) == [*names[:MOST], f"{len(operators) - MOST} others"]
    assert pieces[0].links == [f"/?operator={name}" for name in names[: MOST + 1]]


def test_points_lie_below_the_roofs_and_lead_to_their_operators(found, result):
    passes = operator_passes(found)
    names = {one.operator: one.operator for one in passes}
    links = {name: f"/?operator={name}" for name in names}
    chart = roofline_chart(result, passes, names, links, "MlpBlock_Mlp1")
    assert_in_sight(chart)
    lines = marks(chart.panels[0], Line)
    memory, *peaks = (one for one in lines if one.dash != "none")
    points = [one for one in lines if one.links]
    assert sum(len(one.x) for one in points) == len(drawn(passes))
    slope = memory.y[0] / memory.x[0]
    assert slope * TERA == pytest.approx(found.system.mem1.bandwidth)
    highest = max(one.y[0] for one in peaks)
    assert highest * TERA == found.system.matrix["bfloat16"].peak
    for one in points:
        for x, y, words, link in zip(one.x, one.y, one.words, one.links, strict=True):
            assert y <= min(slope * x, highest) * (1 + 1e-9)
            assert link == links[words.split(",")[0]]
    rings = {(x, y) for one in lines if one.hollow for x, y in zip(one.x, one.y, strict=True)}
    chosen = [one for one in passes if one.operator == "MlpBlock_Mlp1"]
    assert rings == {(one.intensity, one.achieved / TERA) for one in chosen}


def test_points_are_as_wide_beyond_the_least_as_the_root_of_their_share_of_the_time(found, result):
    one = drawn(operator_passes(found))[0]
    both = [replace(one, time=time) for time in (9.0, 16.0)]
    chart = roofline_chart(result, both, {one.operator: ""}, {one.operator: ""})
    wide = [size - _LEAST for size in marks(chart.panels[0], Line)[-1].sizes]
    assert wide == pytest.approx([(_LARGEST - _LEAST) * root for root in (3 / 5, 4 / 5)])
