"""Results in files: the JSON of ``llm``, ``loe`` and ``study``, and rows of tables."""

import hashlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from calculon.apps.cli.result_records import (
    EVERY_STATISTIC,
    edition_of,
    fields_of,
    fields_of_row,
    plain_cell,
    stats_of,
)
from calculon.apps.report.plain_result import Document, Result, Winner
from calculon.errors import Problem, SpecError
from calculon.spec.decode import decode
from calculon.spec.execution import Execution
from calculon.spec.files import SUFFIXES, document_suffix, read_document, reason

DOCUMENTS, TABLES = SUFFIXES, (".csv", ".parquet")


@dataclass(frozen=True, slots=True)
class Found:
    """A result, and the parts of which a name for it can be made."""

    result: Result
    parts: tuple[str, ...]


def short_name(source: str) -> str:
    """Return a file name without folder and suffixes; a catalog name as it stands."""
    name = Path(source).name.removesuffix(".gz")
    return Path(name).stem if Path(name).suffix in (*DOCUMENTS, *TABLES) else name


def file_document(role: str, path: str, name: str) -> Document:
    """Return the hash of a file.

    Raises
    ------
    SpecError
        When it cannot be read.
    """
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise SpecError(path, Problem("", "a readable file", reason(error))) from None
    return Document(role, name, hashlib.sha256(content).hexdigest())


def in_document(path: str, selector: str) -> Iterator[Found]:
    """Read the JSON of ``llm``, of ``loe`` (those that a selector picks) or of ``study`` (one row).

    Raises
    ------
    SpecError
        When it is none of these, or lacks what was picked.
    """
    raw = read_document(path)
    if isinstance(raw, list):
        number = _number(selector, len(raw), path, "row")
        yield _row(raw[number], number, path)
        return
    if not isinstance(raw, Mapping) or not all(isinstance(key, str) for key in raw):
        raise SpecError(path, Problem("", "the JSON of llm, loe or study", "another document"))
    document = file_document("result", path, Path(path).name)
    if "total_time" in raw:
        if selector:
            found = f"#{selector}, but the file holds one estimate"
            raise SpecError(path, Problem("", "a file name without #", found))
        edition = edition_of(raw, path, "")
        one = Result(
            label="",
            stats=stats_of(raw, path, "", edition),
            edition=edition,
            layers=raw.get("layers"),
            documents=(document,),
        )
        yield Found(one, (short_name(path),))
        return
    for title, rank, entries in _picked(raw, path, selector):
        winners = tuple(_winner(one, path, title) for one in entries)
        one = Result(
            label="",
            stats=winners[rank].stats,
            edition=winners[rank].execution["edition"],
            layers=entries[rank]["stats"].get("layers"),
            execution=winners[rank].execution,
            documents=(document,),
            winners=winners,
        )
        yield Found(one, (short_name(path) + title,))


def all_results(path: str) -> Iterator[Found]:
    """Yield every result of a JSON file; errors as in :func:`in_document`."""
    raw = read_document(path)
    if isinstance(raw, list):
        yield from (found for i in range(len(raw)) for found in in_document(path, str(i)))
    elif isinstance(raw, Mapping) and "total_time" not in raw:
        for title, _, entries in _picked(raw, path, ""):
            count = title.rpartition("/")[0].removeprefix("#")
            for rank, entry in enumerate(entries):
                place = f"#{count}/{rank}" if count else f"#{rank}"
                winner = _winner(entry, path, place)
                one = Result(
                    label="",
                    stats=winner.stats,
                    edition=winner.execution["edition"],
                    execution=winner.execution,
                )
                yield Found(one, (short_name(path) + place,))
    else:
        yield from in_document(path, "")


def _picked(
    raw: Mapping[str, Any], path: str, selector: str
) -> Iterator[tuple[str, int, list[Any]]]:
    """Yield title, rank and all entries of the searches that a selector picks from a document of ``loe``."""
    if "total_time" in raw:
        hint = "llm writes statistics alone; search with loe, or dump with lae"
        found = "the statistics of llm"
        raise SpecError(path, Problem("", "executions with their statistics", found, hint))
    if not all(isinstance(one, Mapping) for one in raw.values()):
        raise SpecError(path, Problem("", "the JSON of llm, loe or study", "another document"))
    several = not any("execution" in one for one in raw.values())  # one search per processor count
    searches = {key: list(one.values()) for key, one in raw.items()} if several else {}
    searches = searches or {"": list(raw.values())}
    first, slash, second = selector.partition("/")
    if slash and not several:
        raise SpecError(path, Problem("", "#RANK", f"#{selector}, but the file holds one search"))
    count, rank = (first, second) if several else ("", first)
    if count and count not in searches:
        found = f"#{selector}; the processors are {', '.join(searches)}"
        raise SpecError(path, Problem("", "#PROCS or #PROCS/RANK", found))
    chosen = {count: searches[count]} if count else searches
    if not any(chosen.values()):
        raise SpecError(path, Problem("", "a search that found something", "no executions"))
    for key, entries in chosen.items():
        if entries or count:
            number = _number(rank, len(entries), path, "rank")
            yield f"#{key}/{number}" if key else f"#{number}", number, entries


