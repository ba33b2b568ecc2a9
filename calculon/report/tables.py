"""Tables of plain values: drawn for people, or written as Markdown, CSV or JSON."""

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table as Grid
from rich.text import Text

FORMATS = ("text", "markdown", "csv", "json")


def plain(value: Any) -> str:
    """Write a value for people: whole numbers with separators, nothing for None."""
    if value is None:
        return ""
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return str(value)


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its key in CSV and JSON, its title for people, and how people read its values."""

    key: str
    title: str = ""
    right: bool = False
    fold: bool = False
    text: Callable[[Any], str] = plain
    for_people: bool = True


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of plain values under declared columns."""

    columns: tuple[Column, ...]
    rows: Sequence[Mapping[str, Any]]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw the table without lines; outside a terminal every row takes one line, however wide."""
        shown = [column for column in self.columns if column.for_people]
        grid = Grid(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
        for column in shown:
            grid.add_column(
                column.title,
                justify="right" if column.right else "left",
                no_wrap=not column.fold,
                overflow="fold",
            )
        for row in self.rows:
            cells = (column.text(row[column.key]) for column in shown)
            if not console.is_terminal:
                cells = (cell.replace("\n", ", ") for cell in cells)
            grid.add_row(*map(Text, cells))
        yield grid

    def written(self, form: str) -> str:
        """Return the table in one of the :data:`FORMATS` other than text."""
        return {"markdown": self.markdown, "csv": self.csv, "json": self.json}[form]()

    def markdown(self) -> str:
        """Return the table in GitHub's Markdown."""
        shown = [column for column in self.columns if column.for_people]
        lines = [[column.title for column in shown]]
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
        return json.dumps(self.records(), indent=2)


def _cell(column: Column, value: Any) -> Any:
    """Return what stands in a CSV file: a plain value as it is, anything larger in words."""
    return column.text(value).replace("\n", "; ") if isinstance(value, (dict, list)) else value
