"""Traces of requests: arrival, prompt and output tokens of each request, in the formats in which they are published.

Sources of the formats: Mooncake, ``FAST25-release/traces`` (Qin et al., FAST 2025); Azure Public Dataset,
``AzureLLMInferenceDataset2023`` (Patel et al., Splitwise); BurstGPT (Wang et al., arXiv 2401.17644); vLLM,
``vllm bench serve --save-result --save-detailed`` and the data sets ``sharegpt`` and ``custom`` of its benchmarks.
"""

import csv
import io
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from itertools import takewhile
from typing import Any, NamedTuple

import numpy as np

from calculon.base.errors import Problem, SpecError
from calculon.base.frozen import dataclass
from calculon.base.units import Array, Count, Seconds
from calculon.declarations.fields import shown
from calculon.declarations.files import read_bytes

HASHED = 512
"""Tokens of a block with an entry of ``hash_ids`` (Mooncake, FAST25-release/README)."""

CHARACTERS = 4
"""Characters per token of text without token counts: a rule of thumb for English (recalled)."""

LONGEST = 10_000_000
"""Largest number of tokens of a request; larger numbers are taken for an error."""


class Columns(NamedTuple):
    """Columns of a format: names of the arrival, the prompt tokens and the output tokens, and the unit of arrivals."""

    arrival: str
    prompt: str
    output: str
    second: float = 1.0


FORMATS = {
    "Mooncake": Columns("timestamp", "input_length", "output_length", 1e-3),
    "Azure LLM inference": Columns("TIMESTAMP", "ContextTokens", "GeneratedTokens"),
    "BurstGPT": Columns("Timestamp", "Request tokens", "Response tokens"),
    "vllm bench": Columns("start_time", "prompt_len", "output_len"),
    "vllm bench, custom": Columns("arrival", "prompt", "output_tokens"),
    "plain": Columns("arrival", "prompt", "output"),
}
"""Formats of one request per line, by their names."""

_SHAREGPT = "ShareGPT"

_BENCH = Columns("start_times", "input_lens", "output_lens")
"""Lists of a detailed result of ``vllm bench serve``."""

_WANTED = (
    "lines with arrival, prompt and output (JSON, or CSV with a header), a trace of Mooncake, Azure or BurstGPT, or a "
    "detailed result of vllm bench serve"
)


@dataclass(frozen=True)
class Trace:
    """Requests in the order of their arrival; arrays of shape ``(requests,)``.

    Attributes:
        name: File, and the format that was recognized.
        arrival: Seconds after the first request; None if the trace has only lengths.
        prompt, output: Tokens.
        cached: Tokens of prompts that an earlier request shares, as known from hashes of blocks.
    """

    name: str
    arrival: Seconds | None
    prompt: Count
    output: Count
    cached: Count

    @property
    def rate(self) -> float | None:
        """Mean requests per second; None without arrivals, or if all requests arrive at once."""
        if self.arrival is None or len(self.arrival) < 2 or not self.arrival[-1] > 0:
            return None
        return float((len(self.arrival) - 1) / self.arrival[-1])

    @property
    def workload(self) -> dict[str, Any]:
        """Fields of a workload with the same means and variations."""
        found: dict[str, Any] = {
            "prompt": max(1, round(float(self.prompt.mean()))),
            "output": max(2, round(float(self.output.mean()))),
            "prompt_cv": _variation(self.prompt),
            "output_cv": _variation(self.output),
            "prefix_hit": float(self.cached.sum() / self.prompt.sum()),
        }
        return found if self.rate is None else found | {"rate": self.rate}


def _variation(values: Array) -> float:
    """Return the standard deviation over the mean."""
    return float(values.std() / values.mean())


