"""Bars, drawn to an eighth of a character or in ASCII."""

from calculon.render.bars import Bar, Share
from calculon.render.document import Grid
from tests.documents.drawing import drawn


def test_one_piece():
    for fraction, blocks, plain in [
        (1.0, "█" * 10, "#" * 10),
        (0.5, "█" * 5, "#" * 5),
        (0.55, "█████▌", "######"),
        (0.001, "▏", ""),
        (0.0, "", ""),
    ]:
        bar = Bar((Share(fraction, "blue"),))
        assert drawn(bar, width=10, terminal=True).rstrip() == blocks
        assert drawn(bar, width=10).rstrip() == plain


def test_two_pieces_fill_the_width():
    bar = Bar((Share(0.32, "blue"), Share(0.68, "gray", solid=False)))
    assert drawn(bar, width=10, terminal=True).rstrip() == "███░░░░░░░"
    assert drawn(bar, width=10).rstrip() == "###......."


def test_a_bar_never_leaves_its_width():
    bar = Bar((Share(0.9, "blue"), Share(0.9, "gray", solid=False)))
    assert len(drawn(bar, width=10).rstrip()) == 10
    for width in (3, 30, 80):
        line = drawn(Grid(("wide",), ((bar,),)), width=width).rstrip()
        assert len(line) == min(width, bar.widest)
