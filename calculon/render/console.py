"""Where reports are drawn: a terminal with colours and block characters, or plain text without both.

``NO_COLOR`` turns colours off in a terminal. A pipe or a file gets ASCII, 80 columns (or ``COLUMNS``) and no trailing
blanks.
"""

import io
import os
import textwrap
from typing import IO, TYPE_CHECKING

from calculon.render.document import Document

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

PLAIN_WIDTH = 80
WIDEST = 168


def is_terminal(stream: IO[str]) -> bool:
    """Tell whether reports are drawn for a terminal: with colours and block characters."""
    forced = os.environ.get("FORCE_COLOR") or os.environ.get("TTY_COMPATIBLE") == "1"
    return bool(stream.isatty() or forced)


def stated_width() -> int | None:
    """Return the columns that the environment asks for (``COLUMNS``), or None."""
    columns = os.environ.get("COLUMNS", "")
    return int(columns[-9:]) if columns.isdecimal() and columns.strip("0") else None


def show(renderable: "Document | RenderableType", stream: IO[str]) -> None:
    """Draw on a stream, as it deserves: see the module.

    Parameters
    ----------
    renderable : Document or rich renderable
        What to draw.
    stream : text file
        Where.
    """
    width = stated_width() or PLAIN_WIDTH
    if isinstance(renderable, str) and not is_terminal(stream):  # without loading rich
        stream.write(textwrap.fill(renderable, width) + "\n")
        return
    from rich.console import Console

    if isinstance(renderable, Document):
        from calculon.render.terminal import Page

        renderable = Page(renderable)
    console = Console(file=stream, highlight=False, markup=False, emoji=False)
    if console.is_terminal:
        console.width = min(console.width, WIDEST)
        console.print(renderable)
        return
    console.width = width
    with console.capture() as capture:
        console.print(renderable)
    stream.write("".join(f"{line.rstrip()}\n" for line in capture.get().splitlines()))


def recording(width: int) -> "Console":
    """Return a console with all colours, whatever the terminal: nobody sees it, and what it draws can be exported."""
    from rich.console import Console

    return Console(
        file=io.StringIO(),
        record=True,
        width=width,
        height=100,  # or a dumb terminal has a width of its own
        force_terminal=True,
        force_jupyter=False,
        color_system="truecolor",
        no_color=False,
        highlight=False,
        markup=False,
        emoji=False,
    )
