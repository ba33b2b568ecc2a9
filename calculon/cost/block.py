"""The cost of one block for one microbatch: sums over its layers."""

import numpy as np

from calculon.cost.layer import LayerCost, LayerTable, layer_cost, ordered_sum
from calculon.edition import Edition
from calculon.hardware.system import System
from calculon.layers.layer import PHASES
from calculon.layers.optimizer import adam_bytes, adam_flops
from calculon.parallel.tensor import PASSES
from calculon.plan.choice import Choice, Sizes
from calculon.records import record
from calculon.spec.model import Model
from calculon.statistics import Communication, TensorMessages, Work
from calculon.transformer.block import block_layers
from calculon.transformer.shape import BlockShape
from calculon.units import (
    Array,
    Bytes,
    BytesPerSecond,
    Count,
    Elements,
    Flops,
    FlopsPerSecond,
    Seconds,
)

UNSHARDED_GRADIENT_BYTES = 4


@record
class BlockCost:
    """One transformer block, one microbatch; all arrays have *blocks* as the last axis.

    Attributes
    ----------
    pipeline_message : array
        Bytes that a block would hand to the next stage.
    matrix_peak : array
        Peak rate of the matrix engine in this block's datatype.
    """

    fw: Work
    re: Work
    agrad: Work
    wgrad: Work
    fw_tp: Communication
    agrad_tp: Communication
    recomm: Communication
    tensor_messages: TensorMessages
    tp_bandwidth_needed: BytesPerSecond
    weight: Bytes
    act_working: Bytes
    act_storage: Bytes
    act_checkpoint: Bytes
    act_grad: Bytes
    weight_grad_no_sharding: Bytes
    pipeline_message: Bytes
    matrix_peak: FlopsPerSecond


@record
class OptimizerCost:
    """The optimizer step of one block, and what waits for it; last axis (tensor degree, shards)."""

    step: Work
    weight_grad: Bytes
    state: Bytes


def layer_table(model: Model, choice: Choice, sizes: Sizes, edition: Edition) -> LayerTable:
    """Lay out the layers of a block for a column of sizes."""
    return LayerTable(block_layers(model, choice, sizes, edition), sizes.tensor_par.size)


def block_cost(
    model: Model,
    system: System,
    choice: Choice,
    sizes: Sizes,
    edition: Edition,
    table: LayerTable,
) -> BlockCost:
    """Cost one block from the table of its layers (sections 4.1 to 4.4)."""
    cost = layer_cost(table, system, choice, sizes, edition)
    work = np.stack([table.flops, cost.arithmetic, table.accessed, cost.memory, cost.processing])
    if not choice.training:
        work[:, 1:] = 0.0
    totals = ordered_sum(work)
    fw, agrad, wgrad = (_work(totals[:, i]) for i in range(len(PHASES)))
    fw_tp, agrad_tp, recomm, messages = _communication(table, cost, choice, edition)
    shape = BlockShape.of(model, choice, sizes, edition)
    none = np.zeros_like(sizes.tensor_par)
    activation = choice.dtype_bytes * shape.activation
    full = choice.training and choice.recompute_all
    split = choice.tensor_par_comm_type != "ar"
    sequence = np.floor(shape.tokens / sizes.tensor_par) * model.hidden
    return BlockCost(
        fw=fw,
        re=_recompute(table, work[:, 0], edition)
        if choice.training
        else _work(np.zeros_like(totals[:, 0])),
        agrad=agrad,
        wgrad=wgrad,
        fw_tp=fw_tp,
        agrad_tp=agrad_tp,
        recomm=recomm,
        tensor_messages=messages,
        tp_bandwidth_needed=_bandwidth_needed(cost, choice, none),
        weight=ordered_sum(table.weight_bytes),
        act_working=ordered_sum(table.activation * ~table.flagged("reuses_activation")),
        act_storage=_storage(table, choice, none),
        act_checkpoint=edition.checkpoint_bytes(activation, choice, sizes.tensor_par)
        if full
        else none,
        act_grad=ordered_sum(table.activation_grad) * choice.training,
        weight_grad_no_sharding=ordered_sum(UNSHARDED_GRADIENT_BYTES * table.weights)
        * choice.training,
        pipeline_message=choice.dtype_bytes * sequence if split else activation,
        matrix_peak=none + system.matrix[choice.datatype].peak,
    )


