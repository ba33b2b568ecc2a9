"""Result files of serving benchmarks: ``vllm bench serve``, ``sglang.bench_serving``, TensorRT-LLM and GenAI-Perf.

Sources: docs.vllm.ai, ``vllm bench serve --save-result`` (also written by TensorRT-LLM's ``benchmark_serving``);
docs.sglang.io, *Bench Serving Guide* (JSON lines); nvidia.github.io/TensorRT-LLM, ``trtllm-bench --report_json``;
docs.nvidia.com, GenAI-Perf and AIPerf (``profile_export_*.json``). Means are read, since predictions are means.
"""

import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from calculon.base.errors import Problem, SpecError
from calculon.base.frozen import dataclass
from calculon.declarations.files import read_bytes

_LOWEST = 0.1
"""Quantile of the times to first token that stands for a prompt without waiting; the minimum may be a warm-up."""

_FEWEST = 20
"""Fewest requests for which this quantile is used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """Measured means of a benchmark; None if the file lacks one.

    Attributes:
        tool: Program that wrote the file.
        ttft, tpot, request_latency: Times in seconds.
        itl: Median time between two tokens, in seconds.
        lowest_ttft: Time to first token of requests that do not wait, in seconds.
        output_rate, request_rate: Generated tokens and requests per second.
        prompt, output: Mean tokens of a prompt and of an output.
        users: Largest number of concurrent requests.
        completed, failed: Numbers of requests.
    """

    tool: str
    ttft: float | None
    tpot: float | None
    request_latency: float | None
    itl: float | None = None
    lowest_ttft: float | None = None
    output_rate: float | None
    request_rate: float | None
    prompt: float | None
    output: float | None
    users: float | None
    completed: float | None
    failed: float | None

    @property
    def concurrency(self) -> float | None:
        """Mean number of concurrent requests, by Little's law; None if it is unknown."""
        if self.request_rate is None or self.request_latency is None:
            return None
        return self.request_rate * self.request_latency


def read_benchmark(file: str) -> Benchmark:
    """Read a result file of any of the tools; of JSON lines the last one.

    Raises:
        SpecError: For an unreadable file, a file of another program, and one without any time or rate.
    """
    raw = _document(read_bytes(file), file)
    for found, read in _READERS:
        if found(raw):
            result = read(_Numbers(raw, file))
            break
    else:
        tools = "vllm bench serve, sglang.bench_serving, trtllm-bench, GenAI-Perf or AIPerf"
        raise SpecError(file, Problem("", f"the JSON result of {tools}", "another document"))
    if all(one is None for one in (result.ttft, result.tpot, result.output_rate)):
        hint = "a run in which all requests fail has no results"
        raise SpecError(file, Problem("", "a measured time or rate", "none", hint))
    return result


def _document(data: bytes, file: str) -> Mapping[str, Any]:
    """Return the last JSON object of a file; a file with line breaks in one object is JSON, too."""
    text = data.decode("utf-8", errors="replace").strip()
    last = text.splitlines()[-1] if text else ""
    for candidate in (text, last):
        try:
            raw = json.loads(candidate)
        except (ValueError, RecursionError):  # RecursionError: nested too deeply
            continue
        if isinstance(raw, Mapping):
            return raw
    raise SpecError(file, Problem("", "a JSON object", "another text" if text else "nothing"))


class _Numbers:
    """Numbers in a document by path."""

    def __init__(self, raw: Mapping[str, Any], file: str):
        self.raw, self.file = raw, file

    def __call__(self, *paths: str, scale: float = 1.0) -> float | None:
        """Return the first number of these paths times `scale`; None if there is none.

        Raises:
            SpecError: For a value that is no number of at least 0.
        """
        for path in paths:
            value: Any = self.raw
            for name in path.split("."):
                value = value.get(name) if isinstance(value, Mapping) else None
            if value is None or value in ("inf", math.inf):
                continue
            if not _is_number(value):
                raise SpecError(
                    self.file, Problem(path, "a number of at least 0", repr(value)[:40])
                )
            return float(value) * scale
        return None

    def times(self, path: str) -> list[float]:
        """Return a list of times in seconds; empty without one."""
        values = self.raw.get(path)
        numbers = values if isinstance(values, list) else []
        return [float(v) for v in numbers if _is_number(v) and v > 0]


def _is_number(value: object) -> bool:
    """Return true for a number of at least 0 that a float can hold; JSON has no limit for integers."""
    known = isinstance(value, (int, float)) and not isinstance(value, bool)
    return known and 0 <= value <= sys.float_info.max  # type: ignore[operator]


