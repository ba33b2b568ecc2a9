"""The passes of a stage that data-parallel traffic can hide behind."""

import numpy as np

from calculon.base.records import apply
from calculon.base.units import Seconds
from calculon.cost.block_cost import BlockCost, Collectives
from calculon.cost.block_times import BlockTimes
from calculon.cost.data.synced import BackwardPass
from calculon.cost.embedding_head import EmbeddingHead
from calculon.cost.offload import transfers_after_offload
from calculon.cost.optimizer_step import OptimizerCost
from calculon.cost.pipeline.transfers import Transfers
from calculon.declarations.axes import FURTHER_NAMES
from calculon.plan.schedule import Schedule


def backward_pass(
    block: BlockCost,
    optimizer: OptimizerCost,
    embedding_head: EmbeddingHead | None,
    collectives: Collectives,
    sent: Transfers,
    waits: BlockTimes,
    times: BlockTimes,
    schedule: Schedule,
    *,
    exchanges: bool,
) -> BackwardPass:
    """Return the times that data-parallel traffic can hide behind.

    An edge block has its transfer also where that overlaps: the drain waits for one trip.
    """
    step, overlapped = optimizer.step, schedule.columns.p2p_overlap
    tensor = collectives.recomm.time + collectives.agrad_tp.time
    if exchanges:
        times = _without_shared_link(times, block, schedule)
    edge = times.backward_edge
    if overlapped.any():
        edge = edge + np.where(overlapped, transfers_after_offload(sent, waits)[1], 0.0)
    return BackwardPass(
        forward=times.forward_base,
        tensor_forward=collectives.fw_tp.time[0],
        head=np.zeros(1) if embedding_head is None else embedding_head.head_backward,
        base=times.backward_base,
        edge=edge,
        p2p=sent.backward,
        memory=block.agrad.mem_time + block.wgrad.mem_time + block.re.mem_time,
        tensor_base=tensor[0],
        tensor_edge=tensor[1],
        arithmetic=block.agrad.flops_time + block.wgrad.flops_time + block.re.flops_time,
        step=step.time,
        step_memory=step.mem_time,
        step_arithmetic=step.flops_time,
    )


def _without_shared_link(times: BlockTimes, block: BlockCost, schedule: Schedule) -> BlockTimes:
    """Subtract traffic of further axes that shares the data-parallel network: no gradient hides behind it.

    A window hides one collective only, so that this holds for hidden traffic, too.
    """
    forward: Seconds = np.zeros(1)
    backward: Seconds = np.zeros(1)
    for name, sent in zip(FURTHER_NAMES, block.axis_time, strict=True):
        same = schedule.networks[name] == schedule.data_network
        forward = forward + np.where(same, sent[0], 0.0)
        backward = backward + np.where(same, sent[1] + sent[2], 0.0)
    shared = BlockTimes(
        forward_base=forward,
        forward_edge=forward,
        backward_base=backward,
        backward_edge=backward,
    )
    return apply(lambda time, less: np.maximum(0.0, time - less), [times, shared])
