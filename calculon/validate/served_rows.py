"""Published rows of served models with their classes, and the coverage of their prediction ranges."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from calculon.base.frozen import dataclass
from calculon.base.units import Array
from calculon.declarations.named_values import PUBLISHED
from calculon.declarations.serving_classes import ENGINES, KINDS, LOADS, ServedClass
from calculon.estimate.served_errors import (
    FIGURES,
    PublishedRow,
    evidence,
    published_rows,
    queued,
)
from calculon.estimate.source_errors import equal_weights
from calculon.validate.measured_and_predicted import Result
from calculon.validate.served import OF_CLASSES

WORDS = {
    "NIM": "nim",
    "SGLang": "sglang",
    "vLLM": "vllm",
    "TensorRT": "tensorrt-llm",
    "llama.cpp": "llama.cpp",
}
"""Engines by a word in their names; rows of other engines, of services and of libraries are not counted."""

BEFORE_2024 = ("TensorRT-LLM 0.5", "TensorRT-LLM 0.6", "TensorRT-LLM 0.7", "vLLM 2023")
"""Prefixes of the names of earlier releases; TensorRT-LLM 0.8 is from February 2024."""

_ESTIMATES = {"run_output_rate": "output_rate"} | {name: name for name in FIGURES}


def served_rows(results: Iterable[Result]) -> list[PublishedRow]:
    """Return measured over predicted figures of served models under edition ``corrected``, for engines since 2024."""
    own = (one for one in results if one.edition != PUBLISHED and one.study.serves)
    return [row for result in own for row in _of_study(result)]


def publisher(source: str) -> str:
    """Return the publisher of a row: its source up to the first slash, colon or at sign.

    >>> publisher("NVIDIA/TensorRT-LLM:docs/source/performance.md@ffd5af342a81")
    'NVIDIA'
    """
    return re.split("[/:@]", source)[0]


def _of_study(result: Result) -> Iterator[PublishedRow]:
    found = result.own.prediction
    place = {row.number: i for i, row in enumerate(result.rows)}
    for one in result.own.comparisons:
        figure = _ESTIMATES.get(one.quantity.estimate.text)
        if figure is None:
            continue
        for row, measured, predicted in zip(one.rows, one.measured, one.estimated, strict=True):
            name = str(row.cells.get("engine", ""))
            engine = next((kind for word, kind in WORDS.items() if word in name), "")
            if not engine or name.startswith(BEFORE_2024):
                continue
            here = place[row.number]
            case = found.cases[here]
            concurrency, most = (float(found.values[figure][here]) for figure in OF_CLASSES)
            family = case.system.provenance.family
            yield PublishedRow(
                figure=figure,
                of_class=ServedClass.of(case.model, engine, family, concurrency, most),
                source=publisher(str(row.cells["source"])),
                study=result.study.name,
                ratio=float(measured / predicted),
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassScore:
    """Errors of published rows of a class.

    Attributes:
        figure, kind, part: Figure, kind of model, and engine, generation or load; empty for all.
        rows, sources: Numbers of published rows and of their sources.
        median, absolute: Medians of the signed and of the absolute errors, in percent of the measured value.
        coverage, below, above: Percentage of the measured values inside, below and above the range from all other
            sources, with equal weights of sources. None with too few sources.
    """

    figure: str
    kind: str
    part: str
    rows: int
    sources: int
    median: float
    absolute: float
    coverage: float | None
    below: float | None
    above: float | None


def class_scores(results: Sequence[Result]) -> list[ClassScore]:
    """Return errors of rows by figure and kind of model, and within these by engine, generation and load.

    Ranges also use rows of the catalog from studies that are not among the results.
    """
    own = served_rows(results)
    names = {one.study.name for one in results}
    others = [row for row in published_rows() if row.study not in names]
    judged = list(zip(own, _sides(own, others), strict=True))
    result = []
    for figure in FIGURES:
        for kind in KINDS:
            rows = [
                one for one in judged if one[0].figure == figure and one[0].of_class.kind == kind
            ]
            result += [_score(figure, kind, "", rows)] if rows else []
            for part in _PARTS:
                values = dict.fromkeys(map(part, (row for row, _ in rows)))
                for value in sorted(values, key=_place) if len(values) > 1 else ():
                    chosen = [one for one in rows if part(one[0]) == value]
                    result.append(_score(figure, kind, value, chosen))
    return result


_PARTS: tuple[Callable[[PublishedRow], str], ...] = (
    lambda row: ENGINES[row.of_class.engine],
    lambda row: row.of_class.generation,
    lambda row: row.of_class.load,
)


def _place(name: str) -> tuple[int, str]:
    """Return the sort key of a part: loads are ascending, other parts are alphabetical."""
    loads = list(LOADS)
    return (loads.index(name) if name in loads else 0, name)


def _sides(own: Sequence[PublishedRow], others: Sequence[PublishedRow]) -> list[float]:
    """Return -1 for rows below the range from all other sources, 1 above, 0 inside; NaN without a range."""
    together = evidence((*own, *others))
    without = {
        (key, source): together[key].without(source)
        for key in together
        for source in dict.fromkeys(row.source for row in together[key].rows)
    }
    result = []
    for row in own:
        rest = without[queued(row.figure, row.of_class), row.source]
        ends = rest.ends(row.of_class) if rest.rows else None
        ratio = np.log(row.ratio)
        result.append(
            np.nan if ends is None else float(ratio > ends.high) - float(ratio < ends.low)
        )
    return result


def _score(
    figure: str, kind: str, part: str, judged: Sequence[tuple[PublishedRow, float]]
) -> ClassScore:
    rows = [row for row, _ in judged]
    errors = np.array([100 * (1 / row.ratio - 1) for row in rows])
    sources = [row.source for row in rows]
    return ClassScore(
        figure=figure,
        kind=kind,
        part=part,
        rows=len(rows),
        sources=len(set(sources)),
        median=float(np.median(errors)),
        absolute=float(np.median(np.abs(errors))),
        **_shares(np.array([side for _, side in judged]), rows),
    )


def _shares(sides: Array, rows: Sequence[PublishedRow]) -> dict[str, Any]:
    """Return the percentages of rows inside, below and above their ranges."""
    known = np.isfinite(sides)
    if not known.any():
        return dict.fromkeys(("coverage", "below", "above"))
    weights = equal_weights([row.source for row in rows], [row.study for row in rows]) * known
    return {
        name: float(100 * weights[sides == side].sum() / weights.sum())
        for name, side in (("coverage", 0), ("below", -1), ("above", 1))
    }
