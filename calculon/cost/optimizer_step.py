"""The optimizer step of a block: its work, and the memory of weights, gradients and optimizer state."""

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
from calculon.base.arrays import is_shared_zeros, ordered_sum, shared_zeros
from calculon.base.record_arrays import apply
from calculon.base.records import record
from calculon.base.units import Bytes, Count, Elements, Flops, Seconds
from calculon.cost.layer_cost import LayerTable
from calculon.declarations.scope_choices import StepChoice
from calculon.declarations.statistics import Work
from calculon.editions.edition import Edition
from calculon.hardware.system import System


@record
class OptimizerCost:
    """The optimizer step of one block; the last axis is over distinct steps (tensor degree, shards, ...).

    Attributes:
        step: FLOP, bytes and time of the step.
        weight: Bytes of weights that stay on a rank.
        weight_grad: Bytes of gradients that a rank keeps until the step.
        state: Bytes of optimizer state, master weights included.
        expert_weight, expert_weight_grad, expert_state: The parts of routed experts; 0 without experts.
    """

    step: Work
    weight: Bytes
    weight_grad: Bytes
    state: Bytes
    expert_weight: Bytes
    expert_weight_grad: Bytes
    expert_state: Bytes


def parameters_of(table: LayerTable, shape: BlockShape, choice: StepChoice) -> Parameters:
    """Return the weights of the layers of a table with all that their optimizer step depends on."""
    experts, narrow = _experts(table, shape), _quantized(table, shape, choice)
    if not choice.steps_by_matrix:
        return Parameters(table.weights, None, experts, narrow)
    rows, columns = np.zeros_like(table.weights), np.zeros_like(table.weights)
    count = np.ones_like(table.weights)
    for i, layer in enumerate(table.layers):
        if sides := weight_sides(layer):
            rows[i], columns[i] = sides
            count[i] = layer.product.batch if layer.product is not None else 1
    # Muon needs whole matrices. Tensor parallelism splits one side: the one that is not the residual stream. Matrices
    # of latents (MLA) are replicated.
    replicated = np.array([[layer.replicated] for layer in table.layers])
    ranks = np.where(replicated, 1.0, shape.tensor_par)
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


def _quantized(table: LayerTable, shape: BlockShape, choice: StepChoice) -> Narrow | None:
    """Return the bytes that quantizing weights moves after a step; None if a step quantizes nothing.

    Weights that are gathered for each pass are quantized there (:func:`~calculon.cost.copies.with_conversion`).
    """
    recipe, stored = shape.recipe, float(shape.dtype_bytes)
    if recipe is None or not recipe.cached or choice.splits_weights:
        return None
    written, moved = stored, recipe.conversion(stored)
    if choice.layout.fp8_param_gather:
        written, moved = recipe.gathered(stored)
    quantized = np.zeros((len(table.layers), 1))
    quantized[table.quantized_rows] = 1.0
    return Narrow(moved * quantized, (stored - written) * quantized)


def _experts(table: LayerTable, shape: BlockShape) -> Experts | None:
    """Return the layers that are routed experts, and their copies in a tensor-parallel group; None without experts."""
    if not shape.model.mixes:
        return None
    layers = np.array([[layer.expert] for layer in table.layers])
    if not layers.any():
        return None
    sizes = shape.sizes
    # below 1 if a group of experts spans several tensor-parallel groups
    copies = shape.tensor_par / (sizes.expert_par * sizes.expert_tensor_par)
    if np.all(copies == 1):
        return Experts(layers, None)
    return Experts(layers, np.where(layers, copies, 1.0))


def weight_sides(layer: Layer) -> tuple[Number, Number] | None:
    """Return rows and columns of a layer's weight matrix, or of each expert's; None if the layer has no matrix."""
    if layer.product is not None and np.any(np.asarray(layer.weights) > 0):
        return layer.product.n, layer.product.k
    return layer.table


