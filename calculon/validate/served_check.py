"""A measured benchmark compared with the prediction for the same deployment, and the parts that differ.

A request takes the time to its first token and ``o - 1`` times the time per token. Both have two parts: waiting and
prefill, and decode passes and the prefill of other requests between them. Benchmarks show the second parts if most
passes only decode: the median time between tokens is then the time of a decode pass. The first parts are known if the
file lists the times of all requests: prompts with the shortest times do not wait.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from calculon.base.display import Tabular, columns_of
from calculon.base.errors import Infeasible, Problem, SpecError
from calculon.base.frozen import dataclass
from calculon.declarations.files import read_document
from calculon.declarations.serving_figures import SERVING_FIGURES
from calculon.estimate.served_errors import FIGURES
from calculon.estimate.user_evidence import OwnEvidence, OwnFigure
from calculon.serving.serve import serve
from calculon.serving.served_record import ServedRecord, read_served
from calculon.validate.benchmark_files import Benchmark, prediction_next_to, read_benchmark

COMPARED = ("ttft", "tpot", "request_latency", "output_rate", "request_rate")
"""Figures that benchmarks report."""

_SIMILAR = 0.02
"""Relative difference of lengths from which the requests are not those that were predicted."""

_FEW_PROMPTS = 0.5
"""Share of passes with a chunk of a prompt below which the median time between tokens is a decode pass."""


@dataclass(frozen=True, slots=True)
class CheckedFigure:
    """A figure, measured and predicted; `low` and `high` are the ends of its range, None without one."""

    name: str
    measured: float
    predicted: float
    low: float | None
    high: float | None

    @property
    def ratio(self) -> float:
        """Measured over predicted value."""
        return self.measured / self.predicted if self.predicted else math.nan

    @property
    def inside(self) -> bool | None:
        """True if the measured value is in the range; None without a range."""
        if self.low is None or self.high is None:
            return None
        return self.low <= self.measured <= self.high


@dataclass(frozen=True, slots=True)
class TimePart:
    """A part of the time of a request, in seconds."""

    name: str
    measured: float
    predicted: float

    @property
    def difference(self) -> float:
        """Measured minus predicted time."""
        return self.measured - self.predicted


@dataclass(frozen=True)
class ServedCheck(Tabular):
    """A benchmark next to its prediction.

    Attributes:
        file, prediction: The two files.
        record: The prediction.
        benchmark: The measurement.
        figures: Figures that both have.
        parts: Parts of the time of a request that differ, in the order of a request; empty without times.
        notes: Reasons why the measurement may not be comparable.
    """

    file: str
    prediction: str
    record: ServedRecord
    benchmark: Benchmark
    figures: tuple[CheckedFigure, ...]
    parts: tuple[TimePart, ...]
    notes: tuple[str, ...]

    @property
    def largest(self) -> TimePart | None:
        """Part with the largest difference; None without parts."""
        return max(self.parts, key=lambda one: abs(one.difference), default=None)

    def table(self) -> Mapping[str, list[Any]]:
        """Return a row per figure: unit, measured, predicted, ratio, low and high, and whether it is inside them."""
        return columns_of([_row(one) for one in self.figures], ("figure", "measured", "predicted"))

    def __repr__(self) -> str:
        ratios = ", ".join(f"{one.name} {one.ratio:.3g}" for one in self.figures)
        return f"<ServedCheck: {self.record.model} on {self.record.system}, measured / predicted: {ratios}>"

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-serializable dict."""
        times = [
            {"part": p.name, "measured": p.measured, "predicted": p.predicted} for p in self.parts
        ]
        return {
            "file": self.file,
            "prediction": self.prediction,
            "tool": self.benchmark.tool,
            "model": self.record.model,
            "system": self.record.system,
            "figures": [_row(one) for one in self.figures],
            "parts": times,
            "notes": list(self.notes),
        }


def _row(one: CheckedFigure) -> dict[str, Any]:
    return {
        "figure": one.name,
        "unit": SERVING_FIGURES[one.name].unit.symbol,
        "measured": one.measured,
        "predicted": one.predicted,
        "ratio": one.ratio,
        "low": one.low,
        "high": one.high,
        "inside": one.inside,
    }


def check_benchmark(file: str, prediction: str = "") -> ServedCheck:
    """Compare the result file of a benchmark with a prediction.

    Args:
        file: Result of a benchmark (:func:`~calculon.validate.benchmark_files.read_benchmark`).
        prediction: File of ``calculon serve -o``; by default ``prediction.json`` in the same folder.

    Raises:
        SpecError: For files that cannot be read.
    """
    prediction = prediction or prediction_next_to(file)
    measured = read_benchmark(file)
    record = _prediction(prediction)
    figures = tuple(_figures(measured, record))
    if not figures:
        raise SpecError(file, Problem("", "a figure of the prediction", "none"))
    parts = tuple(_parts(measured, record))
    notes = tuple(_notes(measured, record))
    return ServedCheck(file, prediction, record, measured, figures, parts, notes)


