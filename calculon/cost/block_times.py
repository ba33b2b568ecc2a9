"""Times of a block for one microbatch: passes, pipeline transfers, offload traffic, and the data-parallel window."""

import numpy as np

from calculon.base.record_arrays import apply
from calculon.base.records import record
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
    """Forward and backward time of a base and of an edge block: the last block of a stage, which sends its output."""

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


def times_without_offload(
    block: BlockCost,
    collectives: Collectives,
    sent: Transfers,
    schedule: Schedule,
    *,
    exchanges: bool,
) -> BlockTimes:
    """Return the times of a block without offloading: computation, exposed collectives and transfers (section 5.4).

    Overlapped transfers are not part of it. `exchanges` as in :func:`block_passes`.
    """
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

    Collectives of further axes are read only if any block `exchanges` data along them: a search then gathers no zeros.
    """
    forward = block.fw.time + collectives.fw_tp.time_exposed
    backward = (
        block.re.time
        + collectives.recomm.time_exposed
        + block.agrad.time
        + block.wgrad.time
        + collectives.agrad_tp.time_exposed
    )
    if exchanges:  # repeated collectives are part of the backward pass
        first, second, repeated = block.axis_exposed.sum(axis=0)
        forward, backward = forward + first, backward + (second + repeated)
    return forward, backward


@record
class Offload:
    """Offload traffic of a block: bytes moved in each pass, and their time."""

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
    """Return the tier-2 traffic of a block with these bytes of weights, stored activations and optimizer state.

    Its time is the larger of the time on the processor's link to the host, and of the time of the host's memory, which
    all processors of a node share and which serves both directions (section 5.4).
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


def exposed_offload(
    times: BlockTimes, moved: Offload, forward_memory: Seconds, backward_memory: Seconds
) -> BlockTimes:
    """Return the exposed time of offload traffic in a block of each kind (section 5.4).

    Offload traffic uses the tier-1 memory only while the passes do not: they use it for `forward_memory` and
    `backward_memory` of their `times`.
    """
    return BlockTimes(
        forward_base=exposed_transfer(moved.forward, forward_memory, times.forward_base),
        forward_edge=exposed_transfer(moved.forward, forward_memory, times.forward_edge),
        backward_base=exposed_transfer(moved.backward, backward_memory, times.backward_base),
        backward_edge=exposed_transfer(moved.backward, backward_memory, times.backward_edge),
    )


def exposed_transfer(transfer: Seconds, memory: Seconds, busy: Seconds) -> Seconds:
    """Return the exposed time of a transfer that uses the memory only while a pass of `busy` seconds does not."""
    return np.maximum(0.0, transfer + memory - busy)


def transfers_after_offload(sent: Transfers, offloading: BlockTimes) -> tuple[Seconds, Seconds]:
    """Return the forward and backward transfer of a microbatch, less the exposed offload traffic of an edge block.

    A transfer proceeds while the block waits for offload traffic.
    """
    return (
        np.maximum(0.0, sent.forward - offloading.forward_edge),
        np.maximum(0.0, sent.backward - offloading.backward_edge),
    )


def step_offload(
    optimizer: OptimizerCost, schedule: Schedule, system: System, edition: Edition
) -> Seconds | None:
    """Return the time per block to move an offloaded optimizer once per batch; None if it moves in every pass."""
    moved = edition.step_offload_bytes(optimizer.state, optimizer.weight_grad)
    if moved is None:
        return None
    time: Seconds = system.mem2.time(moved)
    if (host := system.ext.host) is not None:
        time = np.maximum(time, host.time(moved, schedule.processors))
    return np.where(schedule.columns.optimizer_offload, time, 0.0)


def host_link_contention(
    traffic: StageTraffic,
    times: BlockTimes,
    moved: Offload,
    memory: tuple[Seconds, Seconds],
    embedding_head: EmbeddingHeadTimes | None,
    idle: Seconds,
    schedule: Schedule,
    system: System,
) -> Seconds | None:
    """Return the time per batch that offload traffic waits because the network shares the link to the host.

    Overlapped data-parallel traffic uses the link in the time that offload traffic leaves: in the passes of a batch,
    embedding and head included, and in `idle` time, when nothing is offloaded. The rest of it is exposed. None if no
    execution has both kinds of traffic. Source: NVIDIA, DGX H100 user guide: a processor and its network port are on
    one PCIe switch.

    Args:
        times: Times of a block of the slowest stage without offloading.
        moved: Offload traffic of this block.
        memory: Time of its forward and backward pass on tier-1 memory.
        idle: Time per batch of the bubble and of exposed data-parallel traffic.
        schedule: Schedule with the blocks of the slowest stage.
    """
    host, columns = system.ext.host, schedule.columns
    overlapped = (columns.weight_offload | columns.activations_offload) & columns.data_par_overlap
    if host is None or host.network is None or not schedule.training or not overlapped.any():
        return None
    cost = CollectiveCost(system, schedule, bytes=True, network=host.network)
    taken = traffic.total(cost) / system.mem2.bandwidth
    forward, backward = memory[0] + moved.forward, memory[1] + moved.backward
    base = np.maximum(0.0, times.forward_base - forward)
    base = base + np.maximum(0.0, times.backward_base - backward)
    edge = np.maximum(0.0, times.forward_edge - forward)
    edge = edge + np.maximum(0.0, times.backward_edge - backward)
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
    offloading: BlockTimes,
    times: BlockTimes,
    schedule: Schedule,
    *,
    exchanges: bool,
) -> BackwardPass:
    """Return the times of a block that can hide data-parallel traffic.

    The edge block includes its transfer even if transfers overlap: the drain of the pipeline waits for one trip.

    Args:
        offloading: Exposed time of offload traffic, a part of `times`.
        exchanges: Whether any block has collectives of further axes.
    """
    step, overlapped = optimizer.step, schedule.columns.p2p_overlap
    tensor = collectives.recomm.time + collectives.agrad_tp.time
    if exchanges:
        times = _without_shared_link(times, block, schedule)
    edge = times.backward_edge
    if overlapped.any():
        edge = edge + np.where(overlapped, transfers_after_offload(sent, offloading)[1], 0.0)
    return BackwardPass(
        forward=times.forward_base,
        tensor_forward=collectives.fw_tp.time[0],
        head=np.zeros(1) if embedding_head is None else embedding_head.head_backward,
        base=times.backward_base,
        edge=edge,
        forward_waits_less=offloading.forward_base - offloading.forward_edge,
        waits_less=offloading.backward_base - offloading.backward_edge,
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
    """Subtract the time of further axes on the data-parallel network, which hides no data-parallel traffic.

    A window hides one collective only, so that hidden traffic is subtracted as well.
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
