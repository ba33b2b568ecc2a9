"""Costs of the distinct blocks of a plan: millions of executions share a few thousand of them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from calculon.architecture.optimizer import Parameters, joined
from calculon.cost.block_cost import BlockCost, BlockLayout, block_cost
from calculon.cost.ends import Ends, EndsCost, EndsStep, ends_cost, ends_step, plain_choice
from calculon.cost.optimizer_step import OptimizerCost, optimizer_cost, parameters_of
from calculon.editions.edition import Edition
from calculon.hardware.system import System
from calculon.plan.choice import Choice, Sizes
from calculon.plan.plan import FIELDS, Plan
from calculon.plan.replicas import shard_count
from calculon.records import concatenate
from calculon.spec.model import Model
from calculon.units import Array

BLOCK_ROWS = 4_096
"""Blocks whose layers are laid out at once: bounds the memory of a layer table."""

CHOICE_FIELDS = tuple(field.name for field in FIELDS if field.name in Choice.__slots__)
_CHOICES = {
    field.name: field.declaration.choices or (False, True)
    for field in FIELDS
    if field.annotation is not int
}


@dataclass(frozen=True, slots=True)
class BlockTables:
    """Costs of the distinct blocks of a plan, and which of them each row uses."""

    block: BlockCost
    block_row: Array
    optimizer: OptimizerCost
    optimizer_row: Array
    ends: Ends | None = None

    def ends_of(self, rows: slice) -> Ends | None:
        """Return embedding and head of some rows of the plan."""
        if self.ends is None:
            return None
        return self.ends.take(self.block_row[rows], self.optimizer_row[rows])


def block_tables(model: Model, system: System, plan: Plan, edition: Edition) -> BlockTables:
    """Cost every distinct block of a plan once.

    A block depends on the choices, the tensor-parallel degree and network, and the microbatch; its optimizer step on
    the shards in place of the last two.
    """
    shards = shard_count(plan.optimizer_sharding, plan.dp_shard, plan.data_par)
    blocks: list[BlockCost] = []
    steps: list[OptimizerCost] = []
    ends = EndTables(model, system, edition) if model.vocab else None
    block_row = np.zeros(len(plan), np.int64)
    step_row = np.zeros(len(plan), np.int64)
    block_count = step_count = 0
    for choice, rows in _groups(plan):
        sizes, size_of = distinct(
            [plan.tensor_par[rows], plan.microbatch_size[rows], plan.tensor_par_net[rows]]
        )
        pairs, pair_of = distinct([plan.tensor_par[rows], shards[rows]])
        costs, weights = block_costs(model, system, [choice], sizes, edition)
        same_degree = np.searchsorted(sizes[:, 0], pairs[:, 0])
        shared = pairs[:, 1].astype(float)
        blocks += costs
        stepped = weights.take(same_degree)
        steps.append(optimizer_cost(stepped, shared, system, choice, edition))
        if ends is not None:
            ends.add([choice], sizes, same_degree, shared)
        block_row[rows] = block_count + size_of
        step_row[rows] = step_count + pair_of
        block_count += len(sizes)
        step_count += len(pairs)
    return BlockTables(
        concatenate(blocks),
        block_row,
        concatenate(steps),
        step_row,
        None if ends is None else ends.ends(),
    )


def block_costs(
    model: Model, system: System, choices: Sequence[Choice], sizes: Array, edition: Edition
) -> tuple[list[BlockCost], Parameters]:
    """Cost blocks of choices of equal layout for rows of (tensor degree, microbatch size, tensor network).

    Returns
    -------
    tuple of list of BlockCost and Parameters, shape (layers, blocks)
        The costs for each choice, and the weights of each layer (which depend on the tensor degree alone).
    """
    costs: list[list[BlockCost]] = [[] for _ in choices]
    weights: list[Parameters] = []
    for start in range(0, len(sizes), BLOCK_ROWS):
        part = _sizes(sizes[start : start + BLOCK_ROWS])
        layout = BlockLayout(model, system, choices[0], part, edition)
        for of_choice, choice in zip(costs, choices, strict=True):
            of_choice.append(block_cost(layout, choice))
        weights.append(parameters_of(layout.table, layout.shape))
    return [concatenate(of_choice) for of_choice in costs], joined(weights)


class EndTables:
    """Costs of embedding and head beside those of blocks, row by row; equal ones are computed once."""

    def __init__(self, model: Model, system: System, edition: Edition):
        self._model, self._system, self._edition = model, system, edition
        self._costs: list[EndsCost] = []
        self._steps: list[EndsStep] = []

    def add(self, choices: Sequence[Choice], sizes: Array, columns: Array, shards: Array) -> None:
        """Cost the ends for each choice of one layout of blocks.

        Parameters
        ----------
        sizes : array, shape (rows, 3)
            As in :func:`block_costs`.
        columns, shards : array
            Row of `sizes` with the tensor degree, and the shards, of each optimizer step.
        """
        known: dict[Choice, EndsCost] = {}
        for choice in choices:
            plain = plain_choice(choice)
            if plain not in known:
                args = (self._model, self._system, plain, _sizes(sizes), self._edition)
                known[plain] = ends_cost(*args)
            self._costs.append(known[plain])
        self._steps.append(
            ends_step(
                self._model,
                self._system,
                choices[0],
                _sizes(sizes[columns]),
                shards,
                self._edition,
            )
        )

    def ends(self) -> Ends:
        """Return all of them as one."""
        return Ends(concatenate(self._costs), concatenate(self._steps), self._model.tied)


def _groups(plan: Plan) -> Iterator[tuple[Choice, Array]]:
    """Yield the distinct choices of a plan and the rows that have them."""
    keys, key_of = distinct([getattr(plan, name) for name in CHOICE_FIELDS])
    order = np.argsort(key_of, kind="stable")
    bounds = np.searchsorted(key_of[order], np.arange(len(keys) + 1))
    for number, key in enumerate(keys):
        yield _choice(key), order[bounds[number] : bounds[number + 1]]


def choice_of(plan: Plan) -> Choice:
    """Return the choices of the first row of a plan."""
    return _choice(np.array([getattr(plan, name)[0] for name in CHOICE_FIELDS]))


def sizes_of(plan: Plan) -> Sizes:
    """Return the sizes of every row of a plan."""
    return _sizes(np.stack([plan.tensor_par, plan.microbatch_size, plan.tensor_par_net], axis=1))


def _sizes(rows: Array) -> Sizes:
    return Sizes(
        tensor_par=rows[:, 0].astype(float),
        microbatch_size=rows[:, 1].astype(float),
        tensor_par_net=rows[:, 2],
    )


def _choice(key: Array) -> Choice:
    values: dict[str, Any] = {
        name: _CHOICES[name][int(code)] if name in _CHOICES else int(code)
        for name, code in zip(CHOICE_FIELDS, key, strict=True)
    }
    return Choice(**values)


def distinct(columns: list[Array]) -> tuple[Array, Array]:
    """Return the distinct rows of integer columns, ascending, and the number of each row among them."""
    if len(columns[0]) == 1:
        return np.array([[int(c[0]) for c in columns]]), np.zeros(1, np.int64)
    ranks = np.zeros(len(columns[0]), np.int64)
    for values in columns:
        distinct, inverse = np.unique(values, return_inverse=True)
        ranks = ranks * len(distinct) + inverse
    _, first, inverse = np.unique(ranks, return_index=True, return_inverse=True)
    return np.stack([c[first] for c in columns], axis=1).astype(np.int64), inverse
