"""The cost of every layer of a block: time in each phase, collectives, and the activations that are stored.

The layers are a table of arrays, so that one expression costs all layers of all blocks in all phases.
"""

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache

import numpy as np

from calculon.architecture.layer import COLUMN_INPUT, PHASES
from calculon.architecture.layers import Layer
from calculon.architecture.segments import LayerGenerator
from calculon.architecture.shape import BlockShape, Sizes
from calculon.base.arrays import cached_property, is_nonzero, ordered_sum
from calculon.base.records import record
from calculon.base.units import Array, Bytes, Count, Elements, Flops, Fraction, Seconds
from calculon.cost.process_groups import tensor_group
from calculon.cost.tensor import (
    PASSES,
    AxisTraffic,
    NetworkTimes,
    Traffic,
    axis_traffic,
    overlap_with_gradients,
    tensor_traffic,
)
from calculon.declarations.axes import FURTHER_NAMES, LAYER_AXES
from calculon.declarations.model import Model
from calculon.declarations.recipes import FLOAT8
from calculon.declarations.scope_choices import BlockChoice, LayoutChoice
from calculon.editions.edition import Edition
from calculon.hardware.kernels.kernel import Kernel, KernelKind, Launch, Shapes, Types, launches
from calculon.hardware.system import KERNELS, System


