"""What one block takes for one microbatch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields

from .communication import OverlappedLinear
from .layers import Layer, Stage
from .optimizer import Step
from .run import KINDS, Kind, Run
from .transformer import block_layers


@dataclass
class Work:
    """Totals of one stage over the layers of a block, in the order of the statistics."""

    flops: float = 0
    flops_time: float = 0
    mem_accessed: float = 0
    mem_time: float = 0
    time: float = 0


def _zeros() -> dict[Kind, float]:
    return {"base": 0, "edge": 0}


@dataclass
class Comm:
    """TP communication of one stage of a block, for each kind of block."""

    size: dict[Kind, float] = field(default_factory=_zeros)
    time: dict[Kind, float] = field(default_factory=_zeros)
    exposed: dict[Kind, float] = field(default_factory=_zeros)


class Block:
    """One block and microbatch; what only training has is 0 in inference.

    Other layers than those of a block make an end of the model.
    """

    def __init__(self, run: Run, layers: Sequence[Layer] | None = None) -> None:
        self.run, training = run, run.execution.training
        layers = block_layers(run) if layers is None else layers
        backward = layers if training else []
        again = [layer for layer in backward if layer.flags.recomm]
        self.fw, self.fw_tp = _work(layers, "fw"), _comm(layers, "fw")
        self.agrad, self.agrad_tp = _work(backward, "agrad"), _comm(backward, "agrad")
        self.wgrad, self.recomm = _work(backward, "wgrad"), _comm(again, "wgrad")
        self.re = _recompute(backward)
        self.optim = _work(backward, "optim")
        self._wait_for_the_host(layers, backward)
        stages: tuple[Stage, ...] = ("fw", "agrad") if training else ("fw",)
        self.tp_bandwidth = max(
            layer.required_bandwidth(stage, kind)
            for layer in layers
            for stage in stages
            for kind in KINDS
        )
        self.weight = sum(layer.weight_space for layer in layers)
        self.act_working = sum(
            layer.activation_space for layer in layers if not layer.flags.reuses_activation
        )
        # [O17] A checkpoint is the whole activation, even with sequence parallelism.
        checkpoint = run.residual if run.rules.checkpoint_split else run.activation
        self.checkpoint: float = run.element_bytes * checkpoint if run.full_recompute else 0
        # Copies of weights in 8 bits are made once for all microbatches.
        copied = training and run.operand_bytes == 1 < run.element_bytes
        kept = [] if run.full_recompute else layers
        copies = [x for x in kept if copied and x.name.endswith("_Cast")]
        self.act_storage = sum(_stored(x, training) for x in kept if x not in copies)
        self.weight_copies: float = sum(_stored(x, training) for x in copies)
        self.weight_grad_unsharded = sum(x.step.computed * x.weights for x in backward)
        self.act_grad = sum(layer.activation_grad_space for layer in backward)
        self.held = Held([layer.step for layer in backward])
        self.weight_grad, self.optimizer = self.held.weight_grad, self.held.optimizer
        # Arithmetic of the matrix engine, that is done twice included.
        products = [layer for layer in layers if layer.engine != "vector"]
        self.matrix_flops = sum(layer.work["fw"] for layer in products)
        if training:
            again_fw = [layer for layer in products if layer.flags.recompute]
            self.matrix_flops += sum(_share(layer) * layer.work["fw"] for layer in again_fw)
            self.matrix_flops += sum(
                layer.work["agrad"] + layer.work["wgrad"] for layer in products
            )
        if run.execution.recompute_every > 1:
            self._mix(Block(run.of_stored()))

    def _mix(self, other: Block) -> None:
        """Become the mean of one block that recomputes and of others that store everything."""
        every = self.run.execution.recompute_every

        def mean(one: float, two: float) -> float:
            return (one + (every - 1) * two) / every

        for name in ("fw", "agrad", "wgrad", "re"):
            own, of_other = getattr(self, name), getattr(other, name)
            for part in fields(own):
                value = mean(getattr(own, part.name), getattr(of_other, part.name))
                setattr(own, part.name, value)
        for name in ("fw_tp", "agrad_tp", "recomm"):
            own, of_other = getattr(self, name), getattr(other, name)
            for values, others in (
                (own.size, of_other.size),
                (own.time, of_other.time),
                (own.exposed, of_other.exposed),
            ):
                for kind in KINDS:
                    values[kind] = mean(values[kind], others[kind])
        self.tp_bandwidth = max(self.tp_bandwidth, other.tp_bandwidth)
        self.checkpoint = mean(self.checkpoint, other.checkpoint)
        self.act_storage = mean(self.act_storage, other.act_storage)
        self.weight_copies = mean(self.weight_copies, other.weight_copies)
        self.matrix_flops = mean(self.matrix_flops, other.matrix_flops)

    def _wait_for_the_host(self, layers: Sequence[Layer], backward: Sequence[Layer]) -> None:
        """Let no pass take less time than its launches, collectives that it waits for included.

        They are those of a block inside of a stage, also for one at its border. Both gradients are one pass, with what
        is computed again.
        """
        again = [layer for layer in backward if layer.flags.recompute]
        ex, adding = self.run.execution, 0.0
        if ex.grad_dtype != "auto" and not ex.grad_fusion:  # a kernel for each weight tensor
            tensors = sum(bool(count) for layer in backward for _, count in layer.step.parts())
            adding = tensors * self.run.system.host_time(ex.launch_mode, ex.fusion)
        if ex.launch_mode == "blocking":  # one kernel after the other, each after its launch
            self.fw.time += sum(layer.host("fw") for layer in layers)
            self.re.time += sum(layer.host("fw") for layer in again)
            self.agrad.time += sum(layer.host("agrad") for layer in backward)
            self.wgrad.time += sum(layer.host("wgrad") for layer in backward) + adding
            return
        launches = sum(layer.host("fw") for layer in layers)
        self.fw.time = max(self.fw.time, launches - self.fw_tp.exposed["base"])
        launches = sum(layer.host("fw") for layer in again)
        self.re.time = max(self.re.time, launches - self.recomm.exposed["base"])
        launches += sum(layer.host("agrad") + layer.host("wgrad") for layer in backward) + adding
        busy = self.re.time + self.agrad.time
        busy += self.recomm.exposed["base"] + self.agrad_tp.exposed["base"]
        self.wgrad.time = max(self.wgrad.time, launches - busy)


class Held:
    """What some weights leave on a rank between steps, and the time of their step."""

    def __init__(self, steps: Sequence[Step], *, trained: bool = True) -> None:
        self.whole = sum(step.size * step.weights for step in steps)
        self.resident = sum(step.resident for step in steps)
        steps = steps if trained else []
        self.weight_grad = sum(step.weight_grad for step in steps)
        self.optimizer = sum(step.state for step in steps)
        self.step_time = sum(step.time for step in steps)


def _stored(layer: Layer, training: bool) -> float:
    """Activation bytes kept from the forward to the backward pass."""
    if not training:
        return layer.activation_space
    stored = layer.stored_space if layer.flags.stores_activation else 0
    if layer.run.by_operator and stored:
        stored = max(0, stored - layer.remade)
    # An output that is not stored has been counted as the activation of the next layer.
    return stored if layer.flags.stores_output else stored - layer.output_space


def _share(layer: Layer) -> float:
    """Share of a layer's forward pass that is computed again, if it is."""
    return layer.repeated if layer.run.by_operator else 1


