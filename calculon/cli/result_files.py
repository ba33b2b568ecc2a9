"""Result files: the JSON of ``llm``, ``loe`` and ``study``, and rows of tables, with every value checked."""

import contextlib
import csv
import gzip
import hashlib
import math
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from calculon.base.errors import Problem, SpecError
from calculon.base.records import columns
from calculon.declarations.csv_rows import check_columns
from calculon.declarations.decode import decode
from calculon.declarations.execution import Execution
from calculon.declarations.fields import shown
from calculon.declarations.files import SUFFIXES, document_suffix, read_document, reason
from calculon.declarations.named_values import PUBLISHED
from calculon.declarations.result_numbers import NUMBER
from calculon.declarations.result_records import QUESTION, FoundExecution, question_in
from calculon.declarations.result_selection import (
    PLANS,
    RESULTS,
    check_single,
    no_result,
    number_in,
    searches_in,
)
from calculon.declarations.serving_figures import SERVING_FIGURES
from calculon.declarations.statistics import BOUNDS, LEVEL, CorrectedStats
from calculon.documents.estimate_record import STATISTICS_OF, InEdition, estimate_record
from calculon.documents.result import Document, Result
from calculon.plan.columns import FIELDS
from calculon.plan.plan import NAMES, PUBLISHED_NAMES, all_fields

DOCUMENTS, TABLES = SUFFIXES, (".csv", ".parquet")

EVERY_STATISTIC = tuple(column.name for column in columns(CorrectedStats))
_COUNTS = {
    field.name: int(field.declaration.at_least or 0) for field in FIELDS if field.annotation is int
}
"""Integer fields of the execution, with their minimum values."""
_SPECS = ("model", "execution", "system")
_NAMED = ("model", "system")
"""Specs whose names are columns of result tables."""


def short_name(source: str) -> str:
    """Return a file name without folder and suffixes; a catalog name unchanged."""
    name = Path(source).name.removesuffix(".gz")
    return Path(name).stem if Path(name).suffix in (*DOCUMENTS, *TABLES) else name


def named_source(text: str) -> tuple[str, str]:
    """Return the name given by a `RESULT` argument (``NAME=RESULT``; empty if none), and the rest of the argument."""
    named = _WITH_NAME.fullmatch(text)
    if named and not Path(text.partition("#")[0]).is_file():
        return named["label"].strip(), named["rest"]
    return "", text


_WITH_NAME = re.compile(r"(?P<label>[^=,/#]+)=(?P<rest>.+)", re.DOTALL)


def file_document(role: str, path: str, name: str) -> Document:
    """Return the hash of a file; raise SpecError for unreadable files and for devices, which may never end."""
    place = Path(path)
    if place.exists() and not (place.is_file() or place.is_dir()):
        raise SpecError(path, Problem("", "a regular file", "a device or a pipe"))
    try:
        with place.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise SpecError(path, Problem("", "a readable file", reason(error))) from None
    return Document(role, name, digest)


def results_in(path: str, selector: str = "", *, every: bool = False) -> Iterator[Result]:
    """Read results from a file.

    Args:
        path: The JSON of ``llm``, ``loe`` or ``study``, or a table.
        selector: A rank, a processor count or both in ``loe``; a row in ``study`` and tables. By default the best of
            each search, and the first row.
        every: Return all results of a JSON file instead of the selected ones.

    Raises:
        SpecError: For a file without results, or with invalid values.
    """
    if document_suffix(path) in TABLES:
        table = read_table(path)
        number = number_in(selector, len(table), path, "row")
        found = iter([_row(table.iloc[[number]].to_dict("records")[0], number, path)])
    elif isinstance(raw := read_document(path), list):
        rows = range(len(raw)) if every else [number_in(selector, len(raw), path, "row")]
        found = (_row(raw[number], number, path) for number in rows)
    elif isinstance(raw, dict) and all(isinstance(key, str) for key in raw):
        found = _in_document(raw, path, selector, every)
    else:
        raise no_result(path)
    documents = (file_document("result", path, Path(path).name),)
    for one in found:
        yield replace(one, documents=documents, parts=(short_name(path) + one.label,), label="")


