"""Optimizer step: state, arithmetic and memory traffic of each optimizer per parameter.

Resident and moved bytes follow Rajbhandari et al., *ZeRO*, arXiv 1910.02054, section 3.1: a state of 4-byte moments,
and a 4-byte master copy of narrower weights. A fused step reads and writes the state once, reads a gradient, and writes
a weight. Other forms run one elementwise operation after the other, as PyTorch's optimizers do.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from calculon.base.units import Array, Bytes, Count, Elements, Flops, Fraction
from calculon.declarations.named_values import MASTER_BYTES
from calculon.declarations.scope_choices import StepChoice

QUANTIZED_BYTES = 1 + 4 / 256
"""Bytes of an 8-bit moment: blocks of 256 share a 4-byte scale (Dettmers et al., arXiv 2110.02861, section 2)."""

MOMENT_BYTES = {"float32": 4, "bfloat16": 2}
"""Bytes of a moment by type; DeepSeek-V3 keeps Adam's in bfloat16 (arXiv 2412.19437, section 3.3.2)."""

NEWTON_SCHULZ_STEPS = 5


class Optimizer(NamedTuple):
    """Cost of an optimizer step.

    Attributes:
        moments: Values of the state per parameter, without the master copy.
        flops: FLOP per parameter on the vector engine.
        values, moment_values: Accesses per parameter of sequential elementwise operations: values of 4 bytes
            (gradients, weights, intermediate results), and moments in their own type.
        kernels: Kernels of these operations for one weight tensor.
        reads: Number of times that a fused step reads a gradient.
    """

    moments: int
    flops: int
    values: int
    moment_values: int
    kernels: int
    reads: int = 1


ADAM = Optimizer(moments=2, flops=11, values=10, moment_values=8, kernels=7)
"""Kingma and Ba, arXiv 1412.6980, algorithm 1: lerp 3 accesses, mul 2, addcmul 3, sqrt 2, div 2, add 2, addcdiv 4."""

ADAM_8BIT = Optimizer(moments=2, flops=20, values=18 + 4, moment_values=4, kernels=7 + 4)
"""Dettmers et al., arXiv 2110.02861, section 2: Adam, with moments read into 4 bytes before and written back after."""

LION = Optimizer(moments=1, flops=5, values=8, moment_values=3, kernels=4)
"""Chen et al., arXiv 2302.06675, algorithm 2: lerp 3 accesses, sign 2, add 3, lerp 3."""

SGD_MOMENTUM = Optimizer(moments=1, flops=4, values=3, moment_values=5, kernels=3)
"""Polyak 1964: mul 2 accesses, add 3, add 3; the last reads the moment in its stored type (``torch/optim/sgd.py``)."""

SGD = Optimizer(moments=0, flops=2, values=3, moment_values=0, kernels=1)
"""Robbins and Monro 1951: add 3 accesses."""

ADAFACTOR = Optimizer(moments=0, flops=8, values=13, moment_values=0, kernels=8, reads=3)
"""Shazeer and Stern, arXiv 1804.04235, algorithm 4, without momentum: sums of squares over rows 1 access and columns 1,
product of the two 1, rsqrt 2, mul 3, norm of the update 1 and of the weights 1, add 3. Fused, the gradient is read for
the sums, for the norm that clips the update, and for the update."""

ADAFACTOR_VECTOR = Optimizer(moments=1, flops=8, values=10, moment_values=5, kernels=7, reads=2)
"""Algorithm 5 of the same: mul 2 accesses, addcmul 3, rsqrt 2, mul 3, norms 1 and 1, add 3; the gradient is read for
the norm and for the update."""

MUON = Optimizer(moments=1, flops=6, values=6, moment_values=3, kernels=3 + 3 * NEWTON_SCHULZ_STEPS)
"""Jordan et al. 2024, kellerjordan.github.io/posts/muon; Liu et al., arXiv 2502.16982, algorithm 1: lerp 3 accesses,
lerp 3 (Nesterov), add 3; in between the products of :func:`newton_schulz`."""

OPTIMIZERS: Mapping[str, Optimizer] = {
    "adam": ADAM,
    "adam_8bit": ADAM_8BIT,
    "lion": LION,
    "sgd_momentum": SGD_MOMENTUM,
    "sgd": SGD,
    "adafactor": ADAFACTOR,
    "muon": MUON,
}

OF_OTHERS: Mapping[str, Optimizer] = {"adafactor": ADAFACTOR_VECTOR, "muon": ADAM}
"""Optimizers of weights that are not matrices, if they have a different one."""


class Matrices(NamedTuple):
    """Weight matrices of layers, shape (layers, steps); 0 for layers without one.

    Attributes:
        elements, sides: Rows times columns, and rows plus columns, of the share of a tensor-parallel rank; for experts,
            of all of them.
        shorter, longer: Sides of the whole matrix. A product of several matrices (gate and up, or fused query, key and
            value) counts as one, and a head that ranks share counts once for each of them.
        share: Fraction of the products of a whole matrix that a tensor-parallel rank computes; for experts, of all of
            them together.
    """

    elements: Elements
    sides: Elements
    shorter: Elements
    longer: Elements
    share: Fraction


