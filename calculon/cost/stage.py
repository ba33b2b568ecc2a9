"""A pipeline stage for one microbatch: its blocks with transfers, offload traffic and gradient reduction."""

from dataclasses import replace
from functools import reduce

import numpy as np

from calculon.base.arrays import derived
from calculon.base.records import apply
from calculon.base.units import Array, Bytes, Count, Seconds
from calculon.cost.block_cost import BlockCost, Collectives
from calculon.cost.block_times import BlockTimes, block_passes
from calculon.cost.classes import held_block, synced_block
from calculon.cost.copies import (
    Copied,
    CopiedEnds,
    Copies,
    modules_with_conversion,
    with_conversion,
)
from calculon.cost.data.class_collectives import reduced_bytes
from calculon.cost.data.stage_traffic import StageTraffic
from calculon.cost.data.strategies import STRATEGIES, DataParallelStrategy
from calculon.cost.data.synced import (
    BackwardPass,
    GradientSync,
    SyncedBlock,
    SyncedEmbeddingHead,
)
from calculon.cost.embedding_head import EmbeddingHead, EmbeddingHeadTimes
from calculon.cost.latent_gradients import latent_traffic
from calculon.cost.mixture import Kinds
from calculon.cost.offload import Offload, exposed
from calculon.cost.optimizer_step import OptimizerCost
from calculon.cost.pipeline.transfers import (
    Transfers,
    mirrored_gradient_time,
    shared_gradient_time,
    transfers,
)
from calculon.cost.process_groups import CollectiveCost
from calculon.cost.uneven import StageBlock, UnevenStages
from calculon.declarations.axes import FURTHER_NAMES
from calculon.declarations.model import Model
from calculon.editions.edition import Edition
from calculon.hardware.system import System
from calculon.plan.schedule import Schedule

SUM_PASS = (2 + 4 + 4) / (2 + 4)
"""Bytes that adding 2-byte gradients to 4-byte sums moves, over the bytes of both: all are read, sums are written."""

ADD_PASS = 3
"""Bytes that adding gradients to sums of their type moves, over those of the sums: both are read, sums are written."""