def _in_document(raw: Mapping[str, Any], path: str, selector: str, every: bool) -> Iterator[Result]:
    """Yield the single result of ``llm``, or the selected results of ``loe``, labeled with their place."""
    if "total_time" in raw:
        check_single(selector, path)
        one, known = _result(raw, path), question_in(raw, path)
        stated = known.get("execution", {}).get("fields")
        place = f"{QUESTION}.execution.fields"
        execution = _execution(stated, path, place) if stated else None
        yield replace(one, execution=execution, question=known or None)
        return
    if PLANS not in raw and "figures" in raw and "campaign" in (known := question_in(raw, path)):
        raise SpecError(path, Problem("", RESULTS, "the whole run of campaign", _of_run(known)))
    # The campaign of a plan without a run is empty.
    whole = question_in(raw, path).get("campaign") or None if PLANS in raw else None
    for search, rank, entries in searches_in(raw, path, selector):
        winners = tuple(_winner(one, path, f"{search}{i}") for i, one in enumerate(entries))
        if whole is not None:  # stored once for all plans of the result
            winners = tuple(
                replace(one, question={"campaign": whole, **(one.question or {})})
                for one in winners
            )
        for number in range(len(winners)) if every else [rank]:
            yield replace(winners[number], winners=winners)


def _of_run(known: Mapping[str, Any]) -> str:
    """Return a hint on the command that makes the page of a whole run, with the names in its document."""
    names = (known.get(kind, {}).get("name", kind.upper()) for kind in _SPECS)
    return f"calculon report {','.join(names)} --campaign NAME|FILE (or --tokens N) has its page"


def _winner(raw: Any, path: str, place: str) -> Result:
    """Return a winner in a document of ``loe``."""
    found, file = decode(FoundExecution, raw, path, place=place), f"{path}: {place}"
    execution = _execution(found.execution, file, "execution")
    one = _result(found.stats, file, "stats", execution["edition"])
    question = question_in(raw, path, place)
    return replace(one, execution=execution, label=place, question=question or None)


def _question_of(row: Mapping[str, Any], edition: str) -> Mapping[str, Any] | None:
    """Return the part of the question that table columns contain: the names of model and system."""
    if edition == PUBLISHED or not (row.get("model") and row.get("system")):
        return None
    return {kind: {"name": str(row[kind])} for kind in _NAMED}


def _row(row: Any, number: int, path: str) -> Result:
    """Return a row of a table of executions and statistics as a result."""
    place = f"row {number}"
    if not isinstance(row, Mapping):
        raise SpecError(path, Problem(place, "an object with statistics", shown(row)))
    plain = {str(name): plain_cell(value) for name, value in row.items()}
    # Searches that found nothing leave a row without statistics.
    if plain.get("total_time", 0) is None:
        raise SpecError(path, Problem(place, "an execution", "a search without any"))
    execution, file = None, f"{path}: {place}"
    if "total_time" not in plain and set(SERVING_FIGURES) <= set(plain):
        hint = "deployments are read from the JSON of serve or serve-optimal (best.json#0)"
        raise SpecError(path, Problem("", RESULTS, "a table of deployments that serve", hint))
    if set(PUBLISHED_NAMES) <= set(plain):
        stated = {name: plain[name] for name in NAMES if plain.get(name) is not None}
        execution = _execution(stated, file)
    one = _result(plain, file)
    known = _question_of(plain, one.edition)
    return replace(one, execution=execution, label=f"#{number}", question=known)


def _execution(raw: Any, file: str, place: str = "") -> dict[str, Any]:
    """Return all fields of an execution, with defaults for unstated optional fields."""
    execution = decode(Execution, raw, file, place=place)
    return all_fields(execution)


def _result(raw: Any, file: str, place: str = "", edition: str = "") -> Result:
    """Return the result in an object with statistics; the object names its edition unless `edition` is given."""
    if not edition:
        edition = decode(InEdition, raw, file).edition
        # With fewer than half of the statistics this is some other document, not a damaged result.
        if sum(name in raw for name in STATISTICS_OF[edition]) < len(STATISTICS_OF[edition]) / 2:
            raise no_result(file, raw)
    one = decode(estimate_record(edition), raw, file, place=place)
    return Result(
        stats=one.stats(edition),
        edition=edition,
        layers=None if one.layers is None else [layer.to_dict() for layer in one.layers],
        interval=_interval(raw) if edition != PUBLISHED else None,
    )


def _interval(raw: Mapping[str, Any]) -> dict[str, float] | None:
    """Return the prediction interval of the time in a result; None if its columns are missing or invalid."""
    low, high = (raw.get(name) for name in BOUNDS)
    if not (_is_number(low) and _is_number(high) and 0 < low <= high < math.inf):  # type: ignore[operator]
        return None
    return {"level": LEVEL, "low": float(low), "high": float(high)}  # type: ignore[arg-type]


def _is_number(value: object) -> bool:
    """Return True if a value is a number in the range of a double, or infinite."""
    return NUMBER.problem(float, value, "") is None


def plain_cell(value: Any) -> Any:
    """Return a cell of a data frame as a plain Python value; None for NaN."""
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and math.isnan(value) else value


