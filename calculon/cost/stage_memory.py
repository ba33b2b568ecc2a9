"""Memory per processor: weights, activations, gradients, optimizer state, buffers, and the capacity of both tiers."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar

import numpy as np

from calculon.base.record_arrays import joint_view
from calculon.base.records import record
from calculon.base.units import Array, Bytes, Count
from calculon.cost import in_flight
from calculon.cost.block_cost import BlockCost
from calculon.cost.data.strategies import STRATEGIES
from calculon.cost.data.synced import SyncedBytes, held_block
from calculon.cost.embedding_head import EmbeddingHead, VocabularyWeights
from calculon.cost.optimizer_step import OptimizerCost
from calculon.declarations.statistics import Buffers, Capacity, ExpertSpace, OffloadedSpace, Space
from calculon.editions.edition import Edition
from calculon.plan.schedule import Schedule
from calculon.plan.stage_layout import FIRST, LAST, SECOND

R = TypeVar("R", Space, OffloadedSpace)


@record
class Memory:
    """Memory of a stage: by kind of tensor, with offloading, buffers, routed experts, and capacity of both tiers."""

    space: Space
    offloaded: OffloadedSpace
    buffers: Buffers
    experts: ExpertSpace
    capacity: Capacity


class VocabularyMemory(NamedTuple):
    """Bytes of the embedding or the LM head on its stage, all in tier 1.

    Attributes:
        whole: Weights while they are used, gathered if they are sharded.
        table: The largest table of ``whole``.
        weight, weight_grad, optimizer: Weights, gradients and optimizer state that a rank keeps.
        stored: Activations that a microbatch stores until its backward pass.
        working, grad: Activations and their gradients while the layer is computed, when no block is.
        waiting: Memory all the time: quantized copies of weights, and stored activations of MTP modules.
    """

    whole: Bytes
    table: Bytes
    weight: Bytes
    weight_grad: Bytes
    optimizer: Bytes
    stored: Bytes
    working: Bytes
    grad: Bytes
    waiting: Bytes


def memory(
    costs: Sequence[tuple[BlockCost, OptimizerCost]],
    schedule: Schedule,
    edition: Edition,
    embedding_head: EmbeddingHead | None,
) -> Memory:
    """Return the memory of the fullest stage.

    That is the first stage, which holds most microbatches, the last one with the head, or, in a stated layout, an inner
    stage. Without a layout, no inner stage is fuller than the first.

    Args:
        costs: Cost of a block and of its step on each kind of stage of a layout, or on all stages.
    """
    if schedule.choice.folded:
        return _of_folded(costs, schedule, edition, embedding_head)
    held = in_flight.of_chunks(schedule, in_flight.on_first(schedule, edition), 0)
    layout = schedule.layout
    of_first = of_last = schedule
    if layout is not None:
        of_first, of_last = (schedule.with_blocks(layout.blocks[i]) for i in (FIRST, LAST))
    elif schedule.missing_blocks.any():
        counts = schedule.blocks, schedule.missing_blocks, schedule.pipeline_par
        blocks = edition.first_stage_blocks(*counts)
        if (blocks != schedule.blocks).any():
            of_first = schedule.with_blocks(blocks)

    def of_stage(
        kind: int, stage: Schedule, held: Count, vocabulary: VocabularyMemory | None = None
    ) -> Memory:
        block, optimizer = costs[kind]
        return memory_of_stage(block, optimizer, stage, edition, held, vocabulary)

    if embedding_head is None and of_first is of_last:
        return of_stage(FIRST, schedule, held)
    first, last = (
        (None, None) if embedding_head is None else embedding_head_memory(embedding_head, schedule)
    )
    found = of_stage(FIRST, of_first, held, first)
    if layout is not None and layout.place is not None:
        for kind in range(1, len(layout.blocks) - 1):
            there = _on_inner(schedule, held, layout.place[kind])
            between = schedule.with_blocks(layout.blocks[kind])
            found = _fuller(found, of_stage(kind, between, there))
    elif layout is not None:
        listed = schedule.columns.stage_blocks.any()
        for stage in range(1, len(layout.blocks) - 1) if listed else (SECOND,):
            inner = np.where(schedule.pipeline_par > stage + 1, layout.blocks[stage], 0.0)
            there = _on_inner(schedule, held, stage)
            found = _fuller(found, of_stage(stage, schedule.with_blocks(inner), there))
    other_held = np.where(schedule.pipeline_par > 1, in_flight.on_last(schedule), held)
    other_held = in_flight.of_chunks(schedule, other_held, schedule.pipeline_par - 1)
    return _fuller(found, of_stage(LAST, of_last, other_held, last))


def _on_inner(schedule: Schedule, first: Count, stage: Count | int) -> Count:
    """Return the microbatches in flight on a stage after the first."""
    return in_flight.of_chunks(schedule, in_flight.on_inner(schedule, first, stage), stage)


def _of_folded(
    costs: Sequence[tuple[BlockCost, OptimizerCost]],
    schedule: Schedule,
    edition: Edition,
    embedding_head: EmbeddingHead | None,
) -> Memory:
    """Return the memory of the fullest rank of a folded schedule, whose last kind of rank has both ends of the model.

    Ranks may be equally full, with offloaded blocks for example: then it is the rank with most activations.
    """
    layout = schedule.layout
    assert layout is not None
    ends = None if embedding_head is None else embedding_head_memory(embedding_head, schedule)[1]
    result = None
    for kind in (LAST, *range(SECOND, len(layout.blocks) - 1)):
        block, optimizer = costs[kind]
        here, held = schedule.with_blocks(layout.blocks[kind]), in_flight.on_folded(schedule, kind)
        own = ends if kind == LAST else None
        one = memory_of_stage(block, optimizer, here, edition, held, own)
        if result is None:
            result = one
            continue
        before, there = (each.capacity.proc_mem_tier1_cap_req for each in (result, one))
        kept = (before > there) | ((before == there) & (result.space.act >= one.space.act))
        result = _fuller(result, one, kept)
    assert result is not None
    return result


def _fuller(one: Memory, other: Memory, fuller: Array | None = None) -> Memory:
    """Return the memory of the stage that needs more of tier 1, with the larger tier-2 capacity of both stages.

    `fuller` says for which executions it is `one`, if the caller has decided that.
    """
    if fuller is None:
        fuller = one.capacity.proc_mem_tier1_cap_req >= other.capacity.proc_mem_tier1_cap_req

    def of_fuller(one: Bytes, other: Bytes) -> Bytes:
        return np.where(fuller, one, other)

    found = joint_view([one, other], of_fuller)  # a search reads capacities alone
    tier2 = np.maximum(one.capacity.proc_mem_tier2_cap_req, other.capacity.proc_mem_tier2_cap_req)
    return Memory(
        space=found.space,
        offloaded=found.offloaded,
        buffers=found.buffers,
        experts=found.experts,
        capacity=Capacity(
            proc_mem_tier1_cap_req=found.capacity.proc_mem_tier1_cap_req,
            proc_mem_tier2_cap_req=tier2,
        ),
    )


def embedding_head_memory(
    embedding_head: EmbeddingHead, schedule: Schedule
) -> tuple[VocabularyMemory, VocabularyMemory]:
    """Return the memory of the embedding on the first and of the LM head on the last stage; a single stage has both."""
    embedding, head, step = (
        embedding_head.cost.embedding,
        embedding_head.cost.head,
        embedding_head.step,
    )
    piped = schedule.separate_ends

    splits = STRATEGIES[schedule.choice.zero_stage].splits_weights
    stored = embedding.act_storage if schedule.training else 0.0 * embedding.act_storage
    if schedule.choice.folded:
        # the embedding is in the first chunk, which is held for more microbatches than the mean of a rank's chunks
        stored = stored * in_flight.on_first_chunk(schedule) / in_flight.on_folded(schedule, LAST)

    none = np.zeros(1)
    largest, waiting = step.last.weight, none
    if embedding_head.modules is not None:
        largest, waiting = embedding_head.modules.largest, _of_modules(head, schedule)

    def vocabulary(
        held: VocabularyWeights,
        table: Bytes,
        stored: Bytes,
        working: Bytes,
        grad: Bytes,
        waiting: Bytes = none,
    ) -> VocabularyMemory:
        return VocabularyMemory(
            whole=held.weight,
            table=table,
            weight=held.optimizer.weight if splits else held.weight,
            weight_grad=held.optimizer.weight_grad,
            optimizer=held.optimizer.state,
            stored=stored,
            working=working,
            grad=grad,
            waiting=waiting,
        )

    head_grad = head.act_grad + _whole_sums(schedule) * head.own_weight_grad
    first = vocabulary(
        step.first, step.first.weight, stored, embedding.act_working, embedding.act_grad
    )
    last = vocabulary(step.last, largest, 0.0 * stored, head.act_working, head_grad, waiting)
    table = np.maximum(step.first.weight, largest)
    working = np.maximum(embedding.act_working, head.act_working)
    grad = np.maximum(embedding.act_grad, head_grad)
    both = vocabulary(step.both, table, stored, working, grad, waiting)

    def on(stage: VocabularyMemory) -> VocabularyMemory:
        """Return the memory of a stage, with both ends on a single stage."""
        return VocabularyMemory(
            *(np.where(piped, alone, of_both) for alone, of_both in zip(stage, both, strict=True))
        )

    return on(first), on(last)


def _whole_sums(schedule: Schedule) -> bool:
    """Return True if ranks add each weight gradient to a sum of all gradients, without buffers of data parallelism."""
    return schedule.choice.zero_stage in ("0", "1")


def _of_modules(head: BlockCost, schedule: Schedule) -> Bytes:
    """Return the bytes that MTP modules hold all the time: quantized copies of weights, and stored activations.

    With 1F1B, the backward pass of a microbatch follows its forward pass on the last stage, so that only the microbatch
    at work has activations there; so it is on the rank where a folded schedule turns around. With other schedules,
    further microbatches wait for their backward pass.
    """
    if schedule.choice.pp_schedule == "1f1b" or schedule.choice.folded:
        held = np.ones(1)
    else:
        held = in_flight.on_last(schedule)
    return head.weight_copies + np.maximum(held - 1, 0.0) * head.act_storage


def memory_of_stage(
    block: BlockCost,
    optimizer: OptimizerCost,
    schedule: Schedule,
    edition: Edition,
    held: Count,
    vocabulary: VocabularyMemory | None = None,
) -> Memory:
    """Return the memory of a stage that holds the activations of `held` microbatches."""
    return _StageMemory(block, optimizer, schedule, edition, held).memory(vocabulary)


class _StageMemory:
    """Memory of the blocks of a stage that holds `held` microbatches, and of its embedding or LM head."""

    def __init__(
        self,
        block: BlockCost,
        optimizer: OptimizerCost,
        schedule: Schedule,
        edition: Edition,
        held: Count,
    ):
        self.block, self.optimizer, self.schedule = block, optimizer, schedule
        self.edition, self.held = edition, in_flight.with_pairs(schedule, held)
        self.strategy = STRATEGIES[schedule.choice.zero_stage]

    def memory(self, vocabulary: VocabularyMemory | None) -> Memory:
        """Return the memory of the stage."""
        block, schedule, held = self.block, self.schedule, self.held
        blocks = whole = self._space()
        resident = self._offloaded_space()
        if vocabulary is not None:
            one = block.act_storage if schedule.training else 0.0 * block.act_storage
            copies = self._weight_copies * schedule.blocks
            every = one * (schedule.blocks * held)
            whole = _with_vocabulary(whole, every + copies, held, vocabulary)
            resident = _with_vocabulary(resident, one + copies, held, vocabulary)
        buffers = self._buffers(vocabulary, self._activations(whole, resident))
        capacity = self._capacity(whole, resident, blocks, buffers)
        return Memory(
            space=whole,
            offloaded=resident,
            buffers=buffers,
            experts=self._experts(),
            capacity=capacity,
        )

    def _buffers(self, vocabulary: VocabularyMemory | None, activations: Bytes) -> Buffers:
        """Return communication buffers of the data-parallel strategy, fragmentation, and reserved memory.

        Fragmentation is a share of the tensors that are allocated and freed all the time. Weights and states are
        allocated once, and do not fragment.
        """
        schedule, block = self.schedule, self.block
        end = None
        if vocabulary is not None:
            reduced = block.gradient_message / block.weight
            end = SyncedBytes(weight=vocabulary.whole, gradient=vocabulary.table * reduced)
        held = held_block(block, self.optimizer, schedule)
        gathered, gradients = self.strategy.buffers(schedule, held, end)
        return Buffers(
            gathered_space=gathered,
            comm_buffer_space=gradients,
            fragment_space=schedule.fragmentation * (activations + gathered + gradients),
            reserved_space=schedule.reserved + self._shared_weight_grads(),
        )

    def _shared_weight_grads(self) -> Bytes:
        """Return the bytes of the placeholders of weight gradients that products have added to their sums."""
        fused = self.schedule.columns.grad_fusion & _whole_sums(self.schedule)
        return np.where(fused & (self.schedule.blocks > 0), self.block.shared_weight_grads, 0.0)

    def _act_grad(self) -> Bytes:
        """Return the bytes of activation gradients, with weight gradients that a pass of its own adds to their sums."""
        block, own = self.block, ~self.schedule.columns.grad_fusion & _whole_sums(self.schedule)
        return block.act_grad + np.where(own, block.own_weight_grad, 0.0)

    def _gradients(self, blocks: Count | int) -> Bytes:
        """Return the bytes of the weight gradients of `blocks` blocks."""
        working, waiting = self.block.weight_grad_no_sharding, self.optimizer.weight_grad
        return self.strategy.gradients(working, waiting, blocks)

    def _space(self) -> Space:
        """Return the memory of each kind of tensor with everything in tier 1 (section 5.7)."""
        block, optimizer, schedule = self.block, self.optimizer, self.schedule
        blocks, full = schedule.blocks, schedule.recompute_all
        # act_working has all activations of the block at work, so that it stores none in addition
        stored = block.act_storage * np.where(full, blocks * self.held, blocks * self.held - 1)
        stored = stored + self._copies()
        weight = optimizer.weight if self.strategy.splits_weights else block.forms.kept
        return Space(
            weight=weight * blocks,
            act=block.act_working + np.where(schedule.training, stored, 0.0),
            act_checkpoint=np.where(full, blocks * block.act_checkpoint * self.held, 0.0),
            act_grad=self._act_grad() + np.zeros_like(blocks),
            weight_grad=self._gradients(blocks),
            optimizer=optimizer.state * blocks,
        )

    def _experts(self) -> ExpertSpace:
        """Return the memory of routed experts."""
        block, optimizer, blocks = self.block, self.optimizer, self.schedule.blocks
        kept = block.forms.kept_experts
        weight = optimizer.expert_weight if self.strategy.splits_weights else kept
        return ExpertSpace(
            expert_weight_space=weight * blocks,
            expert_optimizer_space=optimizer.expert_state * blocks,
        )

    def _copies(self) -> Bytes:
        """Return the quantized copies of the weights of all blocks but the one at work, whose working set has them."""
        return self._weight_copies * (self.schedule.blocks - 1)

    @property
    def _weight_copies(self) -> Bytes:
        """Quantized copies of a block's weights that stay; sharded weights are quantized anew after each gather."""
        copies = self.block.weight_copies
        if not self.strategy.splits_weights:
            return copies
        return copies - self.block.forms.copies

    def _offloaded_space(self) -> OffloadedSpace:
        """Return the tier-1 memory of tensors that are offloaded: two blocks of each (section 5.7).

        One block is at work while the other one is transferred.
        """
        block, edition, training = self.block, self.edition, self.schedule.training
        blocks = edition.offloaded_blocks(self.schedule.blocks)
        activations = edition.offloaded_blocks(self.schedule.blocks * self.held)
        stored = block.act_storage * (activations - 1) + self._copies()
        checkpoint = block.act_checkpoint * activations
        return OffloadedSpace(
            weight=blocks * block.weight,
            act=edition.offloaded_activations(block.act_working, stored, training=training),
            act_checkpoint=edition.offloaded_checkpoint(checkpoint, training=training),
            act_grad=self._act_grad(),
            weight_grad=self._gradients(blocks),
            optimizer=blocks * self.optimizer.state,
        )

    def _activations(self, whole: Space, resident: OffloadedSpace) -> Bytes:
        """Return the bytes of activations, checkpoints and activation gradients in tier 1."""
        checkpoint = np.where(self.schedule.recompute_all, resident.act_checkpoint, 0.0)
        return np.where(
            self.schedule.columns.activations_offload,
            resident.act + checkpoint + resident.act_grad,
            whole.act + whole.act_checkpoint + whole.act_grad,
        )

    def _capacity(
        self, whole: Space, resident: OffloadedSpace, blocks: Space, buffers: Buffers
    ) -> Capacity:
        """Return the capacity that both tiers must have (section 5.8); tier 2 has tensors of `blocks` only."""
        schedule, columns = self.schedule, self.schedule.columns
        full, activations_offload = schedule.recompute_all, columns.activations_offload
        checkpoint = np.where(full, resident.act_checkpoint, 0.0)
        weights = np.where(columns.weight_offload, resident.weight, whole.weight)
        activations = np.where(
            activations_offload, resident.act + checkpoint, whole.act + whole.act_checkpoint
        )
        optimizer = np.where(
            columns.optimizer_offload,
            resident.weight_grad + resident.optimizer,
            whole.weight_grad + whole.optimizer,
        )
        act_grad = np.where(activations_offload, resident.act_grad, whole.act_grad)
        tier1 = weights + activations + optimizer + act_grad
        taken = schedule.reserved.any() or schedule.fragmentation.any()
        if self.strategy.sharding is not None or taken:
            used = buffers.gathered_space + buffers.comm_buffer_space
            tier1 = tier1 + (used + buffers.fragment_space + buffers.reserved_space)
        moved = np.where(full, blocks.act_checkpoint, blocks.act - self._copies())
        states = self.optimizer.weight_grad * schedule.blocks + blocks.optimizer
        tier2 = (
            np.where(columns.weight_offload, blocks.weight, 0.0)
            + np.where(activations_offload, moved, 0.0)
            + np.where(columns.optimizer_offload, states, 0.0)
        )
        return Capacity(proc_mem_tier1_cap_req=tier1, proc_mem_tier2_cap_req=tier2)


def _with_vocabulary(
    tensors: R, block_store: Bytes, held: Count, vocabulary: VocabularyMemory
) -> R:
    """Add the embedding or the LM head, which is computed while no block is: the larger of both peaks counts.

    `block_store` is the bytes that all blocks store while none is computed.
    """
    at_vocabulary = vocabulary.working + block_store
    larger = at_vocabulary + vocabulary.grad > tensors.act + tensors.act_grad
    peak = np.where(larger, at_vocabulary, tensors.act)
    return replace(
        tensors,
        weight=tensors.weight + vocabulary.weight,
        act=peak + vocabulary.stored * held + vocabulary.waiting,
        act_grad=np.where(larger, vocabulary.grad, tensors.act_grad),
        weight_grad=tensors.weight_grad + vocabulary.weight_grad,
        optimizer=tensors.optimizer + vocabulary.optimizer,
    )
