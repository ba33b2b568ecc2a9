"""Rows of studies that others rest on: measured training steps for intervals, served models for pages."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np

from calculon.base.units import Array
from calculon.declarations.execution import Execution
from calculon.declarations.named_values import PUBLISHED
from calculon.declarations.serving_figures import ALL_ENGINES
from calculon.declarations.statistics import ALL_PARTS_OF_TIME
from calculon.estimate.run_table import Run, about
from calculon.estimate.served_errors import FIGURES, ServedError
from calculon.validate.measured_and_predicted import UTILISATION, Result
from calculon.validate.published_study import UNITS


def run_rows(results: Iterable[Result]) -> list[Run]:
    """Return a run for each measured whole training step of studies, but for those of the published edition."""
    return [run for result in results if result.edition != PUBLISHED for run in _runs(result)]


def csv_rows(runs: Iterable[Run]) -> list[dict[str, str]]:
    """Return runs as rows of the file, with six digits: those of a measurement are fewer."""
    return [
        {name: f"{one:.6g}" if isinstance(one, float) else one for name, one in asdict(run).items()}
        for run in runs
    ]


def _runs(result: Result) -> Iterator[Run]:
    times, study, found = result.steps, result.study, result.own.prediction
    if times is None:
        return
    scale = UNITS[times.quantity.unit][1]
    memory = _memory(result)
    place = {row.number: i for i, row in enumerate(result.rows)}
    values = zip(times.rows, times.measured.tolist(), times.estimated.tolist(), strict=True)
    for row, measured, predicted in values:
        here = place[row.number]
        case = found.cases[here]
        execution = Execution(**{**case.execution, "edition": result.edition})
        usage = {
            name: float(found.values[name][here]) * predicted / measured for name in UTILISATION
        }
        record: dict[str, Any] = {
            "source": study.origin,
            "study": study.name,
            "label": row.label,
            "measured": measured * scale,
            "predicted": predicted * scale,
            "fitted": " ".join(study.fitted),
            "functional": int(study.functional_test),
            "citation": study.source,
            "parts": " ".join(f"{100 * share:.4g}" for share in _shares(found.values, here)),
            **usage,
            **about(case.model, case.system, execution),
            **memory.get(row.number, {}),
        }
        yield Run(**record)


def _shares(values: Mapping[str, Array], row: int) -> Iterator[float]:
    """Yield the shares of the parts of the predicted time of a row."""
    for name in ALL_PARTS_OF_TIME:
        yield float(values[name][row] / values["total_time"][row])


def _memory(result: Result) -> dict[int, dict[str, float]]:
    """Return measured and predicted bytes of a processor by number of the line."""
    found: dict[int, dict[str, float]] = {}
    for one in result.own.comparisons:
        if one.quantity.is_memory:
            scale = UNITS[one.quantity.unit][1]
            pairs = zip(
                one.rows,
                (one.measured * scale).tolist(),
                (one.estimated * scale).tolist(),
                strict=True,
            )
            for row, measured, predicted in pairs:
                found[row.number] = {"measured_memory": measured, "predicted_memory": predicted}
    return found


# Published rows of served models, as the errors by engine that pages of deployments tell.

ENGINES = {
    "NIM": "NIM",
    "SGLang": "SGLang",
    "vLLM": "vLLM",
    "TensorRT": "TensorRT-LLM",
    "llama.cpp": "llama.cpp",
}
"""Engines by a word in their names; rows of others, of services and of libraries, are not counted."""

BEFORE_2024 = ("TensorRT-LLM 0.5", "TensorRT-LLM 0.6", "TensorRT-LLM 0.7", "vLLM 2023")
"""What the names of earlier releases begin with; TensorRT-LLM 0.8 is of February 2024."""

ONE_STREAM = ("llama.cpp",)
"""Engines that do not batch: they are no part of the row of all."""

_ESTIMATES = {"run_output_rate": "output_rate"} | {name: name for name in FIGURES}
_QUANTILES = (0.05, 0.5, 0.95)


class Measured(NamedTuple):
    """A measured value over the predicted one."""

    engine: str
    figure: str
    study: str
    ratio: float


def served_rows(results: Iterable[Result]) -> list[Measured]:
    """Return what was measured of served models over what edition ``corrected`` says, engines since 2024 alone."""
    own = (one for one in results if one.edition != PUBLISHED and one.study.serves)
    return [row for result in own for row in _of_study(result)]


def _of_study(result: Result) -> Iterator[Measured]:
    for one in result.own.comparisons:
        figure = _ESTIMATES.get(one.quantity.estimate.text)
        if figure is None:
            continue
        for row, measured, predicted in zip(one.rows, one.measured, one.estimated, strict=True):
            name = str(row.cells.get("engine", ""))
            engine = next((kind for word, kind in ENGINES.items() if word in name), "")
            if engine and not name.startswith(BEFORE_2024):
                yield Measured(engine, figure, result.study.name, float(measured / predicted))


def error_rows(rows: Sequence[Measured]) -> list[ServedError]:
    """Return the quantiles of all rows, by figure and engine; of all engines each study counts alike."""
    found = []
    for figure in FIGURES:
        own = [row for row in rows if row.figure == figure]
        kinds = sorted({row.engine for row in own})
        batching = [row for row in own if row.engine not in ONE_STREAM]
        groups = [
            (ALL_ENGINES, batching),
            *((k, [row for row in own if row.engine == k]) for k in kinds),
        ]
        found += [_errors(engine, figure, group) for engine, group in groups if group]
    return found


def _errors(engine: str, figure: str, rows: Sequence[Measured]) -> ServedError:
    studies = [row.study for row in rows]
    weights = np.array([1 / studies.count(name) for name in studies])
    low, median, high = quantiles(np.array([row.ratio for row in rows]), weights)
    return ServedError(
        engine=engine,
        figure=figure,
        rows=len(rows),
        studies=len(set(studies)),
        low=low,
        median=median,
        high=high,
    )


def quantiles(values: Array, weights: Array) -> tuple[float, float, float]:
    """Return the quantiles of 5, 50 and 95 % of weighted values: the least with so much of the weight up to them.

    >>> quantiles(np.array([3.0, 1.0, 2.0]), np.ones(3))
    (1.0, 2.0, 3.0)
    """
    order = np.argsort(values, kind="stable")
    share = np.cumsum(weights[order]) / np.sum(weights)
    places = np.minimum(np.searchsorted(share, _QUANTILES), len(values) - 1)
    low, median, high = (float(values[order][place]) for place in places)
    return low, median, high
