"""Pages and tables as a console of some width draws them, in a file or on a terminal, and texts of pictures."""

import io

import numpy as np
from rich.console import Console

from calculon.render.terminal import page


def drawn(*parts, width=80, terminal=None):
    """Return the text of documents, their blocks, and parts of other pages."""
    stream = io.StringIO()
    look = {"color_system": None, "highlight": False, "legacy_windows": False}
    console = Console(file=stream, width=width, force_terminal=terminal, **look)
    for part in parts:
        console.print(page(part))
    return stream.getvalue()


def drawn_lines(*parts, width=80, terminal=None):
    """Return the lines of parts of a page, without spaces at their ends."""
    return [line.rstrip() for line in drawn(*parts, width=width, terminal=terminal).splitlines()]


def flat(text):
    """Return the words of a text on one line."""
    return " ".join(text.split())


def legend(figure) -> list[str]:
    """Return the texts of the legends of a picture."""
    return [text.get_text() for one in figure.legends for text in one.get_texts()]


def texts(axes) -> list[str]:
    """Return the texts on the axes of a picture."""
    return [one.get_text() for one in axes.texts]


def assert_in_sight(axes, across=0.5, up=0.5) -> None:
    """Check that axes contain all bars and lines on them, which take at least these shares of width and height."""
    axes.autoscale_view()  # of axes whose limits are not set
    lines = [(one.get_transform(), one.get_xydata()) for one in axes.lines]
    bars = [one for one in axes.patches if one.get_data_transform() is axes.transData]
    bars = [(one.get_transform(), one.get_path().vertices) for one in bars]
    marks = [(scale, scale.transform(places)) for scale, places in lines + bars if len(places)]
    shares = [(scale, axes.transAxes.inverted().transform(places)) for scale, places in marks]
    every = np.concatenate([share for _, share in shares])
    assert -1e-6 < np.nanmin(every) <= np.nanmax(every) < 1 + 1e-6
    own = np.concatenate(
        [share for scale, share in shares if scale.contains_branch(axes.transData)]
    )
    assert (np.nanmax(own, axis=0) - np.nanmin(own, axis=0) >= (across, up)).all()