def optimizer_cost(
    parameters: Parameters, shards: Count, system: System, choice: StepChoice, edition: Edition
) -> OptimizerCost:
    """Return the sum of :func:`optimizer_layers` over the layers of a block; 0 for inference."""
    if not choice.training:
        parameters = Parameters(0 * parameters.weights, None, parameters.experts)
    step = optimizer_layers(parameters, shards, system, choice, edition)
    return apply(
        lambda sizes: shared_zeros() if is_shared_zeros(sizes) else ordered_sum(sizes), [step]
    )


def optimizer_layers(
    parameters: Parameters, shards: Count, system: System, choice: StepChoice, edition: Edition
) -> OptimizerCost:
    """Return the cost of the optimizer step of each layer: shape (layers, steps).

    Element-wise arithmetic is on the vector engine, and Muon's products are on the matrix engine. `shards` is the
    number of ranks that share optimizer state, by step; routed experts have their own number.
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
    update = accessed
    if (
        choice.grad_clip or choice.main_grad
    ):  # separate kernels before the update, whose bandwidth depends on size
        update_choice = replace(choice, grad_clip=False, main_grad=False)
        update = step_bytes(fused, parameters, width, update_choice, shards)
    accessed, memory = _memory_time(accessed, update, parameters, shards, system)
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
    kept_gradients = _kept_gradients(gradients, sharded, weights, shards, choice)

    def of_experts(size: Bytes) -> Bytes:
        if parameters.experts is None:
            return shared_zeros(1)
        return np.where(parameters.experts.layers, size, 0)

    return OptimizerCost(
        step=step,
        weight=weight,
        weight_grad=kept_gradients,
        state=state,
        expert_weight=of_experts(weight),
        expert_weight_grad=of_experts(kept_gradients),
        expert_state=of_experts(state),
    )


def _memory_time(
    total: Bytes, update: Bytes, parameters: Parameters, shards: Count, system: System
) -> tuple[Bytes, Seconds]:
    """Return the bytes that a step moves, and their time.

    They are moved by passes before the update (gradient clipping, main gradients), the `update` itself, and the
    quantization of new weights. Each has the bandwidth of its size.
    """
    weights, quantized = parameters.weights, parameters.narrow
    before = total - update
    if quantized is not None:
        unwritten = quantized.unwritten * weights / shards
        total, update = total - unwritten, update - unwritten
    time = system.move_time(update)
    if before.any():
        time = time + system.move_time(before)
    if quantized is None:
        return total, time
    moved = quantized.conversion * weights
    return total + moved, time + system.move_time(moved)


def _kept_gradients(
    whole: Bytes, sharded: Bytes, weights: Elements, shards: Count, choice: StepChoice
) -> Bytes:
    """Return the bytes of gradients that a rank keeps: all or its shard, in one or two types.

    Source: the bfloat16 optimizers of DeepSpeed and Megatron-LM keep gradients of 2 bytes and their sums of 4 bytes.
    """
    whole_gradients = choice.whole_gradients
    kept = whole if whole_gradients else sharded
    if small := choice.added_gradient_bytes:
        kept = kept + small * weights / (1 if whole_gradients else shards)
    return kept


class _Products(NamedTuple):
    """Matrix products of an optimizer step."""

    flops: Flops
    time: Seconds


def _newton_schulz(
    matrices: Matrices, shards: Count, system: System, choice: StepChoice
) -> _Products:
    """Return the cost of Muon's Newton-Schulz iterations, in bfloat16 if the engine has it (Jordan et al. 2024).

    Products are of whole matrices, at the rate of their size. Ranks share the matrices evenly (arXiv 2502.16982,
    section 2.3). The gather of the matrices and the memory traffic of the products are not counted.
    """
    wide, square = newton_schulz(matrices)
    engine = system.matrix.get("bfloat16", system.matrix[choice.layout.datatype])
    share = NEWTON_SCHULZ_STEPS * matrices.share / shards
    return _Products(
        flops=(2 * wide + square) * share,
        time=(2 * engine.time(wide) + engine.time(square)) * share,
    )
