"""Measurements of users: a CSV file with one training step per row, compared like a study without ``study.yaml``.

Columns have the names of published measurements (``num_gpus``, ``tp``, ``gbs``, ``iter_time_s``), short names, or
names of execution fields. The preset fills in missing fields.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from calculon import inputs
from calculon.base.errors import Problem, SpecError, nearest
from calculon.base.frozen import dataclass
from calculon.base.units import GIB
from calculon.declarations import catalog
from calculon.declarations.csv_rows import Line, read_csv, typed
from calculon.declarations.execution import Execution
from calculon.declarations.expression import Expression
from calculon.declarations.fields import spec_fields
from calculon.declarations.files import SUFFIXES, document_suffix
from calculon.declarations.named_values import CORRECTED
from calculon.declarations.presets import find_preset
from calculon.declarations.short_names import FIELDS, field_name, field_value
from calculon.declarations.spellings.precisions import precision
from calculon.declarations.statistics import TIER1
from calculon.estimate.user_evidence import OwnEvidence
from calculon.validate.measured_and_predicted import Result, compare
from calculon.validate.published_fields import ExecutionFields, Limits, ModelFields
from calculon.validate.published_study import Library, Quantity, Study
from calculon.validate.run_rows import run_rows
from calculon.validate.study_rows import Row

TIME, MEMORY = "iter_time_s", "mem_bytes"
RATES = ("tokens_per_s", "tokens_per_s_per_gpu")

MEASURED = {
    TIME: "seconds of a whole training step",
    RATES[0]: "tokens per second of all processors, instead of the time",
    RATES[1]: "tokens per second of one processor, instead of the time",
    MEMORY: "peak bytes of the fullest processor",
}
"""Columns of measured values; every row needs at least one."""

COLUMNS = {
    "num_gpus": "num_procs",
    "vp": "pipeline_interleaving",
    "seq": "seq_length",
    "seq_parallel": "tensor_par_comm_type",
}
"""Execution fields by columns of published measurements that are not short names."""

SPECS = ("model", "system")
NAMES = ("id", "name")
REMARKS = ("source", "note")
PRECISION = "precision"

TEMPLATE = f"id,model,system,num_gpus,tp,pp,gbs,mbs,{TIME}"
"""Header of a file with the required columns."""

FURTHER = ("preset", "dp", "vp", "seq", PRECISION, "zero", "recompute", MEMORY)
"""Columns that many runs also state."""

_GIBIBYTES = "memory in GiB"
"""Column of rows, not of files: memory in the unit of pages."""

_FIELDS = {one.key: one for one in spec_fields(Execution) if one.key != "edition"}
_SHORT_OF_MEASURED = {"seq_parallel": "sp"}


@dataclass(frozen=True, slots=True)
class _OwnLibrary(Library):
    """Catalog with the executions of the rows by line number."""

    executions: Mapping[str, Mapping[str, Any]]

    def spec(self, kind: str, source: str, study: Study) -> tuple[str, Any]:
        """Return the execution of a row, or a spec of the catalog."""
        if kind == "execution":
            return study.file, self.executions[source]
        return Library.spec(self, kind, source, study)


def compare_rows(file: str) -> Result:
    """Compare the rows of a file with edition ``corrected``.

    The file counts as a separate source, so its intervals use all published runs.

    Raises:
        SpecError: For a file that cannot be read, an unknown column, or an invalid cell; names file, line and column.
    """
    lines = read_csv(file, [*SPECS, "num_gpus or num_procs", "gbs or batch_size"])
    fields = _fields_of(lines[0])
    read = [_row(line, fields) for line in lines]
    executions = {str(row.number): execution for row, execution in read}
    library = _OwnLibrary(Library.at().base, executions)
    rows = [row for row, _ in read]
    measured = [name for name in _QUANTITIES if any(row.cells[name] for row in rows)]
    study = Study(
        title=f"Measurements of {file}",
        source=file,
        evidence="measured",
        calibration="none",
        measured=Path(file).name,
        system="{system}",
        model=ModelFields(source="{model}"),
        execution=ExecutionFields(source="{execution}"),
        quantities=tuple(_QUANTITIES[name] for name in measured),
        name=Path(file).name,
        folder=Path(file).parent,
    )
    return compare(study, library, CORRECTED, rows=rows)


def evidence_of(file: str) -> OwnEvidence:
    """Return the measured steps of a file as evidence for intervals; errors as in :func:`compare_rows`.

    Raises:
        SpecError: Also for a file without a step time of an execution that the model can represent.
    """
    result = compare_rows(file)
    steps = tuple(run_rows([result]))
    if not steps:
        reasons = [reason for _, reason in result.skipped] or ["no step time"]
        wanted = f"a row with {TIME} whose execution can run"
        raise SpecError(file, Problem("", wanted, "; ".join(dict.fromkeys(reasons))))
    return OwnEvidence(Path(file).name, steps)


_QUANTITIES = {
    TIME: Quantity(
        name="time",
        measured=TIME,
        unit="s",
        estimate=Expression.parse("total_time"),
        bound=Limits(),
    ),
    _GIBIBYTES: Quantity(
        name="memory",
        measured=_GIBIBYTES,
        unit="GiB",
        estimate=Expression.parse(TIER1),
        bound=Limits(),
    ),
}


def _fields_of(line: Line) -> dict[str, str]:
    """Return the execution fields of the columns that state one.

    Raises:
        SpecError: For an unknown column, and for two columns of one field.
    """
    known = [*SPECS, *NAMES, *MEASURED, *REMARKS, PRECISION]
    result: dict[str, str] = {}
    for column in line.cells:
        field = COLUMNS.get(column, field_name(column))
        if column in known or not column:
            continue
        if field not in _FIELDS:
            hint = nearest(column, [*known, *COLUMNS, *FIELDS, *_FIELDS])
            wanted = "a column of calculon lv --help, or an execution field"
            raise SpecError(
                line.file,
                Problem(f"column {column}", wanted, "an unknown one", hint or "remarks go to note"),
            )
        if field in result.values():
            other = next(name for name, one in result.items() if one == field)
            problem = Problem(f"column {column}", f"{field} once", f"{other} states it as well")
            raise SpecError(line.file, problem)
        result[column] = field
    return result


def _row(line: Line, fields: Mapping[str, str]) -> tuple[Row, dict[str, Any]]:
    """Return a row with the names of its specs, and the fields of its execution."""
    names = {kind: _named(line, kind) for kind in SPECS}
    label = next((line.cells[name] for name in NAMES if line.cells.get(name)), "")
    execution = _execution(line, fields, names["system"])
    values = {name: line.number_of(name) if line.cells.get(name) else None for name in MEASURED}
    if not any(values.values()):
        wanted = f"a measured value in {', '.join(MEASURED)}"
        raise line.refuse(TIME, wanted, "blank cells, or no such column")
    memory = values[MEMORY]
    derived = {
        "execution": str(line.number),
        _GIBIBYTES: None if memory is None else memory / GIB,
        TIME: values[TIME] or _time(line, values, names, execution),
    }
    cells = line.cells | names | values | derived
    label = label or f"{names['model']}, line {line.number}"
    return Row(line.file, line.number, cells, label), execution.to_dict()


def _named(line: Line, kind: str) -> str:
    """Return the exact name of a catalog model or system, or a file relative to the table."""
    source = str(line.cells[kind])
    if document_suffix(source) in SUFFIXES and (Path(line.file).parent / source).is_file():
        return source
    try:
        return catalog.exact(kind, source)
    except SpecError as error:
        one = error.problems[0]
        raise line.refuse(kind, one.expected, source or "a blank cell", one.hint) from None


def _source(line: Line, name: str) -> str:
    """Return a catalog name, or the path of a file relative to the table."""
    return str(Path(line.file).parent / name) if document_suffix(name) in SUFFIXES else name


def _execution(line: Line, fields: Mapping[str, str], system: str) -> Execution:
    stated: dict[str, Any] = {}
    if text := line.cells.get(PRECISION):
        try:
            stated |= precision(text)
        except SpecError as error:
            one = error.problems[0]
            raise line.refuse(PRECISION, one.expected, one.found, one.hint) from None
    for column, field in fields.items():
        if text := line.cells[column]:
            word = field_value(_SHORT_OF_MEASURED.get(column, column), text)
            stated[field] = typed(_FIELDS[field].annotation, word)
    try:
        if "preset" in stated:
            find_preset(stated["preset"])
        machine = inputs.system(_source(line, system))
        return inputs.execution(stated, edition=CORRECTED, system=machine)
    except SpecError as error:
        raise SpecError(line.file, [*_placed(line, error, fields)]) from None


def _placed(line: Line, error: SpecError, fields: Mapping[str, str]) -> Iterator[Problem]:
    """Yield the problems of an execution, each with its line and column."""
    column_of = {field: column for column, field in fields.items()}
    for one in error.problems:
        field = one.field or "preset"
        place = f"{line.place}, {column_of.get(field, field)}"
        yield replace(one, field=place)


def _time(
    line: Line, values: Mapping[str, float | None], names: Mapping[str, str], execution: Execution
) -> float | None:
    """Return the seconds of a step from tokens per second, if stated."""
    # Throughput determines the step time, because the batch is known.
    total, each = (values[name] for name in RATES)
    rate = total or (each * execution.num_procs if each else None)
    if rate is None:
        return None
    tokens = execution.seq_length or inputs.model(_source(line, names["model"])).seq_size
    return execution.batch_size * tokens / rate


def rows_help() -> Sequence[str]:
    """Return the paragraphs of a help text about the columns of a file."""
    measured = "; ".join(f"{name}: {about}" for name, about in MEASURED.items())
    return [
        f"A file of your own measurements has this header: {TEMPLATE}. Optional columns: "
        f"{', '.join(FURTHER)}, and any other execution field by its name or short name (calculon describe "
        "execution). The preset fills in blank cells. Models and systems are names of the catalog, or files next to "
        "the table.",
        f"Measured values, at least one in each row: {measured}.",
    ]
