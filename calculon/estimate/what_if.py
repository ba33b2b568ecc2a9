"""What-if analysis: executions on many variants of a system, evaluated together."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from calculon import inputs
from calculon.base.errors import Problem, SpecError
from calculon.base.units import Array
from calculon.declarations import arguments
from calculon.declarations.model import Model
from calculon.editions import find_edition
from calculon.editions.edition import Edition
from calculon.estimate.argument_order import takes_either_order
from calculon.estimate.evaluate import Evaluation, evaluate
from calculon.hardware.figures import Figure, figures_of, with_figures
from calculon.hardware.system import System
from calculon.inputs import Changed, Source
from calculon.plan.plan import Executions, Plan
from calculon.plan.read_plan import read_plan

Change = Mapping[str, float]
"""New values of figures of a system by path, in the units of its file; also of its other values."""


def figures(system: Source | System) -> dict[str, Figure]:
    """Return all scalar figures of a system, by path, in the order of the declarations of its file.

    Each has its value and unit in the file, its short name, and its limits: see
    :class:`~calculon.hardware.figures.Figure`. Points of curves and rows of tables are lists, and not included.

    Examples:
        >>> bandwidth = figures("h100_80g_sxm")["mem1.GBps"]
        >>> bandwidth.value, bandwidth.unit, bandwidth.name
        (3350.0, 'GB/s', 'bandwidth')
    """
    return figures_of(inputs.system(system))


@takes_either_order
def what_if(
    model: Source | Model,
    execution: Source | Executions,
    system: Source | System,
    changes: Sequence[Change],
    *,
    edition: Edition | str | None = None,
) -> Evaluation:
    """Evaluate one execution, or one per row, on a system with some of its figures changed.

    Row *i* equals the evaluation of the changed system alone.

    Args:
        model: As in :func:`calculon.estimate`.
        execution: One execution for all rows, or a table with one execution for each change.
        system: The system; for a system that was constructed in Python, only its :func:`figures` can change.
        changes: New values by path for each row, such as ``{"mem1.GBps": 4000}``, in the units of the file, as in
            ``--set``. An empty row is the unchanged system.
        edition: As in :func:`~calculon.estimate.evaluate.evaluate`.

    Raises:
        SpecError: For a malformed model or system, for an invalid path or value, and for a table of another length.
    """
    model, base, rows_of = inputs.model(model), inputs.system(system), _changes(changes)
    known = None if edition is None else find_edition(edition).name
    plan = _plan(execution, len(rows_of), known, base, model)
    parts = [
        (rows, evaluate(model, plan.take(rows), machine))
        for machine, rows in _Machines(base, system, rows_of).groups()
    ]
    if len(parts) > 1:
        return _joined(plan, parts)
    return parts[0][1] if parts else evaluate(model, plan, base)


def _changes(changes: Any) -> list[Change]:
    """Check that changes are a list of mappings, and return them."""
    wanted = 'a list with a mapping for each row, such as [{"mem1.GBps": 4000}]'
    if isinstance(changes, (str, bytes, Mapping)) or not isinstance(changes, Iterable):
        raise SpecError("what_if", Problem("changes", wanted, arguments.described(changes)))
    rows: list[Any] = list(changes)
    for i, row in enumerate(rows):
        if not isinstance(row, Mapping) or not all(isinstance(path, str) for path in row):
            wanted = "a mapping from paths to values"
            raise SpecError("what_if", Problem(f"changes[{i}]", wanted, arguments.described(row)))
    return rows


def _plan(execution: Any, rows: int, edition: str | None, system: System, model: Model) -> Plan:
    """Return a table with an execution for each row."""
    columns = (list, tuple, np.ndarray)
    if isinstance(execution, Mapping) and not any(
        isinstance(value, columns) for value in execution.values()
    ):
        execution = inputs.execution(execution, edition=edition, system=system, model=model)
    plan = read_plan(execution, model, system, edition)
    if len(plan) == 1:
        return plan.take(np.zeros(rows, np.int64))
    if len(plan) != rows:
        wanted = f"one execution, or one for each of the {rows:,} changes"
        raise SpecError("what_if", Problem("execution", wanted, f"{len(plan):,} executions"))
    return plan


class _Machines:
    """Variants of a system, one for each row."""

    def __init__(self, base: System, source: Any, changes: Sequence[Change]):
        self._base, self._source, self._figures = (
            base,
            _source(base, source),
            figures_of(base, points=True),
        )
        self._changes = changes
        problems = [
            problem
            for i, change in enumerate(changes)
            for path, value in change.items()
            if (problem := self._problem(path, value, f"changes[{i}]"))
        ]
        if problems:
            raise SpecError("what_if", problems)

    def _problem(self, path: str, value: object, place: str) -> Problem | None:
        """Return the problem of a new value of a figure; other values are checked when the system is created."""
        figure: Figure | None = self._figures.get(path)
        return None if figure is None else figure.problem(value, f"{place}: {path}")

    def groups(self) -> list[tuple[System, Array]]:
        """Return the rows grouped by how their machines are built, each group as a column of machines."""
        rows: dict[Any, list[int]] = {}
        for i, change in enumerate(self._changes):
            rows.setdefault(self._built(change), []).append(i)
        return [self._checked([path for path, _ in key[0]], own) for key, own in rows.items()]

    def _built(self, change: Change) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...]]:
        """Return the part of a change that decides how a machine is built: other values, and figures switched to 0."""
        known = self._figures
        terms = [path for path in change if path in known and not known[path].builds]
        switched = [path for path in terms if (change[path] == 0) != (known[path].value == 0)]
        if len(terms) == len(change):
            return (), tuple(sorted(switched))
        others = sorted((path, repr(change[path])) for path in change.keys() - set(terms))
        return tuple(others), tuple(sorted(switched))

    def _checked(self, built: Sequence[str], rows: Sequence[int]) -> tuple[System, Array]:
        """Return :meth:`_column`; if it fails, raise an error that names the row with contradictory figures."""
        try:
            return self._column(built, rows)
        except SpecError:
            for i in rows:
                try:
                    self._system(self._changes[i])
                except SpecError as error:
                    raise SpecError(f"changes[{i}]", error.problems) from None
            raise

    def _column(self, built: Sequence[str], rows: Sequence[int]) -> tuple[System, Array]:
        """Return the machines of rows that are built alike, with equal values at the given paths."""
        changes = [self._changes[i] for i in rows]
        # Figures become columns of one system, so that all rows are evaluated with array operations.
        system = self._system({path: changes[0][path] for path in built}) if built else self._base
        columns: dict[str, float | Array] = {}
        for path in dict.fromkeys(path for change in changes for path in change):
            if path in built:
                continue
            figure = self._figures[path]
            values = [change.get(path, figure.value) for change in changes]
            same = values.count(values[0]) == len(values)
            columns[path] = values[0] if same else np.array(values, figure.kind)
        return with_figures(system, columns) if columns else system, np.array(rows)

    def _system(self, change: Change) -> System:
        """Return the system with some values changed."""
        if change.keys() <= self._figures.keys() or self._source is None:
            return with_figures(self._base, change)
        return inputs.system(Changed.of(self._source, change))


def _source(base: System, source: Any) -> Any:
    """Return the source from which a system can be read again; None for one that was constructed in Python."""
    if not isinstance(source, System):
        return source
    if base.origin is None or not base.origin.source:
        return None
    return Changed.of(base.origin.source, base.origin.changes)


def _joined(plan: Plan, parts: Sequence[tuple[Array, Evaluation]]) -> Evaluation:
    """Join evaluations of parts of a plan in the order of its rows."""
    names = max((one.names for _, one in parts), key=len)
    values = {name: np.full(len(plan), np.nan) for name in names}
    codes = np.zeros(len(plan), np.int16)
    for rows, one in parts:
        codes[rows] = one.codes
        for name in one.names:
            values[name][rows] = one[name]
    return Evaluation(plan, codes, values)
