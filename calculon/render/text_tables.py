"""Tables of plain values: drawn for people, or written as Markdown, CSV or JSON."""

import csv
import io
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from calculon.base.frozen import dataclass

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
    from rich.table import Table as Grid
    from rich.text import Text

from calculon.declarations.files import csv_text, json_text

FORMATS = ("text", "markdown", "csv", "json")


def plain(value: Any) -> str:
    """Write a value for people: whole numbers with separators, nothing for None."""
    if value is None:
        return ""
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return str(value)


EARLY = 10
"""Columns that are left out before texts fold or are cut."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its key in CSV and JSON, its title for people, and how people read its values.

    Attributes
    ----------
    fold, cut : bool
        What happens where a line is too short: texts fold between words, or end after their first parts.
    drop : int
        Columns above 0 are left out where a line is too short, those with the largest number first; from
        :data:`EARLY` on before texts fold.
    """

    key: str
    title: str = ""
    right: bool = False
    fold: bool = False
    text: Callable[[Any], str] = plain
    for_people: bool = True
    cut: bool = False
    drop: int = 0

    @property
    def heading(self) -> str:
        """The title in one line."""
        return self.title.replace("_\n", "_").replace("\n", " ")


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of plain values under declared columns.

    Attributes
    ----------
    more : str
        Where the columns are that a narrow screen leaves out.
    total : int
        Number of rows of the whole table, if `rows` are only the first of them.
    """

    columns: tuple[Column, ...]
    rows: Sequence[Mapping[str, Any]]
    more: str = "a wider screen"
    total: int = 0

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "RenderResult":
        """Draw the table without lines, as wide as the space.

        Where a line is too short for a row, columns move closer together, then texts fold between words or are cut,
        and columns are left out, which the last line says; at last a row takes several lines.
        """
        from calculon.render.bars import has_blocks

        shown = [column for column in self.columns if column.for_people]
        left_out: list[Column] = []
        room, ellipsis = options.max_width, "…" if has_blocks(console, options) else "..."
        while True:
            cells = [[column.text(row[column.key]) for column in shown] for row in self.rows]
            first = max(reversed(shown), key=lambda column: column.drop)
            ways = _WAYS if first.drop < EARLY else _WAYS[:2]
            fits = ((gap, _widths(shown, cells, room, gap, how)) for gap, how in ways)
            gap, widths = next(((gap, found) for gap, found in fits if found), (0, None))
            if widths is not None:
                yield _grid(shown, _shortened(shown, cells, widths, ellipsis), widths, gap)
                break
            if not first.drop:
                yield from _stacked(shown, cells, room)
                break
            left_out.append(first)
            shown.remove(first)
        if left_out:
            yield _note([column for column in self.columns if column in left_out], self.more)

    def written(self, form: str) -> str:
        """Return the table in one of the :data:`FORMATS`."""
        written: str = getattr(self, form)()
        return written

    def text(self) -> str:
        """Return the table for a pipe or a file: every row takes one line, however wide."""
        shown = [column for column in self.columns if column.for_people]
        lines = [[column.heading for column in shown]]
        lines += [[column.text(row[column.key]) for column in shown] for row in self.rows]
        lines = [[cell.replace("\n", ", ") for cell in line] for line in lines]
        widths = [max(map(_width, column)) for column in zip(*lines, strict=True)]
        return "\n".join("  ".join(map(_aligned, line, widths, shown)).rstrip() for line in lines)

    def markdown(self) -> str:
        """Return the table in GitHub's Markdown."""
        shown = [column for column in self.columns if column.for_people]
        lines = [[column.heading for column in shown]]
        lines.append(["---:" if column.right else "---" for column in shown])
        lines += [[column.text(row[column.key]) for column in shown] for row in self.rows]
        cells = (
            [cell.replace("|", r"\|").replace("\n", "<br>") for cell in line] for line in lines
        )
        return "\n".join(f"| {' | '.join(line)} |" for line in cells)

    def html(self) -> str:
        """Return the table in HTML; every cell has its raw value beside its text, to sort by."""
        import html

        shown = [column for column in self.columns if column.for_people]
        side = [' class="right"' if column.right else "" for column in shown]
        titles = (
            f"<th{s}>{html.escape(c.heading or c.key)}</th>"
            for c, s in zip(shown, side, strict=True)
        )
        rows = (
            "".join(
                f'<td{s} data-value="{html.escape(str(row[c.key]))}">{html.escape(c.text(row[c.key]))}</td>'
                for c, s in zip(shown, side, strict=True)
            )
            for row in self.rows
        )
        body = "\n".join(f"<tr>{row}</tr>" for row in rows)
        head = f"<thead><tr>{''.join(titles)}</tr></thead>"
        return f'<div class="scroll"><table>{head}<tbody>\n{body}\n</tbody></table></div>'

    def csv(self) -> str:
        """Return the raw values as CSV with a header."""
        stream = io.StringIO()
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(column.key for column in self.columns)
        writer.writerows(
            [_cell(column, row[column.key]) for column in self.columns] for row in self.rows
        )
        return stream.getvalue().removesuffix("\n")

    def records(self) -> list[dict[str, Any]]:
        """Return the raw values, one mapping per row."""
        return [{column.key: row[column.key] for column in self.columns} for row in self.rows]

    def json(self) -> str:
        """Return the raw values as JSON, a list with an object per row."""
        return json_text(self.records())


