"""The counts that follow from executions: microbatches, blocks per stage, chunks; of a table and of a grid alike."""

from copy import copy
from typing import Self

import numpy as np

from calculon.architecture.workload import sequence_lengths
from calculon.arrays import derived
from calculon.hardware.collectives.placement import Rooms
from calculon.hardware.system import System
from calculon.plan.columns import Columns, code
from calculon.plan.mesh import networks_of, processors, rooms_of, strides_of
from calculon.plan.stage_layout import StageLayout
from calculon.spec.axes import AXES
from calculon.spec.model import Model
from calculon.spec.scope_choices import BatchChoice
from calculon.units import MIB, MICRO, Array, Bytes, Count, Fraction, Seconds

_AUTO = code("grad_dtype", "auto")


def _number(field: str) -> "derived[Count]":
    """Return a field of executions as a quantity to compute with."""
    return derived(lambda schedule: getattr(schedule.columns, field).astype(float))


class Schedule:
    """What the batch level needs to know of executions that share a choice; arrays that broadcast against each other.

    A *stage* is what one pipeline rank holds, a *chunk* one of its virtual stages. The last block of a chunk (the
    *edge* block) is followed by a pipeline transfer, the others are *base* blocks. Each quantity is derived when it is
    asked for, from columns of any shape that broadcast.

    Attributes
    ----------
    choice : BatchChoice
        The choice that the executions share.
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
    """Pipeline stages."""

    data_par = _number("data_par")
    """Replicas."""

    microbatch_size = _number("microbatch_size")
    """Sequences per microbatch."""

    @derived
    def seq_length(self) -> Count:
        """Tokens per sequence."""
        return sequence_lengths(self._model, self.columns.seq_length)

    interleaving = _number("pipeline_interleaving")
    """Chunks of a stage."""

    @property
    def training(self) -> bool:
        """Whether there is a backward pass."""
        return self.choice.training

    @derived
    def recompute_all(self) -> Array:
        """Whether only block inputs are kept for the backward pass."""
        return self.columns.is_choice("activation_recompute", "full")

    @derived
    def multiquery(self) -> Array:
        """Whether one key/value head serves all query heads."""
        return self.columns.is_choice("attention_type", "multiquery")

    @derived
    def accumulates(self) -> Array:
        """Whether gradient accumulation reads the sums so far, in every microbatch after the first."""
        return self.columns.grad_dtype != _AUTO

    @derived
    def communicators(self) -> Count:
        """Process groups of several ranks that a rank is in: one of each axis, two where replicas form shards."""
        columns = self.columns
        shards = (columns.dp_shard > 0) & (columns.dp_shard < columns.data_par)
        groups = np.where(shards, 1.0, 0.0)
        for axis in AXES:
            groups = groups + (getattr(columns, axis.degree) > 1)
        return groups

    @derived
    def reserved(self) -> Bytes:
        """Tier-1 memory that is not the model's: as stated, or context, libraries and the buffers of communicators.

        Source: NVIDIA/nccl, issues 864, 964 and 986: every communicator has buffers of its own.
        """
        stated, use = self.columns.mem_reserved_mib, self._system.ext.memory
        own: Bytes = use.context + use.workspaces + np.zeros(1)
        if use.communicator:
            own = own + use.communicator * self.communicators
        return np.where(stated < 0, own, stated * MIB)

    @derived
    def fragmentation(self) -> Fraction:
        """Fragments of the allocator, as a share of the memory that comes and goes: as stated, or of the system."""
        stated = self.columns.mem_fragments_percent
        return np.where(stated < 0, self._system.ext.memory.fragmentation, stated / 100)

    @property
    def host_time(self) -> Seconds | float:
        """Time of a batch in which no processor works: that of the host.

        What a stage of a pipeline stands still beside a microbatch counts for all of its chunks, and once more for each
        of the other stages, while the pipeline fills and drains.
        """
        step, stop = self._system.ext.launch.step, self.columns.stage_stop_us
        if not stop.any():
            return step
        passes = self.microbatches * self.interleaving + self.pipeline_par - 1
        return step + np.where(self.pipeline_par > 1, MICRO * stop * passes, 0.0)

    # -- counts -------------------------------------------------------------------------------------------------------

    @derived
    def microbatches(self) -> Count:
        """Microbatches per pipeline and batch."""
        return np.floor(
            np.floor(self.columns.batch_size / self.data_par) / self.columns.microbatch_size
        )

    @derived
    def shards(self) -> Count:
        """Parts of the optimizer state."""
        return shard_count(self.columns.optimizer_sharding, self.columns.dp_shard, self.data_par)

    @derived
    def layout(self) -> StageLayout | None:
        """Blocks of the stages, where executions state a schedule or a layout; None where they are as published."""
        if not self.choice.own_stages:
            return None
        return StageLayout.of(self.columns, self.pipeline_par, self.recompute_all, self._model)

    @derived
    def blocks(self) -> Count:
        """Blocks of the most loaded stage."""
        if self.layout is not None:
            return self.layout.largest
        return np.ceil(self._model.num_blocks / self.pipeline_par)

    @derived
    def missing_blocks(self) -> Count:
        """Blocks that the other stages have less, in total."""
        return self.blocks * self.pipeline_par - self._model.num_blocks

    @derived
    def chunk_blocks(self) -> Count:
        """Blocks of a chunk; of those that differ within a stage the mean."""
        if self.layout is not None:
            return self.blocks / self.interleaving
        return np.floor(self.blocks / self.interleaving)

    def with_blocks(self, blocks: Count) -> Self:
        """Return the schedule of stages with other numbers of blocks, of one chunk where that is not what they have."""
        chunks = np.where(blocks == self.blocks, self.chunk_blocks, blocks)
        if self.layout is not None:
            chunks = blocks / self.interleaving
        other = copy(self)
        other.__dict__ |= {
            "missing_blocks": self.missing_blocks,
            "blocks": blocks,
            "chunk_blocks": chunks,
        }
        return other

    @property
    def mean_blocks(self) -> Count:
        """Blocks of a stage that useful work is counted of: the mean of a stated layout, else the most."""
        if self.layout is None:
            return self.blocks
        return (self.blocks * self.pipeline_par - self.missing_blocks) / self.pipeline_par

    @property
    def processors(self) -> Count:
        """Processors of an execution."""
        return processors(self.columns)

    @property
    def base_blocks(self) -> Count:
        """Blocks of a chunk that are not followed by a pipeline transfer."""
        return self.chunk_blocks - 1

    def chunk_sum(self, base: Array, edge: Array) -> Array:
        """Add a quantity of the two kinds of block up over a chunk."""
        return self.base_blocks * base + edge

    def batch_sum(self, base: Array, edge: Array) -> Array:
        """Add a quantity of the two kinds of block up over the batch on one processor.

        Of a stage with fewer blocks than chunks, such as the first one of Llama 3 405B, every block is an edge.
        """
        chunk: Array = self.chunk_sum(base, edge)
        if self.layout is not None:
            chunk = np.where(self.chunk_blocks < 1, self.chunk_blocks * edge, chunk)
        return self.microbatches * self.interleaving * chunk

    # -- groups along the axes ----------------------------------------------------------------------------------------

    @derived
    def strides(self) -> dict[str, Count]:
        """Distance of the numbers of neighbours in the groups of each axis."""
        return dict(strides_of(self.columns, self.choice.mesh_order))

    @derived
    def rooms(self) -> Rooms:
        """How many instances of those inside an instance of each nested network joins in a mesh."""
        return rooms_of(self.columns, self.choice.mesh_order, self._system)

    @derived
    def networks(self) -> dict[str, Array]:
        """Network of the groups of each axis: the one stated, or in a mesh the outermost that they span."""
        used = self.rooms if self.choice.meshed else None
        return networks_of(self.columns, self.choice.mesh_order, self._system, used)


def shard_count(split: Array, dp_shard: Count, data_par: Count) -> Count:
    """Return in how many parts the optimizer state is: one, those stated, or one for each replica."""
    return np.where(split, np.where(dp_shard > 0, dp_shard, data_par), 1.0)
