"""Memory per processor: what each kind of tensor takes, and what both tiers must hold."""

from dataclasses import replace
from typing import NamedTuple, TypeVar

import numpy as np

from calculon.cost import in_flight
from calculon.cost.block_cost import BlockCost
from calculon.cost.ends import Ends, Held
from calculon.cost.optimizer_step import OptimizerCost
from calculon.editions.edition import Edition
from calculon.parallel.data.replication import units_held
from calculon.plan.schedule import Schedule
from calculon.records import apply, record
from calculon.statistics import Buffers, Capacity, OffloadedSpace, Space
from calculon.units import Bytes, Count

R = TypeVar("R", Space, OffloadedSpace)


@record
class Memory:
    """Memory of a stage."""

    space: Space
    offloaded: OffloadedSpace
    buffers: Buffers
    capacity: Capacity


class End(NamedTuple):
    """Bytes that an end of the model adds to its stage; it stays in tier 1.

    ``stored`` waits for the backward pass of a microbatch; ``working`` and ``grad`` are there while the end is
    computed, when no block is. ``weight`` stays; the end computes with ``whole``, the largest table of which is
    ``table``.
    """

    whole: Bytes
    table: Bytes
    weight: Bytes
    weight_grad: Bytes
    optimizer: Bytes
    stored: Bytes
    working: Bytes
    grad: Bytes


def memory(
    block: BlockCost,
    optimizer: OptimizerCost,
    schedule: Schedule,
    edition: Edition,
    ends: Ends | None,
) -> Memory:
    """Memory of the fullest stage: the first, which holds most microbatches, or the last with the head."""
    held = in_flight.on_first(schedule, edition)
    stated = schedule.stages is not None and bool(schedule.stages.stated.any())
    if ends is None and not stated:
        return memory_of_stage(block, optimizer, schedule, edition, held)
    first, last = (None, None) if ends is None else ends_held(ends, schedule)
    of_first, of_second, of_last = _outer(schedule) if stated else (schedule,) * 3
    found = memory_of_stage(block, optimizer, of_first, edition, held, first)
    if stated:
        second = in_flight.on_second(schedule, held)
        found = _fuller(found, memory_of_stage(block, optimizer, of_second, edition, second))
    other_held = np.where(schedule.pipeline_par > 1, in_flight.on_last(schedule), held)
    return _fuller(found, memory_of_stage(block, optimizer, of_last, edition, other_held, last))


def _fuller(one: Memory, other: Memory) -> Memory:
    """Return the memory of the stage that needs more of tier 1; of tier 2 what either needs."""
    fuller = one.capacity.proc_mem_tier1_cap_req >= other.capacity.proc_mem_tier1_cap_req

    def of_fuller(one: Bytes, other: Bytes) -> Bytes:
        return np.where(fuller, one, other)

    found = apply(of_fuller, [one, other])
    tier2 = np.maximum(one.capacity.proc_mem_tier2_cap_req, other.capacity.proc_mem_tier2_cap_req)
    return replace(found, capacity=replace(found.capacity, proc_mem_tier2_cap_req=tier2))


def _outer(schedule: Schedule) -> tuple[Schedule, Schedule, Schedule]:
    """Return the schedule with the blocks of the first, the second and the last stage."""
    stages = schedule.stages
    assert stages is not None
    first, second, last = (
        schedule.with_blocks(np.where(stages.stated, blocks, schedule.blocks))
        for blocks in (
            stages.first,
            np.where(schedule.pipeline_par > 2, stages.high, 0.0),
            stages.last,
        )
    )
    return first, second, last


def ends_held(ends: Ends, schedule: Schedule) -> tuple[End, End]:
    """Return what the first and the last stage hold; a single stage holds both ends."""
    embedding, head, step = ends.cost.embedding, ends.cost.head, ends.step
    piped = schedule.pipeline_par > 1

    def end(alone: Bytes, together: Bytes) -> Bytes:
        return np.where(piped, alone, together)

    stored = np.where(schedule.training, embedding.act_storage, 0.0)
    form = schedule.replicas

    def kept(held: Held) -> Bytes:
        if form is None:
            return held.weight
        return np.where(form.splits_weights, held.optimizer.weight, held.weight)

    both = End(
        whole=step.both.weight,
        table=np.maximum(step.first.weight, step.last.weight),
        weight=kept(step.both),
        weight_grad=step.both.optimizer.weight_grad,
        optimizer=step.both.optimizer.state,
        stored=stored,
        working=np.maximum(embedding.act_working, head.act_working),
        grad=np.maximum(embedding.act_grad, head.act_grad),
    )
    first = End(
        whole=step.first.weight,
        table=step.first.weight,
        weight=kept(step.first),
        weight_grad=step.first.optimizer.weight_grad,
        optimizer=step.first.optimizer.state,
        stored=stored,
        working=embedding.act_working,
        grad=embedding.act_grad,
    )
    last = End(
        whole=step.last.weight,
        table=step.last.weight,
        weight=kept(step.last),
        weight_grad=step.last.optimizer.weight_grad,
        optimizer=step.last.optimizer.state,
        stored=0.0 * stored,
        working=head.act_working,
        grad=head.act_grad,
    )
    return End(*map(end, first, both)), End(*map(end, last, both))


def memory_of_stage(
    block: BlockCost,
    optimizer: OptimizerCost,
    schedule: Schedule,
    edition: Edition,
    held: Count,
    end: End | None = None,
) -> Memory:
    """Memory of a stage that holds so many microbatches."""
    blocks = whole = _space(block, optimizer, schedule, held)
    resident = _offloaded_space(block, optimizer, schedule, edition)
    if end is not None:
        one = np.where(schedule.training, block.act_storage, 0.0)
        every = np.where(schedule.recompute_all, 0.0, one * (schedule.blocks * held))
        whole = _with_end(whole, every, held, end)
        resident = _with_end(resident, one, held, end)
    buffers = _buffers(block, optimizer, schedule, end)
    return Memory(
        space=whole,
        offloaded=resident,
        buffers=buffers,
        capacity=_capacity(whole, resident, blocks, optimizer, schedule, buffers),
    )


