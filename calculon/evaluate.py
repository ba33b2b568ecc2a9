"""Evaluate a table of executions: block costs once per distinct block, batch formulas on every row.

The same functions serve one execution and a million. Row *i* of a table equals that row alone, bit for bit: every
operation works element by element, and sums over layers run from first to last.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from calculon import inputs
from calculon.cost.batch import batch_stats
from calculon.cost.block import (
    BlockCost,
    OptimizerCost,
    block_cost,
    layer_table,
    optimizer_cost,
)
from calculon.edition import Edition
from calculon.editions import SC23
from calculon.hardware.system import System
from calculon.inputs import Source
from calculon.plan.choice import Choice, Sizes
from calculon.plan.plan import FIELDS, Plan
from calculon.plan.rules import REASONS, Question, check, check_memory
from calculon.plan.schedule import Schedule
from calculon.records import columns, concatenate, take
from calculon.spec.model import Model
from calculon.statistics import Stats
from calculon.units import Array

if TYPE_CHECKING:
    import pandas as pd

CHUNK_ROWS = 16_384
"""Rows whose batch formulas are evaluated at once: the temporaries stay in the cache."""

BLOCK_ROWS = 4_096
"""Blocks whose layers are laid out at once: bounds the memory of a layer table."""

CHOICE_FIELDS = tuple(field.name for field in FIELDS if field.name in Choice.__slots__)
_CHOICES = {field.name: field.declaration.choices or (False, True) for field in FIELDS}


@dataclass(frozen=True, slots=True)
class BlockTables:
    """Costs of the distinct blocks of a plan, and which of them each row uses."""

    block: BlockCost
    block_row: Array
    optimizer: OptimizerCost
    optimizer_row: Array


@dataclass(frozen=True)
class Evaluation:
    """The statistics of a table of executions.

    Attributes
    ----------
    plan : Plan
        The executions.
    codes : array of int16, shape (rows,)
        Why a row is infeasible, as a code of :data:`~calculon.plan.rules.REASONS`; 0 is feasible.
    """

    plan: Plan
    codes: Array
    _values: dict[str, Array]

    def __len__(self) -> int:
        return len(self.plan)

    def __getitem__(self, name: str) -> Array:
        """Return a statistic by name: float64, one entry per row, not-a-number in rows that are infeasible.

        Raises
        ------
        KeyError
            When there is no statistic of this name.
        """
        return self._values[name]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the statistics, in published order."""
        return tuple(self._values)

    @property
    def feasible(self) -> Array:
        """Mask of the rows that can run."""
        mask: Array = self.codes == 0
        return mask

    @cached_property
    def reason(self) -> Array:
        """Why a row cannot run, as a short identifier; empty for a feasible row."""
        return np.array(REASONS)[self.codes]

    def to_frame(self) -> "pd.DataFrame":
        """Return executions, reason and statistics as a DataFrame, one row per execution."""
        import pandas as pd  # only for people who want frames

        frame = self.plan.to_frame()
        stats = pd.DataFrame(self._values)
        return pd.concat([frame, pd.Series(self.reason, name="reason"), stats], axis=1)

    def __repr__(self) -> str:
        return f"<Evaluation of {len(self):,} executions, {int(self.feasible.sum()):,} feasible>"


def evaluate(
    model: Source | Model,
    system: Source | System,
    plan: Plan,
    *,
    edition: Edition = SC23,
) -> Evaluation:
    """Evaluate every row of a table of executions.

    Parameters
    ----------
    model, system : str, path, mapping or record
        As in :func:`calculon.estimate`.
    plan : Plan
        The executions. Rows that alone would be an error are marked with their reason and hold not-a-number.
    edition : Edition
        Edition of the cost model.

    Raises
    ------
    SpecError
        For a malformed model or system; never for a row.
    """
    model, system = inputs.model(model), inputs.system(system)
    codes = check(Question(model, system, plan))
    rows = np.flatnonzero(codes == 0)
    names = [c.name for c in columns(Stats)]
    values = np.full((len(names), len(plan)), np.nan)
    whole = len(rows) == len(plan)
    for part, stats in evaluate_rows(model, system, plan if whole else plan.take(rows), edition):
        here = rows[part]
        needed = stats.capacity
        found = check_memory(
            codes[here], needed.proc_mem_tier1_cap_req, needed.proc_mem_tier2_cap_req, system
        )
        codes[here] = found
        good: Array | slice = found == 0
        target: Array | slice = here[good]
        if whole and not found.any():
            good, target = slice(None), part
        for values_row, c in zip(values, columns(Stats), strict=True):
            values_row[target] = c.of(stats)[good]
    return Evaluation(plan, codes, dict(zip(names, values, strict=True)))


