"""Embedding and LM head: their cost on the first and the last pipeline stage, or on the only one.

An iteration takes as long as the slower of the two stages; the other one is passed once while the pipeline fills.
"""

from dataclasses import replace

import numpy as np

from calculon.architecture.embedding_and_head import LOGITS
from calculon.architecture.layer_sizes import Sizes
from calculon.architecture.optimizer import Parameters, joined
from calculon.architecture.segments import EMBEDDING, HEAD, Segment
from calculon.architecture.shape import BlockShape
from calculon.arrays import derived, ordered_sum
from calculon.cost.block_cost import BlockCost, BlockLayout, block_cost
from calculon.cost.layer_cost import LayerTable
from calculon.cost.optimizer_step import OptimizerCost, optimizer_cost, parameters_of
from calculon.editions.edition import Edition
from calculon.frozen import dataclass
from calculon.hardware.system import System
from calculon.parallel.data.synced import SyncedBytes, SyncedEmbeddingHead
from calculon.plan.schedule import Schedule
from calculon.records import gather, record
from calculon.spec.model import Model
from calculon.spec.scope_choices import BlockChoice, LayoutChoice, StepChoice
from calculon.units import Array, Bytes, Count, Flops, Seconds


@record
class EmbeddingHeadCost:
    """Cost of embedding and LM head for one microbatch; the last axis of all arrays is that of blocks.

    ``table_gradient`` is bytes of the reduced gradient of one rank's share of the vocabulary's table.
    """

    embedding: BlockCost
    head: BlockCost
    table_gradient: Bytes


@record
class VocabularyWeights:
    """Weights of embedding, LM head or both on a stage, and their optimizer step; last axis (tensor degree, shards)."""

    weight: Bytes
    optimizer: OptimizerCost


@record
class EmbeddingHeadStep:
    """Weights of the first and the last of several stages, and of a single one; a tied table counts once."""

    first: VocabularyWeights
    last: VocabularyWeights
    both: VocabularyWeights


def plain_layout(layout: LayoutChoice, system: System) -> LayoutChoice:
    """Return the layout of embedding and head, which are split by the vocabulary whatever form the blocks have.

    The logits are a product in the type of attention: only products of blocks have 8 bits. Source: DeepSeek-V3, arXiv
    2412.19437, section 3.3.1; Megatron-LM, ``core/models/gpt/gpt_model.py``, whose output layer is none of Transformer
    Engine; torchtitan, ``docs/float8.md``, which filters ``output``.
    """
    core = system.core_type(layout.datatype, layout.matmul_dtype)
    return replace(
        layout,
        matmul_dtype="same" if core == layout.datatype else core,
        overlapped=False,
        fused_activation=False,
        attention_type="multihead",
        attn_impl="eager",
        attn_kernel="auto",
        tp_impl="megatron",
        tp_user_buffers=False,
        bias_after_reduce=False,
    )


def plain_choice(choice: BlockChoice, system: System) -> BlockChoice:
    """Return the choice as it is for embedding and head: nothing is recomputed, overlapped or gathered again."""
    return replace(
        choice,
        layout=plain_layout(choice.layout, system),
        activation_recompute="none",
        tensor_par_overlap="none",
        seq_par_ag_redo=False,
        tp_async=False,
        recompute_modules="none",
    )


def embedding_head_cost(
    model: Model, system: System, choice: BlockChoice, sizes: Sizes, edition: Edition
) -> EmbeddingHeadCost:
    """Cost embedding and head for one microbatch."""

    def cost(segment: Segment) -> BlockCost:
        layout = BlockLayout(model, system, choice.layout, sizes, edition, segment.layers)
        found = block_cost(layout, choice)
        assert not found.axis_time.any(), "only blocks have collectives of further axes"
        return found

    rows = BlockShape.of(model, choice.layout, sizes, edition).vocab_rows
    return EmbeddingHeadCost(
        embedding=cost(EMBEDDING),
        head=cost(HEAD),
        table_gradient=choice.reduced_bytes * (rows * model.hidden),
    )


