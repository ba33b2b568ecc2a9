"""Evaluation of tables of executions: block costs per distinct block, batch formulas for every row.

One execution and a million use the same functions. Row *i* of a table equals the evaluation of that row alone, bit for
bit: every operation is elementwise, and sums over layers run from first to last.
"""

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Literal, overload

import numpy as np

from calculon import inputs
from calculon.base.display import WithMfu, draw_result
from calculon.base.errors import nearest
from calculon.base.frozen import dataclass
from calculon.base.record_arrays import gather
from calculon.base.records import columns
from calculon.base.units import Array
from calculon.cost.batch import Batch
from calculon.cost.block_tables import block_tables
from calculon.declarations.model import Model
from calculon.declarations.named_values import CORRECTED
from calculon.declarations.scope_choices import BatchChoice
from calculon.declarations.statistics import CorrectedStats, Stats
from calculon.editions import EDITIONS, SC23, find_edition
from calculon.editions.edition import Edition
from calculon.estimate.argument_order import takes_either_order
from calculon.estimate.memory_limit import fits, memory_codes
from calculon.hardware.figures import of_rows
from calculon.hardware.system import System
from calculon.inputs import Source
from calculon.plan.choices import grouped
from calculon.plan.columns import Selected
from calculon.plan.plan import NAMES, PUBLISHED_NAMES, Executions, Plan
from calculon.plan.read_plan import read_plan
from calculon.plan.rules.all_rules import REASONS, check
from calculon.plan.schedule import Schedule

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from plotly.graph_objects import Figure as InteractiveFigure

CHUNK_ROWS = 16_384
"""Number of rows whose batch formulas are evaluated at once: temporaries of 128 KiB per column stay in the cache."""


