"""Grids on pages that are too narrow for a row: each row takes several lines, broken between columns."""

from collections.abc import Iterator, Sequence

from calculon.render.bars import Bar, TwoSided
from calculon.render.document import Block, Cell, Grid, Section, Styled, words
from calculon.render.text_tables import characters

_FOLDED = 16
"""Maximum width up to which a column does not wrap."""

_INDENT = 2
"""Blanks before the second and later lines of a row."""


def least_width(grid: Grid) -> int:
    """Return the width of rows if only whole words and numbers are kept together."""
    return sum(_least(grid, i) for i in range(len(grid.kinds))) + grid.gap * (len(grid.kinds) - 1)


def natural_width(grid: Grid) -> int | None:
    """Return the width of rows if nothing wraps; None if bars take the remaining space."""
    if "wide" in grid.kinds:
        return None
    count = len(grid.kinds)
    return sum(_natural(grid, i) for i in range(count)) + grid.gap * (count - 1)


def stacked(grid: Grid, width: int) -> Iterator[Block]:
    """Yield rows over several lines, without bars: other columns have their numbers."""
    columns = [i for i, kind in enumerate(grid.kinds) if kind != "wide"]
    groups = _groups(grid, columns, width)
    heads, rows = grid.rows[: grid.heads], grid.rows[grid.heads :]
    for number, group in enumerate(groups):
        for head in heads:
            yield from _line(grid, head, group, later=number > 0)
    for row in rows:
        if len(row) < 2:
            yield row[0] if row else ""
            continue
        for number, group in enumerate(groups):
            yield from _line(grid, row, group, later=number > 0)


def _groups(grid: Grid, columns: Sequence[int], width: int) -> list[list[int]]:
    """Return the columns of each line, as many as fit; a column with line breaks ends its line."""
    groups: list[list[int]] = [[]]
    left = width + grid.gap
    for i in columns:
        needed = _natural(grid, i) + grid.gap
        if groups[-1] and needed > left:
            groups.append([])
            left = width + grid.gap - _INDENT
        groups[-1].append(i)
        left -= needed if not _has_lines(grid, i) else width
    return groups


def _line(grid: Grid, row: Sequence[Cell], group: Sequence[int], *, later: bool) -> Iterator[Block]:
    """Yield some cells of a row as a line with aligned columns; nothing if all are empty."""
    pieces: list[str | Styled] = []
    blanks = 0  # carried over to the next cell, so that lines have no trailing blanks
    for i in group:
        cell = row[i] if i < len(row) else ""
        free = _natural(grid, i) - _longest(cell)
        right = grid.kinds[i] in ("right", "number")
        pieces += [" " * (blanks + free * right), *_pieces(cell)]
        blanks = grid.gap + free * (not right)
    line = tuple(one for one in pieces if str(one))
    if any(str(one).strip() for one in line):
        yield Section("", (line,)) if later else line


def _pieces(cell: Cell) -> tuple[str | Styled, ...]:
    return cell if isinstance(cell, tuple) else (cell,) if isinstance(cell, (str, Styled)) else ()


def _column(grid: Grid, place: int) -> Iterator[Cell]:
    """Yield the cells of a column, without rows of a single cell, which may be wider than their column."""
    for row in grid.rows:
        if place < len(row) and (len(row) > 1 or len(grid.kinds) == 1):
            yield row[place]


def _has_lines(grid: Grid, place: int) -> bool:
    return any("\n" in words(cell) for cell in _column(grid, place))


def _natural(grid: Grid, place: int) -> int:
    """Return the length of the longest line of a column."""
    return max(map(_longest, _column(grid, place)), default=0)


def _longest(cell: Cell) -> int:
    return max(map(characters, words(cell).split("\n")))


def _least(grid: Grid, place: int) -> int:
    """Return the minimum width of a column."""
    kind = grid.kinds[place]
    if kind == "wide":
        bars = [cell for cell in _column(grid, place) if isinstance(cell, (Bar, TwoSided))]
        return max((one.narrowest for one in bars), default=0)
    if kind in ("left", "right"):
        return _natural(grid, place)
    texts = [words(cell) for cell in _column(grid, place)]
    longest = max((characters(word) for text in texts for word in text.split()), default=0)
    return max(longest, min(_FOLDED, _natural(grid, place)))
