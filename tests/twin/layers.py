"""One layer of a block: counts of elements and FLOP, bytes, and times of its stages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .counts import Counts, pointwise
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


class Layer:
    """A layer without communication; times are seconds, everything else bytes or FLOP."""

    on_matrix_engine = False
    side: Side | None = None  # of a TP region, if the layer communicates ...
    message = 0  # ... so many bytes
    outermost = False  # whether it is the first gather or the last reduction of the block

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
        step = run.step
        self.weight_grad_space: float = self.weight_space / run.shards
        if run.rules.waiting_gradients and (run.whole_gradients or step.stated):
            parts = 1 if run.whole_gradients else run.shards
            self.weight_grad_space = step.gradient * counts.weights / parts
        # Moments and, unless the weights have 4 bytes themselves, a master copy.
        self.optimizer_space = step.state * counts.weights / run.shards
        self.flops: dict[Stage, float] = {
            "fw": counts.fw,
            "agrad": counts.agrad,
            "wgrad": counts.wgrad,
            "optim": counts.weights / run.shards * step.flops,
        }
        gradient = size * (counts.weights + counts.saved + counts.grads)
        self.beside_step: float = 0
        unwritten = size * counts.unwritten if run.rules.backward_traffic else 0
        self.mem_accessed: dict[Stage, float] = {
            "fw": size * (counts.inputs + counts.outputs + counts.weights),
            "agrad": gradient + unwritten,
            "wgrad": gradient if counts.weights else 0,
            "optim": self.optimizer_space,  # [O23] gradients are not read
        }
        if run.rules.optimizer_traffic:
            # Reads and writes the state, reads the gradient; weights of 4 bytes are their own
            # master copy, which is read and written, others are written only.
            self.mem_accessed["optim"] = step.moved * counts.weights / run.shards
            self.beside_step = step.beside * counts.weights / run.shards

    @property
    def stored_space(self) -> float:
        """Bytes kept for the backward pass by a layer that stores its activation."""
        return self.activation_space

    def flops_time(self, stage: Stage) -> float:
        engine = self.vector if stage == "optim" else self.engine
        return engine.time(self.flops[stage])

    def mem_time(self, stage: Stage) -> float:
        time, moved = self.run.system.mem1.time, self.mem_accessed[stage]
        if stage == "optim" and self.beside_step:
            return time(moved - self.beside_step) + time(self.beside_step)
        return time(moved)

    def processing_time(self, stage: Stage) -> float:
        return self.run.system.combine(self.flops_time(stage), self.mem_time(stage))

    def collective(self, stage: Stage, kind: Kind) -> str | None:
        """Operation of a stage; in `wgrad` it is the repeated forward communication."""
        if self.side is None or self.t == 1 or stage == "optim":
            return None
        if stage == "wgrad":
            return self.collective("fw", kind) if self.flags.recomm else None
        # [O15] p2p_rs_ag differs from ar in the collectives of edge blocks only.
        ex = self.run.execution
        edge = ex.tensor_par_comm_type == "p2p_rs_ag" and kind == "edge"
        if self.run.rules.split_at_edges:
            edge = edge and ex.pipeline_par > 1 and self.outermost
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
        time = self.run.tp_network.time(op, self.message, self.t, self.run.per_step)
        if stage == "wgrad":
            if not self.pays_again:
                return time  # [O24] what is communicated again is charged for the network alone
            stage = "fw"
        return time + self._reduction_time(op, stage)

    @property
    def pays_again(self) -> bool:
        """Whether a repeated collective comes with the arithmetic of the first one."""
        return self.run.rules.repeated_reduction

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
    """GeLU or softmax: the forward pass reads its input and writes its output, even if fused.

    The backward pass reads a saved tensor and a gradient and writes one; published are two of them.
    """

    def __init__(self, run: Run, name: str, counts: Counts, flags: Flags) -> None:
        super().__init__(run, name, counts, flags)
        passes = 3 if run.rules.backward_traffic else 2
        self.mem_accessed["agrad"] = passes * run.element_bytes * counts.inputs


class DropOut(Layer):
    """Keeps a mask of one byte per element."""

    def __init__(self, run: Run, name: str, size: int, flags: Flags) -> None:
        super().__init__(run, name, pointwise(size, fw=1, agrad=1), flags)
        self.mem_accessed["fw"] += size
        self.mem_accessed["agrad"] = self.mem_accessed["fw"]
        self.activation_space = size
        if not run.rules.dropout_gradient:
            self.activation_grad_space = size  # [O18] one byte, as the mask


class Fork(Layer):
    """Hands a tensor to several users; reads their gradients and writes the sum."""

    def __init__(self, run: Run, name: str, size: int, users: int, flags: Flags) -> None:
        counts = Counts(inputs=size, outputs=0, saved=size, grads=0, agrad=users * size)
        super().__init__(run, name, counts, flags)
        self.mem_accessed["fw"] = 0
        self.mem_accessed["agrad"] = run.element_bytes * size * (users + 1)
