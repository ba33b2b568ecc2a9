"""Record of a layer, and constructors for common layers."""

from typing import NamedTuple

from calculon.architecture.ring_attention import Ring
from calculon.base.units import Bytes, Count, Elements, Flops
from calculon.declarations.scope_choices import BlockChoice
from calculon.editions.edition import Edition, When
from calculon.hardware.collectives.dispatch import Routing
from calculon.hardware.kernels.kernel import ENGINES, KernelKind, VectorKind

Number = Elements | float
"""Size: an array over executions, or one number for all of them."""

PHASES = ("fw", "agrad", "wgrad")
"""Passes over a layer: forward, gradient of the input, gradient of the weights."""


class Flags(NamedTuple):
    """Times (:class:`When`) at which a block recomputes, gathers again or drops tensors of a layer; without sizes.

    Attributes:
        recompute: The forward pass is repeated in the backward pass.
        recommunicate: The forward collective is repeated in the backward pass.
        drops_activation: The saved input is dropped before the backward pass.
        drops_shard: The shard of the saved input that would remain is dropped, too.
        drops_output: The output is not kept as the saved input of the next layer.
        remakes: The part ``remade`` of the saved input is recomputed instead of kept.
        shares_activation: The saved input is in the buffer of another layer.
        module: Module of the layer. If it is checkpointed (``BlockChoice.checkpoints``), the layer repeats its
            computation and communication, and saves nothing.
    """

    recompute: str = When.NEVER
    recommunicate: str = When.NEVER
    drops_activation: str = When.NEVER
    drops_shard: str = When.NEVER
    drops_output: str = When.NEVER
    remakes: str = When.REMAKES
    shares_activation: bool = False
    module: str = ""

    def happens(self, flag: str, choice: BlockChoice, edition: Edition) -> bool:
        """Return True if the condition of a flag holds under a choice."""
        when: str = getattr(self, flag)
        if flag in _OF_CHECKPOINTS and self.module in choice.checkpoints:
            return flag not in _REPEATED or when != When.NEVER
        return edition.happens(when, choice)


_REPEATED = ("recompute", "recommunicate")
_OF_CHECKPOINTS = (*_REPEATED, "drops_activation", "drops_shard")
"""Flags that hold for all layers of a checkpointed module; repeated flags only if the layer has them at all."""


RECOMPUTED = Flags(recompute=When.RECOMPUTE_ALL)
"""Flags of layers that full activation recomputation repeats, and nothing else."""

REDUCING = ("reduce_scatter", "all_reduce")
"""Collectives that sum the values of all ranks."""

Operations = tuple[str | None, str | None]
"""Collectives of the forward and the backward pass, as in the ``ops`` of a network; None sends nothing."""


class Collective(NamedTuple):
    """Collective of a layer.

    Attributes:
        message: Bytes of the full (gathered or reduced) tensor; 0 without parallelism along the axis.
        gathered: Bytes of the tensor for gathers, if gathers use narrower elements.
        operations, split_operations: Collectives of the forward and the backward pass. The second ones apply if the
            tensor is divided along the sequence outside of column- and row-parallel products (sequence parallelism);
            None if that makes no difference.
        overlapped: Cut into tiles that overlap the tiles of a matrix product.
        outer: The first gather or the last reduction of a block: next to a pipeline transfer.
        axis: Axis of parallelism: one of :data:`~calculon.declarations.axes.LAYER_AXES`.
        group: Ranks of an expert group that take part, if these are not all ranks of the axis
            (:data:`~calculon.cost.process_groups.ExpertRanks`).
        returned: Bytes of the message in the backward pass, if different.
        routing: Routing of tokens whose copies an expert library sends; the message is then one copy of each token of a
            rank.
        steps: Number of sequential operations in the forward and the backward pass; None for one.
    """

    message: Bytes
    operations: Operations
    split_operations: Operations | None = None
    overlapped: bool = False
    outer: bool = False
    axis: str = "tp"
    gathered: Bytes | None = None
    group: str = ""
    returned: Bytes | None = None
    routing: Routing | None = None
    steps: tuple[Count, Count] | None = None

    def times(self, *, backward: bool = False) -> Count | int:
        """Return the number of sequential operations."""
        return 1 if self.steps is None else self.steps[backward]

    def size(self, operation: str, *, backward: bool = False) -> Bytes:
        """Return the bytes of the full tensor in an operation."""
        if backward and self.returned is not None:
            return self.returned
        if self.gathered is None or operation != "all_gather":
            return self.message
        return self.gathered


class TensorOperator(NamedTuple):
    """Collectives at one end of a tensor-parallel product: for whole tensors, and for sequence parallelism."""

    whole: Operations
    split: Operations


COLUMN_INPUT = TensorOperator((None, "all_reduce"), ("all_gather", "reduce_scatter"))
"""Operator *f*, before column-parallel products: the identity forward, an all-reduce of input gradients backward.

With sequence parallelism it all-gathers the input, and reduce-scatters its gradients.

Source: Shoeybi et al., *Megatron-LM*, arXiv 1909.08053, figure 3; split along the sequence: Korthikanti et al., arXiv
2205.05198, section 4.2.2.
"""

ROW_OUTPUT = TensorOperator(("all_reduce", None), ("reduce_scatter", "all_gather"))
"""Operator *g*, after a row-parallel product: an all-reduce of partial outputs forward, the identity backward.

With sequence parallelism it reduce-scatters partial outputs, and all-gathers their gradients. Source: as for *f*.
"""