class Stage:
    """The blocks of a stage, each quantity computed when it is asked for.

    The arguments hold one entry per execution on the last axis, or arrays that broadcast against each other: a
    quantity carries only the axes that it depends on.

    Of several `kinds` of block, ``block`` and ``optimizer`` are the mean of the model, and :attr:`parts` are the stages
    that differ, each with the mean of its own blocks.
    """

    def __init__(
        self,
        model: Model,
        block: BlockCost,
        optimizer: OptimizerCost,
        schedule: Schedule,
        system: System,
        edition: Edition,
        embedding_head: EmbeddingHead | None = None,
        kinds: Kinds | None = None,
    ):
        self.model, self.system, self.edition = model, system, edition
        self.optimizer, self.schedule = optimizer, schedule
        if embedding_head is not None:
            embedding_head = embedding_head.on_stages(schedule.ends_apart)
        self._block, self._embedding_head = block, embedding_head
        self._kinds = kinds

    def of_kinds(self, counts: Count) -> "Stage":
        """Return stages that have so many blocks of each kind, the first axis: each is the mean of its own."""
        assert self._kinds is not None
        block, step = self._kinds.of_stage(counts)
        args = self.schedule, self.system, self.edition, self._embedding_head
        return Stage(self.model, block, step, *args)

    @derived
    def parts(self) -> "list[Stage]":
        """Stages of each kind of a layout; they are this one where all blocks are of one kind."""
        layout = self.schedule.layout
        assert layout is not None
        if self._kinds is None or layout.of_kind is None:
            return [self] * len(layout.blocks)
        return [self.of_kinds(layout.of_kind[:, place]) for place in range(len(layout.blocks))]

    @derived
    def slowest_part(self) -> "Stage":
        """The slowest stage, whose blocks cost what they cost there: what times of a batch are counted of."""
        layout = self.schedule.layout
        if self._kinds is None or layout is None or layout.of_kind is None:
            return self
        assert self.uneven is not None
        found = self.of_kinds(np.stack([self.uneven.of_slowest(own) for own in layout.of_kind]))
        found._kinds = self._kinds
        for name in ("uneven", "parts", "stalled", "stage_traffic"):
            found.__dict__[name] = getattr(self, name)
        return found

    @derived
    def _copies(self) -> Copies | None:
        """Copies beside the collectives of replicas; None where the strategy makes none."""
        sharding = self.strategy.sharding
        if sharding is None or not sharding.buffered or not self.schedule.training:
            return None
        return Copies(sharding, self.schedule, self.system)

    @derived
    def _copied(self) -> Copied:
        """A block with its copies."""
        block = self._block
        if self.strategy.splits_weights:
            again = self.schedule.columns.reshard_after_forward & self.schedule.training
            block = with_conversion(block, again, self.system)
        if self._copies is None:
            return Copied(block, np.zeros(1))
        return self._copies.of_block(block, self.optimizer)

    @derived
    def _copied_ends(self) -> CopiedEnds | None:
        """Embedding and LM head with their copies."""
        ends, block = self._embedding_head, self._block
        if ends is not None and self.strategy.splits_weights:
            ends = modules_with_conversion(ends, self.system)
        if ends is None or self._copies is None:
            return None if ends is None else CopiedEnds(ends, np.zeros(1), np.zeros(1))
        return self._copies.of_embedding_and_head(ends, block.gradient_message / block.weight)

    @property
    def block(self) -> BlockCost:
        """Cost of a block for a microbatch, with what its strategy of data parallelism copies."""
        return self._copied.cost

    @property
    def embedding_head(self) -> EmbeddingHead | None:
        """Embedding and LM head, likewise."""
        return None if self._copied_ends is None else self._copied_ends.ends

    @property
    def has_modules(self) -> bool:
        """Whether the last stage has modules that predict further tokens."""
        return self._embedding_head is not None and self._embedding_head.modules is not None

    @derived
    def copy_time(self) -> Seconds:
        """Time per batch of these copies, which is part of the passes."""
        slowest, ends = self.slowest, self._copied_ends
        time: Seconds = slowest.microbatches * slowest.blocks * self._copied.time
        if ends is None or self.embedding_head_times is None:
            return time
        of_ends = self.embedding_head_times.of_slower(ends.embedding, ends.head)
        return time + slowest.microbatches * of_ends

    @derived
    def piped(self) -> Array:
        """Whether there is more than one stage."""
        return self.schedule.pipeline_par > 1

    @derived
    def embedding_head_times(self) -> EmbeddingHeadTimes | None:
        """Times of embedding and LM head."""
        if self.embedding_head is None:
            return None
        if (uneven := self.uneven) is None:
            added = None if self.accumulated is None else self.accumulated[1:]
            return EmbeddingHeadTimes(self.embedding_head, self.schedule, added=added)
        return EmbeddingHeadTimes(self.embedding_head, self.schedule, uneven.slowest_is_outer)

    @derived
    def uneven(self) -> UnevenStages | None:
        """Stages of executions that state a schedule or a layout; None where they do not."""
        if self.schedule.layout is None:
            return None
        blocks = [
            StageBlock(one.block, one.block_whole, one.block_waits, one.accumulated, stalled)
            for one, stalled in zip(self.parts, self.stalled, strict=True)
        ]
        return UnevenStages(blocks, self.schedule, self.embedding_head)

    @derived
    def slowest(self) -> Schedule:
        """The schedule with the blocks of the slowest stage."""
        if self.uneven is None:
            return self.schedule
        pairs = self.uneven.pairs_of_slowest if self.schedule.choice.pairs_passes else None
        return self.schedule.with_blocks(self.uneven.blocks_of_slowest, pairs)

    @property
    def strategy(self) -> DataParallelStrategy:
        """The data-parallel strategy."""
        return STRATEGIES[self.schedule.choice.zero_stage]

    @derived
    def collectives(self) -> Collectives:
        """Tensor-parallel collectives by kind of block, as this stage runs them."""
        return self.edition.at_edge(self.block.collectives, self.piped)

    @derived
    def stored_activation(self) -> Bytes:
        """Bytes that a block keeps of one microbatch until its backward pass."""
        block = self.block
        return np.where(self.schedule.recompute_all, block.act_checkpoint, block.act_storage)

    @derived
    def latent_gradients(self) -> Seconds | None:
        """Time per batch to add up the gradients of the weights of latents over tensor ranks; None without latents."""
        return self.latent_traffic(CollectiveCost(self.system, self.schedule))

    def latent_traffic(self, cost: CollectiveCost) -> Array | None:
        """Count what adding up the gradients of the weights of latents takes per batch; None without latents."""
        return latent_traffic(self.model, self.block, cost, modules=self.has_modules)

    @derived
    def transfers(self) -> Transfers:
        """Pipeline transfers."""
        return transfers(self.block.pipeline_message, self.schedule, self.system, self.edition)

    @derived
    def pipeline_link(self) -> Seconds:
        """Time of the pipeline's network: its transfers, and the gradient of a table of first and last stage."""
        shared = None if self.embedding_head is None else self.embedding_head.shared_gradient
        link: Seconds = self.transfers.link
        if self.schedule.choice.mirrored:
            message = self.mirrored_gradient
            link = link + mirrored_gradient_time(message, self.schedule, self.system)
        if shared is None:
            return link
        return link + shared_gradient_time(shared, self.schedule, self.system)

    @derived
    def mirrored_gradient(self) -> Bytes:
        """Bytes of the gradients that two ranks with the same parts of the model add up, of the ranks that have most.

        Replicas of one direction have reduced theirs by then: where the state is split, each has its shard of the sum.
        """
        schedule, layout = self.schedule, self.schedule.layout
        assert layout is not None
        found: Bytes = np.zeros(1)
        for kind, part in enumerate(self.parts):
            block, ends = part.synced
            each = block.dense.gradient / schedule.shards
            if block.experts is not None:
                each = each + block.experts.gradient / schedule.expert_shards(schedule.shards)
            message = np.where(layout.count[kind] > 0, layout.blocks[kind], 0.0) * each
            if ends is not None and kind == len(self.parts) - 1:
                message = message + ends.both.gradient / schedule.shards
            found = np.maximum(found, message)
        return found

    @derived
    def pipeline_exposed(self) -> Seconds:
        """The same, as far as stages wait for it.

        Beside other passes, what offload traffic leaves of the transfers of one microbatch is waited for on its way
        through all chunks; of others the part that is longer than a pass of a chunk.
        """
        beside = self.schedule.columns.p2p_overlap
        if not beside.any():
            return self.pipeline_link
        schedule, whole, sent = self.schedule, self.block_whole, self.transfers
        if self.uneven is not None and schedule.choice.simulated:
            waits = self.uneven.late(np.where(beside, self.transfer, 0.0))
            return self.pipeline_link - np.where(beside, sent.link - waits, 0.0)
        forward, backward = self.transfers_after_offload
        left = forward + backward if schedule.training else forward
        count = schedule.microbatches * schedule.interleaving
        trip = (schedule.pipeline_par * schedule.interleaving - 1) * left
        shortest = np.minimum(
            schedule.chunk_sum(whole.forward_base, whole.forward_edge),
            schedule.chunk_sum(whole.backward_base, whole.backward_edge),
        )
        longer = 2 * np.maximum(0.0, sent.link / (2 * count) - shortest)
        longer = np.where(beside & (schedule.interleaving > 1), count * longer, 0.0)
        hidden = np.maximum(0.0, np.maximum(sent.link - trip - longer, sent.link - count * left))
        return self.pipeline_link - np.where(beside, hidden, 0.0)

    @property
    def transfer(self) -> Seconds:
        """Time of a transfer between two stages, the mean of both directions."""
        schedule = self.schedule
        return self.transfers.link / (2 * schedule.microbatches * schedule.interleaving)

    @derived
    def transfers_after_offload(self) -> tuple[Seconds, Seconds]:
        """Forward and backward transfer of a microbatch, less the offload traffic that an edge block waits for."""
        sent, waits = self.transfers, self.block_waits
        return (
            np.maximum(0.0, sent.forward - waits.forward_edge),
            np.maximum(0.0, sent.backward - waits.backward_edge),
        )

    @derived
    def offload(self) -> Offload:
        """Tier-2 traffic of a block (section 5.4).

        It takes its time on the link to the host and, if that is longer, in the memory that the processors of a node
        share, which both directions use.
        """
        columns, time, host = self.schedule.columns, self.system.mem2.time, self.system.ext.host
        weights = np.where(columns.weight_offload, self.block.weight, 0.0)
        activations = np.where(columns.activations_offload, self.stored_activation, 0.0)
        state = np.where(columns.optimizer_offload, self.optimizer.state, 0.0)
        forward, backward = self.edition.offload_bytes(weights, activations, state)
        if not self.schedule.training:
            backward = np.zeros_like(backward)
        forward_time, backward_time = time(forward), time(backward)
        if host is not None:
            both = host.time(weights + activations, self.schedule.processors)
            forward_time = np.maximum(forward_time, both)
            if self.schedule.training:
                backward_time = np.maximum(backward_time, both)
        return Offload(
            forward_size=forward,
            backward_size=backward,
            forward=forward_time,
            backward=backward_time,
        )

    def crowded(self, idle: Seconds) -> Seconds | None:
        """Time per batch for which offload traffic waits since the network shares the link to the host.

        None where nothing does. Overlapped data-parallel traffic takes the link for its bytes; what the passes of a
        batch, embedding and head included, and the `idle` time beside them do not leave for that is waited for. Time
        that passes wait for data-parallel traffic is idle, too: nothing is offloaded then.
        Source: NVIDIA, DGX H100 user guide: a processor and its network port are on one PCIe switch.
        """
        host, columns, training = (
            self.system.ext.host,
            self.schedule.columns,
            self.schedule.training,
        )
        moves = columns.weight_offload | columns.activations_offload
        beside = moves & columns.data_par_overlap
        if host is None or host.network is None or not training or not beside.any():
            return None
        cost = CollectiveCost(self.system, self.schedule, bytes=True, network=host.network)
        taken = self.data_traffic(cost) / self.system.mem2.bandwidth
        times, moved = self.block_alone, self.offload
        forward = self.block.fw.mem_time + moved.forward
        backward = self.backward_memory + moved.backward
        base = np.maximum(0.0, times.forward_base - forward)
        base = base + np.maximum(0.0, times.backward_base - backward)
        edge = np.maximum(0.0, times.forward_edge - forward)
        edge = edge + np.maximum(0.0, times.backward_edge - backward)
        if (ends := self.embedding_head_times) is not None:
            idle = idle + self.slowest.microbatches * ends.of_slower(ends.embedding, ends.head)
        left = np.maximum(0.0, taken - self.slowest.batch_sum(base, edge) - idle)
        return np.where(beside, left, 0.0)

    @derived
    def exchanges(self) -> bool:
        """Whether any block has collectives of further axes."""
        return bool(self.block.axis_time.any())

    @derived
    def block_alone(self) -> BlockTimes:
        """Time of a block without offloading: computation, exposed collectives and transfers (section 5.4)."""
        sent, beside = self.transfers, self.schedule.columns.p2p_overlap
        after_forward, after_backward = sent.forward, sent.backward
        if beside.any():
            after_forward, after_backward = (
                np.where(beside, 0.0, t) for t in (sent.forward, sent.backward)
            )
        forward, backward = block_passes(self.block, self.collectives, exchanges=self.exchanges)
        return BlockTimes(
            forward_base=forward[0],
            forward_edge=forward[1] + after_forward,
            backward_base=backward[0],
            backward_edge=backward[1] + after_backward,
        )

    @derived
    def block_waits(self) -> BlockTimes:
        """Time that a block of each kind waits for offload traffic (section 5.4)."""
        times, moved, memory = self.block_alone, self.offload, self.block.fw.mem_time
        return BlockTimes(
            forward_base=exposed(moved.forward, memory, times.forward_base),
            forward_edge=exposed(moved.forward, memory, times.forward_edge),
            backward_base=exposed(moved.backward, self.backward_memory, times.backward_base),
            backward_edge=exposed(moved.backward, self.backward_memory, times.backward_edge),
        )

    @derived
    def backward_memory(self) -> Seconds:
        """Tier-1 memory time of the backward pass of a block."""
        block = self.block
        return self.edition.backward_memory(
            block.agrad.mem_time + block.wgrad.mem_time, block.re.mem_time
        )

    @derived
    def step_offload(self) -> Seconds | None:
        """Time per block to move an offloaded optimizer once per batch; None where it moves in every pass."""
        moved = self.edition.step_offload_bytes(self.optimizer.state, self.optimizer.weight_grad)
        if moved is None:
            return None
        time: Seconds = self.system.mem2.time(moved)
        if (host := self.system.ext.host) is not None:
            time = np.maximum(time, host.time(moved, self.schedule.processors))
        return np.where(self.schedule.columns.optimizer_offload, time, 0.0)

    @property
    def moved_states(self) -> Seconds | None:
        """The same for all blocks of the stage where it takes longest."""
        if self.step_offload is None:
            return None
        layout = self.schedule.layout
        if layout is None or layout.of_kind is None:
            return self.schedule.blocks * self.step_offload
        times = [part.step_offload for part in self.parts]
        moved = [n * t for n, t in zip(layout.blocks, times, strict=True) if t is not None]
        return reduce(np.maximum, moved)

    @derived
    def accumulated(self) -> tuple[Seconds, Seconds, Seconds] | None:
        """Time that gradient accumulation adds to the backward pass of a block, of the embedding and of the head.

        That is in all microbatches but the first: where there is one alone, nothing. It delays the drain of the
        pipeline, which is of later ones. What a pass of its own adds to is read and written in every microbatch.
        Source of such passes: Megatron-LM, model/distributed.py (``param.main_grad.add_(param.grad.data)``); PyTorch,
        autograd/functions/accumulate_grad.h (``variable_grad += new_grad``).
        """
        schedule, time = self.schedule, self.system.move_time
        if not schedule.accumulates.any():
            return None
        sums = schedule.columns.grad_sums
        reads = schedule.accumulates & ((schedule.microbatches > 1) | self._added_apart)
        # a group of microbatches adds to whole gradients, of which shards are kept after it
        whole = np.where(schedule.columns.grad_group > 1, schedule.shards, 1.0)
        weights = [self.optimizer.weight_grad]
        if schedule.has_experts_apart:
            held = held_block(self.block, self.optimizer, schedule)
            weights = [held.whole_gradients(schedule, whole) / whole]
        if self.embedding_head is not None:
            step = self.embedding_head.step
            weights += [end.optimizer.weight_grad for end in (step.first, step.last)]
        moved = np.where(schedule.columns.grad_fusion, 1.0, ADD_PASS)
        moved = np.where(sums, SUM_PASS, moved) * whole
        found = [np.where(reads, time(held * moved), 0.0) for held in weights]
        if schedule.choice.in_halves:  # each of which adds to the gradients of blocks
            found[0] = 2 * found[0]
        none = np.zeros_like(found[0])
        return found[0], *(found[1:] if len(found) > 1 else (none, none))

    @derived
    def accumulation(self) -> Seconds | None:
        """Gradient accumulation: time per batch to read the sums that microbatches after the first are added to.

        None where nothing is read. They are added in the products that make them (beta = 1, Megatron-LM's gradient
        accumulation fusion), or after them.
        """
        if self.accumulated is None:
            return None
        each, embedding, head = self.accumulated
        once: Seconds = self.slowest.blocks * each
        if self.embedding_head_times is not None:
            once = once + self.embedding_head_times.of_slower(embedding, head)
        schedule = self.schedule
        return (schedule.microbatches - np.where(self._added_apart, 0, 1)) * once

    @property
    def _added_apart(self) -> Array:
        """Whether gradients are added up in a pass of its own, those of the first microbatch, too."""
        return self.schedule.columns.grad_sums | ~self.schedule.columns.grad_fusion

    @derived
    def block_whole(self) -> BlockTimes:
        """Time of a block, offload traffic included."""
        return apply(np.add, [self.block_alone, self.block_waits])

    @derived
    def stage_traffic(self) -> StageTraffic:
        """Data-parallel traffic of the stages."""
        stages = [self] if self.schedule.layout is None else self.parts
        cost = CollectiveCost(self.system, self.schedule)
        return StageTraffic(stages, cost, self.edition)

    @derived
    def stalled(self) -> list[Seconds]:
        """How long a microbatch waits for data-parallel traffic, by kind of stage; 0 by the published laws."""
        if self.strategy.sharding is None:
            return [np.zeros(1)] * (1 if self.schedule.layout is None else len(self.parts))
        return self.stage_traffic.stalled

    @derived
    def gradient_sync(self) -> GradientSync:
        """Data-parallel traffic of a batch: what passes wait for is that of the slowest stage."""
        stalled = self.stalled
        of_slowest = stalled[0] if self.uneven is None else self.uneven.of_slowest(stalled)
        found = self.stage_traffic.sync(of_slowest)
        if self._kinds is None:
            return found
        return replace(found, message=reduced_bytes(self.synced[0], self.schedule))

    def data_traffic(self, cost: CollectiveCost) -> Array:
        """Count what all data-parallel collectives of a batch take, on the stage where they take longest."""
        return self.stage_traffic.traffic(cost)

    @derived
    def backward_pass(self) -> BackwardPass:
        """Times that data-parallel traffic can hide behind."""
        block, step, whole = self.block, self.optimizer.step, self.block_whole
        tensor = self.collectives.recomm.time + self.collectives.agrad_tp.time
        if self.exchanges:
            whole = self._without_shared_link(whole)
        return BackwardPass(
            forward=whole.forward_base,
            tensor_forward=self.collectives.fw_tp.time[0],
            head=np.zeros(1) if self.embedding_head is None else self.embedding_head.head_backward,
            base=whole.backward_base,
            edge=self._backward_edge(whole.backward_edge),
            p2p=self.transfers.backward,
            memory=block.agrad.mem_time + block.wgrad.mem_time + block.re.mem_time,
            tensor_base=tensor[0],
            tensor_edge=tensor[1],
            arithmetic=block.agrad.flops_time + block.wgrad.flops_time + block.re.flops_time,
            step=step.time,
            step_memory=step.mem_time,
            step_arithmetic=step.flops_time,
        )

    def _backward_edge(self, time: Seconds) -> Seconds:
        """Backward time of an edge block and its transfer, also where that overlaps: the drain waits for one trip."""
        beside = self.schedule.columns.p2p_overlap
        if not beside.any():
            return time
        return time + np.where(beside, self.transfers_after_offload[1], 0.0)

    def _without_shared_link(self, whole: BlockTimes) -> BlockTimes:
        """Take off what further axes send on the network of data parallelism: its traffic cannot hide behind that.

        Nor can it where that is hidden itself: one window does not hide both.
        """
        networks = self.schedule.networks
        forward: Seconds = np.zeros(1)
        backward: Seconds = np.zeros(1)
        for name, times in zip(FURTHER_NAMES, self.block.axis_time, strict=True):
            same = networks[name] == self.schedule.data_network
            forward = forward + np.where(same, times[0], 0.0)
            backward = backward + np.where(same, times[1] + times[2], 0.0)
        shared = BlockTimes(
            forward_base=forward,
            forward_edge=forward,
            backward_base=backward,
            backward_edge=backward,
        )
        return apply(lambda time, less: np.maximum(0.0, time - less), [whole, shared])

    @derived
    def synced(self) -> tuple[SyncedBlock, SyncedEmbeddingHead | None]:
        """Gradient and parameter bytes that replicas synchronise: of a block, and of embedding and LM head."""
        reduced = self.block.gradient_message / self.block.weight
        embedding_head = (
            None
            if self.embedding_head is None
            else self.embedding_head.synced(reduced, self.schedule)
        )
        return synced_block(self.block, self.schedule), embedding_head
