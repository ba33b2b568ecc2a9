"""Communication of gradients and weights over data parallelism, once per batch."""

from __future__ import annotations

from dataclasses import dataclass

from .block import Block
from .model_embedding_head import EmbeddingHead
from .run import KINDS, Kind, Run


def per(size: float, time: float) -> float | None:
    """Bandwidth for `size` in `time`; None where there is no time for something."""
    if time == 0:
        return None if size else 0  # [O14]
    return size / time


@dataclass
class SyncedBytes:
    """Bytes of weights, and of the gradients that are reduced for them."""

    weight: float
    gradient: float


def synced_block(block: Block) -> tuple[SyncedBytes, SyncedBytes]:
    """Return the bytes of a block that replicas synchronize: of all replicas, and of experts that have other groups."""
    run = block.run
    ratio = run.reduction_bytes / run.element_bytes
    experts = block.experts.whole if run.experts_apart else 0
    sent = block.experts_sent if run.experts_apart else 0
    dense = (block.weight - experts) * ratio
    return SyncedBytes(block.weight_sent - sent, dense), SyncedBytes(sent, experts * ratio)


def synced_embedding_head(
    run: Run, embedding_head: EmbeddingHead | None, *, sent: bool = True
) -> tuple[SyncedBytes, SyncedBytes]:
    """Return the bytes of embedding and head that replicas synchronize; a table that both use on one stage counts once.

    Of experts of modules what rings of their own replicas would send counts, if it is about what is `sent`.
    """
    if embedding_head is None:
        return SyncedBytes(0, 0), SyncedBytes(0, 0)
    alone = not run.ends_apart
    fewer = 0.0
    if sent and run.experts_apart:
        own, every = run.expert_data_par, max(2, run.data_ranks)
        fewer = (1 - (own - 1) / own * every / (every - 1)) * embedding_head.expert_weight
    first: float = embedding_head.first.whole
    last: float = embedding_head.last.whole - fewer
    if run.model.tied and alone:
        first, last = embedding_head.both.whole - fewer, 0
    first, last = (size * here for size, here in zip((first, last), run.has_ends, strict=True))
    ratio = run.reduction_bytes / run.element_bytes
    return SyncedBytes(first, first * ratio), SyncedBytes(last, last * ratio)


