"""Training logs: the measured time of whole steps, with their model and execution."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

from calculon import inputs
from calculon.base.errors import Infeasible, Problem, SpecError
from calculon.base.frozen import dataclass
from calculon.calibrate.fit_result import Measurements
from calculon.calibrate.readers import ABOUT, Row, about, merged
from calculon.declarations import catalog
from calculon.declarations.csv_rows import Line, read_csv, typed
from calculon.declarations.execution import Execution
from calculon.declarations.fields import spec_fields
from calculon.declarations.model import Model
from calculon.hardware.residuals import TRAINING
from calculon.hardware.system import System
from calculon.plan.plan import Plan
from calculon.plan.rules.all_rules import check, raise_for
from calculon.plan.rules.rule import Request

COLUMNS = ("model", "execution", "seconds")
MISSPELLED = 0.85
"""Similarity to a known column from which an unknown one counts as misspelled."""

OPTIONAL = ("memory_bytes", "name", "group")


@dataclass(frozen=True, slots=True)
class Step:
    """One measured training step; `memory` is its peak memory in bytes, or not-a-number if not measured."""

    row: Row
    model: Model
    execution: Execution
    memory: float


@dataclass(frozen=True, slots=True)
class Logs:
    """Steps of all files, repeated measurements averaged, by the name of the row.

    Attributes:
        files: The rows of each file, for the provenance.
    """

    steps: Mapping[str, Step]
    files: Sequence[Measurements]
    notes: Sequence[str]

    @property
    def rows(self) -> list[Row]:
        """All rows, in the order of their names."""
        return [self.steps[name].row for name in sorted(self.steps)]


def read_training(files: Mapping[str, str], system: System) -> Logs:
    """Read logs of training steps.

    Args:
        files: Display name of each file, by its path.
        system: The system that ran them. A step that cannot run on it is an error, unless it only lacks memory by the
            model's estimate: it did run.

    Raises:
            SpecError: For a line that cannot be understood or an execution that cannot run; it names file and line.
    """
    steps: list[Step] = []
    read: list[Measurements] = []
    notes: list[str] = []
    for file, name in files.items():
        lines = read_csv(file, COLUMNS)
        notes += _unused(lines[0])
        read_one = {kind: _reader(kind, Path(file).parent) for kind in ("model", "execution")}
        some = [_step(line, system, read_one) for line in lines]
        read.append(Measurements(name, [step.row for step in some], about(lines)))
        steps += some
    steps = _named(steps)
    rows, more = merged([step.row for step in steps])
    by_name: dict[str, list[Step]] = {}
    for step in steps:
        by_name.setdefault(step.row.name, []).append(step)
    found = {row.name: replace(_averaged(by_name[row.name]), row=row) for row in rows}
    return Logs(found, read, [*notes, *more])


def _unused(line: Line) -> list[str]:
    """Return a note that lists the columns that are not read.

    Raises:
            SpecError: For an unknown column that looks like a misspelled one: ignoring it would merge different runs.
    """
    specs = [field.name for cls in (Model, Execution) for field in spec_fields(cls)]
    known = [*COLUMNS, *OPTIONAL, *ABOUT, *specs]
    unused = [name for name in line.cells if name and name not in known]
    for name in unused:
        if near := get_close_matches(name.lower(), known, 1, MISSPELLED):
            wanted, hint = "a column that is read", f"did you mean {near[0]}?"
            raise SpecError(line.file, Problem(f"column {name}", wanted, "an unknown column", hint))
    return [f"{TRAINING}: these columns are not read: {', '.join(unused)}"] if unused else []


def _reader(kind: str, folder: Path) -> Callable[[str], Any]:
    """Return a cached reader of models or executions: from the catalog, or relative to a folder."""
    known = catalog.names(kind)
    read: Callable[[str], Any] = inputs.model if kind == "model" else inputs.execution
    return cache(lambda source: read(source if source in known else str(folder / source)))


def _step(line: Line, system: System, read: Mapping[str, Callable[[str], Any]]) -> Step:
    model, changes = _spec(line, "model", read["model"])
    execution, more = _spec(line, "execution", read["execution"])
    one = Request(model, system, execution)
    try:
        # Memory is not checked: the step ran, so it fitted, whatever the model predicts.
        raise_for(one, int(check(model, system, Plan.of(execution))[0]))
    except Infeasible as error:
        wanted = f"an execution that runs on {system.name}"
        raise line.refuse("execution", wanted, str(error)) from None
    except SpecError as error:
        raise _placed(line, "execution", error) from None
    memory = line.number_of("memory_bytes") if line.cells.get("memory_bytes") else math.nan
    changed = " ".join(f"{name}={value}" for name, value in {**changes, **more}.items())
    usual = f"{model.name} {Path(line.cells['execution']).stem} {changed}".rstrip()
    own = line.cells.get("name") or usual
    group = line.cells.get("group") or model.name
    seconds = line.number_of("seconds")
    row = Row(TRAINING, own, 1.0, seconds, group, 0.0, line.file, line.place)
    return Step(row, model, execution, memory)


def _spec(line: Line, kind: str, read: Callable[[str], Any]) -> tuple[Any, dict[str, Any]]:
    """Return the model or execution that a line names, with its changes applied, and the changes of other columns."""
    source = line.cells[kind]
    if not source:
        raise line.refuse(kind, f"the name or the file of {kind}", "nothing")
    try:
        whole: Any = read(source)
        cls: type = type(whole)
        changes = {
            field.name: typed(field.annotation, line.cells[field.name])
            for field in spec_fields(cls)
            if line.cells.get(field.name)
        }
        return replace(whole, **changes), changes
    except SpecError as error:
        raise _placed(line, kind, error) from None


def _placed(line: Line, kind: str, error: SpecError) -> SpecError:
    """Return the error of a model or execution as an error of the line that names it."""
    place = f"{line.place}, {kind} {line.cells[kind]}"
    inside = [replace(p, field=f"{place}: {p.field}" if p.field else place) for p in error.problems]
    return SpecError(line.file, inside)


def _named(steps: Sequence[Step]) -> list[Step]:
    """Return steps with one name for each pair of model and execution.

    Raises:
            SpecError: If two different pairs have the same name.
    """
    names: dict[tuple[Model, str, Execution], str] = {}
    owners: dict[str, tuple[Model, str, Execution]] = {}
    result = []
    for step in steps:
        run = (step.model, step.model.name, step.execution)
        name = names.setdefault(run, step.row.name)
        if owners.setdefault(name, run) != run:
            wanted = "a different name for each model and execution"
            hint = "set the column name to distinguish the rows"
            raise step.row.refuse("name", wanted, f"'{name}' for two of them", hint)
        result.append(replace(step, row=replace(step.row, name=name)))
    return result


def _averaged(steps: Sequence[Step]) -> Step:
    """Return the first of repeated steps, with the mean of their stated memory."""
    known = [step.memory for step in steps if not math.isnan(step.memory)]
    return replace(steps[0], memory=math.fsum(known) / len(known) if known else math.nan)
