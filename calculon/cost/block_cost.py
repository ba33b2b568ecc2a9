"""The cost of one block for one microbatch: sums over its layers."""

from collections.abc import Sequence

import numpy as np

from calculon.architecture.layer import PHASES
from calculon.architecture.layer_sizes import Sizes
from calculon.architecture.segments import LayerGenerator
from calculon.arrays import derived, ordered_sum
from calculon.cost.layer_cost import (
    LayerCost,
    LayerTable,
    laid_out,
    layer_cost,
    layer_times,
)
from calculon.cost.optimizer_step import weight_sides
from calculon.cost.shares import exposed_times, storage
from calculon.editions.edition import Edition
from calculon.hardware.system import System
from calculon.parallel.tensor import PASSES, NetworkTimes
from calculon.records import record
from calculon.spec.axes import FURTHER_NAMES
from calculon.spec.model import Model
from calculon.spec.scope_choices import BlockChoice, LayoutChoice
from calculon.statistics import KINDS, Communication, TensorMessages, Work
from calculon.units import (
    Array,
    Bytes,
    BytesPerSecond,
    Count,
    Flops,
    FlopsPerSecond,
    Seconds,
)

UNSHARDED_GRADIENT_BYTES = 4


@record
class Collectives:
    """Tensor-parallel collectives of one block and microbatch; the first axis is the kind of block."""

    fw_tp: Communication
    agrad_tp: Communication
    recomm: Communication
    tensor_messages: TensorMessages


@record
class BlockCost:
    """One transformer block, one microbatch; all arrays have *blocks* as the last axis.

    Attributes
    ----------
    axis_time : array, shape (further axes, passes, blocks)
        Time of the collectives of further axes, by pass of :data:`~calculon.parallel.tensor.PASSES`; none is hidden.
    tp_bandwidth_needed : array, shape (kinds, blocks)
        Network bandwidth that overlapped tiles would need to hide, by kind of block.
    weight_copies : array
        Bytes of copies of the weights in 8 bits, which serve all microbatches.
    gradient_message : array
        Bytes of the gradients that data parallelism reduces.
    pipeline_message : array
        Bytes that a block would hand to the next stage.
    matrix_peak : array
        Peak rate of the matrix engine in this block's datatype.
    matrix_flops : array
        FLOP that the matrix engine executes in all passes, recomputation included.
    """

    fw: Work
    re: Work
    agrad: Work
    wgrad: Work
    collectives: Collectives
    axis_time: Seconds
    tp_bandwidth_needed: BytesPerSecond
    weight: Bytes
    act_working: Bytes
    act_storage: Bytes
    weight_copies: Bytes
    act_checkpoint: Bytes
    act_grad: Bytes
    weight_grad_no_sharding: Bytes
    gradient_message: Bytes
    pipeline_message: Bytes
    matrix_peak: FlopsPerSecond
    matrix_flops: Flops


