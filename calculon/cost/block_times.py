"""Times of a block for one microbatch: passes, pipeline transfers, offload traffic, and the data-parallel window."""

import numpy as np

from calculon.base.records import apply, record
from calculon.base.units import Bytes, Seconds
from calculon.cost.block_cost import BlockCost, Collectives
from calculon.cost.data.stage_traffic import StageTraffic
from calculon.cost.data.synced import BackwardPass
from calculon.cost.embedding_head import EmbeddingHead, EmbeddingHeadTimes
from calculon.cost.optimizer_step import OptimizerCost
from calculon.cost.pipeline.transfers import Transfers
from calculon.cost.process_groups import CollectiveCost
from calculon.declarations.axes import FURTHER_NAMES
from calculon.editions.edition import Edition
from calculon.hardware.system import System
from calculon.plan.schedule import Schedule


@record
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


def times_alone(
    block: BlockCost,
    collectives: Collectives,
    sent: Transfers,
    schedule: Schedule,
    *,
    exchanges: bool,
) -> BlockTimes:
    """Return the times of a block without offloading: computation, exposed collectives and transfers (section 5.4)."""
    overlapped = schedule.columns.p2p_overlap
    after_forward, after_backward = sent.forward, sent.backward
    if overlapped.any():
        after_forward, after_backward = (
            np.where(overlapped, 0.0, time) for time in (after_forward, after_backward)
        )
    forward, backward = block_passes(block, collectives, exchanges=exchanges)
    return BlockTimes(
        forward_base=forward[0],
        forward_edge=forward[1] + after_forward,
        backward_base=backward[0],
        backward_edge=backward[1] + after_backward,
    )


def block_passes(
    block: BlockCost, collectives: Collectives, *, exchanges: bool
) -> tuple[Seconds, Seconds]:
    """Return forward and backward time of a block without transfers and offloading; the first axis is the kind.

    Nothing is looked up of collectives of further axes where no block `exchanges` anything along them.
    """
    forward = block.fw.time + collectives.fw_tp.time_exposed
    backward = (
        block.re.time
        + collectives.recomm.time_exposed
        + block.agrad.time
        + block.wgrad.time
        + collectives.agrad_tp.time_exposed
    )
    if exchanges:  # collectives that are repeated are in the backward pass
        first, second, repeated = block.axis_exposed.sum(axis=0)
        forward, backward = forward + first, backward + (second + repeated)
    return forward, backward


@record
class Offload:
    """Bytes moved per block and pass, and the time that takes."""

    forward_size: Bytes
    backward_size: Bytes
    forward: Seconds
    backward: Seconds


def offload(
    weight: Bytes,
    activation: Bytes,
    state: Bytes,
    schedule: Schedule,
    system: System,
    edition: Edition,
) -> Offload:
    """Return the tier-2 traffic of a block whose weights, stored activations and optimizer state have these bytes.

    It takes its time on the link to the host and, if that is longer, in the memory that the processors of a node
    share, which both directions use (section 5.4).
    """
    columns, time, host = schedule.columns, system.mem2.time, system.ext.host
    weights = np.where(columns.weight_offload, weight, 0.0)
    activations = np.where(columns.activations_offload, activation, 0.0)
    states = np.where(columns.optimizer_offload, state, 0.0)
    forward, backward = edition.offload_bytes(weights, activations, states)
    if not schedule.training:
        backward = np.zeros_like(backward)
    forward_time, backward_time = time(forward), time(backward)
    if host is not None:
        both = host.time(weights + activations, schedule.processors)
        forward_time = np.maximum(forward_time, both)
        if schedule.training:
            backward_time = np.maximum(backward_time, both)
    return Offload(
        forward_size=forward,
        backward_size=backward,
        forward=forward_time,
        backward=backward_time,
    )


def offload_waits(
    alone: BlockTimes, moved: Offload, forward_memory: Seconds, backward_memory: Seconds
) -> BlockTimes:
    """Return the times that a block of each kind waits for offload traffic (section 5.4).

    Traffic uses the tier-1 memory when the passes do not, which take `forward_memory` and `backward_memory` of it.
    """
    return BlockTimes(
        forward_base=exposed(moved.forward, forward_memory, alone.forward_base),
        forward_edge=exposed(moved.forward, forward_memory, alone.forward_edge),
        backward_base=exposed(moved.backward, backward_memory, alone.backward_base),
        backward_edge=exposed(moved.backward, backward_memory, alone.backward_edge),
    )


def exposed(transfer: Seconds, memory: Seconds, busy: Seconds) -> Seconds:
    """Time of a transfer that a block does not hide: it uses the memory when the block does not."""
    return np.maximum(0.0, transfer + memory - busy)


def transfers_after_offload(sent: Transfers, waits: BlockTimes) -> tuple[Seconds, Seconds]:
    """Forward and backward transfer of a microbatch, less the offload traffic that an edge block waits for."""
    return (
        np.maximum(0.0, sent.forward - waits.forward_edge),
        np.maximum(0.0, sent.backward - waits.backward_edge),
    )


def step_offload(
    optimizer: OptimizerCost, schedule: Schedule, system: System, edition: Edition
) -> Seconds | None:
    """Time per block to move an offloaded optimizer once per batch; None where it moves in every pass."""
    moved = edition.step_offload_bytes(optimizer.state, optimizer.weight_grad)
    if moved is None:
        return None
    time: Seconds = system.mem2.time(moved)
    if (host := system.ext.host) is not None:
        time = np.maximum(time, host.time(moved, schedule.processors))
    return np.where(schedule.columns.optimizer_offload, time, 0.0)


def crowded(
    traffic: StageTraffic,
    alone: BlockTimes,
    moved: Offload,
    memory: tuple[Seconds, Seconds],
    embedding_head: EmbeddingHeadTimes | None,
    idle: Seconds,
    schedule: Schedule,
    system: System,
) -> Seconds | None:
    """Time per batch for which offload traffic waits since the network shares the link to the host.

    None where nothing does. Overlapped data-parallel traffic takes the link for its bytes; what the passes of a batch,
    embedding and head included, and the `idle` time between them do not leave for that is waited for. Time that passes
    wait for data-parallel traffic is idle, too: nothing is offloaded then.
    Source: NVIDIA, DGX H100 user guide: a processor and its network port are on one PCIe switch.

    Args:
        alone, moved: Times of a block of the slowest stage without offloading, and its offload traffic.
        memory: Time of forward and backward pass of this block on tier-1 memory.
        schedule: Has the blocks of the slowest stage.
    """
    host, columns = system.ext.host, schedule.columns
    overlapped = (columns.weight_offload | columns.activations_offload) & columns.data_par_overlap
    if host is None or host.network is None or not schedule.training or not overlapped.any():
        return None
    cost = CollectiveCost(system, schedule, bytes=True, network=host.network)
    taken = traffic.total(cost) / system.mem2.bandwidth
    forward, backward = memory[0] + moved.forward, memory[1] + moved.backward
    base = np.maximum(0.0, alone.forward_base - forward)
    base = base + np.maximum(0.0, alone.backward_base - backward)
    edge = np.maximum(0.0, alone.forward_edge - forward)
    edge = edge + np.maximum(0.0, alone.backward_edge - backward)
    if embedding_head is not None:
        ends = embedding_head.of_slower(embedding_head.embedding, embedding_head.head)
        idle = idle + schedule.microbatches * ends
    left = np.maximum(0.0, taken - schedule.batch_sum(base, edge) - idle)
    return np.where(overlapped, left, 0.0)


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
