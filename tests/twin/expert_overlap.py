"""What runs beside the exchange of experts, and how much of that it hides."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from .communication import OverlappedLinear, TPComm
from .copies_of_tokens import NAMES
from .layers import Layer, Stage
from .run import Kind, Run


class Parts:
    """A block with spread experts: seconds of dispatch and combine, and of the layers between them and around them."""

    def __init__(self, run: Run, layers: Sequence[Layer]) -> None:
        self.run, self.layers = run, layers
        names = [layer.name for layer in layers]
        dispatch, combine = names.index("MlpBlock_Dispatch"), names.index("MlpBlock_Combine")
        self.dispatch, self.combine = layers[dispatch], layers[combine]
        self.experts = layers[dispatch + 1 : combine]
        self.others = [*layers[:dispatch], *layers[combine + 1 :]]
        self.usage = run.ep_team.usage
        library = run.system.library
        if run.execution.moe_dispatcher in NAMES and library is not None:
            self.usage = library.engines
        self.same_network = run.ep_team.meets(run.tp_team)
        shared = [layer for layer in layers if layer.name.startswith("Shared_")]
        second = [layer for layer in shared if layer.name.startswith("Shared_Mlp2")]
        until = shared.index(second[0]) if second else 0
        self.shared = shared[:until], second

    def forward(self, layers: Iterable[Layer]) -> float:
        """Work of the forward pass, less what hides tensor-parallel traffic on the same network."""
        return self._free(layers, {"fw": "fw"})

    def backward(self, layers: Iterable[Layer]) -> float:
        return self._free(layers, {"agrad": "agrad", "wgrad": "wgrad"})

    def again(self, layers: Iterable[Layer]) -> float:
        """Work that is repeated in the backward pass."""
        return self._free(layers, {"fw": "wgrad"}, repeated=True)

    def weights(self, layers: Iterable[Layer]) -> float:
        return sum(layer.processing_time("wgrad") for layer in layers)

    def _free(
        self, layers: Iterable[Layer], stages: dict[Stage, Stage], *, repeated: bool = False
    ) -> float:
        """Add up the work of some stages; to each belongs that of its traffic."""
        time = 0.0
        for layer in layers:
            share = 1.0
            if repeated:
                share = (layer.repeated if self.run.by_operator else 1) * layer.flags.recompute
            for stage, traffic in stages.items():
                time += share * layer.processing_time(stage)
                if isinstance(layer, TPComm | OverlappedLinear):
                    link = layer.link_time(traffic, "base")
                    hidden = link - layer.exposed_time(traffic, "base")
                    time -= hidden if self.same_network else 0
        return max(0, time)

    def hides(self, traffic: float, work: float) -> float:
        """Seconds of traffic that are gone beside work, which has what engines the traffic leaves."""
        return min(work, traffic * (1 - self.usage)) if work > 0 else 0


def hidden_by_shared(run: Run, layers: Sequence[Layer]) -> dict[tuple[str, Stage], float]:
    """Seconds of dispatch and of combine that shared experts hide, by the name of the layer and the stage."""
    parts = Parts(run, layers)
    found: dict[tuple[str, Stage], float] = {}
    first, second = parts.shared
    works: tuple[tuple[Stage, Callable[[Sequence[Layer]], float]], ...]
    works = ("fw", parts.forward), ("agrad", parts.backward), ("wgrad", parts.again)
    for stage, work in works:
        for layer, beside in ((parts.dispatch, first), (parts.combine, second)):
            time = layer.experts_time(stage)
            found[layer.name, stage] = parts.hides(time, work(beside))
    return found


def hidden_alone(run: Run, layers: Sequence[Layer], kind: Kind) -> tuple[float, float, float]:
    """Seconds that a microbatch hides by itself: forward, backward, and of what is repeated."""
    ex, parts = run.execution, Parts(run, layers)
    d, c = parts.dispatch.experts_time, parts.combine.experts_time
    works: tuple[tuple[Stage, Callable[[Sequence[Layer]], float]], ...] = (
        ("fw", parts.forward),
        ("agrad", parts.backward),
        ("wgrad", parts.again),
    )
    found = [0.0, 0.0, 0.0]
    for number, (stage, work) in enumerate(works):
        if ex.moe_shared_overlap:
            first, second = parts.shared
            hidden = parts.hides(d(stage), work(first)) + parts.hides(c(stage), work(second))
            found[number] = hidden
        elif run.is_half:
            # The steps of both halves, one after the other; what each sends runs beside the step after it.
            attention, experts = work(parts.others), work(parts.experts)
            steps = [(attention, d(stage))] * 2 + [(experts, c(stage))] * 2
            after: float | None = None
            if stage == "fw" and kind == "base":
                after = attention
            if stage == "agrad":
                steps = [(experts, d(stage))] * 2 + [(attention, c(stage))] * 2
                after = experts
            hidden = _beside_next(parts, steps, after)
            if stage == "agrad" and kind == "edge":  # before the first one there is nothing
                hidden -= parts.hides(c(stage), attention)  # beside which gradients could come
            found[number] = hidden / 2  # of each half
    return found[0], found[1], found[2]


def _beside_next(parts: Parts, steps: list[tuple[float, float]], after: float | None) -> float:
    """Seconds that steps hide of what the step before them sends; `after` is the work that follows the last."""
    works = [work for work, _ in steps[1:]] + ([] if after is None else [after])
    return sum(parts.hides(sent, work) for (_, sent), work in zip(steps, works, strict=False))


def hidden_in_pairs(run: Run, layers: Sequence[Layer]) -> float:
    """Seconds that a forward pass hides beside the backward pass of another microbatch, and the other way round."""
    parts = Parts(run, layers)
    d, c = parts.dispatch.experts_time, parts.combine.experts_time
    gradients = parts.backward(parts.experts) + parts.again(parts.experts)
    experts = parts.forward(parts.experts)
    if run.execution.delay_wgrad:
        late = min(gradients, parts.weights(parts.experts))
        gradients, experts = gradients - late, experts + late
    hidden = parts.hides(c("agrad"), parts.forward(parts.others))
    hidden += parts.hides(d("fw"), gradients)
    hidden += parts.hides(d("agrad"), experts)
    attention = parts.backward(parts.others) + parts.again(parts.others)
    return hidden + parts.hides(c("fw"), attention)


def half_of(run: Run) -> Run:
    """Return the run of half a microbatch, beside the other one."""
    size = run.execution.microbatch_size // 2
    half = Run(run.model, replace(run.execution, microbatch_size=size), run.system, run.rules)
    half.is_half = True
    return half


def pairs(run: Run, place: int = 0) -> float:
    """Microbatches that go forward beside backward passes of others: not those that fill the last stage.

    Of a rank with two parts in a list of its own half of what its list has.
    """
    ex = run.execution
    if ex.ep_overlap != "1f1b":
        return 0
    if run.folded:
        return run.lists.pairs(place) / 2
    chunks = run.microbatches * ex.pipeline_interleaving
    filling = (ex.pipeline_interleaving - 1) * ex.pipeline_par + 1
    return max(0, chunks - filling) / ex.pipeline_interleaving
