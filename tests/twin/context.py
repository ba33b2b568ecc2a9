"""What ranks with parts of the same sequences exchange for attention over all of them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from .layers import Flags, Layer, Stage
from .run import Run, Team


class Parts(Layer):
    """An exchange over these ranks: operations and bytes forward and backward, how often each, and what it takes up.

    It is repeated where attention is computed again, and has its space for a while, or keeps it.
    """

    def __init__(
        self,
        run: Run,
        name: str,
        operations: tuple[str | None, str | None],
        count: float,
        times: tuple[float, float] = (1, 1),
        *,
        team: Team | None = None,
        inputs: float | None = None,
        space: float = 0,
        grads: float = 0,
        kept: bool = False,
    ) -> None:
        c, size = (run.cp_team if team is None else team).ranks, run.result_bytes
        count = count if c > 1 else 0
        moved = [2 * n * size * count if op else 0 for n, op in zip(times, operations, strict=True)]
        added = count * (c - 1) / c if operations[1] == "reduce_scatter" else 0
        super().__init__(
            run,
            name,
            Flags(recomm=run.recomputes_attention, stores_activation=kept),
            flops=(0, added, 0),
            moved=(moved[0], moved[1], 0),
            inputs=count / c if inputs is None else inputs,
            outputs=count,
            saved=space,
            grads=grads,
        )
        self.operations, self.times, self.size = operations, times, size * count
        self.among = run.cp_team if team is None else team

    def processing_time(self, stage: Stage) -> float:
        return super().processing_time(stage) if stage == "optim" else 0

    def context_time(self, stage: Stage) -> float:
        number = 1 if stage == "agrad" else 0
        op, team = self.operations[number], self.among
        if op is None or team.ranks == 1 or (stage == "wgrad" and not self.flags.recomm):
            return 0
        time = self.times[number] * team.time(op, self.size)
        if stage == "wgrad" or team.network.kind is not None or team.network.torus is not None:
            return time
        return time + self.unlaunched_time(stage)


@dataclass
class Steps:
    """Attention of the busiest rank in a ring: how many steps, shares of the work of the first and of each other one.

    Another step is for half of the queries and all keys of a part, or all queries and half of the keys, if they are
    `halved`; it may be under the mask.
    """

    count: float
    first: float
    other: float
    halved: bool
    masked: bool


def busiest(run: Run) -> float:
    """Work of attention of the busiest rank beside the mean of all.

    In a ring every document is split over all ranks; of gathered ones a rank has what is in its part of a sequence.
    """
    model, ex = run.model, run.execution
    rings, s = ex.context_par // run.near_parts, run.document
    if rings == 1 or not model.causal or ex.cp_balance == "striped":
        return 1
    part = s / rings
    if ex.cp_comm == "all_gather":
        part = min(s, model.seq_size / rings)
    end = s
    if ex.cp_balance == "zigzag":
        if not model.sliding_window or model.chunked_window:
            return 1  # what a part sees less, its mirror image sees more
        end = (s + part) / 2

    def seen(tokens: float) -> float:
        """Keys that the first so many tokens see."""
        return tokens * model.mean_keys(tokens) if tokens > 0 else 0

    keys = (seen(end) - seen(end - part)) / part
    return max(1, keys / model.mean_keys(s))


def sent_parts(run: Run) -> float:
    """Parts of other ranks that come to a rank, in a ring that may leave out what no query attends to."""
    model, ex = run.model, run.execution
    rings = ex.context_par // run.near_parts
    window, s = model.sliding_window, run.document
    if not ex.cp_skip or not 0 < window < s or ex.cp_balance == "striped":
        return rings - 1
    piece = s / rings / (2 if ex.cp_balance == "zigzag" else 1)
    back = math.ceil((window - 1) / piece)
    if not model.causal:
        back = 2 * math.ceil(window / 2 / piece)
    if model.chunked_window and (window % piece == 0 or piece % window == 0):
        back = max(0, round(window / piece) - 1)
    every = model.full_attention_every
    full = model.num_blocks // every if every else 0
    windowed = model.num_blocks - full
    return (full * (rings - 1) + windowed * min(rings - 1, back)) / model.num_blocks


def steps(run: Run) -> Steps | None:
    """Return the steps of a ring, if there is one."""
    model, ex = run.model, run.execution
    if ex.context_par == 1 or ex.cp_comm not in ("p2p", "a2a_p2p"):
        return None
    count = 1 + sent_parts(run)
    first = 1 / count
    if model.causal and ex.cp_balance != "striped" and count > 1:
        own = model.mean_keys(run.document * run.near_parts / ex.context_par)
        first = min(1, own / (model.mean_keys(run.document) * busiest(run)))
    other = (1 - first) / (count - 1) if count > 1 else 0
    halved = model.causal and ex.cp_balance == "zigzag"
    return Steps(count, first, other, halved, model.causal and ex.cp_balance == "striped")


def before_core(run: Run, key_heads: int, own: int) -> list[Layer]:
    """Exchange keys and values, of so many heads on a TP rank, or heads, of which a rank has so many then."""
    model, ex, c = run.model, run.execution, run.execution.context_par
    if c == 1:
        return []
    heads, both = model.attn_heads // ex.tensor_par, model.attn_size + model.value_size
    part = run.tokens * key_heads * both  # elements of keys and values of a rank
    layers: list[Layer] = []
    near = run.near_parts
    if ex.cp_comm in ("a2a", "a2a_p2p"):
        count = run.tokens * heads * model.attn_size + run.tokens * near * own * both
        exchange = ("all_to_all", "all_to_all")
        layers.append(Parts(run, "AttnBlock_Heads_In", exchange, count, team=run.heads_team))
        part, heads = run.tokens * near * own * both, heads // near
    if ex.cp_comm == "all_gather":
        # All keys and values are there while a block works, their gradients in 4 bytes.
        names = ("AttnBlock_KV_Gather", "AttnBlock_KV_Regather")
        all_of_it, size = part * c, run.result_bytes
        operations = ("all_gather", "reduce_scatter")
        space, grads = size * all_of_it, 4 * all_of_it
        layers += [
            Parts(run, names[0], operations, all_of_it, space=space, grads=grads),
            Parts(run, names[1], (None, "all_gather"), all_of_it),
        ]
    if steps(run) is not None:
        # A ring; backward gradients go all the way home. Results are added up in 4 bytes.
        parts = sent_parts(run)
        several = parts > 0
        part *= several
        sums = 4 * run.tokens * near * heads * (model.value_size + 1)
        space = (2 * run.result_bytes * part + sums) * several
        times = (parts, (parts + parts + 1) * several)
        ring = Parts(
            run,
            "AttnBlock_KV_Ring",
            ("p2p", "p2p"),
            part,
            times,
            inputs=part,
            space=space,
            team=run.ring_team,
        )
        layers.append(ring)
    return layers


def after_core(run: Run, own: int) -> list[Layer]:
    """Add partial results up, and bring results back to the tokens of each rank, with so many heads of keys."""
    model, ex = run.model, run.execution
    if ex.context_par == 1:
        return []
    layers: list[Layer] = []
    count = run.tokens * (model.attn_heads // ex.tensor_par) * model.value_size
    if steps(run) is not None:
        layers.append(_sums(run, count, own))
    if ex.cp_comm in ("a2a", "a2a_p2p"):
        exchange = ("all_to_all", "all_to_all")
        several = run.heads_team.ranks > 1
        # The backward pass of fused attention reads results as they were before.
        space = run.result_bytes * count if ex.attn_impl == "flash" and several else 0
        kept, team = not run.recomputes_attention, run.heads_team
        out = Parts(run, "AttnBlock_Heads_Out", exchange, count, space=space, team=team, kept=kept)
        layers.append(out)
    return layers


def _sums(run: Run, outputs: float, own: int) -> Layer:
    """Convert the first part to 4 bytes, add others to it, and convert the sum back; backward all gradients."""
    model, size = run.model, run.result_bytes
    others = sent_parts(run)
    outputs = outputs if others else 0
    tokens = run.tokens * run.near_parts
    queries = model.attn_heads // run.head_ranks * model.attn_size
    gradients = tokens * (queries + own * (model.attn_size + model.value_size))
    gradients = gradients if others else 0
    passes = (size + 4) + others * (size + 4 + 4) + (4 + size)
    layer = Layer(
        run,
        "AttnBlock_Ring_Sums",
        Flags(recompute=run.recomputes_attention),
        flops=(4 * others * outputs, others * gradients, 0),
        moved=(passes * outputs, passes * gradients, 0),
        inputs=outputs,
        outputs=outputs,
    )
    layer.rounds = 1 + others + 1
    return layer


def hidden(run: Run, layers: Sequence[Layer], repeats: bool) -> tuple[float, float, float]:
    """Seconds of the ring that attention hides: forward, backward, and of what is repeated."""
    rings = [layer for layer in layers if layer.name == "AttnBlock_KV_Ring"]
    found = steps(run)
    if not rings or found is None or found.count <= 1:
        return 0, 0, 0
    (core,) = (layer for layer in layers if layer.name == "AttnBlock_Flash")
    usage = run.ring_team.usage

    def left(traffic: float, work: float) -> float:
        return min(traffic, max(traffic - work, usage * traffic))

    one: dict[Stage, float] = {}
    for stage in ("fw", "agrad", "wgrad"):
        whole = rings[0].context_time(stage)
        hops = found.count - 1
        if stage == "agrad":
            hops = 2 * found.count - 1
        transfer = whole / hops
        works = core.step_times("agrad" if stage == "agrad" else "fw")
        exposed = 0.0
        if stage == "agrad":
            exposed += (found.count - 1) * left(2 * transfer, works[1]) + left(transfer, works[0])
        else:
            begun = min(1, found.count - 1)
            exposed += begun * left(transfer, works[0])
            exposed += (found.count - 1 - begun) * left(transfer, works[1])
        one[stage] = whole - min(whole, exposed)
    return one["fw"], one["agrad"], one["wgrad"] if repeats else 0
