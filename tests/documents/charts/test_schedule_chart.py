"""The passes of every stage."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

import calculon
from calculon.documents.charts.schedule_chart import AGAIN, HEIGHT, Gantt, Piece, schedule
from calculon.documents.schedule_passes import passes
from calculon.inputs import Changed
from calculon.render.chart import Boxes, Notes
from calculon.render.chart_axes import time_unit
from calculon.render.digits import Digits
from calculon.render.plotly_charts import figure
from tests.documents.charts.reading import assert_in_sight, legend, marks, notes
from tests.helpers import LLAMA_X64_P4

CASES = {
    "1f1b": {},
    "chunks": {"pipeline_interleaving": 4},
    "recomputed": {"activation_recompute": "full"},
    "zbv": {"pp_schedule": "zbv", "pipeline_interleaving": 2},
    "zb_h1": {"pp_schedule": "zb_h1", "activation_recompute": "full"},
}


def chart_of(gantt):
    links = [f"/?stage={i}" for i in range(gantt.stages)]
    return schedule(gantt, Digits(0.1), links, 0)


def area(boxes):
    return sum((right - left) * abs(top - low) for left, right, low, top in boxes.boxes)


def of_passes(chart):
    return [one for one in marks(chart.panels[0], Boxes) if one.words]


@pytest.fixture(scope="module", params=CASES)
def drawn(request):
    """Return the passes of a case, their chart, its units of time in a second, and the estimate."""
    estimate = calculon.estimate("llama3-8B", LLAMA_X64_P4 | CASES[request.param], "h100_80g_sxm")
    gantt = passes(estimate, 8)
    return gantt, chart_of(gantt), time_unit(gantt.end)[1], estimate


def test_passes_are_where_the_schedule_has_them():
    gantt = passes(calculon.estimate("llama3-8B", "llama3-8B_h100x64_p4", "h100_80g_sxm"), 3)
    assert len(gantt.pieces) == 4 * 3 * 2
    first = min(gantt.pieces, key=lambda piece: (piece.start, piece.stage))
    assert (first.stage, first.kind, first.microbatch, first.start) == (0, "forward", 0, 0.0)
    for stage in range(4):
        own = sorted((p for p in gantt.pieces if p.stage == stage), key=lambda p: p.start)
        assert all(a.end <= b.start for a, b in pairwise(own))
        busy = sum(p.end - p.start for p in own)
        assert gantt.idle(stage) == pytest.approx(1 - busy / gantt.end)
    assert gantt.idle_share == pytest.approx(np.mean([gantt.idle(stage) for stage in range(4)]))
    assert gantt.subtitle == ("1F1B, 4 stages, 3 of 32 microbatches, bubble 6.6 % of the iteration")
    assert legend(schedule(gantt))[1:3] == ["forward", "backward"]


def test_pairs_of_passes_are_above_each_other():
    """Both have the time of the pair, and half of a row each: stages are as busy as without pairs."""
    fields = {
        "pp_schedule": "dualpipev",
        "pipeline_interleaving": 2,
        "ep_overlap": "1f1b",
        "optimizer_sharding": True,
    }
    plan = Changed("mixtral-8x7B_h100x64", fields)
    gantt = passes(calculon.estimate("mixtral-8x7B", plan, "h200_141g_sxm", preset="common"))
    upper, lower = (
        sorted((p.stage, p.start, p.end) for p in gantt.pieces if p.half == half)
        for half in (-1, 1)
    )
    assert upper
    assert upper == lower
    assert {p.kind for p in gantt.pieces if p.half == -1} == {"forward"}
    assert {p.kind for p in gantt.pieces if p.half == 1} == {"backward"}
    assert all(0 <= gantt.idle(stage) < 0.5 for stage in range(gantt.stages))
    assert "pairs of passes above each other" in gantt.subtitle
    assert gantt.row == "Rank"


def test_boxes_are_where_the_schedule_has_its_passes_and_the_rest_is_idle(drawn):
    gantt, chart, factor, estimate = drawn
    assert_in_sight(chart)
    last = max(right for one in of_passes(chart) for _, right, *_ in one.boxes)
    assert last == pytest.approx(gantt.end * factor, rel=1e-4)
    assert sum(len(one.boxes) for one in of_passes(chart)) == len(gantt.pieces)
    idle = marks(chart.panels[0], Boxes)[0]
    assert idle.name.startswith("idle: ")
    busy = sum(map(area, of_passes(chart)))
    assert 1 - busy / area(idle) == pytest.approx(gantt.idle_share, abs=1e-3)
    assert area(idle) == pytest.approx(gantt.end * factor * gantt.stages * HEIGHT, rel=1e-3)
    time = 8 * sum(stage["recompute_time"] for stage in estimate.stages)
    again = [area(one) for one in marks(chart.panels[0], Boxes, AGAIN)]
    assert again == ([pytest.approx(HEIGHT * time * factor, rel=1e-2)] if time else [])


def test_a_pointer_meets_every_pass_and_a_click_leads_to_its_stage(drawn):
    gantt, chart, _, _ = drawn
    met = set()
    for trace in figure(chart)["data"]:
        if "customdata" in trace:
            met |= {(stage, words) for stage, _, words in trace["customdata"]}
            assert trace["meta"] == [f"/?stage={i}" for i in range(gantt.stages)]
    several = zip(*[(one.groups, one.words) for one in of_passes(chart)], strict=True)
    groups, words = ([x for one in each for x in one] for each in several)
    expected = {(g, w.replace("\n", "<br>")) for g, w in zip(groups, words, strict=True)}
    assert met == expected
    assert len({text.partition("\n")[0] for text in words}) == len(gantt.pieces)


def test_numbers_are_in_pieces_that_are_wide_enough_and_recomputation_at_their_lower_ends():
    """10 s are 9.8 inches: a digit needs 0.1 of them, two need 0.17."""
    spans = [(0, 1), (2, 5), (5, 5.1), (6, 6.11), (7, 7.16), (7, 10)]
    kinds = ["forward", "backward", "forward", "weight", "forward", "forward"]
    pieces = [
        Piece(i % 2, kind, 9 if i == 4 else i, i % 3, *span, half=-(i == 5))
        for i, (kind, span) in enumerate(zip(kinds, spans, strict=True))
    ]
    gantt = Gantt("title", "", 2, pieces, again=((0.0,) * 3, (0.0, 1.5, 0.0)))
    (panel,) = chart_of(gantt).panels
    (again,) = marks(panel, Boxes, AGAIN)
    assert again.boxes == [(2, 5, 1.0, 1.43)]  # half of the time, of a height of 0.86
    numbers, idle = marks(panel, Notes)
    wide = [piece for i, piece in enumerate(pieces) if i not in (2, 4)]  # 10 has two digits
    assert numbers.texts == [str(piece.microbatch + 1) for piece in wide]
    assert numbers.x == [(piece.start + piece.end) / 2 for piece in wide]
    assert numbers.y == pytest.approx([0, 1, 1, 1 - HEIGHT / 4])
    assert numbers.color == ["white", "white", "black", "black"]
    assert idle.texts == ["87 %", "54 %"]
    shown = [len(marks(chart_of(replace(gantt, stages=n)).panels[0], Notes)) for n in (40, 41)]
    assert shown == [1, 0]


def test_later_chunks_are_lighter():
    pieces = [Piece(0, "weight", 0, chunk, chunk, chunk + 1) for chunk in range(3)]
    chart = chart_of(Gantt("title", "", 1, pieces))
    assert [one.color for one in of_passes(chart)] == ["orange", "orange+28", "orange+55"]
    assert legend(chart)[1:] == ["gradients of weights", "gradients of weights, last of 3 chunks"]


def test_large_schedules_have_few_shapes():
    estimate = calculon.estimate(
        "megatron-1T", "3072_t4_p64_d12_mbs4_full", "a100_80g", edition="corrected"
    )
    gantt = passes(estimate, 32)
    chart = chart_of(gantt)
    assert len(gantt.pieces) == 2 * 64 * 32
    assert notes(chart.panels[0]) == []
    drawn = figure(chart)
    assert len(drawn["data"]) < 10
    assert drawn["layout"]["height"] <= 960