def embedding_head_step(
    model: Model, system: System, choice: StepChoice, sizes: Sizes, shards: Count, edition: Edition
) -> EmbeddingHeadStep:
    """Cost the optimizer step of embedding and LM head; one entry of `sizes` and `shards` for each optimizer step.

    Muon leaves them to Adam (Jordan et al. 2024; Liu et al., arXiv 2502.16982, section 2.2).
    """
    if choice.optimizer == "muon":
        choice = replace(choice, optimizer="adam")
    shape = BlockShape.of(model, choice.layout, sizes, edition)
    columns = sizes.tensor_par.size
    embedding = parameters_of(LayerTable(EMBEDDING.layers(shape), columns), shape, choice)
    layers = LayerTable(HEAD.layers(shape), columns)
    head = rest = parameters_of(layers, shape, choice)
    if model.tied:
        logits = [layer.name for layer in layers.layers].index(LOGITS)
        rest = head.without(logits, shape.vocab_rows * model.hidden)

    def held(parameters: Parameters) -> VocabularyWeights:
        return VocabularyWeights(
            weight=choice.dtype_bytes * ordered_sum(parameters.weights),
            optimizer=optimizer_cost(parameters, shards, system, choice, edition),
        )

    both = joined([embedding, rest], layers=True)
    return EmbeddingHeadStep(first=held(embedding), last=held(head), both=held(both))


@dataclass(frozen=True)
class EmbeddingHead:
    """Embedding and LM head of executions: costs, and whether they share their weights."""

    cost: EmbeddingHeadCost
    step: EmbeddingHeadStep
    tied: bool

    def take(self, blocks: Array, steps: Array) -> "EmbeddingHead":
        """Return those of executions, by rows of blocks and of optimizer steps."""
        return EmbeddingHead(gather(self.cost, blocks), gather(self.step, steps), self.tied)

    def synced(self, reduced: Array) -> SyncedEmbeddingHead:
        """Return gradient and parameter bytes of data parallelism; `reduced` is gradient bytes per byte of weights."""

        def of(held: VocabularyWeights) -> SyncedBytes:
            return SyncedBytes(weight=held.weight, gradient=held.weight * reduced)

        return SyncedEmbeddingHead(
            first=of(self.step.first),
            last=of(self.step.last),
            both=of(self.step.both),
            tied=self.tied,
        )

    @property
    def shared_gradient(self) -> Bytes | None:
        """Bytes of the gradient that the two copies of a tied table exchange once per batch."""
        return self.cost.table_gradient if self.tied else None


