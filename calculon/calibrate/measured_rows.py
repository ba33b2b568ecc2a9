"""Measured times as rows with the place of each; those that repeat are averaged."""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from calculon.base.errors import Problem, SpecError
from calculon.base.frozen import dataclass
from calculon.declarations.csv_rows import Line

ABOUT = ("device", "software", "source")
"""Columns about the measurement, which the written file keeps."""


@dataclass(frozen=True, slots=True)
class Row:
    """One measured time.

    Attributes:
        part: The measured part of the system: ``networks[0]``, ``matrix.bfloat16``, ``mem1``.
        name: The measurement in words; rows of one name repeat it.
        size: The work of the part: bytes on the wire, FLOP, or bytes moved.
        seconds: The measured time.
        group: Rows of one group are held out together.
        message: Bytes of the message of a collective, 0 for anything else.
        file, place: Its file and line.
        column: The column of the time.
        shape: m, n and k of a matrix product.
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


def about(lines: Sequence[Line]) -> dict[str, str]:
    """Return the values of the columns :data:`ABOUT`, each once."""
    found = {
        column: dict.fromkeys(line.cells[column] for line in lines if line.cells.get(column))
        for column in ABOUT
    }
    return {column: "; ".join(values) for column, values in found.items() if values}


def merged(rows: Sequence[Row]) -> tuple[list[Row], list[str]]:
    """Return rows with every measurement once, at the mean of its times, and notes about those that repeat.

    Raises:
        SpecError: When the times of one measurement differ tenfold, or its rows are of different groups.
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
    """Return the name of the octave of a size: from a power of two to below the next."""
    return f"2^{math.frexp(size)[1] - 1}"
