"""The counts that follow from a plan: microbatches, blocks per stage, chunks."""

import numpy as np

from calculon.plan.plan import Plan, code
from calculon.records import record
from calculon.spec.model import Model
from calculon.units import Array, Count

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
    training: Array
    recompute_all: Array
    data_par_overlap: Array
    latency_per_step: Array
    accumulates: Array
    multiquery: Array
    weight_offload: Array
    activations_offload: Array
    optimizer_offload: Array

    @classmethod
    def of(cls, plan: Plan, model: Model) -> "Schedule":
        """Derive the schedule of every row of a plan."""
        pipeline_par = plan.pipeline_par.astype(float)
        data_par = plan.data_par.astype(float)
        interleaving = plan.pipeline_interleaving.astype(float)
        blocks = np.ceil(model.num_blocks / pipeline_par)
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
            chunk_blocks=np.floor(blocks / interleaving),
            shards=np.where(plan.optimizer_sharding, data_par, 1.0),
            tensor_par_net=plan.tensor_par_net,
            pipeline_par_net=plan.pipeline_par_net,
            data_par_net=plan.data_par_net,
            training=plan.training,
            recompute_all=plan.is_choice("activation_recompute", "full"),
            data_par_overlap=plan.data_par_overlap,
            latency_per_step=plan.latency_per_step,
            accumulates=plan.grad_dtype != _AUTO,
            multiquery=plan.is_choice("attention_type", "multiquery"),
            weight_offload=plan.weight_offload,
            activations_offload=plan.activations_offload,
            optimizer_offload=plan.optimizer_offload,
        )

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
