"""Gradient accumulation: the time to add the gradients of each microbatch to the sums of a batch."""

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
"""Bytes moved to add 2-byte gradients to 4-byte sums, per byte of both: all are read, sums are written."""

ADD_PASS = 3
"""Bytes moved to add gradients to sums of their type, per byte of the sums: both are read, sums are written."""


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
    """Return the times that gradient accumulation adds to a microbatch; None if no execution accumulates.

    The first microbatch writes its gradients and reads no sums, so that a batch of one microbatch has no accumulation.
    Later microbatches read the sums, also those in the drain of the pipeline. Accumulation in a separate kernel reads
    and writes the sums in every microbatch. Source of such kernels: Megatron-LM, model/distributed.py
    (``param.main_grad.add_(param.grad.data)``); PyTorch, autograd/functions/accumulate_grad.h (``variable_grad +=
    new_grad``).
    """
    if not schedule.accumulates.any():
        return None
    sums = schedule.columns.grad_sums
    reads = schedule.accumulates & ((schedule.microbatches > 1) | _added_apart(schedule))
    # a group of microbatches accumulates whole gradients, and a rank keeps its shard after the group
    whole = np.where(schedule.columns.grad_group > 1, schedule.shards, 1.0)
    weights = [optimizer.weight_grad]
    if schedule.has_separate_experts:
        held = held_block(block, optimizer, schedule)
        weights = [held.whole_gradients(schedule, whole) / whole]
    if embedding_head is not None:
        step = embedding_head.step
        weights += [end.optimizer.weight_grad for end in (step.first, step.last)]
    moved = np.where(schedule.columns.grad_fusion, 1.0, ADD_PASS)
    moved = np.where(sums, SUM_PASS, moved) * whole
    times = [np.where(reads, system.move_time(held * moved), 0.0) for held in weights]
    if schedule.choice.in_halves:  # each half adds its gradients of the blocks
        times[0] = 2 * times[0]
    none = np.zeros_like(times[0])
    return Accumulation(times[0], *(times[1:] if len(times) > 1 else (none, none)))


def accumulation_of_batch(
    added: Accumulation, slowest: Schedule, embedding_head: EmbeddingHeadTimes | None
) -> Seconds:
    """Return the time of gradient accumulation per batch on the slowest stage, whose blocks `slowest` has.

    Sums are read by the product of the weight gradients (beta = 1, Megatron-LM's gradient accumulation fusion) in all
    microbatches but the first, or by a separate kernel in all.
    """
    once: Seconds = slowest.blocks * added.block
    if embedding_head is not None:
        once = once + embedding_head.of_slower(added.embedding, added.head)
    return (slowest.microbatches - np.where(_added_apart(slowest), 0, 1)) * once


def _added_apart(schedule: Schedule) -> Array:
    """Return true if a separate kernel accumulates gradients, even in the first microbatch."""
    return schedule.columns.grad_sums | ~schedule.columns.grad_fusion
