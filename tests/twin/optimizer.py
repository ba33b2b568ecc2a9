"""The optimizer step of the weights of a layer: bytes kept and moved, FLOP and time."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from calculon.base.frozen import dataclass

if TYPE_CHECKING:
    from .fields import Execution
    from .recipes import Recipe
    from .run import Run

WIDTHS = {"float32": 4, "bfloat16": 2, "float16": 2}
QUANTIZED = 1 + 4 / 256  # 256 values of 8 bits share a scale of 4 bytes


@dataclass(frozen=True)
class Method:
    """What one optimizer does to a parameter."""

    state: str  # moments
    flops: int
    operations: tuple[str, ...]
    """What elementwise operations read > write: gradient, moments m and v, 8-bit moments q and r,
    weight, and what is in between."""

    reads: int = 1  # of the gradient in a fused step
    products: int = 0  # of matrices between the operations


ADAM = Method("mv", 11, ("m g > m", "v > v", "v g > v", "v > x", "x > x", "x > x", "w m x > w"))
METHODS = {
    "adam": ADAM,
    "adam_8bit": Method("qr", 20, ("q > m", "r > v", *ADAM.operations, "m > q", "v > r")),
    "lion": Method("m", 5, ("m g > u", "u > u", "w u > w", "m g > m")),
    "sgd_momentum": Method("m", 4, ("m > m", "m g > m", "w m > w")),
    "sgd": Method("", 2, ("w g > w",)),
    # Sums of squares over rows and columns, their product, its root, update, two norms, weight.
    "adafactor": Method("", 8, ("g", "g", "> x", "x > x", "g x > u", "u", "w", "w u > w"), reads=3),
    "muon": Method("m", 6, ("m g > m", "m g > u", "w u > w"), products=15),
}
OF_VECTORS = {
    "adafactor": Method(
        "m", 8, ("m > m", "m g > m", "m > x", "g x > u", "u", "w", "w u > w"), reads=2
    ),
    "muon": ADAM,
}
"""What steps weights that are no matrices, where that is another method."""


def adam(ex: Execution) -> Execution:
    """The same execution without a word about its optimizer."""
    return replace(
        ex,
        optimizer="adam",
        optimizer_impl="fused",
        optimizer_state_dtype="float32",
        grad_dtype="auto",
        main_grad=False,
        grad_sums=False,
        grad_clip=False,
    )


@dataclass(frozen=True)
class Form:
    """How replicas share what a step needs."""

    shards: int  # of the optimizer state
    whole_gradients: bool  # on every rank, until the step
    split_weights: bool
    masters: bool  # the only weights are shards of 4 bytes


def form_of(run: Run, *, expert: bool = False) -> Form:
    """Return the form that an execution has, for weights of experts or others."""
    ex = run.execution
    stage = ex.zero_stage
    shards = (ex.dp_shard or run.data_ranks) if ex.optimizer_sharding else 1
    if expert and shards > 1:
        shards = run.expert_shards(shards)
    whole = shards == 1 or ex.grad_buffer == "full" or stage in ("0", "1")
    return Form(shards, whole, stage in ("3", "fsdp", "owner"), stage == "fsdp")


class Step:
    """The step of `weights` of one layer, of which `sides` are those of the matrix, or so many, among them.

    A matrix is a share of that of all TP ranks, unless each has the `whole`.
    """

    def __init__(
        self,
        run: Run,
        weights: int,
        sides: tuple[int, int] | None,
        count: int = 1,
        *,
        whole: bool = False,
        expert: bool = False,
        narrow: bool = False,
    ) -> None:
        self.run, self.weights, self.count = run, weights, count
        split = run.width_par if expert else run.execution.tensor_par
        self.ranks = 1 if whole else split
        self.sides = sides if sides and sides[0] * sides[1] else None
        self.form, self.expert = form_of(run, expert=expert), expert
        self.ex = run.execution if run.rules.optimizer_fields else adam(run.execution)
        self.method = METHODS[self.ex.optimizer]
        self.other = OF_VECTORS.get(self.ex.optimizer, self.method)
        self.size = run.element_bytes
        self.sent: float = self.size * weights
        self.stays: float = self.sent
        self.converted: float = 0
        self.copied = self.one = 0.0  # copies of a recipe, and what is gathered of them
        if narrow and run.recipe is not None and not run.recipe.each_microbatch:
            self._narrow(run.recipe)
        self._gradients()
        self._state()

    def _narrow(self, recipe: Recipe) -> None:
        """Bytes of the weights of a product as replicas have them: copies of the recipe come after the step."""
        self.converted = recipe.into_weights(self.size) * self.weights
        self.copied = recipe.weight_copies * recipe.weight * self.weights
        if self.run.execution.fp8_param_gather:
            each, moved = recipe.gathered(self.size)
            self.sent, self.converted = each * self.weights, moved * self.weights
            self.stays = 0
            self.one = self.sent if each < self.size else 0

    def parts(self) -> list[tuple[Method, int]]:
        """Return the weights by what steps them."""
        in_matrix = self.count * self.sides[0] * self.sides[1] if self.sides else 0
        return [(self.method, in_matrix), (self.other, self.weights - in_matrix)]

    def _gradients(self) -> None:
        """Bytes of an element of the gradients, in the block that is computed and while they wait."""
        ex, form = self.ex, self.form
        stated = ex.grad_dtype != "auto"
        self.computed = WIDTHS[ex.grad_dtype] if stated else 4
        waiting = 4 if form.whole_gradients or form.masters else self.size
        self.gradient = WIDTHS[ex.grad_dtype] if stated else waiting
        beside = self.gradient if ex.grad_sums else 0  # what sums of 4 bytes are made of
        if ex.grad_sums:
            self.gradient = 4
        self.weight_grad = self.size * self.weights / form.shards
        if self.run.rules.waiting_gradients and (form.whole_gradients or stated or form.masters):
            parts = 1 if form.whole_gradients else form.shards
            self.weight_grad = (self.gradient + beside) * self.weights / parts

    def _state(self) -> None:
        """Moments and, unless the weights have 4 bytes themselves, a master copy."""
        ex, form = self.ex, self.form
        moment: float = 4 if ex.optimizer == "adam_8bit" else WIDTHS[ex.optimizer_state_dtype]
        self.widths = {"m": moment, "v": moment, "q": QUANTIZED, "r": QUANTIZED}
        kept: float = 0
        for method, count in self.parts():
            kept += count * sum(self.widths[name] for name in method.state)
        if ex.optimizer == "adafactor" and self.sides:
            kept += 4 * self.count * sum(self.sides)
        if self.size < 4 and not form.masters:
            kept += 4 * self.weights
        self.kept = kept / form.shards
        copied = (4 + self.gradient * ex.grad_flat) if ex.main_grad else 0
        self.state = self.kept + copied * self.weights / form.shards
        resident = (4 if form.masters else self.size) * self.weights
        self.resident = resident / (form.shards if form.split_weights else 1)

    @cached_property
    def flops(self) -> float:
        flops = sum(method.flops * count for method, count in self.parts()) / self.form.shards
        return flops + sum(self._newton_schulz)

    @cached_property
    def flops_time(self) -> float:
        system = self.run.system
        flops = sum(method.flops * count for method, count in self.parts()) / self.form.shards
        time = system.count(self.run.execution.datatype, flops)
        if self._newton_schulz:
            engine = system.matrix.get("bfloat16", system.matrix[self.run.execution.datatype])
            share = self._share
            time += share * sum(engine.time(one / share) for one in self._newton_schulz)
        return time

    @property
    def _share(self) -> float:
        """Part of the products of a whole matrix that falls to this rank."""
        return self.count / (self.ranks * self.form.shards)

    @property
    def _newton_schulz(self) -> list[float]:
        """FLOP of this rank in each product of five steps: n x m by m x n, n x n, and n x n by n x m.

        The matrix is that of all ranks: they split the side that is not the residual stream.
        """
        if not self.sides or not self.method.products:
            return []
        ranks, model = self.ranks, self.run.model
        hidden = model.row_width if self.expert else model.hidden
        rows, columns = self.sides
        whole = (rows * ranks, columns) if columns == hidden else (rows, columns * ranks)
        n, m = min(whole), max(whole)
        return 5 * [x * self._share for x in (2 * n * n * m, 2 * n**3, 2 * n * n * m)]

    @cached_property
    def moved(self) -> float:
        if not self.run.rules.optimizer_traffic:
            return self.kept  # [O23] gradients are not read
        return self._moved(self.ex) - self._unwritten + self._made

    @property
    def _made(self) -> float:
        """Bytes that making copies of weights moves, unless they are made of weights gathered for each pass."""
        return 0 if self.form.split_weights else self.converted

    @property
    def _unwritten(self) -> float:
        """Bytes of weights that the rank which steps them does not write."""
        whole = self.size * self.weights
        return 0 if self.form.split_weights else (whole - self.sent) / self.form.shards

    def _moved(self, ex: Execution) -> float:
        """Bytes of a step that copies and scales gradients as this execution says."""
        alone = self.size == 4 or self.form.masters  # no copy to write besides
        stepped = 4 if ex.main_grad else self.gradient  # bytes of what the step begins with
        fused: float = 2 * self.kept * self.form.shards
        fused += self.weights * (8 if alone else self.size)
        fused += self.weights * (self.gradient + 4 if ex.main_grad else 0)
        fused += self.weights * (2 * self.gradient if ex.main_grad and ex.grad_flat else 0)
        fused += self.weights * (stepped if ex.grad_clip else 0)
        apart: float = 0
        for method, count in self.parts():
            fused += count * stepped * method.reads
            accesses = [x for one in method.operations for x in one.split() if x != ">"]
            apart += count * sum(self.widths.get(name, 4) for name in accesses)
        apart += self.weights * (4 + self.size if self.size < 4 else 0)
        apart += self.weights * (self.gradient + 4 if self.gradient < 4 else 0)
        apart += self.weights * (3 * stepped if ex.grad_clip else 0)
        moved = fused if ex.optimizer_impl == "fused" else max(fused, apart)
        return moved / self.form.shards

    @cached_property
    def mem_time(self) -> float:
        """Copying and scaling gradients are passes of their own."""
        time, ex = self.run.system.move, self.ex
        made = time(self._made)
        if self.run.rules.optimizer_traffic and (ex.grad_clip or ex.main_grad):
            within = self._moved(replace(ex, grad_clip=False, main_grad=False)) - self._unwritten
            return time(within) + time(self.moved - self._made - within) + made
        return time(self.moved - self._made) + made

    @cached_property
    def time(self) -> float:
        time = self.run.system.combine(self.flops_time, self.mem_time)
        if self.ex.optimizer_impl != "loop":
            return time
        more = 2 * self.ex.grad_clip + (self.size < 4) + (self.gradient < 4)
        kernels = 0
        for method, count in self.parts():
            if count:
                kernels += len(method.operations) + method.products + more
        system, ex = self.run.system, self.run.execution
        host = kernels * system.host_time(ex.launch_mode, self.run.fusion_of_step)
        time = max(time, kernels * system.launch)
        return time + host if ex.launch_mode == "blocking" else max(time, host)

    def without_matrix(self) -> Step:
        """Return the step of the weights beside the matrix."""
        in_matrix = self.sides[0] * self.sides[1] if self.sides else 0
        return Step(self.run, self.weights - in_matrix, None)