_MS = 1e-3


def _client(numbers: _Numbers) -> Benchmark:
    """Read a result of vLLM, SGLang, or TensorRT-LLM's ``benchmark_serving``, which share names."""
    completed = numbers("completed")
    done = completed or math.nan
    tokens = {n: numbers(f"total_{n}_tokens") for n in ("input", "output")}
    mean = {n: v / done if v is not None and done > 0 else None for n, v in tokens.items()}
    ttft, tpot = (numbers(f"mean_{name}_ms", scale=_MS) for name in ("ttft", "tpot"))
    whole = numbers("mean_e2el_ms", "mean_e2e_latency_ms", scale=_MS)
    if whole is None and None not in (ttft, tpot, mean["output"]):
        whole = ttft + tpot * (mean["output"] - 1)  # type: ignore[operator]
    sglang = "mean_e2e_latency_ms" in numbers.raw
    return Benchmark(
        tool="sglang.bench_serving" if sglang else "vllm bench serve",
        ttft=ttft,
        tpot=tpot,
        request_latency=whole,
        itl=numbers("median_itl_ms", scale=_MS),
        lowest_ttft=_lowest(numbers.times("ttfts")),
        output_rate=numbers("output_throughput"),
        request_rate=numbers("request_throughput"),
        prompt=mean["input"],
        output=mean["output"],
        users=numbers("max_concurrency"),
        completed=completed,
        failed=numbers("failed"),
    )


def _lowest(times: list[float]) -> float | None:
    return sorted(times)[int(_LOWEST * len(times))] if len(times) >= _FEWEST else None


def _engine(numbers: _Numbers) -> Benchmark:
    """Read a report of ``trtllm-bench``; it has times of tokens only for streamed responses."""
    return Benchmark(
        tool="trtllm-bench",
        ttft=numbers("streaming_metrics.avg_ttft_ms", scale=_MS),
        tpot=numbers("streaming_metrics.avg_tpot_ms", scale=_MS),
        request_latency=numbers("performance.avg_request_latency_ms", scale=_MS),
        output_rate=numbers("performance.system_output_throughput_tok_s"),
        request_rate=numbers("performance.request_throughput_req_s"),
        prompt=numbers("dataset.avg_isl", "request_info.avg_input_length"),
        output=numbers("dataset.avg_osl", "request_info.avg_output_length"),
        users=None,
        completed=numbers("request_info.num_requests"),
        failed=None,
    )


_UNITS = {"ms": 1e-3, "s": 1.0, "us": 1e-6, "ns": 1e-9}


def _nvidia(numbers: _Numbers) -> Benchmark:
    """Read an export of GenAI-Perf or AIPerf; early releases of AIPerf nest the metrics in ``records``."""
    above = "records." if isinstance(numbers.raw.get("records"), Mapping) else ""
    metrics = numbers.raw["records"] if above else numbers.raw

    def time(name: str, figure: str = "avg") -> float | None:
        metric = metrics.get(name)
        unit = metric.get("unit", "ms") if isinstance(metric, Mapping) else "ms"
        return numbers(f"{above}{name}.{figure}", scale=_UNITS.get(str(unit), _MS))

    def mean(name: str) -> float | None:
        return numbers(f"{above}{name}.avg")

    return Benchmark(
        tool="GenAI-Perf or AIPerf",
        ttft=time("time_to_first_token"),
        tpot=time("inter_token_latency"),
        request_latency=time("request_latency"),
        itl=None,  # their inter-token latency is a mean over the tokens of each request
        output_rate=mean("output_token_throughput"),
        request_rate=mean("request_throughput"),
        prompt=mean("input_sequence_length"),
        output=mean("output_sequence_length"),
        users=None,
        completed=mean("request_count"),
        failed=mean("error_request_count"),
    )


_READERS: tuple[
    tuple[Callable[[Mapping[str, Any]], bool], Callable[[_Numbers], Benchmark]], ...
] = (
    (lambda raw: "mean_ttft_ms" in raw or "output_throughput" in raw, _client),
    (lambda raw: isinstance(raw.get("performance"), Mapping), _engine),
    (lambda raw: any("request_throughput" in one for one in _levels(raw)), _nvidia),
)


def _levels(raw: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield raw
    if isinstance(raw.get("records"), Mapping):
        yield raw["records"]


def prediction_next_to(file: str) -> str:
    """Return the path of the prediction in the folder of a result file."""
    return str(Path(file).parent / "prediction.json")