def read_trace(path: str) -> Trace:
    """Return the requests of a file, ``-`` for standard input.

    Raises:
        SpecError: For the first line that is no request, with its number, and for files of no known format.
    """
    text = read_bytes(path).decode("utf-8", errors="replace").lstrip("\ufeff")
    if not text.strip():
        raise SpecError(path, Problem("", _WANTED, "an empty file"))
    if text.lstrip()[0] not in "{[":
        return _of_lines(path, _csv_lines(path, text))
    whole = _document(text)
    if isinstance(whole, Mapping) and _BENCH.prompt in whole:
        return _of_bench(path, whole)
    if isinstance(whole, list):
        return _of_lines(path, enumerate(whole, 1))
    return _of_lines(path, _json_lines(path, text))


def _document(text: str) -> Any:
    """Return a whole JSON document; None for lines of documents, and for other text."""
    try:
        return json.loads(text)
    except ValueError:
        return None


def _json_lines(path: str, text: str) -> Iterator[tuple[int, Any]]:
    """Yield the number and the document of each line that is not empty."""
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            try:
                yield number, json.loads(line)
            except ValueError as error:
                wanted = "a JSON object per line"
                raise SpecError(path, Problem(f"line {number}", wanted, str(error))) from None


def _csv_lines(path: str, text: str) -> Iterator[tuple[int, Any]]:
    """Yield the number and the fields of each line after the header."""
    reader = csv.DictReader(io.StringIO(text))
    if not any(set(one[1:3]) <= set(reader.fieldnames or ()) for one in FORMATS.values()):
        raise SpecError(path, Problem("line 1", _WANTED, shown(text.splitlines()[0])))
    for row in reader:
        yield reader.line_num, row


def _of_lines(path: str, lines: Iterable[tuple[int, Any]]) -> Trace:
    """Return the trace of numbered requests, which all have the format of the first."""
    rows: list[tuple[float, float, float]] = []
    hashes: list[Any] = []
    read: Callable[[str, Any], tuple[float, float, float]] | None = None
    title = ""
    for number, line in lines:
        place = f"line {number}"
        if not isinstance(line, Mapping):
            raise SpecError(path, Problem(place, "an object with named fields", shown(line)))
        if read is None:
            title, read = _reader(path, place, line)
        try:
            rows.append(read(place, line))
        except _WrongLine as error:
            raise SpecError(path, error.problem) from None
        hashes.append(line.get("hash_ids"))
    if not rows:
        raise SpecError(path, Problem("", _WANTED, "no request"))
    return _trace(f"{path} ({title})", np.array(rows), hashes)


def _trace(name: str, rows: Array, hashes: list[Any]) -> Trace:
    """Return a trace of arrivals (NaN without one), prompts and outputs, sorted by arrival."""
    arrival: Seconds | None = rows[:, 0]
    cached = np.zeros(len(rows))
    if np.isnan(rows[:, 0]).any():
        arrival = None
    else:
        order = np.argsort(rows[:, 0], kind="stable")
        rows, hashes = rows[order], [hashes[place] for place in order]
        arrival = rows[:, 0] - rows[0, 0]
    if any(hashes):
        cached = np.minimum(_hits(hashes), rows[:, 1] - 1)
    return Trace(name, arrival, rows[:, 1], np.maximum(1.0, rows[:, 2]), cached)


def _hits(hashes: list[Any]) -> Count:
    """Return the tokens of leading blocks that an earlier prompt has, of a cache that drops none."""
    seen: set[Any] = set()
    found = []
    for blocks in hashes:
        listed = blocks if isinstance(blocks, list) else []
        found.append(HASHED * sum(1 for _ in takewhile(seen.__contains__, listed)))
        seen.update(listed)
    return np.array(found, float)


class _WrongLine(Exception):
    def __init__(self, place: str, name: str, wanted: str, value: object):
        super().__init__()
        found = "no such field" if value is None else shown(value)
        self.problem = Problem(f"{place}, {name}", wanted, found)


def _reader(
    path: str, place: str, line: Mapping[str, Any]
) -> tuple[str, Callable[[str, Any], tuple[float, float, float]]]:
    """Return the name of the format of a request, and a function that reads its lines."""
    if "conversations" in line:
        return f"{_SHAREGPT}, {CHARACTERS} characters per token", _conversation
    for title, columns in FORMATS.items():
        if columns.prompt in line and columns.output in line:
            return title, lambda place, line, columns=columns: _request(place, line, columns)
    raise SpecError(path, Problem(place, _WANTED, f"fields {', '.join(map(str, line))}"))