class LayerTable:
    """Layers as arrays; a *row* is the index of a layer.

    Attributes:
        layers: Layers in order of execution.
        kinds: Rows of the layers by kind of kernel.
        collectives: Rows of the layers with a collective, by axis of parallelism.
        flops, accessed (shape (phases, layers, blocks)): FLOP and bytes moved in tier-1 memory, by phase of
            :data:`~calculon.architecture.layer.PHASES`.
        inputs, outputs, weights (shape (layers, blocks)): Elements.
        weight_bytes, output_bytes, activation, activation_grad (shape (layers, blocks)): Bytes.
        shard (shape (layers, blocks)): Bytes of the rank's shard of an activation, kept when the gathered activation is
            dropped; None if no layer gathers its input.
        tiled: Rows of the layers whose product is cut into tiles.
        tiles (shape (phases, tiled layers, blocks)): Products that each pass of these layers is cut into.
        rings: Rows of the attention layers whose keys and values go round a ring.
    """

    layers: tuple[Layer, ...]
    kinds: dict[KernelKind, list[int]]
    collectives: dict[str, list[int]]
    flops: Flops
    accessed: Bytes
    inputs: Elements
    outputs: Elements
    weights: Elements
    weight_bytes: Bytes
    output_bytes: Bytes
    activation: Bytes
    activation_grad: Bytes
    shard: Bytes | None
    tiled: list[int]
    tiles: Count
    rings: list[int]

    def __init__(self, layers: Iterable[Layer], blocks: int):
        self.layers = tuple(layers)
        shape = (len(self.layers), blocks)
        self.flops = np.zeros((len(PHASES), *shape))
        self.accessed = np.zeros((len(PHASES), *shape))
        plain = np.zeros((len(self._PLAIN), *shape))
        for name, array in zip(self._PLAIN, plain, strict=True):
            setattr(self, name, array)
        self.kinds = {}
        self.collectives = {axis.name: [] for axis in LAYER_AXES}
        for i, layer in enumerate(self.layers):
            if layer.collective is not None:
                axis = layer.collective.axis
                assert axis in self.collectives, f"{layer.name}: no row of AXES is {axis!r}"
                self.collectives[axis].append(i)
            self.kinds.setdefault(layer.kernel, []).append(i)
            for phase, (flops, accessed) in enumerate(
                zip(layer.flops, layer.accessed, strict=True)
            ):
                _fill(self.flops[phase], i, flops)
                _fill(self.accessed[phase], i, accessed)
            for name, array in zip(self._PLAIN, plain, strict=True):
                _fill(array, i, getattr(layer, name))
        self.shard = self._shards(shape)
        self.tiled = [i for i, layer in enumerate(self.layers) if layer.tiles is not None]
        self.tiles = np.ones((len(PHASES), len(self.tiled), blocks))
        for row, i in enumerate(self.tiled):
            for phase, count in enumerate(self.layers[i].tiles or ()):
                self.tiles[phase, row] = count
        self.rings = [i for i, layer in enumerate(self.layers) if layer.ring is not None]

    _PLAIN = (
        "inputs",
        "outputs",
        "weights",
        "weight_bytes",
        "output_bytes",
        "activation",
        "activation_grad",
    )

    def _shards(self, shape: tuple[int, int]) -> Bytes | None:
        """Return the bytes of the shards of inputs that are gathered (:attr:`shard`)."""
        shards = None
        for i, layer in enumerate(self.layers):
            if layer.collective and layer.collective.overlapped:
                shards = np.zeros(shape) if shards is None else shards
                shards[i] = layer.shard
        return shards

    def flagged(self, flag: str, choice: BlockChoice, edition: Edition) -> Array:
        """Return the layers for which a flag holds: shape (layers, 1), to broadcast over blocks."""
        if not choice.checkpoints:  # then a flag does not depend on the module of the layer
            whens = [getattr(layer.flags, flag) for layer in self.layers]
            of_when = {when: edition.happens(when, choice) for when in set(whens)}
            return np.array([of_when[when] for when in whens])[:, None]
        keys = [(layer.flags.module, getattr(layer.flags, flag)) for layer in self.layers]
        known = {
            key: layer.flags.happens(flag, choice, edition)
            for key, layer in dict(zip(keys, self.layers, strict=True)).items()
        }
        return np.array([known[key] for key in keys])[:, None]

    @property
    def remade(self) -> Bytes:
        """Bytes of saved inputs that can be recomputed instead of stored: shape (layers, blocks)."""
        return self._filled("remade")

    def recomputed(self, choice: BlockChoice, edition: Edition) -> Array:
        """Return the share of the forward pass of each layer that is recomputed: shape (layers, 1 or blocks)."""
        flagged = self.flagged("recompute", choice, edition)
        return flagged * self._filled("repeated") if choice.remakes else flagged

    def _filled(self, name: str) -> Array:
        """Return a size of the layers that is needed rarely, and so is no attribute: shape (layers, blocks)."""
        array = np.zeros_like(self.weights)
        for i, layer in enumerate(self.layers):
            _fill(array, i, getattr(layer, name))
        return array

    @cached_property
    def quantized_rows(self) -> list[int]:
        """Rows of the products with weights, whose weights an FP8 or FP4 recipe quantizes."""
        return [*self.kinds.get("product", ()), *self.kinds.get("grouped_product", ())]

    def engine_rows(self, engine: str) -> list[int]:
        """Return the rows of the layers that run on an engine."""
        return [i for i, layer in enumerate(self.layers) if layer.engine == engine]

    def by_kernel(self, system: System, types: Types) -> list[tuple[Kernel, list[int]]]:
        """Return the rows of the layers by the kernel that runs them; kinds of equal rate are joined."""
        of_kinds = [(KERNELS[kind](system, types), rows) for kind, rows in self.kinds.items()]
        if system.variants:  # rates are columns of arrays, which cannot be keys
            return of_kinds
        found: dict[Kernel, list[int]] = {}
        for kernel, rows in of_kinds:
            found.setdefault(kernel, []).extend(rows)
        return list(found.items())

    def launches(self) -> Array:
        """Return the number of kernels that each pass of a layer launches: shape (phases, layers, blocks)."""
        moves = launches(self.accessed, self.layers)
        moves[:, self.tiled] *= self.tiles
        return moves

    def launching(self, launch: Launch, mode: str | None) -> Seconds:
        """Return the time in which the host launches each pass of a layer: shape (phases, layers, blocks)."""
        each = launch.host_times(mode, self.layers)
        calls = self.launches() / self.loops
        return calls * (each + (self.loops - 1) * launch.looped(each, self.layers))

    @cached_property
    def loops(self) -> Count:
        """Number of kernels of each launch, which the host makes in a loop: shape (layers, blocks)."""
        return self._filled("loop")

    @cached_property
    def kernels(self) -> Array:
        """Result of :meth:`launches`, for tables that several block choices share."""
        return self.launches()

    @cached_property
    def awaited(self) -> int:
        """Row of the first layer whose shape depends on the routing to experts; 0 without experts."""
        return next((i for i, layer in enumerate(self.layers) if layer.routed), 0)

    @cached_property
    def copied_rows(self) -> list[int]:
        """Rows of the layers that copy tokens to the rows of experts, or back."""
        rows = self.kinds.get("routing", ())
        return [row for row in rows if self.layers[row].routed]

    def collective_rows(self, axis: str = "tp") -> list[int]:
        """Return the rows of the layers with a collective along an axis, by default of tensor parallelism."""
        return self.collectives[axis]