class DataParallel:
    """Times in seconds, sizes in bytes; `bw` is the backward time of a block of either kind."""

    def __init__(
        self,
        block: Block,
        bw: dict[Kind, float],
        bw_pp_time: float,
        embedding_head: EmbeddingHead | None = None,
    ) -> None:
        self.block, self.run, self.execution = block, block.run, block.run.execution
        self.bw, self.bw_pp_time = bw, bw_pp_time
        self.size: float = 0
        self.link_time = self.exposed_time = self.stalled = 0.0
        self.bw_overlap_req_chunk: float | None = 0.0
        self.bw_overlap_req_tail: float | None = 0.0
        several = self.run.data_ranks > 1 or self.run.expert_data_par > 1
        if several and self.execution.training:
            # [O23] Every collective moves the bytes of the weights, that of the gradients too.
            self.one, self.experts = synced_block(block)
            if self.run.data_ranks > 1:
                self.size += self.one.gradient
            if self.run.expert_data_par > 1:
                self.size += self.experts.gradient
            if self.execution.zero_stage == "auto":
                self._communicate(embedding_head)

    def at_least(self, other: DataParallel) -> None:
        """Take what is longer on another stage."""
        for name in ("link_time", "exposed_time", "stalled"):
            setattr(self, name, max(getattr(self, name), getattr(other, name)))
        for name in ("bw_overlap_req_chunk", "bw_overlap_req_tail"):
            both = getattr(self, name), getattr(other, name)
            setattr(self, name, None if None in both else max(both))

    def _time(self, collectives: dict[str, float]) -> float:
        return sum(self.run.dp_team.time(op, size) for op, size in collectives.items())

    def _collectives(self, synced: SyncedBytes) -> dict[str, float]:
        if self.execution.optimizer_sharding:
            return {"reduce_scatter": synced.gradient, "all_gather": synced.weight}
        return {"all_reduce": synced.gradient}

    def _communicate(self, embedding_head: EmbeddingHead | None) -> None:
        ex, run = self.execution, self.run
        self.collectives = self._collectives(self.one)
        self.network = run.dp_network
        self.comm = self._time(self.collectives)
        if run.experts_apart and self.experts.weight:  # a stage of dense blocks has none
            of_experts = self._collectives(self.experts)
            times = [run.expert_team.time(op, size) for op, size in of_experts.items()]
            self.comm = run.both_classes(self.comm, sum(times))
        first, last = synced_embedding_head(run, embedding_head)
        if run.data_ranks == 1:
            first, last = SyncedBytes(0, 0), SyncedBytes(0, 0)
        embedding = self._time(self._collectives(first)) if first.weight else 0
        self.head = self._time(self._collectives(last)) if last.weight else 0
        piped = run.ends_apart
        of_embedding_head = max(embedding, self.head) if piped else embedding + self.head
        self.link_time = run.blocks * self.comm + of_embedding_head
        self.exposed_time = self.link_time
        if ex.data_par_overlap:
            if not (run.rules.data_par_exposed and run.rules.data_par_bandwidth):
                self._published_overlap()
            if run.rules.data_par_exposed:
                # Gradients of the head come first and may hide, those of the embedding come last.
                with_head = self._expose(self.head)
                self.exposed_time = with_head + embedding
                if piped:
                    self.exposed_time = max(with_head, self._expose(0) + embedding)
            if run.rules.data_par_bandwidth:
                self._bandwidths()

    def _windows(self) -> tuple[float, float]:
        """Time that hides the traffic of a chunk, and that of the last chunk."""
        block, ex, run = self.block, self.execution, self.run
        mem_time = block.agrad.mem_time + block.wgrad.mem_time + block.re.mem_time
        free: dict[Kind, float] = {k: self.bw[k] - mem_time for k in KINDS}
        if run.dp_on_tp:
            for k in KINDS:
                free[k] -= block.recomm.time[k] + block.agrad_tp.time[k]
        if run.dp_on_pp and ex.pipeline_par > 1:
            free["edge"] -= self.bw_pp_time
        # Between two chunks a stage waits for all stages: as many microbatches, or as much idle time.
        chunk = ex.pipeline_par * run.chunk_sum(free)
        return max(0, chunk), max(0, run.base_blocks * free["base"])

    def _expose(self, head: float) -> float:
        """Hide the communication of a block behind the backward pass of the others."""
        block, ex, run = self.block, self.execution, self.run
        window, last_window = self._windows()
        flops_time = block.agrad.flops_time + block.wgrad.flops_time + block.re.flops_time
        passes = min(run.microbatches, ex.pipeline_par) * run.chunk_blocks
        early = self._exposed(run.chunk_blocks * self.comm, window, passes * flops_time)
        last = run.base_blocks * self.comm + head
        tail = self._exposed(last, last_window, run.base_blocks * flops_time)
        # The last block overlaps with nothing.
        chunks = 1 if run.folded else run.chunks  # both end with the batch
        return run.edge_blocks * self.comm + (chunks - 1) * early + tail

    def _exposed(self, comm: float, window: float, flops_time: float) -> float:
        """What does not fit, or else the arithmetic that the communication takes away."""
        if window == 0:
            return comm
        slow_down = self.run.dp_slows * comm * min(1, flops_time / window)
        return min(comm, max(comm - window, slow_down))

    def _bandwidths(self) -> None:
        """Bandwidths at which everything but the last block just fits."""
        volume = 0.0
        for op, size in self.collectives.items():
            volume += self.network.volume(op, size, self.run.data_ranks)
        if self.run.expert_data_par > 1:
            for op, size in self._collectives(self.experts).items():
                volume += self.network.volume(op, size, self.run.expert_data_par)
        window, last_window = self._windows()
        if self.run.chunks > 1 and not self.run.folded:
            self.bw_overlap_req_chunk = per(self.run.chunk_blocks * volume, window)
        else:
            self.bw_overlap_req_chunk = 0
        self.bw_overlap_req_tail = per(self.run.base_blocks * volume, last_window)

    def _published_overlap(self) -> None:
        """Hide the communication of a block behind the backward pass of the others, published."""
        ex, run, bw = self.execution, self.run, self.bw
        usage, p, comm = run.dp_slows, ex.pipeline_par, self.comm
        scalars = sum(self.network.ops[op][0] for op in self.collectives)
        chunks, base_blocks = ex.pipeline_interleaving, run.base_blocks
        free, slack, flops_time = self._published_window()

        # All chunks but the last.
        window, comm_chunk = p * free, run.chunk_blocks * comm
        slowed = p * (run.chunk_blocks * flops_time)
        with_pp = run.dp_on_pp
        collisions = min(comm_chunk // run.chunk_sum(bw), run.microbatches % p or p)
        hidden = window - (collisions if with_pp else 0) * self.bw_pp_time
        excess = comm_chunk - hidden + slowed * usage
        early = (chunks - 1) * (excess if excess > 0 else comm_chunk * usage)

        # The last chunk, and its last block, which overlaps with nothing.
        last_window = 0.0
        if base_blocks > 0:
            last_window = free - self.bw_pp_time - (bw["base"] + bw["edge"]) / 2 + slack
        # [O10] Slowed by one block's arithmetic, however many blocks overlap, even none.
        excess = base_blocks * comm + flops_time * usage - last_window
        tail = excess if excess > 0 else base_blocks * comm * usage
        self.exposed_time = comm + early + tail

        # [O11] Chunk: the bytes of one in the window of all, less a single collision; the
        # slow-down is added.  Tail: all blocks of the chunk in the window of the base blocks.
        size = run.chunk_blocks * self.size
        collision = self.bw_pp_time if with_pp else 0
        window = (chunks - 1) * (window + slowed * usage - collision)
        self.bw_overlap_req_chunk = size / window * scalars if window > 0 else 0
        window = last_window + base_blocks * comm * usage
        self.bw_overlap_req_tail = size / window * scalars if window > 0 else 0

    def _published_window(self) -> tuple[float, float, float]:
        """Time of a chunk that hides DP traffic, its part for the optimizer, and FLOP time.

        [O1] Both the memory and the FLOP time of recompute are the inflated ones.
        """
        block, sharded = self.block, self.execution.optimizer_sharding
        slack = 0 if sharded else block.optim.time - block.optim.mem_time
        mem_time = block.agrad.mem_time + block.wgrad.mem_time + block.re.mem_time
        free: dict[Kind, float] = {k: self.bw[k] - mem_time + slack for k in KINDS}
        if self.run.dp_on_tp:
            for k in KINDS:
                free[k] -= block.recomm.time[k] + block.agrad_tp.time[k]
        flops_time = block.agrad.flops_time + block.wgrad.flops_time + block.re.flops_time
        flops_time += 0 if sharded else block.optim.flops_time
        return self.run.chunk_sum(free), slack, flops_time