def _work(layers: Sequence[Layer], stage: Stage, *, again: bool = False) -> Work:
    shares = [_share(layer) if again else 1 for layer in layers]
    parts = list(zip(shares, layers, strict=True))
    return Work(
        flops=sum(share * layer.flops(stage) for share, layer in parts),
        flops_time=sum(share * layer.flops_time(stage) for share, layer in parts),
        mem_accessed=sum(share * layer.mem_accessed(stage) for share, layer in parts),
        mem_time=sum(share * layer.mem_time(stage) for share, layer in parts),
        time=sum(share * layer.processing_time(stage) for share, layer in parts),
    )


def _recompute(layers: Sequence[Layer]) -> Work:
    """[O1] All but the time adds up running totals of the forward pass."""
    if layers and layers[0].run.rules.recompute_sums:
        return _work([layer for layer in layers if layer.flags.recompute], "fw", again=True)
    total = Work()
    for count, layer in enumerate(layers, start=1):
        if layer.flags.recompute:
            so_far = _work(layers[:count], "fw")
            total.flops += so_far.flops
            total.flops_time += so_far.flops_time
            total.mem_accessed += so_far.mem_accessed
            total.mem_time += so_far.mem_time
            total.time += layer.processing_time("fw")
    return total


def _comm(layers: Sequence[Layer], stage: Stage) -> Comm:
    comm = Comm()
    for layer in layers:
        # [O2] An overlapped linear exposes its repeated communication as in the forward pass.
        overlapped = isinstance(layer, OverlappedLinear)
        as_forward = stage == "wgrad" and overlapped and not layer.run.rules.overlap_times
        for kind in KINDS:
            comm.size[kind] += layer.comm_size(stage, kind)
            comm.time[kind] += layer.link_time(stage, kind)
            comm.exposed[kind] += layer.exposed_time("fw" if as_forward else stage, kind)
    return comm
