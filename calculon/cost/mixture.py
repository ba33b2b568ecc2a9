"""Blocks from the costs of others: two interleaved half-microbatches, and the mean of several kinds of block."""

from collections.abc import Collection, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import reduce
from operator import add
from typing import Any, NamedTuple

import numpy as np

from calculon.architecture.shape import Sizes
from calculon.base.arrays import is_shared_zeros
from calculon.base.record_arrays import apply, changed, gather, joint_view
from calculon.base.records import R
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
        "own_weight_grad",
        "shared_weight_grads",
        "gradient_message",
        "optimizer",
        "optim",
    }
)
"""Members of costs that belong to the weights, which both halves share."""

RATES = frozenset({"matrix_peak", "tp_bandwidth_needed", "bandwidth_needed", "intensity", "tile"})
"""Members of costs that are no sum over the rows of a microbatch."""


def two_halves(half: R, same: Collection[str] = OF_WEIGHTS | RATES) -> R:
    """Return a cost with all members doubled but those that are the `same`: a microbatch from one of its halves.

    Each half reads the weights and writes their gradients. Both halves store activations, and both are at
    work, so that activations are as large as without halves.
    """
    record: Any = half
    changes = {}
    for field in fields(record):
        if field.name not in same:
            value = getattr(record, field.name)
            changes[field.name] = two_halves(value, same) if is_dataclass(value) else 2 * value
    return replace(record, **changes)


Weight = int | Count
"""Number of blocks of a kind: one for all executions, or one for each."""

_PER_BLOCK = (
    "tp_bandwidth_needed",
    "act_working",
    "act_grad",
    "weight_grad_no_sharding",
    "own_weight_grad",
    "shared_weight_grads",
    "pipeline_message",
    "expert_rows",
    "dispatch_space",
    "matrix_peak",
)
"""Members that a stage has for one block at a time, such as buffers: the largest of the kinds, not the mean."""


def mixed_block(kinds: Sequence[BlockCost], counts: Sequence[Weight]) -> BlockCost:
    """Return the mean of kinds of block, weighted by `counts`; of :data:`_PER_BLOCK`, the largest."""
    if len(kinds) == 1:
        return kinds[0]
    largest = {
        name: reduce(np.maximum, [getattr(kind, name) for kind in kinds]) for name in _PER_BLOCK
    }
    return replace(_mean(kinds, counts), **largest)


def partly_recomputed(again: BlockCost, stored: BlockCost, sizes: Sizes) -> BlockCost:
    """Return the mean block if ``recompute_blocks`` of every ``recompute_every`` blocks recompute, and others store."""
    recomputing = np.maximum(1, sizes.recompute_blocks)
    return mixed_block([again, stored], [recomputing, sizes.recompute_every - recomputing])


def mixed_step(kinds: Sequence[OptimizerCost], counts: Sequence[Weight]) -> OptimizerCost:
    """Return the optimizer step of the mean block."""
    return kinds[0] if len(kinds) == 1 else _mean(kinds, counts)


class BlockKinds(NamedTuple):
    """Costs of a model's kinds of block (dense and MoE, say), and of their optimizer steps.

    Attributes:
        counts: Blocks of each kind in the model.
    """

    blocks: tuple[BlockCost, ...]
    steps: tuple[OptimizerCost, ...]
    counts: tuple[int, ...]

    def take(self, blocks: Array, steps: Array) -> "BlockKinds":
        """Return a view of rows of the blocks, and of rows of the steps."""
        return self._replace(
            blocks=tuple(gather(kind, blocks) for kind in self.blocks),
            steps=tuple(gather(kind, steps) for kind in self.steps),
        )

    def with_modules(self, module: tuple[BlockCost, OptimizerCost]) -> "BlockKinds":
        """Return the kinds of stages some of which have MTP modules as blocks: the last kind, which is in no mean."""
        block, step = module
        return BlockKinds((*self.blocks, block), (*self.steps, step), (*self.counts, 0))

    def of_stage(self, counts: Count) -> tuple[BlockCost, OptimizerCost]:
        """Return a view of the mean block and step of stages with these `counts` of blocks of each kind.

        The first axis of `counts` is the kind; it may have more axes of executions than the blocks have. A stage
        without blocks gets the mean of the model, so that no division is by 0.
        """
        counts = np.stack(np.broadcast_arrays(*counts))
        axes, wanted = self.blocks[0].weight.ndim, counts.ndim - 1
        of_model = np.array(self.counts, float).reshape(-1, *(1,) * (counts.ndim - 1))
        counts = np.where(counts.sum(axis=0) > 0, counts, of_model)

        def mean(*values: Array) -> Array:
            return mean_of(_insert_axes(values, axes, wanted), list(counts))

        def mean_step(*values: Array) -> Array:
            step_axes = self.steps[0].weight_grad.ndim
            return mean_of(_insert_axes(values, step_axes, wanted), list(counts))

        def largest(*values: Array) -> Array:
            values = _insert_axes(values, axes, wanted)
            present = (np.where(n > 0, v, 0.0) for n, v in zip(counts, values, strict=True))
            return np.maximum.reduce(np.broadcast_arrays(*present))

        per_block = {
            name: largest(*(getattr(kind, name) for kind in self.blocks)) for name in _PER_BLOCK
        }
        block = changed(joint_view(self.blocks, mean), **per_block)
        return block, joint_view(self.steps, mean_step)


def _insert_axes(values: tuple[Array, ...], axes: int, wanted: int) -> tuple[Array, ...]:
    """Return costs whose last `axes` axes of executions become `wanted` axes; further axes stay in front."""
    if wanted <= axes or all(map(is_shared_zeros, values)):
        return values

    def reshaped(value: Array) -> Array:
        last = 1 if is_shared_zeros(value) else axes
        front, back = value.shape[: value.ndim - last], value.shape[value.ndim - last :]
        return value.reshape(*front, *(1,) * (wanted - last), *back)

    return tuple(map(reshaped, values))


def _mean(kinds: Sequence[R], counts: Sequence[Weight]) -> R:
    """Return the mean of records of arrays, member by member."""
    return apply(lambda *values: mean_of(values, counts), kinds)


def mean_of(values: Sequence[Array], counts: Sequence[Weight]) -> Array:
    """Return the mean of a quantity over kinds of block, weighted by the number of blocks of each kind."""
    if len(values) == 1 or all(map(is_shared_zeros, values)):
        return values[0]
    weighted = (count * value for count, value in zip(counts, values, strict=True))
    total: Array = reduce(add, weighted)
    return total / sum(counts)
