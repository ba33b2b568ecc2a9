"""Tables on narrow pages: closer columns, wrapped, shortened and hidden columns, or several lines per row."""

from collections.abc import Iterator, Sequence

from calculon.render.document import Block, Grid, Styled, dim
from calculon.render.stacked_grid import stacked
from calculon.render.text_tables import EARLY, Column, Table, aligned, characters

_FOLDED = 20
"""Minimum width of a column that wraps, if its texts are as long."""

_INDENT = 2
"""Blanks before the second and later lines of a row."""

_LAYOUTS = ((2, "whole"), (1, "whole"), (2, "fold"), (1, "fold"), (1, "cut"))
"""Blanks between columns and treatment of long texts, for less and less available width."""


def fit_table(table: Table, width: int, ellipsis: str) -> Iterator[Block]:
    """Yield a table as blocks for a page of the given width.

    If a row is too long, columns move closer together, then texts wrap between words or are shortened, and columns are
    hidden, which the last line reports; finally a row takes several lines.
    """
    shown = [column for column in table.columns if column.for_people]
    left_out: list[Column] = []
    while True:
        cells = [[column.text(row[column.key]) for column in shown] for row in table.rows]
        # Reversed: of equally dispensable columns the rightmost is hidden first.
        first = max(reversed(shown), key=lambda column: column.drop)
        layouts = _LAYOUTS if first.drop < EARLY else _LAYOUTS[:2]
        fits = ((gap, _widths(shown, cells, width, gap, how)) for gap, how in layouts)
        gap, widths = next(((gap, found) for gap, found in fits if found), (0, None))
        if widths is not None:
            yield _grid(shown, _shortened(shown, cells, widths, ellipsis), widths, gap)
            break
        if not first.drop:
            yield from _stacked(shown, cells, width)
            break
        left_out.append(first)
        shown.remove(first)
    if left_out:
        names = (one.heading.strip() or one.key for one in table.columns if one in left_out)
        yield dim(f"Columns hidden (too narrow): {', '.join(names)}; {table.more} shows all")


def _widths(
    columns: Sequence[Column],
    cells: Sequence[Sequence[str]],
    room: int,
    gap: int,
    how: str,
) -> list[int] | None:
    """Return column widths that hold every cell, narrower for texts that can wrap; None if there are none."""
    widths, spare = [], []
    for i, column in enumerate(columns):
        title = column.title.split("\n")
        lines = [*title, *(line for row in cells for line in row[i].split("\n"))]
        width = max(map(characters, lines))
        words = title if column.cut else lines
        longest = max((characters(word) for line in words for word in line.split()), default=0)
        widths.append(width)
        least = max(longest, _FOLDED)
        fixed = column.right or how == "whole" or (column.cut and how == "fold")
        spare.append(0 if fixed else max(0, width - least))
    over = sum(widths) + gap * (len(columns) - 1) - room
    # Columns that wrap give up width before columns that are cut, those with most to spare first.
    for i in sorted(range(len(columns)), key=lambda i: (not columns[i].fold, -spare[i])):
        given = min(max(0, over), spare[i])
        widths[i] -= given
        over -= given
    return widths if over <= 0 else None


def _shortened(
    columns: Sequence[Column],
    cells: Sequence[Sequence[str]],
    widths: Sequence[int],
    ellipsis: str,
) -> list[list[str]]:
    """Return the cells with texts of cut columns shortened to their column width."""
    return [
        [
            _first_parts(cell, width, ellipsis) if column.cut else cell
            for column, cell, width in zip(columns, row, widths, strict=True)
        ]
        for row in cells
    ]


def _first_parts(text: str, width: int, ellipsis: str) -> str:
    """Return the leading parts of a comma-separated list that fit, followed by an ellipsis.

    >>> _first_parts("mbs 2, no SP, recompute norms", 20, "...")
    'mbs 2, no SP, ...'
    """
    if characters(text) <= width:
        return text
    parts = text.split(", ")
    while len(parts) > 1:
        parts.pop()
        if characters(short := f"{', '.join(parts)}, {ellipsis}") <= width:
            return short
    return f"{text[: width - len(ellipsis)]}{ellipsis}"


def _grid(
    columns: Sequence[Column], cells: Sequence[Sequence[str]], widths: Sequence[int], gap: int
) -> Grid:
    """Return rows in columns of the given widths; column titles are aligned at the bottom."""
    most = max(column.title.count("\n") for column in columns)
    kinds = ("number" if column.right else "text" for column in columns)
    heads = tuple(dim("\n" * (most - one.title.count("\n")) + one.title) for one in columns)
    rows = (heads, *(tuple(row) for row in cells))
    return Grid(tuple(kinds), rows, heads=1, gap=gap, widths=tuple(widths))


def _stacked(
    columns: Sequence[Column], cells: Sequence[Sequence[str]], room: int
) -> Iterator[Block]:
    """Yield rows that take several lines, indented from the second line on.

    Texts that wrap are placed below the other cells; without any, all rows break between the same columns.
    """
    titles = [column.heading for column in columns]
    rows = [[cell.replace("\n", ", ") for cell in row] for row in cells]
    widths = [max(map(characters, column)) for column in zip(titles, *rows, strict=True)]
    short = [i for i, column in enumerate(columns) if not column.fold]
    styled = ((titles, "dim"), *((row, "") for row in rows))
    if sum(widths[i] + 2 for i in short) <= room + 2 and len(short) < len(columns):
        below = [i for i, column in enumerate(columns) if column.fold]
        for row, style in styled:
            parts = (aligned(row[i], widths[i], columns[i]) for i in short)
            yield Styled("  ".join(parts).rstrip(), style)
            for cell in filter(None, (row[i] for i in below)):
                yield Styled(cell, style, indent=2 * _INDENT)
        return
    kinds = tuple("right" if one.right else "text" if one.fold else "left" for one in columns)
    heads = tuple(map(dim, titles))
    yield from stacked(Grid(kinds, (heads, *map(tuple, rows)), heads=1), room)
