"""Sweep driver: evaluate models, systems, executions, and values of their fields by path."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from calculon import inputs
from calculon.base.errors import Problem, SpecError
from calculon.base.frozen import dataclass
from calculon.base.records import columns
from calculon.base.units import Array
from calculon.declarations.execution import Execution
from calculon.declarations.fields import spec_fields
from calculon.declarations.model import Model
from calculon.declarations.origin import titled
from calculon.declarations.statistics import CorrectedStats
from calculon.editions import find_edition
from calculon.editions.edition import Edition
from calculon.estimate.argument_order import takes_either_order
from calculon.estimate.evaluate import Evaluation, evaluate
from calculon.estimate.what_if import what_if
from calculon.hardware.figures import figures_of
from calculon.hardware.system import System
from calculon.inputs import Changed, Source
from calculon.plan.plan import Executions, Plan
from calculon.search.sweep.sweep_axes import (
    Axis,
    One,
    Paths,
    Planned,
    Table,
    axes_of,
    column_of,
    sources_of,
    table_of,
)
from calculon.search.sweep.sweep_result import Sweep, joined, requested_stats

MOST = 20_000_000
"""Largest number of rows: more do not fit into the memory of most machines."""


@takes_either_order
def sweep(
    models: Source | Model | Iterable[Source | Model],
    plans: One | Executions | Planned | Iterable[One],
    systems: Source | System | Iterable[Source | System],
    set: Mapping[Paths, Any] | None = None,  # noqa: A002
    *,
    stats: str | Sequence[str] | None = None,
    edition: Edition | str | None = None,
    preset: str | None = None,
) -> Sweep:
    """Evaluate every combination of models, systems, executions and values of their fields.

    Executions and figures of systems are evaluated together, as in :func:`calculon.evaluate` and
    :func:`calculon.what_if`: ten thousand rows take about a second. Rows that cannot run have a ``reason``.

    Args:
        models, systems: One or several, each as in :func:`calculon.estimate`.
        plans: One or several executions as in :func:`calculon.estimate`, tables as in :func:`calculon.evaluate`, or
            results that contain executions (estimates, searches, evaluations).
        set: Lists of values by path or by the words of plans, all of which are combined: ``{"system.mem1.GBps": [2000,
            3350], "tp": [1, 2, 4], "seq": ["4k", "8k"]}``, in the units of files, as in ``--set``. Columns
            have the names of fields: ``tensor_par``. A tuple of paths takes tuples of values that are zipped:
            ``{("tp", "dp"): [(8, 8), (4, 16)]}``. Ranges are NumPy arrays: ``np.linspace(1000, 8000, 15)``.
        stats: Statistics in frames of the result; by default all.
        edition: Edition of the cost model, or its name; by default the edition of each execution.
        preset: Framework that fills in missing fields of executions; by default the preset of the execution.

    Returns:
        Sweep whose models change slowest, then systems, then executions, then the axes of `set`, the last one fastest.

    Raises:
        SpecError: For missing or malformed inputs, and for an unknown path, with the nearest.

    Examples:
        >>> found = sweep("llama3-8B", "llama3-8B_h100x64", ["a100", "h100"], {"mbs": [1, 2]})
        >>> found.to_frame()[["system", "microbatch_size", "reason"]].shape
        (4, 3)
    """
    axes = axes_of(set)
    known = None if edition is None else find_edition(edition).name
    shapes = sources_of(models, "model")
    machines = [_Machine.of(source, axes) for source in sources_of(systems, "system")]
    fields_of = _FieldsOf(shapes, [machine.record for machine in machines])
    own = [one for one in axes if one.concerns("execution")]
    model = inputs.model(shapes[0]) if len(shapes) == 1 else None
    table = table_of(plans, own, known, preset, fields_of, model)
    found = _swept(axes, shapes, machines, table)
    return replace(found, stats=requested_stats(stats, found.stats))


@dataclass(frozen=True, slots=True)
class _FieldsOf:
    """Fields of plans in words, which are those on every model and system."""

    models: Sequence[Any]
    systems: Sequence[System]

    def __call__(self, plan: str | Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the fields; SpecError if they are not the same on all models and systems."""
        shapes = [inputs.model(one) for one in self.models]
        first, *others = (inputs.in_fields(plan, m, s) for m in shapes for s in self.systems)
        for one in others:
            if one != first:
                name = next(name for name in first if first[name] != one.get(name))
                found = f"{first[name]} and {one.get(name)}"
                hint = "state batch, seq and preset in the plan"
                wanted = "one value on all models and systems"
                raise SpecError("sweep", Problem(name, wanted, found, hint))
        fields: Mapping[str, Any] = first
        return fields


def _swept(
    axes: Sequence[Axis], shapes: Sequence[Any], machines: "Sequence[_Machine]", table: Table
) -> Sweep:
    """Evaluate all combinations; rows with equal model and system together."""
    grid = _Grid.of(axes, len(shapes), len(machines), len(table.labels))
    executions, of_model = grid.variant("execution"), grid.variant("model")
    parts = []
    for variant, row in zip(*np.unique(of_model, return_index=True), strict=True):
        model = _model(shapes[grid.places["model"][row]], grid.changes("model", row))
        for place, machine in enumerate(machines):
            rows = np.flatnonzero((of_model == variant) & (grid.places["system"] == place))
            plan = table.plan.take(executions[rows])
            parts.append((rows, machine.evaluated(model, plan, grid, rows)))
    evaluation = joined(parts, table.plan.take(executions))
    names = {
        "model": [inputs.model(source).name for source in shapes],
        "system": [machine.record.name for machine in machines],
        **({"execution": table.labels} if len(table.labels) > 1 or table.named else {}),
    }
    asked = {kind: column_of(own)[grid.places[kind]] for kind, own in names.items()}
    units = _units(axes, machines[0].record)
    return Sweep(asked | grid.columns(), evaluation, units, evaluation.names)