def evaluate_rows(
    model: Model, system: System, plan: Plan, edition: Edition = SC23
) -> Iterator[tuple[slice, Stats]]:
    """Yield the statistics of valid rows in chunks, with the rows they belong to; memory is not checked."""
    if not len(plan):
        return
    tables = block_tables(model, system, plan, edition)
    for start in range(0, len(plan), CHUNK_ROWS):
        part = slice(start, min(start + CHUNK_ROWS, len(plan)))
        with np.errstate(invalid="ignore"):  # null is not-a-number
            yield (
                part,
                batch_stats(
                    take(tables.block, tables.block_row[part]),
                    take(tables.optimizer, tables.optimizer_row[part]),
                    Schedule.of(plan.take(part), model),
                    system,
                    edition,
                ),
            )


def block_tables(model: Model, system: System, plan: Plan, edition: Edition = SC23) -> BlockTables:
    """Cost every distinct block of a plan once.

    A block depends on the choices, the tensor-parallel degree and network, and the microbatch; its optimizer step on
    the shards in place of the last two.
    """
    shards = np.where(plan.optimizer_sharding, plan.data_par, 1)
    keys, group_of = _distinct([getattr(plan, name) for name in CHOICE_FIELDS])
    blocks: list[BlockCost] = []
    optimizers: list[OptimizerCost] = []
    block_row = np.zeros(len(plan), np.int64)
    optimizer_row = np.zeros(len(plan), np.int64)
    block_count = optimizer_count = 0
    order = np.argsort(group_of, kind="stable")
    bounds = np.searchsorted(group_of[order], np.arange(len(keys) + 1))
    for number, key in enumerate(keys):
        rows = order[bounds[number] : bounds[number + 1]]
        choice = _choice(key)
        sizes, size_of = _distinct(
            [plan.tensor_par[rows], plan.microbatch_size[rows], plan.tensor_par_net[rows]]
        )
        steps, step_of = _distinct([plan.tensor_par[rows], shards[rows]])
        for start in range(0, len(sizes), BLOCK_ROWS):
            part = sizes[start : start + BLOCK_ROWS]
            column_sizes = Sizes(
                tensor_par=part[:, 0].astype(float),
                microbatch_size=part[:, 1].astype(float),
                tensor_par_net=part[:, 2],
            )
            table = layer_table(model, choice, column_sizes, edition)
            blocks.append(block_cost(model, system, choice, column_sizes, edition, table))
        degrees, first = np.unique(sizes[:, 0], return_index=True)
        weights = Sizes(
            tensor_par=degrees.astype(float),
            microbatch_size=sizes[first, 1].astype(float),
            tensor_par_net=sizes[first, 2],
        )
        if len(sizes) > BLOCK_ROWS or len(degrees) < len(sizes):
            table = layer_table(model, choice, weights, edition)
        optimizers.append(
            optimizer_cost(
                table,
                np.searchsorted(degrees, steps[:, 0]),
                steps[:, 1].astype(float),
                system,
                choice,
                edition,
            )
        )
        block_row[rows] = block_count + size_of
        optimizer_row[rows] = optimizer_count + step_of
        block_count += len(sizes)
        optimizer_count += len(steps)
    return BlockTables(concatenate(blocks), block_row, concatenate(optimizers), optimizer_row)


def choice_of(plan: Plan) -> Choice:
    """Return the choices of the first row of a plan."""
    return _choice(np.array([getattr(plan, name)[0] for name in CHOICE_FIELDS]))


def sizes_of(plan: Plan) -> Sizes:
    """Return the sizes of every row of a plan."""
    return Sizes(
        tensor_par=plan.tensor_par.astype(float),
        microbatch_size=plan.microbatch_size.astype(float),
        tensor_par_net=plan.tensor_par_net,
    )


def _choice(key: Array) -> Choice:
    values: dict[str, Any] = {
        name: _CHOICES[name][int(code)] for name, code in zip(CHOICE_FIELDS, key, strict=True)
    }
    return Choice(**values)


def _distinct(columns: list[Array]) -> tuple[Array, Array]:
    """Return the distinct rows of integer columns, ascending, and the number of each row among them."""
    if len(columns[0]) == 1:
        return np.array([[int(c[0]) for c in columns]]), np.zeros(1, np.int64)
    ranks = np.zeros(len(columns[0]), np.int64)
    for values in columns:
        distinct, inverse = np.unique(values, return_inverse=True)
        ranks = ranks * len(distinct) + inverse
    _, first, inverse = np.unique(ranks, return_index=True, return_inverse=True)
    return np.stack([c[first] for c in columns], axis=1).astype(np.int64), inverse
