"""The layer record, and what most layers have in common."""

from dataclasses import dataclass
from enum import Enum
from typing import Literal

from calculon.plan.choice import Choice
from calculon.units import Bytes, Elements, Flops

Number = Elements | float
"""A size: an array over executions, or one number for all of them."""

PHASES = ("fw", "agrad", "wgrad")
"""Passes over a layer: forward, gradient of the input, gradient of the weights."""


class When(Enum):
    """When something happens to a layer; the value is the property of :class:`~calculon.plan.choice.Choice`."""

    NEVER = ""
    ALWAYS = "always"
    RECOMPUTE_ALL = "recompute_all"
    RECOMPUTE_ATTENTION = "recompute_attention"
    REGATHER_ATTENTION = "regather_attention"
    REGATHER_MLP = "regather_mlp"

    def holds(self, choice: Choice) -> bool:
        """Return whether it happens under a choice."""
        if self in (When.NEVER, When.ALWAYS):
            return self is When.ALWAYS
        return bool(getattr(choice, self.value))


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags:
    """What the block does with a layer's tensors, and when; the sizes of a layer do not depend on it.

    Attributes
    ----------
    recompute : When
        The forward pass is computed again in the backward pass.
    recommunicate : When
        The forward collective is repeated in the backward pass.
    drops_activation : When
        The saved input does not stay until the backward pass.
    drops_output : When
        The output does not stay as the saved input of the next layer.
    shares_activation : bool
        The saved input lies in the buffer of another layer.
    """

    recompute: When = When.NEVER
    recommunicate: When = When.NEVER
    drops_activation: When = When.NEVER
    drops_output: When = When.NEVER
    shares_activation: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """The tensor-parallel collective of a layer.

    Attributes
    ----------
    side : {"gather", "reduce"}
        The operator *f* before a column-split product, or *g* after a row-split one (Shoeybi 2019, figure 3).
    message : array
        Bytes of the full, gathered or reduced, tensor; 0 without tensor parallelism.
    overlapped : bool
        Cut into tiles that run beside the tiles of a matrix product.
    """

    side: Literal["gather", "reduce"]
    message: Bytes
    overlapped: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One operator of a block on one processor, for one microbatch.

    ``flops`` and ``accessed`` (bytes moved in tier-1 memory) are per phase of :data:`PHASES`. ``inputs``, ``outputs``
    and ``weights`` are elements; ``activation`` (saved for the backward pass), ``activation_grad``, ``output_bytes``
    and ``weight_bytes`` are bytes.
    """

    name: str
    engine: Literal["matrix", "vector"]
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


def operator(
    name: str,
    engine: Literal["matrix", "vector"],
    flops: tuple[Flops | float, Flops | float, Flops | float],
    *,
    inputs: Number,
    outputs: Number,
    weights: Number = 0.0,
    saved: Number,
    grad: Number,
    dtype_bytes: float,
    flags: Flags,
    collective: Collective | None = None,
) -> Layer:
    """Build a layer that reads its operands and writes its result once per pass (section 2.3, first row).

    Parameters
    ----------
    inputs, outputs, weights, saved, grad : array or float
        Elements read, written, held as weights, saved for the backward pass, and of the output's gradient.
    dtype_bytes : float
        Bytes per element.
    """
    backward = dtype_bytes * (weights + saved + grad)
    has_weights = not isinstance(weights, float) or weights > 0
    return Layer(
        name=name,
        engine=engine,
        flops=flops,
        accessed=(
            dtype_bytes * (inputs + outputs + weights),
            backward,
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
        collective=collective,
    )


def pointwise(
    name: str,
    flops: tuple[Flops | float, Flops | float],
    elements: Number,
    *,
    mask_bytes: Number = 0.0,
    activation: Bytes | float,
    activation_grad: Bytes | float,
    dtype_bytes: float,
    flags: Flags,
) -> Layer:
    """Build a weightless vector layer whose backward pass moves the same bytes as its forward pass."""
    accessed = dtype_bytes * (elements + elements) + mask_bytes
    return Layer(
        name=name,
        engine="vector",
        flops=(flops[0], flops[1], 0.0),
        accessed=(accessed, accessed, 0.0),
        inputs=elements,
        outputs=elements,
        weights=0.0,
        weight_bytes=0.0,
        output_bytes=dtype_bytes * elements,
        activation=activation,
        activation_grad=activation_grad,
        flags=flags,
    )
