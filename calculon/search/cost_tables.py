"""Block costs of a search: every distinct block of some tensor degrees, laid out so that its row is arithmetic."""

from collections.abc import Hashable, Sequence
from functools import cached_property

import numpy as np

from calculon.cost.block_cost import BlockCost, BlockLayout
from calculon.cost.block_tables import EndTables, block_costs
from calculon.cost.ends import Ends
from calculon.cost.optimizer_step import OptimizerCost, optimizer_cost
from calculon.editions import EDITIONS
from calculon.plan.plan import DEFAULTS, code
from calculon.plan.rules.data_rules import NEEDS
from calculon.plan.stage_layout import STAGE_FIELDS
from calculon.records import concatenate
from calculon.search.space import Space, Unit
from calculon.units import Array

ANY_REPLICAS = ("coll_algo", "mesh_order", "mem_reserved_mib")
"""Fields of collectives and memory that any form of data parallelism has."""

BATCH_FIELDS = ("zero_stage", *NEEDS, *ANY_REPLICAS, *STAGE_FIELDS, "latency_per_step")
"""Fields of a block structure that only the batch level knows of."""


class SearchTables:
    """Costs of the blocks and optimizer steps of some units.

    Rows of ``block`` are numbered by structure, then tensor degree, then microbatch size, then tensor network; rows of
    ``optimizer`` by layout of the block, then tensor degree, then shards.

    Attributes
    ----------
    structures : tuple of Choice
        The block structures; those without overlap are all that a tensor degree of 1 has.
    """

    def __init__(self, space: Space, units: Sequence[Unit]):
        self.space = space
        self.edition = EDITIONS[space.edition]
        degrees = sorted({unit.tensor_par for unit in units}, reverse=True)  # 1 is the last
        self.structures = space.structures(parallel=degrees[0] > 1)
        self._micro = {
            t: np.array(sorted({b for u in units if u.tensor_par == t for b in u.microbatches}))
            for t in degrees
        }
        self._networks = {t: space.networks("tensor_par_net", t) for t in degrees}
        parts = {1, *(c.dp_shard for c in self.structures if c.dp_shard)}
        self._shards = {
            t: np.array(sorted({*parts, *(u.data_par for u in units if u.tensor_par == t)}))
            for t in degrees
        }
        self._block_start = self._starts({t: len(self._block_sizes(t)) for t in degrees})
        self._step_start = self._starts({t: len(self._shards[t]) for t in degrees})
        self._build(degrees)

    @staticmethod
    def _starts(lengths: dict[int, int]) -> dict[int, int]:
        starts, total = {}, 0
        for degree, length in lengths.items():
            starts[degree] = total
            total += length
        return starts

    def _block_sizes(self, degree: int) -> list[tuple[int, int, int]]:
        return [(degree, b, net) for b in self._micro[degree] for net in self._networks[degree]]

    def _build(self, degrees: list[int]) -> None:
        """Cost blocks of every structure, and optimizer steps of every layout."""
        space, count = self.space, len(self.structures)
        layouts: dict[Hashable, list[int]] = {}
        for number, choice in enumerate(self.structures):
            layouts.setdefault(BlockLayout.key(choice), []).append(number)
        ends = EndTables(space.model, space.system, self.edition) if space.model.vocab else None
        blocks: list[BlockCost] = []
        steps: list[OptimizerCost] = []
        self._block_base, self._step_base = np.zeros(count, np.int64), np.zeros(count, np.int64)
        block_rows = step_rows = 0
        for numbers in layouts.values():
            choices = [self.structures[number] for number in numbers]
            overlapped = choices[0].tensor_par_overlap != "none"
            used = [t for t in degrees if t > 1] if overlapped else degrees
            sizes = np.array([row for t in used for row in self._block_sizes(t)], np.int64)
            costs, weights = block_costs(space.model, space.system, choices, sizes, self.edition)
            blocks += costs
            self._block_base[numbers] = block_rows + len(sizes) * np.arange(len(numbers))
            block_rows += len(sizes) * len(numbers)
            pairs = [(self._block_start[t], z) for t in used for z in self._shards[t]]
            column, shards = np.array(pairs).T
            step = optimizer_cost(
                weights.take(column), shards.astype(float), space.system, choices[0], self.edition
            )
            steps.append(step)
            if ends is not None:
                ends.add(choices, sizes, column, shards.astype(float))
            self._step_base[numbers] = step_rows
            step_rows += len(pairs)
        self.block, self.optimizer = concatenate(blocks), concatenate(steps)
        self._ends = ends.ends() if ends is not None else None

    @cached_property
    def columns(self) -> dict[str, Array]:
        """Fields of the structures that matter beyond a block, as columns of a plan hold them."""
        return {
            name: np.array(
                [
                    code(name, value) if isinstance(value, str) else value
                    for value in (getattr(choice, name) for choice in self.structures)
                ]
            )
            for name in (("latency_per_step",) if self.plain else BATCH_FIELDS)
        }

    @cached_property
    def plain(self) -> bool:
        """Whether data parallelism, collectives and pipeline are as published in all structures."""
        fields = ("zero_stage", *ANY_REPLICAS, *STAGE_FIELDS)
        return all(self.space.switches[name] == (DEFAULTS[name],) for name in fields)

    def ends(self, blocks: Array, steps: Array) -> Ends | None:
        """Return embedding and head for rows of blocks and of optimizer steps; nothing without a vocabulary."""
        return self._ends.take(blocks, steps) if self._ends is not None else None

    def block_rows(self, unit: Unit, structures: Array) -> Array:
        """Rows of the blocks of a unit: shape (tensor networks, structures x microbatch sizes)."""
        degree = unit.tensor_par
        networks = len(self._networks[degree])
        micro = np.searchsorted(self._micro[degree], unit.microbatches)
        rows = self._block_base[structures][:, None] + self._block_start[degree] + micro * networks
        return np.asarray(rows.reshape(1, -1) + np.arange(networks)[:, None])

    def step_rows(self, unit: Unit, structures: Array, shards: Array) -> Array:
        """Rows of the optimizer steps of a unit: shape (candidates, structures x microbatch sizes).

        `shards` has that shape, or one column for all.
        """
        degree = unit.tensor_par
        number = np.searchsorted(self._shards[degree], shards)
        rows = self._step_base[structures] + self._step_start[degree]
        spread = np.repeat(rows, len(unit.microbatches))
        return np.asarray(number + spread)

    @cached_property
    def serial(self) -> Array:
        """Numbers of the structures that need no tensor parallelism."""
        return np.array(
            [
                i
                for i, c in enumerate(self.structures)
                if c.tensor_par_overlap == "none" and not c.tp_async
            ]
        )
