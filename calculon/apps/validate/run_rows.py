"""Measured whole training steps of studies, as rows of the file that intervals rest on."""

from collections.abc import Iterable, Iterator
from typing import Any

from calculon.apps.validate.library import Library
from calculon.apps.validate.measured_and_predicted import Comparison, Result
from calculon.apps.validate.predict import cases, predict
from calculon.apps.validate.published_study import UNITS
from calculon.inspect.validated_runs import Run, about
from calculon.spec.execution import Execution

Record = dict[str, Any]
_UTILISATION = ("mfu", "mfu_causal")


def run_rows(results: Iterable[Result], library: Library) -> list[Record]:
    """Return one row per measured whole training step of some studies, by the fields of a :class:`Run`."""
    return [row for result in results for row in _rows(result, library)]


def steps(result: Result) -> Comparison | None:
    """Return the whole training steps that a study has compared; nothing when it has none that count."""
    if not result.study.whole_steps:
        return None
    return next((one for one in result.own.comparisons if one.quantity.is_step and one.rows), None)


def _rows(result: Result, library: Library) -> Iterator[Record]:
    times = steps(result)
    if times is None:
        return
    study = result.study
    compared = {row.number for row in times.rows}
    rows = [row for row in result.rows if row.number in compared]
    usage = predict(library, study, rows, _UTILISATION, result.edition).values
    memory = _memory(result)
    asked = cases(library, study, rows, result.edition)
    for i, (row, case) in enumerate(zip(rows, asked, strict=True)):
        execution = Execution(**{**case.execution, "edition": result.edition})
        measured, predicted = float(times.measured[i]), float(times.estimated[i])
        scale = UNITS[times.quantity.unit][1]
        found = {
            "source": study.origin,
            "study": study.name,
            "label": row.label,
            "citation": study.source,
            **about(case.model, case.system, execution),
            "measured": measured * scale,
            "predicted": predicted * scale,
            **{name: float(usage[name][i]) * predicted / measured for name in _UTILISATION},
            **memory.get(row.number, {}),
        }
        yield {name: _short(found.get(name)) for name in Run.__annotations__}


def _short(value: object) -> object:
    """Return a number with six digits: those of a measurement are fewer."""
    return float(f"{float(value):.6g}") if isinstance(value, float) else value


def _memory(result: Result) -> dict[int, Record]:
    """Return measured and predicted bytes of a processor by number of the line."""
    found: dict[int, Record] = {}
    for one in result.own.comparisons:
        if one.quantity.is_memory:
            scale = UNITS[one.quantity.unit][1]
            values = zip(one.rows, one.measured * scale, one.estimated * scale, strict=True)
            found |= {
                row.number: {"measured_memory": measured, "predicted_memory": predicted}
                for row, measured, predicted in values
            }
    return found
