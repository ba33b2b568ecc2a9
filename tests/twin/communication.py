"""The layers that communicate over tensor parallelism."""

from copy import copy

from .copies_of_tokens import time as copy_time
from .layers import Flags, Layer, Side, Stage
from .operators import linear
from .run import Kind, Run, Team


class TPComm(Layer):
    """A TP collective by itself, empty without tensor parallelism."""

    beside_inputs: float = 0  # seconds of the gradients of inputs beside which it is repeated
    beside_weights: float = 0  # seconds of those of weights beside which its backward pass runs

    def __init__(
        self,
        run: Run,
        name: str,
        side: Side,
        flags: Flags,
        *,
        count: float | None = None,
        outermost: bool = False,
        element: int | None = None,
        team: Team | None = None,
    ) -> None:
        team = run.tp_team if team is None else team
        t = team.ranks
        count = run.activation if count is None else count
        size = count if t > 1 else 0
        standard = element is None
        element = run.result_bytes if element is None else element
        message, additions = element * size, size * (t - 1) / t
        flops = {
            "reduce": (additions, 0.0, 0.0),
            "total": (additions, 0.0, 0.0),
            "join": (0.0, 0.0, 0.0),
            "spread": (0.0, 0.0, 0.0),
        }.get(side, (0.0, additions, 0.0))
        passes = {"gather": (0, 2, 0), "reduce": (2, 0, 0), "collect": (2, 2, 0)}.get(
            side, (2, 0, 0)
        )
        kept = {"gather": (0.0, 1.0), "reduce": (1.0, 0.0), "total": (0.0, 0.0)}.get(
            side, (1 / t, 1.0)
        )
        sent = [passes[0] * message, passes[1] * message]
        if side == "spread":
            back = 1 if run.sequence_par else 0
            kept, sent[1] = (0, back), 2 * message * back
        if run.sequence_par and side in ("gather", "reduce"):
            kept, sent = (1 / t, 1 / t), [2 * message, 2 * message]
        if standard and side in ("gather", "reduce") and run.operand_bytes < run.result_bytes:
            self.gathered = run.operand_bytes * size
            if side == "reduce" and run.recipe is not None and run.recipe.both:
                self.gathered += self.gathered  # gradients, of which both layouts are needed
            if run.sequence_par:
                sent[0 if side == "gather" else 1] = 2 * self.gathered
        super().__init__(
            run,
            name,
            flags,
            flops=flops,
            moved=(sent[0], sent[1], 0),
            inputs=size / t if side in ("collect", "join", "spread") else size,
            outputs=size,
            output_space=message,
            saved=kept[0] * message,
            grads=kept[1] * message,
        )
        self.side, self.message, self.outermost = side, message, outermost
        self.t, self.team = t, team

    def processing_time(self, stage: Stage) -> float:
        if stage == "optim":
            return super().processing_time(stage)
        return 0  # [O16] it is in the link time; flops_time and mem_time are summed nevertheless

    def _reduction_time(self, op: str, stage: Stage) -> float:
        network = self.team.network
        if network.kind is not None or network.torus is not None:
            return 0  # what nccl-tests shows is from memory to memory
        return self.unlaunched_time(stage)

    def exposed_time(self, stage: Stage, kind: Kind) -> float:
        traffic, work = self.link_time(stage, kind), 0.0
        if stage == "agrad":
            work = self.beside_weights
        elif stage == "wgrad":
            work = self.beside_inputs
        # The work gets what engines the traffic leaves; what one has left then runs alone.
        left = self.run.tp_team.usage * traffic
        if traffic > work:
            left = max(left, traffic - work)
        return left if work else traffic


