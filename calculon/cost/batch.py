"""The cost of a batch on one processor of the first stage: from block to chunk, stage and iteration."""

from dataclasses import dataclass

import numpy as np

from calculon.cost.block import BlockCost, OptimizerCost
from calculon.cost.efficiency import efficiency
from calculon.cost.offload import Offload, exposed, offload, offload_bandwidth
from calculon.cost.space import capacity, offloaded_space, space
from calculon.edition import Edition
from calculon.hardware.system import System
from calculon.parallel.data import BackwardPass, GradientSync, gradient_sync
from calculon.parallel.pipeline import Transfers, bubble_time, transfers
from calculon.plan.schedule import Schedule
from calculon.statistics import (
    PARTS_OF_TIME,
    BlockSpace,
    Messages,
    OverlapBandwidth,
    Stats,
    Times,
)
from calculon.units import Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockTimes:
    """Forward and backward time of a base and an edge block, before and with exposed offload traffic."""

    forward_base: Seconds
    forward_edge: Seconds
    backward_base: Seconds
    backward_edge: Seconds

    @property
    def shortest_forward(self) -> Seconds:
        """The shorter forward time of the two kinds of block."""
        return np.minimum(self.forward_base, self.forward_edge)

    @property
    def shortest_backward(self) -> Seconds:
        """The shorter backward time of the two kinds of block."""
        return np.minimum(self.backward_base, self.backward_edge)


def block_times(block: BlockCost, sent: Transfers) -> BlockTimes:
    """Add computation, exposed collectives and transfers up to the time of a block (section 5.4)."""
    forward = block.fw.time + block.fw_tp.time_exposed
    backward = (
        block.re.time
        + block.recomm.time_exposed
        + block.agrad.time
        + block.wgrad.time
        + block.agrad_tp.time_exposed
    )
    return BlockTimes(
        forward_base=forward[0],
        forward_edge=forward[1] + sent.forward,
        backward_base=backward[0],
        backward_edge=backward[1] + sent.backward,
    )


def offload_times(times: BlockTimes, block: BlockCost, moved: Offload) -> BlockTimes:
    """Return the exposed offload time of each kind of block and pass (section 5.4)."""
    forward_memory = block.fw.mem_time
    backward_memory = block.agrad.mem_time + block.wgrad.mem_time
    return BlockTimes(
        forward_base=exposed(moved.forward, forward_memory, times.forward_base),
        forward_edge=exposed(moved.forward, forward_memory, times.forward_edge),
        backward_base=exposed(moved.backward, backward_memory, times.backward_base),
        backward_edge=exposed(moved.backward, backward_memory, times.backward_edge),
    )


def batch_stats(
    block: BlockCost,
    optimizer: OptimizerCost,
    schedule: Schedule,
    system: System,
    edition: Edition,
) -> Stats:
    """Compose the statistics of executions from the costs of their blocks (section 5).

    All arguments hold one entry per execution on the last axis.
    """
    activation = np.where(schedule.recompute_all, block.act_checkpoint, block.act_storage)
    sent = transfers(block.pipeline_message, schedule, system, edition)
    moved = offload(block.weight, activation, optimizer.state, schedule, system, edition)
    alone = block_times(block, sent)
    waits = offload_times(alone, block, moved)
    whole = BlockTimes(
        forward_base=alone.forward_base + waits.forward_base,
        forward_edge=alone.forward_edge + waits.forward_edge,
        backward_base=alone.backward_base + waits.backward_base,
        backward_edge=alone.backward_edge + waits.backward_edge,
    )
    sync = gradient_sync(
        block.weight,
        _backward_pass(block, optimizer, whole, sent),
        schedule,
        system,
        edition,
    )
    times = _times(block, optimizer, schedule, waits, whole, sent, sync)
    resident = offloaded_space(block, optimizer, schedule, edition)
    total_space = space(block, optimizer, schedule)
    return Stats(
        fw=block.fw,
        fw_tp=block.fw_tp,
        re=block.re,
        recomm=block.recomm,
        agrad=block.agrad,
        agrad_tp=block.agrad_tp,
        wgrad=block.wgrad,
        optim=optimizer.step,
        tensor_messages=block.tensor_messages,
        messages=Messages(
            block_fw_pp_size=sent.forward_size,
            block_bw_pp_size=sent.backward_size,
            block_dp_size=sync.message,
        ),
        overlap_bandwidth=OverlapBandwidth(
            tp=block.tp_bandwidth_needed,
            dp_chunk=sync.chunk_bandwidth,
            dp_tail=sync.tail_bandwidth,
        ),
        block_space=_block_space(block, optimizer),
        offloaded_space=resident,
        space=total_space,
        times=times,
        offload_bandwidth=offload_bandwidth(
            moved,
            block.weight,
            activation,
            optimizer.weight_grad + optimizer.state,
            alone.shortest_forward - block.fw.mem_time,
            alone.shortest_backward - (block.agrad.mem_time + block.wgrad.mem_time),
            schedule.training,
        ),
        capacity=capacity(total_space, resident, optimizer, schedule),
        efficiency=efficiency(
            block,
            optimizer,
            schedule,
            times.fw_time + times.bw_time + times.optim_step_time,
            times.total_time,
            edition,
        ),
    )


