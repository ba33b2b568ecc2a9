"""The cost of the optimizer step of a block, and what waits for it."""

from calculon.cost.layer import ordered_sum
from calculon.edition import Edition
from calculon.hardware.system import System
from calculon.layers.optimizer import adam_bytes, adam_flops
from calculon.plan.choice import Choice
from calculon.records import apply, record
from calculon.statistics import Work
from calculon.units import Array, Bytes, Count, Elements


@record
class OptimizerCost:
    """The optimizer step of one block, and what waits for it; last axis (tensor degree, shards)."""

    step: Work
    weight_grad: Bytes
    state: Bytes


def optimizer_cost(
    weights: Elements, shards: Count, system: System, choice: Choice, edition: Edition
) -> OptimizerCost:
    """Cost the optimizer step of a block from the weights of its layers, of shape (layers, steps)."""
    step = optimizer_layers(weights * choice.training, shards, system, choice, edition)
    return apply(ordered_sum, [step])


def optimizer_layers(
    weights: Array, shards: Count, system: System, choice: Choice, edition: Edition
) -> OptimizerCost:
    """Cost the optimizer step of each layer, on the vector engine."""
    flops = adam_flops(weights, shards)
    state = adam_bytes(weights, choice.dtype_bytes, shards)
    gradients = edition.gradient_bytes(weights, choice, shards)
    accessed = edition.optimizer_traffic(state, gradients, weights, choice, shards)
    arithmetic = system.vector[choice.datatype].time(flops)
    memory = system.mem1.time(accessed)
    step = Work(
        flops=flops,
        flops_time=arithmetic,
        mem_accessed=accessed,
        mem_time=memory,
        time=system.combine(arithmetic, memory),
    )
    return OptimizerCost(step=step, weight_grad=gradients, state=state)