@dataclass(frozen=True)
class Evaluation(WithMfu[Array]):
    """Statistics of a table of executions.

    Attributes:
        plan: The executions.
        codes (shape (rows,)): Infeasibility reason of each row, as a code of
            :data:`~calculon.plan.rules.all_rules.REASONS`; 0 is feasible.
    """

    plan: Plan
    codes: Array
    _values: dict[str, Array]

    def __len__(self) -> int:
        return len(self.plan)

    def __getitem__(self, name: str) -> Array:
        """Return a statistic by name: float64, one entry per row, not-a-number in infeasible rows.

        Raises:
            KeyError: For an unknown statistic; the message names the nearest.
        """
        if name in self._values:
            return self._values[name]
        raise KeyError(self._unknown(name, self.names))

    def _unknown(self, name: object, known: tuple[str, ...]) -> str:
        """Return a message for an unknown name, with a suggestion."""
        if not isinstance(name, str):
            return f"columns are found by name, not by {name!r}; take selects rows"
        if name in (*NAMES, "reason"):
            return f"{name!r} is not a statistic; use column({name!r})"
        if name in [c.name for c in columns(CorrectedStats)]:
            return f"{name!r} needs edition {CORRECTED}"
        return f"no statistic {name!r}; " + (nearest(name, known) or "names lists all")

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the statistics, in published order."""
        return tuple(self._values)

    @property
    def fields(self) -> tuple[str, ...]:
        """Execution fields of the table: the 23 published ones, and the optional ones except in edition ``sc23``."""
        return PUBLISHED_NAMES if len(self._values) == len(columns(Stats)) else NAMES

    @property
    def feasible(self) -> Array:
        """Mask of the rows that can run."""
        return self.codes == 0

    @cached_property
    def reason(self) -> Array:
        """Infeasibility reason of each row, as a short identifier; empty for a feasible row."""
        return np.array(REASONS)[self.codes]

    def take(self, rows: Array | slice) -> "Evaluation":
        """Select rows by number or mask."""
        values = {name: column[rows] for name, column in self._values.items()}
        return Evaluation(self.plan.take(rows), self.codes[rows], values)

    def with_statistics(self, values: Mapping[str, Array]) -> "Evaluation":
        """Return the table with additional statistics, given by name."""
        return Evaluation(self.plan, self.codes, {**self._values, **values})

    def column(self, name: str) -> Array:
        """Return a statistic, an execution field (named values as text) or ``reason`` by name.

        Raises:
            KeyError: For an unknown name; the message names the nearest.
        """
        if name in self._values:
            return self._values[name]
        if name == "reason":
            return self.reason
        if name in NAMES:
            return self.plan.values(name)
        raise KeyError(self._unknown(name, (*self.names, *NAMES, "reason")))

    def _statistic(self, name: str) -> Array:
        return self._values[name] if name in self._values else np.full(len(self), np.nan)

    def table(self) -> dict[str, Array]:
        """Return a row for each execution: its fields, the ``reason`` if it cannot run, and its statistics."""
        return {**self.plan.table(), "reason": self.reason, **self._values}

    @overload
    def plot(
        self,
        x: str = "proc_mem_tier1_cap_req",
        y: str = "sample_rate",
        *,
        interactive: Literal[False] = False,
    ) -> "Figure": ...

    @overload
    def plot(
        self,
        x: str = "proc_mem_tier1_cap_req",
        y: str = "sample_rate",
        *,
        interactive: Literal[True],
    ) -> "InteractiveFigure": ...

    def plot(
        self,
        x: str = "proc_mem_tier1_cap_req",
        y: str = "sample_rate",
        *,
        interactive: bool = False,
    ) -> "Figure | InteractiveFigure":
        """Plot one statistic over another, and mark the Pareto front.

        Args:
            x, y: ``STATISTIC[:max|min]`` or ``num_procs``; by default the better direction of the statistic.
            interactive: Return a plotly Figure as on the web page (extra ``web``), with the best execution of each
                split.

        Raises:
            SpecError: For an unknown statistic, and if the library is missing.
            Infeasible: When no execution can run.
        """
        return draw_result(self, "scatter", interactive=interactive, x=x, y=y)

    def __repr__(self) -> str:
        return f"<Evaluation of {len(self):,} executions, {int(self.feasible.sum()):,} feasible>"


@takes_either_order
def evaluate(
    model: Source | Model,
    plan: Source | Executions,
    system: Source | System,
    *,
    edition: Edition | str | None = None,
) -> Evaluation:
    """Evaluate every row of a table of executions.

    Args:
        model, system: As in :func:`calculon.estimate`; a column of machines has one machine per row.
        plan: The executions: a table, or one plan as in :func:`calculon.estimate`. Rows that would be an error alone
            are marked with their reason and contain not-a-number. Other columns of result tables in a DataFrame (such
            as statistics) are ignored. Degrees and batch are enough: the default preset of each row fills in the rest.
            Columns may also have the words of plans: ``{"tp": [1, 2], "dp": [8, 4], "batch": "4M"}``.
        edition: Edition of the cost model, or its name, for all rows; by default the edition of each row.

    Raises:
        SpecError: For a malformed model or system, for a missing or unknown field or column, and for a value in words
            that cannot be read; never for the value of a field.

    Examples:
        >>> table = evaluate("llama-3-8b", {"tp": [1, 2], "dp": [8, 4]}, "h100")
        >>> table.plan.num_procs.tolist(), set(table.column("preset").tolist())
        ([8, 8], {'torchtitan'})
    """
    model, system = inputs.model(model), inputs.system(system)
    known = None if edition is None else find_edition(edition).name
    plan = read_plan(plan, model, system, known)
    codes = check(model, system, plan)
    used = [one for one in EDITIONS.values() if plan.is_choice("edition", one.name).any()]
    names = [c.name for c in (used or [find_edition(edition or SC23)])[-1].columns]
    values = np.full((len(names), len(plan)), np.nan)
    for one in used:
        rows = np.flatnonzero((codes == 0) & plan.is_choice("edition", one.name))
        _fill(values, codes, rows, model, system, plan, one)
    return Evaluation(plan, codes, dict(zip(names, values, strict=True)))


def _fill(
    values: Array,
    codes: Array,
    rows: Array,
    model: Model,
    system: System,
    plan: Plan,
    edition: Edition,
) -> None:
    """Evaluate rows of one edition into a table of statistics, and mark rows that do not fit in memory."""
    whole = len(rows) == len(plan)
    some = (system, plan) if whole else (of_rows(system, rows), plan.take(rows))
    for part, batch in evaluate_rows(model, *some, edition):
        here = rows[part]
        found = memory_codes(codes[here], batch)
        codes[here] = found
        all_fit = not found.any()
        good: Array | slice = slice(None) if all_fit else found == 0
        target: Array | slice = here[good]
        # Consecutive rows are written through a slice, which is faster than fancy indexing.
        if all_fit and here[-1] - here[0] == len(here) - 1:
            target = slice(int(here[0]), int(here[-1]) + 1)
        stats = batch.stats
        for values_row, c in zip(values, edition.columns, strict=False):
            column = c.of(stats)
            values_row[target] = column[good] if column.shape == found.shape else column


def evaluate_rows(
    model: Model, system: System, plan: Plan, edition: Edition = SC23
) -> Iterator[tuple[Array, Batch]]:
    """Yield the statistics of valid rows, with the rows they belong to; memory is not checked.

    Rows that share the strategies of a batch are evaluated together, in chunks.
    """
    if not len(plan):
        return
    if model.mtp_layers and not plan.training.all():  # modules have no part in inference
        for training in (True, False):
            some = np.flatnonzero(plan.training == training)
            own = of_rows(system, some)
            of_some = model.executed(training=training), own, plan.take(some), edition
            for part, batch in evaluate_rows(*of_some):
                yield some[part], batch
        return
    system = edition.machine(system)
    tables = block_tables(model, system, plan, edition)
    for choice, group in grouped(plan, BatchChoice):
        for start in range(0, len(group), CHUNK_ROWS):
            part = group[start : start + CHUNK_ROWS]
            rows = plan if len(part) == len(plan) else Selected(plan, part)
            own = of_rows(system, part)
            batch = Batch(
                model,
                gather(tables.block, tables.block_row[part]),
                gather(tables.optimizer, tables.optimizer_row[part]),
                Schedule(rows, choice, model, own),
                own,
                edition,
                tables.embedding_head_of(part),
                tables.kinds_of(part),
                fits,
            )
            yield part, batch


def evaluate_one(model: Model, system: System, plan: Plan, edition: Edition) -> Batch:
    """Return the statistics of the only execution of a plan, which must be valid."""
    ((_, batch),) = evaluate_rows(model, system, plan, edition)
    return batch
