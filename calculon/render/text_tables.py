"""Tables of plain values: formatted for people, or written as Markdown, CSV or JSON."""

import csv
import io
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from calculon.base.frozen import dataclass
from calculon.declarations.files import csv_text, json_text

FORMATS = ("text", "markdown", "csv", "json")


def plain(value: Any) -> str:
    """Format a value for people: integers with thousands separators, an empty text for None."""
    if value is None:
        return ""
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return str(value)


EARLY = 10
"""Value of ``drop`` from which a column is hidden before texts wrap or are shortened."""


@dataclass(frozen=True, slots=True)
class Column:
    """Column of a table: its key in CSV and JSON, its title for people, and the format of its values.

    Attributes:
        fold, cut: Treatment of long texts on a narrow page: wrap between words, or keep only the first parts.
        drop: Columns above 0 are hidden on a narrow page, largest number first; from :data:`EARLY` on before texts
            wrap.
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
        """Title on one line."""
        return self.title.replace("_\n", "_").replace("\n", " ")


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of plain values under declared columns.

    Attributes:
        more: Place where the hidden columns can be read.
        total: Number of rows of the complete table, if `rows` are only the first ones.
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
        """Return the table for a pipe or a file: one line per row, of any width."""
        shown = [column for column in self.columns if column.for_people]
        lines = [[column.heading for column in shown]]
        lines += [[column.text(row[column.key]) for column in shown] for row in self.rows]
        lines = [[cell.replace("\n", ", ") for cell in line] for line in lines]
        widths = [max(map(characters, column)) for column in zip(*lines, strict=True)]
        return "\n".join("  ".join(map(aligned, line, widths, shown)).rstrip() for line in lines)

    def markdown(self) -> str:
        """Return the table in GitHub-flavored Markdown."""
        shown = [column for column in self.columns if column.for_people]
        lines = [[_marked(column.heading) for column in shown]]
        lines.append(["---:" if column.right else "---" for column in shown])
        lines += [[_marked(column.text(row[column.key])) for column in shown] for row in self.rows]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)

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
        """Return the raw values as a JSON list with one object per row."""
        return json_text(self.records())


def words_table(
    titles: Sequence[str], rows: Iterable[Sequence[str]], fold: Collection[str] = ()
) -> Table:
    """Return a table of texts; columns whose titles are in `fold` wrap."""
    columns = tuple(Column(title, title, fold=title in fold) for title in titles)
    return Table(columns, [dict(zip(titles, row, strict=True)) for row in rows])


_MARKS = re.compile(
    r"(?P<code>`[^`|]+`)"  # code spans stay unchanged
    r"|[\\`|~$]"  # code, cells, strikethrough, formulas
    r"|<(?=[A-Za-z/!?])"  # HTML
    r"|(?<!\s)\*|\*(?!\s)"  # emphasis
    r"|&(?=#?\w+;)"  # entities
    r"|(?<![^\W_])_|_(?![^\W_])"  # emphasis, which GitHub ignores inside words
    r"|\](?=[(\[:])"  # links
)

_OPENING = re.compile(r"(?m)^(\s*)(?:([#>+=-]+)(?=\s|$)|(\d+)([.)])(?=\s|$))")
"""Start of a line that Markdown would read as a heading, a quotation or a list item."""


def markdown_text(text: str) -> str:
    r"""Escape a text so that Markdown shows it literally.

    Names in backticks remain code.

    >>> print(markdown_text("<b>, 2 * tensor_par | <0.1 %, *.tflops"), markdown_text("1. first"))
    \<b>, 2 * tensor_par \| <0.1 %, \*.tflops 1\. first
    """
    text = _MARKS.sub(_escaped, text)
    return _OPENING.sub(lambda found: _escaped_opening(*found.groups("")), text)


def _escaped(mark: re.Match[str]) -> str:
    return mark[0] if mark["code"] else f"\\{mark[0]}"


def _escaped_opening(blanks: str, marks: str, number: str, dot: str) -> str:
    return f"{blanks}\\{marks}" if marks else f"{blanks}{number}\\{dot}"


def _marked(text: str) -> str:
    """Return a cell of a Markdown table, with its indentation."""
    words = text.lstrip(" ")
    indent = "&nbsp;" * (len(text) - len(words))
    return indent + _MARKS.sub(_escaped, words).replace("\n", "<br>")


def _cell(column: Column, value: Any) -> Any:
    """Return a cell of a CSV file: numbers unchanged, structures as text, texts escaped against formula injection."""
    if isinstance(value, (dict, list)):
        value = column.text(value).replace("\n", "; ")
    return csv_text(value) if isinstance(value, str) else value


def characters(text: str) -> int:
    """Return the display width of a text in a terminal; East Asian wide characters count twice."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def aligned(text: str, width: int, column: Column) -> str:
    """Pad a cell to the width of its column."""
    blanks = " " * (width - characters(text))
    return blanks + text if column.right else text + blanks
