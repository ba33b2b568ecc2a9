"""Measured times as rows: read from CSV with the place of every value, checked, and averaged where they repeat."""

import csv
import io
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from calculon.errors import Problem, SpecError, nearest
from calculon.spec.files import reason

ABOUT = ("device", "software", "source")
"""Columns that say what was measured; their values are kept in the written file."""


@dataclass(frozen=True, slots=True)
class Row:
    """One measured time.

    Attributes
    ----------
    part : str
        What of the system it tells about: ``networks[0]``, ``matrix.bfloat16``, ``mem1``.
    name : str
        What was measured, in words; rows of one name repeat a measurement.
    size : float
        What the part had to do: bytes on the wire, FLOP, or bytes moved.
    seconds : float
        The time it took.
    group : str
        Rows of one group are held out together.
    message : float
        Bytes of the message of a collective, 0 for anything else.
    file, place : str
        Where it stands.
    column : str
        The column that tells the time.
    shape : tuple of int
        m, n and k of a matrix product.
    """

    part: str
    name: str
    size: float
    seconds: float
    group: str
    message: float
    file: str
    place: str
    column: str = "seconds"
    shape: tuple[int, int, int] = (0, 0, 0)

    def refuse(self, column: str, expected: str, found: str, hint: str = "") -> SpecError:
        """Return the error that points at this row."""
        return SpecError(self.file, Problem(f"{self.place}, {column}", expected, found, hint))


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a CSV file."""

    file: str
    number: int
    cells: dict[str, str]

    @property
    def place(self) -> str:
        """Where the line is, in words."""
        return f"line {self.number}"

    def refuse(self, column: str, expected: str, found: str, hint: str = "") -> SpecError:
        """Return the error that points at a cell."""
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

    def whole(self, column: str, least: int = 1) -> int:
        """Return a whole number of at least `least`."""
        text = self.cells[column]
        if not text.isdecimal() or int(text) < least:
            raise self.refuse(column, f"a whole number of at least {least}", f"'{text}'")
        return int(text)


def read_text(file: str) -> str:
    """Return the text of a file of measurements.

    Raises
    ------
    SpecError
        When it cannot be read or is no text.
    """
    try:
        return Path(file).read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise SpecError(file, Problem("", "a readable file", reason(error))) from None
    except UnicodeDecodeError:
        raise SpecError(file, Problem("", "a text file", "something else")) from None


def read_csv(file: str, text: str, needed: Sequence[str]) -> tuple[list[Line], dict[str, str]]:
    """Return the lines of a CSV with a header, and what its columns :data:`ABOUT` say.

    Empty lines and lines that begin with ``#`` are skipped, and columns that nobody asks for may be there. A needed
    column may be one of two, as in ``seconds or busbw``.

    Raises
    ------
    SpecError
        For a missing column, a line that is cut short or too long, or no lines at all.
    """
    lines: list[Line] = []
    header: list[str] = []
    reader = csv.reader(io.StringIO(text))
    try:
        for cells in reader:
            values = [cell.strip() for cell in cells]
            if not any(values) or values[0].startswith("#"):
                continue
            if not header:
                header = values
                _check_header(file, reader.line_num, header, needed)
                continue
            if len(values) != len(header):
                wanted = f"{len(header)} columns, as in the header"
                problem = Problem(f"line {reader.line_num}", wanted, f"{len(values)}")
                raise SpecError(file, replace(problem, hint="is the file cut short?"))
            lines.append(Line(file, reader.line_num, dict(zip(header, values, strict=True))))
    except csv.Error as error:
        raise SpecError(file, Problem(f"line {reader.line_num}", "CSV", str(error))) from None
    if not lines:
        wanted = "a CSV with the columns " + ", ".join(needed)
        raise SpecError(file, Problem("", wanted, "no rows" if header else "nothing"))
    return lines, about(lines)


def _check_header(file: str, number: int, header: list[str], needed: Sequence[str]) -> None:
    for name in needed:
        if not set(either := name.split(" or ")) & set(header):
            wanted = f"a header with the columns {', '.join(needed)}"
            found = f"no column {name}"
            hint = nearest(either[0], header).replace("did you mean", "is it")
            raise SpecError(file, Problem(f"line {number}", wanted, found, hint))
    for name in {name for name in header if header.count(name) > 1 and name}:
        raise SpecError(file, Problem(f"line {number}", "each column once", f"{name} twice"))


def about(lines: Iterable[Line]) -> dict[str, str]:
    """Return what the lines say of device, software and source: each value once."""
    told: dict[str, list[str]] = defaultdict(list)
    for line in lines:
        for column in ABOUT:
            value = line.cells.get(column, "")
            if value and value not in told[column]:
                told[column].append(value)
    return {column: "; ".join(values) for column, values in told.items() if values}


def merged(rows: Sequence[Row]) -> tuple[list[Row], list[str]]:
    """Return rows with every measurement once, at the mean of its times, and notes about those that repeat.

    Raises
    ------
    SpecError
        When the times of one measurement differ tenfold, or its rows are of different groups.
    """
    same: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        same[row.part, row.name].append(row)
    result, notes = [], []
    for some in same.values():
        times = [row.seconds for row in some]
        last = some[-1]
        if max(times) > 10 * min(times):
            found = f"{min(times):g} and {max(times):g} s"
            hint = "are these two machines, or two units?"
            raise last.refuse(last.column, f"about the same time for each {last.name}", found, hint)
        if len({row.group for row in some}) > 1:
            wanted, found = f"one group for {last.name}", f"'{some[0].group}' and '{last.group}'"
            raise last.refuse("group", wanted, found)
        result.append(replace(some[0], seconds=math.fsum(times) / len(times)))
    repeated = [some for some in same.values() if len(some) > 1]
    if repeated:
        first = repeated[0][0]
        count = sum(map(len, repeated))
        words = "measurement" if len(repeated) == 1 else "measurements"
        notes.append(
            f"{first.file}: {count:,} rows repeat {len(repeated):,} {words} and are averaged"
            f" (first: {first.name}, {first.place})"
        )
    return result, notes


def octave(size: float) -> str:
    """Name the octave of a size: all from a power of two up to the next."""
    return f"2^{math.frexp(size)[1] - 1}"
