"""Conversion of grids to tables of texts, for Markdown and CSV."""

from collections.abc import Sequence

from calculon.render.document import Cell, Grid, Styled, indent, words
from calculon.render.text_tables import Column, Table

_NUMBERS = ("right", "number")
"""Kinds of numeric columns."""


def as_table(grid: Grid) -> Table:
    """Return a grid as a table of its texts, without bars; columns without any text are omitted.

    Row names keep their indentation. A row of one dim text becomes a remark on the row before.
    """
    count = len(grid.kinds)
    rows: list[list[str]] = []
    for number, row in enumerate(filter(None, grid.rows)):
        if number > grid.heads and count > 1 and _is_remark(row):
            rows[-1][count] = words(row[0]).strip()
        else:
            texts = [words(cell).strip() for cell in row]
            texts[0] = " " * indent(row[0]) + texts[0]
            rows.append([*texts, *[""] * (count + 1 - len(row))])
    heads, body = rows[: grid.heads], rows[grid.heads :]
    titles = [" ".join(filter(None, (row[i].strip() for row in heads))) for i in range(count)]
    titles.append("remark" if heads else "")
    shown = [i for i in range(count + 1) if any(row[i] for row in body)]
    kinds = (*grid.kinds, "text")
    names = [titles[i] or _use(i, kinds[i], titled=bool(heads)) for i in shown]
    columns = tuple(
        Column(
            f"{name} {i}" if names.count(name) > 1 else name, titles[i], right=kinds[i] in _NUMBERS
        )
        for i, name in zip(shown, names, strict=True)
    )
    keyed = [(column.key, i) for column, i in zip(columns, shown, strict=True)]
    return Table(columns, [{key: row[i] for key, i in keyed} for row in body])


def _is_remark(row: Sequence[Cell]) -> bool:
    return len(row) == 1 and isinstance(row[0], Styled) and row[0].style == "dim"


def _use(place: int, kind: str, *, titled: bool) -> str:
    """Return the key of an untitled column, depending on its position and on whether other columns have titles."""
    if not place:
        return "name"
    return "value" if not titled and (place == 1 or kind in _NUMBERS) else "remark"
