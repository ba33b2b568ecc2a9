"""Bytes per processor: every stage is counted, and the fullest one is the result."""

from dataclasses import dataclass

from .block import Block, Held
from .data_parallel import synced_block
from .model_embedding_head import EmbeddingHead
from .pipelines import Interleaved
from .run import Run
from .stages import chunks_differ, chunks_of_stages, equal_stages


@dataclass
class End:
    """What an end of the model adds to its stage; it is never offloaded."""

    held: Held
    table: float  # bytes of the weights of one end, the larger of two
    stored: float  # until the backward pass of a microbatch
    working: float  # while it is computed, when no block is ...
    grad: float  # ... and gradients of activations
    waiting: float = 0  # there all the time


@dataclass
class Tensors:
    """Bytes by kind of tensor."""

    weight: float
    act: float
    checkpoint: float | None
    act_grad: float
    weight_grad: float
    optimizer: float

    def add(self, end: End, held: float, others: float) -> None:
        """Add an end; `others` is what all blocks store while none is computed."""
        self.weight += end.held.resident
        self.weight_grad += end.held.weight_grad
        self.optimizer += end.held.optimizer
        if end.working + others + end.grad > self.act + self.act_grad:
            self.act, self.act_grad = end.working + others, end.grad
        self.act += end.stored * held + end.waiting


