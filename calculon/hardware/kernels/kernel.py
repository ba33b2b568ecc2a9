"""Kinds of kernels, the shapes that a rate may depend on, and a kernel at its rate."""

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, Protocol, cast, get_args

import numpy as np

from calculon.base.arrays import is_nonzero
from calculon.base.frozen import dataclass
from calculon.base.units import Array, Bytes, Count, Flops, Fraction, Seconds
from calculon.declarations.fields import declare
from calculon.hardware.processor import Engine, Memory

LONGEST_START = 1.0
"""Seconds above which a kernel start is implausible; measured starts take a few microseconds."""

ProductKind = Literal["product", "grouped_product", "router", "batched_product"]
"""Products with weights (all tokens; one grouped kernel for all experts; the router), and batched products of two
activations.
"""

AttentionKind = Literal["attention"]
"""Fused attention."""

LinearKind = Literal["linear_attention"]
"""The linear-attention state, on the matrix engine."""

VectorKind = Literal[
    "norm",
    "activation",
    "gate",
    "softmax",
    "dropout",
    "rotary",
    "sum",
    "fork",
    "bias",
    "add",
    "reduction",
    "cast",
    "embedding",
    "loss",
    "routing",
    "collective",
    "mul_sum",
    "mul_sum_fused",
    "convolution",
    "gated_norm",
]
"""Memory-bound operators of the vector engine.

``gate`` is the attention gate, ``sum`` the residual sum, ``fork`` the sum of gradients from several consumers, ``bias``
a sum that may fuse into the next elementwise kernel, ``add`` any other elementwise sum, ``reduction`` the gradient of a
bias, ``collective`` the arithmetic in a collective, ``routing`` the choice of experts and the copies of rows for them,
``mul_sum`` the multiplication or the sum of a product outside the matrix engine that keeps single products in memory,
and ``mul_sum_fused`` such a product in one kernel; ``convolution`` and ``gated_norm`` are the short convolution before
the linear-attention state, and the gated norm after it.
"""

KernelKind = ProductKind | AttentionKind | LinearKind | VectorKind

ENGINES: dict[str, str] = {
    kind: engine
    for engine, kinds in (
        ("matrix", ProductKind),
        ("attention", AttentionKind),
        ("matrix", LinearKind),
        ("vector", VectorKind),
    )
    for kind in get_args(kinds)
}
"""Engine of each kind of kernel; fused attention is a matrix-engine kernel with its own rate."""


class ShapedLayer(Protocol):
    """Layer sizes that rates depend on: batch, m, n, k of a product; keys per query, mask, head width of attention."""

    @property
    def product(self) -> tuple[Count | float, Count | float, Count | float, Count | float] | None:
        """`batch` times ``(m, n) x (n, k)``."""

    @property
    def keys(self) -> Count | float:
        """Mean keys per query of fused attention."""

    @property
    def slowest(self) -> Count | float:
        """Keys and FLOP of the slowest rank over the mean."""

    @property
    def head_width(self) -> int:
        """Head width of fused attention, in elements."""

    @property
    def value_width(self) -> int:
        """Width of its values, in elements; 0 if equal to the head width."""

    @property
    def causal(self) -> bool:
        """True for a causal mask."""

    @property
    def launches(self) -> tuple[int, int, int] | None:
        """Kernels that each pass launches; None for one kernel if the pass moves anything."""

    @property
    def rounds(self) -> Count | float:
        """Number of repetitions of these launches in each pass."""

    @property
    def loop(self) -> Count | float:
        """Number of kernels of a launch that the host makes in a loop."""

    @property
    def routed(self) -> bool:
        """True if the shape of the layer depends on the routing of tokens to experts."""


def launches(accessed: Bytes, layers: Sequence[ShapedLayer]) -> Array:
    """Return the number of kernels that each pass of layers launches, from the bytes that it moves; same shape.

    A layer that moves nothing in any pass launches nothing.
    """
    result = (accessed > 0).astype(float)
    for i, layer in enumerate(layers):
        if layer.launches is not None:
            result[:, i] = np.array(layer.launches)[:, None] * accessed[:, i].any(axis=0)
        for times in (layer.rounds, layer.loop):
            if isinstance(times, np.ndarray):
                result[:, i] *= times
    return result