def optimizer_cost(
    weights: Elements, shards: Count, system: System, choice: Choice, edition: Edition
) -> OptimizerCost:
    """Cost the optimizer step of a block from the weights of its layers, of shape (layers, steps)."""
    weights = weights * choice.training
    flops, accessed, arithmetic, memory = optimizer_times(weights, shards, system, choice)
    processing = system.combine(arithmetic, memory)
    gradients = edition.gradient_bytes(weights, choice.dtype_bytes, shards)
    totals = ordered_sum(np.stack([flops, arithmetic, accessed, memory, processing, gradients]))
    return OptimizerCost(step=_work(totals[:5]), weight_grad=totals[5], state=totals[2])


def optimizer_times(
    weights: Array, shards: Count, system: System, choice: Choice
) -> tuple[Flops, Bytes, Seconds, Seconds]:
    """FLOP, bytes, arithmetic and memory time of the optimizer step, on the vector engine, per layer."""
    flops = adam_flops(weights, shards)
    accessed = adam_bytes(weights, choice.dtype_bytes, shards)
    return flops, accessed, system.vector[choice.datatype].time(flops), system.mem1.time(accessed)


def _work(totals: Array) -> Work:
    """Name the five sums of a pass."""
    flops, flops_time, mem_accessed, mem_time, time = totals
    return Work(
        flops=flops, flops_time=flops_time, mem_accessed=mem_accessed, mem_time=mem_time, time=time
    )


def _recompute(table: LayerTable, forward: Array, edition: Edition) -> Work:
    """Work of recomputation; its time is that of the recomputed layers (section 4.2)."""
    recomputed = table.flagged("recompute")
    work = edition.recomputed_work(forward[:4], recomputed)
    time = ordered_sum(forward[4] * recomputed)
    return _work(np.concatenate([work, time[None]]))


def _communication(
    table: LayerTable, cost: LayerCost, choice: Choice, edition: Edition
) -> tuple[Communication, Communication, Communication, TensorMessages]:
    """Sum tensor-parallel messages and times over layers, per pass and kind of block (section 4.1)."""
    traffic = cost.traffic
    rows = table.collective_rows()
    repeated = table.flagged("recommunicate")[rows]
    exposed = traffic.exposed
    if choice.tensor_par_overlap != "none":
        again = edition.recommunication_exposed(exposed[0], exposed[2])
        exposed = np.concatenate([exposed[:2], (again * repeated)[None]])
    totals = ordered_sum(np.stack([traffic.size, traffic.link, exposed]))
    if not choice.training:
        totals[:, 1:] = 0.0
    size, link, hidden = totals
    fw, agrad, recomm = (
        Communication(time=link[i], time_exposed=hidden[i]) for i in range(len(PASSES))
    )
    return fw, agrad, recomm, TensorMessages(fw_tp=size[0], bw_tp=size[1], recomm=size[2])


def _bandwidth_needed(cost: LayerCost, choice: Choice, none: Array) -> BytesPerSecond:
    """Largest network bandwidth that a tile would need to hide (section 4.1)."""
    passes = 2 if choice.training else 1
    needed = cost.traffic.bandwidth_needed[:passes]
    largest: BytesPerSecond = np.maximum(none, needed.max(axis=(0, 1, 2)))
    return largest


def _storage(table: LayerTable, choice: Choice, none: Array) -> Bytes:
    """Bytes of activations that stay from the forward to the backward pass (section 4.3)."""
    if not choice.training:
        return ordered_sum(table.activation)
    if choice.recompute_all:
        return none
    kept = table.activation * table.flagged("stores_activation")
    dropped = table.output_bytes * ~table.flagged("stores_output")
    return ordered_sum(kept - dropped)
