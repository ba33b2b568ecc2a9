"""The cost of every layer of a block: one table of layers, all phases at once."""

from collections.abc import Iterable

import numpy as np

from calculon.architecture.layer import PHASES, Product
from calculon.architecture.layers import Layer
from calculon.editions.edition import Edition
from calculon.hardware.gemm import product_efficiency
from calculon.hardware.system import System
from calculon.parallel.process_groups import tensor_team
from calculon.parallel.tensor import Traffic, hidden_behind, tensor_traffic
from calculon.plan.choice import Choice, Sizes
from calculon.records import record
from calculon.spec.execution import MATMUL_BYTES
from calculon.units import Array, Bytes, Elements, Flops, Seconds


class LayerTable:
    """Layers laid out as arrays, so that one expression costs them all.

    Attributes
    ----------
    layers : tuple of Layer
        In order of execution.
    flops, accessed : array, shape (phases, layers, blocks)
        FLOP and bytes moved in tier-1 memory, by phase of :data:`~calculon.architecture.layer.PHASES`.
    inputs, outputs, weights : array, shape (layers, blocks)
        Elements.
    weight_bytes, output_bytes, activation, activation_grad : array, shape (layers, blocks)
        Bytes.
    shard : array, shape (layers, blocks), or None
        Bytes that stay of an activation that is dropped; None where nothing does.
    """

    __slots__ = (
        "accessed",
        "activation",
        "activation_grad",
        "flops",
        "inputs",
        "layers",
        "output_bytes",
        "outputs",
        "shard",
        "weight_bytes",
        "weights",
    )
    layers: tuple[Layer, ...]
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

    def __init__(self, layers: Iterable[Layer], blocks: int):
        self.layers = tuple(layers)
        shape = (len(self.layers), blocks)
        self.flops = np.zeros((len(PHASES), *shape))
        self.accessed = np.zeros((len(PHASES), *shape))
        plain = np.zeros((len(self._PLAIN), *shape))
        for name, array in zip(self._PLAIN, plain, strict=True):
            setattr(self, name, array)
        for i, layer in enumerate(self.layers):
            for phase, (flops, accessed) in enumerate(
                zip(layer.flops, layer.accessed, strict=True)
            ):
                _fill(self.flops[phase], i, flops)
                _fill(self.accessed[phase], i, accessed)
            for name, array in zip(self._PLAIN, plain, strict=True):
                _fill(array, i, getattr(layer, name))
        self.shard = self._shards(shape)

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
        rows = [
            i
            for i, layer in enumerate(self.layers)
            if layer.collective and layer.collective.overlapped
        ]
        if not rows:
            return None
        shards = np.zeros(shape)
        for i in rows:
            shards[i] = self.layers[i].shard
        return shards

    def flagged(self, flag: str, choice: Choice, edition: Edition) -> Array:
        """Return for which layers a flag holds: shape (layers, 1), to broadcast over blocks."""
        whens = [getattr(layer.flags, flag) for layer in self.layers]
        known = {when: edition.happens(when, choice) for when in set(whens)}
        return np.array([known[when] for when in whens])[:, None]

    def engine_rows(self, engine: str) -> list[int]:
        """Return the numbers of the layers that run on an engine."""
        return [i for i, layer in enumerate(self.layers) if layer.engine == engine]

    def by_kind(self, rows: list[int]) -> dict[str | None, list[int]]:
        """Return some rows by what their operators are."""
        found: dict[str | None, list[int]] = {}
        for i in rows:
            found.setdefault(self.layers[i].kind, []).append(i)
        return found

    def products(self, rows: list[int]) -> Array:
        """Return the fields of :class:`~calculon.architecture.layer.Product` for some rows: shape (4, rows, blocks)."""
        shapes = np.zeros((len(Product._fields), len(rows), self.weights.shape[1]))
        for i, row in enumerate(rows):
            product = self.layers[row].product
            assert product is not None
            for j, size in enumerate(product):
                shapes[j, i] = size
        return shapes

    def kernels(self) -> Array:
        """Return how many kernels each pass of a layer launches: shape (phases, layers, 1)."""
        moves = self.accessed.any(axis=-1).astype(float)
        for i, layer in enumerate(self.layers):
            if layer.kernels is not None:
                moves[:, i] = layer.kernels
        return moves[..., None]

    def collective_rows(self) -> list[int]:
        """Return the numbers of the layers that have a tensor-parallel collective."""
        return [i for i, layer in enumerate(self.layers) if layer.collective is not None]


