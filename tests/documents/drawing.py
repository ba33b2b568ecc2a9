"""Pages and tables as a console of some width draws them, in a file or on a terminal."""

import io

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
