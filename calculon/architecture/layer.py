"""The record of a layer, and constructors that most layers share."""

from typing import NamedTuple

from calculon.architecture.ring_attention import Ring
from calculon.base.units import Bytes, Count, Elements, Flops
from calculon.declarations.scope_choices import BlockChoice
from calculon.editions.edition import Edition, When
from calculon.hardware.collectives.dispatch import Routing
from calculon.hardware.kernels.kernel import ENGINES, KernelKind, VectorKind

Number = Elements | float
"""A size: an array over executions, or one number for all of them."""

PHASES = ("fw", "agrad", "wgrad")
"""Passes over a layer: forward, gradient of the input, gradient of the weights."""


class Flags(NamedTuple):
    """When (:class:`When`) a block recomputes, gathers again or drops tensors of a layer; sizes do not depend on it.

    Attributes:
        recompute: The forward pass is computed again in the backward pass.
        recommunicate: The forward collective is repeated in the backward pass.
        drops_activation: The saved input does not stay until the backward pass.
        drops_shard: Nothing stays of it either where a shard of it would.
        drops_output: The output does not stay as the saved input of the next layer.
        remakes: The part ``remade`` of the saved input is made again, and does not stay.
        shares_activation: The saved input lies in the buffer of another layer.
        module: Module that the layer is a part of. Where that is checkpointed (``BlockChoice.checkpoints``), the layer
            is computed and communicates again, and keeps nothing.
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
        """Whether one of the flags that name a time holds under a choice."""
        when: str = getattr(self, flag)
        if flag in _OF_CHECKPOINTS and self.module in choice.checkpoints:
            return flag not in _REPEATED or when != When.NEVER
        return edition.happens(when, choice)


_REPEATED = ("recompute", "recommunicate")
_OF_CHECKPOINTS = (*_REPEATED, "drops_activation", "drops_shard")
"""What happens to all layers of a checkpointed module; computed again is what recomputation of all does."""


RECOMPUTED = Flags(recompute=When.RECOMPUTE_ALL)
"""Computed again in the backward pass of full recomputation, and nothing else."""

REDUCING = ("reduce_scatter", "all_reduce")
"""Collectives that add up the values of all ranks."""

Operations = tuple[str | None, str | None]
"""Collectives of the forward and of the backward pass, as in the ``ops`` of a network; None sends nothing."""


class Collective(NamedTuple):
    """The collective of a layer.

    Attributes:
        message: Bytes of the full, gathered or reduced, tensor; 0 without parallelism along the axis.
        gathered: Those where it is gathered, if that is in narrower elements.
        operations, split_operations: Of the forward and of the backward pass; the second where the tensor is split
            along the sequence outside of column- and row-parallel products, None where that makes no difference.
        overlapped: Cut into tiles that overlap the tiles of a matrix product.
        outer: The first gather or the last reduction of a block: next to a pipeline transfer.
        axis: Axis of parallelism: one of :data:`~calculon.declarations.axes.LAYER_AXES`.
        group: Which ranks of a group of experts take part, where these are others than those of the axis
            (:data:`~calculon.cost.process_groups.ExpertRanks`).
        returned: Those of the backward pass, if they are others.
        routing: Of tokens whose copies a library of experts sends; the message is then one copy of each token of a
            rank.
        steps: How often the operations of the forward and of the backward pass run, one after the other; None for once.
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
        """Return how often an operation runs, one after the other."""
        return 1 if self.steps is None else self.steps[backward]

    def size(self, operation: str, *, backward: bool = False) -> Bytes:
        """Return bytes of the full tensor in an operation."""
        if backward and self.returned is not None:
            return self.returned
        if self.gathered is None or operation != "all_gather":
            return self.message
        return self.gathered


class TensorOperator(NamedTuple):
    """The collectives at one end of a tensor-parallel product: of whole tensors, and split along the sequence."""

    whole: Operations
    split: Operations


COLUMN_INPUT = TensorOperator((None, "all_reduce"), ("all_gather", "reduce_scatter"))
"""Operator *f*, before column-parallel products: hands their input to all ranks, and adds its gradients up.

Source: Shoeybi et al., *Megatron-LM*, arXiv 1909.08053, figure 3; split along the sequence: Korthikanti et al., arXiv
2205.05198, section 4.2.2.
"""

ROW_OUTPUT = TensorOperator(("all_reduce", None), ("reduce_scatter", "all_gather"))
"""Operator *g*, after a row-parallel product: adds up the parts of its output; source as of *f*."""


class Widths(NamedTuple):
    """Bytes per element: of stored weights, of operands of products, of their results.

    ``weight`` is that of an operand that is a weight; 0 where it is that of others.
    """

    stored: int
    operand: float
    result: int
    weight: float = 0

    @property
    def multiplied(self) -> float:
        """Bytes per element of a weight as it is multiplied."""
        return self.weight or self.operand


class Product(NamedTuple):
    """A matrix product: `batch` times ``(m, n) x (n, k)``.

    A single one has `n` x `k` weights, one of experts as many for each of the `batch`, one of two activations none.
    """

    batch: Number
    m: Number
    n: Number
    k: Number


class Layer(NamedTuple):
    """One operator of a block on one processor, for one microbatch.

    ``flops`` and ``accessed`` (bytes moved in tier-1 memory) are per phase of :data:`PHASES`. ``inputs``, ``outputs``
    and ``weights`` are elements; ``activation`` (activation memory, saved for the backward pass), ``activation_grad``,
    ``output_bytes`` and ``weight_bytes`` are bytes. ``shard`` (bytes) stays where the activation is dropped. ``keys``
    is the mean number of keys per query of fused attention, ``slowest`` how many times as many keys, and FLOP, it has
    on the rank that the others wait for, ``causal`` its mask, ``head_width`` its elements per
    head of queries and keys, and ``value_width`` of values; ``product`` the shape of a matrix product. Rate and fusion
    (:mod:`calculon.architecture.fusion`) depend on the kind of ``kernel``.
    ``launches`` is the number of kernels that each pass launches: by default one where it moves anything. ``table`` is
    rows and columns of weights that are looked up. ``tiles`` is in how many products of fewer rows, one after the
    other, each pass of a product is cut; None where none is. ``ring`` are the steps of attention whose keys other ranks
    have; None where none has. ``rounds`` is how often each pass launches its kernels. Where single operators are
    recomputed, ``repeated`` is the share of the forward pass that is. ``remade`` are bytes of the activation that may
    be made again rather than kept. ``replicated`` are weights that every tensor-parallel rank has whole, ``expert``
    those of routed experts, of which expert parallelism gives each rank a share: their replicas are others than those
    of all other weights.
    ``active`` is the share of the weights that one token is multiplied with: those of its experts. ``counted`` are FLOP
    of a token, forward and on all ranks together, that MFU counts beside products with weights and scores.
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
    replicated: bool = False
    expert: bool = False
    active: float = 1.0
    counted: float = 0.0

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

    Args:
        inputs, outputs, weights, saved, grad: Elements read, written, held as weights, saved for the backward pass, and
            of the output's gradient.
        input_grad: Count writing the gradient of the saved tensors.
        dtype_bytes: Bytes per element.
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
    inputs: Number | None = None,
    mask_bytes: Number = 0.0,
    activation: Bytes | float = 0.0,
    activation_grad: Bytes | float,
    input_grad: bool = False,
    dtype_bytes: float,
    flags: Flags,
) -> Layer:
    """Build a weightless vector layer whose backward pass moves the bytes of its forward pass.

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
