"""The cost of the optimizer step of a block, and what waits for it."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from calculon.architecture.layer import Layer, Number
from calculon.architecture.optimizer import (
    NEWTON_SCHULZ_STEPS,
    Experts,
    Matrices,
    Narrow,
    Parameters,
    main_gradient_bytes,
    newton_schulz,
    optimizer_flops,
    resident_weight_bytes,
    state_bytes,
    step_bytes,
    step_kernels,
)
from calculon.architecture.shape import BlockShape
from calculon.base.arrays import is_nothing, nothing, ordered_sum
from calculon.base.records import apply, record
from calculon.base.units import Bytes, Count, Elements, Flops, Seconds
from calculon.cost.layer_cost import LayerTable
from calculon.declarations.scope_choices import StepChoice
from calculon.declarations.statistics import Work
from calculon.editions.edition import Edition
from calculon.hardware.system import System


@record
class OptimizerCost:
    """The optimizer step of one block, and what waits for it; last axis (tensor degree, shards).

    ``expert_weight``, ``expert_weight_grad`` and ``expert_state`` are the parts of routed experts; 0 without.
    """

    step: Work
    weight: Bytes
    weight_grad: Bytes
    state: Bytes
    expert_weight: Bytes
    expert_weight_grad: Bytes
    expert_state: Bytes


def parameters_of(table: LayerTable, shape: BlockShape, choice: StepChoice) -> Parameters:
    """Return the weights of laid-out layers as their optimizer sees them."""
    experts, narrow = _experts(table, shape), _narrow(table, shape, choice)
    if not choice.steps_by_matrix:
        return Parameters(table.weights, None, experts, narrow)
    rows, columns = np.zeros_like(table.weights), np.zeros_like(table.weights)
    count = np.ones_like(table.weights)
    for i, layer in enumerate(table.layers):
        if sides := weight_sides(layer):
            rows[i], columns[i] = sides
            count[i] = layer.product.batch if layer.product is not None else 1
    # split one side, of most matrices the one that is not the residual stream; latents have matrices that are whole
    whole_rows = np.array([[layer.replicated] for layer in table.layers])
    ranks = np.where(whole_rows, 1.0, shape.tensor_par)
    if experts is not None:
        ranks = np.where(experts.layers, shape.sizes.expert_tensor_par, ranks)
    stream: Count | int = shape.model.hidden
    if experts is not None and shape.model.moe_latent:
        stream = np.where(experts.layers, shape.model.moe_latent, stream)
    by_rows = columns == stream
    whole = np.where(by_rows, rows * ranks, rows), np.where(by_rows, columns, columns * ranks)
    share = count / ranks
    matrices = Matrices(
        count * rows * columns,
        count * (rows + columns),
        np.minimum(*whole),
        np.maximum(*whole),
        share,
    )
    return Parameters(table.weights, matrices, experts, narrow)


def _narrow(table: LayerTable, shape: BlockShape, choice: StepChoice) -> Narrow | None:
    """Return what a recipe makes of the weights after a step; None where passes make it, or nothing is made.

    Of weights that are gathered for each pass it is made there (:func:`~calculon.cost.copies.with_conversion`).
    """
    recipe, stored = shape.recipe, float(shape.dtype_bytes)
    if recipe is None or not recipe.cached or choice.splits_weights:
        return None
    written, moved = stored, recipe.conversion(stored)
    if choice.layout.fp8_param_gather:
        written, moved = recipe.gathered(stored)
    which = np.zeros((len(table.layers), 1))
    which[table.quantized_rows] = 1.0
    return Narrow(moved * which, (stored - written) * which)


def _experts(table: LayerTable, shape: BlockShape) -> Experts | None:
    """Return which layers are routed experts; None where none is."""
    if not shape.model.mixes:
        return None
    layers = np.array([[layer.expert] for layer in table.layers])
    if not layers.any():
        return None
    sizes = shape.sizes
    copies = shape.tensor_par / (sizes.expert_par * sizes.expert_tensor_par)
    if np.all(copies == 1):
        return Experts(layers, None)
    return Experts(layers, np.where(layers, copies, 1.0))


def weight_sides(layer: Layer) -> tuple[Number, Number] | None:
    """Rows and columns of the weight matrix of a layer, or of each expert's; products of two activations have none."""
    if layer.product is not None and np.any(np.asarray(layer.weights) > 0):
        return layer.product.n, layer.product.k
    return layer.table


def optimizer_cost(
    parameters: Parameters, shards: Count, system: System, choice: StepChoice, edition: Edition
) -> OptimizerCost:
    """Cost the optimizer step of a block from the weights of its layers, of shape (layers, steps)."""
    if not choice.training:
        parameters = Parameters(0 * parameters.weights, None, parameters.experts)
    step = optimizer_layers(parameters, shards, system, choice, edition)
    return apply(lambda sizes: nothing() if is_nothing(sizes) else ordered_sum(sizes), [step])