class BlockLayout:
    """The layers of a segment for a column of sizes, and what of their cost all choices of this layout share.

    What is recomputed, when inputs are gathered again, and how collectives run does not change the layers.
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
        self.shape, self.table = laid_out(model, choice, sizes, edition, layers)
        self.times = layer_times(self.table, system, choice)
        self.network = NetworkTimes(system, sizes)

    @derived
    def none(self) -> Array:
        """Zero for every block."""
        return np.zeros_like(self.sizes.tensor_par)

    @derived
    def totals(self) -> Array:
        """FLOP, arithmetic time, bytes and memory time summed over layers: shape (4, phases, blocks)."""
        table, times = self.table, self.times
        return np.stack(
            [
                ordered_sum(values)
                for values in (table.flops, times.arithmetic, table.accessed, times.memory)
            ]
        )

    @derived
    def forward(self) -> Array:
        """FLOP, arithmetic time, bytes and memory time of the forward pass: shape (4, layers, blocks)."""
        table, times = self.table, self.times
        return np.stack([table.flops[0], times.arithmetic[0], table.accessed[0], times.memory[0]])

    @derived
    def processing(self) -> Seconds:
        """Processing time without layers that have a collective: shape (phases, blocks)."""
        return ordered_sum(self.times.processing)

    @derived
    def host(self) -> Seconds | None:
        """Time that the host takes to launch the kernels of the layers: shape (phases, layers, blocks); None if none.

        The device runs behind the host as long as there is work left for it: kernels wait for their launches in the
        sum over a pass, and not one by one. Where the host waits for each kernel, the device waits for it as often.
        Source: PyTorch, *CUDA semantics*, asynchronous execution.
        """
        return self.table.launches() * self.launch if self.launch else None

    @property
    def launch(self) -> float:
        """Time that the host takes for a kernel; 0 where it is not waited for."""
        return self.system.ext.launch.host(self.choice.launched)

    @derived
    def tensors(self) -> Count:
        """Weight tensors of a block: a matrix is one, other weights of a layer another."""
        found = self.none
        for layer, weights in zip(self.table.layers, self.table.weights, strict=True):
            rows, columns = weight_sides(layer) or (0, 0)
            matrix = rows * columns
            found = found + (matrix > 0) + (weights > matrix)
        return found

    @derived
    def weight(self) -> Bytes:
        """Weights of a block."""
        return ordered_sum(self.table.weight_bytes)

    @derived
    def act_working(self) -> Bytes:
        """Activations while a block is computed: every buffer once."""
        shared = np.array([[layer.flags.shares_activation] for layer in self.table.layers])
        return ordered_sum(self.table.activation * ~shared)

    @derived
    def act_grad(self) -> Bytes:
        """Activation gradients while a block is computed."""
        return ordered_sum(self.table.activation_grad)

    @derived
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
        """Weight gradients of the block being computed."""
        width = choice.explicit_gradient_bytes or UNSHARDED_GRADIENT_BYTES
        return ordered_sum(width * self.table.weights)

    def gradient_message(self, choice: BlockChoice) -> Bytes:
        """Bytes of the gradients that data parallelism reduces: as the weights, unless it is said otherwise."""
        stored = self.shape.dtype_bytes
        if choice.reduced_bytes == stored:
            return self.weight
        return self.weight * (choice.reduced_bytes / stored)

    def pipeline_message(self, choice: BlockChoice) -> Bytes:
        """Bytes that a block hands to the next stage: split unless collectives are all-reduces (section 4.4)."""
        shape = self.shape
        if choice.tensor_par_comm_type == "ar":
            return shape.dtype_bytes * shape.activation
        tokens = np.floor(shape.tokens / shape.tensor_par)
        return shape.dtype_bytes * tokens * shape.model.hidden


def block_cost(layout: BlockLayout, choice: BlockChoice) -> BlockCost:
    """Cost one block under a choice of this layout (sections 4.1 to 4.4)."""
    table, system, sizes, edition = layout.table, layout.system, layout.sizes, layout.edition
    cost = layer_cost(table, layout.times, layout.network, choice, edition)
    overlapped = choice.tensor_par_overlap != "none"
    processing = ordered_sum(cost.times.processing) if overlapped else layout.processing
    collectives = _collectives(table, cost, choice, edition)
    recomputed = table.recomputed(choice, edition)
    again = _recompute(layout, cost, recomputed, choice, collectives)
    if layout.host is not None:
        host = ordered_sum(layout.host)
        if choice.adds_gradients:
            host[2] += layout.tensors * layout.launch
        if layout.choice.blocking:
            processing = processing + host
        else:
            if choice.training and recomputed.any():
                host[1] += ordered_sum(layout.host[0] * (recomputed > 0))
            processing = _launched(processing, host, again, collectives)
    trained, none = float(choice.training), layout.none
    widths = layout.shape.widths
    eight_bit = widths.operand == 1 < widths.stored
    stored, copies = storage(table, choice, none, edition, eight_bit=eight_bit)
    checkpoint = choice.training and choice.recompute_all
    activation = layout.shape.dtype_bytes * layout.shape.activation
    fw, agrad, wgrad = (
        _work([*layout.totals[:, i], processing[i]], 1.0 if i == 0 else trained)
        for i in range(len(PHASES))
    )
    return BlockCost(
        fw=fw,
        re=again,
        agrad=agrad,
        wgrad=wgrad,
        collectives=collectives,
        axis_time=_axis_time(cost, choice, none),
        tp_bandwidth_needed=_bandwidth_needed(cost, choice, none),
        weight=layout.weight,
        act_working=layout.act_working,
        act_storage=stored,
        weight_copies=copies,
        act_checkpoint=(
            edition.checkpoint_bytes(activation, choice.layout, sizes.tensor_par)
            if checkpoint
            else none
        ),
        act_grad=layout.act_grad * trained,
        weight_grad_no_sharding=layout.unsharded_gradients(choice) * trained,
        gradient_message=layout.gradient_message(choice),
        pipeline_message=layout.pipeline_message(choice),
        matrix_peak=none + system.product_engine(choice.layout.matmul_type).peak,
        matrix_flops=_matrix_flops(layout, recomputed, choice) if edition.counts_flops else none,
    )


def _work(totals: Sequence[Array] | Array, share: float = 1.0) -> Work:
    """Name the five sums of a pass; `share` 0 empties a pass that does not happen."""
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
    collectives: Collectives,
) -> Work:
    """Work of recomputation; its time is that of the recomputed layers (section 4.2)."""
    if not choice.training or not recomputed.any():
        return _work([layout.none] * 5)
    work = layout.edition.recomputed_work(layout.forward, recomputed)
    time = ordered_sum(cost.times.processing[0] * recomputed)
    if layout.host is not None:
        host = ordered_sum(layout.host[0] * (recomputed > 0))
        waited = host - collectives.recomm.time_exposed[0]
        time = time + host if layout.choice.blocking else np.maximum(time, waited)
    return _work([*work, time])


def _launched(processing: Seconds, host: Seconds, again: Work, collectives: Collectives) -> Seconds:
    """Return processing times of passes that wait for the host, of shape (phases, blocks).

    The host launches on while the device waits for a collective, that of a block inside of a stage: which collectives
    one at its border has depends on the pipeline, and blocks are the same with and without one.
    Both gradients are one pass for the host, with what is computed again before them; what they wait for it counts
    as time of those of weights.
    """
    forward = np.maximum(processing[0], host[0] - collectives.fw_tp.time_exposed[0])
    exposed = collectives.recomm.time_exposed[0] + collectives.agrad_tp.time_exposed[0]
    busy = again.time + processing[1] + processing[2] + exposed
    waits = np.maximum(0.0, (host[1] + host[2]) - busy)
    return np.stack([forward, processing[1], processing[2] + waits])


def _matrix_flops(layout: BlockLayout, recomputed: Array, choice: BlockChoice) -> Flops:
    """FLOP that the matrix engine executes for one microbatch."""
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
    exposed = exposed_times(table, cost, choice, edition)
    totals = ordered_sum(np.stack([traffic.size, traffic.link, exposed]))
    if not choice.training:
        totals[:, 1:] = 0.0
    size, link, hidden = totals
    fw, agrad, recomm = (
        Communication(time=link[i], time_exposed=hidden[i]) for i in range(len(PASSES))
    )
    messages = TensorMessages(fw_tp=size[0], bw_tp=size[1], recomm=size[2])
    return Collectives(fw_tp=fw, agrad_tp=agrad, recomm=recomm, tensor_messages=messages)


def _axis_time(cost: LayerCost, choice: BlockChoice, none: Array) -> Seconds:
    """Sum the times of the collectives of further axes over layers."""
    times = np.zeros((len(FURTHER_NAMES), len(PASSES), none.size))
    if not FURTHER_NAMES:
        return times
    passes = len(PASSES) if choice.training else 1
    for of_axis, axis in zip(times, FURTHER_NAMES, strict=True):
        link = cost.further[axis].link
        if link.shape[1]:
            of_axis[:passes] = ordered_sum(link)[:passes]
    return times


def _bandwidth_needed(cost: LayerCost, choice: BlockChoice, none: Array) -> BytesPerSecond:
    """Largest network bandwidth that a tile would need to hide, by kind of block (section 4.1)."""
    some = np.zeros((len(KINDS), none.size))
    if choice.tensor_par_overlap == "none":
        return some
    passes = 2 if choice.training else 1
    needed = cost.traffic.bandwidth_needed[:passes]
    return np.maximum(some, needed.max(axis=(0, 2)))
