"""The cost of the optimizer step of a block, and what waits for it."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from calculon.architecture.layer import Layer, Number
from calculon.architecture.optimizer import (
    NEWTON_SCHULZ_STEPS,
    Matrices,
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
from calculon.arrays import ordered_sum
from calculon.cost.layer_cost import LayerTable
from calculon.editions.edition import Edition
from calculon.hardware.system import System
from calculon.records import apply, record
from calculon.spec.scope_choices import StepChoice
from calculon.statistics import Work
from calculon.units import Bytes, Count, Elements, Flops, Seconds


@record
class OptimizerCost:
    """The optimizer step of one block, and what waits for it; last axis (tensor degree, shards)."""

    step: Work
    weight: Bytes
    weight_grad: Bytes
    state: Bytes


def parameters_of(table: LayerTable, shape: BlockShape, choice: StepChoice) -> Parameters:
    """Return the weights of laid-out layers as their optimizer sees them."""
    if not choice.steps_by_matrix:
        return Parameters(table.weights)
    rows, columns = np.zeros_like(table.weights), np.zeros_like(table.weights)
    for i, layer in enumerate(table.layers):
        if sides := weight_sides(layer):
            rows[i], columns[i] = sides
    ranks = shape.tensor_par  # split one side; every matrix has the residual stream at the other
    by_rows = columns == shape.model.hidden
    whole = np.where(by_rows, rows * ranks, rows), np.where(by_rows, columns, columns * ranks)
    share = np.zeros_like(table.weights) + 1 / ranks
    matrices = Matrices(
        rows * columns, rows + columns, np.minimum(*whole), np.maximum(*whole), share
    )
    return Parameters(table.weights, matrices)


def weight_sides(layer: Layer) -> tuple[Number, Number] | None:
    """Rows and columns of the weight matrix of a layer; products of two activations have none."""
    if layer.product is not None and np.any(np.asarray(layer.weights) > 0):
        return layer.product.n, layer.product.k
    return layer.table


def optimizer_cost(
    parameters: Parameters, shards: Count, system: System, choice: StepChoice, edition: Edition
) -> OptimizerCost:
    """Cost the optimizer step of a block from the weights of its layers, of shape (layers, steps)."""
    if not choice.training:
        parameters = Parameters(0 * parameters.weights)
    step = optimizer_layers(parameters, shards, system, choice, edition)
    return apply(ordered_sum, [step])


def optimizer_layers(
    parameters: Parameters, shards: Count, system: System, choice: StepChoice, edition: Edition
) -> OptimizerCost:
    """Cost the optimizer step of each layer: on the vector engine, matrix products on theirs."""
    weights = parameters.weights
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
    memory = system.move_time(accessed)
    if choice.grad_clip or choice.main_grad:  # passes of their own, each at the rate of its size
        alone = replace(choice, grad_clip=False, main_grad=False)
        within = step_bytes(fused, parameters, width, alone, shards)
        memory = system.move_time(within) + system.move_time(accessed - within)
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
    return OptimizerCost(
        step=step,
        weight=resident_weight_bytes(weights, choice, shards),
        weight_grad=_waiting(gradients, sharded, weights, shards, choice),
        state=state,
    )


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
