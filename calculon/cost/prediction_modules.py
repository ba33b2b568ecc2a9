"""Modules that predict further tokens, on the last pipeline stage: part of what it has beside its blocks.

Each looks its tokens up in the embedding, joins them with the hidden states, passes a block, and uses head and loss
again. Its block runs as the others do. The logits of all heads are kept until the losses are known, since all losses
are added up before the backward pass. Source: DeepSeek-V3, arXiv 2412.19437, section 2.2; Megatron-LM,
``core/transformer/multi_token_prediction.py``.
"""

from dataclasses import replace

import numpy as np

from calculon.architecture.optimizer import Parameters
from calculon.architecture.segments import EMBEDDING, HEAD, LOGITS, Segment, prediction_module
from calculon.architecture.shape import BlockShape, Sizes
from calculon.base.arrays import ordered_sum
from calculon.base.records import apply
from calculon.base.units import Array, Count, Seconds
from calculon.cost.block_cost import BlockCost, BlockLayout, axes_of_modules, block_cost
from calculon.cost.embedding_head import (
    EmbeddingHeadCost,
    EmbeddingHeadStep,
    ModuleWeights,
    VocabularyWeights,
    step_of_ends,
)
from calculon.cost.layer_cost import LayerTable, laid_out
from calculon.cost.mixture import partly_recomputed
from calculon.cost.optimizer_step import optimizer_cost, parameters_of
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
    """Add the modules that a model has to its head; `choice` is that of its blocks, `layout` that of a module.

    In the result ``head.act_storage`` is what waits for the backward pass of the modules of a microbatch.
    """
    own = _module_cost(choice, layout)
    head = _joined(ends.head, ends.embedding, own, module.count, choice)
    looked_up = LayerTable(EMBEDDING.layers(layout.shape), layout.none.size).weights
    return EmbeddingHeadCost(
        embedding=ends.embedding,
        head=head,
        modules=_whole(head) - _whole(ends.head),
        table_gradient=choice.reduced_bytes * ordered_sum(looked_up),
    )


def module_choice(choice: BlockChoice) -> BlockChoice:
    """Return the choice of blocks as it is for a module: nothing runs beside the exchange of its experts."""
    return replace(choice, ep_overlap="none", delay_wgrad=False, moe_shared_overlap=False)


def _module_cost(choice: BlockChoice, layout: BlockLayout) -> BlockCost:
    """Cost what is a module's own; where some blocks recompute, the mean of both kinds, as of blocks."""
    choice = module_choice(choice)
    found, sizes = block_cost(layout, choice), layout.sizes
    if (sizes.recompute_every > 1).any() and choice.recomputes:
        stored = replace(choice, activation_recompute="none", recompute_modules="none")
        found = partly_recomputed(found, block_cost(layout, stored), sizes)
    return found


def _joined(
    head: BlockCost, embedding: BlockCost, own: BlockCost, count: int, choice: BlockChoice
) -> BlockCost:
    """Return the cost of a head and of so many modules behind it.

    Memory is that of the fuller moment: at a loss, with the logits of all heads and what all modules keep; or in the
    backward pass of the first module that has one, when heads are done.
    """

    def added(*parts: Array) -> Array:
        first, second, third = parts
        return first + count * (first + second + third)

    kept = CHECKPOINTS * own.act_checkpoint if choice.recompute_all else own.act_storage
    others = count if choice.recompute_all else count - 1  # checkpoints are beside the whole
    at_loss = (1 + count) * head.act_working + count * (embedding.act_storage + kept)
    at_block = own.act_working + count * embedding.act_storage + others * kept
    fuller = at_loss + head.act_grad > at_block + own.act_grad
    return replace(
        apply(added, [head, embedding, own]),
        act_working=np.where(fuller, at_loss, at_block),
        act_grad=np.where(fuller, head.act_grad, own.act_grad),
        act_storage=count * (embedding.act_storage + kept),
        tp_bandwidth_needed=own.tp_bandwidth_needed,
        pipeline_message=head.pipeline_message,
        matrix_peak=head.matrix_peak,
    )


def _whole(end: BlockCost) -> Seconds:
    """Time of an end for a microbatch, all passes and exposed collectives included."""
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
    """Add the weights of modules to those of the ends, one entry for each optimizer step; None where there are none.

    On a stage of its own the head has a copy of the embedding, with a state of its own; of a tied one it has the table
    already. Norms before the heads and what a module joins its inputs with are the module's.
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
    copy = parameters_of(LayerTable(EMBEDDING.layers(shape), columns), shape, plain)
    if model.tied:
        copy = copy.without(0, shape.vocab_rows * model.hidden)

    def held(parameters: Parameters, one: StepChoice) -> VocabularyWeights:
        return VocabularyWeights(
            weight=one.dtype_bytes * ordered_sum(parameters.weights),
            optimizer=optimizer_cost(parameters, shards, system, one, edition),
        )

    def added(*parts: Array) -> Array:
        first, second, third = parts
        return first + module.count * (second + third)

    each, final, copied = held(own, choice), held(norm, plain), held(copy, plain)
    alone = apply(added, [ends.last, each, final])
    modules = ModuleWeights(
        alone=alone,
        head=ends.last.weight,
        experts=module.count * choice.dtype_bytes * ordered_sum(_of_experts(own)),
        largest=np.maximum(np.maximum(ends.last.weight, copied.weight), each.weight),
    )
    step = EmbeddingHeadStep(
        first=ends.first,
        last=apply(np.add, [alone, copied]),
        both=apply(added, [ends.both, each, final]),
    )
    return step, modules
