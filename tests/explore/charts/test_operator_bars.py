"""The bars of operators, and their points on the roofline."""

import math
from dataclasses import replace

import pytest

from calculon.documents.operator_page import PASSES
from calculon.estimate.operator_passes import operator_passes
from calculon.estimate.operators import block
from calculon.explore.charts.operator_bars import EXPOSED, MOST, by_time, operator_bars
from calculon.explore.charts.roofline_chart import _LARGEST, _LEAST, drawn, roofline_chart
from calculon.render.chart_axes import time_unit
from tests.helpers import LLAMA_X64

PLAIN = LLAMA_X64 | {"tensor_par_overlap": "none", "activation_recompute": "full"}
STATS = dict(zip(PASSES, ("fw", "agrad", "wgrad", "re"), strict=True))
TERA = 1e12


@pytest.fixture(scope="module")
def found():
    return block("llama3-8B", PLAIN, "h100_80g_sxm")


def test_bars_add_up_to_the_statistics_of_the_block(found):
    operators = by_time(found.operators)
    names = [one["name"] for one in operators]
    chart = operator_bars(operators, names, [f"/?operator={name}" for name in names])
    longest = max(sum(one["x"][0] for one in chart["data"]), 0.0)
    sums = {one["name"]: sum(one["x"]) for one in chart["data"]}
    _, factor = time_unit(longest / 1e3)
    assert factor == 1e3  # milliseconds
    for work, title in PASSES.items():
        assert sums[title] / factor == pytest.approx(found.stats[f"block_{STATS[work]}_time"])
    kinds = ("fw_tp", "agrad_tp", "recomm")
    exposed = sum(found.stats[f"baseblock_{kind}_time_exposed"] for kind in kinds)
    assert sums[EXPOSED] / factor == pytest.approx(exposed)


def test_bars_are_sorted_and_the_rest_is_one_of_them(found):
    operators = by_time(found.operators)
    chart = operator_bars(operators, [one["name"] for one in operators], [""] * len(operators))
    assert len(operators) > MOST
    lengths = [sum(times) for times in zip(*(one["x"] for one in chart["data"]), strict=True)]
    assert lengths[:MOST] == sorted(lengths[:MOST], reverse=True)
    assert chart["data"][0]["y"][-1] == f"{len(operators) - MOST} others"


def test_points_lie_below_the_roofs_and_lead_to_their_operators(found):
    passes = operator_passes(found)
    names = {one.operator: one.operator for one in passes}
    links = {name: f"/?operator={name}" for name in names}
    chart = roofline_chart(passes, names, links, "MlpBlock_Mlp1")
    memory, *peaks = (one for one in chart["data"] if one["mode"] == "lines")
    points = [one for one in chart["data"] if one["mode"] == "markers"]
    assert sum(len(one["x"]) for one in points) == len(drawn(passes))
    slope = memory["y"][0] / memory["x"][0]
    assert slope * TERA == pytest.approx(found.system.mem1.bandwidth)
    highest = max(one["y"][0] for one in peaks)
    assert highest * TERA == found.system.matrix["bfloat16"].peak
    for one in points:
        for x, y, data in zip(one["x"], one["y"], one["customdata"], strict=True):
            assert y <= min(slope * x, highest) * (1 + 1e-9)
            assert data[-1] == links[data[0]]
            assert math.isfinite(math.log(x))


def test_points_are_as_wide_beyond_the_least_as_the_root_of_their_share_of_the_time(found):
    one = drawn(operator_passes(found))[0]
    both = [replace(one, time=time) for time in (9.0, 16.0)]
    points = roofline_chart(both, {one.operator: ""}, {one.operator: ""}, "")["data"][-1]
    wide = [size - _LEAST for size in points["marker"]["size"]]
    assert wide == pytest.approx([(_LARGEST - _LEAST) * root for root in (3 / 5, 4 / 5)])
