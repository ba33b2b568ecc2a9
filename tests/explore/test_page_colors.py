"""The colors of the page can be read by everybody: contrasts of the Web Content Accessibility Guidelines, level AA."""

import re
from importlib.resources import files

import pytest

from calculon.declarations.statistics import KINDS_OF_MEMORY
from calculon.documents.charts.breakdown import LOOKS
from calculon.explore.view_part import ASSETS
from calculon.render.chart import color_code

STYLE = files(ASSETS).joinpath("explore.css").read_text("utf-8")
LIGHT, DARK = (
    dict(re.findall(r"--(\w+): (#\w{6});", block))
    for block in re.findall(r":root \{(.*?)\}", STYLE, re.S)
)

TEXT, BOUNDARY = 4.5, 3.0
"""Least ratios for text, and for the edges of controls and what charts show."""

SOFTENED = 0.7
"""Opacity of remarks in what ``calculon.render.html`` writes."""

Rgb = tuple[float, float, float]


def rgb(color: str) -> Rgb:
    red, green, blue = (int(color[at : at + 2], 16) / 255 for at in (1, 3, 5))
    return red, green, blue


def luminance(color: Rgb) -> float:
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in color
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: Rgb, other: Rgb) -> float:
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def test_black_on_white_is_the_largest_contrast() -> None:
    assert contrast((0, 0, 0), (1, 1, 1)) == pytest.approx(21)


@pytest.mark.parametrize("colors", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize("ground", ["ground", "panel"])
def test_words_edges_of_controls_and_pieces_of_bars_stand_out(
    colors: dict[str, str], ground: str
) -> None:
    """Pieces of bars from the ground, and so from the lines that part a piece from the next."""
    below = rgb(colors[ground])
    names = ("ink", "quiet", "mark", "bad", "good")
    assert [name for name in names if contrast(rgb(colors[name]), below) < TEXT] == []

    ink = rgb(colors["ink"])
    mixed = [SOFTENED * a + (1 - SOFTENED) * b for a, b in zip(ink, below, strict=True)]
    assert contrast((mixed[0], mixed[1], mixed[2]), below) >= TEXT
    assert contrast(rgb(colors["edge"]), below) >= BOUNDARY

    pieces = {kind: rgb(color_code(LOOKS[kind].color)) for kind in KINDS_OF_MEMORY}
    assert [kind for kind, color in pieces.items() if contrast(color, below) < BOUNDARY] == []


def test_both_schemes_define_the_same_colors() -> None:
    assert LIGHT.keys() == DARK.keys()
    assert len(LIGHT) >= 8