@dataclass(frozen=True)
class _Grid:
    """All combinations: indices of models, systems and executions of each row, and positions on each axis."""

    axes: Sequence[Axis]
    places: Mapping[str, Array]
    positions: Sequence[Array]
    sizes: Mapping[str, int]

    @classmethod
    def of(cls, axes: Sequence[Axis], models: int, systems: int, executions: int) -> "_Grid":
        """Return all combinations; raise SpecError for more than :data:`MOST`."""
        sizes = {"model": models, "system": systems, "execution": executions}
        shape = [*sizes.values(), *(len(axis.values) for axis in axes)]
        total = math.prod(shape)
        if total > MOST:
            raise SpecError("sweep", Problem("", f"at most {MOST:,} rows", f"{total:,} rows"))
        found = np.unravel_index(np.arange(total), shape)
        places = dict(zip(sizes, found, strict=False))
        return cls(axes, places, found[len(sizes) :], sizes)

    def variant(self, kind: str) -> Array:
        """Return the index of the spec of a kind for each row: its source and the positions on axes that change it."""
        own = [
            (axis, at)
            for axis, at in zip(self.axes, self.positions, strict=True)
            if axis.concerns(kind)
        ]
        shape = [self.sizes[kind], *(len(axis.values) for axis, _ in own)]
        return np.asarray(np.ravel_multi_index([self.places[kind], *(at for _, at in own)], shape))

    def changes(self, kind: str, row: int) -> dict[str, Any]:
        """Return the changes of the spec of a kind in a row."""
        return {
            path: value
            for axis, at in zip(self.axes, self.positions, strict=True)
            for path, value in axis.changes(kind, int(at[row])).items()
        }

    def columns(self) -> dict[str, Array]:
        """Return the values of all paths, by path."""
        return {
            name: values[at]
            for axis, at in zip(self.axes, self.positions, strict=True)
            for name, values in axis.columns().items()
        }


def _model(source: Any, changes: Mapping[str, Any]) -> Model:
    """Return a model with changed fields; a model that was constructed in Python keeps its name in the title."""
    if not isinstance(source, Model) or not changes:
        return inputs.model(Changed.of(source, changes))
    known = source.origin
    if known is not None and known.source:
        return inputs.model(Changed.of(Changed.of(known.source, known.changes), changes))
    found = inputs.model(Changed.of(source.to_dict(), changes))
    return replace(found, name=titled(source.name, changes))


@dataclass(frozen=True, slots=True)
class _Machine:
    """System of a sweep: the source as given, and its record."""

    source: Any
    record: System

    @classmethod
    def of(cls, source: Any, axes: Sequence[Axis]) -> "_Machine":
        """Return a system whose figures can be changed by the axes.

        Raises:
            SpecError: For an unknown path, and for an invalid value of a figure.
        """
        record = inputs.system(source)
        figures = figures_of(record)
        problems = []
        for axis in axes:
            for i, (name, (kind, path)) in enumerate(zip(axis.names, axis.owners, strict=True)):
                if kind != "system":
                    continue
                # texts and lists cannot be columns: reading the file checks them, and reports unknown paths
                if path not in figures:
                    inputs.system(Changed.of(_file_of(source, record), {path: axis.values[0][i]}))
                    continue
                found = (figures[path].problem(value[i], name) for value in axis.values)
                problems += [problem for problem in found if problem is not None]
        if problems:
            raise SpecError("sweep", problems)
        return cls(source, record)

    def evaluated(self, model: Model, plan: Plan, grid: _Grid, rows: Array) -> Evaluation:
        """Evaluate a table of executions whose rows are rows of the grid."""
        if not any(axis.concerns("system") for axis in grid.axes):
            return evaluate(model, plan, self.record)
        variants = grid.variant("system")[rows]
        _, first, each = np.unique(variants, return_index=True, return_inverse=True)
        changes = [grid.changes("system", row) for row in rows[first].tolist()]
        return what_if(model, plan, self.source, [changes[i] for i in each.tolist()])


def _file_of(source: Any, record: System) -> Any:
    """Return the source from which a system can be read again."""
    if not isinstance(source, System):
        return source
    known = record.origin
    if known is None or not known.source:
        raise SpecError("sweep", Problem("set", *_BY_HAND))
    return Changed.of(known.source, known.changes)


_BY_HAND = ("figures of a system that was made in Python", "another path")


def _units(axes: Sequence[Axis], system: System) -> dict[str, str]:
    """Return the units of paths, execution fields and statistics by column name."""
    fields = {
        "model": {field.key: field.declaration.unit for field in spec_fields(Model)},
        "execution": {field.key: field.declaration.unit for field in spec_fields(Execution)},
        "system": {path: figure.unit for path, figure in figures_of(system).items()},
    }
    asked = {
        name: fields[kind].get(path, "")
        for axis in axes
        for name, (kind, path) in zip(axis.names, axis.owners, strict=True)
    }
    statistics = {column.name: column.unit.symbol for column in columns(CorrectedStats)}
    return fields["execution"] | statistics | asked