def optimizer_layers(
    parameters: Parameters, shards: Count, system: System, choice: StepChoice, edition: Edition
) -> OptimizerCost:
    """Cost the optimizer step of each layer: on the vector engine, matrix products on theirs.

    What replicas split of `shards` is in as many parts for most weights, experts apart.
    """
    weights, shards = parameters.weights, parameters.shards(shards)
    flops = optimizer_flops(parameters, choice, shards)
    arithmetic = system.vector_time(choice.layout.datatype, flops)
    state = state_bytes(parameters, choice, shards)
    width = edition.gradient_bytes(choice, shards)
    gradients = width * weights
    sharded = gradients / shards
    accessed = fused = edition.optimizer_traffic(state, sharded, weights, choice, shards)
    if not choice.plain_step:
        accessed = step_bytes(fused, parameters, width, choice, shards)
        state = state + main_gradient_bytes(weights, choice, shards)
    if choice.optimizer == "muon" and parameters.matrices is not None:
        products = _newton_schulz(parameters.matrices, shards, system, choice)
        flops, arithmetic = flops + products.flops, arithmetic + products.time
    within = accessed
    if choice.grad_clip or choice.main_grad:  # passes of their own, each at the rate of its size
        alone = replace(choice, grad_clip=False, main_grad=False)
        within = step_bytes(fused, parameters, width, alone, shards)
    accessed, memory = _moved(accessed, within, parameters, shards, system)
    time = system.combine(arithmetic, memory)
    if choice.optimizer_impl == "loop":
        kernels, launch = step_kernels(parameters, width, choice), system.ext.launch
        host = kernels * launch.host(choice.layout.launched)
        time = launch.bounded(time, kernels)
        time = time + host if choice.layout.blocking else np.maximum(time, host)
    step = Work(
        flops=flops,
        flops_time=arithmetic,
        mem_accessed=accessed,
        mem_time=memory,
        time=time,
    )
    weight = resident_weight_bytes(weights, choice, shards)
    waiting = _waiting(gradients, sharded, weights, shards, choice)

    def of_experts(size: Bytes) -> Bytes:
        if parameters.experts is None:
            return nothing(1)
        return np.where(parameters.experts.layers, size, 0)

    return OptimizerCost(
        step=step,
        weight=weight,
        weight_grad=waiting,
        state=state,
        expert_weight=of_experts(weight),
        expert_weight_grad=of_experts(waiting),
        expert_state=of_experts(state),
    )


def _moved(
    every: Bytes, within: Bytes, parameters: Parameters, shards: Count, system: System
) -> tuple[Bytes, Seconds]:
    """Return the bytes that a step moves, and their time: those `within` it, those of passes before, and of copies."""
    weights, narrow = parameters.weights, parameters.narrow
    before = every - within
    if narrow is not None:
        unwritten = narrow.unwritten * weights / shards
        every, within = every - unwritten, within - unwritten
    time = system.move_time(within)
    if before.any():
        time = time + system.move_time(before)
    if narrow is None:
        return every, time
    moved = narrow.conversion * weights
    return every + moved, time + system.move_time(moved)


def _waiting(
    whole: Bytes, sharded: Bytes, weights: Elements, shards: Count, choice: StepChoice
) -> Bytes:
    """Bytes of gradients that stay on a rank: whole or its share, with smaller ones beside sums of 4 bytes.

    Source: the bfloat16 optimizer of DeepSpeed and Megatron-LM with bfloat16 gradients keep 2 and 4 bytes.
    """
    whole_gradients = choice.whole_gradients
    waiting = whole if whole_gradients else sharded
    if small := choice.added_gradient_bytes:
        waiting = waiting + small * weights / (1 if whole_gradients else shards)
    return waiting


class _Products(NamedTuple):
    """Matrix products of a step."""

    flops: Flops
    time: Seconds


def _newton_schulz(
    matrices: Matrices, shards: Count, system: System, choice: StepChoice
) -> _Products:
    """Cost the products of Muon, which run in bfloat16 where the engine knows it (Jordan et al. 2024).

    Each is one of whole matrices, at their rate; owners of matrices share them evenly (arXiv 2502.16982, section 2.3).
    Gathering the matrices, and the memory traffic of products, are not counted.
    """
    wide, square = newton_schulz(matrices)
    engine = system.matrix.get("bfloat16", system.matrix[choice.layout.datatype])
    share = NEWTON_SCHULZ_STEPS * matrices.share / shards
    return _Products(
        flops=(2 * wide + square) * share,
        time=(2 * engine.time(wide) + engine.time(square)) * share,
    )
