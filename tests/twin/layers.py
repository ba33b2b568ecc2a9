"""One layer of a block: what it computes, moves and keeps, and the times of its stages."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Literal

from calculon.frozen import dataclass

from .fields import MULTIPLIED_BYTES
from .optimizer import Step
from .run import Kind, Run
from .system import Gemm, efficiency_at, fused_time

Stage = Literal["fw", "agrad", "wgrad", "optim"]  # agrad, wgrad: gradient of input, of weights
PASSES: tuple[Stage, Stage, Stage] = ("fw", "agrad", "wgrad")
Side = Literal["gather", "reduce", "total", "collect", "join"]
Engine = Literal["matrix", "vector", "attention"]
"""Where a TP region begins (column split) or ends (row split); a sum over the ranks; a gathered
output whose gradient is reduced and scattered, or only cut."""


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

    side: Side | None = None  # of a TP region, if the layer communicates ...
    message: float = 0  # ... so many bytes
    gathered: float | None = None  # ... so many where it gathers narrower elements
    outermost = False  # whether it is the first gather or the last reduction of the block
    beside = False  # whether its collective runs beside a product
    branch = False  # whether it ends a branch of the residual stream
    product: tuple[int, float, int, int] | None = None  # count, rows, depth, columns
    table: tuple[int, int] | None = None  # of weights that are looked up
    mean_keys: float = 0  # of fused attention
    queries: float = 0  # of all its heads
    kernels: tuple[int, int, int] | None = None  # that each pass launches
    repeated: float = 1  # share of the forward pass, where single operators are recomputed ...
    remade: float = 0  # ... and saved bytes that these make again

    def __init__(
        self,
        run: Run,
        name: str,
        flags: Flags,
        *,
        kind: str = "",
        engine: Engine = "vector",
        flops: tuple[float, float, float] = (0, 0, 0),
        moved: tuple[float, float, float] = (0, 0, 0),
        inputs: float = 0,
        outputs: float = 0,
        weights: int = 0,
        output_space: float = 0,
        saved: float = 0,
        grads: float = 0,
    ) -> None:
        self.run, self.name, self.flags, self.kind, self.engine = run, name, flags, kind, engine
        self.t = run.execution.tensor_par
        self.vector = run.system.vector[run.execution.datatype]
        self.inputs, self.outputs, self.weights = inputs, outputs, weights
        self.weight_space = run.element_bytes * weights
        self.output_space, self.activation_space = output_space, saved
        self.activation_grad_space = grads
        self.work: dict[Stage, float] = dict(zip(PASSES, flops, strict=True))
        self.traffic: dict[Stage, float] = dict(zip(PASSES, moved, strict=True))

    @cached_property
    def step(self) -> Step:
        """The optimizer step of its weights."""
        sides = self.table
        if self.product is not None and self.weights:
            sides = self.product[2], self.product[3]
        return Step(self.run, self.weights, sides)

    @property
    def stored_space(self) -> float:
        """Bytes kept for the backward pass by a layer that stores its activation."""
        return self.activation_space

    def flops(self, stage: Stage) -> float:
        return self.step.flops if stage == "optim" else self.work[stage]

    def mem_accessed(self, stage: Stage) -> float:
        return self.step.moved if stage == "optim" else self.traffic[stage]

    def flops_time(self, stage: Stage) -> float:
        """Seconds of the arithmetic on its engine."""
        if stage == "optim":
            return self.step.flops_time
        flops, system = self.work[stage], self.run.system
        if self.engine == "vector":
            law = self._law()
            if law is None:
                return system.count(self.run.execution.datatype, flops)
            efficiency = self._by_shape(stage, law, self.vector.peak, self.run.element_bytes)
            return flops / (self.vector.peak * efficiency)
        arithmetic = self.run.multiply_type if self.kind == "product" else self.run.core_type
        engine = system.multiply[arithmetic]
        if self.engine == "attention":
            return self._attention(stage, arithmetic)
        if arithmetic in system.gemm:
            law, size = system.gemm[arithmetic], MULTIPLIED_BYTES[arithmetic]
            return flops / (engine.peak * self._by_shape(stage, law, engine.peak, size))
        return engine.time(flops)

    def _law(self) -> Gemm | None:
        """Return the law of a product by its shape, if there is one."""
        if self.engine == "vector":
            return self._summed() if self.kind == "product" else None
        if self.engine != "matrix":
            return None
        products = self.run.multiply_type, self.run.core_type
        return self.run.system.gemm.get(products[0] if self.kind == "product" else products[1])

    def _summed(self) -> Gemm | None:
        """Return the law of a product on the vector engine in one kernel: ends of a tile take as long."""
        run, datatype = self.run, self.run.execution.datatype
        law = run.system.gemm.get(datatype)
        if law is None or run.execution.matmul_impl != "mul_sum_fused":
            return None
        beside = self.vector.peak / run.system.multiply[datatype].peak
        return replace(law, half_depth=law.half_depth * beside)

    def _attention(self, stage: Stage, arithmetic: str) -> float:
        """Seconds of the arithmetic of fused attention."""
        flops, system = self.work[stage], self.run.system
        engine = system.multiply[arithmetic]
        if arithmetic in system.fused:
            if not flops:
                return 0
            return fused_time(
                system.fused[arithmetic],
                self.run.execution.attn_kernel,
                backward=stage == "agrad",
                queries=self.queries,
                keys=self.mean_keys,
                width=self.run.model.attn_size,
                causal=self.run.model.causal,
                peak=engine.peak,
            )
        if arithmetic not in system.attention:
            return engine.time(flops)
        efficiency = efficiency_at(system.attention[arithmetic], self.mean_keys)
        return flops / (engine.peak * efficiency)

    def _by_shape(self, stage: Stage, law: Gemm, peak: float, size: int) -> float:
        """Efficiency of the product or, of two activations, of both gradients together."""
        assert self.product is not None
        bandwidth = self.run.system.mem1.peak
        forward, inputs, weights = law.efficiencies(*self.product, size, peak, bandwidth)
        if stage == "fw":
            return forward
        if stage == "wgrad":
            return weights
        return inputs if self.weights else 2 * inputs * weights / (inputs + weights)

    def mem_time(self, stage: Stage) -> float:
        if stage == "optim":
            return self.step.mem_time
        gemm = self._law()
        if gemm is not None and gemm.memory_efficiency is not None:
            return self.traffic[stage] / (self.run.system.mem1.peak * gemm.memory_efficiency)
        system, moved = self.run.system, self.traffic[stage]
        if self.engine != "vector" or gemm is not None:
            return system.move(moved)
        return system.move(moved, self.launched(stage), backward=stage != "fw")

    def launched(self, stage: Stage) -> int:
        """Kernels of a pass, at least one if anything moves."""
        if self.kernels is not None:
            return self.kernels[PASSES.index(stage)]
        return int(self.traffic[stage] != 0)

    def floor(self, stage: Stage) -> float:
        """Seconds that it takes to launch the kernels of a pass."""
        return self.launched(stage) * self.run.system.launch

    def host(self, stage: Stage) -> float:
        """Seconds of the host for the kernels of a pass."""
        ex = self.run.execution
        return self.launched(stage) * self.run.system.host_time(ex.launch_mode, ex.fusion)

    def unlaunched_time(self, stage: Stage) -> float:
        return self.run.system.combine(self.flops_time(stage), self.mem_time(stage))

    def processing_time(self, stage: Stage) -> float:
        if stage == "optim":
            return self.step.time
        return max(self.unlaunched_time(stage), self.floor(stage))

    def collective(self, stage: Stage, kind: Kind) -> str | None:
        """Operation of a stage; in `wgrad` it is the repeated forward communication."""
        if self.side is None or self.t == 1 or stage == "optim":
            return None
        if stage == "wgrad":
            return self.collective("fw", kind) if self.flags.recomm else None
        if self.side in ("total", "collect", "join"):
            forward = "all_reduce" if self.side == "total" else "all_gather"
            backward = "reduce_scatter" if self.side == "collect" else None
            return forward if stage == "fw" else backward
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
        op = self.collective(stage, kind)
        return self.sized(op) if op else 0

    def sized(self, op: str) -> float:
        """Bytes of an operation: what is gathered may have narrower elements."""
        return self.message if op != "all_gather" or self.gathered is None else self.gathered

    def comm_tile(self, stage: Stage, kind: Kind) -> float:
        return self.comm_size(stage, kind)

    def link_time(self, stage: Stage, kind: Kind) -> float:
        op = self.collective(stage, kind)
        if op is None:
            return 0
        time = self.run.tp_team.time(op, self.sized(op))
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
