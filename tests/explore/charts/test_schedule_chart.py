"""The chart of the passes of every stage."""

from dataclasses import replace

import pytest

import calculon
from calculon.documents.pictures.gantt import Gantt, Piece
from calculon.documents.views.schedule_passes import passes
from calculon.explore.charts.schedule_chart import AGAIN, schedule_chart
from calculon.render.chart_axes import time_unit
from calculon.render.digits import Digits
from tests.helpers import LLAMA_X64_P4

CASES = {
    "1f1b": {},
    "chunks": {"pipeline_interleaving": 4},
    "recomputed": {"activation_recompute": "full"},
    "zbv": {"pp_schedule": "zbv", "pipeline_interleaving": 2},
    "zb_h1": {"pp_schedule": "zb_h1", "activation_recompute": "full"},
}


def _chart(gantt):
    return schedule_chart(gantt, Digits(0.1), [f"/?stage={i}" for i in range(gantt.stages)], 0)


def _areas(trace):
    """Return width times height of the rectangles of a shape, each of which has five points and a gap."""
    corners = list(zip(trace["x"], trace["y"], strict=True))
    return [
        (corners[i + 2][0] - corners[i][0]) * (corners[i + 2][1] - corners[i][1])
        for i in range(0, len(corners), 6)
    ]


def _shapes(chart):
    return [one for one in chart["data"] if one.get("fill") and "fillpattern" not in one]


@pytest.fixture(scope="module", params=CASES)
def drawn(request):
    """Return the passes of a case, their chart, its units of time in a second, and the estimate."""
    found = calculon.estimate("llama3-8B", LLAMA_X64_P4 | CASES[request.param], "h100_80g_sxm")
    gantt = passes(found, 8)
    return gantt, _chart(gantt), time_unit(gantt.end)[1], found


def test_shapes_begin_and_end_with_the_schedule(drawn):
    gantt, chart, factor, _ = drawn
    for one in chart["data"]:
        times = [x for x in one["x"] if x is not None]
        assert min(times) >= 0
        assert max(times) <= gantt.end * factor * (1 + 1e-4)
    assert chart["layout"]["xaxis"]["range"] == [0, gantt.end * factor]
    last = max(x for one in _shapes(chart) for x in one["x"] if x is not None)
    assert last == pytest.approx(gantt.end * factor, rel=1e-4)


def test_what_no_shape_covers_is_idle(drawn):
    gantt, chart, factor, _ = drawn
    busy = sum(sum(_areas(one)) for one in _shapes(chart) if one["name"] != AGAIN)
    (whole,) = (sum(_areas(one)) for one in chart["data"] if "fillpattern" in one)
    assert 1 - busy / whole == pytest.approx(gantt.idle_share, abs=1e-3)
    mean = sum(map(gantt.idle, range(gantt.stages))) / gantt.stages
    assert gantt.idle_share == pytest.approx(mean)
    assert whole == pytest.approx(gantt.end * factor * gantt.stages * 0.86, rel=1e-3)


def test_recomputation_has_its_share_of_the_backward_passes(drawn):
    _, chart, factor, found = drawn
    (*again,) = (one for one in chart["data"] if one.get("name") == AGAIN)
    assert bool(again) == any(stage["recompute_time"] for stage in found.stages)
    for one in again:
        time = 8 * sum(stage["recompute_time"] for stage in found.stages)
        assert sum(_areas(one)) == pytest.approx(0.86 * time * factor, rel=1e-2)


def test_a_pointer_meets_every_pass_and_a_click_leads_to_its_stage(drawn):
    gantt, chart, _, _ = drawn
    met = set()
    for one in chart["data"]:
        if "customdata" in one:
            met |= {tuple(about[:3]) for about in one["customdata"]}
            assert one["meta"] == [f"/?stage={i}" for i in range(gantt.stages)]
    assert met == {(p.stage, p.microbatch + 1, p.chunk + 1) for p in gantt.pieces}


def test_texts_and_points_are_within_their_pieces_and_recomputation_at_their_lower_ends():
    """10 s are 900 pixels: a digit needs 3 + 6.5 of them, which are less than 0.11 s."""
    spans = [(0, 1), (2, 5), (5, 5.1), (6, 6.11), (7, 7.16), (7, 10)]
    kinds = ["forward", "backward", "forward", "weight", "forward", "forward"]
    pieces = [
        Piece(i % 2, kind, 9 if i == 4 else i, i % 3, *span, half=-(i == 5))
        for i, (kind, span) in enumerate(zip(kinds, spans, strict=True))
    ]
    gantt = Gantt("", 2, pieces, again=((0.0,) * 3, (0.0, 1.5, 0.0)))
    chart = _chart(gantt)
    (again,) = (one for one in chart["data"] if one.get("name") == AGAIN)
    assert again["x"] == [2, 5, 5, 2, 2, None]
    assert again["y"] == [1, 1, 1.43, 1.43, 1, None]  # half of the time, of a height of 0.86
    (numbers,) = (one for one in chart["data"] if "text" in one)
    wide = [piece for i, piece in enumerate(pieces) if i not in (2, 4)]  # 10 has two digits
    assert numbers["text"] == [str(piece.microbatch + 1) for piece in wide]
    assert numbers["x"] == [(piece.start + piece.end) / 2 for piece in wide]
    assert numbers["y"] == pytest.approx([0, 1, 1, 1 - 0.86 / 4])
    assert numbers["textfont"]["color"] == ["white", "white", "black", "black"]
    assert chart["layout"]["height"] == 120 + 2 * 30
    pointed = [one for one in chart["data"] if "customdata" in one]
    for piece in pieces:  # a point for a third of a row of 30 pixels
        found = [
            place
            for one in pointed
            for *place, about in zip(one["x"], one["y"], one["customdata"], strict=True)
            if about[1] == piece.microbatch + 1
        ]
        assert len(found) == max(1, round((piece.end - piece.start) * 90 / 10))
        assert all(piece.start < x < piece.end for x, _ in found)
        middle = piece.place[0] + piece.place[1] / 2
        assert [y for _, y in found] == pytest.approx([middle] * len(found), abs=1e-3)
    rows = {n: _chart(replace(gantt, stages=n))["data"] for n in (43, 44)}  # of 560 pixels in all
    assert [any("text" in one for one in data) for data in rows.values()] == [True, False]


def test_large_schedules_have_few_shapes():
    found = calculon.estimate(
        "megatron-1T", "3072_t4_p64_d12_mbs4_full", "a100_80g", edition="corrected"
    )
    gantt = passes(found, 32)
    chart = _chart(gantt)
    assert len(gantt.pieces) == 2 * 64 * 32
    assert len(chart["data"]) < 10
    assert chart["layout"]["height"] < 800
