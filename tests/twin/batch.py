"""What one processor takes for one global batch."""

from collections.abc import Mapping
from copy import copy

from .block import Block, block_of_model
from .copies import add_conversions, add_copies
from .data_parallel import DataParallel, per, synced_block, synced_embedding_head
from .errors import require_fit
from .expert_overlap import pairs
from .memory import fullest_stage
from .memory_error import allowed
from .model_embedding_head import EmbeddingHead
from .pipelines import SIMULATED, Interleaved
from .replicas import Replicas, Windows
from .run import KINDS, Kind, Run, Team
from .stages import (
    StagePasses,
    chunks_differ,
    chunks_of_stages,
    idle_time,
    numbers_of_stages,
    slowest_stage,
)

ByKind = dict[Kind, float]


class Batch:
    """Times in seconds, sizes in bytes; most attributes are the statistics of that name."""

    sends_more = 0.0  # messages of modules, over those of a block

    def __init__(self, block: Block) -> None:
        self.block, self.run, self.execution = block, block.run, block.run.execution
        self.piped = self.execution.pipeline_par > 1
        self.embedding_head = EmbeddingHead(self.run) if self.run.model.vocab else None
        add_conversions(self.run, block, self.embedding_head)
        self.copies = add_copies(self.run, block, self.embedding_head)
        self._pipeline_transfers()
        self._offload()
        self._add_up()
        mean, self.mean_block = copy(self), block
        self._blocks_of_stages()
        if self.run.mirrored:
            self._add_mirrored_gradients()
        self._replicas()
        self._stages()
        self._compute()
        self._bubble()
        self._memory()
        for name in ("block", "block_activation", "fw0", "bw0", "fw_offload", "bw_offload"):
            setattr(self, name, getattr(mean, name))  # figures of a block are those of the mean
        self._offload_requirements()
        self._totals()

    def _blocks_of_stages(self) -> None:
        """Give every stage a block that costs what its own blocks cost on average."""
        layout = self.run.layout or [self.run.blocks]
        self.parts: list[Batch] = [self] * len(layout)
        self.of_kind: dict[object, Batch] = {}
        kinds = self.run.kinds()
        if self.run.layout is None or len(set(kinds)) == 1:
            return
        self.parts = []
        whole = copy(self)
        self.parts = [whole._with(n) for n in numbers_of_stages(layout, self.execution)]
        self.of_kind = {kind: whole._with([kinds.index(kind)], 1) for kind in set(kinds)}

    def _with(self, numbers: list[int], chunks: int | None = None) -> "Batch":
        """Return a stage of these blocks; modules send their hidden states with those of the model, once."""
        part, ends = copy(self), self.embedding_head
        module = None if ends is None else ends.module
        part.block = block_of_model(self.run, numbers, module) if numbers else self.block
        if any(number >= self.run.model.num_blocks for number in numbers):
            part.sends_more = self.run.modules / (self.run.chunks if chunks is None else chunks)
        if numbers:
            add_conversions(self.run, part.block, None)
            copies = add_copies(self.run, part.block, None)
            part.copies = (copies[0], *self.copies[1:])
        part._pipeline_transfers()
        part._offload()
        part._add_up()
        return part

    def _pipeline_transfers(self) -> None:
        ex, run, pp = self.execution, self.run, self.run.pp_network
        elements: float = run.split_activation
        if ex.tensor_par_comm_type == "ar":
            elements = run.activation
        elements *= 1 + self.sends_more
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
        self.transfers = run.microbatches * run.chunks if self.piped else 0
        self.pp_traffic = self.transfers * time
        # Two copies of a table exchange their gradient.
        self.pp_shared = 0.0
        shared = run.model.tied or run.model.mtp_layers
        if self.embedding_head is not None and shared and run.ends_apart and ex.training:
            stages = 3 if run.model.tied and run.modules else 2
            self.pp_shared = pp.time("all_reduce", self.embedding_head.table_gradient, stages)
        self.pp_link_time = self.pp_traffic + self.pp_shared
        self.fw_sent, self.bw_sent = self.fw_pp_time, self.bw_pp_time
        if ex.p2p_overlap:
            self.fw_pp_time = self.bw_pp_time = 0

    def _add_mirrored_gradients(self) -> None:
        """Add gradients up over two ranks with the same parts: each its share of those of its replicas."""
        run, ex, layout = self.run, self.execution, self.run.layout
        assert layout is not None
        shards = (ex.dp_shard or run.data_ranks) if ex.optimizer_sharding else 1
        most = 0.0
        for place, (blocks, part) in enumerate(zip(layout, self.parts, strict=True)):
            dense, experts = synced_block(part.block)
            of_experts = run.expert_shards(shards) if shards > 1 else 1
            message = blocks * (dense.gradient / shards + experts.gradient / of_experts)
            if place == 0:
                first, last = synced_embedding_head(run, self.embedding_head)
                message += (first.gradient + last.gradient) / shards
            most = max(most, message)
        time = run.pp_network.time("all_reduce", most, 2)
        self.pp_shared += time
        self.pp_link_time += time

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
        for kind, (forward, back, repeated) in block.ep_exposed.items():
            self.fw0[kind] += forward + block.cp_exposed[0]
            self.bw0[kind] += back + repeated + block.cp_exposed[1] + block.cp_exposed[2]
        self.fw0["edge"] += self.fw_pp_time
        self.bw0["edge"] += self.bw_pp_time

        self.fw_excess: ByKind = {k: max(0, fw_traffic - self.fw0[k]) for k in KINDS}
        self.bw_excess: ByKind = {k: max(0, bw_traffic - self.bw0[k]) for k in KINDS}
        self.fw: ByKind = {k: self.fw0[k] + self.fw_excess[k] for k in KINDS}
        self.bw: ByKind = {k: self.bw0[k] + self.bw_excess[k] for k in KINDS}

    def _stages(self) -> None:
        """What is different in each stage, where they are told apart."""
        run = self.run
        self.busy_blocks, self.busy_chunk = run.blocks, float(run.chunk_blocks)
        self.busy_pairs = pairs(run)
        self.at_embedding = self.at_head = True  # whether the slowest stage has that end
        if self.embedding_head is not None and run.ends_apart:
            embedding, head = self.embedding_head.whole
            embedding, head = embedding + self.added[1], head + self.added[2]
            self.at_embedding, self.at_head = embedding > head, embedding <= head
        if run.layout is None:
            return
        passes = self._passes(run.layout)
        slowest = slowest_stage(passes)
        if run.folded and passes[0].busy == passes[slowest].busy:
            slowest = 0
        self.busy_blocks, self.busy_pairs = run.layout[slowest], pairs(run, slowest)
        self.busy_chunk = run.layout[slowest] / run.chunks
        self.at_embedding, self.at_head = slowest == 0, slowest == len(run.layout) - 1
        self._stall(slowest)
        if run.folded:
            self.at_head = self.at_embedding
        if self.parts[slowest] is not self:
            names = ("block", "copies", "added", "fw0", "bw0", "fw", "bw")
            for name in (*names, "fw_excess", "bw_excess"):
                setattr(self, name, getattr(self.parts[slowest], name))
            if run.modules:  # whose stage sends more
                for name in ("pp_traffic", "pp_link_time", "fw_sent", "bw_sent"):
                    setattr(self, name, getattr(self.parts[slowest], name))

    def _stall(self, slowest: int) -> None:
        """Count what the slowest stage waits for with each microbatch, and the most that any waits for once."""
        m = self.run.microbatches
        once = max(stage.exposed_time - m * stage.stalled for stage in self.dp_of_stages)
        self.dp.stalled = self.dp_of_stages[slowest].stalled
        self.dp.exposed_time = m * self.dp.stalled + once

    def _passes(self, layout: list[int]) -> list[StagePasses]:
        """Return the passes of each stage, stalls included."""
        stages, chunks = [], self.run.chunks
        of_ends = self.added[1:]
        for place, (blocks, part) in enumerate(zip(layout, self.parts, strict=True)):
            fw, bw, wgrad = part.fw, part.bw, part.block.wgrad.time
            full = max(0, blocks - chunks)
            edges = blocks - full
            forward = full * fw["base"] + edges * fw["edge"]
            stalled = self.dp_of_stages[place].stalled
            backward = full * bw["base"] + edges * bw["edge"] + stalled
            # A chunk without blocks is sent on.
            forward += (chunks - edges) * max(0, part.fw0["edge"] - part.fw0["base"])
            backward += (chunks - edges) * max(0, part.bw0["edge"] - part.bw0["base"])
            backward += blocks * part.added[0]
            # Who waits for offload traffic has time for gradients of weights.
            idle = full * part.bw_excess["base"] + edges * part.bw_excess["edge"]
            saved = pairs(self.run, place) / self.run.microbatches * blocks * part.block.paired
            weight = blocks * wgrad + idle
            stages.append(StagePasses(forward, backward, weight, saved, stalled))
        if self.embedding_head is not None:
            for stage, end in ((stages[0], 0), (stages[0 if self.run.folded else -1], 1)):
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
        self.added[0] = run.system.move(self._read_again) * self._halves
        if ends is not None:
            gradients = ends.first.weight_grad, ends.last.weight_grad
            self.added[1:] = [run.system.move(size * moved) for size in gradients]

    @property
    def _halves(self) -> int:
        """In how many parts a microbatch passes the blocks."""
        return 2 if self.execution.ep_overlap == "two_batch" else 1

    @property
    def _read_again(self) -> float:
        """Bytes that move where gradients of a block are added up; of a group, experts are whole in parts of theirs."""
        ex, run, block = self.execution, self.run, self.block
        moved = block.weight_grad * self._added_to
        if ex.grad_group > 1 and run.experts_apart:
            replicas = ex.dp_shard or run.data_ranks
            fewer = (run.expert_shards(replicas) - replicas) / replicas
            moved += block.experts.weight_grad * self._added_to * fewer
        return moved

    @property
    def _added_to(self) -> float:
        """Bytes that move, over those of gradients that wait: of 2 and 4 bytes 10 of 6; whole ones in a group.

        In a pass of its own two are read and one is written.
        """
        ex = self.execution
        whole = (ex.dp_shard or self.run.data_ranks) if ex.grad_group > 1 else 1
        if ex.grad_sums:
            return 10 / 6 * whole
        return (1 if ex.grad_fusion else 3) * whole

    def _longest_on_average(self, layout: list[int], stages: list[StagePasses]) -> float:
        """Seconds of a microbatch that waits in each chunk for the slowest stage; many go in pairs."""
        each = self.block.paired
        alone, paired = self._longest_chunks(layout), self._longest_chunks(layout, each)
        assert alone is not None
        assert paired is not None
        most = max(stage.stalled for stage in stages)
        longest = max(alone + most, *(stage.both for stage in stages))
        of_pairs = [
            stage.both - blocks * each for stage, blocks in zip(stages, layout, strict=True)
        ]
        # Nothing is stalled where some go in pairs.
        share = pairs(self.run) / self.run.microbatches
        return longest - share * (longest - max(paired, *of_pairs)) if share else longest

    def _longest_chunks(self, layout: list[int], less: float = 0) -> float | None:
        """Seconds of a microbatch that waits in each chunk for the stage that takes longest there."""
        if self.execution.pipeline_interleaving == 1:
            return None
        ends = (0.0, 0.0) if self.embedding_head is None else self.embedding_head.whole
        block = self.fw["base"] + self.bw["base"] + self.added[0] - less
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
        chunks, edges = self.run.microbatches * self.run.chunks, 1.0
        if self.run.layout is not None:
            edges = min(1.0, self.busy_chunk)  # none where a chunk has no block
        return chunks * ((self.busy_chunk - edges) * per_block["base"] + edges * per_block["edge"])

    def _exchange(self) -> None:
        """Collectives over groups of experts; those of modules in the head run by themselves."""
        block, m = self.block, self.run.microbatches
        exposed: ByKind = {kind: sum(block.ep_exposed[kind]) for kind in KINDS}
        modules = self._of_modules("ep")
        self.ep_time = self.busy_blocks * m * sum(block.ep) + modules
        sent = [0.0, 0.0] if self.embedding_head is None else self.embedding_head.head.ep_bytes
        self.ep_bytes = [
            self.busy_blocks * m * each + m * self._at_ends(0, of_modules)
            for each, of_modules in zip(block.ep_bytes, sent, strict=True)
        ]
        paired = self.busy_pairs * self.busy_blocks * block.paired
        self.ep_exposed_time = self._batch_sum(exposed) - paired + modules
        self.cp_time = self.busy_blocks * m * sum(block.cp) + self._of_modules("cp")
        modules = self._of_modules("cp_exposed")
        self.cp_exposed_time = self.busy_blocks * m * sum(block.cp_exposed) + modules

    def _of_modules(self, name: str) -> float:
        """Seconds of collectives of modules in the head, in all microbatches."""
        times = [0.0] if self.embedding_head is None else getattr(self.embedding_head.head, name)
        return self.run.microbatches * self._at_ends(0, sum(times))

    def _add_latents(self) -> None:
        """Add the sums of gradients of weights that all TP ranks have, after the last microbatch."""
        run, block = self.run, self.block
        if not block.whole_gradients:
            return
        final = run.blocks if run.layout is None else run.layout[0 if run.folded else -1]
        with_head = 0 if run.modules else run.model.mtp_layers
        time = run.tp_team.time("all_reduce", block.whole_gradients)
        summed = max(run.blocks, final + with_head) * time
        self.tp_comm_link_time += summed
        self.tp_comm_exposed_time += summed

    def _compute(self) -> None:
        """Arithmetic and TP communication."""
        block, run, embedding_head = self.block, self.run, self.embedding_head
        m, ex, passes = run.microbatches, self.execution, self.busy_blocks * run.microbatches
        self.fw_time = passes * block.fw.time
        self.bw_time = passes * block.agrad.time + passes * block.wgrad.time
        layout = run.layout or [run.blocks]
        steps = [n * part.block.optim.time for n, part in zip(layout, self.parts, strict=True)]
        self.optim_step_time, self.recompute_time = max(steps), passes * block.re.time
        total = self._batch_sum
        self.tp_comm_link_time = total(block.fw_tp.time) + total(block.agrad_tp.time)
        self.tp_comm_exposed_time = total(block.fw_tp.exposed) + total(block.agrad_tp.exposed)
        self._add_latents()
        self._exchange()
        self.recomm_link_time = total(block.recomm.time)
        self.recomm_exposed_time: float = total(block.recomm.exposed)
        self.fw_offload_exposed_time = total(self.fw_excess)
        self.bw_offload_exposed_time = total(self.bw_excess) if ex.training else 0
        if ex.optimizer_offload and run.rules.optimizer_offload:
            states = []
            for blocks, part in zip(layout, self.parts, strict=True):
                moved = part.block.optimizer + part.block.weight_grad
                state = max(run.system.mem2.time(moved), run.system.node_time(moved, ex.num_procs))
                states.append(blocks * state)
            self.bw_offload_exposed_time += max(states)
        self.copy_time = passes * self.copies[0] + m * self._at_ends(*self.copies[1:])
        moved = self._added_to
        read_again = self.busy_blocks * run.system.move(self._read_again) * self._halves
        if embedding_head is not None:
            self.fw_time += m * self._at_ends(*embedding_head.seconds("fw"))
            self.bw_time += m * self._at_ends(*embedding_head.seconds("agrad", "wgrad"))
            self.tp_comm_link_time += m * self._at_ends(*embedding_head.link)
            self.tp_comm_exposed_time += m * self._at_ends(*embedding_head.exposed)
            head = embedding_head.head  # whose modules are computed again as blocks are
            self.recompute_time += m * self._at_ends(0, head.re.time)
            self.recomm_link_time += m * self._at_ends(0, head.recomm.time["base"])
            self.recomm_exposed_time += m * self._at_ends(0, head.recomm.exposed["base"])
            ends = embedding_head.first, embedding_head.last, embedding_head.both
            first, last, both = (end.step_time for end in ends)
            self.optim_step_time += max(first, last) if run.ends_apart else both
            if run.layout is not None and self.piped:
                steps[0] += both if run.folded else first
                steps[-1] += 0 if run.folded else last
                self.optim_step_time = max(steps)
            read_again += self._at_ends(*(run.system.move(x.weight_grad * moved) for x in ends[:2]))
        if run.rules.optimizer_fields and ex.grad_dtype != "auto":
            apart = ex.grad_sums or not ex.grad_fusion
            self.bw_time += (m if apart else m - 1) * read_again  # the first has none yet

    def _replicas(self) -> None:
        """Data parallelism, published or in a natural form."""
        run, embedding_head, ex = self.run, self.embedding_head, self.execution
        several = run.data_ranks > 1 or run.expert_data_par > 1
        self.dp_of_stages: list[DataParallel] = []
        for number, (stage, part) in enumerate(zip(run.stages(), self.parts, strict=True)):
            also = part._with_replicas()[1]
            bw: ByKind = {kind: max(0, part.bw[kind] - also) for kind in KINDS}
            if ex.p2p_overlap:  # in the drain, of which the window is, transfers are waited for
                bw["edge"] += max(0, part.bw_sent - part.bw_excess["edge"])
            there = copy(part.block)
            there.run = stage
            if run.folded:  # gradients of both parts wait for the last microbatch
                there.run = copy(stage)
                there.run.chunk_blocks = stage.blocks
                there.run.edge_blocks = min(1, stage.blocks)
                there.run.base_blocks = stage.blocks - there.run.edge_blocks
            found = DataParallel(there, bw, part.bw_sent, embedding_head)
            there.run = stage
            if ex.zero_stage != "auto" and several and ex.training:
                natural = Replicas(there, embedding_head, part._windows(stage))
                found.link_time, found.exposed_time = natural.link_time, natural.exposed_time
                found.stalled = natural.stalled
            self.dp_of_stages.append(copy(found))
            if number == 0:
                self.dp = found
            else:
                self.dp.at_least(found)
        self.dp.size = DataParallel(self.mean_block, self.bw, self.bw_sent).size

    def _with_replicas(self) -> tuple[float, float]:
        """Return the forward and backward time of exchanges on the network of the replicas, one after another."""
        run, forward, backward = self.run, 0.0, 0.0
        for number, times in ((run.ep_net, self.block.ep), (run.cp_team.number, self.block.cp)):
            if number == run.dp_team.number:
                forward, backward = forward + times[0], backward + times[1] + times[2]
        return forward, backward

    def _windows(self, stage: Run) -> Windows:
        """Return the passes of a base block, less what else is on the network of the replicas.

        Of a chunk the last block waits less for offload traffic, and the mean counts.
        """
        run, block, embedding_head = self.run, self.block, self.embedding_head
        count = max(1, stage.chunk_blocks)
        forward = self.fw["base"] - (self.fw_excess["base"] - self.fw_excess["edge"]) / count
        backward = self.bw["base"] - (self.bw_excess["base"] - self.bw_excess["edge"]) / count
        if run.dp_on_tp:
            forward -= block.fw_tp.time["base"]
            backward -= block.recomm.time["base"] + block.agrad_tp.time["base"]
        also = self._with_replicas()
        forward, backward = forward - also[0], backward - also[1]
        head = 0.0
        if embedding_head is not None:
            head = embedding_head.seconds("agrad", "wgrad")[1] + embedding_head.head.re.time
        return Windows(max(0, forward), max(0, backward), head)

    def _bubble(self) -> None:
        """Idle time of the pipeline, then its transfers."""
        run, fw, bw, ex = self.run, self.fw, self.bw, self.execution
        p, chunks, m = ex.pipeline_par, ex.pipeline_interleaving, run.microbatches
        if ex.pp_schedule in SIMULATED:
            assert run.layout is not None
            stages = self._passes(run.layout)
            time = self._listed_time()
            idle = time - m * max(stage.busy for stage in stages)
            self.bubble_time = idle if idle > 1e-12 * time else 0  # or what rounding leaves
        elif run.layout is not None:
            stages = self._passes(run.layout)
            longest = self._longest_chunks(run.layout)
            if longest is not None:
                longest = self._longest_on_average(run.layout, stages)
            self.bubble_time = idle_time(ex.pp_schedule, stages, m, chunks, longest)
            if chunks_differ(run.layout, ex):
                time = self._interleaved_time(run.layout)
                idle = time - m * max(stage.busy for stage in stages)
                self.bubble_time = idle if idle > 1e-12 * time else 0
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
        self._expose_transfers()

    def _expose_transfers(self) -> None:
        """Transfers that stages wait for."""
        run, fw, bw, ex = self.run, self.fw, self.bw, self.execution
        p, chunks, m = ex.pipeline_par, ex.pipeline_interleaving, run.microbatches
        self.pp_exposed_time = self.pp_link_time
        if ex.p2p_overlap and ex.pp_schedule in SIMULATED:
            time = self._listed_time()
            late = self._listed_time(self.pp_traffic / (2 * self.transfers)) - time
            late = late if late > 1e-12 * time else 0
            self.pp_exposed_time = late + self.pp_shared
        elif ex.p2p_overlap:
            # What a block waits for offload traffic is time for its transfer.
            left = max(0, self.fw_sent - self.fw_excess["edge"])
            if ex.training:
                left += max(0, self.bw_sent - self.bw_excess["edge"])
            # Beside other passes, but for one trip of a microbatch through all chunks.
            waits = (p * chunks - 1) * left
            if chunks > 1:  # a pass of a chunk hides a transfer that is no longer
                shortest = min(run.chunk_sum(fw), run.chunk_sum(bw))
                waits += max(0, self.pp_traffic - 2 * m * chunks * shortest)
            waits = min(self.transfers * left, waits)
            if run.layout is not None and chunks_differ(run.layout, ex):
                # Or all passes wait for them, some while they wait for longer chunks anyway.
                apart = self._interleaved_time(run.layout, apart=True)
                waits = min(waits, apart - self._interleaved_time(run.layout))
            self.pp_exposed_time = waits + self.pp_shared

    def _interleaved_time(self, layout: list[int], *, apart: bool = False) -> float:
        """Execute the passes of chunks that differ, each of its own blocks; one without any is sent on.

        If transfers are `apart`, passes wait for those that could overlap.
        """
        run, ex = self.run, self.execution
        chunks, kinds, seconds, saved = run.chunks, run.kinds(), [], []
        every = zip(
            numbers_of_stages(layout, ex),
            chunks_of_stages(layout, ex),
            self.dp_of_stages,
            strict=True,
        )
        for place, (numbers, own, replicas) in enumerate(every):
            times: dict[str, list[float]] = {"F": [], "B": []}
            saves, begin = [], 0
            for chunk, blocks in enumerate(own):
                parts = [self.of_kind.get(kinds[n], self) for n in numbers[begin : begin + blocks]]
                begin += blocks
                forward, backward = self._passes_of_chunk(parts, apart=apart)
                backward += replicas.stalled / chunks
                for end, there in enumerate(((0, 0), (len(layout) - 1, chunks - 1))):
                    if self.embedding_head is not None and (place, chunk) == there:
                        forward += self.embedding_head.seconds("fw", comm=True)[end]
                        backward += self.embedding_head.seconds("agrad", "wgrad", comm=True)[end]
                        backward += self.added[1 + end]
                times["F"].append(forward)
                times["B"].append(backward)
                saves.append(sum(part.block.paired for part in parts))
            seconds.append(times)
            saved.append(saves)
        pairs = ex.ep_overlap == "1f1b"
        lists = Interleaved(ex.pipeline_par, chunks, run.microbatches, int(pairs))
        return lists.time(seconds, saved if pairs else None, training=ex.training)

    def _passes_of_chunk(self, parts: "list[Batch]", *, apart: bool) -> tuple[float, float]:
        """Return the seconds of a chunk with blocks of these kinds; the last is an edge block, on average of all."""
        if not parts:  # the transfer after a block of the first kind
            first = self.of_kind.get(self.run.model.kinds()[0], self)
            sent = [max(0, by["edge"] - by["base"]) for by in (first.fw0, first.bw0)]
            return sent[0] + apart * first.fw_sent, sent[1] + apart * first.bw_sent
        forward = sum(part.fw["base"] for part in parts)
        backward = sum(part.bw["base"] + part.added[0] for part in parts)
        senders = [part for part in parts if part.sends_more] or parts
        for part in senders:  # transfers go on while a block waits for offload traffic
            fw_waits = max(part.fw_excess["edge"], apart * part.fw_sent)
            bw_waits = max(part.bw_excess["edge"], apart * part.bw_sent)
            forward += (part.fw0["edge"] + fw_waits - part.fw["base"]) / len(senders)
            backward += (part.bw0["edge"] + bw_waits - part.bw["base"]) / len(senders)
        return forward, backward

    def _listed_time(self, delay: float = 0) -> float:
        """Execute what the ranks have on their lists; each transfer takes so long beside it."""
        run, lists = self.run, self.run.lists
        assert run.layout is not None
        dealt, seconds, saved = chunks_of_stages(run.layout, self.execution), [], []
        for place, (own, part) in enumerate(zip(dealt, self.parts, strict=True)):
            times: dict[str, list[float]] = {"F": [], "B": [], "W": []}
            sent = [max(0, by["edge"] - by["base"]) for by in (part.fw0, part.bw0)]
            for way, blocks in enumerate(own):
                forward, backward = sent
                weight = blocks * part.block.wgrad.time
                if blocks:
                    forward = (blocks - 1) * part.fw["base"] + part.fw["edge"]
                    backward = (blocks - 1) * part.bw["base"] + part.bw["edge"]
                    weight += (blocks - 1) * part.bw_excess["base"] + part.bw_excess["edge"]
                stalled = self.dp_of_stages[place].stalled
                backward += blocks * part.added[0] + stalled / len(own)
                ends = []
                if self.embedding_head is not None:
                    last = len(dealt) - 1
                    ends = [0] * (place == 0 and way == 0)
                    ends += [1] * (place == (0 if run.folded else last) and way == len(own) - 1)
                for end in ends:
                    assert self.embedding_head is not None
                    forward += self.embedding_head.seconds("fw", comm=True)[end]
                    backward += self.embedding_head.seconds("agrad", "wgrad", comm=True)[end]
                    backward += self.added[1 + end]
                    weight += self.embedding_head.seconds("wgrad")[end]
                for kind, time in zip("FBW", (forward, backward, weight), strict=True):
                    times[kind].append(time)
            seconds.append(times)
            saved.append(sum(own) / 2 * part.block.paired if pairs(run, place) else 0)
        if run.mirrored:  # the other half of the ranks has the parts in the other order
            seconds += [{k: v[::-1] for k, v in one.items()} for one in reversed(seconds)]
            saved += reversed(saved)
        return lists.time(seconds, saved, delay)

    def _memory(self) -> None:
        blocks = [part.block for part in self.parts]
        memory, self.tier2 = fullest_stage(self.run, blocks, self.embedding_head)
        self.memory, self.tier1 = memory, memory.tier1
        system = self.run.system
        tier1, tier2 = self.tier1, self.tier2
        limit = system.usable1
        if self.run.rules.memory_error:
            execution = self.run.execution
            experts = self.run.model.mixes
            limit *= allowed(execution.preset, execution.zero_stage, experts)
        require_fit(21, tier1 <= limit, f"tier 1 would hold {tier1} bytes")
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
        self.total_time += self.ep_exposed_time + self.cp_exposed_time
        # [O12] Arithmetic of forks, dropout and reductions counts as useful, and the optimizer
        # step counts once per microbatch.
        step = block.optim.flops
        if run.rules.useful_flops:
            step /= run.microbatches
        self.useful_flops = block.fw.flops + block.agrad.flops + block.wgrad.flops + step
        blocks = run.blocks if run.layout is None else run.model.num_blocks / run.ranks
        useful = blocks * self.useful_flops
        if self.embedding_head is not None:
            for end in (self.embedding_head.embedding, self.embedding_head.head):
                useful += (end.fw.flops + end.agrad.flops + end.wgrad.flops) / run.ranks
            if (module := self.embedding_head.module) is not None:
                flops = module.fw.flops + module.agrad.flops + module.wgrad.flops
                useful += run.modules * flops / run.ranks
        self.peak = run.system.multiply[run.multiply_type].peak
        perfect = run.microbatches * useful / self.peak
        self.compute_efficiency = perfect / busy
        self.system_efficiency = busy / self.total_time
        self.total_efficiency = perfect / self.total_time
        self.sample_rate = ex.batch_size / self.total_time