def _winner(raw: Any, path: str, place: str) -> Winner:
    """Return an entry of a document of ``loe``."""
    if not isinstance(raw, Mapping) or not {"execution", "stats"} <= set(raw):
        raise SpecError(path, Problem(place, "an execution and its stats", "something else"))
    try:
        execution = decode(Execution, raw["execution"], path)
    except SpecError as error:
        inner = [replace(p, field=f"{place}: execution.{p.field}") for p in error.problems]
        raise SpecError(path, inner[:3]) from None
    stats = stats_of(raw["stats"], path, f"{place}: stats.", execution.edition)
    return Winner(fields_of(execution), stats)


def _number(text: str, count: int, path: str, what: str) -> int:
    """Read a rank or a row; the first when there is no text."""
    number = text or "0"
    if not number.isdecimal() or int(number) >= count:
        raise SpecError(path, Problem("", f"a {what} from 0 to {count - 1}", f"#{text}"))
    return int(number)


def in_table(path: str, selector: str) -> Iterator[Found]:
    """Read one row of a table; errors as in :func:`in_document`."""
    table = read_table(path)
    if not len(table):
        raise SpecError(path, Problem("", "a table with rows", "none"))
    number = _number(selector, len(table), path, "row")
    yield _row(table.iloc[[number]].to_dict("records")[0], number, path)


def _row(row: Any, number: int, path: str) -> Found:
    """Return one row of a table of executions and statistics."""
    if not isinstance(row, Mapping):
        raise SpecError(path, Problem(f"row {number}", "an object with statistics", "another"))
    plain = {str(name): plain_cell(value) for name, value in row.items()}
    edition = edition_of(plain, path, f"row {number}: ")
    if plain.get("total_time", 0) is None:
        raise SpecError(path, Problem(f"row {number}", "an execution", "a search without any"))
    document = file_document("result", path, Path(path).name)
    stats = stats_of(plain, path, f"row {number}: ", edition)
    one = Result(
        label="",
        stats=stats,
        edition=edition,
        execution=fields_of_row(plain),
        documents=(document,),
    )
    return Found(one, (f"{short_name(path)}#{number}",))


def read_rows(path: str, columns: Collection[str]) -> Any:
    """Read a table of executions as a data frame: of a CSV or Parquet file, or of the JSON of ``loe`` or ``study``.

    Parameters
    ----------
    path : str
        Its name tells the format.
    columns : collection of str
        What is needed of it; others may be left out.
    """
    if document_suffix(path) in TABLES:
        return read_table(path, columns)
    import pandas as pd

    raw = read_document(path)
    if not isinstance(raw, list):
        document = raw if isinstance(raw, Mapping) else {}
        entries = [
            _winner(entry, path, title)
            for title, _, found in _picked(document, path, "")
            for entry in found
        ]
        raw = [{**entry.execution, **entry.stats} for entry in entries]
    return pd.DataFrame(raw)


def read_table(path: str, columns: Collection[str] | None = None) -> Any:
    """Read a CSV, Parquet or JSON table of rows as a data frame.

    Parameters
    ----------
    path : str
        Its name tells the format.
    columns : collection of str, optional
        Read only these, as far as they are there.

    Raises
    ------
    SpecError
        When it cannot be read.
    """
    import pandas as pd

    wanted = None if columns is None else set(columns)
    try:
        if document_suffix(path) == ".parquet":
            import pyarrow.parquet as pq

            there = pq.read_schema(path).names
            chosen = None if wanted is None else [n for n in there if n in wanted]
            return _numeric(pd.read_parquet(path, columns=chosen), path)
        usecols = None if wanted is None else lambda name: name in wanted
        return _numeric(pd.read_csv(path, usecols=usecols), path)
    except SpecError:
        raise
    except ImportError:
        hint = "pip install 'calculon[tables]', or use .csv"
        problem = Problem("", "the library pyarrow, for Parquet", "it is not installed", hint)
        raise SpecError(path, problem) from None
    except (OSError, ValueError) as error:
        found = reason(error).partition("\n")[0]
        raise SpecError(path, Problem("", "a readable table", found)) from None


def _numeric(table: Any, path: str) -> Any:
    """Return a table whose statistics are numbers; SpecError for the first cell that is none."""
    for name in EVERY_STATISTIC:
        if name in table.columns and table[name].dtype.kind not in "iuf":
            for number, value in enumerate(table[name]):
                if value is not None and not isinstance(value, (int, float)):
                    problem = Problem(f"row {number}: {name}", "a number", repr(value))
                    raise SpecError(path, problem)
    return table
