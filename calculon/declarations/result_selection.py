"""Executions and deployments selected from result files (``best.json#2``), with the question that they answer."""

import re
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from calculon.base.errors import Problem, SpecError
from calculon.declarations.csv_rows import parse_csv
from calculon.declarations.decode import decode
from calculon.declarations.execution import Execution
from calculon.declarations.fields import shown, spec_fields
from calculon.declarations.files import document_suffix, read_bytes
from calculon.declarations.result_records import (
    DEPLOYMENT,
    FoundDeployments,
    FoundExecution,
    question_in,
    without_replicas,
)
from calculon.declarations.run_figures import DAYS_BETWEEN
from calculon.declarations.statistics import BOUNDS

PLANS = "plans"
"""Member of the answer of ``plan`` with its plans by rank, like the winners in the document of a search."""

WINNERS, WORKLOAD = "winners", "workload"
"""Members of the result of a search for deployments; a serving result has a workload, too."""

FURTHER_COLUMNS = (
    *("reason", "layers", *BOUNDS),
    *("search", "total", "good", "bad", "rank", "model", "system"),
    *("max_batch_size", "mbs_break", "any_batch", "objective", "where", "fix", "add", "top"),
    *("role", "tokens", "tokens_per_step", "meets", "frontier", "memory_remark", *DAYS_BETWEEN),
)
"""Columns of result tables that are neither execution fields nor statistics; most belong to studies."""

TABLE = ".csv"
_SEPARATOR = re.compile("[:/]")


def split(source: str) -> tuple[str, str]:
    """Return the file and the selector of a text such as ``best.json#2`` or ``best.json#1024:2``.

    Raises:
        SpecError: For an existing file followed by ``#`` without a selector.
    """
    path, mark, selector = source.partition("#")
    if mark and not selector and Path(path).is_file() and not Path(source).exists():
        raise SpecError(
            source, Problem("", f"a rank or a row after #, such as {path}#0", "nothing")
        )
    return (source, "") if not selector or Path(source).exists() else (path, selector)
    # File names may contain a #, so a file with the full name takes precedence over a selector.


def is_result(raw: object) -> bool:
    """Return True if a document is the result of an estimate, of a search, or of several of these."""
    if isinstance(raw, list):
        return any(isinstance(row, Mapping) and "total_time" in row for row in raw[:1])
    if not isinstance(raw, Mapping):
        return False
    raw = searched(raw)
    inside = next(iter(raw.values()), None)
    return "total_time" in raw or is_winner(inside) or any(map(is_winner, _values(inside)))