def words_table(
    titles: Sequence[str], rows: Iterable[Sequence[str]], fold: Collection[str] = ()
) -> Table:
    """Return a table of texts; columns whose titles are in `fold` fold."""
    columns = tuple(Column(title, title, fold=title in fold) for title in titles)
    return Table(columns, [dict(zip(titles, row, strict=True)) for row in rows])


def _cell(column: Column, value: Any) -> Any:
    """Return the cell of a CSV file: a number as it is, structures in words, texts that are no formulas."""
    if isinstance(value, (dict, list)):
        value = column.text(value).replace("\n", "; ")
    return csv_text(value) if isinstance(value, str) else value


def _width(text: str) -> int:
    """Return how many characters of a terminal a text takes; those of East Asia take two."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _aligned(text: str, width: int, column: Column) -> str:
    """Fill a cell with blanks to the width of its column."""
    blanks = " " * (width - _width(text))
    return blanks + text if column.right else text + blanks


_FOLDED = 20
"""Columns that a text which folds keeps at least, where it has as many."""

_INDENT = 2
"""Blanks before the second and later lines of a row."""


_WAYS = ((2, "whole"), (1, "whole"), (2, "fold"), (1, "fold"), (1, "cut"))
"""Blanks between columns, and what happens to texts, as there is less and less room."""


def _widths(
    columns: Sequence[Column],
    cells: Sequence[Sequence[str]],
    room: int,
    gap: int,
    how: str,
) -> list[int] | None:
    """Return widths that hold every cell, texts with blanks narrower than they are; None where there are none."""
    widths, spare = [], []
    for i, column in enumerate(columns):
        title = column.title.split("\n")
        lines = [*title, *(line for row in cells for line in row[i].split("\n"))]
        width = max(map(_width, lines))
        words = title if column.cut else lines
        longest = max((_width(word) for line in words for word in line.split()), default=0)
        widths.append(width)
        least = max(longest, _FOLDED)
        fixed = column.right or how == "whole" or (column.cut and how == "fold")
        spare.append(0 if fixed else max(0, width - least))
    over = sum(widths) + gap * (len(columns) - 1) - room
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
    """Return the cells, those that are cut with as many of their parts as there is room for."""
    return [
        [
            _first_parts(cell, width, ellipsis) if column.cut else cell
            for column, cell, width in zip(columns, row, widths, strict=True)
        ]
        for row in cells
    ]


def _first_parts(text: str, width: int, ellipsis: str) -> str:
    """Return the parts of a list of words that fit, and that there are more.

    >>> _first_parts("mbs 2, no SP, recompute norms", 20, "...")
    'mbs 2, no SP, ...'
    """
    if _width(text) <= width:
        return text
    parts = text.split(", ")
    while len(parts) > 1:
        parts.pop()
        if _width(short := f"{', '.join(parts)}, {ellipsis}") <= width:
            return short
    return f"{text[: width - len(ellipsis)]}{ellipsis}"


def _note(columns: Sequence[Column], more: str) -> "Text":
    """Say which columns are left out, and where they are."""
    from rich.text import Text

    names = ", ".join(column.heading.strip() or column.key for column in columns)
    return Text(f"Left out for want of room: {names}; {more} has all", "dim")


def _grid(
    columns: Sequence[Column], cells: Sequence[Sequence[str]], widths: Sequence[int], gap: int
) -> "Grid":
    """Draw rows side by side, each column as wide as it is told."""
    from rich.table import Table as Grid
    from rich.text import Text

    grid = Grid(box=None, padding=(0, gap, 0, 0), pad_edge=False, header_style="dim")
    for column, width in zip(columns, widths, strict=True):
        justify = "right" if column.right else "left"
        grid.add_column(column.title, justify=justify, width=width, overflow="fold")  # type: ignore[arg-type]
    for row in cells:
        grid.add_row(*map(Text, row))
    return grid


def _stacked(
    columns: Sequence[Column], cells: Sequence[Sequence[str]], room: int
) -> "Iterator[RenderableType]":
    """Yield rows over several lines, indented from the second on.

    Texts that fold stand below the other cells; without any, rows are broken between columns at the same places.
    """
    from rich.padding import Padding
    from rich.text import Text

    titles = [column.heading for column in columns]
    rows = [[cell.replace("\n", ", ") for cell in row] for row in cells]
    widths = [max(map(_width, column)) for column in zip(titles, *rows, strict=True)]
    short = [i for i, column in enumerate(columns) if not column.fold]
    if sum(widths[i] + 2 for i in short) <= room + 2 and len(short) < len(columns):
        below = [i for i, column in enumerate(columns) if column.fold]
        for row, style in ((titles, "dim"), *((row, "") for row in rows)):
            parts = (_aligned(row[i], widths[i], columns[i]) for i in short)
            yield Text("  ".join(parts).rstrip(), style)
            for cell in filter(None, (row[i] for i in below)):
                yield Padding(Text(cell, style), (0, 0, 0, 2 * _INDENT))
        return
    lines: list[list[int]] = []
    left = 0
    for i, width in enumerate(widths):
        if not lines or width + 2 > left:
            lines.append([])
            left = room - (_INDENT if len(lines) > 1 else 0) + 2
        lines[-1].append(i)
        left -= width + 2
    for row, style in ((titles, "dim"), *((row, "") for row in rows)):
        for number, line in enumerate(lines):
            parts = (_aligned(row[i], widths[i], columns[i]) for i in line)
            text = "  ".join(parts).rstrip()
            yield Text(" " * _INDENT * (number > 0) + text, style, overflow="fold")