def _fill(array: Array, row: int, value: Array | float) -> None:
    """Set a row of an array of zeros."""
    if isinstance(value, np.ndarray) or value:
        array[row] = value


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
    """All times of the layers of a block; ``traffic`` holds the rows :meth:`LayerTable.collective_rows` only."""

    times: LayerTimes
    traffic: Traffic


def layer_times(table: LayerTable, system: System, choice: Choice) -> LayerTimes:
    """Time every layer in every phase: arithmetic and memory time, combined by the system's mode.

    No pass takes less than launching its kernels.
    """
    arithmetic = system.vector[choice.datatype].time(table.flops)
    matrix = table.engine_rows("matrix")
    core = _core_type(system, choice)
    if core == choice.matmul_type:
        arithmetic[:, matrix] = _products(table, matrix, system, choice.matmul_type)
    else:
        for kind, rows in table.by_kind(matrix).items():
            of_kind = choice.matmul_type if kind == "product" else core
            arithmetic[:, rows] = _products(table, rows, system, of_kind)
    for row in table.engine_rows("attention"):
        keys = table.layers[row].keys
        arithmetic[:, row] = system.attention_time(table.flops[:, row], keys, core)
    memory = system.mem1.time(table.accessed)
    processing = _launched(system.combine(arithmetic, memory), table, system)
    processing[:, table.collective_rows()] = 0.0
    return LayerTimes(arithmetic=arithmetic, memory=memory, processing=processing)


def _launched(
    processing: Seconds, table: LayerTable, system: System, rows: list[int] | None = None
) -> Seconds:
    """Return the times of all layers, or of some rows, with the least time that their launches take."""
    if not system.ext.launch.kernel:
        return processing
    kernels = table.kernels()
    return np.maximum(
        processing, system.launch_floor(kernels if rows is None else kernels[:, rows])
    )


def _core_type(system: System, choice: Choice) -> str:
    """Return the type in which attention is computed: that of its operands, which products in 8 bits make in 16."""
    if choice.matmul_dtype != "float8":
        return choice.matmul_type
    if choice.result_bytes == choice.dtype_bytes:
        return choice.datatype
    known = (name for name in ("bfloat16", "float16") if name in system.matrix)
    return next(known, choice.datatype)


def _products(table: LayerTable, rows: list[int], system: System, matmul_type: str) -> Seconds:
    """Return the arithmetic time of matrix products: by their FLOP, or by their shape where the system says how."""
    flops, engine = table.flops[:, rows], system.product_engine(matmul_type)
    gemm = system.gemm(matmul_type)
    if gemm is None or not rows:
        return engine.time(flops)
    shapes, activations = table.products(rows), flops[2] == 0
    efficiency = product_efficiency(gemm, shapes, activations, MATMUL_BYTES[matmul_type])
    time: Seconds = flops / (engine.peak * efficiency)
    return time


def layer_cost(
    table: LayerTable,
    times: LayerTimes,
    system: System,
    choice: Choice,
    sizes: Sizes,
    edition: Edition,
) -> LayerCost:
    """Add tensor-parallel traffic to the times of layers.

    A layer that only communicates has no processing time of its own; its arithmetic and memory time are part of its
    link time. An overlapped linear layer is slowed by the collective beside it.
    """
    rows, overlapped = table.collective_rows(), choice.tensor_par_overlap != "none"
    traffic = tensor_traffic(
        [table.layers[i] for i in rows],
        times.arithmetic[:, rows],
        times.memory[:, rows],
        system,
        choice,
        sizes,
        edition,
        table.flagged("recompute", choice, edition)[rows] if overlapped else None,
    )
    if overlapped:
        processing = times.processing.copy()
        processing[:, rows] = _launched(traffic.processing, table, system, rows)
        times = LayerTimes(arithmetic=times.arithmetic, memory=times.memory, processing=processing)
    if choice.tp_async:
        usage = system.fabric.processor_usage[tensor_team(sizes, choice, system).network]
        behind = np.stack([_gradients_after(table, row, times) for row in rows])
        traffic = hidden_behind(traffic, behind * (1.0 - usage))
    return LayerCost(times=times, traffic=traffic)


def _gradients_after(table: LayerTable, row: int, times: LayerTimes) -> Seconds:
    """Time of the weight gradients of the products that read what a layer gathers: shape (blocks,).

    The gradient of their input is there before those of their weights. They come right after the gather, or the fork
    of its output; other collectives have no such products.
    """
    total = np.zeros(table.weights.shape[1])
    collective = table.layers[row].collective
    if collective is None or collective.side != "gather":
        return total
    for i in range(row + 1, len(table.layers)):
        if table.layers[i].kind not in ("product", "fork"):
            break
        total = total + times.processing[2, i]
    return total
