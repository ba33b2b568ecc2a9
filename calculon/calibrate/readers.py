"""Readers of measurements: collectives (CSV or nccl-tests logs), matrix products and copies, with repeats averaged."""

import math
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from calculon.base.errors import Problem, SpecError, nearest
from calculon.base.frozen import dataclass
from calculon.base.units import GIGA
from calculon.declarations.csv_rows import Line, parse_csv, read_csv, read_text
from calculon.hardware.collectives.algorithm_times import bus_factor
from calculon.hardware.system import System

ABOUT = ("device", "software", "source")
"""Columns that describe the measurement, which the written file keeps."""


@dataclass(frozen=True, slots=True)
class Row:
    """One measured time.

    Attributes:
        part: Measured part of the system: ``networks[0]``, ``matrix.bfloat16``, ``mem1``.
        name: Description of the measurement; rows with the same name repeat it.
        size: Work of the part: bytes on the wire, FLOP, or bytes moved.
        seconds: Measured time.
        group: Name of the group; rows of a group are held out together.
        message: Message size of a collective in bytes, 0 for anything else.
        file, place: File and line of the row.
        column: Column that states the time.
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
        """Return an error that points at this row."""
        return SpecError(self.file, Problem(f"{self.place}, {column}", expected, found, hint))


def about(lines: Sequence[Line]) -> dict[str, str]:
    """Return the distinct values of the columns :data:`ABOUT`."""
    values = {
        column: dict.fromkeys(line.cells[column] for line in lines if line.cells.get(column))
        for column in ABOUT
    }
    return {column: "; ".join(texts) for column, texts in values.items() if texts}


def merged(rows: Sequence[Row]) -> tuple[list[Row], list[str]]:
    """Return rows with repeated measurements replaced by one row with their mean time, and notes on the repeats.

    Raises:
        SpecError: If the times of a measurement differ tenfold, or its rows belong to different groups.
    """
    same: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        same[row.part, row.name].append(row)
    result, notes = [], []
    for some in same.values():
        times = [row.seconds for row in some]
        last = some[-1]
        # Noise explains a factor of 2, hardly of 10: that is another unit or another machine.
        if max(times) > 10 * min(times):
            found = f"{min(times):g} and {max(times):g} s"
            hint = "do the rows mix two machines, or two units?"
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
    """Return the name of the octave of a size: the range from a power of two up to the next one."""
    return f"2^{math.frexp(size)[1] - 1}"


# Logs of nccl-tests: the tables that ``all_reduce_perf`` and its siblings print.
#
# Source: github.com/NVIDIA/nccl-tests, doc/PERFORMANCE.md: sizes are of the full array, times in microseconds.

PROGRAMS = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "sendrecv": "p2p",
}
"""Operation of a network by nccl-tests program."""

_HEADER = re.compile(r"^#\s+size\s+count\s+type\b.*\btime\b.*$", re.MULTILINE)
_BEGINNING = re.compile(r"^#.*(nThread |nccl-tests|Using devices)", re.MULTILINE)
_PROGRAM = re.compile(r"\b(\w+?)_perf\b")
_RANK = re.compile(r"^#\s+Rank\s+(\d+)\b.*?(?:\[[^\]]*\]\s*(.*?))?\s*$", re.MULTILINE)
_CLOSING = re.compile(r"^#\s*Avg bus bandwidth", re.MULTILINE)
_MICRO = 1e-6


def is_log(text: str) -> bool:
    """Return true for a log of nccl-tests, or the beginning of one."""
    return bool(_HEADER.search(text) or _BEGINNING.search(text))


@dataclass(frozen=True, slots=True)
class CollectiveOptions:
    """Operation and group size that the caller states, for logs that do not."""

    operation: str | None = None
    members: int | None = None


def read_log(file: str, text: str, known: CollectiveOptions) -> tuple[list[Line], dict[str, str]]:
    """Return the out-of-place times of a log as lines of a CSV of collectives, and the device named in the log.

    Raises:
        SpecError: For a log that is cut short, that contains several runs or wrong results, that contradicts the stated
            operation, or that does not identify the measurement.
    """
    headers = list(_HEADER.finditer(text))
    if not headers:
        raise _cut_short(file, "the header '# size count type ... time ...'")
    if len(headers) > 1:
        number = text.count("\n", 0, headers[1].start()) + 1
        problem = Problem(f"line {number}", "one table", "a second table", "write one run per file")
        raise SpecError(file, problem)
    columns = headers[0].group().lstrip("#").split()
    lines = []
    for number, raw in enumerate(text.splitlines(), 1):
        cells = raw.split()
        if not cells or not cells[0].isdecimal():
            continue  # comments, and output of mpirun and NCCL between the rows
        _check_row(columns, cells, file, number)
        if cells[0].strip("0"):  # empty messages move nothing
            # of two columns with the same name the first counts: out-of-place times come first
            pairs = reversed([*zip(columns, cells, strict=True)])
            lines.append(Line(file, number, dict(pairs)))
    if not _CLOSING.search(text):
        raise _cut_short(file, "the closing line '# Avg bus bandwidth'")
    if not lines:
        raise SpecError(file, Problem("", "rows below the header of nccl-tests", "none"))
    found = {
        "operation": _stated(file, text, known),
        "members": str(known.members or _members(file, text)),
    }
    rows = []
    for line in lines:
        seconds = repr(line.number_of("time") * _MICRO)
        row = found | {"bytes": line.cells["size"], "seconds": seconds}
        rows.append(Line(file, line.number, row))
    devices = sorted({match[2] for match in _RANK.finditer(text) if match[2]})
    return rows, {"device": "; ".join(devices)} if devices else {}


def _cut_short(file: str, wanted: str) -> SpecError:
    problem = Problem("", wanted, "the end of the file", "is the log cut short?")
    return SpecError(file, problem)


def _check_row(columns: list[str], cells: list[str], file: str, number: int) -> None:
    """Refuse a row that is cut short, or the time of an operation with wrong results."""
    if len(cells) != len(columns):
        wanted = f"{len(columns)} columns, as in the header"
        hint = "is the log cut short?"
        raise SpecError(file, Problem(f"line {number}", wanted, str(len(cells)), hint))
    if "#wrong" in columns:
        wrong = cells[columns.index("#wrong")]
        if wrong not in ("0", "N/A"):
            raise SpecError(file, Problem(f"line {number}, #wrong", "0 wrong results", wrong))


def _stated(file: str, text: str, known: CollectiveOptions) -> str:
    """Return the operation; an operation stated by the caller must not contradict the log."""
    if not known.operation:
        return _operation(file, text)
    named = {PROGRAMS[name] for name in _PROGRAM.findall(text) if name in PROGRAMS}
    if named and known.operation not in named:
        wanted = f"the operation of the log, {', '.join(sorted(named))}"
        raise SpecError(file, Problem("--operation", wanted, known.operation))
    return known.operation


def _operation(file: str, text: str) -> str:
    found = list(dict.fromkeys(_PROGRAM.findall(text)))
    usable = [PROGRAMS[name] for name in found if name in PROGRAMS]
    if len(usable) == 1:
        return usable[0]
    wanted = "the name of the program, such as all_reduce_perf"
    said = ", ".join(f"{name}_perf" for name in found) or "none"
    known = ", ".join(f"{name}_perf" for name in PROGRAMS)
    hint = f"state it with --operation all_reduce (supported programs: {known})"
    raise SpecError(file, Problem("", wanted, said, hint))


def _members(file: str, text: str) -> int:
    ranks = {int(match[1]) for match in _RANK.finditer(text)}
    if len(ranks) > 1:
        return len(ranks)
    wanted = "a line '#  Rank  0 ...' for each member, at least 2"
    found = f"{len(ranks)} such line" if ranks else "none"
    raise SpecError(file, Problem("", wanted, found, "state the group size with --members N"))


COLLECTIVES = ("operation", "bytes", "members", "seconds or busbw")
GEMM = ("m", "n", "k", "datatype", "seconds")
MEMORY = ("bytes", "seconds")
OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "p2p")

SAME_BUS = 0.05
"""Largest relative difference between a printed bus bandwidth and the one computed from the time, due to rounding."""

TOO_FAST = 1.05
"""Largest share of the peak: clock boost and rounding may exceed it slightly."""

TOO_SLOW = 0.005
"""Least share of the peak that the best row reaches; times in the wrong unit have less."""

Read = tuple[list[Row], dict[str, str]]
"""Rows of a file, and the device, software and source that it names."""


def read_collectives(
    file: str, system: System, known: CollectiveOptions | None = None, network: int | None = None
) -> Read:
    """Read collectives from a CSV or a log of nccl-tests.

    Args:
        file: Path of the file.
        system: System whose networks determine the bytes that an operation moves.
        known: Operation and group size, for logs that do not state them.
        network: Network of rows that name none; by default the smallest one that a group of this size fits in.

    Raises:
        SpecError: For anything that cannot be understood; the message names the line.
    """
    text = read_text(file)
    if is_log(text):
        lines, description = read_log(file, text, known or CollectiveOptions())
    else:
        lines = parse_csv(file, text, COLLECTIVES)
        description = about(lines)
        _check_options(lines, known or CollectiveOptions())
    return [_collective(line, system, network) for line in lines], description


def _collective(line: Line, system: System, network: int | None) -> Row:
    operation = line.cells["operation"]
    if operation not in OPERATIONS:
        wanted = "one of " + ", ".join(OPERATIONS)
        hint = nearest(operation, OPERATIONS)
        raise line.refuse("operation", wanted, f"'{operation}'", hint)
    size, members = line.number_of("bytes"), line.integer("members", 2)
    number = _network(line, system, network, members)
    moved = system.fabric.volume(
        np.array(number), operation, np.array(size), np.array(float(members))
    )
    name = f"{operation} of {size:,.0f} bytes, {members} members"
    seconds, column = _collective_seconds(line, size * bus_factor(operation, members))
    group = line.cells.get("group") or octave(size)
    part = f"networks[{number}]"
    return Row(part, name, float(moved), seconds, group, size, line.file, line.place, column)


def _collective_seconds(line: Line, bus_bytes: float) -> tuple[float, str]:
    """Return the time of a collective and the column that states it: ``seconds``, or else ``busbw`` in GB/s."""
    seconds, busbw = (line.cells.get(name, "") for name in ("seconds", "busbw"))
    if not seconds and busbw:
        return bus_bytes / GIGA / line.number_of("busbw"), "busbw"
    value = line.number_of("seconds")
    rate = bus_bytes / GIGA / value
    if busbw and rate >= 1:  # nccl-tests prints two decimals, too few to check small messages
        printed = line.number_of("busbw")
        if abs(printed / rate - 1) > SAME_BUS:
            wanted = f"about {rate:.4g}, the GB/s of {value:g} s"
            hint = "busbw is in GB/s as nccl-tests prints it, seconds in s, bytes are the size of the full array"
            raise line.refuse("busbw", wanted, f"'{busbw}'", hint)
    return value, "seconds"


def _check_options(lines: Sequence[Line], known: CollectiveOptions) -> None:
    """Refuse options that contradict a row of a CSV file."""
    stated = {"operation": known.operation, "members": known.members}
    for name, value in stated.items():
        for line in lines if value else ():
            if line.cells[name] != str(value):
                wanted = f"{value}, as --{name} says"
                raise line.refuse(
                    name, wanted, f"'{line.cells[name]}'", "rows of a CSV state it themselves"
                )


def _network(line: Line, system: System, network: int | None, members: int) -> int:
    count = len(system.networks)
    if line.cells.get("network"):
        network = line.integer("network", 0)
        if network >= count:
            wanted = f"a network of {system.name}: 0 to {count - 1}"
            raise line.refuse("network", wanted, str(network))
    if network is not None:
        return network
    # Networks are listed from the innermost outwards: the first one that is large enough is the fastest.
    for number, candidate in enumerate(system.networks):
        if candidate.size >= members:
            return number
    largest = max(candidate.size for candidate in system.networks)
    wanted = f"at most {largest} members, the largest network of {system.name}"
    raise line.refuse("members", wanted, str(members))


def read_gemm(file: str, system: System, *, shapes: bool = False) -> Read:
    """Read matrix products from a CSV file; errors as in :func:`read_collectives`.

    With `shapes` they calibrate ``ext.gemm``, the rate by shape; otherwise the efficiency curve of the matrix engine.
    """
    lines = read_csv(file, GEMM)
    return [_product(line, system, shapes) for line in lines], about(lines)


def _product(line: Line, system: System, shapes: bool) -> Row:
    datatype, known = line.cells["datatype"], system.matmul_types if shapes else [*system.matrix]
    if datatype not in known:
        wanted = f"a datatype of {system.name}: {', '.join(known)}"
        hint = nearest(datatype, known)
        raise line.refuse("datatype", wanted, f"'{datatype}'", hint)
    m, n, k = (line.integer(column) for column in ("m", "n", "k"))
    name = f"{m:,} x {n:,} x {k:,} in {datatype}"
    part = f"{'ext.gemm' if shapes else 'matrix'}.{datatype}"
    return replace(_row(line, part, name, 2.0 * m * n * k, f"n={n} k={k}"), shape=(m, n, k))


def read_memory(file: str, _: System) -> Read:
    """Read memory copies from a CSV file, in tier 1 unless a column ``tier`` states the tier; errors as above."""
    lines = read_csv(file, MEMORY)
    return [_copy(line) for line in lines], about(lines)


def _copy(line: Line) -> Row:
    tier = line.integer("tier") if line.cells.get("tier") else 1
    if tier > 2:
        raise line.refuse("tier", "1 or 2", str(tier))
    size = line.number_of("bytes")
    if size != round(size):
        raise line.refuse("bytes", "whole bytes, not KiB or MiB", line.cells["bytes"])
    return _row(line, f"mem{tier}", f"{size:,.0f} bytes in tier {tier}", size, octave(size))


def _row(line: Line, part: str, name: str, size: float, group: str) -> Row:
    seconds = line.number_of("seconds")
    own = line.cells.get("group") or group
    return Row(part, name, size, seconds, own, 0.0, line.file, line.place)


_WANTED = {
    "seconds": ("seconds are expected", "not milliseconds or less"),
    "busbw": ("GB/s are expected", "not TB/s"),
}
"""Unit of each column, and the unit that was probably used if times are far too long."""


def check_units(rows: Sequence[Row], peak: float, unit: str) -> None:
    """Refuse times that beat the peak of a part, or that are hundreds of times too long.

    Raises:
        SpecError: For the first such row.
    """
    for row in rows:
        share = row.size / row.seconds / peak
        if share > TOO_FAST:
            rate = f"{row.size / row.seconds / 1e9:,.4g} G{unit}/s"
            wanted = f"at most {TOO_FAST} times the peak of {row.part}, {peak / 1e9:,.4g} G{unit}/s"
            found = f"{row.seconds:g} s, which is {rate}"
            hint = f"{_WANTED[row.column][0]}, and bytes of the full array; is this the right base system?"
            if row.part.startswith("networks"):
                hint += " A ring over whole nodes uses the bandwidth of all ports of a node."
            raise row.refuse(row.column, wanted, found, hint)
    best = max(rows, key=lambda row: row.size / row.seconds)
    share = best.size / best.seconds / peak
    if share < TOO_SLOW:
        wanted = f"at least {TOO_SLOW:g} of the peak of {best.part} in the best row"
        found = f"{share:.2g} ({best.seconds:g} s)"
        hint = f"{', '.join(_WANTED[best.column])}; or the measured sizes are too small"
        raise best.refuse(best.column, wanted, found, hint)


def too_few(file: str, part: str, found: float, needed: float, why: str) -> SpecError:
    """Return the error for rows that do not determine the parameters."""
    hint = "measure more sizes, farther apart, or use --hold-out 0 to fit all rows"
    wanted = f"at least {needed:g} {why}"
    return SpecError(file, Problem(part, wanted, f"{found:g}", hint))
