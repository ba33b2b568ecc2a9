"""Logs of nccl-tests: the tables of ``all_reduce_perf`` and its siblings.

Source: github.com/NVIDIA/nccl-tests, doc/PERFORMANCE.md: sizes are of the full array, times in microseconds.
"""

import re

from calculon.base.errors import Problem, SpecError
from calculon.base.frozen import dataclass
from calculon.declarations.csv_rows import Line

OPERATIONS = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "sendrecv": "p2p",
}
"""Operation of a network by program of nccl-tests."""

_HEADER = re.compile(r"^#\s+size\s+count\s+type\b.*\btime\b.*$", re.MULTILINE)
_BEGINNING = re.compile(r"^#.*(nThread |nccl-tests|Using devices)", re.MULTILINE)
_PROGRAM = re.compile(r"\b(\w+?)_perf\b")
_RANK = re.compile(r"^#\s+Rank\s+(\d+)\b.*?(?:\[[^\]]*\]\s*(.*?))?\s*$", re.MULTILINE)
_CLOSING = re.compile(r"^#\s*Avg bus bandwidth", re.MULTILINE)
_MICRO = 1e-6


def is_log(text: str) -> bool:
    """Return whether a text is a log of nccl-tests, or the beginning of one."""
    return bool(_HEADER.search(text) or _BEGINNING.search(text))


@dataclass(frozen=True, slots=True)
class Known:
    """The operation and the members of the group, as the caller states them for logs that do not."""

    operation: str | None = None
    members: int | None = None


def read_log(file: str, text: str, known: Known) -> tuple[list[Line], dict[str, str]]:
    """Return the out-of-place times of a log as lines of a CSV of collectives, and the device it names.

    Raises:
        SpecError: For a log that is cut short, of another operation, of several runs, with wrong results, or that does
            not name the measurement.
    """
    headers = list(_HEADER.finditer(text))
    if not headers:
        raise _cut_short(file, "the header '# size count type ... time ...'")
    if len(headers) > 1:
        number = text.count("\n", 0, headers[1].start()) + 1
        problem = Problem(f"line {number}", "one table", "another one", "one run a file")
        raise SpecError(file, problem)
    columns = headers[0].group().lstrip("#").split()
    lines = []
    for number, raw in enumerate(text.splitlines(), 1):
        cells = raw.split()
        if not cells or not cells[0].isdecimal():
            continue  # comments, and what mpirun and NCCL print between
        _check_row(columns, cells, file, number)
        if cells[0].strip("0"):  # empty messages move nothing
            # of two columns of one name the first counts: the times out of place
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
    """Refuse a row that is cut short, and times of an operation whose result was wrong."""
    if len(cells) != len(columns):
        wanted = f"{len(columns)} columns, as in the header"
        hint = "is the log cut short?"
        raise SpecError(file, Problem(f"line {number}", wanted, str(len(cells)), hint))
    if "#wrong" in columns:
        wrong = cells[columns.index("#wrong")]
        if wrong not in ("0", "N/A"):
            raise SpecError(file, Problem(f"line {number}, #wrong", "0 wrong results", wrong))


def _stated(file: str, text: str, known: Known) -> str:
    """Return the operation; that of the caller must not contradict the log."""
    if not known.operation:
        return _operation(file, text)
    named = {OPERATIONS[name] for name in _PROGRAM.findall(text) if name in OPERATIONS}
    if named and known.operation not in named:
        wanted = f"the operation of the log, {', '.join(sorted(named))}"
        raise SpecError(file, Problem("--operation", wanted, known.operation))
    return known.operation


def _operation(file: str, text: str) -> str:
    found = list(dict.fromkeys(_PROGRAM.findall(text)))
    usable = [OPERATIONS[name] for name in found if name in OPERATIONS]
    if len(usable) == 1:
        return usable[0]
    wanted = "the name of the program, such as all_reduce_perf"
    said = ", ".join(f"{name}_perf" for name in found) or "none"
    known = ", ".join(f"{name}_perf" for name in OPERATIONS)
    hint = f"say it: --operation all_reduce (measured can be {known})"
    raise SpecError(file, Problem("", wanted, said, hint))


def _members(file: str, text: str) -> int:
    ranks = {int(match[1]) for match in _RANK.finditer(text)}
    if len(ranks) > 1:
        return len(ranks)
    wanted = "a line '#  Rank  0 ...' for each of at least 2 members"
    found = f"{len(ranks)} of them" if ranks else "none"
    raise SpecError(file, Problem("", wanted, found, "say how many: --members N"))