def _buffers(
    block: BlockCost, optimizer: OptimizerCost, schedule: Schedule, end: End | None
) -> Buffers:
    """Memory of communication: gathered weights, gradients to be reduced; and what is reserved.

    Weights are whole unit by unit (:func:`units_held`), those of the ends all the time. Split gradients are whole until
    they are reduced, a unit at a time; whole ones need a bucket where they are reduced in another type. Source: Zhao et
    al., arXiv 2304.11277, section 3.2.1; Rajbhandari et al., arXiv 1910.02054, section 5.2.
    """
    none = np.zeros_like(schedule.blocks)
    form, message = schedule.replicas, block.gradient_message
    reserved = none + schedule.reserved
    if form is None:
        return Buffers(gathered_space=none, comm_buffer_space=none, reserved_space=reserved)
    gathered = units_held(form, schedule.blocks) * block.weight
    unit = np.where(form.splits_weights, form.unit * message, message)
    if end is not None:
        gathered = gathered + end.whole
        unit = np.maximum(unit, end.table * (message / block.weight))
    bucket = np.where(form.bucket > 0, np.minimum(form.bucket, schedule.blocks * message), message)
    copied = np.where(optimizer.weight_grad == message, 0.0, bucket)
    passing = np.where(form.splits_gradients, unit, copied)
    used = schedule.training & (schedule.data_par > 1)
    return Buffers(
        gathered_space=none + np.where(form.splits_weights, gathered, 0.0),
        comm_buffer_space=none + np.where(form.stated & used, passing, 0.0),
        reserved_space=reserved,
    )


def _space(block: BlockCost, optimizer: OptimizerCost, schedule: Schedule, held: Count) -> Space:
    """Memory of each kind of tensor with everything in tier 1 (section 5.7)."""
    blocks, training, full = schedule.blocks, schedule.training, schedule.recompute_all
    stored = block.act_storage * (blocks * held - 1)
    weight = block.weight * blocks
    weight_grad = block.weight_grad_no_sharding + optimizer.weight_grad * (blocks - 1)
    if (form := schedule.replicas) is not None:
        weight = np.where(form.splits_weights, optimizer.weight * blocks, weight)
        weight_grad = np.where(form.stated, optimizer.weight_grad * blocks, weight_grad)
    return Space(
        weight=weight,
        act=block.act_working + np.where(training & ~full, stored, 0.0),
        act_checkpoint=np.where(full, blocks * block.act_checkpoint * held, 0.0),
        act_grad=block.act_grad + np.zeros_like(blocks),
        weight_grad=weight_grad,
        optimizer=optimizer.state * blocks,
    )


def _with_end(tensors: R, block_store: Bytes, held: Count, end: End) -> R:
    """Add an end of the model: its weights stay, its activations are there when those of a block are not.

    `block_store` is what all blocks store, while none is computed.
    """
    at_end = end.working + block_store
    larger = at_end + end.grad > tensors.act + tensors.act_grad
    return replace(
        tensors,
        weight=tensors.weight + end.weight,
        act=np.where(larger, at_end, tensors.act) + end.stored * held,
        act_grad=np.where(larger, end.grad, tensors.act_grad),
        weight_grad=tensors.weight_grad + end.weight_grad,
        optimizer=tensors.optimizer + end.optimizer,
    )


def _offloaded_space(
    block: BlockCost, optimizer: OptimizerCost, schedule: Schedule, edition: Edition
) -> OffloadedSpace:
    """Memory that stays in tier 1 for tensors that are offloaded: two blocks' worth (section 5.7)."""
    training = schedule.training
    weight_grad = block.weight_grad_no_sharding + optimizer.weight_grad
    if (form := schedule.replicas) is not None:
        weight_grad = np.where(form.stated, 2 * optimizer.weight_grad, weight_grad)
    return OffloadedSpace(
        weight=2 * block.weight,
        act=edition.offloaded_activations(block.act_working, block.act_storage, training),
        act_checkpoint=edition.offloaded_checkpoint(2 * block.act_checkpoint, training),
        act_grad=block.act_grad,
        weight_grad=weight_grad,
        optimizer=2 * optimizer.state,
    )


def _capacity(
    whole: Space,
    resident: OffloadedSpace,
    blocks: Space,
    optimizer: OptimizerCost,
    schedule: Schedule,
    buffers: Buffers,
) -> Capacity:
    """Memory that the two tiers must hold (section 5.8); only `blocks` are offloaded."""
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
    weights_tier2 = np.where(schedule.weight_offload, blocks.weight, 0.0)
    activations_tier2 = np.where(
        schedule.activations_offload, np.where(full, blocks.act_checkpoint, blocks.act), 0.0
    )
    optimizer_tier2 = np.where(
        schedule.optimizer_offload,
        optimizer.weight_grad * schedule.blocks + blocks.optimizer,
        0.0,
    )
    act_grad = np.where(schedule.activations_offload, resident.act_grad, whole.act_grad)
    tier1 = weights + activations + optimizer_tier1 + act_grad
    if schedule.replicas is not None or schedule.reserved.any():
        tier1 = tier1 + (
            buffers.gathered_space + buffers.comm_buffer_space + buffers.reserved_space
        )
    return Capacity(
        proc_mem_tier1_cap_req=tier1,
        proc_mem_tier2_cap_req=weights_tier2 + activations_tier2 + optimizer_tier2,
    )
