"""Output of documents: a terminal with colors and block characters, or plain text without either.

``NO_COLOR`` disables colors in a terminal. A pipe or file gets ASCII, 80 columns (or ``COLUMNS``) and no trailing
blanks.
"""

import os
import textwrap
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from calculon.render.document import Block

PLAIN_WIDTH = 80
WIDEST = 168


def is_terminal(stream: IO[str]) -> bool:
    """Return True if output is for a terminal, with colors and block characters."""
    forced = os.environ.get("FORCE_COLOR") or os.environ.get("TTY_COMPATIBLE") == "1"
    return bool(stream.isatty() or forced)


def stated_width() -> int | None:
    """Return the number of columns that the environment requests (``COLUMNS``), or None."""
    columns = os.environ.get("COLUMNS", "")
    # Nine digits are enough for any width, and bound the conversion of a hostile value.
    return int(columns[-9:]) if columns.isdecimal() and columns.strip("0") else None


def show(block: "Block", stream: IO[str], *, plain: bool = False) -> None:
    """Print a document, or a part of one, to a stream.

    Args:
        block: A document, a text, a table or another part of a document.
        stream: Output stream.
        plain: Print as for a file, even if the environment requests colors (``FORCE_COLOR``).
    """
    width = stated_width() or PLAIN_WIDTH
    if isinstance(block, str) and (plain or not is_terminal(stream)):  # saves the import of rich
        stream.write(textwrap.fill(block, width) + "\n")
        return
    from rich.console import Console

    from calculon.render import terminal

    page = terminal.page(block)
    console = Console(
        file=stream,
        force_terminal=False if plain else None,
        highlight=False,
        markup=False,
        emoji=False,
    )
    if console.is_terminal:
        # Tables across a very wide screen are hard to read.
        console.width = min(console.width, WIDEST)
        console.print(page)
        return
    console.width = width
    with console.capture() as capture:
        console.print(page)
    stream.write("".join(f"{line.rstrip()}\n" for line in capture.get().splitlines()))
