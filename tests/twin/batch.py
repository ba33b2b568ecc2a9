"""What one processor of the first pipeline stage takes for one global batch."""

from __future__ import annotations

from .block import Block
from .data_parallel import DataParallel, per
from .errors import require_fit
from .run import KINDS, Kind

ByKind = dict[Kind, float]


class Batch:
    """Times in seconds, sizes in bytes; most attributes are the statistics of that name."""

    def __init__(self, block: Block) -> None:
        self.block, self.run, self.execution = block, block.run, block.run.execution
        self._compute()
        self._pipeline_transfers()
        self._offload()
        self._bubble()
        self.dp = DataParallel(block, self.bw, self.bw_pp_time)
        self._memory()
        self._tiers()
        self._offload_requirements()
        self._totals()

    def _compute(self) -> None:
        """Arithmetic and TP communication."""
        block, run = self.block, self.run
        passes, mem1 = run.blocks * run.microbatches, run.system.mem1
        self.fw_time = passes * block.fw.time
        self.bw_time = passes * block.agrad.time + passes * block.wgrad.time
        if run.step.stated:  # the sums so far are read by all microbatches but the first
            self.bw_time += (run.microbatches - 1) * run.blocks * mem1.time(block.weight_grad)
        self.optim_step_time = run.blocks * block.optim.time
        self.recompute_time = passes * block.re.time
        total = run.batch_sum
        self.tp_comm_link_time = total(block.fw_tp.time) + total(block.agrad_tp.time)
        self.tp_comm_exposed_time = total(block.fw_tp.exposed) + total(block.agrad_tp.exposed)
        self.recomm_link_time = total(block.recomm.time)
        self.recomm_exposed_time = total(block.recomm.exposed)

    def _pipeline_transfers(self) -> None:
        ex, run = self.execution, self.run
        elements = run.activation if ex.tensor_par_comm_type == "ar" else run.split_activation
        self.fw_pp_size = run.element_bytes * elements if ex.pipeline_par > 1 else 0
        self.bw_pp_size = self.fw_pp_size if ex.training else 0
        # [O8] Without a pipeline, and backward in inference, the latency remains.
        self.fw_pp_time = run.pp_network.time("p2p", self.fw_pp_size, 2)
        self.bw_pp_time = run.pp_network.time("p2p", self.bw_pp_size, 2)
        if run.rules.empty_transfers:
            self.fw_pp_time = self.fw_pp_time if self.fw_pp_size else 0
            self.bw_pp_time = self.bw_pp_time if self.bw_pp_size else 0
        time = self.fw_pp_time + (self.bw_pp_time if ex.training else 0)
        transfers = run.microbatches * ex.pipeline_interleaving if ex.pipeline_par > 1 else 0
        self.pp_comm_time = transfers * time

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
        fw_traffic = run.system.mem2.time(self.fw_offload) + block.fw.mem_time
        bw_traffic = run.system.mem2.time(self.bw_offload) if ex.training else 0
        bw_traffic = bw_traffic + block.agrad.mem_time + block.wgrad.mem_time
        bw_traffic += block.re.mem_time if run.rules.offload_window else 0

        self.fw0: ByKind = {k: block.fw.time + block.fw_tp.exposed[k] for k in KINDS}
        again: ByKind = {k: block.re.time + block.recomm.exposed[k] for k in KINDS}
        gradients = block.agrad.time + block.wgrad.time
        self.bw0: ByKind = {k: again[k] + gradients + block.agrad_tp.exposed[k] for k in KINDS}
        self.fw0["edge"] += self.fw_pp_time
        self.bw0["edge"] += self.bw_pp_time

        fw_excess: ByKind = {k: max(0, fw_traffic - self.fw0[k]) for k in KINDS}
        bw_excess: ByKind = {k: max(0, bw_traffic - self.bw0[k]) for k in KINDS}
        self.fw: ByKind = {k: self.fw0[k] + fw_excess[k] for k in KINDS}
        self.bw: ByKind = {k: self.bw0[k] + bw_excess[k] for k in KINDS}
        self.fw_offload_exposed_time = run.batch_sum(fw_excess)
        self.bw_offload_exposed_time = run.batch_sum(bw_excess) if ex.training else 0
        if ex.optimizer_offload and run.rules.optimizer_offload:
            state = run.system.mem2.time(block.optimizer + block.weight_grad)
            self.bw_offload_exposed_time += run.blocks * state

    def _bubble(self) -> None:
        """Idle time of the pipeline."""
        run, fw, bw = self.run, self.fw, self.bw
        p, chunks = self.execution.pipeline_par, self.execution.pipeline_interleaving
        chunk = run.chunk_sum(fw) + run.chunk_sum(bw)
        block = fw["edge"] + bw["edge"]
        if run.base_blocks > 0:
            block = (fw["base"] + fw["edge"] + bw["base"] + bw["edge"]) / 2
        rest = run.microbatches % p
        extra = (chunks - 1) * (p - rest) if rest else 0
        self.bubble_time = (p - 1) * chunk + extra * chunk - run.missing_blocks * block

    def _memory(self) -> None:
        """Bytes in all, and bytes that stay in tier 1 if that kind of data is offloaded."""
        block, ex, run, p = self.block, self.execution, self.run, self.execution.pipeline_par
        alive: float = min(run.microbatches, p)  # microbatches, one forward one backward
        if ex.pipeline_interleaving > 1:
            alive *= 1 + (p - 1) / (ex.pipeline_interleaving * p)
        if run.rules.in_flight:
            alive = min(alive, run.microbatches)
        self.weight_space = block.weight * run.blocks
        self.act_space = self.act_space_with_offload = block.act_working
        if not run.full_recompute:
            # [O13] In inference offloading raises the need.
            kept = ex.training or not run.rules.inference_space
            self.act_space_with_offload += block.act_storage if kept else 0
            if ex.training:
                self.act_space += block.act_storage * (run.blocks * alive - 1)
        self.act_checkpoint_size = run.blocks * block.checkpoint * alive
        # [O7] Null, not 0, in inference.
        counted = ex.training or run.rules.inference_space
        self.act_checkpoint_size_with_offload = 2 * block.checkpoint if counted else None
        self.weight_grad_space = block.weight_grad_unsharded + block.weight_grad * (run.blocks - 1)
        self.weight_grad_space_with_offload = block.weight_grad_unsharded + block.weight_grad
        self.optimizer_space = block.optimizer * run.blocks

    def _tiers(self) -> None:
        block, ex, system = self.block, self.execution, self.run.system
        tier1, tier2 = block.act_grad, 0.0
        if ex.weight_offload:
            tier1 += 2 * block.weight
            tier2 += self.weight_space
        else:
            tier1 += self.weight_space
        if ex.activations_offload:
            tier1 += self.act_space_with_offload + (self.act_checkpoint_size_with_offload or 0)
            tier2 += self.act_checkpoint_size if self.run.full_recompute else self.act_space
        else:
            tier1 += self.act_space + self.act_checkpoint_size
        if ex.optimizer_offload:
            tier1 += self.weight_grad_space_with_offload + 2 * block.optimizer
            tier2 += block.weight_grad * self.run.blocks + self.optimizer_space
        else:
            tier1 += self.weight_grad_space + self.optimizer_space
        require_fit(21, tier1 <= system.mem1.capacity, f"tier 1 would hold {tier1} bytes")
        require_fit(22, tier2 <= system.mem2.capacity, f"tier 2 would hold {tier2} bytes")
        self.tier1, self.tier2 = tier1, tier2

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
        self.offload_mem_bw_req, self.optim_offload_bw_req = per(self.fw_offload, fw), 0.0
        if self.execution.training:
            self.optim_offload_bw_req = per(block.weight_grad + block.optimizer, bw)
            self.offload_mem_bw_req = max(self.offload_mem_bw_req, per(self.bw_offload, bw))

    def _totals(self) -> None:
        block, run = self.block, self.run
        busy = self.fw_time + self.bw_time + self.optim_step_time
        self.total_time = busy + self.recompute_time + self.bubble_time
        self.total_time += self.fw_offload_exposed_time + self.bw_offload_exposed_time
        self.total_time += self.tp_comm_exposed_time + self.recomm_exposed_time
        self.total_time += self.pp_comm_time + self.dp.exposed_time
        # [O12] Arithmetic of forks, dropout and reductions counts as useful, and the optimizer
        # step counts once per microbatch.
        step = block.optim.flops
        if run.rules.useful_flops:
            step /= run.microbatches
        self.useful_flops = block.fw.flops + block.agrad.flops + block.wgrad.flops + step
        peak = run.system.matrix[self.execution.datatype].peak
        perfect = run.blocks * run.microbatches * self.useful_flops / peak
        self.compute_efficiency = perfect / busy
        self.system_efficiency = busy / self.total_time
        self.total_efficiency = perfect / self.total_time
        self.sample_rate = self.execution.batch_size / self.total_time