class StageMemory:
    """Memory of one stage of so many blocks, which holds activations of so many microbatches."""

    def __init__(self, block: Block, blocks: int, held: float, end: End | None) -> None:
        self.block, self.run, self.execution = block, block.run, block.run.execution
        self.blocks, self.held = blocks, held
        self.stated = self.execution.zero_stage != "auto"
        self.split = self.execution.zero_stage in ("3", "fsdp", "owner")
        # Copies for a recipe are made anew of weights that are gathered anew.
        anew = self.split and block.copies > 0
        self.copies = 0 if anew else block.weight_copies
        self.made = block.beside if anew else 0
        self.all, self.near = self._in_blocks(), self._near()
        experts = block.experts.resident if self.split else block.experts_kept
        self.expert_weight = blocks * experts
        self.expert_optimizer = blocks * block.experts.optimizer
        self.tier2 = self._offloaded()
        if end is not None:
            one = block.act_storage if self.execution.training else 0
            copies = self.copies * blocks
            self.all.add(end, held, one * blocks * held + copies)
            self.near.add(end, held, one + copies)
        self._buffers(end)
        self.tier1 = self._resident()

    def _in_blocks(self) -> Tensors:
        """Everything, in tier 1."""
        block, run, blocks = self.block, self.run, self.blocks
        act = block.act_working
        if run.execution.training:  # of the block at work everything is there
            own = 0 if run.full_recompute else 1
            act += block.act_storage * (blocks * self.held - own) + self._other_copies()
        # Published forms keep the gradients of the block at work whole beside the others.
        gradients = block.weight_grad * blocks
        if not self.stated:
            gradients += block.weight_grad_unsharded - block.weight_grad
        return Tensors(
            weight=(block.held.resident if self.split else block.weight_kept) * blocks,
            act=act,
            checkpoint=blocks * block.checkpoint * self.held,
            act_grad=self._act_grad(),
            weight_grad=gradients,
            optimizer=block.optimizer * blocks,
        )

    def _act_grad(self) -> float:
        """With the gradient of a product's weights, if another pass adds it to a sum."""
        apart = self.execution.zero_stage in ("0", "1") and not self.execution.grad_fusion
        return self.block.act_grad + (self.block.own_gradient if apart else 0)

    def _other_copies(self) -> float:
        """Copies of the weights of the blocks that are not at work, in 8 bits; never offloaded."""
        return self.copies * (self.blocks - 1)

    def _near(self) -> Tensors:
        """Bytes that stay in tier 1 if that kind of data is offloaded: of two blocks, if there are."""
        block, training = self.block, self.execution.training
        # [O13] In inference offloading raises the need.
        kept = training or not self.run.rules.inference_space
        # [O7] Null, not 0, in inference.
        counted = training or self.run.rules.inference_space
        unsharded = block.weight_grad if self.stated else block.weight_grad_unsharded
        near, stored = 2.0, 2.0  # blocks, and activations of one
        if self.run.rules.offloaded_blocks:
            near, stored = min(2, self.blocks), min(2, self.blocks * self.held)
        return Tensors(
            weight=near * block.weight,
            act=block.act_working
            + ((stored - 1) * block.act_storage + self._other_copies() if kept else 0),
            checkpoint=stored * block.checkpoint if counted else None,
            act_grad=self._act_grad(),
            weight_grad=unsharded + (near - 1) * block.weight_grad,
            optimizer=near * block.optimizer,
        )

    def _offloaded(self) -> float:
        """Bytes in tier 2; only blocks are offloaded."""
        ex, space, tier2 = self.execution, self.all, 0.0
        if ex.weight_offload:
            tier2 += space.weight
        if ex.activations_offload:
            tier2 += (
                (space.checkpoint or 0)
                if self.run.full_recompute
                else space.act - self._other_copies()
            )
        if ex.optimizer_offload:
            tier2 += self.block.weight_grad * self.blocks + space.optimizer
        return tier2

    def _buffers(self, end: End | None) -> None:
        """Gathered weights, gradients on their way, and what is not the model's."""
        ex, block, run = self.execution, self.block, self.run
        self.gathered: float = 0
        self.passing: float = 0
        self.reserved = run.system.taken(run.groups)
        if ex.mem_reserved_mib >= 0:
            self.reserved = ex.mem_reserved_mib * 2**20
        if ex.zero_stage in ("0", "1") and ex.grad_fusion and self.blocks:
            self.reserved += block.gradient_per_shape
        if self.split:
            ahead = 0 if self.run.execution.zero_stage == "owner" else ex.fsdp_prefetch
            held = min(ex.fsdp_unit * (1 + ahead), self.blocks)
            gathered: float = block.weight_sent
            if run.experts_apart and run.expert_data_par == 1 and ex.zero_stage != "fsdp":
                gathered -= block.experts_sent  # they are whole where they are
            again = ex.reshard_after_forward and not ex.sync_once
            there = held if again else self.blocks
            self.gathered = gathered * there + self.made * max(0, there - 1)
            self.gathered += end.held.whole if end else 0
        several = run.data_ranks > 1 or run.expert_data_par > 1
        if not self.stated or not several or not ex.training:
            return
        dense, experts = synced_block(block)
        message = dense.gradient * (run.data_ranks > 1)
        message += experts.gradient * (run.expert_data_par > 1)
        weight = message / run.reduction_bytes * run.element_bytes
        if ex.zero_stage in ("0", "1"):
            # A copy of the gradients of a bucket, if they are reduced in another type.
            bucket: float = ex.ddp_bucket_mib * 2**20
            bucket = min(bucket, self.blocks * message) if bucket else message
            converted = block.weight_grad != dense.gradient + experts.gradient
            self.passing = bucket if converted else 0
            return
        # Gradients are whole until they are reduced, and copied if that is in another type.
        passing: float = weight / run.element_bytes * (ex.fsdp_unit if self.split else 1)
        if end is not None:
            passing = max(passing, end.table / run.element_bytes)
        each = run.reduction_bytes
        if run.element_bytes != run.reduction_bytes:
            each += run.element_bytes
        self.passing = passing * each
        if ex.sync_once:  # the sums of all blocks, and the buffers of a unit
            ends = end.table / run.element_bytes * run.reduction_bytes if end else 0
            unit = max(message * ex.fsdp_unit, ends)
            self.passing = self.blocks * message + ends + unit
        if ex.grad_group > 1:  # those of a chunk, and of the one before while it is reduced
            chunk = self.blocks / self.run.chunks
            shards = ex.dp_shard or run.data_ranks
            whole = block.weight_grad * shards
            if run.experts_apart:
                whole += block.experts.weight_grad * (run.expert_shards(shards) - shards)
            chunks = min(self.blocks, 2 * chunk)
            self.passing = max(self.passing, chunks * whole)

    def _resident(self) -> float:
        ex, space, near = self.execution, self.all, self.near
        tier1 = (near if ex.weight_offload else space).weight
        moved = near if ex.activations_offload else space
        activations = moved.act + moved.act_grad + (moved.checkpoint or 0)
        tier1 += activations
        share = self.run.system.fragmentation
        if ex.mem_fragments_percent >= 0:
            share = ex.mem_fragments_percent / 100
        self.fragments = share * (activations + self.gathered + self.passing)
        state = near if ex.optimizer_offload else space
        tier1 += state.weight_grad + state.optimizer
        return tier1 + self.gathered + self.passing + self.fragments + self.reserved


