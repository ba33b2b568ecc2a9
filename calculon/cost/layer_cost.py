"""The cost of every layer of a block: one table of layers, all phases at once."""

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache

import numpy as np

from calculon.architecture.layer import COLUMN_INPUT, PHASES
from calculon.architecture.layers import Layer
from calculon.architecture.segments import LayerGenerator
from calculon.architecture.shape import BlockShape, Sizes
from calculon.base.arrays import derived, occurs, ordered_sum
from calculon.base.records import record
from calculon.base.units import Array, Bytes, Count, Elements, Flops, Fraction, Seconds
from calculon.cost.process_groups import tensor_group
from calculon.cost.tensor import (
    PASSES,
    AxisTraffic,
    NetworkTimes,
    Traffic,
    axis_traffic,
    beside_gradients,
    tensor_traffic,
)
from calculon.declarations.axes import FURTHER_NAMES, LAYER_AXES
from calculon.declarations.model import Model
from calculon.declarations.scope_choices import BlockChoice, LayoutChoice
from calculon.editions.edition import Edition
from calculon.hardware.kernels.kernel import Kernel, KernelKind, Shapes, Types, launches
from calculon.hardware.system import KERNELS, System


@record
class RingSteps:
    """Times of the steps of attention in a ring; all but the number of steps of shape (phases, blocks).

    Attributes:
        steps: How many there are.
        first, later: Time of the first step, of the rank's own keys, and of each other one.
        arithmetic, memory: Times of all steps.
    """

    steps: Array
    first: Seconds
    later: Seconds
    arithmetic: Seconds
    memory: Seconds


def ring_steps(
    layer: Layer, flops: Flops, accessed: Bytes, system: System, types: Types
) -> RingSteps:
    """Time the steps of a layer of attention, of which each is a kernel for its own queries and keys.

    FLOP and bytes moved are those of the layer, of shape (phases, blocks). All steps move the same bytes. The law of
    the kernel is that of whole sequences: few queries fill the processor less, and few keys make more of where a tile
    begins and ends.
    """
    ring = layer.ring
    assert ring is not None, layer.name
    kernel = KERNELS[layer.kernel](system, types)
    moved = accessed / ring.steps

    def time(share: Fraction, widened: float, *, causal: bool) -> tuple[Seconds, Seconds]:
        some = share > 0
        part = np.where(some, share, 1.0)
        keys = np.maximum(layer.keys * part * widened, 1.0)
        step = layer._replace(keys=keys, causal=causal, ring=None)
        arithmetic, memory = _time(kernel, step, flops * part, moved, system)
        return np.where(some, arithmetic, 0.0), memory

    arithmetic, memory = time(ring.first, 1, causal=layer.causal)
    later = time(ring.later, 1, causal=ring.masked)
    if ring.halves:
        other = time(ring.later, 2, causal=ring.masked)  # half of the queries, and all keys
        later = np.maximum(later[0], other[0]), np.maximum(later[1], other[1])
    rest = ring.steps - 1
    kernels = np.array(layer.launches or (1, 1, 0))[:, None]
    first, after = (
        system.ext.launch.bounded(system.combine(*times), kernels)
        for times in ((arithmetic, memory), later)
    )
    return RingSteps(
        steps=ring.steps,
        first=first,
        later=after,
        arithmetic=arithmetic + rest * later[0],
        memory=memory + rest * later[1],
    )


def _time(
    kernel: Kernel, layer: Layer, flops: Flops, accessed: Bytes, system: System
) -> tuple[Seconds, Seconds]:
    """Return arithmetic and memory time of one kernel."""
    shapes = Shapes(flops[:, None], accessed[:, None], [layer], np.zeros(1, int))
    arithmetic, own = kernel.times(shapes, system.mem1)
    memory = system.move_time(accessed[:, None]) if own is None else own
    return arithmetic[:, 0], memory[:, 0]