def read_rows(path: str, wanted: Callable[[str], bool]) -> Any:
    """Read a table of executions as a data frame: a CSV or Parquet file, or the JSON of ``loe`` or ``study``.

    Args:
        path: File whose suffix determines the format.
        wanted: Function of a column name that returns True if the column is needed; other columns may be omitted.

    Raises:
        SpecError: If the file cannot be read, or if a numeric cell has no number.
    """
    if document_suffix(path) in TABLES:
        return read_table(path, wanted)
    import pandas as pd

    raw = read_document(path)
    if isinstance(raw, list):
        for number, row in enumerate(raw):
            if not isinstance(row, Mapping):
                problem = Problem(f"row {number}", "an object with statistics", shown(row))
                raise SpecError(path, problem)
        return _checked(pd.DataFrame(raw), path)
    rows = []
    for one in results_in(path, every=True):
        if one.execution is None:
            hint = "llm writes statistics alone; search with loe, or dump with lae"
            found = "the statistics of llm"
            raise SpecError(path, Problem("", "executions with their statistics", found, hint))
        names = dict(zip(_NAMED, one.names, strict=True)) if one.names else {}
        rows.append({**one.execution, **one.stats, **names})
    return pd.DataFrame(rows)


def read_table(path: str, wanted: Callable[[str], bool] | None = None) -> Any:
    """Read a CSV or Parquet table as a data frame; arguments and errors as in :func:`read_rows`."""
    import pandas as pd

    try:
        if document_suffix(path) == ".parquet":
            import pyarrow.parquet as pq

            names = pq.read_schema(path).names
            check_columns(path, names)
            chosen = None if wanted is None else list(filter(wanted, names))
            table = pd.read_parquet(path, columns=chosen)
        else:
            check_whole(path)
            table = pd.read_csv(path, usecols=wanted)
    except ImportError:
        hint = "in a checkout of calculon: pip install '.[tables]'; or use .csv"
        problem = Problem("", "the library pyarrow, for Parquet", "it is not installed", hint)
        raise SpecError(path, problem) from None
    except (OSError, EOFError, zlib.error, ValueError) as error:
        if isinstance(error, SpecError):
            raise
        found = reason(error).partition("\n")[0]
        raise SpecError(path, Problem("", "a readable table", found)) from None
    return _checked(table, path)


def check_whole(path: str) -> None:
    """Raise SpecError for a CSV truncated within a row: pandas would read the missing cells as missing values."""
    zipped = path.endswith(".gz")
    with gzip.open(path) if zipped else Path(path).open("rb") as stream:
        header, tail = stream.readline(), b""
        if not zipped:
            stream.seek(max(stream.tell(), Path(path).stat().st_size - _TAIL))
        while more := stream.read(_TAIL):
            tail = tail[-_TAIL:] + more
    last = tail.rstrip(b"\r\n").rpartition(b"\n")[2]
    with contextlib.suppress(csv.Error):  # invalid CSV for this reader: pandas reports it
        names = next(iter(_rows([header.decode()])), [])
        check_columns(path, names)
        rows = _rows([last.decode(errors="replace")])
        if all(len(row) == len(names) for row in rows):
            return
        # The last line may belong to a quoted text with line breaks, so only reading all rows is conclusive.
        with gzip.open(path, "rt") if zipped else Path(path).open(newline="") as lines:
            for number, row in enumerate(csv.reader(lines)):
                if row and len(row) < len(names):
                    wanted, hint = f"{len(names)} cells, as in the header", "is the file cut short?"
                    problem = Problem(f"row {number - 1}", wanted, str(len(row)), hint)
                    raise SpecError(path, problem)


def _rows(lines: Iterable[str]) -> list[list[str]]:
    return [row for row in csv.reader(lines) if row]


_TAIL = 2**20
"""Bytes at the end of a table that are searched for its last row."""


def _checked(table: Any, path: str) -> Any:
    """Return a table with numeric statistics and counts; raise SpecError for the first cell that is not a number."""
    for name in table.columns:
        least = _COUNTS.get(str(name).removeprefix("asked_"))
        if least is None and name not in EVERY_STATISTIC:
            continue
        column = table[name]
        if column.dtype.kind not in "iuf":
            # `value == value` is False only for NaN, the missing value of pandas.
            there = column.map(lambda value: value is not None and value == value)  # noqa: PLR0124
            bad = there & ~column.map(_is_number)
            if not bad.any():
                table[name] = column = column.astype(float)
        if column.dtype.kind in "iuf":
            bad = column.isna() & False
            if least is not None:
                bad = column.notna() & ((column % 1 != 0) | (column < least))
        if bad.any():
            row = int(np.argmax(bad))
            wanted = "a number" if least is None else f"a whole number of at least {least}"
            found = shown(plain_cell(column.iloc[row]))
            raise SpecError(path, Problem(f"row {row}: {name}", wanted, found))
    return table
