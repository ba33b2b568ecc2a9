"""Documents as CSV: one long table with a line per cell, which pandas reads in one call."""

import csv
import io
import re
from collections.abc import Iterable, Iterator
from typing import Any

from calculon.declarations.files import csv_text
from calculon.render.document import (
    Block,
    Document,
    Facts,
    Grid,
    Names,
    Section,
    inner_blocks,
    words,
)
from calculon.render.grid_table import as_table
from calculon.render.text_tables import Table

HEADER = ("section", "table", "row", "name", "column", "value", "unit", "text")

_NUMBER = re.compile(r"([+-]?\d[\d,]*(?:\.\d+)?)(?: ([kMGTPE])(?= |$))?(?: ([^\W\d][^\s,;]*|%))?")
"""Number, an optional separate prefix, and an optional unit of one word."""

_PREFIXES = {"n": 1e-9, "u": 1e-6, "m": 1e-3} | {
    f"{letter}{binary}": (1024.0 if binary else 1000.0) ** power
    for binary in ("i", "")
    for power, letter in enumerate("KMGTPE" if binary else "kMGTPE", start=1)
}
_UNITS = ("s", "B", "B/s", "FLOP", "FLOP/s", "tokens/s", "samples/s", "W", "Wh", "USD")
"""Units that pages write with a prefix; CSV converts their numbers to the unit without a prefix."""


def document_csv(document: Document) -> str:
    """Return all texts and numbers of a document as CSV.

    A line has the heading above the cell, the numbers of its table and row, the row name (its first cell, after the
    names of the rows that it is part of), the column title and the text; ``value`` and ``unit`` if the text is a
    number. Texts outside tables have no table number.
    """
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(HEADER)
    writer.writerows(_Lines().of_document(document))
    return stream.getvalue().removesuffix("\n")


Line = tuple[Any, ...]


class _Lines:
    """Generator of CSV lines that counts the tables."""

    def __init__(self) -> None:
        self.tables = 0

    def of_document(self, one: Document) -> Iterator[Line]:
        """Yield the title and all parts of a document."""
        yield from _prose("", "title", one.title)
        yield from _prose("", "terms", one.terms)
        yield from self._blocks(inner_blocks(one), "")

    def _blocks(self, blocks: Iterable[Block], section: str) -> Iterator[Line]:
        """Yield the lines of blocks below a heading."""
        for one in blocks:
            if isinstance(one, (Section, Document)):
                yield from self._headed(one, section)
            elif isinstance(one, (Grid, Facts)):
                yield from self._table(
                    as_table(one.grid if isinstance(one, Facts) else one), section
                )
            elif isinstance(one, Table):
                yield from self._table(one, section)
            elif within := inner_blocks(one):
                yield from self._blocks(within, section)
            else:
                text = ", ".join(one.names) if isinstance(one, Names) else words(one)
                yield from _prose(section, "text", text)

    def _headed(self, one: Section | Document, section: str) -> Iterator[Line]:
        """Yield the lines of a section or document, which may have a heading."""
        below = " / ".join(filter(None, (section, one.title)))
        remark = words(one.remark) if isinstance(one, Section) else one.terms
        yield from _prose(below, "remark", remark)
        yield from self._blocks(inner_blocks(one), below)

    def _table(self, table: Table, section: str) -> Iterator[Line]:
        """Yield the cells of a table; the first cell of a row only if its column has a title."""
        self.tables += 1
        columns = [column for column in table.columns if column.for_people]
        titles = [column.heading or column.key for column in columns]
        above: list[str] = []
        for number, row in enumerate(table.rows, start=1):
            texts = [column.text(row[column.key]) for column in columns]
            # Two blanks of indentation mark a part of the row above: the path of row names is kept
            # like a stack.
            depth = (len(texts[0]) - len(texts[0].lstrip())) // 2
            above[depth:] = [_one_line(texts[0])]
            place = (csv_text(section), self.tables, number, csv_text(" / ".join(above)))
            for column, title, text in zip(columns, titles, texts, strict=True):
                named = column.heading or column is not columns[0]
                if named and (cell := _one_line(text)):
                    # Keys are unique; titles may repeat.
                    key = column.key if titles.count(title) > 1 else title
                    yield (*place, csv_text(key), *_value(cell))


def _prose(section: str, column: str, text: str) -> Iterator[Line]:
    """Yield the line of a text unless it is empty."""
    if text := _one_line(text):
        yield (csv_text(section), "", "", "", column, *_value(text))


def _one_line(text: str) -> str:
    return text.strip().replace("\n", "; ")


def _value(text: str) -> tuple[str, str, str]:
    """Return the number and unit of a text (both empty if it is not a number), and the text itself.

    >>> _value("10,300"), _value("+6.9 %"), _value("34 to 59 %")
    (('10300', '', '10,300'), ('6.9', '%', "'+6.9 %"), ('', '', '34 to 59 %'))
    >>> _value("800 ms"), _value("1.5 GiB"), _value("111 M USD"), _value("5 min")
    (('0.8', 's', '800 ms'), ('1610612736', 'B', '1.5 GiB'), ('111000000', 'USD', '111 M USD'), ('5', 'min', '5 min'))
    """
    found = _NUMBER.fullmatch(text)
    if not found:
        return "", "", csv_text(text)
    number, unit = found[1].replace(",", "").lstrip("+"), found[3] or ""
    factor = _PREFIXES.get(found[2], 1.0)
    for prefix, times in _PREFIXES.items():
        if unit.startswith(prefix) and unit.removeprefix(prefix) in _UNITS:
            unit, factor = unit.removeprefix(prefix), factor * times
            break
    if factor != 1:
        number = f"{float(number) * factor:.12g}"
    return number, csv_text(unit), csv_text(text)
