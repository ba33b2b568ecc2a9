"""The layers that communicate over tensor parallelism."""

from __future__ import annotations

from .counts import Counts, linear
from .layers import Flags, Layer, MatMul, Side, Stage
from .run import Kind, Run


class TPComm(Layer):
    """A TP collective by itself, empty without tensor parallelism."""

    def __init__(
        self, run: Run, name: str, side: Side, flags: Flags, *, outermost: bool = False
    ) -> None:
        t = run.execution.tensor_par
        size = run.activation if t > 1 else 0
        additions = size * (t - 1) / t
        fw, agrad = (additions, 0.0) if side == "reduce" else (0.0, additions)
        counts = Counts(inputs=size, outputs=size, saved=size, grads=size, fw=fw, agrad=agrad)
        super().__init__(run, name, counts, flags)
        self.side, self.message, self.outermost = side, run.element_bytes * size, outermost
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
        self,
        run: Run,
        name: str,
        side: Side,
        m: int,
        n: int,
        k: int,
        flags: Flags,
        *,
        outermost: bool = False,
    ) -> None:
        t = run.execution.tensor_par
        # [O6] What is saved differs by side and by sequence parallelism.
        if side == "gather":
            k //= t
            saved, grads = (m * n // t, m * k) if run.sequence_par else (m * n, 0)
        else:
            n //= t
            saved, grads = (m * n, 2 * (m * k // t)) if run.sequence_par else (0, 2 * m * k)
        if run.rules.overlapped_operands:
            saved, grads = m * n, m * k
        super().__init__(run, name, linear(m, n, k, saved, grads), flags)
        self.side, self.outermost = side, outermost
        self.message = run.element_bytes * (m * n if side == "gather" else m * k)
        self.usage = run.tp_network.processor_usage

    @property
    def stored_space(self) -> float:
        again = self.side == "gather" and self.run.sequence_par and self.flags.recomm
        if again and self.run.rules.overlapped_operands:
            return self.run.element_bytes * (self.counts.inputs // self.t)
        return self.activation_space

    def comm_tile(self, stage: Stage, kind: Kind) -> float:
        return self.comm_size(stage, kind) / self.t

    def _reduction_time(self, op: str, stage: Stage) -> float:
        if op == "all_gather":
            return 0
        return self.vector.time(self.message / self.run.element_bytes * (self.t - 1) / self.t)

    @property
    def pays_again(self) -> bool:
        return self.run.rules.repeated_overlap

    def _published_overlap(self, stage: Stage) -> tuple[float, float]:
        """Processing time and exposed network time, published."""
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
        if not self.run.rules.overlap_times:
            return self._published_overlap(stage)[0]
        return self._beside(stage, "base")

    def _beside(self, stage: Stage, kind: Kind) -> float:
        """Processing time beside the communication of a kind of block."""
        t, combine = self.t, self.run.system.combine
        flops_time, mem_time = self.flops_time(stage), self.mem_time(stage)
        compute = combine(flops_time, mem_time)
        slowed = combine(flops_time / (1 - self.usage), mem_time)
        # A recomputed layer has repeated its communication beside its forward pass.
        again = stage == "wgrad" and self.flags.recompute
        link = 0 if again else self.link_time(stage, kind)
        if link == 0:
            return compute
        if link <= self._cover(stage):
            return compute / t + (t - 1) / t * min(compute + link * self.usage, slowed)
        return compute / t + (t - 1) / t * slowed

    def exposed_time(self, stage: Stage, kind: Kind) -> float:
        if not self.run.rules.overlap_times:
            return self._published_overlap(stage)[1]
        if stage == "wgrad" and self.flags.recomm and self.flags.recompute:
            stage = "fw"
        link = self.link_time(stage, kind)
        exposed = max(0, (self.t - 1) / self.t * (link - self._cover(stage)))
        # An edge block is slowed by its own communication.
        exposed = max(0, exposed + self._beside(stage, kind) - self._beside(stage, "base"))
        # Nothing runs beside the first tile of a pipe.
        tile = link / self.t if self.run.execution.tensor_par_overlap == "pipe" else 0
        return exposed + tile

    def _cover(self, stage: Stage) -> float:
        """Longest link time that hides behind the stage."""
        slowed = self.flops_time(stage) / (1 - self.usage)
        if self.run.system.processing_mode == "roofline":
            return max(slowed, self.mem_time(stage))
        return slowed

    def required_bandwidth(self, stage: Stage, kind: Kind) -> float:
        slowed = self.flops_time(stage) / (1 - self.usage)
        return self.comm_tile(stage, kind) / (slowed / self.t)
