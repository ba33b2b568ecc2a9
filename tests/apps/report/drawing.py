"""Pages and tables as a console of some width draws them, in a file or on a terminal, and texts of pictures."""

import io

from rich.console import Console


def drawn(*parts, width=80, terminal=None):
    """Return the text of parts of a page."""
    stream = io.StringIO()
    look = {"color_system": None, "highlight": False, "legacy_windows": False}
    console = Console(file=stream, width=width, force_terminal=terminal, **look)
    for part in parts:
        console.print(part)
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
