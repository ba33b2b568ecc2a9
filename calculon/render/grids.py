"""Grids: columns side by side without lines, and their place on a page."""

from collections.abc import Iterable
from typing import Any

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

_COLUMNS: dict[str, dict[str, Any]] = {
    "left": {"no_wrap": True},
    "right": {"no_wrap": True, "justify": "right"},
    "text": {},
    "path": {},
    "wide": {"ratio": 1},
}
"""Kinds of columns: two that keep their lines, two that fold, and one that takes the room that is left."""


def grid(*kinds: str, gap: int = 2, least: Iterable[int] = ()) -> Table:
    """Return an empty grid with a column of each kind in :data:`_COLUMNS`; of the first ones with least widths."""
    table = Table.grid(padding=(0, gap), expand="wide" in kinds)
    widths = iter(least)
    for kind in kinds:
        table.add_column(min_width=next(widths, None), **_COLUMNS[kind])
    return table


def side_by_side(*parts: RenderableType) -> Table:
    """Lay parts out next to each other, all as wide."""
    beside = grid(*["wide"] * len(parts), gap=4)
    beside.add_row(*parts)
    return beside


def indented(part: RenderableType) -> Padding:
    """Return a part of a page below its heading."""
    return Padding(part, (0, 0, 0, 2))


def styled(texts: Iterable[str], style: str) -> Iterable[Text]:
    """Return the cells of a row in one style."""
    return (Text(text, style) for text in texts)