class Experts(NamedTuple):
    """Mask of layers that are routed experts, shape (layers, 1), and copies of each weight in a model replica.

    `copies`, of shape (layers, steps), is the tensor-parallel degree over the number of ranks that hold all experts
    once, and 1 for other layers. It is None if it is 1 everywhere: experts then have the replicas of other weights.
    """

    layers: Array
    copies: Fraction | None


class Narrow(NamedTuple):
    """Processing of the weights of layers by a low-precision recipe after a step; bytes per element, shape (layers, 1).

    Attributes:
        conversion: Traffic on each rank of converting the gathered weights.
        unwritten: Reduction of the bytes that each weight takes when the stepping rank writes it.
    """

    conversion: Bytes
    unwritten: Bytes


class Parameters(NamedTuple):
    """Weights of layers, shape (layers, steps); `matrices` if the step depends on them; `experts` if there are any.

    `narrow` is the processing by a low-precision recipe, if any.
    """

    weights: Elements
    matrices: Matrices | None = None
    experts: Experts | None = None
    narrow: "Narrow | None" = None

    def shards(self, of_others: Count) -> Count:
        """Return the number of parts into which replicas divide the state of each layer.

        Replicas of a model, or groups of them, share the state. For experts every copy within a replica takes part, so
        there are fewer parts if several replicas together hold all experts once. Source: Liu et al., *MoE Parallel
        Folding*, arXiv 2504.14960, section 3.2; torchtitan, ``distributed/parallel_dims.py`` (``efsdp``).
        """
        if self.experts is None or self.experts.copies is None:
            return of_others
        # A rule refuses fractions
        whole = np.maximum(np.rint(of_others * self.experts.copies), 1.0)
        return np.where(of_others > 1, whole, of_others)

    def take(self, columns: Array) -> "Parameters":
        """Return selected steps."""
        matrices = self.matrices and Matrices(*(values[:, columns] for values in self.matrices))
        experts = self.experts
        if experts is not None and experts.copies is not None:
            experts = Experts(experts.layers, experts.copies[:, columns])
        return Parameters(self.weights[:, columns], matrices, experts, self.narrow)

    def without(self, layer: int, elements: Elements) -> "Parameters":
        """Return the weights without a matrix of `elements` in one layer."""
        weights, kept = self.weights.copy(), np.ones_like(self.weights)
        weights[layer] -= elements
        kept[layer] = 0.0
        return Parameters(weights, self.matrices and Matrices(*(v * kept for v in self.matrices)))

    def mix(self, matrix: float, other: float) -> Elements:
        """Return the sum of an amount per parameter of matrices, and another one per other parameter."""
        if self.matrices is None or matrix == other:
            return self.weights * matrix
        elements = self.matrices.elements
        return elements * matrix + (self.weights - elements) * other


def joined(parts: Sequence[Parameters], *, layers: bool = False) -> Parameters:
    """Concatenate steps of the same layers, or `layers` of the same steps."""
    if len(parts) == 1:
        return parts[0]
    axis = 0 if layers else 1
    weights = np.concatenate([part.weights for part in parts], axis=axis)
    known = [part.matrices for part in parts if part.matrices is not None]
    experts, narrow = (None, None) if layers else (_joined_experts(parts), parts[0].narrow)
    if not known:
        return Parameters(weights, None, experts, narrow)
    together = (np.concatenate(values, axis=axis) for values in zip(*known, strict=True))
    return Parameters(weights, Matrices(*together), experts, narrow)


def _joined_experts(parts: Sequence[Parameters]) -> Experts | None:
    """Return the experts of steps of the same layers."""
    first = parts[0].experts
    if first is None or all(part.experts and part.experts.copies is None for part in parts):
        return first
    copies = [
        np.ones_like(part.weights)
        if part.experts is None or part.experts.copies is None
        else part.experts.copies
        for part in parts
    ]
    return Experts(first.layers, np.concatenate(copies, axis=1))


def of_matrices_and_others(choice: StepChoice) -> tuple[Optimizer, Optimizer]:
    """Return the optimizers of matrices and of other weights."""
    own = OPTIMIZERS[choice.optimizer]
    return own, OF_OTHERS.get(choice.optimizer, own)


def _moment_bytes(choice: StepChoice) -> float:
    if choice.optimizer == "adam_8bit":
        return QUANTIZED_BYTES
    return MOMENT_BYTES[choice.optimizer_state_dtype]


def optimizer_flops(parameters: Parameters, choice: StepChoice, shards: Count) -> Flops:
    """Return the elementwise FLOP of a step, without :func:`newton_schulz`."""
    own, other = of_matrices_and_others(choice)
    if own is other:
        return parameters.weights / shards * own.flops
    return parameters.mix(own.flops, other.flops) / shards


