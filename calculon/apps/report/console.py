"""Where reports are drawn: a terminal with colours and block characters, or plain text without both.

``NO_COLOR`` turns colours off in a terminal. A pipe or a file gets ASCII, 80 columns (or ``COLUMNS``) and no trailing
blanks.
"""

import os
from typing import IO

from rich.console import Console, RenderableType

PLAIN_WIDTH = 80
WIDEST = 168
UNLIMITED = 10_000


def show(renderable: RenderableType, stream: IO[str], *, wrap: bool = True) -> None:
    """Draw on a stream, as it deserves: see the module.

    Parameters
    ----------
    renderable : rich renderable
        What to draw.
    stream : text file
        Where.
    wrap : bool
        Keep to the width outside a terminal too; a table of records rather keeps to one line per row.
    """
    console = Console(file=stream, highlight=False, markup=False, emoji=False)
    if console.is_terminal:
        console.width = min(console.width, WIDEST)
        console.print(renderable)
        return
    if not wrap:
        console.width = UNLIMITED
    elif (columns := os.environ.get("COLUMNS", "")).isdecimal() and columns.strip("0"):
        console.width = int(columns[-9:])
    else:
        console.width = PLAIN_WIDTH
    with console.capture() as capture:
        console.print(renderable)
    stream.write("".join(f"{line.rstrip()}\n" for line in capture.get().splitlines()))
