"""Time and memory of results: the pieces of bars are the parts of the statistics."""

from dataclasses import replace

import pytest

from calculon.base.units import GIB
from calculon.cli.results import read_results
from calculon.documents.charts.breakdown import breakdown, time_parts
from calculon.render.chart import Bars, Line, Rule
from tests.documents.charts.reading import assert_in_sight, ends, legend, marks, notes, tick_texts

EXAMPLE = "megatron-1T,3072_t4_p64_d12_mbs4_full,a100_80g"


@pytest.fixture(scope="module")
def results():
    return read_results([EXAMPLE, f"other={EXAMPLE.replace('80g', '80e')}"])


def test_stacked_pieces_add_up_to_the_statistics(results):
    chart = breakdown(results)
    assert_in_sight(chart)
    time, memory = chart.panels
    for panel, sums, factor in (
        (time, "total_time", 1.0),
        (memory, "proc_mem_tier1_cap_req", 1 / GIB),
    ):
        pieces = [bars.lengths for bars in marks(panel, Bars)]
        expected = [result.value(sums) * factor for result in results]
        assert [sum(one) for one in zip(*pieces, strict=True)] == pytest.approx(expected)
        last = marks(panel, Bars)[-1]
        assert [end for _, end in ends(last)] == pytest.approx(expected)
    (bubble,) = marks(time, Bars, "pipeline bubble")
    assert bubble.lengths == pytest.approx([one.value("bubble_time") for one in results])
    assert tick_texts(time.y) == [
        f"{label}\nTP 4 · PP 64 · DP 12"
        for label in ("megatron-1T,\n3072_t4_p64_d12_mbs4_full,\na100_80g", "other")
    ]


def test_the_capacity_is_a_line_unless_it_is_far_away(results):
    memory = breakdown(results).panels[1]
    (line,) = marks(memory, Line)  # the other system has a far larger memory
    assert list(line.x) == [80, 80]
    assert legend(breakdown(results))[-1] == "capacity"


def test_parts_too_small_to_be_seen_are_not_in_the_legend(results):
    shown = legend(breakdown(results))
    assert "pipeline bubble" in shown
    assert "optimizer step" not in shown
    assert "forward offloading" not in shown


def test_a_single_result_has_a_bar_for_each_part(results):
    one = results[0]
    chart = breakdown([one])
    assert_in_sight(chart)
    time, memory = chart.panels
    assert time_parts(one).panels == [replace(time, title="")]
    assert chart.title == "Training of megatron-1T on 3,072 x a100_80g"
    (bars,) = marks(time, Bars)
    assert list(bars.lengths) == sorted((t for t in one.times().values() if t), reverse=True)
    assert [start for start, _ in ends(bars)][1:] == [end for _, end in ends(bars)][:-1]
    assert ends(bars)[-1][1] == pytest.approx(one.value("total_time"))
    assert tick_texts(time.y)[0] == "pipeline bubble"
    assert bars.words[0] == f"pipeline bubble: {notes(time)[0]}"
    (rule,) = marks(memory, Rule, "capacity")
    assert rule.at == 80
