"""Blocks that are made of others: of two half-microbatches, and the mean of several kinds of block."""

from collections.abc import Collection, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import reduce
from operator import add
from typing import Any, NamedTuple

import numpy as np

from calculon.architecture.shape import Sizes
from calculon.base.arrays import is_nothing
from calculon.base.records import R, apply, changed, gather, joint_view
from calculon.base.units import Array, Count
from calculon.cost.block_cost import BlockCost
from calculon.cost.optimizer_step import OptimizerCost

OF_WEIGHTS = frozenset(
    {
        "weight",
        "expert_weight",
        "forms",
        "weight_copies",
        "weight_grad",
        "weight_grad_no_sharding",
        "gradient_message",
        "optimizer",
        "optim",
    }
)
"""Members of costs that both halves share."""

RATES = frozenset({"matrix_peak", "tp_bandwidth_needed", "bandwidth_needed", "intensity", "tile"})
"""Members that a half has like the whole."""


def two_halves(half: R, same: Collection[str] = OF_WEIGHTS | RATES) -> R:
    """Return the cost of two halves from that of one, member by member but for those that are the `same`.

    Weights are read, and their gradients written, in each half. What is kept of activations is as much as of a whole
    microbatch, and so is what is there at work, since both halves are.
    """
    record: Any = half
    changes = {}
    for field in fields(record):
        if field.name not in same:
            value = getattr(record, field.name)
            changes[field.name] = two_halves(value, same) if is_dataclass(value) else 2 * value
    return replace(record, **changes)


Weight = int | Count
"""How many blocks there are of a kind: one number, or one for each execution."""

_OF_ONE = (
    "tp_bandwidth_needed",
    "act_working",
    "act_grad",
    "weight_grad_no_sharding",
    "pipeline_message",
    "expert_rows",
    "dispatch_space",
    "matrix_peak",
)
"""Members of which a stage has those of one block at a time: the largest among the kinds."""


def mixed_block(kinds: Sequence[BlockCost], counts: Sequence[Weight]) -> BlockCost:
    """Return the mean block of kinds that occur so often; of what is there of one block at a time the largest."""
    if len(kinds) == 1:
        return kinds[0]
    largest = {
        name: reduce(np.maximum, [getattr(kind, name) for kind in kinds]) for name in _OF_ONE
    }
    return replace(_mean(kinds, counts), **largest)


def partly_recomputed(again: BlockCost, stored: BlockCost, sizes: Sizes) -> BlockCost:
    """Return the mean of blocks of which so many recompute, while the others store everything."""
    some = np.maximum(1, sizes.recompute_blocks)
    return mixed_block([again, stored], [some, sizes.recompute_every - some])


def mixed_step(kinds: Sequence[OptimizerCost], counts: Sequence[Weight]) -> OptimizerCost:
    """Return the optimizer step of the mean block."""
    return kinds[0] if len(kinds) == 1 else _mean(kinds, counts)


class Kinds(NamedTuple):
    """Costs of the kinds of block of some executions, and of their optimizer steps.

    Attributes:
        counts: Blocks of each kind in the model.
    """

    blocks: tuple[BlockCost, ...]
    steps: tuple[OptimizerCost, ...]
    counts: tuple[int, ...]

    def take(self, blocks: Array, steps: Array) -> "Kinds":
        """Return a view of rows of the blocks, and of rows of the steps."""
        return self._replace(
            blocks=tuple(gather(kind, blocks) for kind in self.blocks),
            steps=tuple(gather(kind, steps) for kind in self.steps),
        )

    def of_stage(self, counts: Count) -> tuple[BlockCost, OptimizerCost]:
        """Return a view of the mean block and step of stages that have so many blocks of each kind.

        The first axis of `counts` is that of kinds; others may be more than those of the blocks. A stage without blocks
        has those of the model.
        """
        own = np.stack(np.broadcast_arrays(*counts))
        axes, further = self.blocks[0].weight.ndim, own.ndim - 1
        whole = np.array(self.counts, float).reshape(-1, *(1,) * (own.ndim - 1))
        own = np.where(own.sum(axis=0) > 0, own, whole)

        def mean(*values: Array) -> Array:
            return mean_of(_along(values, axes, further), list(own))

        def mean_step(*values: Array) -> Array:
            return mean_of(_along(values, self.steps[0].weight_grad.ndim, further), list(own))

        def most(*values: Array) -> Array:
            values = _along(values, axes, further)
            there = (np.where(n > 0, v, 0.0) for n, v in zip(own, values, strict=True))
            return np.maximum.reduce(np.broadcast_arrays(*there))

        largest = {name: most(*(getattr(kind, name) for kind in self.blocks)) for name in _OF_ONE}
        return changed(joint_view(self.blocks, mean), **largest), joint_view(self.steps, mean_step)


def _along(values: tuple[Array, ...], axes: int, wanted: int) -> tuple[Array, ...]:
    """Insert axes into costs that end in so many axes of executions, where more are `wanted`: others stay in front."""
    if wanted <= axes or all(map(is_nothing, values)):
        return values

    def spread(value: Array) -> Array:
        own = 1 if is_nothing(value) else axes
        front, back = value.shape[: value.ndim - own], value.shape[value.ndim - own :]
        return value.reshape(*front, *(1,) * (wanted - own), *back)

    return tuple(map(spread, values))


def _mean(kinds: Sequence[R], counts: Sequence[Weight]) -> R:
    """Return the mean of records whose arrays are costs of a block."""
    return apply(lambda *values: mean_of(values, counts), kinds)


def mean_of(values: Sequence[Array], counts: Sequence[Weight]) -> Array:
    """Return the mean of a quantity of kinds of block, weighted by how many blocks there are of each."""
    if len(values) == 1 or all(map(is_nothing, values)):
        return values[0]
    weighted = (count * value for count, value in zip(counts, values, strict=True))
    total: Array = reduce(add, weighted)
    return total / sum(counts)
