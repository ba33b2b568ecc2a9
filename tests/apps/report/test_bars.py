"""Bars, drawn to an eighth of a character or in ASCII."""

import io

from rich.console import Console

from calculon.apps.report.bars import Bar, Share


def drawn(bar, *, terminal, width=10):
    stream = io.StringIO()
    Console(file=stream, width=width, force_terminal=terminal, color_system=None).print(bar)
    return stream.getvalue().rstrip("\n")


def test_one_piece():
    for fraction, blocks, plain in [
        (1.0, "█" * 10, "#" * 10),
        (0.5, "█" * 5, "#" * 5),
        (0.55, "█████▌", "######"),
        (0.001, "▏", ""),
        (0.0, "", ""),
    ]:
        bar = Bar((Share(fraction, "blue"),))
        assert drawn(bar, terminal=True) == blocks
        assert drawn(bar, terminal=False) == plain


def test_two_pieces_fill_the_width():
    bar = Bar((Share(0.32, "blue"), Share(0.68, "grey", solid=False)))
    assert drawn(bar, terminal=True) == "███░░░░░░░"
    assert drawn(bar, terminal=False) == "###......."


def test_a_bar_never_leaves_its_width():
    bar = Bar((Share(0.9, "blue"), Share(0.9, "grey", solid=False)))
    assert len(drawn(bar, terminal=False)) == 10