class LayerTable:
    """Layers laid out as arrays, so that one expression costs them all.

    Attributes:
        layers: In order of execution.
        kinds: The numbers of the layers by kind of kernel.
        collectives: The numbers of the layers that have a collective, by axis.
        flops, accessed (shape (phases, layers, blocks)): FLOP and bytes moved in tier-1 memory, by phase of
            :data:`~calculon.architecture.layer.PHASES`.
        inputs, outputs, weights (shape (layers, blocks)): Elements.
        weight_bytes, output_bytes, activation, activation_grad (shape (layers, blocks)): Bytes.
        shard (shape (layers, blocks)): Bytes that stay of an activation that is dropped; None where nothing does.
        tiled: The numbers of the layers that are cut into tiles.
        tiles (shape (phases, tiled layers, blocks)): In how many products each of their passes is cut.
        rings: The numbers of the layers of attention whose keys and values go round a ring.
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
        """Return what stays of inputs that are dropped; None where nothing does."""
        shards = None
        for i, layer in enumerate(self.layers):
            if layer.collective and layer.collective.overlapped:
                shards = np.zeros(shape) if shards is None else shards
                shards[i] = layer.shard
        return shards

    def flagged(self, flag: str, choice: BlockChoice, edition: Edition) -> Array:
        """Return for which layers a flag holds: shape (layers, 1), to broadcast over blocks."""
        if not choice.checkpoints:  # it depends on nothing else of a layer
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
        """Bytes of activations that may be made again: shape (layers, blocks)."""
        return self._filled("remade")

    def recomputed(self, choice: BlockChoice, edition: Edition) -> Array:
        """Return the share of the forward pass of each layer that is computed again: shape (layers, 1 or blocks)."""
        flagged = self.flagged("recompute", choice, edition)
        return flagged * self._filled("repeated") if choice.remakes else flagged

    def _filled(self, name: str) -> Array:
        """Return a rarely needed size of the layers: shape (layers, blocks)."""
        array = np.zeros_like(self.weights)
        for i, layer in enumerate(self.layers):
            _fill(array, i, getattr(layer, name))
        return array

    @derived
    def narrow_rows(self) -> list[int]:
        """The numbers of the layers that are products with weights, which a recipe makes narrow."""
        return [*self.kinds.get("product", ()), *self.kinds.get("grouped_product", ())]

    def engine_rows(self, engine: str) -> list[int]:
        """Return the numbers of the layers that run on an engine."""
        return [i for i, layer in enumerate(self.layers) if layer.engine == engine]

    def by_kernel(self, system: System, types: Types) -> list[tuple[Kernel, list[int]]]:
        """Return the numbers of the layers by the kernel that runs them; kinds at one rate are together."""
        of_kinds = [(KERNELS[kind](system, types), rows) for kind, rows in self.kinds.items()]
        if system.variants:  # whose rates are columns, and not compared
            return of_kinds
        found: dict[Kernel, list[int]] = {}
        for kernel, rows in of_kinds:
            found.setdefault(kernel, []).extend(rows)
        return list(found.items())

    def launches(self) -> Array:
        """Return how many kernels each pass of a layer launches: shape (phases, layers, blocks)."""
        moves = launches(self.accessed, self.layers)
        moves[:, self.tiled] *= self.tiles
        return moves

    def collective_rows(self, axis: str = "tp") -> list[int]:
        """Return the numbers of the layers that have a collective along an axis, by default of tensor parallelism."""
        return self.collectives[axis]


def _fill(array: Array, row: int, value: Array | float) -> None:
    """Set a row of an array of zeros."""
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
    """Lay the layers of a segment out; those of one execution are kept, since many systems are tried with it.

    `transposes` says whether the machine needs transposed copies of operands of the recipe.
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
    """Times of layers on the engines and the memory, of shape ``(phases, layers, blocks)``.

    ``processing`` is 0 for layers with a collective: theirs depends on how it runs.
    """

    arithmetic: Seconds
    memory: Seconds
    processing: Seconds


@record
class LayerCost:
    """All times of the layers of a block.

    ``traffic``, and ``further`` by further axis, hold the rows :meth:`LayerTable.collective_rows` only.
    """

    times: LayerTimes
    traffic: Traffic
    further: dict[str, AxisTraffic]