class EmbeddingHeadTimes:
    """Times per batch of embedding and LM head, each computed when it is asked for."""

    def __init__(
        self,
        embedding_head: EmbeddingHead,
        schedule: Schedule,
        slowest: tuple[Array, Array] | None = None,
        added: tuple[Seconds, Seconds] | None = None,
    ):
        """`slowest` tells of stages that differ whether the slowest is the first, and whether it is the last.

        `added` is what gradient accumulation adds to a microbatch of the embedding and of the head.
        """
        self._embedding_head, self._schedule, self._slowest = embedding_head, schedule, slowest
        self._added = added

    @derived
    def piped(self) -> Array:
        """Whether embedding and LM head are on different stages."""
        return self._schedule.pipeline_par > 1

    def _whole(self, end: BlockCost) -> Seconds:
        """Time of embedding or LM head for one microbatch, forward and backward."""
        exposed: Seconds = (
            end.collectives.fw_tp.time_exposed[0] + end.collectives.agrad_tp.time_exposed[0]
        )
        return end.fw.time + end.agrad.time + end.wgrad.time + exposed

    @derived
    def embedding(self) -> Seconds:
        """Time of the embedding for one microbatch."""
        return self._whole(self._embedding_head.cost.embedding)

    @derived
    def head(self) -> Seconds:
        """Time of head and loss for one microbatch."""
        return self._whole(self._embedding_head.cost.head)

    @property
    def head_backward(self) -> Seconds:
        """Backward time of head and loss for one microbatch."""
        head = self._embedding_head.cost.head
        time: Seconds = head.agrad.time + head.wgrad.time
        return time

    @derived
    def _slower_is_embedding(self) -> Array:
        """Whether a microbatch takes longer in the embedding than in the head, gradient accumulation included."""
        if self._added is None:
            return self.embedding > self.head
        of_embedding, of_head = self._added
        return self.embedding + of_embedding > self.head + of_head

    def of_slower(self, embedding: Array, head: Array) -> Array:
        """Return a quantity of the slower of the two; of both where they are on one stage.

        Of stages that differ it is that on the slowest one, if there is one.
        """
        if self._slowest is not None:
            first, last = self._slowest
            slower = np.where(first, embedding, np.where(last, head, 0.0))
        else:
            slower = np.where(self._slower_is_embedding, embedding, head)
        return np.where(self.piped, slower, embedding + head)

    def of_faster(self, embedding: Array, head: Array) -> Array:
        """Return a quantity of the faster of the two, which are on stages that are otherwise alike."""
        faster = np.where(self._slower_is_embedding, head, embedding)
        return np.where(self.piped, faster, 0.0)

    def _slower(self, embedding: Array, head: Array) -> Array:
        """Add a quantity of the slower of the two up over the batch; of both where they are on one stage."""
        return self._schedule.microbatches * self.of_slower(embedding, head)

    @derived
    def forward(self) -> Seconds:
        """Forward computation."""
        cost = self._embedding_head.cost
        return self._slower(cost.embedding.fw.time, cost.head.fw.time)

    @derived
    def backward(self) -> Seconds:
        """Backward computation."""
        embedding, head = self._embedding_head.cost.embedding, self._embedding_head.cost.head
        return self._slower(
            embedding.agrad.time + embedding.wgrad.time, head.agrad.time + head.wgrad.time
        )

    @derived
    def tensor_link(self) -> Seconds:
        """Tensor-parallel collectives, on the link; none of them is hidden."""
        embedding, head = self._embedding_head.cost.embedding, self._embedding_head.cost.head
        return self._slower(
            embedding.collectives.fw_tp.time[0] + embedding.collectives.agrad_tp.time[0],
            head.collectives.fw_tp.time[0] + head.collectives.agrad_tp.time[0],
        )

    @derived
    def fill(self) -> Seconds:
        """The faster of the two, which is passed once while the pipeline fills and drains."""
        return self.of_faster(self.embedding, self.head)

    def least(self) -> Seconds:
        """Least time that embedding and LM head add, over tensor-parallel networks: the first axis of their costs."""
        both = self._slower(self.embedding, self.head) + self.fill
        return np.asarray(both.min(axis=0))

    @derived
    def steps(self) -> tuple[Seconds, Seconds]:
        """The optimizer step on the first and on the last stage; of both on a single one."""
        step = self._embedding_head.step
        both = step.both.optimizer.step.time
        first, last = (end.optimizer.step.time for end in (step.first, step.last))
        return np.where(self.piped, first, both), np.where(self.piped, last, both)

    @derived
    def step(self) -> Seconds:
        """The optimizer step of the one that takes longer."""
        return np.maximum(*self.steps)

    @derived
    def useful_flops(self) -> Flops:
        """FLOP of a batch that are no recomputation, the mean over stages: those without either have nothing to do."""
        embedding, head = self._embedding_head.cost.embedding, self._embedding_head.cost.head

        def flops(end: BlockCost) -> Flops:
            return end.fw.flops + end.agrad.flops + end.wgrad.flops

        schedule = self._schedule
        useful: Flops = schedule.microbatches * (flops(embedding) + flops(head))
        return useful / schedule.pipeline_par