def _fill(array: Array, row: int, value: Array | float) -> None:
    """Set a row of an array of zeros; a scalar 0 costs nothing."""
    if isinstance(value, np.ndarray) or value:
        array[row] = value


def laid_out(
    model: Model,
    choice: LayoutChoice,
    sizes: Sizes,
    edition: Edition,
    layers: LayerGenerator,
    *,
    transposes: bool = True,
) -> tuple[BlockShape, LayerTable]:
    """Return the block's shape and the table of the layers of a segment.

    The table of a single execution is cached, since a comparison of systems tries each with the same execution.

    Args:
        transposes: Whether the machine needs transposed copies of the recipe's operands.
    """
    if sizes.tensor_par.size == 1:
        return _laid_out_once(model, choice, sizes.row(0), edition, layers, transposes)
    shape = BlockShape.of(model, choice, sizes, edition, transposes=transposes)
    return shape, LayerTable(layers(shape), sizes.tensor_par.size)


@lru_cache(64)
def _laid_out_once(
    model: Model,
    choice: LayoutChoice,
    row: tuple[float, ...],
    edition: Edition,
    layers: LayerGenerator,
    transposes: bool,
) -> tuple[BlockShape, LayerTable]:
    sizes = Sizes.of(np.array([row], np.int64))
    shape = BlockShape.of(model, choice, sizes, edition, transposes=transposes)
    return shape, LayerTable(layers(shape), 1)


@record
class LayerTimes:
    """Times of layers, each of shape (phases, layers, blocks).

    Attributes:
        arithmetic: Time on the matrix or vector engine.
        memory: Time on tier-1 memory.
        processing: Both combined, at least the kernel launches; 0 for layers with a collective, which overlap changes.
    """

    arithmetic: Seconds
    memory: Seconds
    processing: Seconds


@record
class LayerCost:
    """All times of the layers of a block.

    ``traffic`` is of tensor parallelism, and ``further`` of the further axes (CP, EP). Both have the rows of
    :meth:`LayerTable.collective_rows` only.
    """

    times: LayerTimes
    traffic: Traffic
    further: dict[str, AxisTraffic]


def layer_times(table: LayerTable, system: System, choice: LayoutChoice) -> LayerTimes:
    """Time every layer in every phase: arithmetic and memory time, combined by the system's mode (sum or roofline).

    Bytes move at the bandwidth of tier-1 memory, unless the kernel has its own memory time. A pass takes at least the
    launches of its kernels.
    """
    types = kernel_types(system, choice)
    arithmetic, memory = np.empty_like(table.flops), system.move_time(table.accessed)
    for kernel, layers in table.by_kernel(system, types):
        rows = np.array(layers)
        shapes = Shapes(table.flops, table.accessed, table.layers, rows)
        arithmetic[:, rows], own = kernel.times(shapes, system.mem1)
        if own is not None:
            memory[:, rows] = own
    if table.tiled:
        several = table.tiles > 1  # a pass in one piece keeps the time of the whole product
        for time, of_tiles in zip(
            (arithmetic, memory), _tile_times(table, system, types), strict=True
        ):
            time[:, table.tiled] = np.where(several, of_tiles, time[:, table.tiled])
    for i in table.rings:
        steps = ring_steps(table.layers[i], table.flops[:, i], table.accessed[:, i], system, types)
        arithmetic[:, i], memory[:, i] = steps.arithmetic, steps.memory
    processing = system.combine(arithmetic, memory)
    if is_nonzero(system.ext.launch.kernel):
        processing = system.ext.launch.bounded(processing, table.launches())
    for rows_of_axis in table.collectives.values():
        processing[:, rows_of_axis] = 0.0
    return LayerTimes(arithmetic=arithmetic, memory=memory, processing=processing)


def kernel_types(system: System, choice: LayoutChoice) -> Types:
    """Return the datatypes of arithmetic of a layout, and its attention kernel."""
    core_type = system.core_type(choice.datatype, choice.multiplied)
    return Types(
        choice.matmul_type,
        core_type,
        choice.datatype,
        choice.attn_kernel,
        promoted=choice.recipe is not None and choice.recipe.promoted,
        fused=FLOAT8 if choice.fp8_attention else "",
    )