def _block_space(block: BlockCost, optimizer: OptimizerCost) -> BlockSpace:
    return BlockSpace(
        weight=block.weight,
        act_working=block.act_working,
        act_storage=block.act_storage,
        act_checkpoint=block.act_checkpoint,
        weight_grad=optimizer.weight_grad,
        weight_grad_no_sharding=block.weight_grad_no_sharding,
        act_grad=block.act_grad,
        optimizer=optimizer.state,
    )


def _backward_pass(
    block: BlockCost, optimizer: OptimizerCost, whole: BlockTimes, sent: Transfers
) -> BackwardPass:
    """Describe the backward pass to data parallelism."""
    tensor = block.recomm.time + block.agrad_tp.time
    return BackwardPass(
        base=whole.backward_base,
        edge=whole.backward_edge,
        p2p=sent.backward,
        memory=block.agrad.mem_time + block.wgrad.mem_time + block.re.mem_time,
        tensor_base=tensor[0],
        tensor_edge=tensor[1],
        arithmetic=block.agrad.flops_time + block.wgrad.flops_time + block.re.flops_time,
        step=optimizer.step.time,
        step_memory=optimizer.step.mem_time,
        step_arithmetic=optimizer.step.flops_time,
    )


def _times(
    block: BlockCost,
    optimizer: OptimizerCost,
    schedule: Schedule,
    waits: BlockTimes,
    whole: BlockTimes,
    sent: Transfers,
    sync: GradientSync,
) -> Times:
    """Time one iteration; the parts add up to the total (sections 5.1 to 5.6 and 5.10)."""
    passes = schedule.blocks * schedule.microbatches
    batch_sum = schedule.batch_sum
    forward, again, backward = block.fw_tp, block.recomm, block.agrad_tp
    backward_wait = batch_sum(waits.backward_base, waits.backward_edge)
    times = {
        "fw_time": passes * block.fw.time,
        "bw_time": passes * block.agrad.time + passes * block.wgrad.time,
        "optim_step_time": schedule.blocks * optimizer.step.time,
        "recompute_time": passes * block.re.time,
        "recomm_link_time": batch_sum(*again.time),
        "recomm_exposed_time": batch_sum(*again.time_exposed),
        "bubble_time": bubble_time(
            schedule,
            whole.forward_base + whole.backward_base,
            whole.forward_edge + whole.backward_edge,
        ),
        "tp_comm_link_time": batch_sum(*forward.time) + batch_sum(*backward.time),
        "pp_comm_link_time": sent.link,
        "dp_comm_link_time": sync.link,
        "tp_comm_exposed_time": (
            batch_sum(*forward.time_exposed) + batch_sum(*backward.time_exposed)
        ),
        "pp_comm_exposed_time": sent.link,
        "dp_comm_exposed_time": sync.exposed,
        "fw_offload_exposed_time": batch_sum(waits.forward_base, waits.forward_edge),
        "bw_offload_exposed_time": np.where(schedule.training, backward_wait, 0.0),
    }
    total = times[PARTS_OF_TIME[0]]
    for name in PARTS_OF_TIME[1:]:
        total = total + times[name]
    return Times(**times, total_time=total)
