"""The block that a stage has on average of a model with several kinds of block."""

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from operator import add

import numpy as np

from calculon.cost.block_cost import BlockCost
from calculon.cost.optimizer_step import OptimizerCost
from calculon.records import R, apply
from calculon.units import Array, Count

Weight = int | Count
"""How many blocks there are of a kind: one number, or one for each execution."""

_OF_ONE = (
    "tp_bandwidth_needed",
    "act_working",
    "act_grad",
    "weight_grad_no_sharding",
    "pipeline_message",
    "matrix_peak",
)
"""Members of which a stage has those of one block at a time: the largest among the kinds."""


def mixed_block(kinds: Sequence[BlockCost], counts: Sequence[Weight]) -> BlockCost:
    """Return the mean block of kinds that occur so often; of what is there of one block at a time the largest."""
    if len(kinds) == 1:
        return kinds[0]
    largest = {name: np.maximum.reduce([getattr(kind, name) for kind in kinds]) for name in _OF_ONE}
    return replace(_mean(kinds, counts), **largest)


def mixed_step(kinds: Sequence[OptimizerCost], counts: Sequence[Weight]) -> OptimizerCost:
    """Return the optimizer step of the mean block."""
    return kinds[0] if len(kinds) == 1 else _mean(kinds, counts)


def _mean(kinds: Sequence[R], counts: Sequence[Weight]) -> R:
    """Return the mean of records whose arrays are costs of a block."""
    return apply(lambda *values: mean_of(values, counts), kinds)


def mean_of(values: Sequence[Array], counts: Sequence[Weight]) -> Array:
    """Return the mean of a quantity of kinds of block, weighted by how many blocks there are of each."""
    if len(values) == 1:
        return values[0]
    weighted = (count * value for count, value in zip(counts, values, strict=True))
    total: Array = reduce(add, weighted)
    return total / sum(counts)
