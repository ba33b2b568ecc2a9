"""Published rows of served models with their classes, and the coverage of their prediction ranges."""

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from calculon.base.frozen import dataclass
from calculon.declarations.named_values import PUBLISHED
from calculon.declarations.serving_classes import ENGINES, KINDS, LOADS, ServedClass
from calculon.estimate.served_errors import (
    FIGURES,
    Evidence,
    PublishedRow,
    evidence,
    published_rows,
    queued,
)
from calculon.validate.measured_and_predicted import Comparison, Result
from calculon.validate.published_study import fill
from calculon.validate.served import OF_CLASSES
from calculon.validate.study_rows import values

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
        columns = one.rows, one.measured, one.estimated, _fitted(result, one)
        for row, measured, predicted, fitted in zip(*columns, strict=True):
            name = str(row.cells.get("engine", ""))
            engine = next((kind for word, kind in WORDS.items() if word in name), "")
            if not engine or name.startswith(BEFORE_2024) or fitted:
                continue
            here = place[row.number]
            case = found.cases[here]
            concurrency, most = (float(found.values[figure][here]) for figure in OF_CLASSES)
            family = case.system.provenance.family
            apart = "prefill" in case.execution
            yield PublishedRow(
                figure=figure,
                of_class=ServedClass.of(case.model, engine, family, concurrency, most, apart=apart),
                model=fill(result.study.model.source, row.cells),
                system=case.system.name,
                source=publisher(str(row.cells["source"])),
                study=result.study.name,
                ratio=float(measured / predicted),
            )


def _fitted(result: Result, one: Comparison) -> list[Any]:
    """Return whether a fit of the compared figure used each row."""
    condition, name = one.quantity.fitted, one.quantity.name
    if condition is None:
        return [False] * len(one.rows)
    return values(result.study, condition, one.rows, f"quantities.{name}.fitted")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassScore:
    """Errors of published rows of a class.

    Attributes:
        figure, kind, part: Figure, kind of model, and engine, generation or load; empty for all.
        rows, campaigns, sources: Numbers of published rows, of their campaigns and of their publishers.
        median, absolute: Medians of the signed and of the absolute errors, in percent of the measured value.
        new_campaign, new_source: Percentage of the rows inside the range from all other campaigns, and from all other
            publishers. None with too few of them.
    """

    figure: str
    kind: str
    part: str
    rows: int
    campaigns: int
    sources: int
    median: float
    absolute: float
    new_campaign: float | None
    new_source: float | None


Judged = tuple[PublishedRow, bool | None, bool | None]
"""Row, and whether the ranges from all other campaigns and from all other publishers contain it; None: no range."""


def class_scores(results: Sequence[Result]) -> list[ClassScore]:
    """Return errors of rows by figure and kind of model, and within these by engine, generation, load and pools.

    Ranges also use rows of the catalog from studies that are not among the results.
    """
    own = served_rows(results)
    names = {one.study.name for one in results}
    others = [row for row in published_rows() if row.study not in names]
    inside = (_inside(own, others, key) for key in (_campaign, _source))
    judged = list(zip(own, *inside, strict=True))
    result = []
    for figure in FIGURES:
        for kind in KINDS:
            rows = [
                one for one in judged if one[0].figure == figure and one[0].of_class.kind == kind
            ]
            result += [_score(figure, kind, "", rows)] if rows else []
            for part in _PARTS:
                values = dict.fromkeys(part(row) for row, *_ in rows)
                for value in sorted(values, key=_place) if len(values) > 1 else ():
                    chosen = [one for one in rows if part(one[0]) == value]
                    result.append(_score(figure, kind, value, chosen))
    return result


def _campaign(row: PublishedRow) -> Hashable:
    return row.campaign


def _source(row: PublishedRow) -> Hashable:
    return row.source


_PARTS: tuple[Callable[[PublishedRow], str], ...] = (
    lambda row: ENGINES[row.of_class.engine],
    lambda row: row.of_class.generation,
    lambda row: row.of_class.load,
    lambda row: "prefill apart" if row.of_class.apart else "prefill and decoding together",
)


def _place(name: str) -> tuple[int, str]:
    """Return the sort key of a part: loads are ascending, other parts are alphabetical."""
    loads = list(LOADS)
    return (loads.index(name) if name in loads else 0, name)


def _inside(
    own: Sequence[PublishedRow],
    others: Sequence[PublishedRow],
    left_out: Callable[[PublishedRow], Hashable],
) -> list[bool | None]:
    """Return whether the range from the rows that differ in a property contains each row; None without a range."""
    together = evidence((*own, *others))
    rest = {
        (key, value): Evidence(tuple(row for row in known.rows if left_out(row) != value))
        for key, known in together.items()
        for value in dict.fromkeys(map(left_out, known.rows))
    }
    result: list[bool | None] = []
    for row in own:
        ends = rest[queued(row.figure, row.of_class), left_out(row)].ends(row.of_class)
        result.append(None if ends is None else ends.low <= np.log(row.ratio) <= ends.high)
    return result


def _score(figure: str, kind: str, part: str, judged: Sequence[Judged]) -> ClassScore:
    rows = [row for row, *_ in judged]
    errors = np.array([100 * (1 / row.ratio - 1) for row in rows])
    return ClassScore(
        figure=figure,
        kind=kind,
        part=part,
        rows=len(rows),
        campaigns=len({row.campaign for row in rows}),
        sources=len({row.source for row in rows}),
        median=float(np.median(errors)),
        absolute=float(np.median(np.abs(errors))),
        new_campaign=_share([one for _, one, _ in judged]),
        new_source=_share([one for *_, one in judged]),
    )


def _share(inside: Sequence[bool | None]) -> float | None:
    """Return the percentage of rows inside their ranges."""
    known = [one for one in inside if one is not None]
    return 100 * sum(known) / len(known) if known else None
