"""Measured whole training steps of studies, as rows of the file that intervals rest on."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any

from calculon.apps.validate.library import Library
from calculon.apps.validate.measured_and_predicted import Comparison, Result
from calculon.apps.validate.predict import cases, predict
from calculon.apps.validate.published_study import UNITS
from calculon.inspect.validated_runs import Run, about
from calculon.spec.execution import Execution

_UTILISATION = ("mfu", "mfu_causal")


def run_rows(results: Iterable[Result], library: Library) -> list[Run]:
    """Return a run for each measured whole training step of some studies."""
    return [run for result in results for run in _runs(result, library)]


def steps(result: Result) -> Comparison | None:
    """Return the whole training steps that a study has compared; nothing when it has none that count."""
    if not result.study.whole_steps:
        return None
    return next((one for one in result.own.comparisons if one.quantity.is_step and one.rows), None)


def csv_rows(runs: Iterable[Run]) -> list[dict[str, str]]:
    """Return runs as rows of the file, with six digits: those of a measurement are fewer."""
    return [
        {name: f"{one:.6g}" if isinstance(one, float) else one for name, one in asdict(run).items()}
        for run in runs
    ]


def _runs(result: Result, library: Library) -> Iterator[Run]:
    times = steps(result)
    if times is None:
        return
    study = result.study
    compared = {row.number for row in times.rows}
    rows = [row for row in result.rows if row.number in compared]
    usage = predict(library, study, rows, _UTILISATION, result.edition).values
    memory = _memory(result)
    asked = cases(library, study, rows, result.edition)
    scale = UNITS[times.quantity.unit][1]
    for i, (row, case) in enumerate(zip(rows, asked, strict=True)):
        execution = Execution(**{**case.execution, "edition": result.edition})
        measured, predicted = float(times.measured[i]), float(times.estimated[i])
        found: dict[str, Any] = {
            "source": study.origin,
            "study": study.name,
            "label": row.label,
            "fitted": " ".join(study.fitted),
            "citation": study.source,
            "measured": measured * scale,
            "predicted": predicted * scale,
            **{name: float(usage[name][i]) * predicted / measured for name in _UTILISATION},
            **about(case.model, case.system, execution),
            **memory.get(row.number, {}),
        }
        yield Run(**found)


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
