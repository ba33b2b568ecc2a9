"""Costs of the distinct blocks and optimizer steps of a table: millions of executions share a few thousand of them."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from calculon.architecture.layer_sizes import SIZE_FIELDS, Sizes
from calculon.architecture.optimizer import Parameters, joined
from calculon.architecture.segments import kinds_of_block
from calculon.cost.block_cost import BlockCost, BlockLayout, block_cost
from calculon.cost.embedding_head import (
    EmbeddingHead,
    EmbeddingHeadCost,
    EmbeddingHeadStep,
    embedding_head_cost,
    embedding_head_step,
    plain_choice,
)
from calculon.cost.layer_cost import laid_out
from calculon.cost.mixture import mixed_block, mixed_step
from calculon.cost.optimizer_step import OptimizerCost, optimizer_cost, parameters_of
from calculon.editions.edition import Edition
from calculon.frozen import dataclass
from calculon.hardware.system import System
from calculon.plan.choices import distinct, grouped
from calculon.plan.plan import Plan
from calculon.plan.schedule import shard_count
from calculon.records import concatenate
from calculon.spec.axes import FURTHER_AXES
from calculon.spec.model import Model
from calculon.spec.scope_choices import BlockChoice, StepChoice
from calculon.units import Array

BLOCK_ROWS = 4_096
"""Blocks whose layers are laid out at once: bounds the memory of a layer table."""


@dataclass(frozen=True, slots=True)
class BlockTables:
    """Costs of the distinct blocks and optimizer steps of a plan, and which of them each row uses."""

    block: BlockCost
    block_row: Array
    optimizer: OptimizerCost
    optimizer_row: Array
    embedding_head: EmbeddingHead | None = None

    def embedding_head_of(self, rows: Array) -> EmbeddingHead | None:
        """Return embedding and head of some rows of the plan."""
        if self.embedding_head is None:
            return None
        return self.embedding_head.take(self.block_row[rows], self.optimizer_row[rows])


def block_tables(model: Model, system: System, plan: Plan, edition: Edition) -> BlockTables:
    """Cost every distinct block, and every distinct optimizer step, of a plan once.

    A block depends on its choice and on the numbers of :data:`SIZE_FIELDS`; a step on its own choice, the tensor degree
    and the shards.
    """
    embedding_head = EmbeddingHeadTables(model, system, edition) if model.vocab else None
    blocks: list[BlockCost] = []
    block_row, count = np.zeros(len(plan), np.int64), 0
    for block, rows in grouped(plan, BlockChoice):
        sizes, size_of, _ = distinct([getattr(plan, name)[rows] for name in SIZE_FIELDS])
        blocks += block_costs(model, system, [block], sizes, edition)
        if embedding_head is not None:
            embedding_head.add_cost(block, sizes)
        block_row[rows] = count + size_of
        count += len(sizes)
    shards = shard_count(plan.optimizer_sharding, plan.dp_shard, plan.data_par)
    steps: list[OptimizerCost] = []
    step_row, count = np.zeros(len(plan), np.int64), 0
    for step, rows in grouped(plan, StepChoice):
        further = (getattr(plan, axis.degree) for axis in FURTHER_AXES)
        counts = shards.astype(np.int64)
        own = (plan.tensor_par, plan.vocab_pad_multiple, *further, counts)
        pairs, pair_of, first = distinct([column[rows] for column in own])
        sizes = np.stack([getattr(plan, name)[rows[first]] for name in SIZE_FIELDS], axis=1)
        shared = pairs[:, -1].astype(float)
        weights = layer_parameters(model, step, sizes, edition)
        steps.append(step_cost(model, system, step, weights, shared, edition))
        if embedding_head is not None:
            embedding_head.add_steps(step, sizes, shared)
        step_row[rows] = count + pair_of
        count += len(pairs)
    return BlockTables(
        concatenate(blocks),
        block_row,
        concatenate(steps),
        step_row,
        None if embedding_head is None else embedding_head.embedding_head(),
    )


def block_costs(
    model: Model, system: System, choices: Sequence[BlockChoice], sizes: Array, edition: Edition
) -> list[BlockCost]:
    """Cost blocks of choices of one layout for rows of the numbers of :data:`SIZE_FIELDS`."""
    kinds = kinds_of_block(model)
    counts = [kind.count for kind in kinds]
    costs: list[list[BlockCost]] = [[] for _ in choices]
    for start in range(0, len(sizes), BLOCK_ROWS):
        part = Sizes.of(sizes[start : start + BLOCK_ROWS])
        layouts = [
            BlockLayout(model, system, choices[0].layout, part, edition, kind.layers)
            for kind in kinds
        ]
        for of_choice, choice in zip(costs, choices, strict=True):
            cost = mixed_block([block_cost(one, choice) for one in layouts], counts)
            if (part.recompute_every > 1).any() and choice.recomputes:
                stored = replace(choice, activation_recompute="none", recompute_modules="none")
                other = mixed_block([block_cost(one, stored) for one in layouts], counts)
                cost = mixed_block([cost, other], [1, part.recompute_every - 1])
            of_choice.append(cost)
    return [concatenate(of_choice) for of_choice in costs]


def layer_parameters(
    model: Model, choice: StepChoice, sizes: Array, edition: Edition
) -> list[Parameters]:
    """Return the weights of each layer of the kinds of block, shape (layers, rows); sizes as in :func:`block_costs`."""
    found: list[list[Parameters]] = []
    for kind in kinds_of_block(model):
        parts: list[Parameters] = []
        for start in range(0, len(sizes), BLOCK_ROWS):
            part = Sizes.of(sizes[start : start + BLOCK_ROWS])
            shape, table = laid_out(model, choice.layout, part, edition, kind.layers)
            parts.append(parameters_of(table, shape, choice))
        found.append(parts)
    return [joined(parts) for parts in found]


def step_cost(
    model: Model,
    system: System,
    choice: StepChoice,
    weights: Sequence[Parameters],
    shards: Array,
    edition: Edition,
) -> OptimizerCost:
    """Cost the optimizer step of a block from the weights of :func:`layer_parameters`, each row with its shards."""
    costs = [optimizer_cost(of_kind, shards, system, choice, edition) for of_kind in weights]
    return mixed_step(costs, [kind.count for kind in kinds_of_block(model)])


class EmbeddingHeadTables:
    """Costs of embedding and head beside those of blocks, row by row."""

    def __init__(self, model: Model, system: System, edition: Edition):
        self._model, self._system, self._edition = model, system, edition
        self._costs: list[EmbeddingHeadCost] = []
        self._steps: list[EmbeddingHeadStep] = []

    def add_cost(self, choice: BlockChoice, sizes: Array) -> None:
        """Cost embedding and LM head of a choice, for rows of sizes as in :func:`block_costs`."""
        args = (
            self._model,
            self._system,
            plain_choice(choice, self._system),
            Sizes.of(sizes),
            self._edition,
        )
        self._costs.append(embedding_head_cost(*args))

    def add_steps(self, choice: StepChoice, sizes: Array, shards: Array) -> None:
        """Cost the weights of embedding and LM head, for each optimizer step."""
        args = (self._model, self._system, choice, Sizes.of(sizes), shards, self._edition)
        self._steps.append(embedding_head_step(*args))

    def embedding_head(self) -> EmbeddingHead:
        """Return all of them as one."""
        return EmbeddingHead(concatenate(self._costs), concatenate(self._steps), self._model.tied)


def only_choices(plan: Plan) -> tuple[BlockChoice, StepChoice, Sizes]:
    """Return the choices of a plan of one row, and what sizes its blocks."""
    ((block, _),) = grouped(plan, BlockChoice)
    ((step, _),) = grouped(plan, StepChoice)
    return block, step, sizes_of(plan)


def sizes_of(plan: Plan) -> Sizes:
    """Return the sizes of every row of a plan."""
    return Sizes.of(np.stack([getattr(plan, name) for name in SIZE_FIELDS], axis=1))
