"""Waterfalls as notebooks, comparisons and reports show them."""

from html import escape

import pytest

import calculon
from calculon.base.units import GIB
from calculon.cli.results import read_results
from calculon.documents.waterfalls import comparable, drawn, waterfall_data
from calculon.render.html import REPORT, fragment

CASES = [
    ("llama3-8B", name, "h100_80g_sxm") for name in ("llama3-8B_h100x64_p4", "llama3-8B_h100x64")
]


@pytest.fixture(scope="module")
def found():
    return calculon.waterfall(*(calculon.estimate(*one) for one in CASES))


def test_a_notebook_shows_a_row_for_each_change(found):
    text = found._repr_html_()
    assert "one change at a time" in text
    assert all(escape(step.words) in text for step in found.steps)
    sizes = (f"{found.mine.memory[0] / GIB:.1f}", f"{found.best.memory[0] / GIB:.1f}")
    assert all(size in text for size in sizes)


def test_the_picture_of_a_waterfall_is_that_of_the_command(found):
    pytest.importorskip("matplotlib", reason="pictures need the extra plot")
    labels = [label.get_text() for label in found.plot().axes[0].get_yticklabels()]
    assert labels == ["mine", *(step.words for step in found.steps), "best"]
    told = waterfall_data(found)
    assert told.capacity == found.system.usable[0]
    assert told.times[0] == found.mine.seconds
    assert told.terms == f"corrected, {found.best.execution['preset']}"


def test_results_of_one_question_are_led_to_from_the_first(found):
    first, second = (",".join(one) for one in CASES)
    results = read_results([first, second, first.replace("h100_80g_sxm", "h200_141g_sxm")])
    ((best, told),) = comparable(results)
    assert best is results[1]
    assert told == found.to_dict()
    (shown,) = drawn(results)
    assert shown.title == f"From {results[0].label} to {best.label}, one change at a time"
    picture, table, *_ = shown.blocks
    assert len(table.rows) == len(found.steps) + 2
    svg = fragment([picture], REPORT)
    assert svg.startswith('<div class="scroll"><svg role=')
    assert "http" not in svg
    assert comparable(results[:1] * 2) == []  # equal plans