class Shapes(NamedTuple):
    """The layers of a table that share a rate; each size is gathered when a rate asks for it.

    Attributes:
        all_flops, all_accessed (shape (phases, all layers, blocks)): FLOP, and bytes moved in tier-1 memory.
        all_layers: The layers, for sizes that do not follow from FLOP and bytes.
        rows (shape (layers,)): Selected layers.
        together: Largest number of products of a batch that run together; 0 for no limit.
    """

    all_flops: Flops
    all_accessed: Bytes
    all_layers: Sequence[ShapedLayer]
    rows: Array
    together: int = 0

    def flops(self) -> Flops:
        """Return FLOP of the slowest rank: shape (phases, layers, blocks)."""
        result: Flops = self.all_flops.take(self.rows, axis=1)
        for i, layer in enumerate(self._layers()):
            if isinstance(layer.slowest, np.ndarray) or layer.slowest != 1.0:
                result[:, i] *= layer.slowest
        return result

    def accessed(self) -> Bytes:
        """Return bytes moved in tier-1 memory: shape (phases, layers, blocks)."""
        return self.all_accessed.take(self.rows, axis=1)

    def launches(self) -> Array:
        """Return the number of kernels that each pass of a layer launches: shape (phases, layers, blocks)."""
        return launches(self.accessed(), self._layers())

    def looped(self) -> bool:
        """Return whether the host launches a layer in a loop."""
        return any(isinstance(layer.loop, np.ndarray) for layer in self._layers())

    def products(self) -> Array:
        """Return batch, m, n and k of matrix products ``(m, n) x (n, k)``: shape (4, layers, blocks)."""
        result = np.zeros((4, len(self.rows), self.all_flops.shape[-1]))
        for i, layer in enumerate(self._layers()):
            assert layer.product is not None
            for j, size in enumerate(layer.product):
                result[j, i] = size
        if is_nonzero(self.together):
            result[0] = np.minimum(result[0], self.together)
        return result

    def keys(self) -> Array:
        """Return mean keys per query of the slowest rank: shape (layers, blocks)."""
        result = np.zeros((len(self.rows), self.all_flops.shape[-1]))
        for row, layer in zip(result, self._layers(), strict=True):
            row[:] = layer.keys * layer.slowest
        return result

    def head_widths(self) -> Array:
        """Return the head widths in elements: shape (layers, 1)."""
        return np.array([[float(layer.head_width)] for layer in self._layers()])

    def value_widths(self) -> Array:
        """Return the value widths in elements: shape (layers, 1)."""
        widths = [layer.value_width or layer.head_width for layer in self._layers()]
        return np.array([[float(width)] for width in widths])

    def causal(self) -> Array:
        """Return a mask of layers with a causal mask: shape (layers, 1)."""
        return np.array([[layer.causal] for layer in self._layers()])

    def _layers(self) -> list[ShapedLayer]:
        return [self.all_layers[row] for row in self.rows.tolist()]


Times = tuple[Seconds, Seconds | None]
"""Arithmetic time of the passes of layers, and their memory time if it differs from the time of all tier-1 traffic."""


class Rate(Protocol):
    """The rate of a kind of kernel in one type."""

    def times(self, shapes: Shapes, engine: Engine, memory: Memory, element_bytes: float) -> Times:
        """Return the times of layers.

        Args:
            engine: The engine that runs them; shares refer to its peak.
            memory: Tier-1 memory; shares of bandwidth refer to it.
            element_bytes: Bytes per element of the operands.
        """

    def slowed(self, factor: float, start: float, end: float) -> "Rate":
        """Return the rate of operations that take `factor` times as long, for sizes in [`start`, `end`)."""

    @property
    def follows_engine(self) -> bool:
        """True if arithmetic times scale with the engine's peak."""


class EngineRate:
    """The efficiency curve of the engine by FLOP of the operation."""

    def times(self, shapes: Shapes, engine: Engine, memory: Memory, element_bytes: float) -> Times:
        """Return the arithmetic time of layers."""
        return engine.time(shapes.flops()), None

    def slowed(self, factor: float, start: float, end: float) -> "EngineRate":
        """Return the rate unchanged: the engine itself is slowed."""
        return self

    @property
    def follows_engine(self) -> bool:
        """Always true: the rate is the engine's own."""
        return True


ENGINE_RATE = EngineRate()
"""The rate if a system states none."""


class Kernel(NamedTuple):
    """A kernel at one rate on one engine: layers of several kinds with equal kernels are timed together."""

    rate: Rate
    engine: Engine
    element_bytes: float

    def times(self, shapes: Shapes, memory: Memory) -> Times:
        """Return the times of layers: see :meth:`Rate.times`."""
        return self.rate.times(shapes, self.engine, memory, self.element_bytes)


