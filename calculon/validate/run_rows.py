"""Measured training steps of studies: the evidence for prediction intervals."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

from calculon.base.units import Array
from calculon.declarations.execution import Execution
from calculon.declarations.named_values import PUBLISHED
from calculon.declarations.statistics import ALL_PARTS_OF_TIME
from calculon.estimate.run_table import Run, about
from calculon.validate.measured_and_predicted import UTILISATION, Result
from calculon.validate.published_study import UNITS


def run_rows(results: Iterable[Result]) -> list[Run]:
    """Return a run for each measured whole training step of studies, except under the published edition."""
    return [run for result in results if result.edition != PUBLISHED for run in _runs(result)]


def csv_rows(runs: Iterable[Run]) -> list[dict[str, str]]:
    """Return runs as rows of the file, with six digits: more than any measurement has."""
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
    """Yield the fractions of the parts in the predicted time of a row."""
    for name in ALL_PARTS_OF_TIME:
        yield float(values[name][row] / values["total_time"][row])


def _memory(result: Result) -> dict[int, dict[str, float]]:
    """Return measured and predicted bytes of a processor, by line number."""
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
                # Further quantities have the memory of other stages.
                found.setdefault(
                    row.number, {"measured_memory": measured, "predicted_memory": predicted}
                )
    return found