def searched(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the search results in a document: the plans of an answer, or the whole document."""
    plans = raw.get(PLANS)
    return plans if isinstance(plans, Mapping) else raw


def is_winner(value: object) -> bool:
    """Return True if a value is one result of a search."""
    return isinstance(value, Mapping) and {"execution", "stats"} <= value.keys()


def _values(value: object) -> list[Any]:
    return list(value.values()) if isinstance(value, Mapping) else []


def is_served(raw: Mapping[str, Any]) -> bool:
    """Return True if a document is the result of a search for deployments, or a serving result."""
    return isinstance(raw.get(WINNERS), list) or isinstance(raw.get(DEPLOYMENT), Mapping)


def deployment_in(raw: Mapping[str, Any], selector: str, path: str) -> Mapping[str, Any]:
    """Return the deployment of a serving document (:func:`is_served`); by default the best.

    Raises:
        SpecError: If the selector matches nothing, or the selected value is not a deployment.
    """
    if not isinstance(raw.get(WINNERS), list):
        check_single(selector, path)
        return dict(without_replicas(raw[DEPLOYMENT], path, DEPLOYMENT))
    winners = decode(FoundDeployments, raw, path).winners
    rank = number_in(selector, len(winners), path, "rank")
    place = f"{WINNERS}[{rank}].{DEPLOYMENT}"
    return dict(without_replicas(winners[rank].deployment, path, place))


def workload_in(raw: Mapping[str, Any], selector: str, path: str) -> Mapping[str, Any]:
    """Return the workload of a serving document (:func:`is_served`); a search has one for all deployments.

    Raises:
        SpecError: If the selector matches nothing, or the document does not state its workload.
    """
    deployment_in(raw, selector, path)
    result = raw.get(WORKLOAD)
    if not isinstance(result, Mapping):
        raise SpecError(path, Problem(WORKLOAD, "a workload", shown(result)))
    return result


def execution_in(
    raw: object, selector: str, path: str
) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return the execution of a result, and its question, which is empty if the file does not state it.

    Args:
        raw: A document for which :func:`is_result` holds.
        selector: Rank in a search, by default the best; for several processor counts, count and rank; for a list, row.
        path: Source of the document, for messages.

    Raises:
        SpecError: If the selection is empty or ambiguous, or for an estimate that does not state its execution.
    """
    if isinstance(raw, list):
        return _row(raw[number_in(selector, len(raw), path, "row")], path)
    if not isinstance(raw, Mapping) or not all(isinstance(key, str) for key in raw):
        raise no_result(path)
    if "total_time" in raw:
        check_single(selector, path)
        question = question_in(raw, path)
        fields = question.get("execution", {}).get("fields")
        if not fields:
            hint = "give the inputs of the estimate instead"
            wanted = "a result that states its execution"
            raise SpecError(path, Problem("", wanted, "only the statistics of llm", hint))
        return fields, question
    found = list(searches_in(raw, path, selector))
    if len(found) > 1:
        counts = [place.strip("#/") for place, _, _ in found]
        wanted = (
            f"one of the processor counts: {path}#{counts[0]}, or with a rank {path}#{counts[0]}:0"
        )
        raise SpecError(path, Problem("", wanted, f"{len(found)} of them: {', '.join(counts)}"))
    ((place, rank, entries),) = found
    entry, place = entries[rank], f"{place}{rank}"
    execution = decode(FoundExecution, entry, path, place=place).execution
    return execution, question_in(entry, path, place)


def row_of_table(path: str, selector: str) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return the execution in a row of a CSV result file, and its question; errors as in :func:`execution_in`."""
    try:
        text = read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise SpecError(path, Problem("", "a table", "not a CSV text")) from None
    lines = parse_csv(path, text, ("num_procs",), most_rows=len(text))
    cells = lines[number_in(selector, len(lines), path, "row")].cells
    return _row({k: _cell(k, v) for k, v in cells.items() if k and v}, path)


def is_table(path: str) -> bool:
    """Return True if a file name has the suffix of a CSV file."""
    return document_suffix(path) == TABLE and not path.endswith(".gz")


_FIELDS = {field.key: field for field in spec_fields(Execution)}


def _cell(name: str, text: str) -> Any:
    """Return a cell converted to the type of its execution field; otherwise as text, which the decoder reports."""
    kind = _FIELDS[name].annotation if name in _FIELDS else str
    if kind is bool and text in ("True", "False", "true", "false"):
        return text.lower() == "true"
    if kind is int:
        # pandas writes a column of integers with blanks as floats: 8.0.
        whole = text.removesuffix(".0")
        return int(whole) if re.fullmatch(r"-?\d{1,18}", whole) else text
    return text


def _row(row: Any, path: str) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return the execution fields in a row, and the part of the question that it states."""
    fields = {k: v for k, v in _mapping(row).items() if k in _FIELDS and v is not None}
    if not fields:
        raise SpecError(path, Problem("", "a row with an execution", shown(row)))
    return fields, {kind: {"name": row[kind]} for kind in ("model", "system") if row.get(kind)}


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def searches_in(
    raw: Mapping[str, Any], path: str, selector: str
) -> Iterator[tuple[str, int, list[Any]]]:
    """Yield place, rank and all entries of the selected searches in a document of ``loe``.

    Raises:
        SpecError: For another kind of document, and if the selection is empty.
    """
    raw = searched(raw)
    if not all(isinstance(one, Mapping) for one in raw.values()):
        raise no_result(path)
    several = not any("execution" in one for one in raw.values())  # one search per processor count
    searches = {key: list(one.values()) for key, one in raw.items()} if several else {}
    searches = searches or {"": list(raw.values())}
    parts = _SEPARATOR.split(selector, maxsplit=1)
    if len(parts) > 1 and not several:
        raise SpecError(path, Problem("", "#RANK", f"#{selector}, but the file holds one search"))
    first, rank = parts if len(parts) > 1 else (parts[0], "")
    count, rank = (first, rank) if several else ("", first)
    if count and count not in searches:
        found = f"#{selector}; the processors are {', '.join(searches)}"
        raise SpecError(path, Problem("", "#PROCS or #PROCS:RANK", found))
    chosen = {count: searches[count]} if count else searches
    if not any(chosen.values()):
        raise SpecError(path, Problem("", "a search with results", "no executions"))
    for key, entries in chosen.items():
        if entries or count:
            place = f"#{key}/" if key else "#"
            yield place, number_in(rank, len(entries), path, "rank"), entries


def number_in(text: str, count: int, path: str, noun: str) -> int:
    """Read a rank or a row; the first if there is no text."""
    number = text or "0"
    if not count and not text:
        raise SpecError(path, Problem("", f"at least one {noun}", "none"))
    if not (number.isdecimal() and len(number) < 20 and int(number) < count):
        raise SpecError(path, Problem("", f"a {noun} from 0 to {count - 1}", f"#{text}"))
    return int(number)


def check_single(selector: str, path: str) -> None:
    """Check that nothing is selected from a file with a single estimate."""
    if selector:
        found = f"#{selector}, but the file holds one estimate"
        raise SpecError(path, Problem("", "a file name without #", found))


RESULTS = "the JSON of llm, loe, plan or study"
"""Kinds of result files with executions."""


def no_result(path: str, raw: object = None) -> SpecError:
    """Return the error for a document without results; it names the first members of an object."""
    names = ", ".join(map(str, islice(raw, 3))) if isinstance(raw, Mapping) else ""
    hint = "compare and report read the JSON of serve and serve-optimal, too"
    return SpecError(
        path, Problem("", RESULTS, f"an object with {names}" if names else "another document", hint)
    )
