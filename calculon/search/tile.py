"""One tile of a search: the results of a unit with some block structures, on an open grid."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from calculon.cost.batch import Batch
from calculon.cost.ends import EndTimes
from calculon.parallel.pipeline.transfers import bubble_time
from calculon.plan.schedule import Schedule
from calculon.records import gather
from calculon.search.grid import OFFLOADS, Grid
from calculon.search.nodes import unit_schedule
from calculon.search.space import STRUCTURE
from calculon.units import Array, Seconds

ROW_BLOCK = 16_384
"""Executions whose results are computed at once."""


@dataclass(frozen=True)
class Rows:
    """Some executions of a tile on an open grid.

    Attributes
    ----------
    batch : Batch
        Their statistics, on axes that broadcast to (overlap, data network, pipeline network, tensor network, rows).
    numbers : array
        Their numbers, on all axes.
    allowed : array of bool
        Which combinations of networks fit, broadcast to all axes.
    """

    batch: Batch
    numbers: Array
    allowed: Array


class Tile(Grid):
    """A unit with some block structures: its memory grid, and the results of the cells that fit."""

    @cached_property
    def least_time(self) -> Seconds:
        """A time that no execution of a cell beats, whatever its networks, overlap and offloading.

        Computation, recomputation, the least tensor-parallel time and the bubble of these; transfers, data-parallel
        and offload traffic only add to it. Axes (interleaving, sharding, node).
        """
        grid = self.memory
        block = gather(self.tables.block, self.block_rows)
        piped = np.array(self.unit.pipeline_par > 1)
        tensor = self.tables.edition.at_edge(block.collectives, piped)
        compute = block.fw.time + block.re.time + block.agrad.time + block.wgrad.time
        exposed = tensor.fw_tp.time_exposed + tensor.recomm.time_exposed
        exposed = exposed + tensor.agrad_tp.time_exposed
        base, edge = (compute + exposed).min(axis=1)
        schedule = grid.schedule
        time = schedule.batch_sum(base, edge) + bubble_time(schedule, base, edge)
        time = time + schedule.blocks * grid.optimizer.step.time
        ends = self.tables.ends(self.block_rows, self.step_rows)
        end_times = EndTimes(ends, schedule) if ends else None
        if end_times is not None:
            time = time + end_times.least()
        if (stages := schedule.stages) is not None and stages.stated.any():
            least = self._least_of_stages(schedule, np.minimum(base, edge), end_times)
            least = least + schedule.blocks * grid.optimizer.step.time
            time = np.where(stages.stated, least, time)
        return np.asarray(time[:, :, 0, 0, 0, :])

    def _least_of_stages(
        self, schedule: Schedule, block: Seconds, ends: EndTimes | None
    ) -> Seconds:
        """Return a time of the passes that no schedule and layout beats: that of the mean and of the fullest stage."""
        assert schedule.stages is not None
        mean = schedule.stages.mean(schedule.pipeline_par) * block
        if ends is not None:
            mean = mean + (ends.embedding + ends.head).min(axis=0) / schedule.pipeline_par
        fullest: Seconds = np.maximum(mean, schedule.blocks * block)
        return schedule.microbatches * fullest

    def forget_grid(self) -> None:
        """Give the memory of the grid free: what fits is known, and so is the least time."""
        for name in ("memory", "verdicts", "enumerated", "least_time"):
            self.__dict__.pop(name, None)

    def rows(self, cells: tuple[Array, ...]) -> Iterator[Rows]:
        """Yield executions of cells of the memory grid, given by their six indices, in blocks."""
        combinations = len(self.overlap) * self.allowed_networks.size
        step = max(1, ROW_BLOCK // combinations)
        for start in range(0, len(cells[0]), step):
            yield self._rows(tuple(index[start : start + step] for index in cells))

    def _rows(self, cells: tuple[Array, ...]) -> Rows:
        chunk, shard, weight, activation, optimizer, node = cells
        switches, unit = self.space.switches, self.unit
        overlap = np.array(self.overlap)[:, None, None, None, None]
        data, pipeline, tensor = self._network_axes([np.array(n) for n in self.networks])
        offloads = tuple(
            np.array(switches[name])[index]
            for name, index in zip(OFFLOADS, (weight, activation, optimizer), strict=True)
        )
        schedule = unit_schedule(
            self.tables,
            unit,
            np.array(unit.interleavings, float)[chunk],
            np.broadcast_to(self.shards, self.step_rows.shape)[shard, node].astype(float),
            offloads,
            {name: values[node] for name, values in self.nodes.items()},
            overlap,
            (data, pipeline, tensor),
        )
        blocks, steps = self.block_rows[:, node], self.step_rows[shard, node]
        batch = Batch(
            self.space.model,
            gather(self.tables.block, blocks),
            gather(self.tables.optimizer, steps),
            schedule,
            self.space.system,
            self.tables.edition,
            self.tables.ends(blocks, steps),
        )
        allowed = self.allowed_networks[None, :, :, :, None]
        return Rows(batch, self._numbers(cells), allowed)

    @staticmethod
    def _network_axes(networks: list[Array]) -> tuple[Array, Array, Array]:
        """Lay values per data, pipeline and tensor network along their axes of the result grid."""
        data, pipeline, tensor = networks
        return (
            data[:, None, None, None],
            pipeline[:, None, None],
            tensor[:, None],
        )

    @cached_property
    def _node_numbers(self) -> Array:
        """What each node, with everything the unit fixes, adds to the number of an execution."""
        space, unit = self.space, self.unit
        fixed = (
            space.number("tensor_par", (unit.tensor_par,))
            + space.number("pipeline_par", (unit.pipeline_par,))
            + unit.batch_position * space.strides["batch_size"]
        )
        of_structure = np.zeros(len(self.structures), np.int64)
        choices = [self.tables.structures[s] for s in self.structures]
        for name in STRUCTURE:
            if len(space.switches[name]) == 1:  # at position 0
                continue
            of_structure += space.number(name, tuple(getattr(c, name) for c in choices))
        sizes = space.number("microbatch_size", unit.microbatches)
        return np.asarray(fixed + (of_structure[:, None] + sizes).ravel())

    def _numbers(self, cells: tuple[Array, ...]) -> Array:
        """Return the numbers of the executions of cells, on all result axes."""
        space, unit = self.space, self.unit
        names = ("pipeline_interleaving", "optimizer_sharding", *OFFLOADS)
        switches = space.switches
        candidates = (unit.interleavings, self.sharding, *(switches[name] for name in OFFLOADS))
        rows = self._node_numbers[cells[5]]
        for name, values, index in zip(names, candidates, cells[:5], strict=True):
            rows = rows + space.number(name, values)[index]
        data, pipeline, tensor = self._network_axes(
            [
                space.number(name, values)
                for name, values in zip(
                    ("data_par_net", "pipeline_par_net", "tensor_par_net"),
                    self.networks,
                    strict=True,
                )
            ]
        )
        overlap = space.number("data_par_overlap", self.overlap)[:, None, None, None, None]
        return np.asarray(overlap + (data + (pipeline + (tensor + rows))))
