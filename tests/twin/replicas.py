"""Data parallelism in its explicit strategies: DDP, ZeRO, FSDP, and layers with owners."""

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil

from .block import Block
from .data_parallel import SyncedBytes, synced_block, synced_embedding_head
from .model_embedding_head import EmbeddingHead
from .optimizer import form_of


@dataclass
class Windows:
    """Seconds of a base block in which the network of the replicas is free, and of the head."""

    forward: float
    backward: float
    head: float


class Replicas:
    """Traffic of a batch: on the link, exposed, and for how long it stalls each microbatch."""

    link_time: float
    exposed_time: float
    stalled: float

    def __init__(
        self, block: Block, embedding_head: EmbeddingHead | None, windows: Windows
    ) -> None:
        self.run, self.windows = block.run, windows
        run, ex = self.run, self.run.execution
        self.stage = ex.zero_stage
        self.owned = self.stage == "owner"
        self.shards = form_of(run).shards
        self.sharing = run.replicas(self.shards)
        self.copies = run.data_ranks // self.shards
        self.copying = run.replicas(self.copies, self.shards)
        self.usage = run.dp_slows
        self.counts = True, True  # collectives of shards, and between their copies
        self.one, self.experts = synced_block(block)
        self.embedding, self.head = synced_embedding_head(run, embedding_head)
        if run.data_ranks == 1:
            self.embedding, self.head = SyncedBytes(0, 0), SyncedBytes(0, 0)
        self.piped = run.ends_apart
        if self.stage in ("0", "1", "2"):
            self._whole_weights()
        else:
            self._split_weights()
            network = self.copying.network
            if self.copies > 1 and network.synchronous and not self.owned:
                self._wait_for_copies()

    def _wait_for_copies(self) -> None:
        """Hide the traffic among those that share, and none of that between the copies."""
        link = self.link_time
        self.counts = True, False
        self._split_weights()
        hidden = self.exposed_time
        self.counts = False, True
        self._split_weights()
        self.exposed_time, self.link_time = hidden + self.link_time, link
        once = self.run.execution.sync_once  # after the last microbatch
        self.stalled = 0 if once else self.exposed_time / self.run.microbatches

    # -- collectives ------------------------------------------------------------------------------

    def _gather(self, weight: float) -> float:
        """Seconds until weights are whole again."""
        if not weight or not self.counts[0]:
            return 0
        return self.sharing.time("broadcast" if self.owned else "all_gather", weight)

    def _reduce(self, gradient: float) -> float:
        """Seconds to add gradients up: over those that share them, then over the copies."""
        if not gradient:
            return 0
        if self.owned:
            return self.run.dp_team.time("reduce", gradient)
        if self.stage == "0":
            return self.run.dp_team.time("all_reduce", gradient)
        time = self.sharing.time("reduce_scatter", gradient) if self.counts[0] else 0
        if self.copies > 1 and self.counts[1]:
            time += self.copying.time("all_reduce", gradient / self.shards)
        return time

    def _gather_experts(self, weight: float) -> float:
        """Seconds until experts are whole again, those of each of their replicas."""
        run, shards = self.run, self.shards
        if not weight or not self.counts[0]:
            return 0
        team = run.experts_on(run.expert_shards(shards) if shards > 1 else 1)
        return team.time("broadcast" if self.owned else "all_gather", weight)

    def _reduce_experts(self, gradient: float) -> float:
        """Seconds to add their gradients up."""
        run = self.run
        if not gradient:
            return 0
        if self.owned or self.stage == "0":
            return run.expert_team.time("reduce" if self.owned else "all_reduce", gradient)
        parts = run.expert_shards(self.shards)
        time = run.experts_on(parts).time("reduce_scatter", gradient) if self.counts[0] else 0
        if self.copies > 1 and self.counts[1]:
            time += run.experts_on(self.copies, parts).time("all_reduce", gradient / parts)
        return time

    def _gather_blocks(self, count: float) -> float:
        """Seconds until the weights of so many blocks are whole again."""
        dense = self._gather(count * self.one.weight)
        if not self.experts.weight:
            return dense
        return self.run.both_classes(dense, self._gather_experts(count * self.experts.weight))

    def _reduce_blocks(self, count: float) -> float:
        """Seconds to add the gradients of so many blocks up."""
        dense = self._reduce(count * self.one.gradient)
        if not self.experts.weight:
            return dense
        return self.run.both_classes(dense, self._reduce_experts(count * self.experts.gradient))

    def _added(self, traffic: float, window: float) -> float:
        """Seconds that traffic adds to the work beside it, which it slows while it lasts."""
        return min(traffic, max(traffic - window, self.usage * traffic))

    def _at_ends(self, embedding: float, head: float) -> float:
        """Add up on one stage; of two the longer counts."""
        return max(embedding, head) if self.piped else embedding + head

    # -- weights on every rank --------------------------------------------------------------------

    def _whole_weights(self) -> None:
        """Gradients are reduced in buckets, then new weights are gathered if the step is split."""
        run, ex = self.run, self.run.execution
        every = self.stage == "2" or not ex.no_sync
        times = -(-run.microbatches // ex.grad_group) if every else 1
        stages = [(self.embedding.gradient, self.head.gradient)]
        if self.piped:
            stages = [(self.embedding.gradient, 0), (0, self.head.gradient)]
        found = [self._bucketed(*stage) for stage in stages]
        once = max(exposed for _, exposed in found)
        self.link_time = times * max(link for link, _ in found)
        self.exposed_time = times * once
        self.stalled = once / ex.grad_group if every else 0
        if self.stage == "0":
            return
        one = self._gather_blocks(1)
        first, last = self._gather(self.embedding.weight), self._gather(self.head.weight)
        gathered = run.blocks * one + self._at_ends(first, last)
        self.link_time += gathered
        if ex.overlap_param_gather:
            # The first to be used, block or table, is waited for.
            window = self.windows.forward
            gathered = one + (run.blocks - 1) * self._added(one, window)
            gathered += self._at_ends(first, self._added(last, window))
        self.exposed_time += gathered

    def _bucketed(self, embedding: float, head: float) -> tuple[float, float]:
        """Return link and exposed time to reduce gradients of a stage once, the embedding's last.

        All buckets but the last hide behind what remains of the backward pass.
        """
        run, gradient = self.run, self.one.gradient
        others, last, before = self._in_buckets(self._reduce, gradient, embedding, head)
        if self.experts.gradient:  # in buckets of their own
            found = self._in_buckets(self._reduce_experts, self.experts.gradient, 0, 0)
            others = run.both_classes(others, found[0])
            last = run.both_classes(last, found[1])
            if run.expert_data_par > 1:
                before = min(before, found[2])
        exposed = others
        if run.execution.data_par_overlap:
            exposed = self._added(others, before * self.windows.backward)
        return others + last, exposed + last

    def _in_buckets(
        self, reduce: Callable[[float], float], gradient: float, embedding: float, head: float
    ) -> tuple[float, float, float]:
        """Return the seconds of all buckets but the last, of the last, and the blocks before that is full."""
        blocks, size = self.run.blocks, self.run.execution.ddp_bucket_mib * 2**20
        if not size:  # one for each block
            others = (blocks - 1) * reduce(gradient) + reduce(head)
            return others, reduce(gradient) + reduce(embedding), blocks - 1
        whole = blocks * gradient + embedding + head
        if not whole:  # a stage without blocks
            return 0, 0, 0
        rest = whole - (ceil(whole / size) - 1) * size
        rest = min(whole, max(rest, embedding))
        count = ceil((whole - rest) / size)
        others = count * reduce((whole - rest) / count) if count else 0
        return others, reduce(rest), blocks * (1 - rest / whole)

    # -- split weights ----------------------------------------------------------------------------

    def _split_weights(self) -> None:
        """Weights are gathered unit by unit for every pass of every microbatch."""
        run, ex = self.run, self.run.execution
        unit, chunks = ex.fsdp_unit, run.chunks
        units = run.chunk_blocks / unit
        gather = self._gather_blocks(unit)
        again = gather if ex.reshard_after_forward and not ex.sync_once else 0
        reduce = self._reduce_blocks(unit)
        embedding = self._gather(self.embedding.weight) + self._reduce(self.embedding.gradient)
        head = self._gather(self.head.weight), self._reduce(self.head.gradient)
        link = chunks * units * (gather + again + reduce) + self._at_ends(embedding, sum(head))
        self.stalled = link
        if ex.data_par_overlap and ex.fsdp_prefetch > 0 and not self.owned:
            forward, backward = unit * self.windows.forward, unit * self.windows.backward
            inner = self._added(gather, forward) + self._added(again + reduce, backward)
            waits = chunks * (gather + again + reduce + (units - 1) * inner)
            at_head = self._head(units, again, reduce, head, forward, backward)
            if ex.sync_once:  # reductions come after the last backward pass
                first = gather + (units - 1) * self._added(gather, forward)
                waits = chunks * (first + units * reduce)
                at_head = self._added(head[0], forward) + head[1]
            self.stalled = min(link, waits + self._at_ends(embedding, at_head))
        times = 1 if ex.sync_once else run.microbatches
        self.link_time = times * link
        self.exposed_time = times * self.stalled
        if ex.sync_once:
            self.stalled = 0

    def _head(
        self,
        units: float,
        again: float,
        reduce: float,
        head: tuple[float, float],
        forward: float,
        backward: float,
    ) -> float:
        """Seconds that the head adds: it comes beside the last unit forward and the first backward.

        In exchange, its backward pass hides the first gather of the backward pass.
        """
        gathered, reduced = head
        beside = again + reduce if units > 1 else 0
        added = self._added(beside + reduced, backward) - self._added(beside, backward)
        saved = again - self._added(again, self.windows.head)
        return self._added(gathered, forward) + added - saved
