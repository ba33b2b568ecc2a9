"""Grids on narrow pages: aligned columns, hidden columns and wrapped paths."""

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, zip_longest
from typing import Any

from calculon.render.bars import TwoSided
from calculon.render.document import Cell, Grid, Styled, words


def aligned(grids: Sequence[Grid], columns: int) -> list[Grid]:
    """Return grids whose first columns line up on pages that are wide enough."""
    least = tuple(map(max, zip(*(_widths(one)[:columns] for one in grids), strict=True)))
    return [replace(one, least=least) for one in grids]


def fit_grid(grid: Grid, width: int) -> Grid:
    """Return a grid that fits a page of the given width.

    Columns line up with other grids only if all texts fit. As few optional columns as possible are hidden; if rows are
    still too long, paths wrap.
    """
    widths = _widths(grid)
    wider = [max(pair) for pair in zip_longest(widths, grid.least, fillvalue=0)]
    texts = [i for i, kind in enumerate(grid.kinds) if kind != "wide"]
    lines_up = _length(grid, wider, texts) <= width
    if lines_up:
        widths = wider
    # All subsets of the optional columns, smallest first. Grids have at most a few of them.
    choices = [
        [i for i in range(len(widths)) if i not in left_out]
        for count in range(len(grid.optional) + 1)
        for left_out in combinations(grid.optional, count)
    ]
    shown = next((one for one in choices if _length(grid, widths, one) <= width), choices[-1])
    over = _length(grid, widths, shown) - width
    rows: list[list[Any]] = [[row[i] for i in shown if i < len(row)] for row in grid.rows]
    kinds = tuple(grid.kinds[i] for i in shown)
    if over > 0 and "path" in kinds:
        place = kinds.index("path")
        longest = widths[shown[place]] - over
        for row in rows:
            if len(path := words(row[place])) > longest:
                row[place] = "\n  ".join(folded(path, longest - 2))
    return replace(
        grid,
        kinds=kinds,
        rows=tuple(map(tuple, rows)),
        least=tuple(widths[i] for i in shown) if lines_up else (),
        optional=(),
    )


def _length(grid: Grid, widths: Sequence[int], columns: Sequence[int]) -> int:
    """Return the length of a row of some columns."""
    return sum(widths[i] for i in columns) + grid.gap * (len(columns) - 1)


def _widths(grid: Grid) -> list[int]:
    """Return the width that each column needs."""
    columns = zip_longest(*grid.rows, fillvalue="")
    return [max(map(_characters, column), default=0) for column in columns]


def _characters(cell: Cell) -> int:
    return len(words(cell)) if isinstance(cell, (str, Styled, tuple)) else TwoSided.narrowest


def folded(path: str, width: int) -> list[str]:
    """Break a path into lines that end at dots; a part longer than a line is not broken.

    >>> folded("ext.kernels.product.bfloat16.sustained", 30), folded("mem1.GBps", 30)
    (['ext.kernels.product.bfloat16.', 'sustained'], ['mem1.GBps'])
    """
    lines = [""]
    for part in re.findall(r"[^.]+\.?", path):
        if lines[-1] and len(lines[-1]) + len(part) > width:
            lines.append("")
        lines[-1] += part
    return lines