class Widths(NamedTuple):
    """Bytes per element: of stored weights, of operands of products, of their results.

    ``weight`` is for operands that are weights; 0 if it equals the width of other operands.
    """

    stored: int
    operand: float
    result: int
    weight: float = 0

    @property
    def multiplied(self) -> float:
        """Bytes per element of a weight as operand of a product."""
        return self.weight or self.operand


class Product(NamedTuple):
    """Matrix product: `batch` times ``(m, n) x (n, k)``.

    A single product has `n` x `k` weights, a product of experts has as many for each of the `batch`, and a product of
    two activations has none.
    """

    batch: Number
    m: Number
    n: Number
    k: Number


class Layer(NamedTuple):
    """Operator of a block on one processor, for one microbatch.

    ``flops`` and ``accessed`` (bytes moved in tier-1 memory) are per phase of :data:`PHASES`. ``inputs``, ``outputs``
    and ``weights`` are elements; ``activation`` (activation memory, saved for the backward pass), ``activation_grad``,
    ``output_bytes`` and ``weight_bytes`` are bytes. ``shard`` (bytes) remains if the activation is dropped.

    For fused attention, ``keys`` is the mean number of keys per query, ``slowest`` the ratio of keys (and FLOP) on the
    rank that the others wait for, ``causal`` its mask, ``head_width`` the elements per head of queries and keys, and
    ``value_width`` of values. ``product`` is the shape of a matrix product. Rate and fusion
    (:mod:`calculon.architecture.fusion`) depend on the kind of ``kernel``.

    ``launches`` is the number of kernels of each pass; by default one if the pass moves anything. ``table`` contains
    rows and columns of looked-up weights. ``tiles`` is the number of smaller sequential products per pass; None if
    products are not cut. ``ring`` contains the steps of ring attention; None without a ring. ``rounds`` is how often
    each pass launches its kernels. ``loop`` is the number of kernels of a launch that the host makes in a loop, one for
    each expert. ``repeated`` is the fraction of the forward pass that recomputation by operator
    repeats. ``remade`` are bytes of the activation that can be recomputed instead of saved.

    ``replicated`` marks weights that every tensor-parallel rank has completely, ``expert`` weights of routed experts,
    which expert parallelism divides over ranks: their replicas differ from the replicas of other weights. ``active`` is
    the fraction of the weights with which one token is multiplied: the weights of its experts. The shapes of ``routed``
    layers depend on the routing of tokens. ``counted`` are FLOP per
    token (forward, all ranks together) that MFU counts in addition to products with weights and scores.
    """

    name: str
    kernel: KernelKind
    flops: tuple[Flops | float, Flops | float, Flops | float]
    accessed: tuple[Bytes | float, Bytes | float, Bytes | float]
    inputs: Number
    outputs: Number = 0.0
    weights: Number = 0.0
    weight_bytes: Bytes | float = 0.0
    output_bytes: Bytes | float = 0.0
    activation: Bytes | float = 0.0
    activation_grad: Bytes | float = 0.0
    flags: Flags = Flags()
    collective: Collective | None = None
    shard: Bytes | float = 0.0
    keys: Number = 0.0
    slowest: Number = 1.0
    head_width: int = 0
    value_width: int = 0
    causal: bool = False
    product: Product | None = None
    table: tuple[Number, Number] | None = None
    launches: tuple[int, int, int] | None = None
    repeated: Number = 1.0
    remade: Bytes | float = 0.0
    tiles: tuple[Number, Number, Number] | None = None
    ring: Ring | None = None
    rounds: Number = 1.0
    loop: Number = 1.0
    replicated: bool = False
    expert: bool = False
    routed: bool = False
    active: float = 1.0
    counted: float = 0.0

    @property
    def engine(self) -> str:
        """Engine of the kernel: ``matrix``, ``vector``, or ``attention`` for fused attention."""
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
    """Return a layer that reads its operands and writes its result once per pass (section 2.3, first row).

    Args:
        inputs, outputs, weights, saved, grad: Elements read, written, stored as weights, saved for the backward pass,
            and of the output's gradient.
        input_grad: True to count writing the gradient of the saved tensors.
        dtype_bytes: Bytes per element.
    """
    backward = dtype_bytes * (weights + saved + grad)
    has_weights = not isinstance(weights, float) or weights > 0  # arrays always count as weights
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
    inputs: Number | None = None,
    mask_bytes: Number = 0.0,
    activation: Bytes | float = 0.0,
    activation_grad: Bytes | float,
    input_grad: bool = False,
    dtype_bytes: float,
    flags: Flags,
) -> Layer:
    """Return a weightless vector layer whose backward pass moves the bytes of its forward pass.

    It reads `inputs` elements, by default as many as it writes. With `input_grad` it also writes the gradient of its
    input.
    """
    inputs = elements if inputs is None else inputs
    accessed = dtype_bytes * (inputs + elements) + mask_bytes
    return Layer(
        name=name,
        kernel=kernel,
        flops=(*flops, 0.0),
        accessed=(accessed, accessed + dtype_bytes * inputs if input_grad else accessed, 0.0),
        inputs=inputs,
        outputs=elements,
        output_bytes=dtype_bytes * elements,
        activation=activation,
        activation_grad=activation_grad,
        flags=flags,
    )
