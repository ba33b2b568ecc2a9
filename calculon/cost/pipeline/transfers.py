"""Pipeline parallelism: transfers between stages, gradients that stages exchange, and the bubble of equal stages."""

from collections.abc import Sequence

import numpy as np

from calculon.base.records import record
from calculon.base.units import Array, Bytes, Seconds
from calculon.cost.data.stage_traffic import SyncedStage
from calculon.cost.data.synced import SharedTable
from calculon.cost.process_groups import ProcessGroup
from calculon.editions.edition import Edition
from calculon.hardware.system import System
from calculon.plan.schedule import Schedule


@record
class Transfers:
    """Point-to-point transfers of one microbatch between two stages.

    Attributes:
        forward_size, backward_size: Bytes of the message.
        forward, backward: Time that the edge block of a stage waits.
        link: Time of all transfers of a batch on the network.
    """

    forward_size: Bytes
    backward_size: Bytes
    forward: Seconds
    backward: Seconds
    link: Seconds


def transfers(message: Bytes, schedule: Schedule, system: System, edition: Edition) -> Transfers:
    """Return the transfers of a microbatch, whose message has these bytes (sections 4.4 and 5.3)."""
    piped = schedule.pipeline_par > 1
    both = piped & schedule.training
    forward_size = np.where(piped, message, 0.0)
    backward_size = np.where(both, message, 0.0)
    pair = ProcessGroup(np.array(2), schedule.networks["pp"])
    forward, backward = (
        pair.time(system, "p2p", size, schedule.choice.coll_algo)
        for size in (forward_size, backward_size)
    )
    return Transfers(
        forward_size=forward_size,
        backward_size=backward_size,
        forward=edition.transfer_time(forward, piped),
        backward=edition.transfer_time(backward, both),
        link=_of_batch(forward, backward, schedule),
    )


def _of_batch(forward: Array, backward: Array, schedule: Schedule) -> Array:
    """Return the sum over a batch, on one processor, of a quantity of a forward and of a backward transfer."""
    per_chunk = forward + backward if schedule.training else forward
    batch = schedule.microbatches * schedule.interleaving * per_chunk
    return np.where(schedule.pipeline_par > 1, batch, 0.0)


def pipeline_time(
    sent: Transfers,
    shared: SharedTable | None,
    mirrored: Bytes | None,
    schedule: Schedule,
    system: System,
) -> Seconds:
    """Return the time per batch on the pipeline's network: transfers, and gradients that two ranks reduce.

    Args:
        shared: Gradient of a table on the first stage and on others. Source: Narayanan et al., arXiv 2104.04473,
            section 4: tied embeddings are kept equal on two stages.
        mirrored: Bytes of gradients of parts of the model that another rank has as well. Source:
            ``deepseek-ai/DualPipe``, ``examples``: gradients of ranks `i` and `p - 1 - i` are added in the end.
    """
    network, time, two = schedule.networks["pp"], system.fabric.time, np.array(2.0)
    link = sent.link
    if mirrored is not None:
        between = schedule.training & (schedule.pipeline_par > 1)
        link = link + np.where(between, time(network, "all_reduce", mirrored, two), 0.0)
    if shared is not None:
        between = schedule.training & schedule.separate_ends
        ranks = np.array(float(shared.stages))
        link = link + np.where(between, time(network, "all_reduce", shared.gradient, ranks), 0.0)
    return link


def mirrored_gradient(stages: Sequence[SyncedStage], schedule: Schedule) -> Bytes | None:
    """Return the bytes of gradients that two ranks with equal parts of the model reduce; None without such ranks.

    The ranks with the most bytes count. The data-parallel ranks of each direction have reduced theirs
    before: with sharded state, each has its shard of the sum.
    """
    layout = schedule.layout
    if layout is None or not schedule.choice.mirrored:
        return None
    most: Bytes = np.zeros(1)
    for kind, stage in enumerate(stages):
        block, ends = stage.synced
        each = block.dense.gradient / schedule.shards
        if block.experts is not None:
            each = each + block.experts.gradient / schedule.expert_shards(schedule.shards)
        message = np.where(layout.count[kind] > 0, layout.blocks[kind], 0.0) * each
        if ends is not None and kind == len(stages) - 1:
            message = message + ends.both.gradient / schedule.shards
        most = np.maximum(most, message)
    return most


def pipeline_volume(
    sent: Transfers,
    shared: SharedTable | None,
    mirrored: Bytes | None,
    schedule: Schedule,
    system: System,
) -> Bytes:
    """Return the bytes per batch that one processor sends to other stages; arguments as in :func:`pipeline_time`."""
    network, volume, two = schedule.networks["pp"], system.fabric.volume, np.array(2.0)
    forward = volume(network, "p2p", sent.forward_size, two)
    backward = volume(network, "p2p", sent.backward_size, two)
    moved = _of_batch(forward, backward, schedule)
    if mirrored is not None:
        moved = moved + np.where(
            schedule.training, volume(network, "all_reduce", mirrored, two), 0.0
        )
    if shared is None:
        return moved
    between = schedule.training & schedule.separate_ends
    ranks = np.array(float(shared.stages))
    return moved + np.where(between, volume(network, "all_reduce", shared.gradient, ranks), 0.0)


def bubble_time(
    schedule: Schedule, base: Seconds, edge: Seconds, stalled: Seconds | float = 0.0
) -> Seconds:
    r"""Return the pipeline bubble: idle time of a stage while the pipeline fills and drains (section 5.5).

    .. math:: (p - 1) \Phi + (v - 1)(p - n \bmod p)\,[n \bmod p \ne 0]\,\Phi - \text{missing blocks}

    with the chunk time :math:`\Phi`, forward and backward.

    Args:
        base, edge: Forward plus backward time of a block of each kind.
        stalled: Time that a stage waits for data-parallel traffic of each microbatch.

    Microbatches pass chunks in groups of *p*. The last group may be short (Megatron-LM refuses to run then): it keeps
    the slots of a full group, which is the second term. Empty slots have no data-parallel traffic.

    Source: Narayanan et al., arXiv 2104.04473, section 2.2 (1F1B and interleaved schedules).
    """
    chunk = empty = schedule.chunk_sum(base, edge)
    if np.any(stalled):
        chunk = chunk + stalled / schedule.interleaving
    stages = schedule.pipeline_par
    rest = np.mod(schedule.microbatches, stages)
    extra = np.where(rest != 0, (schedule.interleaving - 1) * (stages - rest), 0.0)
    mean: Array = np.where(schedule.base_blocks > 0, (base + edge) / 2, edge)
    return (stages - 1) * chunk + extra * empty - schedule.missing_blocks * mean
