"""Unified difference of two texts, as ``diff -u`` prints it, with colors in a terminal."""

from difflib import unified_diff
from typing import IO

from calculon.base.errors import printable
from calculon.render.console import is_terminal

_STYLES = {"---": "bold", "+++": "bold", "@@": "cyan", "-": "red", "+": "green"}
"""Styles of lines by their prefix; the first match applies."""


def diff_lines(before: str, after: str, names: tuple[str, str]) -> list[str]:
    r"""Return the lines of a unified difference; none if the texts are equal.

    >>> diff_lines("a\nb", "a\nc", ("mine", "best"))
    ['--- mine', '+++ best', '@@ -1,2 +1,2 @@', ' a', '-b', '+c']
    """
    old, new = before.splitlines(), after.splitlines()
    return list(unified_diff(old, new, *names, lineterm=""))


def show_diff(lines: list[str], stream: IO[str]) -> None:
    """Print the lines of a difference; ``NO_COLOR`` disables colors."""
    shown = [printable(line.expandtabs()) for line in lines]
    if not is_terminal(stream):
        stream.write("".join(f"{line}\n" for line in shown))
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(file=stream, highlight=False, markup=False, emoji=False, soft_wrap=True)
    for line in shown:
        style = next((style for mark, style in _STYLES.items() if line.startswith(mark)), "")
        console.print(Text(line, style))
