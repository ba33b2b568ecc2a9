"""Memory per processor: what each kind of tensor takes, and what both tiers must hold."""

import numpy as np

from calculon.cost.block import BlockCost, OptimizerCost
from calculon.edition import Edition
from calculon.plan.schedule import Schedule
from calculon.statistics import Capacity, OffloadedSpace, Space
from calculon.units import Count


def microbatches_in_flight(schedule: Schedule) -> Count:
    """Microbatches whose activations the first stage holds at once.

    Source: Narayanan et al., arXiv 2104.04473, section 2.2 (1F1B holds p); interleaving: Korthikanti et al.,
    arXiv 2205.05198, equation 5.
    """
    alive = np.minimum(schedule.microbatches, schedule.pipeline_par)
    stages = schedule.interleaving * schedule.pipeline_par
    return np.where(
        schedule.interleaving > 1, alive * (1 + (schedule.pipeline_par - 1) / stages), alive
    )


def space(block: BlockCost, optimizer: OptimizerCost, schedule: Schedule) -> Space:
    """Memory of each kind of tensor with everything in tier 1 (section 5.7)."""
    in_flight = microbatches_in_flight(schedule)
    blocks, training, full = schedule.blocks, schedule.training, schedule.recompute_all
    stored = block.act_storage * (blocks * in_flight - 1)
    return Space(
        weight=block.weight * blocks,
        act=block.act_working + np.where(training & ~full, stored, 0.0),
        act_checkpoint=np.where(full, blocks * block.act_checkpoint * in_flight, 0.0),
        act_grad=block.act_grad + np.zeros_like(blocks),
        weight_grad=block.weight_grad_no_sharding + optimizer.weight_grad * (blocks - 1),
        optimizer=optimizer.state * blocks,
    )


def offloaded_space(
    block: BlockCost, optimizer: OptimizerCost, schedule: Schedule, edition: Edition
) -> OffloadedSpace:
    """Memory that stays in tier 1 for tensors that are offloaded: two blocks' worth (section 5.7)."""
    training = schedule.training
    return OffloadedSpace(
        weight=2 * block.weight,
        act=edition.offloaded_activations(block.act_working, block.act_storage, training),
        act_checkpoint=edition.offloaded_checkpoint(2 * block.act_checkpoint, training),
        act_grad=block.act_grad,
        weight_grad=block.weight_grad_no_sharding + optimizer.weight_grad,
        optimizer=2 * optimizer.state,
    )


def capacity(
    whole: Space, resident: OffloadedSpace, optimizer: OptimizerCost, schedule: Schedule
) -> Capacity:
    """Memory that the two tiers must hold (section 5.8)."""
    full = schedule.recompute_all
    checkpoint = np.where(full, resident.act_checkpoint, 0.0)
    weights = np.where(schedule.weight_offload, resident.weight, whole.weight)
    activations = np.where(
        schedule.activations_offload, resident.act + checkpoint, whole.act + whole.act_checkpoint
    )
    optimizer_tier1 = np.where(
        schedule.optimizer_offload,
        resident.weight_grad + resident.optimizer,
        whole.weight_grad + whole.optimizer,
    )
    weights_tier2 = np.where(schedule.weight_offload, whole.weight, 0.0)
    activations_tier2 = np.where(
        schedule.activations_offload, np.where(full, whole.act_checkpoint, whole.act), 0.0
    )
    optimizer_tier2 = np.where(
        schedule.optimizer_offload,
        optimizer.weight_grad * schedule.blocks + whole.optimizer,
        0.0,
    )
    return Capacity(
        proc_mem_tier1_cap_req=weights + activations + optimizer_tier1 + whole.act_grad,
        proc_mem_tier2_cap_req=weights_tier2 + activations_tier2 + optimizer_tier2,
    )
