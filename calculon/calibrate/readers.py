"""Readers of measured kernels: collectives, matrix products, copies."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from calculon.base.errors import Problem, SpecError, nearest
from calculon.base.units import GIGA
from calculon.calibrate.measured_rows import Row, about, octave
from calculon.calibrate.nccl import Known, is_log, read_log
from calculon.declarations.csv_rows import Line, parse_csv, read_csv, read_text
from calculon.hardware.collectives.algorithm_times import bus_factor
from calculon.hardware.system import System

COLLECTIVES = ("operation", "bytes", "members", "seconds or busbw")
GEMM = ("m", "n", "k", "datatype", "seconds")
MEMORY = ("bytes", "seconds")
OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "p2p")

SAME_BUS = 0.05
"""Largest relative difference of a printed bus bandwidth from that of the printed time: rounding."""

TOO_FAST = 1.05
"""Largest share of the peak: clocks and rounding may exceed it a little."""

TOO_SLOW = 0.005
"""Least share of the peak in the best of all rows: times in another unit have less."""

Read = tuple[list[Row], dict[str, str]]
"""Rows of a file, and its device, software and source."""


def read_collectives(
    file: str, system: System, known: Known | None = None, network: int | None = None
) -> Read:
    """Read collectives from a CSV or a log of nccl-tests.

    Args:
        file: The path.
        system: Its networks say which bytes an operation moves.
        known: Operation and members, for logs that do not state them.
        network: The network of rows that name none; by default the first that a group of this size fits in.

    Raises:
        SpecError: For anything that cannot be understood; it names the line.
    """
    text = read_text(file)
    if is_log(text):
        lines, told = read_log(file, text, known or Known())
    else:
        lines = parse_csv(file, text, COLLECTIVES)
        told = about(lines)
        _check_options(lines, known or Known())
    return [_collective(line, system, network) for line in lines], told


def _collective(line: Line, system: System, network: int | None) -> Row:
    operation = line.cells["operation"]
    if operation not in OPERATIONS:
        wanted = "one of " + ", ".join(OPERATIONS)
        hint = nearest(operation, OPERATIONS)
        raise line.refuse("operation", wanted, f"'{operation}'", hint)
    size, members = line.number_of("bytes"), line.whole("members", 2)
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
    """Return the time of a collective and its column: ``seconds``, or else ``busbw`` in GB/s."""
    seconds, busbw = (line.cells.get(name, "") for name in ("seconds", "busbw"))
    if not seconds and busbw:
        return bus_bytes / GIGA / line.number_of("busbw"), "busbw"
    value = line.number_of("seconds")
    rate = bus_bytes / GIGA / value
    if busbw and rate >= 1:  # nccl-tests prints two decimals: nothing of small messages
        printed = line.number_of("busbw")
        if abs(printed / rate - 1) > SAME_BUS:
            wanted = f"about {rate:.4g}, the GB/s of {value:g} s"
            hint = "busbw is in GB/s as nccl-tests prints it, seconds in s, bytes those of the full array"
            raise line.refuse("busbw", wanted, f"'{busbw}'", hint)
    return value, "seconds"


def _check_options(lines: Sequence[Line], known: Known) -> None:
    """Refuse options that contradict a row of a CSV."""
    stated = {"operation": known.operation, "members": known.members}
    for name, value in stated.items():
        for line in lines if value else ():
            if line.cells[name] != str(value):
                wanted = f"{value}, as --{name} says"
                raise line.refuse(name, wanted, f"'{line.cells[name]}'", "the rows of a CSV say it")


def _network(line: Line, system: System, network: int | None, members: int) -> int:
    count = len(system.networks)
    if line.cells.get("network"):
        network = line.whole("network", 0)
        if network >= count:
            wanted = f"a network of {system.name}: 0 to {count - 1}"
            raise line.refuse("network", wanted, str(network))
    if network is not None:
        return network
    for number, one in enumerate(system.networks):
        if one.size >= members:
            return number
    largest = max(one.size for one in system.networks)
    wanted = f"at most {largest} members, the largest network of {system.name}"
    raise line.refuse("members", wanted, str(members))


def read_gemm(file: str, system: System, *, shapes: bool = False) -> Read:
    """Read matrix products from a CSV; errors as in :func:`read_collectives`.

    With `shapes` they tell of ``ext.gemm``, the rate by shape; else of the efficiency curve of the matrix engine.
    """
    lines = read_csv(file, GEMM)
    return [_product(line, system, shapes) for line in lines], about(lines)


def _product(line: Line, system: System, shapes: bool) -> Row:
    datatype, known = line.cells["datatype"], system.matmul_types if shapes else [*system.matrix]
    if datatype not in known:
        wanted = f"a datatype of {system.name}: {', '.join(known)}"
        hint = nearest(datatype, known)
        raise line.refuse("datatype", wanted, f"'{datatype}'", hint)
    m, n, k = (line.whole(column) for column in ("m", "n", "k"))
    name = f"{m:,} x {n:,} x {k:,} in {datatype}"
    part = f"{'ext.gemm' if shapes else 'matrix'}.{datatype}"
    return replace(_row(line, part, name, 2.0 * m * n * k, f"n={n} k={k}"), shape=(m, n, k))


def read_memory(file: str, _: System) -> Read:
    """Read copies from a CSV, of tier 1 unless a column ``tier`` states another; errors as above."""
    lines = read_csv(file, MEMORY)
    return [_copy(line) for line in lines], about(lines)


def _copy(line: Line) -> Row:
    tier = line.whole("tier") if line.cells.get("tier") else 1
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
    "seconds": ("seconds are wanted", "not milliseconds or less"),
    "busbw": ("GB/s are wanted", "not TB/s"),
}
"""The unit of each column, and the probable one where times are far too long."""


def check_units(rows: Sequence[Row], peak: float, unit: str) -> None:
    """Refuse times that exceed the peak of a part, or that are hundreds of times too long.

    Raises:
        SpecError: For the first such row.
    """
    for row in rows:
        share = row.size / row.seconds / peak
        if share > TOO_FAST:
            rate = f"{row.size / row.seconds / 1e9:,.4g} G{unit}/s"
            wanted = f"at most {TOO_FAST} times the peak of {row.part}, {peak / 1e9:,.4g} G{unit}/s"
            found = f"{row.seconds:g} s, which is {rate}"
            hint = f"{_WANTED[row.column][0]}, and bytes of the full array; is the base system that of this machine?"
            if row.part.startswith("networks"):
                hint += " A ring over whole nodes has the bandwidth of all ports of a node."
            raise row.refuse(row.column, wanted, found, hint)
    best = max(rows, key=lambda row: row.size / row.seconds)
    share = best.size / best.seconds / peak
    if share < TOO_SLOW:
        wanted = f"at least {TOO_SLOW:g} of the peak of {best.part} in its best row"
        found = f"{share:.2g} ({best.seconds:g} s)"
        hint = f"{', '.join(_WANTED[best.column])}; or no large sizes were measured"
        raise best.refuse(best.column, wanted, found, hint)


def too_few(file: str, part: str, found: float, needed: float, why: str) -> SpecError:
    """Return the error of rows that do not determine the parameters."""
    hint = "measure more sizes, further apart; --hold-out 0 fits all of them"
    wanted = f"at least {needed:g} {why}"
    return SpecError(file, Problem(part, wanted, f"{found:g}", hint))