def served_evidence(*files: str) -> OwnEvidence:
    """Return the figures of measured benchmarks that have ranges as evidence, relative to today's predictions.

    Raises:
        SpecError: As :func:`check_benchmark`, and for a prediction without a class of deployments.
    """
    figures = [one for file in files for one in _figures_of(file)]
    return OwnEvidence(", ".join(files), (), tuple(figures))


def _figures_of(file: str) -> Iterator[OwnFigure]:
    """Yield the figures of a benchmark that have ranges, relative to today's prediction."""
    found = check_benchmark(file)
    of_class = found.record.served_class
    if of_class is None:
        wanted = "a prediction with its class of deployments"
        hint = "write it again with calculon serve --deploy"
        raise SpecError(found.prediction, Problem("", wanted, "an older file", hint))
    again = _again(found.record)
    for one in found.figures:
        predicted = again.get(one.name, one.predicted)
        if one.name in FIGURES and predicted and one.measured > 0:
            yield OwnFigure(one.name, of_class, one.measured / predicted)


def _again(record: ServedRecord) -> Mapping[str, float]:
    """Return today's figures of a prediction; empty if model or machine have other names by now."""
    try:
        found = serve(record.model, record.deployment, record.system, record.workload)
    except (SpecError, Infeasible):
        return {}
    return {name: value for name, value in found.stats.items() if value is not None}


def _prediction(path: str) -> ServedRecord:
    raw: Any = read_document(path)
    needed = {"deployment", "workload", "figures", "passes"}
    if not isinstance(raw, Mapping) or not needed <= set(raw):
        hint = "calculon serve --deploy DIR writes one, calculon serve -o FILE as well"
        raise SpecError(
            path, Problem("", "a prediction of calculon serve", "another document", hint)
        )
    return read_served(raw, path)


def _figures(measured: Benchmark, record: ServedRecord) -> Iterator[CheckedFigure]:
    """Yield the figures that are measured and predicted; ranges of wide evidence are not shown as such."""
    for name in COMPARED:
        value, predicted = getattr(measured, name), record.figures[name]
        if value is None or predicted is None or not math.isfinite(predicted):
            continue
        known = record.ranges.get(name)
        ends = (known.low, known.high) if known is not None else (None, None)
        yield CheckedFigure(name, value, predicted, *ends)


def _parts(measured: Benchmark, record: ServedRecord) -> Iterator[TimePart]:
    """Yield the parts of the time of a request that a benchmark distinguishes."""
    f = record.figures
    if measured.ttft is not None and math.isfinite(f["ttft"]):
        waits, lowest = f["queue_time"], measured.lowest_ttft
        if lowest is not None and math.isfinite(waits):
            yield TimePart("waiting before prefill", measured.ttft - lowest, waits)
            yield TimePart("prefill and first token", lowest, f["ttft"] - waits)
        else:
            yield TimePart("time to first token", measured.ttft, f["ttft"])
    if measured.tpot is None or not math.isfinite(f["tpot"]):
        return
    tokens = record.workload.output - 1
    if measured.itl is not None and _mostly_decodes(record):
        both = ("decode passes", measured.itl, f["decode_time"])
        yield TimePart(both[0], tokens * both[1], tokens * both[2])
        rest = measured.tpot - measured.itl, f["tpot"] - f["decode_time"]
        yield TimePart("waiting for prefill of others", tokens * rest[0], tokens * rest[1])
    else:
        yield TimePart("all further tokens", tokens * measured.tpot, tokens * f["tpot"])


def _mostly_decodes(record: ServedRecord) -> bool:
    """Return true if most passes have no chunk of a prompt, and each yields one token."""
    if record.figures["spec_tokens"] != 1:
        return False
    if record.deployment.prefill is not None:
        return True
    load, budget = record.workload, record.deployment.token_budget
    chunks = math.ceil(load.computed / budget) if budget else 1
    return record.batch * chunks / (load.output - 1) < _FEW_PROMPTS


def _notes(measured: Benchmark, record: ServedRecord) -> Iterator[str]:
    """Yield reasons why the requests differ from the predicted ones."""
    load = record.workload
    for name, found, wanted in (
        ("prompt", measured.prompt, load.prompt),
        ("generated", measured.output, load.output),
    ):
        if found is not None and abs(found - wanted) > _SIMILAR * wanted:
            yield f"Requests have {found:,.0f} {name} tokens, the prediction is for {wanted:,}."
    if measured.failed:
        yield f"{measured.failed:,.0f} requests failed."
    if load.users and measured.users and measured.users != load.users:
        yield f"{measured.users:,.0f} concurrent requests, the prediction is for {load.users:,} users."
    if load.rate and measured.request_rate and measured.request_rate < 0.95 * load.rate:
        yield (
            f"{measured.request_rate:.3g} requests/s were answered, {load.rate:g} are predicted: the benchmark was "
            "short, or the deployment was overloaded."
        )
    if load.users and (busy := measured.concurrency) and busy < 0.9 * load.users:
        yield f"On average {busy:,.0f} of {load.users:,} users had a request: use more requests than users."