def _request(place: str, line: Mapping[str, Any], columns: Columns) -> tuple[float, float, float]:
    """Return arrival, prompt and output of a line."""
    arrival = math.nan
    if (stated := line.get(columns.arrival)) is not None:
        arrival = _time(place, columns.arrival, stated) * columns.second
    prompt = line.get(columns.prompt)
    if columns.output == "output_tokens" and isinstance(prompt, str):
        prompt = max(1, len(prompt) // CHARACTERS)
    lengths = (
        _tokens(place, columns.prompt, prompt, 1),
        _tokens(place, columns.output, line.get(columns.output), 0),
    )
    return (arrival, *lengths)


def _conversation(place: str, line: Mapping[str, Any]) -> tuple[float, float, float]:
    """Return prompt and output of the first two turns of a conversation, from their characters."""
    turns = line.get("conversations")
    texts = (
        [one.get("value") for one in turns if isinstance(one, Mapping)]
        if isinstance(turns, list)
        else []
    )
    known = [one for one in texts[:2] if isinstance(one, str)]
    if len(known) < 2:
        raise _WrongLine(place, "conversations", "at least two turns with a value", turns)
    prompt, output = (max(1, len(one) // CHARACTERS) for one in known)
    return math.nan, float(prompt), float(output)


def _tokens(place: str, name: str, value: Any, least: int) -> float:
    """Return a number of tokens."""
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not least <= number <= LONGEST or number != int(number):
        raise _WrongLine(place, name, f"a number of tokens from {least}", value)
    return number


def _time(place: str, name: str, value: Any) -> float:
    """Return a time in seconds, of a number or of a date."""
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        number = _date(value)
    if not math.isfinite(number):
        raise _WrongLine(place, name, "a number or a date", value)
    return number


def _date(value: Any) -> float:
    """Return the seconds of a date such as ``2023-11-16 18:15:46.6805900``; not-a-number for anything else."""
    try:
        whole, _, fraction = str(value).strip().partition(".")
        # datetime reads at most six digits of a second
        return (datetime.fromisoformat(whole) - datetime(2000, 1, 1)).total_seconds() + float(
            f"0.{fraction or 0}"
        )
    except (TypeError, ValueError):
        return math.nan


def _of_bench(path: str, whole: Mapping[str, Any]) -> Trace:
    """Return the requests of a detailed result of ``vllm bench serve``."""
    lists = [whole.get(name) for name in _BENCH[:3]]
    prompts, outputs = lists[1:]
    if not isinstance(prompts, list) or not isinstance(outputs, list):
        wanted = f"lists {_BENCH.prompt} and {_BENCH.output}"
        raise SpecError(path, Problem("", wanted, "neither or one", "--save-detailed writes them"))
    starts = lists[0] if isinstance(lists[0], list) else [None] * len(prompts)
    if not len(starts) == len(prompts) == len(outputs):
        found = f"{len(starts):,}, {len(prompts):,} and {len(outputs):,} entries"
        raise SpecError(path, Problem("", f"{', '.join(_BENCH[:3])} of equal lengths", found))
    # a failed request has no output
    entries = zip(starts, prompts, outputs, strict=True)
    lines = (
        (number, {_BENCH.arrival: start, _BENCH.prompt: prompt, _BENCH.output: output})
        for number, (start, prompt, output) in enumerate(entries, 1)
        if output != 0
    )
    return _of_numbered(path, lines)


def _of_numbered(path: str, entries: Iterable[tuple[int, Mapping[str, Any]]]) -> Trace:
    try:
        rows = [_request(f"entry {number}", one, _BENCH) for number, one in entries]
    except _WrongLine as error:
        raise SpecError(path, error.problem) from None
    if not rows:
        raise SpecError(path, Problem("", _WANTED, "no request with an output"))
    return _trace(f"{path} (vllm bench serve)", np.array(rows), [None] * len(rows))
