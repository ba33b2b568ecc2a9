"""The inputs, and the quantities that follow from them."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import replace
from typing import Literal

from .collectives import Group, group_time, stated_group
from .fields import BYTES_PER_ELEMENT, MULTIPLIED_BYTES, Execution, Model
from .mesh import mesh_group, outermost, used_levels
from .rules import Rules
from .stages import stage_blocks
from .system import System

Kind = Literal["base", "edge"]
KINDS: tuple[Kind, Kind] = ("base", "edge")


class Team:
    """Ranks that work together: so many, so far apart in a mesh (0: on a stated network)."""

    def __init__(self, run: Run, ranks: int, stated: int, apart: int) -> None:
        self.run, self.ranks = run, ranks
        system = run.system
        if apart == 0:
            self.number = stated
            self.group: Group = stated_group(system, ranks, stated)
        else:
            self.number = outermost(run.levels, ranks * apart)
            self.group = mesh_group(system, run.levels, ranks, apart)
        self.network = system.networks[self.number]

    @property
    def usage(self) -> float:
        """Share of the engines that its collectives take: the most of its networks."""
        networks = self.run.system.networks
        if self.group.alone:
            return self.network.processor_usage
        return max((networks[i].processor_usage for i in self.group.used), default=0)

    def meets(self, other: Team) -> bool:
        """Whether both have several ranks on one network."""
        return bool(set(self.group.used) & set(other.group.used))

    def time(self, op: str, size: float) -> float:
        """Seconds of a collective by the algorithm of the execution."""
        run, algorithm = self.run, self.run.execution.coll_algo
        if algorithm != "published":
            return group_time(run.system, self.group, op, size, algorithm)
        if op in ("broadcast", "reduce"):  # a transfer of the whole message
            return run.system.networks[self.group.outermost].time("p2p", size, 2)
        return self.network.time(op, size, self.ranks, run.per_step)


class Run:
    """A model executed on a system.  Tensor sizes are in elements.

    A processor owns chunks of consecutive blocks.  The last block of a chunk, the *edge* block, is
    followed by a pipeline transfer; the others are *base* blocks.
    """

    def __init__(self, model: Model, execution: Execution, system: System, rules: Rules) -> None:
        ex = execution
        self.model, self.execution, self.system, self.rules = model, execution, system, rules
        self.microbatches = ex.batch_size // ex.data_par // ex.microbatch_size  # per pipeline
        stops = self.microbatches * ex.pipeline_interleaving + ex.pipeline_par - 1
        stops = stops if ex.pipeline_par > 1 else 0
        self.host = system.host + stops * ex.stage_stop_us * 1e-6  # s, in which no kernel runs
        self.sequence_par = ex.tensor_par_comm_type == "rs_ag"
        self.full_recompute = ex.activation_recompute == "full"
        modules, full = ex.recompute_modules, self.full_recompute
        self.by_operator = modules == "ops"  # all but attention and every other product
        eager = ex.attn_impl == "eager"
        self.recomputes_attention = full or ex.activation_recompute == "attn_only"
        if self.by_operator:
            self.recomputes_attention = eager
        self.drops_inputs = modules in (
            "norm",
            "norm_activation",
            "ops",
        )  # of column-split products
        self.redoes_norm = full or self.drops_inputs
        functions = ("activation", "norm_activation", "mlp", "ops")
        self.redoes_function = full or modules in functions
        self.redoes_mlp = full or modules == "mlp"
        self.redoes_operators = full or self.by_operator
        # The residual stream between attention and MLP; a reduction that splits it is kept.
        self.drops_stream = self.by_operator and not self.sequence_par
        self.redoes_stream = full or self.drops_stream
        self.per_step = rules.latency_per_step and ex.latency_per_step
        self._widths()

        # The backward pass repeats the collective at the input of attention, of the MLP.
        split = self.sequence_par or not rules.regather_needs_sequence_par
        redo = ex.seq_par_ag_redo or self.redoes_norm
        self.regathers_attention = split and (self.recomputes_attention or redo)
        self.regathers_mlp = split and (self.redoes_mlp or redo)

        self.layout = stage_blocks(model, ex)  # if one is stated, or a schedule of whole stages
        self.blocks = -(-model.num_blocks // ex.pipeline_par)  # of the most loaded stage
        if self.layout is not None:
            self.blocks = max(self.layout)
        self.missing_blocks = self.blocks * ex.pipeline_par - model.num_blocks  # of later stages
        self.chunk_blocks: float = self.blocks // ex.pipeline_interleaving
        if self.layout is not None:  # the mean of those that a stage lists
            self.chunk_blocks = self.blocks / ex.pipeline_interleaving
        self.edge_blocks = 1.0
        self.base_blocks = self.chunk_blocks - 1  # per chunk, besides the edge block
        self.has_ends = True, True  # embedding and head, on the stage that is looked at

        self.tokens = ex.microbatch_size * model.seq_size  # per microbatch
        self.activation = self.tokens * model.hidden
        self.split_activation = self.tokens // ex.tensor_par * model.hidden
        # An activation in the residual region.
        self.residual = self.split_activation if self.sequence_par else self.activation
        self._groups()

    def _widths(self) -> None:
        """Bytes of an element: as stored, as products read it, as products write it."""
        ex = self.execution
        self.multiply_type = ex.datatype if ex.matmul_dtype == "same" else ex.matmul_dtype
        self.element_bytes = BYTES_PER_ELEMENT[ex.datatype]
        self.operand_bytes = min(self.element_bytes, MULTIPLIED_BYTES[self.multiply_type])
        self.result_bytes = min(self.element_bytes, max(2, self.operand_bytes))
        self.narrow = self.operand_bytes < self.element_bytes
        # Attention of 8-bit products is computed in the type of their results.
        self.core_type = self.multiply_type
        if ex.matmul_dtype == "float8":
            self.core_type = ex.datatype
            if self.result_bytes < self.element_bytes:
                halves = [x for x in ("bfloat16", "float16") if x in self.system.matrix]
                self.core_type = (halves or [ex.datatype])[0]

    def _groups(self) -> None:
        """Who works with whom: neighbours first, then replicas or stages as the mesh says."""
        ex = self.execution
        self.replica_distance = self.stage_distance = 0
        if ex.mesh_order == "tp-dp-pp":
            self.replica_distance, self.stage_distance = (
                ex.tensor_par,
                ex.tensor_par * ex.data_par,
            )
        elif ex.mesh_order == "tp-pp-dp":
            self.replica_distance, self.stage_distance = (
                ex.tensor_par * ex.pipeline_par,
                ex.tensor_par,
            )
        near = 0 if ex.mesh_order == "stated" else 1
        shards = ex.dp_shard or ex.data_par
        replicas = [shards, ex.data_par // shards]
        if ex.mesh_order == "tp-dp-pp":
            degrees = [ex.tensor_par, *replicas, ex.pipeline_par]
        else:
            degrees = [ex.tensor_par, ex.pipeline_par, *replicas]
        self.levels = used_levels(self.system, [n for n in degrees if n > 0])
        self.tp_team = Team(self, ex.tensor_par, ex.tensor_par_net, near)
        self.tp_network = self.tp_team.network
        self.pp_net = ex.pipeline_par_net
        if near:
            self.pp_net = outermost(self.levels, ex.pipeline_par * self.stage_distance)
        self.pp_network = self.system.networks[self.pp_net]
        self.dp_team = self.replicas(ex.data_par)
        self.dp_network = self.dp_team.network
        self.dp_slows = max(self.dp_team.usage, ex.data_par_slowdown / 100)
        self.dp_on_tp = self.dp_team.meets(self.tp_team)
        self.dp_on_pp = self.dp_team.number == self.pp_net
        # Communicators: of each axis, two where replicas form groups that share.
        self.groups = sum(n > 1 for n in (ex.tensor_par, ex.pipeline_par, ex.data_par))
        self.groups += 0 < ex.dp_shard < ex.data_par

    def stages(self) -> list[Run]:
        """Return the run as each stage of a stated layout sees it; one for all stages that are alike."""
        if self.layout is None:
            return [self]
        found = []
        for place, blocks in enumerate(self.layout):
            stage = copy(self)
            stage.blocks = blocks
            stage.chunk_blocks = blocks / self.execution.pipeline_interleaving
            # Of less than a block in the mean, all are edge blocks.
            stage.edge_blocks = min(1, stage.chunk_blocks)
            stage.base_blocks = stage.chunk_blocks - stage.edge_blocks
            stage.has_ends = place == 0, place == len(self.layout) - 1
            found.append(stage)
        return found

    def replicas(self, ranks: int, apart: int = 1) -> Team:
        """Return groups of so many replicas, each so many replicas from the next."""
        return Team(self, ranks, self.execution.data_par_net, self.replica_distance * apart)

    def of_ends(self) -> Run:
        """Return the run as embedding and head see it: split by the vocabulary, nothing else.

        Muon leaves them to Adam.
        """
        whole = self.execution.compile_scope == "step"
        plain = replace(
            self.execution,
            fusion=self.execution.fusion if whole else "none",
            optimizer="adam" if self.execution.optimizer == "muon" else self.execution.optimizer,
            activation_recompute="none",
            recompute_modules="none",
            recompute_every=1,
            tensor_par_overlap="none",
            seq_par_ag_redo=False,
            fused_activation=False,
            attention_type="multihead",
            attn_impl="eager",
            tp_impl="megatron",
            tp_async=False,
            tp_user_buffers=False,
            # Logits are never products of 8 bits.
            matmul_dtype="same" if self.core_type == self.execution.datatype else self.core_type,
            bias_after_reduce=False,
        )
        return Run(self.model, plain, self.system, self.rules)

    def of_stored(self) -> Run:
        """Return the run of blocks that store everything, beside one that recomputes."""
        plain = replace(
            self.execution, activation_recompute="none", recompute_modules="none", recompute_every=1
        )
        return Run(self.model, plain, self.system, self.rules)

    @property
    def vocab_rows(self) -> int:
        """Rows of the vocabulary on a rank, filled up."""
        multiple = self.execution.vocab_pad_multiple
        return -(-self.model.vocab // (multiple * self.execution.tensor_par)) * multiple

    @property
    def reduction_bytes(self) -> int:
        """Bytes of a gradient element in the DP reduction."""
        datatype = self.execution.grad_comm_dtype
        if datatype == "same" or not self.rules.reduction_datatype:
            return self.element_bytes
        return BYTES_PER_ELEMENT[datatype]

    def chunk_sum(self, per_block: Mapping[Kind, float]) -> float:
        """Sum over the blocks of one chunk."""
        return self.base_blocks * per_block["base"] + self.edge_blocks * per_block["edge"]
