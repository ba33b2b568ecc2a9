"""Axes of a sweep: values of fields by path, and executions in any supported form."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from typing import Any, Protocol

import numpy as np

from calculon import inputs
from calculon.base.errors import Problem, SpecError, nearest
from calculon.base.frozen import dataclass
from calculon.base.units import Array
from calculon.declarations import arguments
from calculon.declarations.execution import Execution
from calculon.declarations.model import Model
from calculon.declarations.named_values import CORRECTED
from calculon.declarations.origin import titled
from calculon.declarations.presets import filled, find_preset
from calculon.declarations.short_names import FIELDS as SHORT
from calculon.declarations.short_names import QUESTION_WORDS, field_name
from calculon.declarations.spellings import precision, processor_counts, sequence_length
from calculon.declarations.spellings.plan_pairs import in_blanks, is_plan, is_worded
from calculon.estimate.estimate import Estimate
from calculon.inputs import Changed, Source
from calculon.plan.columns import DEFAULTS, field_of
from calculon.plan.plan import NAMES, Plan, all_fields, as_plan
from calculon.search.overrides import as_fields

KINDS = ("model", "execution", "system")

FieldsOf = Callable[[str | Mapping[str, Any]], Mapping[str, Any]]
"""Returns the fields of a plan in words."""

Paths = str | tuple[str, ...]
"""A path, or several paths whose values are zipped."""


class Planned(Protocol):
    """Result that contains a table of executions."""

    @property
    def plan(self) -> Plan:
        """The executions."""
        ...


One = Source | Execution | Estimate
"""An execution: a source, a record, or an estimate."""

_FRAMEWORK = ("edition", "preset")
"""Fields of an execution that determine the defaults of the others."""


@dataclass(frozen=True, slots=True)
class Axis:
    """Values to try for one field, or for several fields together.

    Attributes:
        names: The paths as given: names of their columns.
        owners: Kind of spec and the path in it, for each name.
        values: A value for each path, for every position on the axis.
    """

    names: tuple[str, ...]
    owners: tuple[tuple[str, str], ...]
    values: tuple[tuple[Any, ...], ...]

    def concerns(self, kind: str) -> bool:
        """Return True if the axis changes specs of a kind."""
        return any(owner == kind for owner, _ in self.owners)

    def changes(self, kind: str, position: int) -> dict[str, Any]:
        """Return the changes of specs of a kind at a position."""
        pairs = zip(self.owners, self.values[position], strict=True)
        return {path: value for (owner, path), value in pairs if owner == kind}

    def columns(self) -> dict[str, Array]:
        """Return the values of each path, one for every position."""
        return {
            name: column_of([values[i] for values in self.values])
            for i, name in enumerate(self.names)
        }


def column_of(values: Sequence[Any]) -> Array:
    """Return values as a column: numeric or Boolean if possible, else of objects."""
    kinds = {type(value) for value in values}
    if kinds <= {int, float} or kinds == {bool}:
        return np.array(values)
    column = np.empty(len(values), object)
    column[:] = values
    return column


def axes_of(changes: Mapping[Paths, Any] | None) -> list[Axis]:
    """Return the axes of the given changes.

    Raises:
        SpecError: If the changes are not a mapping of paths to values, for an unknown path, and for a repeated path.
    """
    given: Any = {} if changes is None else changes
    if not isinstance(given, Mapping):
        wanted = 'values by path, such as {"system.mem1.GBps": [2000, 3000]}'
        raise SpecError("sweep", Problem("set", wanted, arguments.described(given)))
    axes = [_axis(paths, values) for paths, values in given.items()]
    seen: set[tuple[str, str]] = set()
    for axis in axes:
        for name, owner in zip(axis.names, axis.owners, strict=True):
            if owner in seen:
                raise SpecError("sweep", Problem(name, "one list of values for each path", "two"))
            seen.add(owner)
    return axes


def _axis(paths: Any, values: Any) -> Axis:
    names = paths if isinstance(paths, tuple) else (paths,)
    if not names or not all(isinstance(name, str) for name in names):
        wanted = "a path such as system.mem1.GBps, or a tuple of them"
        raise SpecError("sweep", Problem("set", wanted, arguments.described(paths)))
    tried = list(values) if _is_listed(values) else [values]
    if not tried:
        raise SpecError("sweep", Problem(names[0], "values to try", "none"))
    several = isinstance(paths, tuple)
    rows = [tuple(one) if several and _is_listed(one) else (one,) for one in tried]
    for row in rows:
        if len(row) != len(names):
            wanted = f"{len(names)} values at a time, one for each of {', '.join(names)}"
            raise SpecError("sweep", Problem(names[0], wanted, arguments.described(row)))
    columns = [
        column
        for name, values in zip(names, zip(*rows, strict=True), strict=True)
        for column in _columns(name, [_plain(one) for one in values])
    ]
    owners = tuple(inputs.owner(name, KINDS, "sweep") for name, _ in columns)
    meant = zip(*(values for _, values in columns), strict=True)
    return Axis(tuple(name for name, _ in columns), owners, tuple(meant))


def _columns(name: str, values: Sequence[Any]) -> list[tuple[str, list[Any]]]:
    """Return the values of each field that a path or a word of plans stands for."""
    if name == QUESTION_WORDS["datatype"]:
        found = [precision(str(value), name) for value in values]
        fields = dict.fromkeys(field for one in found for field in one)
        return [
            (field, [one[field] if field in one else DEFAULTS[field] for one in found])
            for field in fields
        ]
    if name in _WORDS:
        field, read = _WORDS[name]
        return [(field, [read(value) for value in values])]
    return [(field_name(name), [_meant(name, value) for value in values])]


def _sequences(value: Any) -> int:
    """Return a batch in sequences; tokens would need the sequence length of each row."""
    if not str(value).isdecimal():
        wanted = "sequences such as 512"
        hint = "a batch in tokens depends on the length; state it in sequences"
        raise SpecError("sweep", Problem("batch", wanted, repr(value), hint))
    return int(value)


def _processors(value: Any) -> int:
    counts = processor_counts(str(value), "procs")
    if len(counts) > 1:
        raise SpecError("sweep", Problem("procs", "one number of processors", repr(value)))
    return counts[0]


_WORDS: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    "seq": ("seq_length", lambda value: sequence_length(str(value))),
    "batch": ("batch_size", _sequences),
    "procs": ("num_procs", _processors),
}
"""Words of questions with their field, and the function that reads a value."""


def _meant(name: str, value: Any) -> Any:
    """Return a value in the form of files; values of a short name by the words for them."""
    return as_fields({name: value})[SHORT[name.lower()]][0] if name.lower() in SHORT else value


def _is_listed(values: Any) -> bool:
    return isinstance(values, Iterable) and not isinstance(values, (str, bytes, Mapping))


def _plain(value: Any) -> Any:
    """Return a value as in files: NumPy scalars become Python scalars."""
    return value.item() if isinstance(value, np.generic) else value


def sources_of(given: Any, kind: str) -> list[Any]:
    """Return one or several sources of a spec as a list.

    Raises:
        SpecError: For an empty list.
    """
    several = isinstance(given, Iterable) and not isinstance(given, (str, Mapping, os.PathLike))
    sources = list(given) if several and not inputs.is_row(given) else [given]
    if not sources:
        raise SpecError("sweep", Problem(kind, f"a {kind}, or a list of some", "an empty list"))
    return sources


@dataclass(frozen=True, slots=True)
class Table:
    """Executions of a sweep, and the name of each: the name of its file, else its index.

    Attributes:
        plan: A row for each execution and each combination of its changes, the executions outermost.
        labels: Names of the executions.
        named: True if at least one execution has a name.
    """

    plan: Plan
    labels: Sequence[str]
    named: bool


def table_of(
    plans: Any,
    axes: Sequence[Axis],
    edition: str | None = None,
    preset: str | None = None,
    fields_of: FieldsOf | None = None,
    model: Model | None = None,
) -> Table:
    """Return the requested executions with their changes.

    Args:
        plans: The executions.
        axes: Axes that change executions.
        edition, preset: Override the values of the executions.
        fields_of: Returns the fields of a plan in words.
        model: Model that all of them run; None for several.

    Raises:
        SpecError: For an unknown or incomplete execution, and for a path that is not a field. Invalid values are
            marked in their rows.
    """
    for axis in axes:
        for name, (kind, path) in zip(axis.names, axis.owners, strict=True):
            if kind == "execution" and path not in NAMES:
                raise SpecError("sweep", Problem(name, *_NO_FIELD, nearest(path, NAMES)))
    found = list(_bases(plans, fields_of))
    if not found:
        raise SpecError("sweep", Problem("plans", "executions", "an empty list"))
    parts = [_changed(one, axes, edition, preset, model) for one in found]
    labels = [label for one in found for label in one.labels]
    named = any(labels)
    return Table(
        Plan.concatenate(parts), [label or str(i) for i, label in enumerate(labels)], named
    )


_NO_FIELD = ("a field of an execution", "no such field")


@dataclass(frozen=True, slots=True)
class _Base:
    """Executions of one source: columns of equal length or scalars, and names."""

    fields: Mapping[str, Any]
    file: str
    labels: Sequence[str]
    complete: bool


def _bases(plans: Any, fields_of: FieldsOf | None) -> Iterable[_Base]:
    """Yield the executions of each source."""
    plan = getattr(plans, "plan", plans)  # results have a plan
    if isinstance(plan, Plan) or inputs.is_frame(plan) or _of_columns(plan):
        whole = as_plan(plan)
        columns = {name: whole.values(name) for name in NAMES}
        yield _Base(columns, "plans", [""] * len(whole), complete=True)
        return
    for source in sources_of(plans, "execution"):
        record = getattr(source, "execution", source)  # estimates have an execution
        if isinstance(record, Execution):
            origin = getattr(source, "origin", None)
            label = titled(origin.name, origin.changes) if origin else ""
            fields = all_fields(record)
            yield _Base(fields, "execution", [label], complete=True)
            continue
        if fields_of is not None and (is_plan(source) or is_worded(source)):
            label = in_blanks(source) if isinstance(source, str) else ""
            yield _Base(fields_of(source), "plan", [label], complete=False)
            continue
        raw, file, known, _ = inputs.stated_execution(source)
        mapped = isinstance(source, Changed) and isinstance(source.source, Mapping)
        unnamed = mapped or inputs.as_mapping(source) is not None
        label = "" if unnamed else titled(known.name, known.changes)
        yield _Base(raw, file, [label], complete=False)


def _of_columns(plans: Any) -> bool:
    """Return True if executions are given as a mapping of columns."""
    return isinstance(plans, Mapping) and any(
        isinstance(_held(name, values), (list, tuple, np.ndarray)) or inputs.is_row(values)
        for name, values in plans.items()
        if name in NAMES
    )


def _held(name: str, value: Any) -> Any:
    """Return a value of a field as columns store it: lists of counts or modules as text."""
    return field_of(name).declaration.plain(value) if name in NAMES else value


def _changed(
    base: _Base,
    axes: Sequence[Axis],
    edition: str | None,
    preset: str | None,
    model: Model | None,
) -> Plan:
    """Return executions with every combination of changes, as a table."""
    changes = [
        {
            path: value
            for axis, position in zip(axes, positions, strict=True)
            for path, value in axis.changes("execution", position).items()
        }
        for positions in product(*(range(len(axis.values)) for axis in axes))
    ]
    # Edition and preset decide the defaults of other fields: complete each pair of them separately.
    groups: dict[tuple[Any, ...], list[int]] = {}
    for number, change in enumerate(changes):
        groups.setdefault(tuple(change.get(name) for name in _FRAMEWORK), []).append(number)
    parts, order = [], []
    for (own_edition, own_preset), numbers in groups.items():
        columns = {
            name: column_of([_held(name, changes[number][name]) for number in numbers])
            for name in changes[numbers[0]]
            if name not in _FRAMEWORK
        }
        terms = own_edition or edition, own_preset or preset
        parts.append(_completed(base, columns, len(numbers), *terms, model))
        order += [
            row * len(changes) + number for row in range(len(base.labels)) for number in numbers
        ]
    return Plan.concatenate(parts).take(np.argsort(np.array(order, np.int64)))


def _completed(
    base: _Base,
    columns: Mapping[str, Array],
    count: int,
    edition: Any,
    preset: Any,
    model: Model | None,
) -> Plan:
    """Return a table of each execution with each of `count` changes, the executions outermost."""
    rows = len(base.labels)
    stated = {
        name: np.repeat(one, count) if isinstance(one, np.ndarray) else _held(name, one)
        for name, one in base.fields.items()
    }
    stated |= {name: np.tile(values, rows) for name, values in columns.items()}
    if base.complete:  # every field has a value already
        asked = {} if edition is None else {"edition": edition}
        if preset is not None:
            asked = {"edition": edition or CORRECTED, "preset": find_preset(preset).family}
        whole = Plan.from_columns({**stated, **asked})
    else:
        whole = Plan.from_columns(filled(stated, edition, preset, base.file, model=model)[0])
    return whole if len(whole) == rows * count else whole.take(np.zeros(rows * count, np.int64))
