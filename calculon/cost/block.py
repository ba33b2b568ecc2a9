"""The cost of one block for one microbatch: sums over its layers."""

from collections.abc import Hashable, Sequence
from functools import cached_property

import numpy as np

from calculon.cost.layer import LayerCost, LayerTable, layer_cost, layer_times, ordered_sum
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


class BlockLayout:
    """The layers of a block for a column of sizes, and what of their cost every choice of equal layout shares.

    What is recomputed, when inputs are gathered again, and how collectives run does not change the layers.
    """

    def __init__(
        self, model: Model, system: System, choice: Choice, sizes: Sizes, edition: Edition
    ):
        self.system, self.sizes, self.edition = system, sizes, edition
        self.shape = BlockShape.of(model, choice, sizes, edition)
        self.table = LayerTable(block_layers(self.shape), sizes.tensor_par.size)
        self.times = layer_times(self.table, system, choice.datatype)

    @staticmethod
    def key(choice: Choice) -> Hashable:
        """Return what the layout depends on of a choice."""
        return (
            choice.datatype,
            choice.attention_type,
            choice.fused_activation,
            choice.sequence_parallel,
            choice.tensor_par_overlap == "none",
        )

    @cached_property
    def none(self) -> Array:
        """Zero for every block."""
        return np.zeros_like(self.sizes.tensor_par)

    @cached_property
    def totals(self) -> Array:
        """FLOP, arithmetic time, bytes and memory time summed over layers: shape (4, phases, blocks)."""
        table, times = self.table, self.times
        return np.stack(
            [
                ordered_sum(values)
                for values in (table.flops, times.arithmetic, table.accessed, times.memory)
            ]
        )

    @cached_property
    def forward(self) -> Array:
        """FLOP, arithmetic time, bytes and memory time of the forward pass: shape (4, layers, blocks)."""
        table, times = self.table, self.times
        return np.stack([table.flops[0], times.arithmetic[0], table.accessed[0], times.memory[0]])

    @cached_property
    def processing(self) -> Seconds:
        """Processing time without layers that have a collective: shape (phases, blocks)."""
        return ordered_sum(self.times.processing)

    @cached_property
    def weight(self) -> Bytes:
        """Weights of a block."""
        return ordered_sum(self.table.weight_bytes)

    @cached_property
    def act_working(self) -> Bytes:
        """Activations while a block is computed: every buffer once."""
        shared = np.array([[layer.flags.shares_activation] for layer in self.table.layers])
        return ordered_sum(self.table.activation * ~shared)

    @cached_property
    def act_grad(self) -> Bytes:
        """Activation gradients while a block is computed."""
        return ordered_sum(self.table.activation_grad)

    @cached_property
    def unsharded_gradients(self) -> Bytes:
        """Weight gradients of the block being computed."""
        return ordered_sum(UNSHARDED_GRADIENT_BYTES * self.table.weights)

    def pipeline_message(self, choice: Choice) -> Bytes:
        """Bytes that a block hands to the next stage: split unless collectives are all-reduces (section 4.4)."""
        shape = self.shape
        if choice.tensor_par_comm_type == "ar":
            return choice.dtype_bytes * shape.activation
        tokens = np.floor(shape.tokens / shape.tensor_par)
        return choice.dtype_bytes * tokens * shape.model.hidden


def block_cost(layout: BlockLayout, choice: Choice) -> BlockCost:
    """Cost one block under a choice of this layout (sections 4.1 to 4.4)."""
    table, system, sizes, edition = layout.table, layout.system, layout.sizes, layout.edition
    cost = layer_cost(table, layout.times, system, choice, sizes, edition)
    overlapped = choice.tensor_par_overlap != "none"
    processing = ordered_sum(cost.times.processing) if overlapped else layout.processing
    fw_tp, agrad_tp, recomm, messages = _communication(table, cost, choice, edition)
    trained, none = float(choice.training), layout.none
    checkpoint = choice.training and choice.recompute_all
    activation = choice.dtype_bytes * layout.shape.activation
    fw, agrad, wgrad = (
        _work([*layout.totals[:, i], processing[i]], 1.0 if i == 0 else trained)
        for i in range(len(PHASES))
    )
    return BlockCost(
        fw=fw,
        re=_recompute(layout, cost, choice),
        agrad=agrad,
        wgrad=wgrad,
        fw_tp=fw_tp,
        agrad_tp=agrad_tp,
        recomm=recomm,
        tensor_messages=messages,
        tp_bandwidth_needed=_bandwidth_needed(cost, choice, none),
        weight=layout.weight,
        act_working=layout.act_working,
        act_storage=_storage(table, choice, none),
        act_checkpoint=(
            edition.checkpoint_bytes(activation, choice, sizes.tensor_par) if checkpoint else none
        ),
        act_grad=layout.act_grad * trained,
        weight_grad_no_sharding=layout.unsharded_gradients * trained,
        pipeline_message=layout.pipeline_message(choice),
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


def _work(totals: Sequence[Array] | Array, share: float = 1.0) -> Work:
    """Name the five sums of a pass; `share` 0 empties a pass that does not happen."""
    if share != 1.0:
        totals = [share * total for total in totals]
    flops, flops_time, mem_accessed, mem_time, time = totals
    return Work(
        flops=flops, flops_time=flops_time, mem_accessed=mem_accessed, mem_time=mem_time, time=time
    )


def _recompute(layout: BlockLayout, cost: LayerCost, choice: Choice) -> Work:
    """Work of recomputation; its time is that of the recomputed layers (section 4.2)."""
    recomputed = layout.table.flagged("recompute", choice)
    if not choice.training or not recomputed.any():
        return _work([layout.none] * 5)
    work = layout.edition.recomputed_work(layout.forward, recomputed)
    return _work([*work, ordered_sum(cost.times.processing[0] * recomputed)])


def _communication(
    table: LayerTable, cost: LayerCost, choice: Choice, edition: Edition
) -> tuple[Communication, Communication, Communication, TensorMessages]:
    """Sum tensor-parallel messages and times over layers, per pass and kind of block (section 4.1)."""
    traffic = cost.traffic
    rows = table.collective_rows()
    repeated = table.flagged("recommunicate", choice)[rows]
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
    if choice.tensor_par_overlap == "none":
        return none
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
    kept = table.activation * ~table.flagged("drops_activation", choice)
    dropped = table.output_bytes * table.flagged("drops_output", choice)
    return ordered_sum(kept - dropped)
