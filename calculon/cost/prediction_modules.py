"""Multi-token-prediction (MTP) modules: part of the LM head on the last pipeline stage, or blocks of another stage.

Each module looks its tokens up in the embedding, joins them with the hidden states, runs a transformer block, and uses
head and loss again. All losses are summed before the backward pass, so that the logits of all heads are kept until
then. Modules on another stage than the loss have a copy of the embedding there; the last stage has the head, and
computes all losses from the hidden states that the modules send. Source: DeepSeek-V3, arXiv 2412.19437, section 2.2;
Megatron-LM, ``core/transformer/multi_token_prediction.py``, and *MTP standalone mode* in its user guide.
"""

from dataclasses import replace

import numpy as np

from calculon.architecture.optimizer import Parameters
from calculon.architecture.segments import EMBEDDING, HEAD, LOGITS, Segment, prediction_module
from calculon.architecture.shape import BlockShape, Sizes
from calculon.base.arrays import ordered_sum
from calculon.base.record_arrays import apply
from calculon.base.units import Array, Count, Seconds
from calculon.cost.block_cost import BlockCost, BlockLayout, axes_of_modules, block_cost
from calculon.cost.embedding_head import (
    ApartCost,
    ApartStep,
    EmbeddingHead,
    EmbeddingHeadCost,
    EmbeddingHeadStep,
    ModuleWeights,
    VocabularyWeights,
    step_of_ends,
)
from calculon.cost.layer_cost import LayerTable, laid_out
from calculon.cost.mixture import BlockKinds, partly_recomputed
from calculon.cost.optimizer_step import OptimizerCost, optimizer_cost, parameters_of
from calculon.declarations.model import Model
from calculon.declarations.scope_choices import BlockChoice, StepChoice
from calculon.editions.edition import Edition
from calculon.hardware.system import System

CHECKPOINTS = 2
"""Inputs of a module that full recomputation keeps: hidden states and embeddings."""


def with_modules(
    ends: EmbeddingHeadCost,
    module: Segment,
    choice: BlockChoice,
    layout: BlockLayout,
) -> EmbeddingHeadCost:
    """Return the cost of embedding and head with the MTP modules of a model.

    In the result, ``head.act_storage`` is the bytes that a microbatch stores until the backward pass of its modules.

    Args:
        module: The layers of a module, and the number of modules.
        choice: The choice of the model's blocks.
        layout: The layout of a module.
    """
    own = _module_cost(choice, layout)
    head = _joined(ends.head, ends.embedding, own, module.count, choice)
    losses = _losses(ends.head, module.count)
    looked_up = LayerTable(EMBEDDING.layers(layout.shape), layout.none.size).weights
    return ApartCost(
        embedding=ends.embedding,
        head=head,
        modules=whole_time(head) - whole_time(ends.head),
        table_gradient=choice.reduced_bytes * ordered_sum(looked_up),
        losses=losses,
        module=_apart(own, ends.embedding, module.count, choice),
        losses_of_modules=whole_time(losses) - whole_time(ends.head),
    )


def _losses(head: BlockCost, count: int) -> BlockCost:
    """Return the cost of the heads of a model and of its `count` modules, whose logits are all kept until the losses.

    The norms before the heads of modules are here, too; Megatron-LM has them on the stage of the modules.
    """
    return replace(
        apply(lambda each: (1 + count) * each, [head]),
        act_grad=head.act_grad,
        own_weight_grad=head.own_weight_grad,
        shared_weight_grads=head.shared_weight_grads,
        tp_bandwidth_needed=head.tp_bandwidth_needed,
        pipeline_message=head.pipeline_message,
        matrix_peak=head.matrix_peak,
    )


def _apart(own: BlockCost, embedding: BlockCost, count: int, choice: BlockChoice) -> BlockCost:
    """Return the cost of one of `count` modules as a block, with its share of their copy of the embedding."""
    names = ("weight", "weight_copies", "weight_grad_no_sharding", "gradient_message")
    shared = replace(
        embedding,
        forms=apply(lambda size: size / count, [embedding.forms]),
        **{name: getattr(embedding, name) / count for name in names},
    )
    kept = CHECKPOINTS * own.act_checkpoint if choice.recompute_all else own.act_checkpoint
    return replace(
        apply(np.add, [own, shared]),
        act_working=own.act_working + embedding.act_storage,
        act_checkpoint=kept,
        act_grad=own.act_grad,
        own_weight_grad=own.own_weight_grad,
        shared_weight_grads=own.shared_weight_grads,
        tp_bandwidth_needed=own.tp_bandwidth_needed,
        pipeline_message=own.pipeline_message,
        matrix_peak=own.matrix_peak,
    )


def with_modules_apart(
    embedding_head: EmbeddingHead,
    block: BlockCost,
    optimizer: OptimizerCost,
    kinds: BlockKinds | None,
) -> tuple[EmbeddingHead, BlockKinds]:
    """Return embedding, head and kinds of block if MTP modules are blocks of another stage than the loss.

    Modules are the last kind; `block` and `optimizer` are the only kind if `kinds` is None.
    """
    known = BlockKinds((block,), (optimizer,), (1,)) if kinds is None else kinds
    return embedding_head.with_modules_apart(), known.with_modules(embedding_head.module)


