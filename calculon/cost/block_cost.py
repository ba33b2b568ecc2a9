"""Cost of one block for one microbatch, with activation recomputation: sums over its layers."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from calculon.architecture.expert_dispatch import arrived_tokens
from calculon.architecture.experts import shape_of_rows
from calculon.architecture.layer import PHASES
from calculon.architecture.segments import LayerGenerator
from calculon.architecture.shape import Sizes
from calculon.base.arrays import (
    cached_property,
    is_nonzero,
    is_shared_zeros,
    ordered_sum,
    shared_zeros,
)
from calculon.base.records import record
from calculon.base.units import Array, Bytes, BytesPerSecond, Count, Flops, FlopsPerSecond, Seconds
from calculon.cost.axis_overlap import ExpertTimes, exchange_rows, ring_hidden
from calculon.cost.backward_memory import GradientSpace
from calculon.cost.launches import (
    bounded_by_launches,
    busy_times,
    exposed_of_base,
    host_times,
    late_times,
)
from calculon.cost.layer_cost import (
    LayerCost,
    LayerTable,
    laid_out,
    layer_cost,
    layer_times,
    storage,
    tensor_exposed_times,
)
from calculon.cost.optimizer_step import weight_sides
from calculon.cost.tensor import PASSES, NetworkTimes, tensor_volumes
from calculon.declarations.axes import FURTHER_NAMES
from calculon.declarations.model import Model
from calculon.declarations.scope_choices import BlockChoice, LayoutChoice
from calculon.declarations.statistics import KINDS, Communication, TensorMessages, Work
from calculon.editions.edition import Edition
from calculon.hardware.collectives.dispatch import LIBRARIES
from calculon.hardware.collectives.placement import nested_networks
from calculon.hardware.system import System

UNSHARDED_GRADIENT_BYTES = 4
"""Bytes of a weight gradient of the block being computed, if no gradient type is stated."""


@record
class Collectives:
    """Tensor-parallel collectives of one block and microbatch; the first axis is the kind of block."""

    fw_tp: Communication
    agrad_tp: Communication
    recomm: Communication
    tensor_messages: TensorMessages


@record
class WeightForms:
    """Bytes of the weights of a block in the forms that an FP8 or FP4 recipe needs.

    Attributes:
        kept: Weights that stay, without quantized copies; 0 for products that have only the copies.
        sent: Weights as they are gathered.
        kept_experts, sent_experts: The parts of routed experts.
        conversion: Bytes that quantizing the weights moves, once for all microbatches; 0 if each microbatch does it.
        copies: Quantized copies of the weights.
        further: Copies in addition to the gathered weights, which may be one of the copies.
    """

    kept: Bytes
    sent: Bytes
    kept_experts: Bytes
    sent_experts: Bytes
    conversion: Bytes
    copies: Bytes
    further: Bytes


@record
class BlockCost:
    """One transformer block, one microbatch; all arrays have *blocks* as the last axis.

    Attributes:
        fw, re, agrad, wgrad: Work of the forward pass, of recomputation, and of activation and weight gradients,
            without exposed communication.
        collectives: Tensor-parallel collectives.
        axis_time (shape (further axes, passes, blocks)): Link time of the collectives of further axes (CP, EP), by
            pass of :data:`~calculon.cost.tensor.PASSES`.
        axis_exposed (shape (further axes, passes, kinds, blocks)): Exposed part of ``axis_time`` by kind of block, if
            passes of different microbatches do not overlap.
        paired: Part of it that is hidden if a forward and a backward pass of two microbatches overlap.
        host_wait: Time for which the device waits for the host: part of the passes, and what pairs of passes hide less.
        expert_bytes (shape (2, blocks)): Bytes through the ports of a rank inside its node, and to other nodes, for
            collectives over groups of experts.
        expert_rows: Rows of the experts of the busiest rank.
        dispatch_space: Bytes of the rows or tokens that are sent to experts, and of those received.
        tp_bandwidth_needed (shape (kinds, blocks)): Network bandwidth that would hide overlapped tiles, by kind of
            block.
        weight: Bytes of the weights.
        expert_weight: Bytes of the weights of routed experts, which are part of ``weight``.
        forms: Weights as they are kept and gathered with an FP8 or FP4 recipe.
        act_working: Bytes of the activations of a block while it is computed.
        act_storage: Bytes of the activations that a microbatch stores until its backward pass.
        weight_copies: Bytes of the quantized copies of the weights, which serve all microbatches.
        act_checkpoint: Bytes of the input that full recomputation stores.
        act_grad: Bytes of the activation gradients while a block is computed.
        weight_grad_no_sharding: Bytes of the weight gradients while a block is computed.
        own_weight_grad: Bytes that the weight gradients of single products, each of which exists until it is added to
            its sum, add to the peak of the backward pass; 0 unless gradients are accumulated.
        shared_weight_grads: Bytes of one weight gradient of each shape of products; 0 unless gradients are accumulated.
        gradient_message: Bytes of the gradients that data parallelism reduces.
        pipeline_message: Bytes that a block sends if it is the last of its stage.
        matrix_peak: Peak rate of the matrix engine in this block's datatype.
        matrix_flops: FLOP that the matrix engine executes in all passes, recomputation included.
    """

    fw: Work
    re: Work
    agrad: Work
    wgrad: Work
    collectives: Collectives
    axis_time: Seconds
    axis_exposed: Seconds
    paired: Seconds
    host_wait: Seconds
    expert_bytes: Bytes
    expert_rows: Count
    dispatch_space: Bytes
    tp_bandwidth_needed: BytesPerSecond
    weight: Bytes
    expert_weight: Bytes
    forms: WeightForms
    act_working: Bytes
    act_storage: Bytes
    weight_copies: Bytes
    act_checkpoint: Bytes
    act_grad: Bytes
    weight_grad_no_sharding: Bytes
    own_weight_grad: Bytes
    shared_weight_grads: Bytes
    gradient_message: Bytes
    pipeline_message: Bytes
    matrix_peak: FlopsPerSecond
    matrix_flops: Flops


def axes_of_modules(block: BlockCost) -> Seconds:
    """Return the exposed time of further axes in a multi-token-prediction module: shape (further axes, passes, blocks).

    Its attention hides the ring as in any block; its exchange of experts does not overlap.
    """
    exposed = block.axis_exposed[:, :, KINDS.index("base")].copy()
    experts = FURTHER_NAMES.index("ep")
    exposed[experts] = block.axis_time[experts]
    return exposed


class BlockLayout:
    """The layers of a segment for a column of sizes, and the part of their cost that all block choices share.

    Recomputation, repeated gathers and the overlap of collectives do not change the layers.
    """

    def __init__(
        self,
        model: Model,
        system: System,
        choice: LayoutChoice,
        sizes: Sizes,
        edition: Edition,
        layers: LayerGenerator,
    ):
        self.system, self.sizes, self.edition = system, sizes, edition
        self.choice = choice
        self.shape, self.table = laid_out(
            model,
            choice,
            sizes,
            edition,
            layers,
            transposes=system.transposes(choice.fp8_recipe),
        )
        self.times = layer_times(self.table, system, choice)
        self.network = NetworkTimes(system, sizes)

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
        """Processing time of the layers without a collective: shape (phases, blocks)."""
        return ordered_sum(self.times.processing)

    @cached_property
    def host(self) -> Seconds | None:
        """Time in which the host launches the kernels of the layers: shape (phases, layers, blocks); None if it is 0.

        Launches are asynchronous: the device waits for the host only if the sum of the launches of a pass exceeds the
        sum of its kernels. If the host waits for each kernel instead (``blocking``), both times add up. Source:
        PyTorch, *CUDA semantics*, asynchronous execution.
        """
        launch, mode = self.system.ext.launch, self.launched
        figures = launch.host(mode), launch.graph if mode == "graph_parts" else 0.0
        return self.table.launching(launch, mode) if any(map(is_nonzero, figures)) else None

    @property
    def launched(self) -> str | None:
        """Kernel launch mode, as of :attr:`LayoutChoice.launched`; no compiled program exchanges rows of experts."""
        mode = self.choice.launched
        exchanges = self.choice.launch_mode == "auto" and self.table.awaited > 0
        return "eager" if exchanges and mode == "compile" else mode

    @property
    def launch(self) -> float:
        """Time in which the host launches a kernel; 0 if the device never waits for the host."""
        return self.system.ext.launch.host(self.launched)

    @property
    def waits(self) -> bool:
        """True if the host waits for the row counts of experts."""
        return self.choice.waits_for_counts and self.table.awaited > 0

    @cached_property
    def tensors(self) -> Count:
        """Number of weight tensors of a block: of each layer, its matrix and its other weights (a bias, say)."""
        result = self.none
        for layer, weights in zip(self.table.layers, self.table.weights, strict=True):
            rows, columns = weight_sides(layer) or (0, 0)
            matrix = rows * columns * (layer.product.batch if layer.product is not None else 1)
            result = result + (matrix > 0) + (weights > matrix)
        return result

    @property
    def mixes(self) -> bool:
        """True if the layers have experts on several ranks in any execution."""
        return bool(self.table.collectives["ep"]) and bool((self.sizes.expert_par > 1).any())

    @cached_property
    def expert_rows(self) -> Count:
        """Rows of the experts of the busiest rank."""
        return self.none + self.shape.rows if self.table.collectives["ep"] else shared_zeros()

    @cached_property
    def dispatch_space(self) -> Bytes:
        """Bytes of the rows that are sent to experts, and of the rows received; 0 if a rank has all experts."""
        if not self.table.collectives["ep"]:
            return shared_zeros()
        shape, sizes = shape_of_rows(self.shape), self.sizes
        hidden, result = shape.model.hidden, shape.widths.result
        both = hidden * (shape.own_rows + shape.rows)
        if self.choice.moe_dispatcher == "allgather":
            both = shape.residual + hidden * shape.expert_tokens
        elif self.choice.moe_dispatcher in LIBRARIES:
            both = hidden * (arrived_tokens(shape) + shape.rows)
        several = sizes.expert_par > 1
        if self.choice.sequence_parallel:
            several = several | (sizes.expert_tensor_par > 1)
        return self.none + np.where(several, result * both, 0.0)

    @cached_property
    def weight(self) -> Bytes:
        """Bytes of the weights of a block."""
        return ordered_sum(self.table.weight_bytes)

    @cached_property
    def expert_weight(self) -> Bytes:
        """Bytes of the weights of routed experts."""
        rows = [i for i, layer in enumerate(self.table.layers) if layer.expert]
        return ordered_sum(self.table.weight_bytes[rows]) if rows else shared_zeros()

    @cached_property
    def forms(self) -> WeightForms:
        """Weights as they are kept and gathered; a recipe may quantize the weights of products once for a step."""
        recipe, weight, experts = self.shape.recipe, self.weight, self.expert_weight
        as_stored = WeightForms(
            kept=weight,
            sent=weight,
            kept_experts=experts,
            sent_experts=experts,
            conversion=shared_zeros(),
            copies=shared_zeros(),
            further=shared_zeros(),
        )
        if recipe is None or not recipe.cached:
            return as_stored
        table, stored = self.table, float(self.shape.dtype_bytes)
        elements = ordered_sum(table.weights[table.quantized_rows])
        copies = recipe.copies * elements
        if not self.choice.fp8_param_gather:
            moved = recipe.conversion(stored) * elements
            return replace(as_stored, conversion=moved, copies=copies, further=copies)
        sent, made = recipe.gathered(stored)
        rows = [i for i in table.quantized_rows if table.layers[i].expert]
        of_experts = ordered_sum(table.weights[rows]) if rows else shared_zeros()
        return WeightForms(
            kept=weight - stored * elements,
            sent=weight - (stored - sent) * elements,
            kept_experts=experts - stored * of_experts,
            sent_experts=experts - (stored - sent) * of_experts,
            conversion=made * elements,
            copies=copies,
            further=copies if sent == stored else copies - sent * elements,
        )

    @cached_property
    def act_working(self) -> Bytes:
        """Bytes of the activations while a block is computed; layers that share a buffer count it once."""
        shared = np.array([[layer.flags.shares_activation] for layer in self.table.layers])
        return ordered_sum(self.table.activation * ~shared)

    @cached_property
    def gradients(self) -> GradientSpace:
        """Bytes of activation and weight gradients while a block is computed."""
        return GradientSpace(self.table, self.shape.dtype_bytes, self.edition)

    @cached_property
    def matrix_flops(self) -> Flops:
        """FLOP of the matrix engine: forward, backward, and forward layer by layer; shape (2 + layers, blocks)."""
        table = self.table
        rows = [*table.engine_rows("matrix"), *table.engine_rows("attention")]
        executed = np.zeros_like(table.flops)
        executed[:, rows] = table.flops[:, rows]
        return np.concatenate(
            [ordered_sum(executed[:1]), ordered_sum(executed[1:2] + executed[2:]), executed[0]]
        )

    def unsharded_gradients(self, choice: BlockChoice) -> Bytes:
        """Return the bytes of the weight gradients of the block being computed."""
        width = choice.explicit_gradient_bytes or UNSHARDED_GRADIENT_BYTES
        return ordered_sum(width * self.table.weights)

    def gradient_message(self, choice: BlockChoice) -> Bytes:
        """Return the bytes of the gradients that data parallelism reduces: as the weights, unless a type is stated."""
        stored = self.shape.dtype_bytes
        if choice.reduced_bytes == stored:
            return self.weight
        return self.weight * (choice.reduced_bytes / stored)

    def pipeline_message(self, choice: BlockChoice) -> Bytes:
        """Return the bytes that a block sends to the next stage: split unless it all-reduces (section 4.4)."""
        shape = self.shape
        if choice.tensor_par_comm_type == "ar":
            return shape.dtype_bytes * shape.activation
        tokens = np.floor(shape.tokens / shape.tensor_par)
        return shape.dtype_bytes * tokens * shape.model.hidden


def block_cost(layout: BlockLayout, choice: BlockChoice) -> BlockCost:
    """Cost one block under a choice of this layout (sections 4.1 to 4.4)."""
    table, system, edition = layout.table, layout.system, layout.edition
    cost = layer_cost(table, layout.times, layout.network, choice, edition)
    overlapped = choice.tensor_par_overlap != "none"
    processing = ordered_sum(cost.times.processing) if overlapped else layout.processing
    collectives = _collectives(table, cost, choice, edition)
    recomputed = table.recomputed(choice, edition)
    axis_time = _axis_time(cost, choice)
    axis_exposed, paired = _axis_exposed(layout, cost, recomputed, choice, axis_time)
    further = axis_exposed[:, :, KINDS.index("base")].sum(axis=0)  # by pass
    passes = collectives.fw_tp, collectives.agrad_tp, collectives.recomm
    exposed = exposed_of_base(passes, further)
    again = _recompute(layout, cost, recomputed, choice, exposed[2])
    alone = processing, paired
    processing, paired = _with_host(
        layout, cost, choice, processing, recomputed, again.time, exposed, paired
    )
    trained, none = float(choice.training), layout.none
    redone = again.time - ordered_sum(cost.times.processing[0] * recomputed)
    waits = processing - alone[0]
    narrow = layout.shape.recipe is not None
    stored, copies = storage(table, choice, none, edition, narrow=narrow)
    if choice.training and not is_shared_zeros(layout.forms.copies):
        copies = none + layout.forms.copies  # recomputation does not drop them
    fw, agrad, wgrad = (
        _work([*layout.totals[:, i], processing[i]], 1.0 if i == 0 else trained)
        for i in range(len(PHASES))
    )
    own_gradient, shared_gradients = layout.gradients.of_weights(choice)
    return BlockCost(
        fw=fw,
        re=again,
        agrad=agrad,
        wgrad=wgrad,
        collectives=collectives,
        axis_time=axis_time,
        axis_exposed=axis_exposed,
        paired=paired,
        host_wait=waits[0] + trained * (waits[1] + waits[2] + redone) + alone[1] - paired,
        expert_bytes=_expert_bytes(layout, choice),
        expert_rows=layout.expert_rows,
        dispatch_space=layout.dispatch_space,
        tp_bandwidth_needed=_bandwidth_needed(cost, choice, none),
        weight=layout.weight,
        expert_weight=layout.expert_weight,
        forms=layout.forms,
        act_working=layout.act_working,
        act_storage=stored,
        weight_copies=copies,
        act_checkpoint=_checkpoint(layout, choice),
        act_grad=layout.gradients.of_activations * trained,
        weight_grad_no_sharding=layout.unsharded_gradients(choice) * trained,
        own_weight_grad=own_gradient,
        shared_weight_grads=shared_gradients,
        gradient_message=layout.gradient_message(choice),
        pipeline_message=layout.pipeline_message(choice),
        matrix_peak=none + system.product_engine(choice.layout.matmul_type).peak,
        matrix_flops=_matrix_flops(layout, recomputed, choice) if edition.counts_flops else none,
    )


def _with_host(
    layout: BlockLayout,
    cost: LayerCost,
    choice: BlockChoice,
    processing: Seconds,
    recomputed: Array,
    again: Seconds,
    exposed: Seconds,
    paired: Seconds,
) -> tuple[Seconds, Seconds]:
    """Return the processing times of passes that wait for the host, and what pairs of passes hide nevertheless.

    `again` is the time of recomputation, `exposed` the exposed time of collectives by pass.
    """
    if layout.host is None:
        return processing, paired
    table, edition = layout.table, layout.edition
    added = layout.tensors * layout.launch if choice.adds_gradients else 0.0
    repeats = choice.training and recomputed.any() and not layout.choice.blocking
    host = host_times(layout.host, added, recomputed > 0 if repeats else None)
    if layout.choice.blocking:
        return processing + host, paired
    bounded = bounded_by_launches(processing, host, again, exposed)
    if choice.pairs_passes:  # a pair takes at least the launches of both passes
        busy = bounded.sum(axis=0) + again + exposed.sum(axis=0)
        return bounded, np.minimum(paired, np.maximum(0.0, busy - host.sum(axis=0)))
    # Two halves that overlap give the device work while the host waits, as pairs of passes do.
    if layout.waits and not choice.in_halves:
        work = busy_times(table, cost, recomputed, choice, edition, layout.sizes, layout.system)
        late = late_times(table, layout.host, work, recomputed)
        late[2] -= again - ordered_sum(cost.times.processing[0] * recomputed)
        bounded = np.maximum(bounded, processing + late)
    return bounded, paired


def _checkpoint(layout: BlockLayout, choice: BlockChoice) -> Bytes:
    """Return the bytes of the input that a block stores with full recomputation."""
    if not (choice.training and choice.recompute_all):
        return layout.none
    activation = layout.shape.dtype_bytes * layout.shape.activation
    tensor_par = layout.sizes.tensor_par
    return layout.edition.checkpoint_bytes(activation, choice.layout, tensor_par)


def _work(totals: Sequence[Array] | Array, share: float = 1.0) -> Work:
    """Return the five sums of a pass as :class:`Work`; `share` is 0 for passes that inference does not have."""
    if share != 1.0:
        totals = [share * total for total in totals]
    flops, flops_time, mem_accessed, mem_time, time = totals
    return Work(
        flops=flops, flops_time=flops_time, mem_accessed=mem_accessed, mem_time=mem_time, time=time
    )


def _recompute(
    layout: BlockLayout,
    cost: LayerCost,
    recomputed: Array,
    choice: BlockChoice,
    exposed: Seconds,
) -> Work:
    """Return the work of recomputation; its time is the sum of the recomputed layers (section 4.2).

    `exposed` is the exposed time of repeated collectives, in which the host launches on.
    """
    if not choice.training or not recomputed.any():
        return _work([layout.none] * 5)
    work = layout.edition.recomputed_work(layout.forward, recomputed)
    time = ordered_sum(cost.times.processing[0] * recomputed)
    if layout.host is not None:
        host = ordered_sum(layout.host[0] * (recomputed > 0))
        least = host - exposed
        time = time + host if layout.choice.blocking else np.maximum(time, least)
    return _work([*work, time])


def _matrix_flops(layout: BlockLayout, recomputed: Array, choice: BlockChoice) -> Flops:
    """Return the FLOP that the matrix engine executes for one microbatch."""
    forward, backward, *layers = layout.matrix_flops
    executed: Flops = forward
    if choice.training:
        executed = forward + backward + ordered_sum(np.array(layers) * recomputed)
    return executed


def _collectives(
    table: LayerTable, cost: LayerCost, choice: BlockChoice, edition: Edition
) -> Collectives:
    """Sum tensor-parallel messages and times over layers, per pass and kind of block (section 4.1)."""
    traffic = cost.traffic
    exposed = tensor_exposed_times(table, cost, choice, edition)
    totals = ordered_sum(np.stack([traffic.size, traffic.link, exposed]))
    if not choice.training:
        totals[:, 1:] = 0.0
    size, link, exposed = totals
    fw, agrad, recomm = (
        Communication(time=link[i], time_exposed=exposed[i]) for i in range(len(PASSES))
    )
    messages = TensorMessages(fw_tp=size[0], bw_tp=size[1], recomm=size[2])
    return Collectives(fw_tp=fw, agrad_tp=agrad, recomm=recomm, tensor_messages=messages)


def _axis_time(cost: LayerCost, choice: BlockChoice) -> Seconds:
    """Sum the link times of further axes over layers: shape (further axes, passes, blocks)."""
    links = [cost.further[axis].link for axis in FURTHER_NAMES]
    if not any(link.shape[1] for link in links):
        return shared_zeros(len(FURTHER_NAMES), len(PASSES))
    times = np.zeros((len(FURTHER_NAMES), len(PASSES), links[0].shape[-1]))
    passes = len(PASSES) if choice.training else 1
    for of_axis, link in zip(times, links, strict=True):
        if link.shape[1]:
            of_axis[:passes] = ordered_sum(link)[:passes]
    return times


def _axis_exposed(
    layout: BlockLayout, cost: LayerCost, recomputed: Array, choice: BlockChoice, link: Seconds
) -> tuple[Seconds, Seconds]:
    """Return the exposed time of further axes by kind of block, and the part of it that pairs of passes hide."""
    if is_shared_zeros(link):
        return shared_zeros(*link.shape[:2], len(KINDS)), shared_zeros()
    exposed = np.stack([link] * len(KINDS), axis=2)
    args = layout.table, cost, recomputed, choice, layout.sizes, layout.system
    passes = len(PASSES) if choice.training else 1
    ring = exposed[FURTHER_NAMES.index("cp"), :passes]
    ring[:] = np.maximum(0.0, ring - ring_hidden(*args)[:passes, None])
    if not choice.hides_experts or exchange_rows(layout.table) is None:
        return exposed, shared_zeros()
    times = ExpertTimes.of(*args)
    own = exposed[FURTHER_NAMES.index("ep"), :passes]
    own[:] = np.maximum(0.0, own - times.hidden(choice).sum(axis=0)[:passes])
    return exposed, times.paired(choice) if choice.pairs_passes else shared_zeros()


def _expert_bytes(layout: BlockLayout, choice: BlockChoice) -> Bytes:
    """Return the bytes of collectives over groups of experts in all passes: inside of nodes, and between nodes."""
    if not layout.mixes:
        return shared_zeros(2)
    moved = np.zeros((2, layout.none.size))
    table, system = layout.table, layout.system
    layers = [table.layers[i] for i in table.collective_rows("ep")]
    volumes = tensor_volumes(layers, layout.network.along("ep"), choice, layout.edition)
    passes = len(PASSES) if choice.training else 1
    each = volumes[:passes, KINDS.index("base")].sum(axis=0)
    node = next((number for number, _ in nested_networks(system)), 0)
    moved[0] = each[node]
    moved[1] = each.sum(axis=0) - each[node]
    return moved


def _bandwidth_needed(cost: LayerCost, choice: BlockChoice, none: Array) -> BytesPerSecond:
    """Return the largest network bandwidth that would hide a tile, by kind of block (section 4.1)."""
    least = np.zeros((len(KINDS), none.size))
    if choice.tensor_par_overlap == "none":
        return least
    passes = 2 if choice.training else 1
    needed = cost.traffic.bandwidth_needed[:passes]
    return np.maximum(least, needed.max(axis=(0, 2)))
