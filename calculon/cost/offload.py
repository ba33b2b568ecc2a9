"""Offloading to tier-2 memory: bytes moved, transfer time, and exposed time."""

import numpy as np

from calculon.base.records import record
from calculon.base.units import Bytes, Seconds
from calculon.cost.block_times import BlockTimes
from calculon.cost.data.stage_traffic import StageTraffic
from calculon.cost.embedding_head import EmbeddingHeadTimes
from calculon.cost.optimizer_step import OptimizerCost
from calculon.cost.pipeline.transfers import Transfers
from calculon.cost.process_groups import CollectiveCost
from calculon.editions.edition import Edition
from calculon.hardware.system import System
from calculon.plan.schedule import Schedule


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
