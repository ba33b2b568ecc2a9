"""Rows of CSV files: cells by column, with file, line and column for error messages."""

import csv
import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from calculon.base.errors import Problem, SpecError, nearest
from calculon.base.frozen import dataclass
from calculon.declarations.fields import Declaration
from calculon.declarations.files import LARGEST_FILE, reason

MAX_BYTES = LARGEST_FILE
"""Largest file that is read into memory, in bytes."""

MAX_ROWS, MAX_COLUMNS = 100_000, 1_000
"""Most rows and columns of a file. Measurements have far fewer; the limits catch wrong files early."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a CSV file: the file, the number of the line from 1, and its cells by column."""

    file: str
    number: int
    cells: dict[str, Any]

    @property
    def place(self) -> str:
        """The position of the line in its file, for messages."""
        return f"line {self.number}"

    def refuse(self, column: str, expected: str, found: str, hint: str = "") -> SpecError:
        """Return the error for a cell."""
        return SpecError(self.file, Problem(f"{self.place}, {column}", expected, found, hint))

    def number_of(self, column: str) -> float:
        """Return a number above 0."""
        text = self.cells[column]
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not (math.isfinite(value) and value > 0):
            raise self.refuse(column, "a number above 0", f"'{text}'")
        return value

    def integer(self, column: str, least: int = 1) -> int:
        """Return a whole number of at least `least`."""
        text = self.cells[column]
        # Longer digit strings than 19 exceed any allowed value, and int() of thousands of digits is slow.
        value = int(text) if text.isdecimal() and len(text) < 20 else text
        if problem := Declaration("", at_least=least).problem(int, value, column):
            raise self.refuse(column, problem.expected, problem.found, problem.hint)
        return int(value)


def typed(kind: Any, text: str) -> Any:
    """Return a cell converted to the type of its field; the text unchanged if it cannot be converted.

    >>> typed(int, "8"), typed(bool, "True"), typed(int, "eight")
    (8, True, 'eight')
    """
    if kind is bool and text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        return kind(text) if kind in (int, float) else text
    except ValueError:
        return text


def read_text(file: str) -> str:
    """Return a text file in UTF-8 of at most :data:`MAX_BYTES`.

    Raises:
        SpecError: If it cannot be read, is longer, or is not text.
    """
    try:
        with Path(file).open("rb") as stream:
            # One byte more than allowed tells a file that is too long from one that fits exactly.
            data = stream.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise SpecError(file, Problem("", f"at most {MAX_BYTES >> 20} MiB", "a longer file"))
        return data.decode("utf-8-sig")
    except OSError as error:
        raise SpecError(file, Problem("", "a readable file", reason(error))) from None
    except UnicodeDecodeError:
        raise SpecError(file, Problem("", "a text file", "something else")) from None


def read_csv(file: str, needed: Sequence[str]) -> list[Line]:
    """Return the lines of a CSV file below its header; errors as in :func:`read_text` and :func:`parse_csv`."""
    return parse_csv(file, read_text(file), needed)


def parse_csv(
    file: str, text: str, needed: Sequence[str], *, most_rows: int | None = None
) -> list[Line]:
    """Return the lines of a CSV text below its header.

    Empty lines and lines that begin with ``#`` are skipped; blanks around cells are removed.

    Args:
        file: Name of the file, for messages.
        text: Content of the file.
        needed: Columns that the header must have; ``seconds or busbw`` accepts either. Further columns are allowed.
        most_rows: Largest number of rows; by default :data:`MAX_ROWS`.

    Raises:
        SpecError: For a missing or repeated column, a line with too few or too many cells, too many lines or none.
    """
    most = MAX_ROWS if most_rows is None else most_rows
    lines: list[Line] = []
    header: list[str] = []
    reader = csv.reader(io.StringIO(text))
    try:
        for raw in reader:
            cells = [cell.strip() for cell in raw]
            if not any(cells) or cells[0].startswith("#"):
                continue
            line = Line(file, reader.line_num, dict(zip(header, cells, strict=False)))
            if not header:
                header = cells
                _check_header(line, header, needed)
            elif len(lines) == most:
                raise SpecError(file, Problem(line.place, f"at most {most:,} rows", "more"))
            # A shorter line usually means an interrupted copy, so it is an error rather than a row with blanks.
            elif len(cells) == len(header):
                lines.append(line)
            else:
                wanted, hint = f"{len(header)} columns, as in the header", "is the file cut short?"
                raise SpecError(file, Problem(line.place, wanted, str(len(cells)), hint))
    except csv.Error as error:
        raise SpecError(file, Problem(f"line {reader.line_num}", "CSV", str(error))) from None
    if not lines:
        wanted = "a CSV with the columns " + ", ".join(needed)
        raise SpecError(file, Problem("", wanted, "no rows" if header else "nothing"))
    return lines


def _check_header(line: Line, header: Sequence[str], needed: Sequence[str]) -> None:
    for name in needed:
        if not set(either := name.split(" or ")) & set(header):
            wanted = f"a header with the columns {', '.join(needed)}"
            hint = nearest(either[0], header).replace("did you mean", "is it")
            raise SpecError(line.file, Problem(line.place, wanted, f"no column {name}", hint))
    check_columns(line.file, header, line.place)
    if twice := next((name for name in header if name and header.count(name) > 1), None):
        raise SpecError(line.file, Problem(line.place, "each column once", f"{twice} twice"))


def check_columns(file: str, header: Sequence[str], place: str = "header") -> None:
    """Raise SpecError for a table with too many columns; results and measurements have a few hundred at most."""
    if len(header) > MAX_COLUMNS:
        problem = Problem(place, f"at most {MAX_COLUMNS:,} columns", f"{len(header):,}")
        raise SpecError(file, problem)
