"""Tile of a search: results of some nodes, on an open grid."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from calculon.architecture.shape import sequence_lengths
from calculon.base.arrays import cached_property, forget
from calculon.base.frozen import dataclass
from calculon.base.records import Column
from calculon.base.units import Array, Count, Seconds
from calculon.cost.batch import Batch
from calculon.declarations.run_figures import RUN_FIGURES
from calculon.plan.columns import Columns
from calculon.plan.schedule import Schedule
from calculon.search.bound import exposed_lower_bound, time_lower_bound
from calculon.search.grid import GRID_AXES, NETWORKS, OF_CELLS, Grid
from calculon.search.objective import Objective
from calculon.search.space import Space

if TYPE_CHECKING:
    from calculon.campaign.whole_run import WholeRun

ROW_BLOCK = 16_384
"""Number of executions whose results are computed at once: temporaries of 128 KiB per column stay in the cache."""

RESULT_AXES = ("data_par_overlap", *NETWORKS, "row")
"""Axes of results; short axes come first, so that NumPy's innermost loops are long."""


@dataclass(frozen=True)
class Rows:
    """Some executions of a tile on an open grid.

    Attributes:
        batch: Statistics of the executions, on axes that broadcast to :data:`RESULT_AXES`.
        numbers: Numbers of the executions, on all axes.
        allowed: Mask of network combinations that fit, broadcast to all axes.
        space: Space of the executions.
    """

    batch: Batch
    numbers: Array
    allowed: Array
    space: Space

    @property
    def count(self) -> int:
        """Number of executions that can run."""
        return int(np.count_nonzero(np.broadcast_to(self.allowed, self.numbers.shape)))

    def bound(self, objective: Objective) -> Array:
        """Return the scores, or for figures of training runs their upper bounds, on all axes."""
        if objective.of_runs:
            assert self.space.runs is not None
            schedule, time = self.batch.schedule, self.batch.times
            found = self.space.runs.bound(objective, schedule, lambda: time.total_time)
            # Without a bound, nothing is pruned.
            score = np.asarray(np.inf) if found is None else found
        else:
            score = objective.score(self.batch)
        return np.broadcast_to(score, self.numbers.shape)


@dataclass(frozen=True)
class Chosen:
    """Selected executions of a grid, in a flat array.

    Attributes:
        rows: The grid.
        flat: Flat indices of the executions in the grid.
    """

    rows: Rows
    flat: Array

    def __len__(self) -> int:
        return len(self.flat)

    @cached_property
    def places(self) -> tuple[Array, ...]:
        """Indices of the executions along each axis."""
        return np.unravel_index(self.flat, self.rows.numbers.shape)

    def take(self, some: Array) -> "Chosen":
        """Return a selection of these executions."""
        return Chosen(self.rows, self.flat[some])

    def pick(self, values: Array) -> Array:
        """Return the entries of these executions in values that broadcast to the grid."""
        return np.asarray(np.broadcast_to(values, self.rows.numbers.shape)[self.places])

    @cached_property
    def numbers(self) -> Array:
        """Numbers of the executions."""
        return self.rows.numbers[self.places]

    @cached_property
    def runs(self) -> "WholeRun":
        """Training runs of the executions."""
        assert self.rows.space.runs is not None
        return self.rows.space.runs.of_batch(self.rows.batch, self.pick)

    def values(self, statistic: Column) -> Array:
        """Return a statistic of the executions, or a figure of their training runs."""
        if statistic.name in RUN_FIGURES:
            return np.broadcast_to(statistic.of(self.runs), self.flat.shape)
        return self.pick(statistic.of(self.rows.batch))


class Tile(Grid):
    """Nodes with their memory grid, and the results of the cells that fit."""

    @cached_property
    def time_lower_bound(self) -> Seconds:
        """Lower bound of the time of each cell over its networks, overlap and offloading options.

        See :func:`~calculon.search.bound.time_lower_bound`. Axes (sharding, node).
        """
        return time_lower_bound(self)

    def closer_lower_bound(self, nodes: Array) -> Seconds:
        """Return a closer lower bound for selected nodes, with the least exposed data-parallel time."""
        return self.time_lower_bound[:, nodes] + exposed_lower_bound(self, nodes)

    @property
    def batch_size(self) -> Count:
        """Global batch of each node."""
        return self.nodes.columns["batch_size"]

    @property
    def tokens(self) -> Count:
        """Tokens of the global batch of each node."""
        lengths = sequence_lengths(self.space.model, self.nodes.columns["seq_length"])
        tokens: Count = self.batch_size * lengths
        return tokens

    def schedule(self, nodes: Array | slice) -> Schedule:
        """Return the schedules of selected nodes."""
        known = {name: v[nodes] if v.ndim else v for name, v in self.nodes.columns.items()}
        return Schedule(Columns(known), self.choice, self.space.model, self.space.system)

    def release_grid(self) -> None:
        """Release the memory of the grid, except feasibility and lower bounds; columns are gathered again if needed."""
        forget(self, "memory", "needed", "violations", "enumerated", "columns", "step_rows")
        forget(self, "_multiplicity")
        self.nodes.release_columns()

    def rows(self, cells: tuple[Array, ...]) -> Iterator[Rows]:
        """Yield the executions of cells of the memory grid, given by their indices, in blocks."""
        combinations = len(self.overlap) * self.allowed_networks[0].size
        step = max(1, ROW_BLOCK // combinations)
        for start in range(0, len(cells[0]), step):
            yield self._rows(tuple(index[start : start + step] for index in cells))

    def _rows(self, cells: tuple[Array, ...]) -> Rows:
        shard, *switched, node = cells
        space, switches = self.space, self.space.switches
        columns = {
            **{name: v[node] if v.ndim else v for name, v in self.nodes.columns.items()},
            "optimizer_sharding": np.array(self.sharding)[shard],
            **{n: np.array(switches[n])[i] for n, i in zip(OF_CELLS, switched, strict=True)},
            "data_par_overlap": _along(self.overlap, "data_par_overlap"),
            **{name: _along(v, name) for name, v in zip(NETWORKS, self.networks, strict=True)},
        }
        blocks, steps = self.nodes.block_rows[:, node], self.step_rows[shard, node]
        batch = self.batch(Columns(columns), blocks, steps)
        allowed = np.moveaxis(self.allowed_networks[self.nodes.unit[node]], 0, -1)
        return Rows(batch, self._numbers(cells), allowed[None], space)

    def _numbers(self, cells: tuple[Array, ...]) -> Array:
        """Return the numbers of the executions of cells, on all result axes."""
        space, switches = self.space, self.space.switches
        candidates = (self.sharding, *(switches[name] for name in OF_CELLS))
        numbers = self.nodes.numbers[cells[-1]]
        for name, values, index in zip(GRID_AXES[:-1], candidates, cells, strict=False):
            numbers = numbers + space.number(name, values)[index]
        for name, values in zip(reversed(NETWORKS), reversed(self.networks), strict=True):
            numbers = _along(space.number(name, values), name) + numbers
        overlap = space.number("data_par_overlap", self.overlap)
        return np.asarray(_along(overlap, "data_par_overlap") + numbers)


def _along(values: object, name: str) -> Array:
    """Lay values along the named axis of results, without the axes before it."""
    behind = len(RESULT_AXES) - 1 - RESULT_AXES.index(name)
    return np.asarray(values).reshape(-1, *(1,) * behind)
