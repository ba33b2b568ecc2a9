"""One layer of a block: what it computes, moves and keeps, and the times of its stages."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from calculon.base.frozen import dataclass

from .fields import MULTIPLIED_BYTES
from .optimizer import Step
from .run import Kind, Run, Team
from .system import Gemm, efficiency_at, fused_time

if TYPE_CHECKING:
    from .context import Steps

Stage = Literal["fw", "agrad", "wgrad", "optim"]  # agrad, wgrad: gradient of input, of weights
PASSES: tuple[Stage, Stage, Stage] = ("fw", "agrad", "wgrad")
Side = Literal["gather", "reduce", "total", "collect", "join", "spread"]
Engine = Literal["matrix", "vector", "attention", "linear"]
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
    team: Team  # that its collective has
    beside = False  # whether its collective runs beside a product
    whole = False  # whether every TP rank has all of its weights
    branch = False  # whether it ends a branch of the residual stream
    product: tuple[int, float, int, int] | None = None  # count, rows, depth, columns
    table: tuple[int, int] | None = None  # of weights that are looked up
    mean_keys: float = 0  # of fused attention
    slowest: float = 1  # of its keys on the rank with the most over the mean
    queries: float = 0  # of all its heads
    kernels: tuple[int, int, int] | None = None  # that each pass launches ...
    rounds: float = 1  # ... so often
    loop: float = 1  # kernels of each launch: one for each expert, in a loop of the host
    with_experts = False  # whether its block has experts
    routed = False  # whether its shape is known only when tokens are routed to experts
    steps: Steps | None = None  # of attention in a ring
    repeated: float = 1  # share of the forward pass, where single operators are recomputed ...
    remade: float = 0  # saved bytes that are made again, and not kept

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
        output_space: float | None = None,
        saved: float = 0,
        grads: float = 0,
    ) -> None:
        self.run, self.name, self.flags, self.kind, self.engine = run, name, flags, kind, engine
        self.t, self.team = run.execution.tensor_par, run.tp_team
        self.vector = run.system.vector[run.execution.datatype]
        self.inputs, self.outputs, self.weights = inputs, outputs, weights
        self.weight_space = run.element_bytes * weights
        results = run.result_bytes * outputs
        self.output_space = results if output_space is None else output_space
        self.activation_space = saved
        self.activation_grad_space = grads
        self.work: dict[Stage, float] = dict(zip(PASSES, flops, strict=True))
        self.traffic: dict[Stage, float] = dict(zip(PASSES, moved, strict=True))

    @cached_property
    def step(self) -> Step:
        """The optimizer step of its weights."""
        sides = self.table
        if self.product is not None and self.weights:
            sides = self.product[2], self.product[3]
        count = self.product[0] if self.kind == "grouped" and self.product is not None else 1
        expert = self.kind == "grouped"
        return Step(
            self.run,
            self.weights,
            sides,
            count,
            whole=self.whole,
            expert=expert,
            narrow=self.kind in ("product", "grouped"),
        )

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
        arithmetic = self._type()
        if self.engine in ("attention", "linear"):
            return self._attention(stage, arithmetic)
        if self.kind == "grouped" and self.loop > 1 and arithmetic in system.calls:
            return self._in_calls(stage, arithmetic)
        return self._multiplied(stage, arithmetic, flops)

    def _multiplied(self, stage: Stage, arithmetic: str, flops: float) -> float:
        """Seconds of FLOP of products on the matrix engine."""
        system = self.run.system
        engine = system.multiply[arithmetic]
        if arithmetic not in system.gemm:
            return engine.time(flops)
        law, size = system.gemm[arithmetic], MULTIPLIED_BYTES.get(arithmetic, 0.5)
        recipe = self.run.recipe
        if recipe is not None and recipe.promotes and self.kind in ("product", "grouped"):
            # forward products add parts of their sums up as those of gradients do
            law = replace(law, max_efficiency=law.max_efficiency * law.gradients, gradients=1.0)
        return flops / (engine.peak * self._by_shape(stage, law, engine.peak, size))

    def _in_calls(self, stage: Stage, arithmetic: str) -> float:
        """Seconds of products of experts of which some run at a time, each in a call of the host."""
        law = self.run.system.calls[arithmetic]
        assert self.product is not None
        experts, rows, n, k = self.product
        some = min(experts, law["together"])
        turns, flops = experts / some, self.work[stage] * some / experts
        self.product = some, rows, n, k
        time = self._multiplied(stage, arithmetic, flops)
        self.product = experts, rows, n, k
        return max(turns * time, experts * law["call"]) if flops else 0

    def _type(self) -> str:
        """Type of the arithmetic of a product."""
        if self.kind == "router":
            known = [name for name in ("tfloat32", "float32") if name in self.run.system.multiply]
            return (known or [self.run.multiply_type])[0]
        if self.kind == "attention" and self.run.execution.fp8_attention:
            return "float8"
        return self.run.multiply_type if self.kind in ("product", "grouped") else self.run.core_type

    def _law(self) -> Gemm | None:
        """Return the law of a product by its shape, if there is one."""
        if self.engine == "vector":
            return self._summed() if self.kind == "product" else None
        if self.engine != "matrix":
            return None
        return self.run.system.gemm.get(self._type())

    def _summed(self) -> Gemm | None:
        """Return the law of a product on the vector engine in one kernel: ends of a tile take as long."""
        run, datatype = self.run, self.run.execution.datatype
        law = run.system.gemm.get(datatype)
        if law is None or run.execution.matmul_impl != "mul_sum_fused":
            return None
        beside = self.vector.peak / run.system.multiply[datatype].peak
        return replace(law, half_depth=law.half_depth * beside)

    def _attention(self, stage: Stage, arithmetic: str) -> float:
        """Seconds of the arithmetic of fused attention, or of states."""
        if self.steps is None:
            return self._of_keys(stage, arithmetic, 1, causal=self.run.model.causal)
        first, other = self._of_steps(stage, arithmetic)
        return first + (self.steps.count - 1) * other

    def _of_steps(self, stage: Stage, arithmetic: str) -> tuple[float, float]:
        """Seconds of the arithmetic of the first step and of each other one, the slower of two kinds."""
        steps = self.steps
        assert steps is not None
        first = self._of_keys(stage, arithmetic, steps.first, causal=self.run.model.causal)
        if steps.count <= 1:
            return first, 0
        others = [self._of_keys(stage, arithmetic, steps.other, causal=steps.masked)]
        if steps.halved:
            half = self._of_keys(stage, arithmetic, steps.other, causal=steps.masked, queries=1 / 2)
            others.append(half)
        return first, max(others)

    def step_times(self, stage: Stage) -> tuple[float, float]:
        """Seconds of the first step and of each other one, memory and launches included."""
        steps, system = self.steps, self.run.system
        assert steps is not None
        moved = system.move(self.traffic[stage] / steps.count)
        assert self.kernels is not None
        floor = self.kernels[PASSES.index(stage)] * system.launch
        first, other = self._of_steps(stage, self._type())
        return max(system.combine(first, moved), floor), max(system.combine(other, moved), floor)

    def _of_keys(
        self, stage: Stage, arithmetic: str, share: float, *, causal: bool, queries: float = 1
    ) -> float:
        """Seconds of a share of attention, by some of the queries: to as many more keys as they are fewer."""
        flops, system = self.work[stage] * share * self.slowest, self.run.system
        keys = self.mean_keys
        if self.steps:
            keys *= share / queries
            if keys < 1:  # some queries see none, the others one
                queries, keys = queries * keys, 1
        keys *= self.slowest
        engine = system.multiply[arithmetic]
        if self.engine == "linear":  # a share of the peak, whatever its size
            return flops / (system.linear_share * engine.peak)
        if arithmetic in system.fused:
            if not flops:
                return 0
            return fused_time(
                system.fused[arithmetic],
                self.run.execution.attn_kernel,
                backward=stage == "agrad",
                queries=self.queries * queries,
                keys=keys,
                width=self.run.model.attn_size,
                value=self.run.model.value_size,
                causal=causal,
                peak=engine.peak,
            )
        if arithmetic not in system.attention:
            return engine.time(flops)
        efficiency = efficiency_at(system.attention[arithmetic], keys)
        return flops / (engine.peak * efficiency)

    def _by_shape(self, stage: Stage, law: Gemm, peak: float, size: float) -> float:
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
        if self.steps is not None:
            return self.steps.count * system.move(moved / self.steps.count)
        if self.engine != "vector" or gemm is not None:
            return system.move(moved)
        return system.move(moved, self.launched(stage), backward=stage != "fw")

    def launched(self, stage: Stage) -> float:
        """Kernels of a pass, at least one if anything moves; none of a layer that moves nothing in any pass."""
        if self.kernels is not None and not any(self.traffic[one] for one in PASSES):
            return 0
        if self.kernels is not None:
            return self.rounds * self.loop * self.kernels[PASSES.index(stage)]
        return self.rounds * self.loop * int(self.traffic[stage] != 0)

    def floor(self, stage: Stage) -> float:
        """Seconds that it takes to launch the kernels of a pass."""
        return self.launched(stage) * self.run.system.launch

    def host(self, stage: Stage) -> float:
        """Seconds of the host for the kernels of a pass."""
        ex, system = self.run.execution, self.run.system
        mode = ex.launch_mode
        if mode == "auto" and self.with_experts and ex.fusion != "published":
            mode = "eager"
        each = system.host_time(mode, ex.fusion, captured=not self.routed)
        further = system.hosts.get("compile", 0.0)  # such loops are compiled
        if self.kind == "grouped":
            further = system.hosts.get("product_loop", 0.0) or further
        further = min(each, further)
        return self.launched(stage) / self.loop * (each + (self.loop - 1) * further)

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
        # Of what is gathered each rank takes its tokens, if it has its own.
        if self.side == "spread":
            return "all_gather" if stage == "fw" or self.run.sequence_par else None
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
        time = self.team.time(op, self.sized(op))
        if stage == "wgrad":
            if not self.pays_again:
                return time  # [O24] what is communicated again is charged for the network alone
            stage = "fw"
        return time + self._reduction_time(op, stage)

    def experts_time(self, stage: Stage) -> float:
        """Seconds of a collective over groups of experts; in `wgrad` of the repeated forward one."""
        return 0

    def experts_bytes(self, stage: Stage) -> dict[int, float]:
        """Bytes of the same through a port of each network."""
        return {}

    def context_time(self, stage: Stage) -> float:
        """Seconds of a collective over ranks with parts of the same sequences; stages as of experts."""
        return 0

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
