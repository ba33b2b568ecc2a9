"""One layer of a block: counts of elements and FLOP, bytes, and times of its stages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .run import Kind, Run

Stage = Literal["fw", "agrad", "wgrad", "optim"]  # agrad, wgrad: gradient of input, of weights
Side = Literal["gather", "reduce"]  # where a TP region begins (column split), ends (row split)


@dataclass(frozen=True)
class Flags:
    """Treatment of a layer in training."""

    recompute: bool = False
    recomm: bool = False  # repeat the forward communication in the backward pass
    stores_activation: bool = True
    reuses_activation: bool = False  # shares the buffer of another layer
    stores_output: bool = True


@dataclass(frozen=True, kw_only=True)
class Counts:
    """Numbers of elements, and FLOP of the forward and the two gradient stages."""

    inputs: int
    outputs: int
    weights: int = 0
    saved: int  # activation kept for the backward pass
    grads: int  # gradient of the output
    fw: float = 0
    agrad: float = 0
    wgrad: float = 0


def linear(m: int, n: int, k: int, saved: int | None = None, grads: int | None = None) -> Counts:
    """Count (m x n) times (n x k), the latter being the weights."""
    saved, grads = m * n if saved is None else saved, m * k if grads is None else grads
    sizes = {"inputs": m * n, "outputs": m * k, "weights": n * k, "saved": saved, "grads": grads}
    return Counts(**sizes, fw=2 * m * n * k, agrad=2 * m * n * k, wgrad=2 * m * n * k)


def batch_matmul(r: int, m: int, n: int, k: int) -> Counts:
    """Count r products (m x n) times (n x k) of activations."""
    inputs, outputs, flops = r * (m * n + n * k), r * m * k, 2 * r * m * n * k
    sizes = {"inputs": inputs, "outputs": outputs, "saved": inputs, "grads": outputs}
    return Counts(**sizes, fw=flops, agrad=2 * flops)


def layer_norm(size: int, hidden: int) -> Counts:
    """Count the normalization over the hidden width, with its scale and shift."""
    sizes = {"inputs": size, "outputs": size, "weights": 2 * hidden, "saved": size, "grads": size}
    return Counts(**sizes, fw=9 * size, agrad=14 * size, wgrad=7 * size)


def pointwise(size: int, fw: int, agrad: int, fused: bool = False) -> Counts:
    """Count a function of `fw` FLOP per element and its derivative; fused, it keeps nothing."""
    kept = 0 if fused else size
    sizes = {"inputs": size, "outputs": size, "saved": kept, "grads": kept}
    return Counts(**sizes, fw=fw * size, agrad=agrad * size)


def add(size: int) -> Counts:
    """Count the sum of two tensors."""
    sizes = {"inputs": 2 * size, "outputs": size, "saved": 2 * size, "grads": size}
    return Counts(**sizes, fw=size, agrad=2 * size)


class Layer:
    """A layer without communication; times are seconds, everything else bytes or FLOP."""

    on_matrix_engine = False
    side: Side | None = None  # of a TP region, if the layer communicates ...
    message = 0  # ... so many bytes

    def __init__(self, run: Run, name: str, counts: Counts, flags: Flags) -> None:
        self.run, self.name, self.counts, self.flags = run, name, counts, flags
        self.t = run.execution.tensor_par
        self.vector = run.system.vector[run.execution.datatype]
        matrix = run.system.matrix[run.execution.datatype]
        self.engine = matrix if self.on_matrix_engine else self.vector
        size = run.element_bytes
        self.weight_space = size * counts.weights
        self.output_space = size * counts.outputs
        self.activation_space: float = size * counts.saved
        self.activation_grad_space: float = size * counts.grads
        self.weight_grad_space = self.weight_space / run.shards
        # Two moments and, unless the weights have 4 bytes themselves, a master copy.
        self.optimizer_space = (12 if size < 4 else 8) * counts.weights / run.shards
        self.flops: dict[Stage, float] = {
            "fw": counts.fw,
            "agrad": counts.agrad,
            "wgrad": counts.wgrad,
            "optim": counts.weights / run.shards * 11,
        }
        gradient = size * (counts.weights + counts.saved + counts.grads)
        self.mem_accessed: dict[Stage, float] = {
            "fw": size * (counts.inputs + counts.outputs + counts.weights),
            "agrad": gradient,
            "wgrad": gradient if counts.weights else 0,
            "optim": self.optimizer_space,  # [O23] gradients are not read
        }

    def flops_time(self, stage: Stage) -> float:
        engine = self.vector if stage == "optim" else self.engine
        return engine.time(self.flops[stage])

    def mem_time(self, stage: Stage) -> float:
        return self.run.system.mem1.time(self.mem_accessed[stage])

    def processing_time(self, stage: Stage) -> float:
        return self.run.system.combine(self.flops_time(stage), self.mem_time(stage))

    def collective(self, stage: Stage, kind: Kind) -> str | None:
        """Operation of a stage; in `wgrad` it is the repeated forward communication."""
        if self.side is None or self.t == 1 or stage == "optim":
            return None
        if stage == "wgrad":
            return self.collective("fw", kind) if self.flags.recomm else None
        # [O15] p2p_rs_ag differs from ar in the collectives of edge blocks only.
        edge = self.run.execution.tensor_par_comm_type == "p2p_rs_ag" and kind == "edge"
        split = self.run.sequence_par or edge
        if (self.side == "reduce") == (stage == "fw"):
            return "reduce_scatter" if split else "all_reduce"
        return "all_gather" if split else None

    def comm_size(self, stage: Stage, kind: Kind) -> float:
        return self.message if self.collective(stage, kind) else 0

    def comm_tile(self, stage: Stage, kind: Kind) -> float:
        return self.comm_size(stage, kind)

    def link_time(self, stage: Stage, kind: Kind) -> float:
        op = self.collective(stage, kind)
        if op is None:
            return 0
        time = self.run.tp_network.time(op, self.message, self.t)
        # [O24] What is communicated again is charged for the network alone.
        return time if stage == "wgrad" else time + self._reduction_time(op, stage)

    def _reduction_time(self, op: str, stage: Stage) -> float:
        """Arithmetic that comes with the collective."""
        return 0

    def exposed_time(self, stage: Stage, kind: Kind) -> float:
        """Part of the link time that no arithmetic hides."""
        return 0

    def required_bandwidth(self, stage: Stage, kind: Kind) -> float:
        """Bandwidth that hides the communication behind the arithmetic."""
        return 0


class MatMul(Layer):
    """A product of matrices."""

    on_matrix_engine = True


class Activation(Layer):
    """GeLU or softmax: either pass reads its input and writes its output, even if fused."""

    def __init__(self, run: Run, name: str, counts: Counts, flags: Flags) -> None:
        super().__init__(run, name, counts, flags)
        self.mem_accessed["agrad"] = self.mem_accessed["fw"]


class DropOut(Layer):
    """Keeps a mask of one byte per element."""

    def __init__(self, run: Run, name: str, size: int, flags: Flags) -> None:
        super().__init__(run, name, pointwise(size, fw=1, agrad=1), flags)
        self.mem_accessed["fw"] += size
        self.mem_accessed["agrad"] = self.mem_accessed["fw"]
        # [O18] One byte, for the gradient too.
        self.activation_space = self.activation_grad_space = size


class Fork(Layer):
    """Hands a tensor to several users; reads their gradients and writes the sum."""

    def __init__(self, run: Run, name: str, size: int, users: int, flags: Flags) -> None:
        counts = Counts(inputs=size, outputs=0, saved=size, grads=0, agrad=users * size)
        super().__init__(run, name, counts, flags)
        self.mem_accessed["fw"] = 0
        self.mem_accessed["agrad"] = run.element_bytes * size * (users + 1)


class TPComm(Layer):
    """A TP collective by itself, empty without tensor parallelism."""

    def __init__(self, run: Run, name: str, side: Side, flags: Flags) -> None:
        t = run.execution.tensor_par
        size = run.activation if t > 1 else 0
        additions = size * (t - 1) / t
        fw, agrad = (additions, 0.0) if side == "reduce" else (0.0, additions)
        counts = Counts(inputs=size, outputs=size, saved=size, grads=size, fw=fw, agrad=agrad)
        super().__init__(run, name, counts, flags)
        self.side, self.message = side, run.element_bytes * size
        if run.sequence_par:
            self.activation_space = self.activation_grad_space = self.message / t
            self.mem_accessed["fw"] = self.mem_accessed["agrad"] = 2 * self.message
        else:
            reduced = self.message if side == "reduce" else 0
            self.activation_space, self.activation_grad_space = reduced, self.message - reduced
            self.mem_accessed["fw"] = 2 * reduced
            self.mem_accessed["agrad"] = 2 * (self.message - reduced)

    def processing_time(self, stage: Stage) -> float:
        return 0  # [O16] it is in the link time; flops_time and mem_time are summed nevertheless

    def _reduction_time(self, op: str, stage: Stage) -> float:
        return super().processing_time(stage)

    def exposed_time(self, stage: Stage, kind: Kind) -> float:
        return self.link_time(stage, kind)


class OverlappedLinear(MatMul):
    """A linear layer (m x n) times (n x k) in t tiles, between which its collective proceeds."""

    def __init__(
        self, run: Run, name: str, side: Side, m: int, n: int, k: int, flags: Flags
    ) -> None:
        t = run.execution.tensor_par
        # [O6] What is saved differs by side and by sequence parallelism.
        if side == "gather":
            k //= t
            saved, grads = (m * n // t, m * k) if run.sequence_par else (m * n, 0)
        else:
            n //= t
            saved, grads = (m * n, 2 * (m * k // t)) if run.sequence_par else (0, 2 * m * k)
        super().__init__(run, name, linear(m, n, k, saved, grads), flags)
        self.side = side
        self.message = run.element_bytes * (m * n if side == "gather" else m * k)
        self.usage = run.tp_network.processor_usage

    def comm_tile(self, stage: Stage, kind: Kind) -> float:
        return self.comm_size(stage, kind) / self.t

    def _reduction_time(self, op: str, stage: Stage) -> float:
        if op == "all_gather":
            return 0
        return self.vector.time(self.message / self.run.element_bytes * (self.t - 1) / self.t)

    def _overlap(self, stage: Stage) -> tuple[float, float]:
        """Processing time and exposed network time."""
        t, combine = self.t, self.run.system.combine
        flops_time, mem_time = self.flops_time(stage), self.mem_time(stage)
        slowed, compute = flops_time / (1 - self.usage), combine(flops_time, mem_time)
        # [O5] The link time is the base block's for both kinds of block.
        # [O4] In wgrad it is that of the repeated communication, which slows wgrad itself down.
        link = self.link_time(stage, "base")
        if link == 0:
            return compute, 0
        excess = link / t - slowed / t  # per tile
        if excess > 0:
            processing = compute / t + (t - 1) * combine(slowed, mem_time) / t
            exposed = (t - 1) * excess
        else:
            processing = compute / t + (t - 1) * compute / t + (t - 1) * (link / t) * self.usage
            exposed = 0
        # [O3] The tile that a pipe cannot hide is charged twice.
        tile = link / t if self.run.execution.tensor_par_overlap == "pipe" else 0
        return processing + tile, exposed + tile

    def processing_time(self, stage: Stage) -> float:
        return self._overlap(stage)[0]

    def exposed_time(self, stage: Stage, kind: Kind) -> float:
        return self._overlap(stage)[1]

    def required_bandwidth(self, stage: Stage, kind: Kind) -> float:
        slowed = self.flops_time(stage) / (1 - self.usage)
        return self.comm_tile(stage, kind) / (slowed / self.t)
