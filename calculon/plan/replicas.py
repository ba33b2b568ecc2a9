"""How the replicas of a rank share its weights, gradients and optimizer state."""

from typing import Any

import numpy as np

from calculon.plan.plan import code
from calculon.records import record
from calculon.units import MIB, Array, Bytes, Count

_AUTO, _OWNER = code("zero_stage", "auto"), code("zero_stage", "owner")
_SPLIT_STATE = code("zero_stage", "1")
_SPLIT_GRADIENTS = code("zero_stage", "2")
_SPLIT_WEIGHTS = code("zero_stage", "3")


@record
class Replicas:
    """Data parallelism in its natural forms, where an execution states one; arrays that broadcast.

    Attributes
    ----------
    stated : array of bool
        The execution states a form; the other attributes mean something there only.
    shards, copies : array
        Ranks that share what is split, and groups of such ranks that hold the same.
    splits_state, splits_gradients, splits_weights : array of bool
        What is split. Source: Rajbhandari et al., *ZeRO*, arXiv 1910.02054, section 5.
    owned : array of bool
        What is split is split by whole layers.
    every : array of bool
        Gradients are reduced after every microbatch.
    unit : array
        Blocks whose weights are gathered together.
    ahead : array
        Units that are gathered ahead of their computation.
    regathers : array of bool
        The backward pass gathers weights again.
    bucket : array
        Bytes of gradients that are reduced together; 0 for those of a block.
    late_gather : array of bool
        New weights are gathered beside the next forward pass.
    """

    stated: Array
    shards: Count
    copies: Count
    splits_state: Array
    splits_gradients: Array
    splits_weights: Array
    owned: Array
    every: Array
    unit: Count
    ahead: Count
    regathers: Array
    bucket: Bytes
    late_gather: Array

    @classmethod
    def of(cls, columns: Any, data_par: Count) -> "Replicas | None":
        """Read the columns of executions; nothing where none states a form."""
        stage = columns.zero_stage
        if not np.count_nonzero(stage):
            return None
        splits_gradients, splits_weights = stage >= _SPLIT_GRADIENTS, stage >= _SPLIT_WEIGHTS
        splits_state = stage >= _SPLIT_STATE
        shards = shard_count(splits_state, columns.dp_shard, data_par)
        return cls(
            stated=stage != _AUTO,
            shards=shards,
            copies=data_par / shards,
            splits_state=splits_state,
            splits_gradients=splits_gradients,
            splits_weights=splits_weights,
            owned=stage == _OWNER,
            every=splits_gradients | ~columns.no_sync,
            unit=columns.fsdp_unit.astype(float),
            ahead=columns.fsdp_prefetch.astype(float),
            regathers=columns.reshard_after_forward,
            bucket=columns.ddp_bucket_mib * MIB,
            late_gather=columns.overlap_param_gather,
        )


def shard_count(split: Array, dp_shard: Count, data_par: Count) -> Count:
    """Return in how many parts the optimizer state is: one, those stated, or one for each replica."""
    shards: Count = np.where(split, np.where(dp_shard > 0, dp_shard, data_par), 1.0)
    return shards


assert _AUTO == 0
assert _SPLIT_STATE < _SPLIT_GRADIENTS < _SPLIT_WEIGHTS < _OWNER