class Types(NamedTuple):
    """Arithmetic types: of products with weights, of attention, and of everything else; and the attention kernel.

    ``promoted`` is true if forward products accumulate partial sums in 32 bits. Fused attention runs in the type
    ``fused``, by default that of other attention.
    """

    product: str
    attention: str
    vector: str
    attention_kernel: str = "auto"
    promoted: bool = False
    fused: str = ""


# Kernel launches: a kernel takes at least its launch on the device, and many kernels at least their launches on the
# host.


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """The cost of launching kernels, which bounds small operators."""

    kernel: float = declare("minimum time of a kernel or a collective", unit="s", at_least=0)
    eager: float = declare(
        "host time per kernel if a framework runs operators one by one",
        unit="s",
        at_least=0,
        default=0.0,
    )
    training: float = declare(
        "host time per kernel if a training framework runs operators one by one, if it differs from eager, which "
        "serving uses; 0: as eager",
        unit="s",
        at_least=0,
        default=0.0,
    )
    compile: float = declare(
        "host time per kernel of a compiled program", unit="s", at_least=0, default=0.0
    )
    product_loop: float = declare(
        "host time per further product of a library's loop over experts; 0: as in a compiled program",
        unit="s",
        at_least=0,
        default=0.0,
    )
    graph: float = declare(
        "host time per kernel in a CUDA graph",
        unit="s",
        at_least=0,
        default=0.0,
    )
    step: float = declare(
        "time of a step without kernels: reading data, logging, waiting for the host",
        unit="s",
        at_least=0,
        default=0.0,
    )

    def host(self, mode: str | None) -> float:
        """Return the host time per kernel of a training framework in one of :data:`LAUNCH_MODES`.

        It is 0 for None: the device never waits for the host. With graphs of parts, it is the time of a kernel outside
        of them.
        """
        if mode is None:
            return 0.0
        mode = {"blocking": "eager", "graph_parts": "eager"}.get(mode, mode)
        if mode == "eager" and is_nonzero(self.training):
            return cast("float", np.where(self.training, self.training, self.eager))
        return cast("float", getattr(self, mode))

    def host_times(self, mode: str | None, layers: Sequence[ShapedLayer]) -> Array:
        """Return the host time per kernel of layers: shape (layers, 1 or machines)."""
        outside = self.host(mode)
        inside = self.graph if mode == "graph_parts" else outside
        routed = np.array([[layer.routed] for layer in layers])
        return np.where(routed, outside, inside)

    def looped(self, each: Array, layers: Sequence[ShapedLayer]) -> Array:
        """Return the host times per further kernel of a launch in a loop, given those of a launch: as `each`.

        Such loops are compiled (Transformer Engine, ``nvte_multi_stream_cublas_gemm``, ``split_quantize``).
        """
        products = np.array([[layer.product is not None] for layer in layers])
        loop = np.where(self.product_loop, self.product_loop, self.compile)
        return np.minimum(each, np.where(products, loop, self.compile))

    def bounded(self, time: Seconds, kernels: Array | float) -> Seconds:
        """Return times of work that launches n kernels: at least the launch time."""
        return np.maximum(time, self.kernel * kernels)


# The three passes of a matrix product: forward, input gradient, weight gradient.

Share = Callable[[Count, Count, Count, Count], Fraction]
"""Function from batch, m, n and depth of products with an ``m x n`` result to their rate or share of the peak."""


def of_passes(share: Share, shapes: Array, activations: Array) -> Fraction:
    """Return the shares of the three passes of products ``(m, n) x (n, k)``; the first axis is the pass.

    Args:
        share: Function that gives the share of one product.
        shapes (shape (4, ...)): Number of products, and their m, n and k.
        activations: Mask of products of two activations: both gradients then count in the second pass, like their FLOP.
    """
    batch, m, n, k = shapes
    # one call for all passes, which have the shapes (m, k), (m, n) and (n, k) and the depths n, k and m
    forward, inputs, weights = share(
        batch, np.stack([m, m, n]), np.stack([k, n, k]), np.stack([n, k, m])
    )
    # Equal FLOP at two rates: the rate of both together is the harmonic mean.
    both = 2 / (1 / inputs + 1 / weights)
    return np.stack([forward, np.where(activations, both, inputs), weights])
