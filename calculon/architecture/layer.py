"""The layer record, and what most layers have in common."""

from typing import Literal, NamedTuple

from calculon.editions.edition import When
from calculon.hardware.kernels.kernel import ENGINES, KernelKind, VectorKind
from calculon.units import Bytes, Elements, Flops

Number = Elements | float
"""A size: an array over executions, or one number for all of them."""

PHASES = ("fw", "agrad", "wgrad")
"""Passes over a layer: forward, gradient of the input, gradient of the weights."""


class Flags(NamedTuple):
    """What the block does with a layer's tensors, and when (:class:`When`); sizes do not depend on it.

    Attributes
    ----------
    recompute : str
        The forward pass is computed again in the backward pass.
    recommunicate : str
        The forward collective is repeated in the backward pass.
    drops_activation : str
        The saved input does not stay until the backward pass.
    drops_output : str
        The output does not stay as the saved input of the next layer.
    shares_activation : bool
        The saved input lies in the buffer of another layer.
    """

    recompute: str = When.NEVER
    recommunicate: str = When.NEVER
    drops_activation: str = When.NEVER
    drops_output: str = When.NEVER
    shares_activation: bool = False


REDUCING = ("reduce_scatter", "all_reduce")
"""Collectives that add up what ranks have."""


class Collective(NamedTuple):
    """The collective of a layer.

    Attributes
    ----------
    message : array
        Bytes of the full, gathered or reduced, tensor; 0 without parallelism along the axis.
    side : {"gather", "reduce", "total", "collect", "join"}, optional
        Of tensor parallelism, whose operations an execution chooses:
        The operator *f* before a column-split product, or *g* after a row-split one (Shoeybi 2019, figure 3), or a sum
        that every rank needs in the forward pass only. The output of a column-split product for readers that are split
        (*collect*: their gradients are summed and split again) or not (*join*: of its gradient a slice is taken).
    overlapped : bool
        Cut into tiles that run beside the tiles of a matrix product.
    outer : bool
        The first gather or the last reduction of a block: next to a pipeline transfer.
    axis : str
        Axis of parallelism: one of :data:`~calculon.spec.axes.LAYER_AXES`.
    operations : tuple of str or None
        Without a side: the operations of the forward and of the backward pass.
    """

    message: Bytes
    side: Literal["gather", "reduce", "total", "collect", "join"] | None = None
    overlapped: bool = False
    outer: bool = False
    axis: str = "tp"
    operations: tuple[str | None, str | None] = (None, None)


class Widths(NamedTuple):
    """Bytes per element: of stored weights, of what products read, of what they write."""

    stored: int
    operand: int
    result: int


class Product(NamedTuple):
    """A matrix product: `batch` times ``(m, n) x (n, k)``. A single one has `n` x `k` weights, a batch has none."""

    batch: Number
    m: Number
    n: Number
    k: Number


class Layer(NamedTuple):
    """One operator of a block on one processor, for one microbatch.

    ``flops`` and ``accessed`` (bytes moved in tier-1 memory) are per phase of :data:`PHASES`. ``inputs``, ``outputs``
    and ``weights`` are elements; ``activation`` (saved for the backward pass), ``activation_grad``, ``output_bytes``
    and ``weight_bytes`` are bytes. ``shard`` (bytes) stays where the activation is dropped. ``keys`` is the mean number
    of keys per query of fused attention, and ``head_width`` its elements per head; ``product`` the shape of a matrix
    product. ``kernel`` is what kind of kernel each pass is: its rate, and how fusion treats it
    (:mod:`calculon.architecture.fusion`), depend on it. ``launches`` is how many kernels each pass launches: by default
    one where it moves anything. ``table`` is rows and columns of weights that are looked up.
    """

    name: str
    kernel: KernelKind
    flops: tuple[Flops | float, Flops | float, Flops | float]
    accessed: tuple[Bytes | float, Bytes | float, Bytes | float]
    inputs: Number
    outputs: Number
    weights: Number
    weight_bytes: Bytes | float
    output_bytes: Bytes | float
    activation: Bytes | float
    activation_grad: Bytes | float
    flags: Flags
    collective: Collective | None = None
    shard: Bytes | float = 0.0
    keys: Number = 0.0
    head_width: int = 0
    product: Product | None = None
    table: tuple[Number, Number] | None = None
    launches: tuple[int, int, int] | None = None

    @property
    def engine(self) -> str:
        """The engine that the kernel runs on: ``matrix``, ``vector``, or of fused attention ``attention``."""
        return ENGINES[self.kernel]


def operator(
    name: str,
    kernel: KernelKind,
    flops: tuple[Flops | float, Flops | float, Flops | float],
    *,
    inputs: Number,
    outputs: Number,
    weights: Number = 0.0,
    saved: Number,
    grad: Number,
    input_grad: bool = False,
    dtype_bytes: float,
    flags: Flags,
) -> Layer:
    """Build a layer that reads its operands and writes its result once per pass (section 2.3, first row).

    Parameters
    ----------
    inputs, outputs, weights, saved, grad : array or float
        Elements read, written, held as weights, saved for the backward pass, and of the output's gradient.
    input_grad : bool
        Count writing the gradient of what was saved.
    dtype_bytes : float
        Bytes per element.
    """
    backward = dtype_bytes * (weights + saved + grad)
    has_weights = not isinstance(weights, float) or weights > 0
    return Layer(
        name=name,
        kernel=kernel,
        flops=flops,
        accessed=(
            dtype_bytes * (inputs + outputs + weights),
            backward + dtype_bytes * saved if input_grad else backward,
            backward if has_weights else 0.0,
        ),
        inputs=inputs,
        outputs=outputs,
        weights=weights,
        weight_bytes=dtype_bytes * weights,
        output_bytes=dtype_bytes * outputs,
        activation=dtype_bytes * saved,
        activation_grad=dtype_bytes * grad,
        flags=flags,
    )


def pointwise(
    name: str,
    kernel: VectorKind,
    flops: tuple[Flops | float, Flops | float],
    elements: Number,
    *,
    mask_bytes: Number = 0.0,
    activation: Bytes | float,
    activation_grad: Bytes | float,
    input_grad: bool = False,
    dtype_bytes: float,
    flags: Flags,
) -> Layer:
    """Build a weightless vector layer whose backward pass moves the bytes of its forward pass.

    With `input_grad` it also writes the gradient of its input.
    """
    accessed = dtype_bytes * (elements + elements) + mask_bytes
    return Layer(
        name=name,
        kernel=kernel,
        flops=(flops[0], flops[1], 0.0),
        accessed=(accessed, accessed + dtype_bytes * elements if input_grad else accessed, 0.0),
        inputs=elements,
        outputs=elements,
        weights=0.0,
        weight_bytes=0.0,
        output_bytes=dtype_bytes * elements,
        activation=activation,
        activation_grad=activation_grad,
        flags=flags,
    )
