"""Counts derived from executions: microbatches, blocks per stage, chunks; for tables and grids."""

from copy import copy
from typing import Self

import numpy as np

from calculon.architecture.segments import kinds_by_block
from calculon.architecture.shape import sequence_lengths
from calculon.base.arrays import cached_property, is_nonzero
from calculon.base.units import MIB, MICRO, Array, Bytes, Count, Fraction, Seconds
from calculon.declarations.axes import AXES
from calculon.declarations.model import Model
from calculon.declarations.scope_choices import BatchChoice
from calculon.hardware.collectives.placement import Fanouts
from calculon.hardware.system import System
from calculon.plan.columns import Columns, code
from calculon.plan.mesh import (
    data_network,
    data_ranks,
    expert_ranks,
    fanouts_of,
    networks_of,
    processors,
    strides_of,
)
from calculon.plan.stage_kinds import (
    ChunkLayouts,
    chunk_layouts,
    with_folded_kinds,
    with_kinds,
)
from calculon.plan.stage_layout import StageLayout

_AUTO = code("grad_dtype", "auto")


def _number(field: str) -> "cached_property[Count]":
    """Return a property for a field of executions as a floating-point quantity."""
    return cached_property(lambda schedule: getattr(schedule.columns, field).astype(float))


class Schedule:
    """Batch-level quantities of executions that share a choice; arrays that broadcast against each other.

    A *stage* is the part of the model on one pipeline rank, a *chunk* is one of its virtual stages. The last block of a
    chunk (the *edge* block) is followed by a pipeline transfer, the others are *base* blocks. Each quantity is computed
    on first access, from columns of any shape that broadcast.

    Attributes:
        choice: The choice that the executions share.
    """

    def __init__(self, columns: Columns, choice: BatchChoice, model: Model, system: System):
        self.columns, self.choice = columns, choice
        self._model, self._system = model, system

    # -- columns ------------------------------------------------------------------------------------------------------

    batch_size = _number("batch_size")
    """Global batch, in sequences."""

    tensor_par = _number("tensor_par")
    """Tensor-parallel degree."""

    pipeline_par = _number("pipeline_par")
    """Number of pipeline stages."""

    data_par = _number("data_par")
    """Number of replicas."""

    context_par = _number("context_par")
    """Context-parallel degree: ranks that split the same sequences."""

    @cached_property
    def data_ranks(self) -> Count:
        """Ranks that have equal weights, except experts, and reduce their gradients.

        Source: Megatron-LM, ``core/parallel_state.py``, ``get_data_parallel_group(with_context_parallel=True)``.
        """
        return data_ranks(self.columns).astype(float)

    microbatch_size = _number("microbatch_size")
    """Sequences per microbatch."""

    @cached_property
    def seq_length(self) -> Count:
        """Tokens per sequence."""
        return sequence_lengths(self._model, self.columns.seq_length)

    @cached_property
    def interleaving(self) -> Count:
        """Chunks of a stage (interleaved schedule), over both directions of a bidirectional schedule."""
        chunks: Count = self.columns.pipeline_interleaving.astype(float)
        return 2 * chunks if self.choice.mirrored else chunks

    @cached_property
    def ranks(self) -> Count:
        """Distinct pipeline ranks: all, or the first half if the other half mirrors it."""
        if not self.choice.mirrored:
            return self.pipeline_par
        return np.maximum(1.0, np.floor(self.pipeline_par / 2))

    @property
    def separate_ends(self) -> Array:
        """Mask of executions whose embedding and LM head are on different ranks."""
        apart: Array = self.pipeline_par > 1
        return apart & (not self.choice.folded)

    @property
    def training(self) -> bool:
        """True if there is a backward pass."""
        return self.choice.training

    @cached_property
    def recompute_all(self) -> Array:
        """Mask of full activation recomputation: only block inputs are kept for the backward pass."""
        return self.columns.is_choice("activation_recompute", "full")

    @cached_property
    def multiquery(self) -> Array:
        """Mask of executions in which one key/value head serves all query heads."""
        return self.columns.is_choice("attention_type", "multiquery")

    @cached_property
    def accumulates(self) -> Array:
        """Mask of executions whose gradient accumulation reads the sums in every microbatch after the first."""
        return self.columns.grad_dtype != _AUTO

    @cached_property
    def communicators(self) -> Count:
        """Number of process groups of several ranks that contain a rank.

        There is one for each axis, and two for data parallelism with hybrid sharding. With context parallelism, the
        gradient all-reduce over context- and data-parallel ranks needs another group.
        """
        columns = self.columns
        shards = (columns.dp_shard > 0) & (columns.dp_shard < data_ranks(columns))
        groups = np.where(shards, 1.0, 0.0)
        groups = groups + ((columns.context_par > 1) & (columns.data_par > 1))
        for axis in AXES:
            groups = groups + (getattr(columns, axis.degree) > 1)
        if self.has_separate_experts:
            groups = groups + (self.separate_experts & (self.expert_data_par > 1))
        return groups

    @cached_property
    def reserved(self) -> Bytes:
        """Tier-1 memory that the model does not use: stated, or context, libraries and communicator buffers.

        Source: NVIDIA/nccl, issues 864, 964 and 986: every communicator allocates its own buffers.
        """
        stated, use = self.columns.mem_reserved_mib, self._system.ext.memory
        own: Bytes = use.context + use.workspaces + np.zeros(1)
        if is_nonzero(use.communicator):
            own = own + use.communicator * self.communicators
        return np.where(stated < 0, own, stated * MIB)

    @cached_property
    def fragmentation(self) -> Fraction:
        """Allocator fragmentation as a fraction of dynamic memory: stated, or from the system."""
        stated = self.columns.mem_fragments_percent
        return np.where(stated < 0, self._system.ext.memory.fragmentation, stated / 100)

    @property
    def host_time(self) -> Seconds | float:
        """Time of a batch during which processors wait for the host.

        The time that a pipeline stage stops per microbatch counts for all of its chunks, and once more for each of the
        other stages while the pipeline fills and drains.
        """
        step, stop = self._system.ext.launch.step, self.columns.stage_stop_us
        if not stop.any():
            return step
        passes = self.microbatches * self.interleaving + self.pipeline_par - 1
        return step + np.where(self.pipeline_par > 1, MICRO * stop * passes, 0.0)

    # -- counts -------------------------------------------------------------------------------------------------------

    @cached_property
    def microbatches(self) -> Count:
        """Microbatches per pipeline and batch; in a bidirectional schedule, per direction."""
        found = np.floor(
            np.floor(self.columns.batch_size / self.data_par) / self.columns.microbatch_size
        )
        # Half of the microbatches run in each direction; a rule refuses odd numbers.
        return np.maximum(np.floor(found / 2), 1.0) if self.choice.mirrored else found

    @cached_property
    def pairs(self) -> Count:
        """Microbatches whose forward pass overlaps with the backward pass of another microbatch.

        Passes overlap once the last stage has completed the forward passes that fill the pipeline:
        :math:`(v - 1) p + 1` passes of chunks, one more than without overlap. Overlap of other stages before and after
        does not shorten the batch. Source: Megatron-LM, ``core/pipeline_parallel/schedules.py``,
        ``get_pp_rank_microbatches`` with ``overlap_moe_expert_parallel_comm``.
        """
        if not self.choice.pairs_passes:
            return np.zeros(1)
        if self.choice.folded:
            return self.pairs_of_rank(np.zeros(1))
        ahead = (self.interleaving - 1) * self.pipeline_par + 1
        return np.maximum(0.0, self.microbatches - ahead / self.interleaving)

    def pairs_of_rank(self, rank: Count) -> Count:
        """Return the number of microbatches that a DualPipe rank overlaps; each saves half of a chunk per pair.

        There are two pairs for each microbatch while the pipeline is full (except the first on the middle rank), and
        one for each of the last forward passes. Source: :func:`~calculon.cost.pipeline.orders.phases`.
        """
        ranks = self.ranks
        pairs = 2 * self.microbatches - 3 * ranks + rank + 1 - (rank == ranks - 1)
        return np.maximum(0.0, pairs) / 2

    @cached_property
    def shards(self) -> Count:
        """Number of optimizer state shards."""
        columns = self.columns
        return shard_count(columns.optimizer_sharding, columns.dp_shard, self.data_ranks)

    @cached_property
    def separate_experts(self) -> Array:
        """Mask of executions in which routed experts have separate replica groups and messages.

        If only tensor parallelism splits experts, they are split like the MLP and need no separate groups. Source:
        Megatron-LM, parameters whose ``allreduce`` is False (``core/transformer/moe/experts.py``,
        ``core/extensions/transformer_engine.py``).
        """
        columns = self.columns
        return (columns.expert_par > 1) | (expert_ranks(columns) != columns.tensor_par)

    @cached_property
    def expert_data_par(self) -> Count:
        """Number of ranks with equal weights of routed experts.

        Source: Liu et al., *MoE Parallel Folding*, arXiv 2504.14960, section 3.2.
        """
        return self._of_experts(self.data_ranks)

    def expert_shards(self, shards: Count) -> Count:
        """Return the number of shards of expert state, given the number of shards of other state."""
        return np.where(shards > 1, self._of_experts(shards), 1.0)

    def _of_experts(self, same: Count) -> Count:
        """Return the number of ranks with equal expert weights among `same` ranks with equal other weights.

        The result is at least one, over all tensor groups of these ranks.
        """
        ranks: Count = self.tensor_par * same / expert_ranks(self.columns)
        return np.maximum(np.floor(ranks), 1.0)  # a rule refuses fractions

    @cached_property
    def reduces(self) -> Array:
        """Mask of executions that reduce gradients between ranks with equal weights."""
        several: Array = self.data_ranks > 1
        if self.has_separate_experts:
            several = several | (self.separate_experts & (self.expert_data_par > 1))
        return several

    @cached_property
    def has_separate_experts(self) -> bool:
        """True if any execution has separate groups for routed experts."""
        return self._model.mixes and bool(self.separate_experts.any())

    @cached_property
    def layout(self) -> StageLayout | None:
        """Blocks of the stages if executions state a schedule or a layout, or if there are several kinds of block.

        None for the published layout.
        """
        kinds = kinds_by_block(self._model)
        if not (self.choice.own_stages or kinds):
            return None
        several = bool(kinds) or self.modules > 0
        columns, model = self.columns, self._model
        if self.choice.folded:
            layout = StageLayout.folded(columns, self.ranks, model)
            return with_folded_kinds(layout, model) if kinds else layout
        if not several:
            return self._stages
        return with_kinds(self._stages, columns, model, in_order=self.choice.simulated)

    @property
    def modules(self) -> int:
        """MTP modules that have a place of their own, and count as blocks of its stage."""
        return self._model.mtp_layers if self.choice.modules_apart else 0

    @cached_property
    def _stages(self) -> StageLayout:
        """Layout whose stages are not distinguished by their kinds of block."""
        return StageLayout.of(self.columns, self.pipeline_par, self.recompute_all, self._model)

    @cached_property
    def chunk_layouts(self) -> ChunkLayouts | None:
        """Layouts of chunks with different numbers of blocks; None if all chunks of all executions are alike."""
        if self.layout is None or self.choice.folded:
            return None
        several = self.layout.of_kind is not None
        return chunk_layouts(self._stages, self.columns, self._model, kinds=several)

    @cached_property
    def blocks(self) -> Count:
        """Blocks of the largest stage, MTP modules in a place of their own included."""
        if self.layout is not None:
            return self.layout.largest
        return np.ceil(self._model.num_blocks / self.pipeline_par)

    @cached_property
    def missing_blocks(self) -> Count:
        """Blocks that the other stages lack compared with the largest stage, in total."""
        return self.blocks * self.ranks - self._model.num_blocks

    @cached_property
    def chunk_blocks(self) -> Count:
        """Blocks of a chunk, or their mean if chunks of a stage differ."""
        if self.layout is not None:
            return self.blocks / self.interleaving
        return np.floor(self.blocks / self.interleaving)

    def with_blocks(self, blocks: Count, pairs: Count | None = None) -> Self:
        """Return the schedule of stages with other numbers of blocks, each in one chunk if the number differs.

        `pairs` overrides the number of microbatches with overlapping passes.
        """
        chunks = np.where(blocks == self.blocks, self.chunk_blocks, blocks)
        if self.layout is not None:
            chunks = blocks / self.interleaving
        other = copy(self)  # keeps derived values: only the attributes below depend on the blocks
        other.missing_blocks, other.blocks, other.chunk_blocks = self.missing_blocks, blocks, chunks
        if pairs is not None:
            other.pairs = pairs
        return other

    @property
    def in_one_chunk(self) -> Self:
        """Schedule whose stages have a single chunk, for work that all blocks complete within a batch."""
        other = copy(self)
        other.interleaving, other.chunk_blocks = np.ones(1), self.blocks
        return other

    @property
    def mean_blocks(self) -> Count:
        """Blocks of a stage for useful work: the mean of a stated layout, else the largest stage."""
        if self.layout is None:
            return self.blocks
        return (self.blocks * self.ranks - self.missing_blocks) / self.ranks

    @property
    def processors(self) -> Count:
        """Number of processors of an execution."""
        return processors(self.columns)

    @property
    def base_blocks(self) -> Count:
        """Blocks of a chunk without a subsequent pipeline transfer."""
        return self.chunk_blocks - 1

    def chunk_sum(self, base: Array, edge: Array) -> Array:
        """Return the sum of a quantity of base and edge blocks over a chunk."""
        return self.base_blocks * base + edge

    def batch_sum(self, base: Array, edge: Array) -> Array:
        """Return the sum of a quantity of base and edge blocks over the batch on one processor.

        If a stage has fewer blocks than chunks, such as the first stage of Llama 3 405B, every block is an edge.
        """
        chunk: Array = self.chunk_sum(base, edge)
        if self.layout is not None:
            chunk = np.where(self.chunk_blocks < 1, self.chunk_blocks * edge, chunk)
        return self.microbatches * self.interleaving * chunk

    # -- groups along the axes ----------------------------------------------------------------------------------------

    @cached_property
    def strides(self) -> dict[str, Count]:
        """Distance between neighboring ranks in the groups of each axis."""
        return dict(strides_of(self.columns, self.choice.mesh_order))

    @cached_property
    def fanouts(self) -> Fanouts:
        """Number of inner instances per instance of each nested network in a mesh."""
        return fanouts_of(self.columns, self.choice.mesh_order, self._system)

    @cached_property
    def networks(self) -> dict[str, Array]:
        """Network of the groups of each axis: the stated one, or in a mesh the outermost that they span.

        The data-parallel entry is for replicas only; gradients are also reduced over context parallelism
        (:attr:`data_network`).
        """
        used = self.fanouts if self.choice.meshed else None
        return networks_of(self.columns, self.choice.mesh_order, self._system, used)

    @cached_property
    def data_network(self) -> Array:
        """Network of the groups of ranks with equal weights."""
        if not self.choice.meshed:
            return data_network(self.columns)
        alone = (self.columns.data_par == 1) & (self.columns.context_par > 1)
        if not alone.any():  # replicas are further apart than context-parallel ranks
            return self.networks["dp"]
        return np.where(alone, self.networks["cp"], self.networks["dp"])


def shard_count(split: Array, dp_shard: Count, ranks: Count) -> Count:
    """Return the number of optimizer state shards: one, the stated number, or one for each rank with equal weights."""
    return np.where(split, np.where(dp_shard > 0, dp_shard, ranks), 1.0)
