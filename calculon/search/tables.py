"""Block costs of a search: every distinct block of some tensor degrees, laid out so that its row is arithmetic."""

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from calculon.cost.block import BlockCost, OptimizerCost, optimizer_cost
from calculon.cost.tables import block_costs
from calculon.edition import Edition
from calculon.plan.choice import Choice
from calculon.records import concatenate
from calculon.search.space import Space, Unit
from calculon.units import Array


class SearchTables:
    """Costs of the blocks and optimizer steps of some units.

    Rows of ``block`` are numbered by structure, then tensor degree, then microbatch size, then tensor network; rows of
    ``optimizer`` by class of structure, then tensor degree, then shards.

    Attributes
    ----------
    structures : tuple of Choice
        The block structures; those without overlap are all that a tensor degree of 1 has.
    """

    def __init__(self, space: Space, units: Sequence[Unit], edition: Edition):
        self.space = space
        self.edition = edition
        degrees = sorted({unit.tensor_par for unit in units}, reverse=True)  # 1 is the last
        self.structures = space.structures(parallel=degrees[0] > 1)
        self._micro = {
            t: np.array(sorted({b for u in units if u.tensor_par == t for b in u.microbatches}))
            for t in degrees
        }
        self._networks = {t: space.networks("tensor_par_net", t) for t in degrees}
        self._shards = {
            t: np.array(sorted({1, *(u.data_par for u in units if u.tensor_par == t)}))
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
        """Cost blocks of every structure, and optimizer steps of every class of structure."""
        space, parallel = self.space, [t for t in degrees if t > 1]
        blocks: list[BlockCost] = []
        steps: list[OptimizerCost] = []
        block_base: list[int] = []
        step_base: list[int] = []
        classes: dict[tuple[bool, str], int] = {}
        block_rows = step_rows = 0
        for choice in self.structures:
            used = parallel if choice.tensor_par_overlap != "none" else degrees
            sizes = np.array([row for t in used for row in self._block_sizes(t)], np.int64)
            cost, weights = block_costs(space.model, space.system, choice, sizes, self.edition)
            blocks.append(cost)
            block_base.append(block_rows)
            block_rows += len(sizes)
            kind = _weights_class(choice)
            if kind not in classes:
                classes[kind] = step_rows
                pairs = [(self._block_start[t], z) for t in used for z in self._shards[t]]
                column, shards = np.array(pairs).T
                steps.append(
                    optimizer_cost(
                        weights[:, column], shards.astype(float), space.system, choice, self.edition
                    )
                )
                step_rows += len(pairs)
            step_base.append(classes[kind])
        self.block = concatenate(blocks)
        self.optimizer = concatenate(steps)
        self._block_base = np.array(block_base)
        self._step_base = np.array(step_base)

    def block_rows(self, unit: Unit, structures: Array) -> Array:
        """Rows of the blocks of a unit: shape (tensor networks, structures x microbatch sizes)."""
        degree = unit.tensor_par
        networks = len(self._networks[degree])
        micro = np.searchsorted(self._micro[degree], unit.microbatches)
        rows = self._block_base[structures][:, None] + self._block_start[degree] + micro * networks
        return np.asarray(rows.reshape(1, -1) + np.arange(networks)[:, None])

    def step_rows(self, unit: Unit, structures: Array, shards: Array) -> Array:
        """Rows of the optimizer steps of a unit: shape (shards, structures x microbatch sizes)."""
        degree = unit.tensor_par
        number = np.searchsorted(self._shards[degree], shards)
        rows = self._step_base[structures] + self._step_start[degree]
        spread = np.repeat(rows, len(unit.microbatches))
        return np.asarray(number[:, None] + spread)

    @cached_property
    def serial(self) -> Array:
        """Numbers of the structures that need no tensor parallelism."""
        return np.array(
            [i for i, c in enumerate(self.structures) if c.tensor_par_overlap == "none"]
        )


def _weights_class(choice: Choice) -> tuple[bool, str]:
    """Say on what the weights of a block depend: merged projections, and the kind of attention."""
    return choice.tensor_par_overlap != "none", choice.attention_type
