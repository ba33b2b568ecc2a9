"""Embedding and LM head, the *ends* of a model: their cost on the first and the last stage, or on a single one.

The slower of the two stages determines the time of an iteration; the faster one delays it once, while the pipeline
fills. Multi-token-prediction (MTP) modules are part of the head, or blocks of another stage
(:mod:`calculon.cost.prediction_modules`).
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from calculon.architecture.optimizer import Parameters, joined
from calculon.architecture.segments import EMBEDDING, HEAD, LOGITS, Segment
from calculon.architecture.shape import BlockShape, Sizes
from calculon.base.arrays import cached_property, ordered_sum
from calculon.base.frozen import dataclass
from calculon.base.record_arrays import changed, gather, joint_view
from calculon.base.records import record
from calculon.base.units import Array, Bytes, Count, Flops, Seconds
from calculon.cost.block_cost import BlockCost, BlockLayout, axes_of_modules, block_cost
from calculon.cost.data.synced import SharedTable, SyncedBytes, SyncedEmbeddingHead
from calculon.cost.layer_cost import LayerTable
from calculon.cost.optimizer_step import OptimizerCost, optimizer_cost, parameters_of
from calculon.declarations.axes import FURTHER_NAMES
from calculon.declarations.model import Model
from calculon.declarations.recipes import NO_RECIPE
from calculon.declarations.scope_choices import BlockChoice, LayoutChoice, StepChoice
from calculon.editions.edition import Edition
from calculon.hardware.system import System
from calculon.plan.schedule import Schedule


@record
class EmbeddingHeadCost:
    """Cost of embedding and LM head for one microbatch; the last axis of all arrays is over blocks.

    Attributes:
        modules: Time of MTP modules, a part of the time of the head.
        table_gradient: Bytes of the gradient of the tables that the first and the last stage share: a rank's part of
            the vocabulary's table, and other tables in which MTP modules look up.
    """

    embedding: BlockCost
    head: BlockCost
    modules: Seconds
    table_gradient: Bytes


@record
class ApartCost(EmbeddingHeadCost):
    """Cost of embedding and LM head of a model whose MTP modules may be on another stage.

    Attributes:
        losses: Head of the model and of all modules, without the other layers of the modules.
        module: A module without its head: a block that looks its tokens up, with its share of a copy of the table.
        losses_of_modules: Time of the heads of the modules.
    """

    losses: BlockCost
    module: BlockCost
    losses_of_modules: Seconds


@record
class VocabularyWeights:
    """Weights of embedding, LM head or both on a stage, and their optimizer step; last axis (tensor degree, shards)."""

    weight: Bytes
    optimizer: OptimizerCost


@record
class ModuleWeights:
    """Weights of the head of a model with MTP modules.

    Attributes:
        alone: Weights of head and modules on a single stage, where modules use the embedding and need no copy of it.
        head: Bytes of the head without modules.
        experts: Bytes of the routed experts of all modules.
        largest: Bytes of the largest of head, embedding and module, each of which is a unit of gradient reduction.
    """

    alone: VocabularyWeights
    head: Bytes
    experts: Bytes
    largest: Bytes


@record
class EmbeddingHeadStep:
    """Weights of the first and the last of several stages, and of a single one; a tied table counts once."""

    first: VocabularyWeights
    last: VocabularyWeights
    both: VocabularyWeights


def plain_layout(layout: LayoutChoice, system: System) -> LayoutChoice:
    """Return the layout of embedding and head, which are split along the vocabulary whatever the blocks do.

    The logits are a product in the datatype of attention: FP8 is for products of blocks only. Source: DeepSeek-V3,
    arXiv 2412.19437, section 3.3.1; Megatron-LM, ``core/models/gpt/gpt_model.py``, whose output layer does not use
    Transformer Engine; torchtitan, ``docs/float8.md``, which filters ``output``.
    """
    if layout.compile_scope != "step":
        layout = replace(layout, fusion="none")
    core = system.core_type(layout.datatype, layout.multiplied)
    return replace(
        layout,
        matmul_dtype="same" if core == layout.datatype else core,
        fp8_recipe=NO_RECIPE,
        fp8_param_gather=False,
        fp8_attention=False,
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
    """Return the block choice of embedding and head, without recomputation, overlap and repeated gathers."""
    return replace(
        choice,
        layout=plain_layout(choice.layout, system),
        activation_recompute="none",
        tensor_par_overlap="none",
        seq_par_ag_redo=False,
        tp_async=False,
        recompute_modules="none",
        ep_overlap="none",
        delay_wgrad=False,
        moe_shared_overlap=False,
    )


def embedding_head_cost(
    model: Model, system: System, choice: BlockChoice, sizes: Sizes, edition: Edition
) -> EmbeddingHeadCost:
    """Return the cost of embedding and head, without MTP modules, for one microbatch."""

    def cost(segment: Segment) -> BlockCost:
        layout = BlockLayout(model, system, choice.layout, sizes, edition, segment.layers)
        result = block_cost(layout, choice)
        assert not result.axis_time.any(), "only blocks have collectives of further axes"
        return result

    embedding, head = cost(EMBEDDING), cost(HEAD)
    shape = BlockShape.of(model, choice.layout, sizes, edition)
    return EmbeddingHeadCost(
        embedding=embedding,
        head=head,
        modules=np.zeros_like(head.weight),
        table_gradient=choice.reduced_bytes * (shape.vocab_rows * model.hidden),
    )


def step_of_ends(choice: StepChoice) -> StepChoice:
    """Return the step choice of embedding and head, which use Adam instead of Muon and are never quantized.

    Source: Jordan et al. 2024; Liu et al., arXiv 2502.16982, section 2.2; for recipes see :func:`plain_layout`.
    """
    if choice.layout.fp8_recipe != NO_RECIPE:
        layout = replace(choice.layout, fp8_recipe=NO_RECIPE, fp8_param_gather=False)
        choice = replace(choice, layout=layout)
    return replace(choice, optimizer="adam") if choice.optimizer == "muon" else choice


def embedding_head_step(
    model: Model, system: System, choice: StepChoice, sizes: Sizes, shards: Count, edition: Edition
) -> EmbeddingHeadStep:
    """Return the weights and optimizer step of embedding and head; `sizes` and `shards` have an entry for each step."""
    choice = step_of_ends(choice)
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


@record
class ApartStep(EmbeddingHeadStep):
    """Weights and optimizer steps of a model whose MTP modules may be on another stage.

    Attributes:
        losses: Weights of the last stage: the head, and the norms before the heads of modules.
        module: Optimizer step of a module, with its share of a copy of the table.
    """

    losses: VocabularyWeights
    module: OptimizerCost


@dataclass(frozen=True)
class EmbeddingHead:
    """Embedding and LM head of executions, which share a table if `tied`; `modules` is None without MTP.

    MTP modules may be `apart`, as blocks of another stage.
    """

    cost: EmbeddingHeadCost
    step: EmbeddingHeadStep
    tied: bool
    modules: ModuleWeights | None = None
    apart: bool = False

    def take(self, blocks: Array, steps: Array) -> "EmbeddingHead":
        """Return embedding and head of executions, by rows of blocks and of optimizer steps."""
        modules = None if self.modules is None else gather(self.modules, steps)
        cost, step = gather(self.cost, blocks), gather(self.step, steps)
        return EmbeddingHead(cost, step, self.tied, modules)

    def with_modules_apart(self) -> "EmbeddingHead":
        """Return embedding and head if MTP modules are blocks of another stage; only their heads are with the loss."""
        cost: Any = self.cost
        step: Any = self.step
        here = changed(cost, head=cost.losses, modules=cost.losses_of_modules)
        return EmbeddingHead(here, changed(step, last=step.losses), self.tied, apart=True)

    @property
    def module(self) -> tuple[BlockCost, OptimizerCost]:
        """An MTP module as a block of another stage than the loss, and its optimizer step."""
        cost: Any = self.cost
        step: Any = self.step
        return cost.module, step.module

    def on_stages(self, piped: Array) -> "EmbeddingHead":
        """Return embedding and head without the copy of the embedding that MTP modules have if stages are several.

        `piped` says for which executions the ends are on different stages. A tied model has no such copy.
        """
        if self.modules is None or self.tied:
            return self

        def last_or_alone(last: Bytes, alone: Bytes) -> Bytes:
            return np.where(piped, last, alone)

        last = joint_view([self.step.last, self.modules.alone], last_or_alone)
        return replace(self, step=changed(self.step, last=last))

    def synced(self, reduced: Array, schedule: Schedule | None = None) -> SyncedEmbeddingHead:
        """Return gradient and parameter bytes of data parallelism; `reduced` is gradient bytes per byte of weights.

        Routed experts of MTP modules may have their own replica groups. With a `schedule`, their bytes are scaled by
        the ratio of the traffic of both rings, ``(n - 1) / n`` each, instead of being a class of their own.
        """
        fewer: Bytes = np.zeros(1)
        if self.modules is not None and schedule is not None and schedule.has_separate_experts:
            own, every = schedule.expert_data_par, np.maximum(schedule.data_ranks, 2.0)
            ratio = np.where(schedule.separate_experts, (1 - 1 / own) / (1 - 1 / every), 1.0)
            fewer = (1 - ratio) * self.modules.experts

        def of(held: VocabularyWeights, fewer: Bytes | None = None) -> SyncedBytes:
            weight = held.weight if fewer is None else held.weight - fewer
            return SyncedBytes(weight=weight, gradient=weight * reduced)

        return SyncedEmbeddingHead(
            first=of(self.step.first),
            last=of(self.step.last, fewer),
            both=of(self.step.both, fewer),
            tied=self.tied,
        )

    @property
    def shared_table(self) -> SharedTable | None:
        """Gradient that the copies of a table exchange once per batch; None unless tied or with MTP.

        Copies are on the first stage, with a tied head, and with MTP modules. Source: Megatron-LM,
        ``get_embedding_ranks`` of ``pretrain_gpt.py``, the ranks of the embedding group.
        """
        if not (self.tied or self.modules is not None or self.apart):
            return None
        return SharedTable(self.cost.table_gradient, 2 + (self.tied and self.apart))

    @property
    def head_backward(self) -> Seconds:
        """Backward time of head and loss for one microbatch, without communication."""
        head = self.cost.head
        time: Seconds = head.agrad.time + head.wgrad.time
        return time if self.modules is None else time + head.re.time

    def forward(self, end: BlockCost) -> Seconds:
        """Forward time of embedding or head for a microbatch, exposed communication included."""
        time: Seconds = end.fw.time + end.collectives.fw_tp.time_exposed[0]
        if self.modules is not None and FURTHER_NAMES:
            time = time + axes_of_modules(end)[:, 0].sum(axis=0)
        return time

    def backward(self, end: BlockCost) -> Seconds:
        """Backward time of embedding or head for a microbatch, exposed communication and recomputation included."""
        time: Seconds = end.agrad.time + end.wgrad.time + end.collectives.agrad_tp.time_exposed[0]
        if self.modules is not None:
            time = time + end.re.time + end.collectives.recomm.time_exposed[0]
            if FURTHER_NAMES:
                time = time + axes_of_modules(end)[:, 1:].sum(axis=(0, 1))
        return time


class EmbeddingHeadTimes:
    """Times per batch of embedding and LM head on the slowest stage, each computed when it is first needed.

    Args:
        slowest: For stages that differ, whether the slowest is the first, and whether it is the last; None if stages
            differ by their ends only.
        added: Time that gradient accumulation adds to a microbatch of the embedding, and of the head.
    """

    def __init__(
        self,
        embedding_head: EmbeddingHead,
        schedule: Schedule,
        slowest: tuple[Array, Array] | None = None,
        added: tuple[Seconds, Seconds] | None = None,
    ):
        self._embedding_head, self._schedule, self._slowest = embedding_head, schedule, slowest
        self._added = added

    @cached_property
    def piped(self) -> Array:
        """Mask of the executions with embedding and LM head on different stages."""
        return self._schedule.separate_ends

    def _whole(self, end: BlockCost) -> Seconds:
        """Return the time of embedding or head for one microbatch, with recomputation and exposed communication."""
        exposed: Seconds = (
            end.collectives.fw_tp.time_exposed[0] + end.collectives.agrad_tp.time_exposed[0]
        )
        time: Seconds = end.fw.time + end.agrad.time + end.wgrad.time + exposed
        if self._embedding_head.modules is not None:
            time = time + end.re.time + end.collectives.recomm.time_exposed[0]
            if FURTHER_NAMES:
                time = time + axes_of_modules(end).sum(axis=(0, 1))
        return time

    @cached_property
    def embedding(self) -> Seconds:
        """Time of the embedding for one microbatch."""
        return self._whole(self._embedding_head.cost.embedding)

    @cached_property
    def head(self) -> Seconds:
        """Time of head and loss for one microbatch, MTP modules included."""
        return self._whole(self._embedding_head.cost.head)

    @property
    def modules(self) -> Seconds:
        """Time of MTP modules for one microbatch."""
        time: Seconds = self._embedding_head.cost.modules
        return time

    @cached_property
    def _slower_is_embedding(self) -> Array:
        """Mask: a microbatch takes longer in the embedding than in the head, gradient accumulation included."""
        if self._added is None:
            return self.embedding > self.head
        of_embedding, of_head = self._added
        return self.embedding + of_embedding > self.head + of_head

    def of_slower(self, embedding: Array, head: Array) -> Array:
        """Return the quantity of the slower of embedding and head; of both if they are on one stage.

        For stages that differ, it is the quantity on the slowest stage: 0 unless that is the first or the last. A rank
        of a folded schedule that has both ends is of the last kind.
        """
        if self._slowest is not None:
            first, last = self._slowest
            if self._schedule.choice.folded:
                return np.where(last, embedding + head, 0.0)
            slower = np.where(first, embedding, np.where(last, head, 0.0))
        else:
            slower = np.where(self._slower_is_embedding, embedding, head)
        return np.where(self.piped, slower, embedding + head)

    def of_faster(self, embedding: Array, head: Array) -> Array:
        """Return the quantity of the faster of embedding and head; 0 if they are on one stage."""
        faster = np.where(self._slower_is_embedding, head, embedding)
        return np.where(self.piped, faster, 0.0)

    def _batch_sum(self, embedding: Array, head: Array) -> Array:
        """Sum :meth:`of_slower` over the microbatches of a batch."""
        return self._schedule.microbatches * self.of_slower(embedding, head)

    @cached_property
    def forward(self) -> Seconds:
        """Forward computation."""
        cost = self._embedding_head.cost
        return self._batch_sum(cost.embedding.fw.time, cost.head.fw.time)

    @cached_property
    def backward(self) -> Seconds:
        """Backward computation."""
        embedding, head = self._embedding_head.cost.embedding, self._embedding_head.cost.head
        return self._batch_sum(
            embedding.agrad.time + embedding.wgrad.time, head.agrad.time + head.wgrad.time
        )

    def _of_modules(self, quantity: Callable[[BlockCost], Array]) -> Array:
        """Sum over the batch a quantity that embedding and head have only with MTP modules."""
        if self._embedding_head.modules is None:
            return np.zeros(1)
        found = quantity(self._embedding_head.cost.head)
        return self._batch_sum(np.zeros_like(found), found)

    def _of_axes(self, quantity: Callable[[BlockCost], Array]) -> Array:
        """Sum a quantity of MTP modules over the batch for each further axis, its first axis.

        Axis by axis, because the slower end may be an array of more dimensions than the quantity.
        """
        count = len(quantity(self._embedding_head.cost.head))
        sums = [self._of_modules(partial(_member, quantity, i)) for i in range(count)]
        return np.stack(np.broadcast_arrays(*sums))

    @cached_property
    def recompute(self) -> Seconds:
        """Recomputation, which only MTP modules have."""
        return self._of_modules(lambda end: end.re.time)

    @cached_property
    def repeated_link(self) -> Seconds:
        """Collectives that recomputation repeats, on the link."""
        return self._of_modules(lambda end: end.collectives.recomm.time[0])

    @cached_property
    def repeated_exposed(self) -> Seconds:
        """Exposed collectives that recomputation repeats."""
        return self._of_modules(lambda end: end.collectives.recomm.time_exposed[0])

    @cached_property
    def further_axes(self) -> Seconds:
        """Collectives of further axes of parallelism, on the link; the first array axis is over these."""
        return self._of_axes(lambda end: end.axis_time.sum(axis=1))

    @cached_property
    def further_axes_exposed(self) -> Seconds:
        """Exposed collectives of further axes of parallelism; the first array axis is over these."""
        return self._of_axes(lambda end: axes_of_modules(end).sum(axis=1))

    @cached_property
    def expert_bytes(self) -> Bytes:
        """Bytes of collectives over groups of experts, of the modules' blocks: inside of nodes, and between them."""
        return self._of_modules(lambda end: end.expert_bytes)

    @cached_property
    def tensor_exposed(self) -> Seconds:
        """Exposed tensor-parallel collectives; only the blocks of MTP modules hide some."""
        if self._embedding_head.modules is None:
            return self.tensor_link
        embedding, head = self._embedding_head.cost.embedding, self._embedding_head.cost.head

        def exposed(end: BlockCost) -> Seconds:
            collectives = end.collectives
            time: Seconds = collectives.fw_tp.time_exposed[0] + collectives.agrad_tp.time_exposed[0]
            return time

        return self._batch_sum(exposed(embedding), exposed(head))

    @cached_property
    def tensor_link(self) -> Seconds:
        """Tensor-parallel collectives, on the link."""
        embedding, head = self._embedding_head.cost.embedding, self._embedding_head.cost.head
        return self._batch_sum(
            embedding.collectives.fw_tp.time[0] + embedding.collectives.agrad_tp.time[0],
            head.collectives.fw_tp.time[0] + head.collectives.agrad_tp.time[0],
        )

    @cached_property
    def fill(self) -> Seconds:
        """Time of the faster of the two, which delays a batch once while the pipeline fills and drains."""
        return self.of_faster(self.embedding, self.head)

    def least(self) -> Seconds:
        """Return the least time that the ends add, over tensor-parallel networks: the first axis of their costs."""
        both = self._batch_sum(self.embedding, self.head) + self.fill
        return np.asarray(both.min(axis=0))

    @cached_property
    def steps(self) -> tuple[Seconds, Seconds]:
        """Optimizer steps of the ends on the first and on the last stage; on a single stage, of both."""
        step = self._embedding_head.step
        both = step.both.optimizer.step.time
        first, last = (end.optimizer.step.time for end in (step.first, step.last))
        return np.where(self.piped, first, both), np.where(self.piped, last, both)

    @cached_property
    def step(self) -> Seconds:
        """The longer of the optimizer steps of the ends."""
        return np.maximum(*self.steps)

    @cached_property
    def useful_flops(self) -> Flops:
        """FLOP of the ends in a batch without recomputation, the mean over all stages."""
        embedding, head = self._embedding_head.cost.embedding, self._embedding_head.cost.head

        def flops(end: BlockCost) -> Flops:
            return end.fw.flops + end.agrad.flops + end.wgrad.flops

        schedule = self._schedule
        useful: Flops = schedule.microbatches * (flops(embedding) + flops(head))
        return useful / schedule.ranks


def _member(quantity: Callable[[BlockCost], Array], place: int, end: BlockCost) -> Array:
    """Return an entry of a quantity along its first axis."""
    result: Array = quantity(end)[place]
    return result