def newton_schulz(matrices: Matrices) -> tuple[Flops, Flops]:
    """Return the FLOP of both kinds of product in a Newton-Schulz step: two of ``2 n² m``, one of ``2 n³``, ``n <= m``.

    Five steps take ``5 (4 n² m + 2 n³)`` for a whole matrix. Source: Jordan et al. 2024; arXiv 2502.16982, section 2.1.
    """
    square = 2 * matrices.shorter * matrices.shorter
    return square * matrices.longer, square * matrices.shorter


def state_bytes(parameters: Parameters, choice: StepChoice, shards: Count) -> Bytes:
    """Return the bytes of the optimizer state: moments, and a 4-byte master copy of narrower weights.

    Adafactor stores a value per row and per column of a matrix. Source: arXiv 1804.04235, section 3.
    """
    own, other = of_matrices_and_others(choice)
    each = _moment_bytes(choice)
    copies = choice.dtype_bytes < MASTER_BYTES and not choice.sharded_masters
    master = MASTER_BYTES if copies else 0
    weights, matrices = parameters.weights, parameters.matrices
    moments = parameters.mix(each * own.moments, each * other.moments)
    if choice.optimizer == "adafactor" and matrices is not None:
        moments = moments + each * matrices.sides
    return (moments + master * weights) / shards


def resident_weight_bytes(weights: Elements, choice: StepChoice, shards: Count) -> Bytes:
    """Return the bytes of weights that stay on a rank: all, its shard, or its shard of 4-byte masters.

    Source: Rajbhandari et al., *ZeRO*, arXiv 1910.02054, section 5.3; FSDP keeps shards in full precision only: Zhao et
    al., arXiv 2304.11277, section 4.4.
    """
    if choice.sharded_masters:
        return MASTER_BYTES * weights / shards
    whole: Bytes = choice.dtype_bytes * weights
    return whole / shards if choice.splits_weights else whole


def main_gradient_bytes(weights: Elements, choice: StepChoice, shards: Count) -> Bytes | float:
    """Return the bytes of the 4-byte copy of narrower gradients with which Megatron-LM steps (arXiv 1909.08053).

    The narrow gradients exist at the same time if they are flattened: deepspeed/runtime/zero/stage_1_and_2.py, `step`
    (``self.flatten(self.averaged_gradients[i]).to(...)``).
    """
    if not choice.main_grad:
        return 0.0
    return (MASTER_BYTES + choice.flat_gradient_bytes) * weights / shards


def step_bytes(
    fused: Bytes,
    parameters: Parameters,
    gradient_bytes: Array | int,
    choice: StepChoice,
    shards: Count,
) -> Bytes:
    """Return the bytes that a step moves in the chosen form.

    The norm of gradients reads them once more; scaling them is part of a fused step, and otherwise a separate pass.
    Sequential operations never move less than a fused step.

    Args:
        fused: Bytes of a fused step that reads each gradient once.
        gradient_bytes: Bytes per element of the accumulated gradients.
    """
    own, other = of_matrices_and_others(choice)
    weights = parameters.weights / shards
    # Element size of the gradients that the step reads.
    element = MASTER_BYTES if choice.main_grad else gradient_bytes
    once = element * weights
    more = parameters.mix(own.reads - 1, other.reads - 1) * element / shards
    if choice.main_grad:
        # The copy is written, and read instead of the narrow gradients.
        more = more + 2 * (MASTER_BYTES + choice.flat_gradient_bytes) * weights
    if choice.grad_clip:
        more = more + once
    moved: Bytes = fused + more
    if choice.optimizer_impl == "fused":
        return moved
    values = MASTER_BYTES * parameters.mix(own.values, other.values)
    moments = _moment_bytes(choice) * parameters.mix(own.moment_values, other.moment_values)
    apart = (values + moments) / shards
    if choice.dtype_bytes < MASTER_BYTES:
        apart = apart + (MASTER_BYTES + choice.dtype_bytes) * weights
    small = gradient_bytes < MASTER_BYTES
    apart = apart + np.where(small, gradient_bytes + MASTER_BYTES, 0) * weights
    if choice.grad_clip:
        apart = apart + 3 * once
    return np.maximum(moved, apart)


def step_kernels(parameters: Parameters, gradient_bytes: Array | int, choice: StepChoice) -> Count:
    """Return the kernels of a loop over weight tensors: a matrix is one tensor, other weights of a layer another."""
    if choice.optimizer_impl != "loop" or parameters.matrices is None:
        return np.zeros_like(parameters.weights)
    own, other = of_matrices_and_others(choice)
    elements = parameters.matrices.elements
    matrix, rest = elements > 0, parameters.weights > elements
    copies = 2 * choice.grad_clip + (choice.dtype_bytes < MASTER_BYTES)
    each = copies + (gradient_bytes < MASTER_BYTES)
    kernels: Count = matrix * (own.kernels + each) + rest * (other.kernels + each)
    return kernels