class Exchange(Layer):
    """A collective over ranks that have all experts once: operations and bytes forward and backward."""

    def __init__(
        self,
        run: Run,
        name: str,
        team: Team,
        operations: tuple[str, str | None],
        sizes: tuple[float, float],
        *,
        count: float,
        saved: float = 0,
        grads: float | None = None,
    ) -> None:
        there, back = sizes if team.ranks > 1 else (0, 0)
        count = count if team.ranks > 1 else 0
        added = [
            count * (team.ranks - 1) / team.ranks if op == "reduce_scatter" else 0.0
            for op in operations
        ]
        super().__init__(
            run,
            name,
            Flags(recomm=run.full_recompute, stores_activation=False),
            flops=(added[0], added[1], 0),
            moved=(2 * there, 2 * back if operations[1] else 0, 0),
            inputs=count / team.ranks,
            outputs=count,
            saved=saved,
            grads=run.result_bytes * count if grads is None else grads,
        )
        self.team, self.operations, self.sizes = team, operations, (there, back)

    def processing_time(self, stage: Stage) -> float:
        return super().processing_time(stage) if stage == "optim" else 0

    def _sends(self, stage: Stage) -> tuple[str | None, float]:
        """Return what a stage sends, and how much of it."""
        number = 1 if stage == "agrad" else 0
        op, size = self.operations[number], self.sizes[number]
        sends = size > 0 and (stage != "wgrad" or self.flags.recomm)
        return (op if sends else None), size

    def experts_bytes(self, stage: Stage) -> dict[int, float]:
        op, size = self._sends(stage)
        return self.team.moved(op, size) if op else {}

    def _team_time(self, op: str, size: float) -> float:
        return self.team.time(op, size)

    def experts_time(self, stage: Stage) -> float:
        op, size = self._sends(stage)
        if op is None:
            return 0
        time, network = self._team_time(op, size), self.team.network
        if stage == "wgrad" or network.kind is not None or network.torus is not None:
            return time
        return time + self.unlaunched_time(stage)


class Copies(Exchange):
    """An exchange by a library of experts, whose sizes are those of a copy of each token of a rank."""

    def __init__(
        self,
        run: Run,
        name: str,
        sizes: tuple[float, float],
        *,
        arrived: float,
        kernels: tuple[int, int, int],
        saved: float,
    ) -> None:
        team = run.ep_team if run.execution.expert_par > 1 else run.alone
        name_of = run.execution.moe_dispatcher
        count = arrived * run.model.row_width
        super().__init__(run, name, team, (name_of, name_of), sizes, count=count, saved=saved)
        own = run.residual / run.model.hidden * run.most_loaded  # tokens of which sizes are copies
        self.traffic["fw"] = 2 * self.sizes[0] / own * arrived
        self.traffic["agrad"] = 2 * self.sizes[1] / own * arrived
        self.kernels = kernels if team.ranks > 1 else None

    def experts_bytes(self, stage: Stage) -> dict[int, float]:
        op, size = self._sends(stage)
        return self.team.copied(size) if op else {}

    def _team_time(self, op: str, size: float) -> float:
        run = self.run
        return copy_time(run.system, self.team.group, run.node, run.model, size)


def copied(run: Run, comm: TPComm) -> list[Layer]:
    """Return a collective of split sequences, and the copy of its whole tensor, and of the gradient, in memory."""
    if not run.execution.seq_par_copies:
        return [comm]
    size = comm.message + comm.message  # read, and written
    flags = Flags(recompute=comm.flags.recomm)
    name = f"{comm.name}_Copy"
    return [comm, Layer(run, name, flags, moved=(size, size, 0), inputs=comm.outputs)]


