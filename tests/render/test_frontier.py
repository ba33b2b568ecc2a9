"""Fronts drawn with characters."""

import re

import pytest

from calculon.base.units import GIB, Unit
from calculon.render.bars import COLORS
from calculon.render.document import Document
from calculon.render.frontier import Axis, Frontier
from calculon.render.html import page
from tests.documents import drawing

TIME, MEMORY = Axis("total_time", Unit("s")), Axis("memory", Unit("B", binary=True))
POINTS = [("0", 6.0, 77 * GIB), ("1", 6.02, 76.9 * GIB), ("4", 8.0, 40 * GIB), ("9", 14.0, 9 * GIB)]


def drawn(*arguments, **look):
    return drawing.drawn(Document("", parts=(Frontier(*arguments),)), **look)


@pytest.mark.parametrize(("width", "terminal"), [(40, False), (160, True)])
def test_every_point_is_there_in_its_order(width, terminal):
    text = drawn(TIME, MEMORY, POINTS, width=width, terminal=terminal)
    lines = text.splitlines()
    assert max(map(len, lines)) <= min(width, 80)
    mark = "●" if terminal else "*"
    found = [(line.index(mark + label), y) for label in ("0-1", "4", "9")
             for y, line in enumerate(lines) if mark + label in line]  # fmt: skip
    assert found == sorted(found)
    assert len(found) == 3
    assert text.isascii() == (not terminal)


def test_axes_have_round_numbers_and_units():
    lines = drawn(TIME, MEMORY, POINTS).splitlines()
    assert lines[0] == "memory, GiB"
    assert lines[-1].strip() == "total_time, s"
    assert lines[-2].split() == ["6", "8", "10", "12", "14"]
    sides = [line.split("|")[0].strip() for line in lines if "|" in line]
    assert [side for side in sides if side] == ["80", "60", "40", "20", "0"]


@pytest.mark.parametrize(
    ("axis", "values", "expected"),
    [
        (Axis("t", Unit("s")), (0.0021, 0.0064), (["2", "4", "6", "8"], "ms")),
        (Axis("e", Unit("fraction")), (0.41, 0.56), (["40", "45", "50", "55", "60"], "%")),
        (Axis("n", Unit(""), ratios=True), (64, 256, 128), (["64", "128", "256"], "")),
        (Axis("t", Unit("s"), ratios=True), (1.5, 6.0), (["1", "2", "5", "10"], "s")),
        (Axis("r", Unit("samples/s")), (0.0, 0.0), (["0", "0.25"], "samples/s")),
    ],
)  # fmt: skip
def test_ticks(axis, values, expected):
    size, unit = axis.scale(values)
    ticks = axis.ticks([value / size for value in values])
    assert ([f"{tick:g}" for tick in ticks], unit) == expected


def test_equal_values_are_drawn():
    flat = [("0", 1.0, 5.0), ("1", 1.0, 5.0), ("2", 1.0, 5.0)]
    lines = drawn(TIME, Axis("rate", Unit("samples/s")), flat).splitlines()
    assert any("*0-2" in line for line in lines)


def test_a_page_has_the_same_lines():
    html = page(Document("", parts=(Frontier(TIME, MEMORY, POINTS),)))
    lines = re.sub("<.*?>", "", html[html.index("<pre") :]).splitlines()
    assert lines == drawn(TIME, MEMORY, POINTS, terminal=True).splitlines()
    assert f'<span style="color:{COLORS["vermilion"]}">●</span>0-1' in html
