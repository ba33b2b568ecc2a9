"""The counts that follow from a plan: microbatches, blocks per stage, chunks."""

from dataclasses import replace

import numpy as np

from calculon.hardware.system import System
from calculon.plan.mesh import data_stride, networks_of
from calculon.plan.plan import Plan, code
from calculon.plan.replicas import Replicas, shard_count
from calculon.plan.stage_layout import Stages
from calculon.records import record
from calculon.spec.model import Model
from calculon.units import MIB, Array, Bytes, Count

_AUTO = code("grad_dtype", "auto")


@record
class Schedule:
    """What the batch level needs to know of executions; arrays that broadcast against each other.

    A *stage* is what one pipeline rank holds, a *chunk* one of its virtual stages. The last block of a chunk (the
    *edge* block) is followed by a pipeline transfer, the others are *base* blocks.

    Attributes
    ----------
    microbatches : array
        Microbatches per pipeline and batch.
    blocks : array
        Blocks of the most loaded stage.
    missing_blocks : array
        Blocks that the other stages have less, in total.
    chunk_blocks : array
        Blocks of a chunk.
    shards : array
        Parts of the optimizer state.
    recompute_all : array of bool
        Only block inputs are kept for the backward pass.
    tensor_par_net, pipeline_par_net, data_par_net : array
        Network of the groups; the outermost one of those that span several.
    data_stride : array
        Distance of the ranks of a data-parallel group in a mesh; 0 where its network is stated.
    algorithm : array
        How collectives run: a code of the field ``coll_algo``.
    replicas : Replicas or None
        Data parallelism in a natural form; None where no execution states one.
    reserved : array
        Tier-1 memory that is not the model's.
    stages : Stages or None
        Schedule, layout and overlap of the pipeline; None where no execution states any.
    accumulates : array of bool
        Every microbatch after the first reads the gradients that it is added to.
    """

    batch_size: Count
    tensor_par: Count
    microbatch_size: Count
    microbatches: Count
    pipeline_par: Count
    data_par: Count
    interleaving: Count
    blocks: Count
    missing_blocks: Count
    chunk_blocks: Count
    shards: Count
    tensor_par_net: Array
    pipeline_par_net: Array
    data_par_net: Array
    data_stride: Count
    algorithm: Array
    replicas: Replicas | None
    reserved: Bytes
    training: Array
    recompute_all: Array
    data_par_overlap: Array
    latency_per_step: Array
    stages: Stages | None
    accumulates: Array
    multiquery: Array
    weight_offload: Array
    activations_offload: Array
    optimizer_offload: Array

    @classmethod
    def of(cls, plan: Plan, model: Model, system: System) -> "Schedule":
        """Derive the schedule of every row of a plan."""
        tensor_net, pipeline_net, data_net = networks_of(plan, system)
        pipeline_par = plan.pipeline_par.astype(float)
        data_par = plan.data_par.astype(float)
        interleaving = plan.pipeline_interleaving.astype(float)
        recompute_all = plan.is_choice("activation_recompute", "full")
        stages = Stages.of(plan, pipeline_par, recompute_all, model)
        blocks = blocks_of(stages, np.ceil(model.num_blocks / pipeline_par))
        return cls(
            batch_size=plan.batch_size.astype(float),
            tensor_par=plan.tensor_par.astype(float),
            microbatch_size=plan.microbatch_size.astype(float),
            microbatches=np.floor(np.floor(plan.batch_size / data_par) / plan.microbatch_size),
            pipeline_par=pipeline_par,
            data_par=data_par,
            interleaving=interleaving,
            blocks=blocks,
            missing_blocks=blocks * pipeline_par - model.num_blocks,
            chunk_blocks=chunk_blocks_of(stages, blocks, interleaving),
            shards=shard_count(plan.optimizer_sharding, plan.dp_shard, data_par),
            tensor_par_net=tensor_net,
            pipeline_par_net=pipeline_net,
            data_par_net=data_net,
            data_stride=data_stride(plan),
            algorithm=plan.coll_algo,
            replicas=Replicas.of(plan, data_par),
            reserved=plan.mem_reserved_mib * MIB,
            training=plan.training,
            recompute_all=recompute_all,
            data_par_overlap=plan.data_par_overlap,
            latency_per_step=plan.latency_per_step,
            stages=stages,
            accumulates=plan.grad_dtype != _AUTO,
            multiquery=plan.is_choice("attention_type", "multiquery"),
            weight_offload=plan.weight_offload,
            activations_offload=plan.activations_offload,
            optimizer_offload=plan.optimizer_offload,
        )

    def with_blocks(self, blocks: Count) -> "Schedule":
        """Return the schedule of stages of so many blocks, of one chunk where that is not what they have."""
        chunks = np.where(blocks == self.blocks, self.chunk_blocks, blocks)
        return replace(self, blocks=blocks, chunk_blocks=chunks)

    @property
    def mean_blocks(self) -> Count:
        """Blocks of a stage that useful work is counted of: the mean of a stated layout, else the most."""
        if self.stages is None:
            return self.blocks
        mean = (self.blocks * self.pipeline_par - self.missing_blocks) / self.pipeline_par
        return np.where(self.stages.stated, mean, self.blocks)

    @property
    def processors(self) -> Count:
        """Processors of an execution."""
        return self.tensor_par * self.pipeline_par * self.data_par

    @property
    def base_blocks(self) -> Count:
        """Blocks of a chunk that are not followed by a pipeline transfer."""
        return self.chunk_blocks - 1

    def chunk_sum(self, base: Array, edge: Array) -> Array:
        """Add a quantity of the two kinds of block up over a chunk."""
        return self.base_blocks * base + edge

    def batch_sum(self, base: Array, edge: Array) -> Array:
        """Add a quantity of the two kinds of block up over the batch on one processor."""
        return self.microbatches * self.interleaving * self.chunk_sum(base, edge)


def blocks_of(stages: Stages | None, uniform: Count) -> Count:
    """Return the blocks of the stage that has most, from those of the published layout."""
    return uniform if stages is None else np.where(stages.stated, stages.largest, uniform)


def chunk_blocks_of(stages: Stages | None, blocks: Count, interleaving: Count) -> Count:
    """Return the blocks of a chunk; stages of a stated layout have one."""
    blocks_of_chunk = np.floor(blocks / interleaving)
    return blocks_of_chunk if stages is None else np.where(stages.stated, blocks, blocks_of_chunk)
