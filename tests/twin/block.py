"""What one block takes for one microbatch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, fields
from operator import attrgetter, mul, sub

from .backward import gradient_per_shape, needed, own_weights
from .communication import OverlappedLinear
from .context import hidden as hidden_by_attention
from .expert_overlap import half_of, hidden_alone, hidden_by_shared, hidden_in_pairs
from .layers import Layer, Stage
from .optimizer import Step
from .run import KINDS, Kind, Run
from .system import launched
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

    def __init__(
        self,
        run: Run,
        layers: Sequence[Layer] | None = None,
        make: Callable[[Run], list[Layer]] = block_layers,
    ) -> None:
        self.run, training = run, run.execution.training
        of_block = layers is None and make is block_layers
        spread = of_block and run.execution.expert_par > 1 and run.model.mixes
        halves = of_block and run.execution.ep_overlap == "two_batch"
        run = half_of(run) if halves else run
        layers = make(run) if layers is None else layers
        experts = any(layer.routed for layer in layers)
        for layer in layers:
            layer.with_experts = experts
        backward = layers if training else []
        again = [layer for layer in backward if layer.flags.recomm]
        self.fw, self.fw_tp = _work(layers, "fw"), _comm(layers, "fw")
        self.agrad, self.agrad_tp = _work(backward, "agrad"), _comm(backward, "agrad")
        self.wgrad, self.recomm = _work(backward, "wgrad"), _comm(again, "wgrad")
        self.re, self.optim = _recompute(backward), _work(backward, "optim")
        # Collectives over groups of experts: forward, backward, repeated.
        parts: tuple[tuple[Sequence[Layer], Stage], ...]
        parts = (layers, "fw"), (backward, "agrad"), (again, "wgrad")
        self.ep = [sum(layer.experts_time(stage) for layer in some) for some, stage in parts]
        self.cp = [sum(layer.context_time(stage) for layer in some) for some, stage in parts]
        self._hide_experts(run, layers, spread=spread)
        sent = [layer.experts_bytes(stage) for some, stage in parts for layer in some]
        inside = sum(bytes_of.get(run.node, 0) for bytes_of in sent)
        self.ep_bytes = [inside, sum(sum(bytes_of.values()) for bytes_of in sent) - inside]
        before = self._times()
        self._wait_for_the_host(layers, backward)
        self.host_wait: float = sum(map(sub, self._times(), before))
        stages: tuple[Stage, ...] = ("fw", "agrad") if training else ("fw",)
        self.tp_bandwidth = max(
            layer.required_bandwidth(stage, kind)
            for layer in layers
            for stage in stages
            for kind in KINDS
        )
        self.weight = sum(layer.weight_space for layer in layers)
        self._replicated(layers)
        self.act_working = sum(
            layer.activation_space for layer in layers if not layer.flags.reuses_activation
        )
        # [O17] A checkpoint is the whole activation, even with sequence parallelism.
        checkpoint = run.residual if run.rules.checkpoint_split else run.activation
        self.checkpoint: float = run.element_bytes * checkpoint if run.full_recompute else 0
        self._kept([] if run.full_recompute else layers, training=training)
        self.weight_grad_unsharded = sum(x.step.computed * x.weights for x in backward)
        self._backward(backward)
        # What each TP rank has whole, and has gradients of that differ if it sees its own tokens only.
        split = run.sequence_par and run.execution.tensor_par > 1
        # Those of routers and of latents of experts are not counted.
        attention = [x for x in backward if x.whole and x.name.startswith("AttnBlock_")]
        whole = sum(layer.weights for layer in attention if split)
        self.whole_gradients: float = run.reduction_bytes * whole
        self.held = Held([layer.step for layer in backward])
        grouped = [layer.step for layer in layers if layer.kind == "grouped"]
        self.experts = Held(grouped, trained=training)
        self.weight_grad, self.optimizer = self.held.weight_grad, self.held.optimizer
        # Arithmetic of the matrix engine, that is done twice included.
        self.matrix_flops = sum(
            _executed(layer, training) for layer in layers if layer.engine != "vector"
        )
        if halves:
            self._double()
        if self.run.execution.recompute_every > 1:
            some, stored = self.run.execution.recompute_blocks or 1, self.run.of_stored()
            others = self.run.execution.recompute_every - some, Block(stored, make=make)
            self.__dict__.update(mean_block(self.run, [(some, self), others]).__dict__)

    def _hide_experts(self, run: Run, layers: Sequence[Layer], *, spread: bool) -> None:
        """Take off what something else hides of the exchange of experts, by kind of block; and more of it in pairs.

        And what attention hides of a ring.
        """
        beside = hidden_by_attention(run, layers, repeats=run.recomputes_attention)
        passes = 3 if run.execution.training else 1
        self.cp_exposed = [
            time - (beside[number] if number < passes else 0) for number, time in enumerate(self.cp)
        ]
        self.ep_exposed = {kind: list(self.ep) for kind in KINDS}
        self.paired: float = 0
        if not spread or run.execution.moe_dispatcher == "allgather":
            return
        passes = 3 if run.execution.training else 1
        for kind in KINDS:
            hidden = hidden_alone(run, layers, kind)
            for number in range(passes):
                self.ep_exposed[kind][number] -= hidden[number]
        if run.execution.ep_overlap == "1f1b":
            self.paired = hidden_in_pairs(run, layers)

    def _kept(self, layers: Sequence[Layer], *, training: bool) -> None:
        """Activations of a microbatch, and copies of weights in fewer bits, which are there once for all of them."""
        copied = training and self.run.recipe is not None
        copies = [x for x in layers if copied and x.name.endswith("_Cast")]
        self.act_storage = sum(_stored(x, training) for x in layers if x not in copies)
        made = sum(_stored(x, training) for x in copies)
        self.weight_copies: float = (training and self.copies) or made

    def _backward(self, layers: Sequence[Layer]) -> None:
        """Gradients at the fullest moment of the backward pass, with weight gradients, and these by shape."""
        self.act_grad: float = sum(layer.activation_grad_space for layer in layers)
        self.own_gradient = self.gradient_per_shape = 0.0
        if not self.run.rules.peak_of_gradients or not layers:
            return
        moments = list(needed(layers))
        self.act_grad = max(gradients for _, gradients in moments)
        if self.run.execution.grad_dtype != "auto":
            size = self.run.element_bytes
            most = max(gradients + size * own_weights(layer) for layer, gradients in moments)
            self.own_gradient = most - self.act_grad
            self.gradient_per_shape = gradient_per_shape(layers)

    def _replicated(self, layers: Sequence[Layer]) -> None:
        """Bytes of weights as replicas have them, those of experts apart."""
        self.weight_kept, self.weight_sent, self.converted = _forms(layers)
        self.experts_kept, self.experts_sent, _ = _forms([x for x in layers if x.kind == "grouped"])
        steps = [layer.step for layer in layers]
        # Copies of a recipe, and those beside what is gathered, which may be one of them.
        self.copies: float = sum(step.copied for step in steps)
        self.beside: float = sum(step.copied - step.one for step in steps)

    @property
    def whole_time(self) -> float:
        """All passes of a module, with its collectives, none of which overlaps."""
        time = self.fw.time + self.re.time + self.agrad.time + self.wgrad.time
        for one in (self.fw_tp, self.agrad_tp, self.recomm):
            time += one.exposed["base"]
        return time + sum(self.ep) + sum(self.cp_exposed)

    def _double(self) -> None:
        """Become a microbatch of two halves like this one."""
        optim = self.optim
        self.passes_of([(2, self)])
        self.optim = optim  # one for both
        self.act_working *= 2
        self.act_storage *= 2
        self.act_grad *= 2
        self.checkpoint *= 2

    def passes_of(self, blocks: Sequence[tuple[float, Block]], among: float = 1) -> None:
        """Set the passes to the sum over blocks, each times its count, divided by `among`."""

        def total(of: Callable[[Block], float]) -> float:
            return sum(count * of(block) for count, block in blocks) / among

        for name in ("fw", "agrad", "wgrad", "re", "optim"):
            parts = [part.name for part in fields(Work)]
            setattr(self, name, Work(*(total(attrgetter(f"{name}.{part}")) for part in parts)))
        for name in ("fw_tp", "agrad_tp", "recomm"):
            comm = Comm()
            for part in fields(Comm):
                for kind in KINDS:
                    of = attrgetter(f"{name}.{part.name}")
                    getattr(comm, part.name)[kind] = total(lambda b, of=of, k=kind: of(b)[k])  # type: ignore[misc]
            setattr(self, name, comm)
        counts = [count for count, _ in blocks]

        def totals(lists: Sequence[Sequence[float]]) -> list[float]:
            return [sum(map(mul, counts, values)) / among for values in zip(*lists, strict=True)]

        for name in ("ep", "cp", "cp_exposed", "ep_bytes"):
            setattr(self, name, totals([getattr(block, name) for _, block in blocks]))
        exposed = {kind: totals([block.ep_exposed[kind] for _, block in blocks]) for kind in KINDS}
        self.ep_exposed, self.paired = exposed, total(attrgetter("paired"))
        self.matrix_flops = total(attrgetter("matrix_flops"))
        self.host_wait = total(attrgetter("host_wait"))

    def _times(self) -> list[float]:
        """Return the times of the passes, and what pairs of passes hide, which counts as less time."""
        return [self.fw.time, self.re.time, self.agrad.time, self.wgrad.time, -self.paired]

    def _wait_for_the_host(self, layers: Sequence[Layer], backward: Sequence[Layer]) -> None:
        """Let no pass take less time than its launches, collectives that it waits for included.

        They are those of a block inside of a stage, also for one at its border. Both gradients are one pass, with what
        is computed again.
        """
        again = [layer for layer in backward if layer.flags.recompute]
        ex, adding = self.run.execution, 0.0
        if ex.grad_dtype != "auto" and not ex.grad_fusion:  # a kernel for each weight tensor
            tensors = sum(bool(count) for layer in backward for _, count in layer.step.parts())
            mode = ex.launch_mode
            if mode == "auto" and layers[0].with_experts and ex.fusion != "published":
                mode = "eager"
            adding = tensors * self.run.system.host_time(mode, ex.fusion)
        if ex.launch_mode == "blocking":  # one kernel after the other, each after its launch
            self.fw.time += sum(layer.host("fw") for layer in layers)
            self.re.time += sum(layer.host("fw") for layer in again)
            self.agrad.time += sum(layer.host("agrad") for layer in backward)
            self.wgrad.time += sum(layer.host("wgrad") for layer in backward) + adding
            return
        alone = self.fw.time, self.re.time, self.wgrad.time  # without launches
        launches = forward = sum(layer.host("fw") for layer in layers)
        ep = [
            one + other for one, other in zip(self.ep_exposed["base"], self.cp_exposed, strict=True)
        ]
        waits = self.fw_tp.exposed["base"] + ep[0]
        self.fw.time = max(self.fw.time, launches - waits)
        launches = sum(layer.host("fw") for layer in again)
        waits = self.recomm.exposed["base"] + ep[2]
        self.re.time = max(self.re.time, launches - waits)
        launches += sum(layer.host("agrad") + layer.host("wgrad") for layer in backward) + adding
        busy = self.re.time + self.agrad.time + ep[1] + ep[2]
        busy += self.recomm.exposed["base"] + self.agrad_tp.exposed["base"]
        self.wgrad.time = max(self.wgrad.time, launches - busy)
        self._wait_for_counts(layers, backward, alone)
        both = self.fw.time + self.fw_tp.exposed["base"] + ep[0] + busy + self.wgrad.time
        self.paired = min(self.paired, max(0, both - forward - launches))

    def _wait_for_counts(
        self, layers: Sequence[Layer], backward: Sequence[Layer], alone: tuple[float, float, float]
    ) -> None:
        """Let passes wait where the host needs to know the rows of experts before it launches what processes them.

        Then the device has nothing left to do. Backward passes know the rows, unless they route again. `alone` are the
        times of the passes without launches.
        """
        ex = self.run.execution
        waits = launched(ex.launch_mode, ex.fusion) in ("eager", "compile", "graph_parts")
        first = next((i for i, layer in enumerate(layers) if layer.routed), 0)
        if not waits or not first or ex.moe_pad_to_capacity or ex.ep_overlap != "none":
            return
        hidden = {}
        if ex.moe_shared_overlap and ex.expert_par > 1 and ex.moe_dispatcher != "allgather":
            hidden = hidden_by_shared(self.run, layers)
        forward = [_steps(layer, ("fw",), hidden, "fw") for layer in layers]
        self.fw.time = max(self.fw.time, alone[0] + idle(forward[first:] + forward[:first]))
        if not backward or not (self.run.full_recompute or self.run.redoes_experts):
            return
        steps = [_steps(layer, ("fw",), hidden, "wgrad", self._again(layer)) for layer in layers]
        steps += [_steps(layer, ("agrad", "wgrad"), hidden, "agrad") for layer in layers[::-1]]
        late = idle(steps[first:] + steps[:first]) - (self.re.time - alone[1])
        self.wgrad.time = max(self.wgrad.time, alone[2] + late)

    def _again(self, layer: Layer) -> float:
        """Share of the forward pass of a layer that is repeated."""
        return (layer.repeated if self.run.by_operator else 1) * layer.flags.recompute


def _steps(
    layer: Layer,
    stages: tuple[Stage, ...],
    hidden: Mapping[tuple[str, Stage], float],
    sends: Stage,
    share: float = 1,
) -> tuple[float, float, float]:
    """Seconds of the host and of the device for the kernels of a layer in some stages, and how many these are.

    `sends` is the stage of what it communicates meanwhile.
    """
    busy = sum(share * layer.processing_time(stage) for stage in stages)
    if sends != "wgrad" or layer.flags.recomm:
        busy += layer.exposed_time(sends, "base") + layer.experts_time(sends)
        busy -= hidden.get((layer.name, sends), 0)
    some = share > 0
    host = sum(some * layer.host(stage) for stage in stages)
    return host, busy, sum(some * layer.launched(stage) for stage in stages)


def idle(steps: Sequence[tuple[float, float, float]]) -> float:
    """Seconds in which a device that begins without work waits for the kernels of steps, launched one by one."""
    host = device = 0.0
    for launching, busy, kernels in steps:
        count = max(1, round(kernels))
        for _ in range(count):
            host += launching / count
            device = max(device, host) + busy / count
    return device - sum(busy for _, busy, _ in steps)


def block_of_model(
    run: Run, numbers: Sequence[int] | None = None, module: Block | None = None
) -> Block:
    """Return the block of a model, the mean over all of its blocks; or over those of the numbers.

    Numbers beyond those of the blocks are of modules that predict further tokens.
    """
    kinds, several = run.kinds(), len(set(run.model.kinds())) > 1
    every = range(len(run.model.kinds())) if numbers is None else numbers
    counts = Counter(kinds[number] for number in every)
    if not several and "module" not in counts:
        return Block(run)
    blocks = []
    for kind, count in counts.items():
        if isinstance(kind, str):
            assert module is not None
            blocks.append((count, copy(module)))
        else:
            blocks.append((count, Block(run.of_kind(kind) if several else run)))
    return mean_block(run, blocks)


def mean_block(run: Run, blocks: Sequence[tuple[int, Block]]) -> Block:
    """Return the mean of blocks, each so many times; of what only one block at a time has, the most."""
    found = copy(blocks[0][1])
    found.run, total = run, sum(count for count, _ in blocks)
    found.passes_of(blocks, among=total)

    def mean(of: Callable[[Block], float]) -> float:
        return sum(count * of(block) for count, block in blocks) / total

    for name in (
        "checkpoint",
        "act_storage",
        "weight_copies",
        "weight_kept",
        "weight_sent",
        "experts_kept",
        "experts_sent",
        "converted",
        "copies",
        "beside",
        "whole_gradients",
        "weight",
        "weight_grad",
        "optimizer",
    ):
        setattr(found, name, mean(attrgetter(name)))
    most = ("tp_bandwidth", "act_working", "act_grad", "weight_grad_unsharded")
    for name in (*most, "own_gradient", "gradient_per_shape"):
        setattr(found, name, max(getattr(block, name) for _, block in blocks))
    for held in ("held", "experts"):
        setattr(found, held, copy(getattr(found, held)))
        for name in ("whole", "resident", "weight_grad", "optimizer", "step_time"):
            setattr(getattr(found, held), name, mean(attrgetter(f"{held}.{name}")))
    return found


def _executed(layer: Layer, training: bool) -> float:
    """FLOP of a layer in all passes."""
    flops = layer.work["fw"]
    if training:
        flops += _share(layer) * layer.work["fw"] * layer.flags.recompute
        flops += layer.work["agrad"] + layer.work["wgrad"]
    return flops


class Held:
    """What some weights leave on a rank between steps, and the time of their step."""

    def __init__(self, steps: Sequence[Step], *, trained: bool = True) -> None:
        self.whole = sum(step.size * step.weights for step in steps)
        self.resident = sum(step.resident for step in steps)
        steps = steps if trained else []
        self.weight_grad = sum(step.weight_grad for step in steps)
        self.optimizer = sum(step.state for step in steps)
        self.step_time = sum(step.time for step in steps)


def _forms(layers: Sequence[Layer]) -> tuple[float, float, float]:
    """Bytes of weights that stay, that are gathered, and that move when copies are made."""
    steps = [layer.step for layer in layers]
    stays, sent = sum(step.stays for step in steps), sum(step.sent for step in steps)
    return stays, sent, sum(step.converted for step in steps)


def _stored(layer: Layer, training: bool) -> float:
    """Activation bytes kept from the forward to the backward pass."""
    if not training:
        return layer.activation_space
    stored = layer.stored_space if layer.flags.stores_activation else 0
    if stored:
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
