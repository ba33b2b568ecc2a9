"""The two classes of parameters of a block: those of all replicas, and routed experts with groups of their own."""

import numpy as np

from calculon.cost.block_cost import BlockCost
from calculon.cost.data.synced import HeldBlock, SyncedBlock, SyncedBytes
from calculon.cost.optimizer_step import OptimizerCost
from calculon.plan.schedule import Schedule


def synced_block(block: BlockCost, schedule: Schedule) -> SyncedBlock:
    """Return the gradient and parameter bytes that replicas synchronise of a block."""
    sent, gradient = block.forms.sent, block.gradient_message
    if not schedule.has_experts_apart:
        return SyncedBlock(dense=SyncedBytes(weight=sent, gradient=gradient))
    apart, reduced = schedule.experts_apart, gradient / block.weight
    of_experts = np.where(apart, block.forms.sent_experts, 0.0)
    experts = SyncedBytes(
        weight=of_experts, gradient=np.where(apart, block.expert_weight, 0.0) * reduced
    )
    return SyncedBlock(
        dense=SyncedBytes(weight=sent - of_experts, gradient=gradient - experts.gradient),
        experts=experts,
    )


def held_block(block: BlockCost, optimizer: OptimizerCost, schedule: Schedule) -> HeldBlock:
    """Return the bytes of weights and gradients that a rank holds of a block."""
    experts = None
    if schedule.has_experts_apart:
        apart, reduced = schedule.experts_apart, block.gradient_message / block.weight
        weight = np.where(apart, block.expert_weight, 0.0)
        waiting = np.where(apart, optimizer.expert_weight_grad, 0.0)
        experts = HeldBlock(
            weight=weight,
            gathered=np.where(apart, block.forms.sent_experts, 0.0),
            message=weight * reduced,
            waiting=waiting,
        )
    return HeldBlock(
        weight=block.weight,
        gathered=block.forms.sent,
        copies=block.forms.beside,
        message=block.gradient_message,
        waiting=optimizer.weight_grad,
        experts=experts,
    )
