"""Tables of plain values: drawn for people, or written as Markdown, CSV or JSON."""

import csv
import io
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from calculon.base.frozen import dataclass
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

    Attributes:
        fold, cut: What happens where a line is too short: texts fold between words, or end after their first parts.
        drop: Columns above 0 are left out where a line is too short, those with the largest number first; from
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

    Attributes:
        more: Where the columns are that a narrow screen leaves out.
        total: Number of rows of the whole table, if `rows` are only the first of them.
    """

    columns: tuple[Column, ...]
    rows: Sequence[Mapping[str, Any]]
    more: str = "a wider screen"
    total: int = 0

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
        widths = [max(map(characters, column)) for column in zip(*lines, strict=True)]
        return "\n".join("  ".join(map(aligned, line, widths, shown)).rstrip() for line in lines)

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


def characters(text: str) -> int:
    """Return the width of a text in a terminal; characters of East Asia count twice."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def aligned(text: str, width: int, column: Column) -> str:
    """Fill a cell with blanks to the width of its column."""
    blanks = " " * (width - characters(text))
    return blanks + text if column.right else text + blanks