def microbatches_held(run: Run, stage: int) -> float:
    """Microbatches whose activations a stage holds at once."""
    ex, m, p = run.execution, run.microbatches, run.execution.pipeline_par
    chunks = ex.pipeline_interleaving
    if ex.pp_schedule == "gpipe":
        return m
    if ex.pp_schedule == "zb_h1":
        return min(m, p)
    if run.folded or ex.pp_schedule == "zb_h2":
        return _listed_of(run, stage)
    if chunks == 1:
        return min(m, p - stage)
    if not run.rules.in_flight:
        return min(m, p) * (1 + (p - 1) / (chunks * p))
    return _held_in_chunks(run, stage)


def _held_in_chunks(run: Run, stage: int) -> float:
    """Microbatches that a stage of several chunks holds; if chunks differ, at the peak of its blocks."""
    ex, m, p, chunks = run.execution, run.microbatches, run.execution.pipeline_par, run.chunks
    if run.layout is not None and chunks_differ(run.layout, ex) and run.layout[stage]:
        own = chunks_of_stages(run.layout, ex)[stage]
        return Interleaved(p, chunks, m, 0).most_held(stage, own) / sum(own)
    # Chunks that go forward before the first goes backward, and the one at work.
    return min(m, (2 * (p - 1 - stage) + (chunks - 1) * p + 1) / chunks)


def _listed_of(run: Run, stage: int) -> float:
    """Microbatches that a rank holds by its list: the mean over its blocks."""
    if not run.folded:
        return run.lists.most_held(stage, {stage: 1})
    assert run.layout is not None
    own = chunks_of_stages(run.layout, run.execution)[stage]
    return _held_of(run, stage, *own) / max(1, sum(own))


def _held_of(run: Run, rank: int, first: float, second: float) -> float:
    """Return the most that a rank holds, where its parts count for so much."""
    lists = run.lists
    parts = lists.parts if not run.mirrored else run.execution.pipeline_par
    return lists.most_held(rank, {rank: first, parts - 1 - rank: second})


def fullest_stage(
    run: Run, of_stages: list[Block], embedding_head: EmbeddingHead | None
) -> tuple[StageMemory, float]:
    """Return the first of the stages that need most of tier 1, and the most of tier 2.

    Stages have blocks of their own, or one that is the same for all.
    """
    p = run.execution.pipeline_par
    layout = run.layout or [run.blocks] * p
    odd = run.model.num_blocks % p == 1 and run.model.num_blocks > p > 1
    if run.layout is None and run.rules.one_odd_block and odd:
        layout = equal_stages(run.model.num_blocks, p)
    stages = []
    for number, blocks in enumerate(layout):
        end = None if embedding_head is None else _end(run, embedding_head, number)
        block = of_stages[number] if len(of_stages) == len(layout) else of_stages[0]
        held = microbatches_held(run, number)
        if run.execution.ep_overlap == "1f1b" and not run.folded:
            # A block goes forward while the last block of another microbatch goes backward.
            held = min(run.microbatches, held + 1 / max(1, blocks))
        stages.append(StageMemory(block, blocks, held, end))
    fullest = stages[0]
    for stage in stages[1:]:
        more = stage.tier1 > fullest.tier1
        if run.folded and stage.tier1 == fullest.tier1:
            more = stage.all.act > fullest.all.act
        fullest = stage if more else fullest
    return fullest, max(stage.tier2 for stage in stages)


def _end(run: Run, embedding_head: EmbeddingHead, number: int) -> End | None:
    """Return what embedding or LM head add to a stage."""
    p, embedding, head = run.execution.pipeline_par, embedding_head.embedding, embedding_head.head
    first, last = embedding_head.first, embedding_head.last
    stored = embedding.act_storage if run.execution.training else 0
    head_grad = head.act_grad
    if run.execution.zero_stage in ("0", "1"):
        head_grad += head.own_gradient
    waiting = 0.0
    # The last stage begins with a backward pass at once, or has others first.
    if run.model.mtp_layers and not run.modules:
        waiting = head.weight_copies
        if run.execution.pp_schedule != "1f1b" and not run.folded:
            waiting += head.act_storage * (microbatches_held(run, p - 1) - 1)
    if run.folded and number:
        return None
    if not run.ends_apart:
        if run.folded:  # the embedding is in the first part
            stored *= _held_of(run, 0, 1, 0) / microbatches_held(run, 0)
        table = max(first.whole, embedding_head.largest)
        working = max(embedding.act_working, head.act_working)
        grad = max(embedding.act_grad, head_grad)
        return End(embedding_head.both, table, stored, working, grad, waiting)
    if number == 0:
        return End(first, first.whole, stored, embedding.act_working, embedding.act_grad)
    if number == p - 1:
        return End(last, embedding_head.largest, 0, head.act_working, head_grad, waiting)
    return None
