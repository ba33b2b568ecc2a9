"""Adding the gradients of microbatches up."""

from typing import NamedTuple

import numpy as np

from calculon.base.units import Array, Seconds
from calculon.cost.block_cost import BlockCost
from calculon.cost.data.synced import held_block
from calculon.cost.embedding_head import EmbeddingHead, EmbeddingHeadTimes
from calculon.cost.optimizer_step import OptimizerCost
from calculon.hardware.system import System
from calculon.plan.schedule import Schedule

SUM_PASS = (2 + 4 + 4) / (2 + 4)
"""Bytes that adding 2-byte gradients to 4-byte sums moves, over the bytes of both: all are read, sums are written."""

ADD_PASS = 3
"""Bytes that adding gradients to sums of their type moves, over those of the sums: both are read, sums are written."""


class Accumulation(NamedTuple):
    """Time that gradient accumulation adds to the backward pass of a block, of the embedding and of the head."""

    block: Seconds
    embedding: Seconds
    head: Seconds


def accumulation(
    block: BlockCost,
    optimizer: OptimizerCost,
    embedding_head: EmbeddingHead | None,
    schedule: Schedule,
    system: System,
) -> Accumulation | None:
    """Return the times that gradient accumulation adds to a microbatch; None where nothing is read.

    That is in all microbatches but the first: where there is one alone, nothing. It delays the drain of the
    pipeline, which is of later ones. What a pass of its own adds to is read and written in every microbatch.
    Source of such passes: Megatron-LM, model/distributed.py (``param.main_grad.add_(param.grad.data)``); PyTorch,
    autograd/functions/accumulate_grad.h (``variable_grad += new_grad``).
    """
    if not schedule.accumulates.any():
        return None
    sums = schedule.columns.grad_sums
    reads = schedule.accumulates & ((schedule.microbatches > 1) | _added_apart(schedule))
    # a group of microbatches adds to whole gradients, of which shards are kept after it
    whole = np.where(schedule.columns.grad_group > 1, schedule.shards, 1.0)
    weights = [optimizer.weight_grad]
    if schedule.has_experts_apart:
        held = held_block(block, optimizer, schedule)
        weights = [held.whole_gradients(schedule, whole) / whole]
    if embedding_head is not None:
        step = embedding_head.step
        weights += [end.optimizer.weight_grad for end in (step.first, step.last)]
    moved = np.where(schedule.columns.grad_fusion, 1.0, ADD_PASS)
    moved = np.where(sums, SUM_PASS, moved) * whole
    found = [np.where(reads, system.move_time(held * moved), 0.0) for held in weights]
    if schedule.choice.in_halves:  # each of which adds to the gradients of blocks
        found[0] = 2 * found[0]
    none = np.zeros_like(found[0])
    return Accumulation(found[0], *(found[1:] if len(found) > 1 else (none, none)))


def accumulation_of_batch(
    added: Accumulation, slowest: Schedule, embedding_head: EmbeddingHeadTimes | None
) -> Seconds:
    """Return the time per batch to read the sums that microbatches after the first are added to.

    They are added in the products that make them (beta = 1, Megatron-LM's gradient accumulation fusion), or after
    them. The schedule has the blocks of the slowest stage.
    """
    once: Seconds = slowest.blocks * added.block
    if embedding_head is not None:
        once = once + embedding_head.of_slower(added.embedding, added.head)
    return (slowest.microbatches - np.where(_added_apart(slowest), 0, 1)) * once


def _added_apart(schedule: Schedule) -> Array:
    """Whether gradients are added up in a pass of its own, those of the first microbatch, too."""
    return schedule.columns.grad_sums | ~schedule.columns.grad_fusion