def layer_times(table: LayerTable, system: System, choice: LayoutChoice) -> LayerTimes:
    """Time every layer in every phase: arithmetic and memory time, combined by the system's mode.

    All traffic is at the rate of tier-1 memory, but for kernels that have a memory time of their own. No pass takes
    less than launching its kernels.
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
        cut = table.tiles > 1  # passes in one piece have the time of the whole product
        for time, of_tiles in zip(
            (arithmetic, memory), _tile_times(table, system, types), strict=True
        ):
            time[:, table.tiled] = np.where(cut, of_tiles, time[:, table.tiled])
    for i in table.rings:
        found = ring_steps(table.layers[i], table.flops[:, i], table.accessed[:, i], system, types)
        arithmetic[:, i], memory[:, i] = found.arithmetic, found.memory
    processing = system.combine(arithmetic, memory)
    if occurs(system.ext.launch.kernel):
        processing = system.ext.launch.bounded(processing, table.launches())
    for rows_of_axis in table.collectives.values():
        processing[:, rows_of_axis] = 0.0
    return LayerTimes(arithmetic=arithmetic, memory=memory, processing=processing)


def kernel_types(system: System, choice: LayoutChoice) -> Types:
    """Return the types of arithmetic of a layout, and its kernel of attention."""
    core_type = system.core_type(choice.datatype, choice.multiplied)
    return Types(
        choice.matmul_type,
        core_type,
        choice.datatype,
        choice.attn_kernel,
        promoted=choice.recipe is not None and choice.recipe.promoted,
    )


def _tile_times(table: LayerTable, system: System, types: Types) -> tuple[Seconds, Seconds]:
    """Return arithmetic and memory time of the layers that are cut into tiles, each a product at its own rate.

    Passes may be cut into different numbers of tiles; of those in one piece, the times mean nothing.
    """
    rows, tiles = table.tiled, table.tiles
    flops, accessed = table.flops[:, rows] / tiles, table.accessed[:, rows] / tiles
    arithmetic, memory = np.zeros_like(flops), system.move_time(accessed)
    known: dict[bytes, tuple[Seconds, Seconds | None]] = {}
    for phase, pieces in enumerate(tiles):
        if (pieces == 1).all():
            continue
        if (key := pieces.tobytes()) not in known:
            layers = [_cut(table.layers[i], count) for i, count in zip(rows, pieces, strict=True)]
            shapes = Shapes(flops, accessed, layers, np.arange(len(rows)))
            known[key] = KERNELS["product"](system, types).times(shapes, system.mem1)
        found, own = known[key]
        arithmetic[phase] = found[phase]
        if own is not None:
            memory[phase] = own[phase]
    return tiles * arithmetic, tiles * memory


def _cut(layer: Layer, pieces: Count) -> Layer:
    """Return a layer whose product is one of so many pieces with equal rows."""
    assert layer.product is not None
    return layer._replace(product=layer.product._replace(m=layer.product.m / pieces))


def layer_cost(
    table: LayerTable,
    times: LayerTimes,
    network: NetworkTimes,
    choice: BlockChoice,
    edition: Edition,
) -> LayerCost:
    """Add traffic to the times of layers.

    A layer that only communicates has no processing time of its own; its arithmetic and memory time are part of its
    link time. An overlapped linear layer is slowed by the collective beside it.
    """
    system, sizes = network.system, network.sizes
    rows, overlapped = table.collective_rows(), choice.tensor_par_overlap != "none"
    launching = None
    if overlapped and occurs(system.ext.launch.kernel):
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
        beside = np.stack([_gradients_after(table, row, times, recomputed) for row in rows])
        traffic = beside_gradients(traffic, beside[:, 0], beside[:, 1], usage)
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


def _gradients_after(table: LayerTable, row: int, times: LayerTimes, recomputed: Array) -> Seconds:
    """Time of the gradients of the products that read what a layer gathers: of inputs, of weights; (2, blocks).

    The products come right after the gather, or the fork of its output; other collectives have no such products. A
    product that is computed again needs its input before that: nothing runs beside the gather.
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


def exposed_times(
    table: LayerTable, cost: LayerCost, choice: BlockChoice, edition: Edition
) -> Seconds:
    """Return what is exposed of tensor-parallel collectives: shape (passes, kinds, collective layers, blocks)."""
    exposed = cost.traffic.exposed
    if choice.tensor_par_overlap == "none":
        return exposed
    repeated = table.flagged("recommunicate", choice, edition)[table.collective_rows()]
    again = edition.recommunication_exposed(exposed[0], exposed[2])
    return np.concatenate([exposed[:2], (again * repeated)[None]])


def storage(
    table: LayerTable, choice: BlockChoice, none: Array, edition: Edition, *, narrow: bool
) -> tuple[Bytes, Bytes]:
    """Return the activations that stay from the forward to the backward pass (section 4.3), and copies of weights.

    The former are those of a microbatch. Copies in 8 or 4 bits are kept once for all microbatches of a step, whose
    weights are the same; other conversions are part of the graph of each microbatch. Source: NVIDIA, *Transformer
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
    """Return what each layer adds to what stays from the forward to the backward pass: shape (layers, blocks)."""
    if not choice.training:
        return table.activation
    if choice.recompute_all:
        return np.zeros_like(table.activation)
    drops = table.flagged("drops_activation", choice, edition)
    kept = table.activation * ~drops
    if table.shard is not None:
        kept = kept + table.shard * (drops & ~table.flagged("drops_shard", choice, edition))
    made = table.flagged("remakes", choice, edition)
    if made.any():
        kept = np.maximum(kept - table.remade * (made & ~drops), 0.0)
    dropped = table.output_bytes * table.flagged("drops_output", choice, edition)
    return kept - dropped
