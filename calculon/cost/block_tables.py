"""Costs of the distinct blocks and optimizer steps of a plan: millions of executions share a few thousand of them."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from calculon.architecture.optimizer import Parameters, joined
from calculon.architecture.segments import kinds_of_block, prediction_module
from calculon.architecture.shape import SIZE_FIELDS, Sizes
from calculon.base.distinct_rows import distinct
from calculon.base.frozen import dataclass
from calculon.base.record_arrays import concatenate
from calculon.base.units import Array
from calculon.cost.block_cost import BlockCost, BlockLayout, block_cost
from calculon.cost.embedding_head import (
    EmbeddingHead,
    EmbeddingHeadCost,
    EmbeddingHeadStep,
    ModuleWeights,
    embedding_head_cost,
    embedding_head_step,
    plain_choice,
)
from calculon.cost.layer_cost import laid_out
from calculon.cost.mixture import BlockKinds, mixed_block, mixed_step, partly_recomputed, two_halves
from calculon.cost.optimizer_step import OptimizerCost, optimizer_cost, parameters_of
from calculon.cost.prediction_modules import step_with_modules, with_modules
from calculon.declarations.axes import FURTHER_DEGREES
from calculon.declarations.model import Model
from calculon.declarations.scope_choices import BlockChoice, StepChoice
from calculon.editions.edition import Edition
from calculon.hardware.figures import of_rows
from calculon.hardware.system import System
from calculon.plan.choices import grouped
from calculon.plan.mesh import data_ranks
from calculon.plan.plan import Plan
from calculon.plan.schedule import shard_count

BLOCK_ROWS = 4_096
"""Most blocks of a layer table, whose arrays of layers times blocks then take some tens of MB."""


@dataclass(frozen=True, slots=True)
class BlockTables:
    """Costs of the distinct blocks and optimizer steps of a plan, and the index of each row's own.

    If the model has several ``kinds`` of block, ``block`` and ``optimizer`` are their mean; ``kinds`` is None for one.
    """

    block: BlockCost
    block_row: Array
    optimizer: OptimizerCost
    optimizer_row: Array
    embedding_head: EmbeddingHead | None = None
    kinds: BlockKinds | None = None

    def kinds_of(self, rows: Array) -> BlockKinds | None:
        """Return the kinds of block of some rows of the plan; None if the model has one kind."""
        if self.kinds is None:
            return None
        return self.kinds.take(self.block_row[rows], self.optimizer_row[rows])

    def embedding_head_of(self, rows: Array) -> EmbeddingHead | None:
        """Return embedding and head of some rows of the plan."""
        if self.embedding_head is None:
            return None
        return self.embedding_head.take(self.block_row[rows], self.optimizer_row[rows])


def block_tables(model: Model, system: System, plan: Plan, edition: Edition) -> BlockTables:
    """Compute the cost of every distinct block and of every distinct optimizer step of a plan once.

    A block depends on its choice and on the numbers of :data:`SIZE_FIELDS`; a step depends on its choice, the tensor
    and further degrees, the padding of the vocabulary and the shards. If the machines are a column, rows share nothing.
    """
    embedding_head = EmbeddingHeadTables(model, system, edition) if model.vocab else None
    blocks: list[tuple[BlockCost, ...]] = []
    ends: dict[tuple[BlockChoice, bytes], list[EmbeddingHeadCost]] = {}
    block_row, count = np.zeros(len(plan), np.int64), 0
    for block, rows in grouped(plan, BlockChoice):
        alike = [getattr(plan, name)[rows] for name in SIZE_FIELDS]
        sizes, size_of, first = distinct([*alike, *_machines(system, rows)])
        machines, sizes = of_rows(system, rows[first]), sizes[:, : len(alike)]
        blocks += block_costs(model, machines, [block], sizes, edition)
        if embedding_head is not None:
            own = system.variants or model.mtp_layers
            key = block if own else plain_choice(block, machines), sizes.tobytes()
            if key not in ends:  # choices that differ only within blocks share their ends
                ends[key] = embedding_head.costs([block], sizes, machines)
            embedding_head.add(ends[key])
        block_row[rows] = count + size_of
        count += len(sizes)
    shards = shard_count(plan.optimizer_sharding, plan.dp_shard, data_ranks(plan))
    steps: list[tuple[OptimizerCost, ...]] = []
    step_row, count = np.zeros(len(plan), np.int64), 0
    for step, rows in grouped(plan, StepChoice):
        further = (getattr(plan, name) for name in FURTHER_DEGREES)
        counts = shards.astype(np.int64)
        alike = [plan.tensor_par[rows], plan.vocab_pad_multiple[rows], *(n[rows] for n in further)]
        pairs, pair_of, first = distinct([*alike, counts[rows], *_machines(system, rows)])
        sizes = np.stack([getattr(plan, name)[rows[first]] for name in SIZE_FIELDS], axis=1)
        shared, machines = pairs[:, len(alike)].astype(float), of_rows(system, rows[first])
        weights = layer_parameters(model, machines, step, sizes, edition)
        steps.append(step_cost(model, machines, step, weights, shared, edition))
        if embedding_head is not None:
            embedding_head.add_steps(step, sizes, shared, machines)
        step_row[rows] = count + pair_of
        count += len(pairs)
    mean, kinds = joined_kinds(model, blocks, steps)
    return BlockTables(
        mean[0],
        block_row,
        mean[1],
        step_row,
        None if embedding_head is None else embedding_head.embedding_head(),
        kinds,
    )


def _machines(system: System, rows: Array) -> list[Array]:
    """Return the machine of each row as a column that distinguishes rows; no column for a single machine."""
    return [rows] if system.variants else []


def joined_kinds(
    model: Model,
    blocks: Sequence[tuple[BlockCost, ...]],
    steps: Sequence[tuple[OptimizerCost, ...]],
) -> tuple[tuple[BlockCost, OptimizerCost], BlockKinds | None]:
    """Concatenate costs by kind of block; return the means over kinds, and the kinds if there are several."""
    counts = tuple(kind.count for kind in kinds_of_block(model))
    of_blocks = tuple(concatenate(tables) for tables in zip(*blocks, strict=True))
    of_steps = tuple(concatenate(tables) for tables in zip(*steps, strict=True))
    mean = mixed_block(of_blocks, counts), mixed_step(of_steps, counts)
    return mean, BlockKinds(of_blocks, of_steps, counts) if len(counts) > 1 else None


def block_costs(
    model: Model, system: System, choices: Sequence[BlockChoice], sizes: Array, edition: Edition
) -> list[tuple[BlockCost, ...]]:
    """Return the costs of blocks by choice and kind; all choices have one layout and share its layer tables.

    Args:
        sizes: The numbers of :data:`SIZE_FIELDS`, with shape (blocks, fields).
    """
    kinds = kinds_of_block(model)
    costs: list[list[list[BlockCost]]] = [[[] for _ in kinds] for _ in choices]
    for start in range(0, len(sizes), BLOCK_ROWS):
        part = Sizes.of(sizes[start : start + BLOCK_ROWS])
        machines = of_rows(system, np.arange(start, start + part.tensor_par.size))
        found: dict[bool, list[BlockLayout]] = {}
        for of_choice, choice in zip(costs, choices, strict=True):
            halves = choice.in_halves
            if halves not in found:
                of_part = part.halved() if halves else part
                found[halves] = [
                    BlockLayout(model, machines, choice.layout, of_part, edition, kind.layers)
                    for kind in kinds
                ]
            for of_kind, layout in zip(of_choice, found[halves], strict=True):
                cost = block_cost(layout, choice)
                if (part.recompute_every > 1).any() and choice.recomputes:
                    stored = replace(choice, activation_recompute="none", recompute_modules="none")
                    cost = partly_recomputed(cost, block_cost(layout, stored), part)
                of_kind.append(two_halves(cost) if halves else cost)
    return [tuple(map(concatenate, of_choice)) for of_choice in costs]


def layer_parameters(
    model: Model, system: System, choice: StepChoice, sizes: Array, edition: Edition
) -> list[Parameters]:
    """Return the weights of each layer of the kinds of block, shape (layers, rows); sizes as in :func:`block_costs`."""
    found: list[list[Parameters]] = []
    for kind in kinds_of_block(model):
        parts: list[Parameters] = []
        for start in range(0, len(sizes), BLOCK_ROWS):
            part = Sizes.of(sizes[start : start + BLOCK_ROWS])
            shape, table = laid_out(
                model,
                choice.layout,
                part,
                edition,
                kind.layers,
                transposes=system.transposes(choice.layout.fp8_recipe),
            )
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
) -> tuple[OptimizerCost, ...]:
    """Return the cost of optimizer steps by kind, from :func:`layer_parameters`; `shards` has shape (rows,)."""
    return tuple(optimizer_cost(of_kind, shards, system, choice, edition) for of_kind in weights)


class EmbeddingHeadTables:
    """Costs of embedding and head, in the row order of the costs of blocks and steps."""

    def __init__(self, model: Model, system: System, edition: Edition):
        self._model, self._system, self._edition = model, system, edition
        self._costs: list[EmbeddingHeadCost] = []
        self._steps: list[EmbeddingHeadStep] = []
        self._modules: list[ModuleWeights] = []

    def costs(
        self, choices: Sequence[BlockChoice], sizes: Array, machines: System | None = None
    ) -> list[EmbeddingHeadCost]:
        """Return the cost of embedding and head of each choice, for rows of sizes as in :func:`block_costs`.

        Args:
            choices: Choices of one layout.
            machines: The machines of these rows, if the machines are a column.
        """
        model, edition, rows = self._model, self._edition, Sizes.of(sizes)
        system = self._system if machines is None else machines
        plain = [plain_choice(choice, system) for choice in choices]
        ends = {
            one: embedding_head_cost(model, system, one, rows, edition)
            for one in dict.fromkeys(plain)
        }
        module = prediction_module(model)
        if module is None:
            return [ends[one] for one in plain]
        layout = BlockLayout(model, system, choices[0].layout, rows, edition, module.layers)
        return [
            with_modules(ends[one], module, choice, layout)
            for one, choice in zip(plain, choices, strict=True)
        ]

    def add(self, costs: Sequence[EmbeddingHeadCost]) -> None:
        """Append rows of costs."""
        self._costs += costs

    def add_steps(
        self, choice: StepChoice, sizes: Array, shards: Array, machines: System | None = None
    ) -> None:
        """Append the weights and steps of embedding and head; `machines` as in :meth:`costs`."""
        system = self._system if machines is None else machines
        args = (self._model, system, choice, Sizes.of(sizes), shards, self._edition)
        step = embedding_head_step(*args)
        if (found := step_with_modules(step, *args)) is not None:
            step, modules = found
            self._modules.append(modules)
        self._steps.append(step)

    def embedding_head(self) -> EmbeddingHead:
        """Return all rows as one record."""
        costs, steps = concatenate(self._costs), concatenate(self._steps)
        modules = concatenate(self._modules) if self._modules else None
        return EmbeddingHead(costs, steps, self._model.tied, modules)


def only_choices(plan: Plan) -> tuple[BlockChoice, StepChoice, Sizes]:
    """Return the choices and the sizes of a plan of one row."""
    ((block, _),) = grouped(plan, BlockChoice)
    ((step, _),) = grouped(plan, StepChoice)
    return block, step, sizes_of(plan)


def sizes_of(plan: Plan) -> Sizes:
    """Return the sizes of every row of a plan."""
    return Sizes.of(np.stack([getattr(plan, name) for name in SIZE_FIELDS], axis=1))
