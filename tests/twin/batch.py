"""What one processor takes for one global batch."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy

from .block import Block
from .copies import add_copies
from .data_parallel import DataParallel, per
from .errors import require_fit
from .memory import fullest_stage
from .model_embedding_head import EmbeddingHead
from .replicas import Replicas, Windows
from .run import KINDS, Kind, Team
from .stages import StagePasses, chunks_of_stages, idle_time, slowest_stage

ByKind = dict[Kind, float]


class Batch:
    """Times in seconds, sizes in bytes; most attributes are the statistics of that name."""

    def __init__(self, block: Block) -> None:
        self.block, self.run, self.execution = block, block.run, block.run.execution
        self.piped = self.execution.pipeline_par > 1
        self.embedding_head = EmbeddingHead(self.run) if self.run.model.vocab else None
        self.copies = add_copies(self.run, block, self.embedding_head)
        self._pipeline_transfers()
        self._offload()
        self._stages()
        self._compute()
        self._replicas()
        self._bubble()
        self._memory()
        self._offload_requirements()
        self._totals()

    def _pipeline_transfers(self) -> None:
        ex, run, pp = self.execution, self.run, self.run.pp_network
        elements = run.activation if ex.tensor_par_comm_type == "ar" else run.split_activation
        self.fw_pp_size = run.element_bytes * elements if self.piped else 0
        self.bw_pp_size = self.fw_pp_size if ex.training else 0
        # [O8] Without a pipeline, and backward in inference, the latency remains.
        pair = Team(run, 2, run.pp_net, 0)
        self.fw_pp_time = pair.time("p2p", self.fw_pp_size)
        self.bw_pp_time = pair.time("p2p", self.bw_pp_size)
        if run.rules.empty_transfers:
            self.fw_pp_time = self.fw_pp_time if self.fw_pp_size else 0
            self.bw_pp_time = self.bw_pp_time if self.bw_pp_size else 0
        time = self.fw_pp_time + (self.bw_pp_time if ex.training else 0)
        self.transfers = run.microbatches * ex.pipeline_interleaving if self.piped else 0
        self.pp_traffic = self.transfers * time
        # Two copies of a table exchange their gradient.
        self.pp_shared = 0.0
        if self.embedding_head is not None and run.model.tied and self.piped and ex.training:
            self.pp_shared = pp.time("all_reduce", self.embedding_head.table_gradient, 2)
        self.pp_link_time = self.pp_traffic + self.pp_shared
        self.fw_sent, self.bw_sent = self.fw_pp_time, self.bw_pp_time
        if ex.p2p_overlap:
            self.fw_pp_time = self.bw_pp_time = 0

    def _offload(self) -> None:
        """Time of a block of either kind, first without (`0`), then with the offload traffic."""
        block, ex, run = self.block, self.execution, self.run
        self.block_activation = block.checkpoint if run.full_recompute else block.act_storage
        weight = block.weight if ex.weight_offload else 0
        activation = self.block_activation if ex.activations_offload else 0
        per_microbatch = ex.optimizer_offload and not run.rules.optimizer_offload
        optimizer = block.optimizer if per_microbatch else 0
        # [O25] Forward the larger of weights and activations moves, backward the sum.
        self.fw_offload = max(weight, activation)
        self.bw_offload = weight + activation + optimizer if ex.training else 0
        # [O19] Also when nothing moves.
        shared = run.system.node_time(weight + activation, ex.num_procs)
        fw_traffic = max(run.system.mem2.time(self.fw_offload), shared) + block.fw.mem_time
        bw_traffic = max(run.system.mem2.time(self.bw_offload), shared) if ex.training else 0
        bw_traffic = bw_traffic + block.agrad.mem_time + block.wgrad.mem_time
        bw_traffic += block.re.mem_time if run.rules.offload_window else 0

        self.fw0: ByKind = {k: block.fw.time + block.fw_tp.exposed[k] for k in KINDS}
        again: ByKind = {k: block.re.time + block.recomm.exposed[k] for k in KINDS}
        gradients = block.agrad.time + block.wgrad.time
        self.bw0: ByKind = {k: again[k] + gradients + block.agrad_tp.exposed[k] for k in KINDS}
        self.fw0["edge"] += self.fw_pp_time
        self.bw0["edge"] += self.bw_pp_time

        self.fw_excess: ByKind = {k: max(0, fw_traffic - self.fw0[k]) for k in KINDS}
        self.bw_excess: ByKind = {k: max(0, bw_traffic - self.bw0[k]) for k in KINDS}
        self.fw: ByKind = {k: self.fw0[k] + self.fw_excess[k] for k in KINDS}
        self.bw: ByKind = {k: self.bw0[k] + self.bw_excess[k] for k in KINDS}

    def _stages(self) -> None:
        """What is different in each stage, where they are told apart."""
        run = self.run
        self._add_up()
        self.busy_blocks, self.busy_chunk = run.blocks, float(run.chunk_blocks)
        self.at_embedding = self.at_head = True  # whether the slowest stage has that end
        if self.embedding_head is not None and self.piped:
            embedding, head = self.embedding_head.whole
            embedding, head = embedding + self.added[1], head + self.added[2]
            self.at_embedding, self.at_head = embedding > head, embedding <= head
        if run.layout is None:
            return
        slowest = slowest_stage(self._passes(run.layout, 0))
        self.busy_blocks = run.layout[slowest]
        self.busy_chunk = run.layout[slowest] / run.execution.pipeline_interleaving
        self.at_embedding, self.at_head = slowest == 0, slowest == len(run.layout) - 1

    def _passes(self, layout: list[int], stalled: float) -> list[StagePasses]:
        """Return the passes of each stage, each of which is stalled for so long."""
        fw, bw, wgrad = self.fw, self.bw, self.block.wgrad.time
        stages, chunks = [], self.execution.pipeline_interleaving
        added, *of_ends = self.added
        for blocks in layout:
            full = max(0, blocks - chunks)
            edges = blocks - full
            forward = full * fw["base"] + edges * fw["edge"]
            backward = full * bw["base"] + edges * bw["edge"] + stalled
            # A chunk without blocks is sent on.
            forward += (chunks - edges) * max(0, self.fw0["edge"] - self.fw0["base"])
            backward += (chunks - edges) * max(0, self.bw0["edge"] - self.bw0["base"])
            backward += blocks * added
            # Who waits for offload traffic has time for gradients of weights.
            idle = full * self.bw_excess["base"] + edges * self.bw_excess["edge"]
            stages.append(StagePasses(forward, backward, blocks * wgrad + idle))
        if self.embedding_head is not None:
            for stage, end in ((stages[0], 0), (stages[-1], 1)):
                stage.forward += self.embedding_head.seconds("fw", comm=True)[end]
                stage.backward += self.embedding_head.seconds("agrad", "wgrad", comm=True)[end]
                stage.weight += self.embedding_head.seconds("wgrad")[end]
                stage.backward += of_ends[end]
        return stages

    def _add_up(self) -> None:
        """Read the sums of gradients so far: seconds per microbatch of a block and of both ends.

        The first microbatch has nothing to add to.
        """
        run, ends = self.run, self.embedding_head
        self.added = [0.0, 0.0, 0.0]
        stated = run.rules.optimizer_fields and self.execution.grad_dtype != "auto"
        sums = self.execution.grad_sums or not self.execution.grad_fusion
        if not stated or (run.microbatches == 1 and not sums):
            return
        moved = self._added_to
        self.added[0] = run.system.move(self.block.weight_grad * moved)
        if ends is not None:
            gradients = ends.first.weight_grad, ends.last.weight_grad
            self.added[1:] = [run.system.move(size * moved) for size in gradients]

    @property
    def _added_to(self) -> float:
        """Bytes that move, over those of gradients that wait: of 2 and 4 bytes 10 of 6; whole ones in a group.

        In a pass of its own two are read and one is written.
        """
        ex = self.execution
        whole = (ex.dp_shard or ex.data_par) if ex.grad_group > 1 else 1
        if ex.grad_sums:
            return 10 / 6 * whole
        return (1 if ex.grad_fusion else 3) * whole

    def _longest_chunks(self, layout: list[int]) -> float | None:
        """Seconds of a microbatch that waits in each chunk for the stage that takes longest there."""
        if self.execution.pipeline_interleaving == 1:
            return None
        ends = (0.0, 0.0) if self.embedding_head is None else self.embedding_head.whole
        block = self.fw["base"] + self.bw["base"] + self.added[0]
        sent = self.fw["edge"] + self.bw["edge"] - self.fw["base"] - self.bw["base"]
        dealt = chunks_of_stages(layout, self.execution)
        times = [[blocks * block + sent for blocks in stage] for stage in dealt]
        times[0][0] += ends[0] + self.added[1]
        times[-1][-1] += ends[1] + self.added[2]
        return sum(max(stage[chunk] for stage in times) for chunk in range(len(times[0])))

    def _at_ends(self, embedding: float, head: float) -> float:
        """Return a quantity of the end of the slowest stage, if it has one."""
        return embedding * self.at_embedding + head * self.at_head

    def _batch_sum(self, per_block: Mapping[Kind, float]) -> float:
        """Sum over all chunks of the slowest processor and all microbatches."""
        chunks, edges = self.run.microbatches * self.execution.pipeline_interleaving, 1.0
        if self.run.layout is not None:
            edges = min(1.0, self.busy_chunk)  # none where a chunk has no block
        return chunks * ((self.busy_chunk - edges) * per_block["base"] + edges * per_block["edge"])

    def _compute(self) -> None:
        """Arithmetic and TP communication."""
        block, run, embedding_head, m = (
            self.block,
            self.run,
            self.embedding_head,
            self.run.microbatches,
        )
        passes, ex = self.busy_blocks * m, self.execution
        self.fw_time = passes * block.fw.time
        self.bw_time = passes * block.agrad.time + passes * block.wgrad.time
        self.optim_step_time = run.blocks * block.optim.time
        self.recompute_time = passes * block.re.time
        total = self._batch_sum
        self.tp_comm_link_time = total(block.fw_tp.time) + total(block.agrad_tp.time)
        self.tp_comm_exposed_time = total(block.fw_tp.exposed) + total(block.agrad_tp.exposed)
        self.recomm_link_time = total(block.recomm.time)
        self.recomm_exposed_time = total(block.recomm.exposed)
        self.fw_offload_exposed_time = total(self.fw_excess)
        self.bw_offload_exposed_time = total(self.bw_excess) if ex.training else 0
        if ex.optimizer_offload and run.rules.optimizer_offload:
            moved = block.optimizer + block.weight_grad
            state = max(run.system.mem2.time(moved), run.system.node_time(moved, ex.num_procs))
            self.bw_offload_exposed_time += run.blocks * state
        self.copy_time = passes * self.copies[0] + m * self._at_ends(*self.copies[1:])
        moved = self._added_to
        read_again = self.busy_blocks * run.system.move(block.weight_grad * moved)
        if embedding_head is not None:
            self.fw_time += m * self._at_ends(*embedding_head.seconds("fw"))
            self.bw_time += m * self._at_ends(*embedding_head.seconds("agrad", "wgrad"))
            link = m * self._at_ends(*embedding_head.link)
            self.tp_comm_link_time += link
            self.tp_comm_exposed_time += link
            first, last, both = (
                x.step_time
                for x in (embedding_head.first, embedding_head.last, embedding_head.both)
            )
            self.optim_step_time += max(first, last) if self.piped else both
            if run.layout is not None and self.piped:
                steps = [blocks * block.optim.time for blocks in run.layout]
                steps[0] += first
                steps[-1] += last
                self.optim_step_time = max(steps)
            gradients = (
                run.system.move(embedding_head.first.weight_grad * moved),
                run.system.move(embedding_head.last.weight_grad * moved),
            )
            read_again += self._at_ends(*gradients)
        if run.rules.optimizer_fields and ex.grad_dtype != "auto":
            apart = ex.grad_sums or not ex.grad_fusion
            self.bw_time += (m if apart else m - 1) * read_again  # the first has none yet

    def _replicas(self) -> None:
        """Data parallelism, published or in a natural form."""
        run, block, embedding_head = self.run, self.block, self.embedding_head
        ex, bw = self.execution, dict(self.bw)
        if ex.p2p_overlap:  # in the drain, of which the window is, transfers are waited for
            bw["edge"] += max(0, self.bw_sent - self.bw_excess["edge"])
        windows = self._windows()
        for number, stage in enumerate(run.stages()):
            there = copy(block)
            there.run = stage
            found = DataParallel(there, bw, self.bw_sent, embedding_head)
            if ex.zero_stage != "auto" and ex.data_par > 1 and ex.training:
                natural = Replicas(there, embedding_head, windows)
                found.link_time, found.exposed_time = natural.link_time, natural.exposed_time
                found.stalled = natural.stalled
            if number == 0:
                self.dp = found
            else:
                self.dp.at_least(found)

    def _windows(self) -> Windows:
        """Return the passes of a base block, less what else is on the network of the replicas."""
        run, block, embedding_head = self.run, self.block, self.embedding_head
        forward, backward = self.fw["base"], self.bw["base"]
        if run.dp_on_tp:
            forward -= block.fw_tp.time["base"]
            backward -= block.recomm.time["base"] + block.agrad_tp.time["base"]
        head = 0.0 if embedding_head is None else embedding_head.seconds("agrad", "wgrad")[1]
        return Windows(max(0, forward), max(0, backward), head)

    def _bubble(self) -> None:
        """Idle time of the pipeline, and transfers that stages wait for."""
        run, fw, bw, ex = self.run, self.fw, self.bw, self.execution
        p, chunks, m = ex.pipeline_par, ex.pipeline_interleaving, run.microbatches
        if run.layout is not None:
            stages = self._passes(run.layout, self.dp.stalled)
            longest = self._longest_chunks(run.layout)
            if longest is not None:
                longest = max(longest + self.dp.stalled, *(stage.both for stage in stages))
            stalled = self.dp.stalled
            self.bubble_time = idle_time(ex.pp_schedule, stages, m, chunks, longest, stalled)
        else:
            chunk = run.chunk_sum(fw) + run.chunk_sum(bw) + self.dp.stalled / chunks
            chunk += run.chunk_blocks * self.added[0]
            block = fw["edge"] + bw["edge"]
            if run.base_blocks > 0:
                block = (fw["base"] + fw["edge"] + bw["base"] + bw["edge"]) / 2
            block += self.added[0]
            extra = (chunks - 1) * (p - m % p) if m % p else 0
            empty = chunk - self.dp.stalled / chunks
            self.bubble_time = (p - 1) * chunk + extra * empty - run.missing_blocks * block
            if self.embedding_head is not None and self.piped:
                embedding, head = self.embedding_head.whole
                self.bubble_time += embedding if self.at_head else head
                self.bubble_time += self.added[1] if self.at_head else self.added[2]
        self.pp_exposed_time = self.pp_link_time
        if ex.p2p_overlap:
            # What a block waits for offload traffic is time for its transfer.
            left = max(0, self.fw_sent - self.fw_excess["edge"])
            if ex.training:
                left += max(0, self.bw_sent - self.bw_excess["edge"])
            # Beside other passes, but for one trip of a microbatch through all chunks.
            waits = (p * chunks - 1) * left
            if chunks > 1:  # a pass of a chunk hides a transfer that is no longer
                shortest = min(run.chunk_sum(fw), run.chunk_sum(bw))
                waits += max(0, self.pp_traffic - 2 * m * chunks * shortest)
            self.pp_exposed_time = min(self.transfers * left, waits) + self.pp_shared

    def _memory(self) -> None:
        memory, self.tier2 = fullest_stage(self.block, self.embedding_head)
        self.memory, self.tier1 = memory, memory.tier1
        system = self.run.system
        tier1, tier2 = self.tier1, self.tier2
        require_fit(21, tier1 <= system.usable1, f"tier 1 would hold {tier1} bytes")
        require_fit(22, tier2 <= system.usable2, f"tier 2 would hold {tier2} bytes")

    def _offload_requirements(self) -> None:
        """Bandwidths that hide the traffic behind the time in which tier 1 is idle."""
        block = self.block
        fw = min(self.fw0.values()) - block.fw.mem_time
        busy = block.agrad.mem_time + block.wgrad.mem_time
        busy += block.re.mem_time if self.run.rules.offload_window else 0
        bw = min(self.bw0.values()) - busy
        if self.run.rules.offload_window:
            fw, bw = max(0, fw), max(0, bw)  # it is never negative but for rounding
        self.act_offload_bw_req = per(self.block_activation, fw)
        self.weight_offload_bw_req = per(block.weight, fw)
        forward, backward = per(self.fw_offload, fw), per(self.bw_offload, bw)
        self.optim_offload_bw_req: float | None = 0.0
        self.offload_mem_bw_req = forward
        if self.execution.training:
            self.optim_offload_bw_req = per(block.weight_grad + block.optimizer, bw)
            if forward is None or backward is None:
                self.offload_mem_bw_req = None
            else:
                self.offload_mem_bw_req = max(forward, backward)

    def _totals(self) -> None:
        block, run, ex = self.block, self.run, self.execution
        busy = self.fw_time + self.bw_time + self.optim_step_time
        self.total_time = busy + self.recompute_time + self.bubble_time
        self.total_time += self.fw_offload_exposed_time + self.bw_offload_exposed_time
        self.total_time += self.tp_comm_exposed_time + self.recomm_exposed_time
        self.total_time += self.pp_exposed_time + self.dp.exposed_time + run.host
        # [O12] Arithmetic of forks, dropout and reductions counts as useful, and the optimizer
        # step counts once per microbatch.
        step = block.optim.flops
        if run.rules.useful_flops:
            step /= run.microbatches
        self.useful_flops = block.fw.flops + block.agrad.flops + block.wgrad.flops + step
        blocks = run.blocks if run.layout is None else run.model.num_blocks / ex.pipeline_par
        useful = blocks * self.useful_flops
        if self.embedding_head is not None:
            for end in (self.embedding_head.embedding, self.embedding_head.head):
                useful += (end.fw.flops + end.agrad.flops + end.wgrad.flops) / ex.pipeline_par
        self.peak = run.system.multiply[run.multiply_type].peak
        perfect = run.microbatches * useful / self.peak
        self.compute_efficiency = perfect / busy
        self.system_efficiency = busy / self.total_time
        self.total_efficiency = perfect / self.total_time
        self.sample_rate = ex.batch_size / self.total_time