def _tile_times(table: LayerTable, system: System, types: Types) -> tuple[Seconds, Seconds]:
    """Return arithmetic and memory time of the tiled layers, whose tiles are products at the rate of their size.

    Phases may have different numbers of tiles. The times of phases in one piece are not valid, and not used.
    """
    rows, tiles = table.tiled, table.tiles
    flops, accessed = table.flops[:, rows] / tiles, table.accessed[:, rows] / tiles
    arithmetic, memory = np.zeros_like(flops), system.move_time(accessed)
    known: dict[bytes, tuple[Seconds, Seconds | None]] = {}
    for phase, counts in enumerate(tiles):
        if (counts == 1).all():
            continue
        if (key := counts.tobytes()) not in known:
            layers = [_tile(table.layers[i], count) for i, count in zip(rows, counts, strict=True)]
            shapes = Shapes(flops, accessed, layers, np.arange(len(rows)))
            known[key] = KERNELS["product"](system, types).times(shapes, system.mem1)
        of_phases, own = known[key]
        arithmetic[phase] = of_phases[phase]
        if own is not None:
            memory[phase] = own[phase]
    return tiles * arithmetic, tiles * memory


def _tile(layer: Layer, count: Count) -> Layer:
    """Return a layer with one of `count` tiles of its product, which have equal numbers of rows."""
    assert layer.product is not None
    return layer._replace(product=layer.product._replace(m=layer.product.m / count))


@record
class RingSteps:
    """Times of the steps of ring attention; each of shape (phases, blocks).

    Attributes:
        steps (shape (blocks,)): Number of steps.
        first: Time of the first step, with the rank's own keys.
        later: Time of each other step.
        arithmetic, memory: Arithmetic and memory time of all steps together.
    """

    steps: Array
    first: Seconds
    later: Seconds
    arithmetic: Seconds
    memory: Seconds


def ring_steps(
    layer: Layer, flops: Flops, accessed: Bytes, system: System, types: Types
) -> RingSteps:
    """Time the steps of ring attention, each of which is a kernel for its own queries and keys.

    `flops` and `accessed` are of the whole layer, with shape (phases, blocks). All steps move the same bytes. The
    efficiency of the kernel depends on its shape as for whole sequences: few queries occupy the processor less, and
    with few keys partial tiles weigh more.
    """
    ring = layer.ring
    assert ring is not None, layer.name
    kernel = KERNELS[layer.kernel](system, types)
    moved = accessed / ring.steps

    def time(share: Fraction, key_factor: float, *, causal: bool) -> tuple[Seconds, Seconds]:
        some = share > 0
        part = np.where(some, share, 1.0)
        keys = np.maximum(layer.keys * part * key_factor, 1.0)
        step = layer._replace(keys=keys, causal=causal, ring=None)
        arithmetic, memory = _kernel_times(kernel, step, flops * part, moved, system)
        return np.where(some, arithmetic, 0.0), memory

    first = time(ring.first, 1, causal=layer.causal)
    later = time(ring.later, 1, causal=ring.masked)
    if ring.halves:  # all queries with half of the keys, or half of the queries with all keys
        other = time(ring.later, 2, causal=ring.masked)
        later = np.maximum(later[0], other[0]), np.maximum(later[1], other[1])
    others = ring.steps - 1
    kernels = np.array(layer.launches or (1, 1, 0))[:, None]
    first_time, later_time = (
        system.ext.launch.bounded(system.combine(*times), kernels) for times in (first, later)
    )
    return RingSteps(
        steps=ring.steps,
        first=first_time,
        later=later_time,
        arithmetic=first[0] + others * later[0],
        memory=first[1] + others * later[1],
    )


def _kernel_times(
    kernel: Kernel, layer: Layer, flops: Flops, accessed: Bytes, system: System
) -> tuple[Seconds, Seconds]:
    """Return arithmetic and memory time of one kernel; arrays have shape (phases, blocks)."""
    shapes = Shapes(flops[:, None], accessed[:, None], [layer], np.zeros(1, int))
    arithmetic, own = kernel.times(shapes, system.mem1)
    memory = system.move_time(accessed[:, None]) if own is None else own
    return arithmetic[:, 0], memory[:, 0]