class OverlappedLinear(Layer):
    """A linear layer (m x n) times (n x k) in t tiles, between which its collective proceeds."""

    beside = True

    def __init__(
        self,
        run: Run,
        name: str,
        side: Side,
        shape: tuple[int, int, int],
        flags: Flags,
        *,
        bias: int | None = None,
        outermost: bool = False,
    ) -> None:
        t, (m, n, k) = run.execution.tensor_par, shape
        plain = linear(run, name, m, n, k, flags, bias)
        # [O6] What is saved differs by side and by sequence parallelism.
        if run.rules.overlapped_operands:
            saved, grads = m * n, m * k
        elif side == "gather":
            saved, grads = (m * n // t, m * k) if run.sequence_par else (m * n, 0)
        else:
            saved, grads = (m * n, 2 * (m * k // t)) if run.sequence_par else (0, 2 * m * k)
        read, wrote = run.operand_bytes, run.result_bytes
        moved = plain.traffic["fw"], plain.traffic["agrad"], plain.traffic["wgrad"]
        if not run.rules.overlapped_operands:
            gradients = run.weight_bytes * plain.weights + read * (saved + grads)
            moved = plain.traffic["fw"], gradients, gradients
        super().__init__(
            run,
            name,
            flags,
            kind="product",
            engine="matrix",
            flops=(plain.work["fw"],) * 3,
            moved=moved,
            inputs=m * n,
            outputs=m * k,
            weights=plain.weights,
            saved=read * saved,
            grads=wrote * grads,
        )
        self.product = plain.product
        self.side, self.outermost = side, outermost
        ex = run.execution
        self.buffered, self.share = ex.tp_user_buffers, ex.tp_hidden_percent / 100
        for stage in ("fw", "agrad"):
            self.traffic[stage] += (self.tiles(stage) - 1) * run.weight_bytes * self.weights
        border = m * n if side == "gather" else m * k
        self.message = wrote * border
        if read < wrote:
            self.gathered = read * border
            if side == "reduce" and run.recipe is not None and run.recipe.both:
                self.gathered += self.gathered
        self.usage = run.tp_team.usage

    def tiles(self, stage: Stage) -> int:
        """Return in how many products a pass is cut: as many as its collective has peers."""
        cut = self.run.rules.tiled_products and stage in ("fw", "agrad")
        cut = cut and not self._whole(stage)
        return self._pieces(stage) if cut and self.collective(stage, "base") else 1

    def _whole(self, stage: Stage) -> bool:
        """Whether a collective runs beside a whole product of the other gradient: in bulk."""
        return self.buffered and self.side == "gather" and stage in ("agrad", "wgrad")

    def _pieces(self, stage: Stage) -> int:
        """Pieces of the overlap: user buffers reduce the output of a product in 4."""
        return 4 if self._by_pieces(stage) else self.t

    def _by_pieces(self, stage: Stage) -> bool:
        return self.buffered and self.side == "reduce" and stage == "fw"

    def _last_alone(self, stage: Stage) -> bool:
        """Whether nothing runs beside the collective of one of the pieces."""
        return self.run.execution.tensor_par_overlap == "pipe" or self._by_pieces(stage)

    def flops_time(self, stage: Stage) -> float:
        if stage == "optim":
            return super().flops_time(stage)
        tiles = self.tiles(stage)
        tile = copy(self)
        assert self.product is not None
        count, rows, depth, columns = self.product
        tile.product = count, rows / tiles, depth, columns
        tile.work = {stage: self.work[stage] / tiles}
        return tiles * super(OverlappedLinear, tile).flops_time(stage)

    def mem_time(self, stage: Stage) -> float:
        if stage == "optim":
            return super().mem_time(stage)
        tiles = self.tiles(stage)
        tile = copy(self)
        tile.traffic = {stage: self.traffic[stage] / tiles}
        return tiles * super(OverlappedLinear, tile).mem_time(stage)

    def launched(self, stage: Stage) -> float:
        return self.tiles(stage) * super().launched(stage)

    def _with_sums(self, stage: Stage) -> float:
        """Memory time with that of the sums that go round a ring, but for the first tile."""
        sums = 0.0
        ring = self.run.execution.tensor_par_overlap == "ring" and not self.buffered
        reduces = self.collective(stage, "base") in ("all_reduce", "reduce_scatter")
        if ring and reduces and self.tiles(stage) > 1:
            sums = (self.t - 1) * self.run.system.mem1.time(3 * self.message / self.t)
        return self.mem_time(stage) + sums

    @property
    def stored_space(self) -> float:
        again = self.side == "gather" and self.run.sequence_par and self.flags.recomm
        if again and self.run.rules.overlapped_operands:
            return self.run.operand_bytes * (int(self.inputs) // self.t)
        return self.activation_space

    def comm_tile(self, stage: Stage, kind: Kind) -> float:
        return self.comm_size(stage, kind) / self.t

    def _reduction_time(self, op: str, stage: Stage) -> float:
        if op == "all_gather":
            return 0
        return self.vector.time(self.message / self.run.result_bytes * (self.t - 1) / self.t)

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
        if stage == "optim":
            return super().processing_time(stage)
        if not self.run.rules.overlap_times:
            return self._published_overlap(stage)[0]
        return self._beside(stage, "base") + self._longer(stage)

    def _longer(self, stage: Stage) -> float:
        """Time by which kernels, beside what a base block waits for, take longer than the pass."""
        again = stage == "wgrad" and self.flags.recompute
        waits = 0 if again else self._waits(stage, "base")
        return max(0, self.floor(stage) - waits - self._beside(stage, "base"))

    def _beside(self, stage: Stage, kind: Kind) -> float:
        """Processing time beside the communication of a kind of block."""
        t, combine = self._pieces(stage), self.run.system.combine
        flops_time, mem_time = self.flops_time(stage), self._with_sums(stage)
        compute = combine(flops_time, mem_time)
        slowed = combine(flops_time / (1 - self.usage), mem_time)
        # A recomputed layer has repeated its communication beside its forward pass.
        again = stage == "wgrad" and self.flags.recompute
        link = 0 if again or self._whole(stage) else self.link_time(stage, kind)
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
        waits = self._waits(stage, kind)
        # Kernels of an edge block are launched while it waits for its own communication.
        short = max(0, self.floor(stage) - waits - self._beside(stage, "base"))
        return max(0, waits + (short - self._longer(stage)))

    def _waits(self, stage: Stage, kind: Kind) -> float:
        """Exposed network time of a kind of block whose kernels take no least time."""
        link, t = self.link_time(stage, kind), self._pieces(stage)
        if self._whole(stage):
            work = self._beside("wgrad" if stage == "agrad" else "agrad", "base")
            return min(link, max(link - work, self.usage * link))
        exposed = max(0, (t - 1) / t * (link - self._cover(stage)))
        # An edge block is slowed by its own communication.
        exposed = max(0, exposed + self._beside(stage, kind) - self._beside(stage, "base"))
        # Nothing runs beside the first tile of a pipe.
        exposed += link / t if self._last_alone(stage) else 0
        if link == 0:
            return exposed
        # Some of what could be hidden is not.
        compute = self.run.system.combine(self.flops_time(stage), self._with_sums(stage))
        hidden = max(0, compute + link - self._beside(stage, "base") - exposed)
        return exposed + (1 - self.share) * hidden

    def _cover(self, stage: Stage) -> float:
        """Longest link time that hides behind the stage."""
        slowed = self.flops_time(stage) / (1 - self.usage)
        if self.run.system.processing_mode == "roofline":
            return max(slowed, self._with_sums(stage))
        return slowed

    def required_bandwidth(self, stage: Stage, kind: Kind) -> float:
        slowed = self.flops_time(stage) / (1 - self.usage)
        return self.comm_tile(stage, kind) / (slowed / self.t)


def hide_input_gradients(layers: list[Layer]) -> None:
    """Let collectives run beside the gradients of the products that read what was gathered.

    The gradient of their input is reduced while those of their weights are computed, and what is
    gathered again is not needed before. A product that is computed again needs it at once.
    """
    for place, layer in enumerate(layers):
        if not isinstance(layer, TPComm) or layer.side != "gather":
            continue
        for reader in layers[place + 1 :]:
            if reader.kind == "fork":
                continue
            if reader.kind != "product":
                break
            layer.beside_weights += reader.processing_time("wgrad")
            if not reader.flags.recompute:
                layer.beside_inputs += reader.processing_time("agrad")