def module_choice(choice: BlockChoice) -> BlockChoice:
    """Return the block choice of a module, whose exchange of experts does not overlap."""
    return replace(choice, ep_overlap="none", delay_wgrad=False, moe_shared_overlap=False)


def _module_cost(choice: BlockChoice, layout: BlockLayout) -> BlockCost:
    """Return the cost of a module without embedding and head; the mean if only some of the blocks recompute."""
    choice = module_choice(choice)
    cost, sizes = block_cost(layout, choice), layout.sizes
    if (sizes.recompute_every > 1).any() and choice.recomputes:
        stored = replace(choice, activation_recompute="none", recompute_modules="none")
        cost = partly_recomputed(cost, block_cost(layout, stored), sizes)
    return cost


def _joined(
    head: BlockCost, embedding: BlockCost, own: BlockCost, count: int, choice: BlockChoice
) -> BlockCost:
    """Return the cost of a head with `count` modules, each of which has its `own` part, an embedding and a head.

    Memory peaks at a loss, with the logits of all heads and the stored activations of all modules, or in the backward
    pass of the last module, when the logits are freed.
    """

    def total(head: Array, embedding: Array, own: Array) -> Array:
        return head + count * (head + embedding + own)

    kept = CHECKPOINTS * own.act_checkpoint if choice.recompute_all else own.act_storage
    # stored activations of the module at work are part of its working set, checkpoints are not
    others = count if choice.recompute_all else count - 1
    at_loss = (1 + count) * head.act_working + count * (embedding.act_storage + kept)
    at_module = own.act_working + count * embedding.act_storage + others * kept
    loss_peaks = at_loss + head.act_grad > at_module + own.act_grad
    return replace(
        apply(total, [head, embedding, own]),
        act_working=np.where(loss_peaks, at_loss, at_module),
        act_grad=np.where(loss_peaks, head.act_grad, own.act_grad),
        act_storage=count * (embedding.act_storage + kept),
        own_weight_grad=head.own_weight_grad,
        tp_bandwidth_needed=own.tp_bandwidth_needed,
        pipeline_message=head.pipeline_message,
        matrix_peak=head.matrix_peak,
    )


def whole_time(end: BlockCost) -> Seconds:
    """Return the time of a head or a module for a microbatch: all passes and exposed collectives."""
    parts = end.collectives
    time: Seconds = end.fw.time + end.agrad.time + end.wgrad.time + end.re.time
    for one in (parts.fw_tp, parts.agrad_tp, parts.recomm):
        time = time + one.time_exposed[0]
    return time + axes_of_modules(end).sum(axis=(0, 1))


def _of_experts(parameters: Parameters) -> Array:
    """Return the weights of routed experts, by layer."""
    weights, experts = parameters.weights, parameters.experts
    return np.zeros_like(weights) if experts is None else weights * experts.layers


def step_with_modules(
    ends: EmbeddingHeadStep,
    model: Model,
    system: System,
    choice: StepChoice,
    sizes: Sizes,
    shards: Count,
    edition: Edition,
) -> tuple[EmbeddingHeadStep, ModuleWeights] | None:
    """Return the weights of embedding and head with MTP modules, by optimizer step; None if the model has no modules.

    On a separate stage, the head has a copy of the embedding with its own optimizer state; a tied head is the table
    itself. The norm before its head and the projection of its inputs belong to each module.
    """
    module = prediction_module(model)
    if module is None:
        return None
    layout, columns = choice.layout, sizes.tensor_par.size
    transposes = system.transposes(layout.fp8_recipe)
    shape, table = laid_out(model, layout, sizes, edition, module.layers, transposes=transposes)
    own = parameters_of(table, shape, choice)
    plain = step_of_ends(choice)
    shape = BlockShape.of(model, plain.layout, sizes, edition)
    layers = LayerTable(HEAD.layers(shape), columns)
    logits = [layer.name for layer in layers.layers].index(LOGITS)
    head = parameters_of(layers, shape, plain)
    norm = head.without(logits, head.weights[logits])
    copy = every = parameters_of(LayerTable(EMBEDDING.layers(shape), columns), shape, plain)
    if model.tied:
        copy = every.without(0, shape.vocab_rows * model.hidden)

    def held(parameters: Parameters, choice: StepChoice) -> VocabularyWeights:
        return VocabularyWeights(
            weight=choice.dtype_bytes * ordered_sum(parameters.weights),
            optimizer=optimizer_cost(parameters, shards, system, choice, edition),
        )

    def total(head: Array, each: Array, final: Array) -> Array:
        return head + module.count * (each + final)

    each, final, copied = held(own, choice), held(norm, plain), held(copy, plain)
    alone = apply(total, [ends.last, each, final])
    modules = ModuleWeights(
        alone=alone,
        head=ends.last.weight,
        experts=module.count * choice.dtype_bytes * ordered_sum(_of_experts(own)),
        largest=np.maximum(np.maximum(ends.last.weight, copied.weight), each.weight),
    )
    whole = held(every, plain)
    step = ApartStep(
        first=ends.first,
        last=apply(np.add, [alone, copied]),
        both=apply(total, [ends.both, each, final]),
        losses=apply(lambda head, norm: head + module.count * norm, [ends.last, final]),
        module=apply(
            lambda each, table: each + table / module.count, [each.optimizer, whole.optimizer]
        ),
    )
    return step, modules