def layer_cost(
    table: LayerTable,
    times: LayerTimes,
    network: NetworkTimes,
    choice: BlockChoice,
    edition: Edition,
) -> LayerCost:
    """Add traffic to the times of layers.

    The arithmetic and memory time of a layer that only communicates are part of its link time. An overlapped linear
    layer is slowed down by its collective.
    """
    system, sizes = network.system, network.sizes
    rows, overlapped = table.collective_rows(), choice.tensor_par_overlap != "none"
    launching = None
    if overlapped and is_nonzero(system.ext.launch.kernel):
        launching = system.ext.launch.kernel * table.launches()[:, rows]
    traffic = tensor_traffic(
        [table.layers[i] for i in rows],
        times.arithmetic[:, rows],
        times.memory[:, rows],
        network,
        choice,
        edition,
        table.flagged("recompute", choice, edition)[rows] if overlapped else None,
        launching,
    )
    if overlapped:
        processing = times.processing.copy()
        processing[:, rows] = traffic.processing
        times = replace(times, processing=processing)
    if choice.tp_async:
        usage = tensor_group(sizes, choice, system).usage(system)
        recomputed = table.flagged("recompute", choice, edition)
        gradients = np.stack([_gradient_times(table, row, times, recomputed) for row in rows])
        traffic = overlap_with_gradients(traffic, gradients[:, 0], gradients[:, 1], usage)
    further = {}
    for axis in FURTHER_NAMES:
        rows = table.collective_rows(axis)
        if not rows:
            empty = np.zeros((len(PASSES), 0, sizes.tensor_par.size))
            further[axis] = AxisTraffic(size=empty, link=empty)
            continue
        work = times.arithmetic[:, rows], times.memory[:, rows]
        layers = [table.layers[i] for i in rows]
        further[axis] = axis_traffic(layers, *work, network.along(axis), choice, edition)
    return LayerCost(times=times, traffic=traffic, further=further)


def _gradient_times(table: LayerTable, row: int, times: LayerTimes, recomputed: Array) -> Seconds:
    """Time of the input and weight gradients of the products that read a gathered input: shape (2, blocks).

    The products follow the all-gather directly, or the fork of its output; it is 0 for other collectives. A product
    that is recomputed needs its input before its gradients: its input gradients hide nothing of the repeated gather.
    """
    total = np.zeros((2, table.weights.shape[1]))
    collective = table.layers[row].collective
    if collective is None or collective.operations != COLUMN_INPUT.whole:
        return total
    for i in range(row + 1, len(table.layers)):
        kernel = table.layers[i].kernel
        if kernel == "fork":
            continue
        if kernel not in ("product", "mul_sum", "mul_sum_fused"):
            break
        total[0] += np.where(recomputed[i], 0.0, times.processing[1, i])
        total[1] += times.processing[2, i]
    return total


def tensor_exposed_times(
    table: LayerTable, cost: LayerCost, choice: BlockChoice, edition: Edition
) -> Seconds:
    """Return the exposed time of tensor-parallel collectives: shape (passes, kinds, collective layers, blocks)."""
    exposed = cost.traffic.exposed
    if choice.tensor_par_overlap == "none":
        return exposed
    repeated = table.flagged("recommunicate", choice, edition)[table.collective_rows()]
    again = edition.recommunication_exposed(exposed[0], exposed[2])
    return np.concatenate([exposed[:2], (again * repeated)[None]])


def storage(
    table: LayerTable, choice: BlockChoice, none: Array, edition: Edition, *, narrow: bool
) -> tuple[Bytes, Bytes]:
    """Return the bytes of a block's stored activations for a microbatch (section 4.3), and of its weight copies.

    `narrow` says whether the layout has an FP8 or FP4 recipe. Its copies of weights are kept once for all microbatches
    of a step; other casts of weights are saved by each microbatch, as activations. Source: NVIDIA, *Transformer
    Engine*, ``is_first_microbatch``: caching of the FP8 versions of the weights.
    """
    if choice.training and choice.recompute_all:
        return none, none
    kept = stored_activations(table, choice, edition)
    if not (choice.training and narrow):
        return ordered_sum(kept), none
    copied = np.array([[layer.kernel == "cast"] for layer in table.layers])
    return ordered_sum(kept * ~copied), none + ordered_sum(kept * copied)


def stored_activations(table: LayerTable, choice: BlockChoice, edition: Edition) -> Bytes:
    """Return the bytes that each layer stores from the forward to the backward pass: shape (layers, blocks)."""
    if not choice.training:
        return table.activation
    if choice.recompute_all:
        return np.zeros_like(table.activation)
    drops = table.flagged("drops_activation", choice, edition)
    kept = table.activation * ~drops
    if table.shard is not None:
        kept = kept + table.shard * (drops & ~table.flagged("drops_shard", choice, edition))
    remade = table.flagged("remakes", choice, edition)
    if remade.any():
        kept = np.maximum(kept - table.remade * (remade & ~drops), 0.0)
    dropped = table.output_bytes * table.flagged("drops_output", choice, edition)
    return kept - dropped
