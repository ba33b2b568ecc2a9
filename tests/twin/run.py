"""The inputs, and the quantities that follow from them."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import replace
from typing import Literal

from .collectives import Group, group_bytes, group_time, rooms, stated_group
from .copies_of_tokens import copies, ranks_of_token
from .fields import BYTES_PER_ELEMENT, MULTIPLIED_BYTES, Execution, Model
from .mesh import clustered, mesh_group, outermost, used_levels
from .pipelines import FOLDED, Lists, lists_of
from .recipes import recipe_of
from .rules import Rules
from .stages import counts_of, place_of_modules, stage_blocks
from .system import System

Kind = Literal["base", "edge"]
KINDS: tuple[Kind, Kind] = ("base", "edge")


class Team:
    """Ranks that work together: so many, so far apart in a mesh (0: on a stated network).

    Of clusters, how many ranks one has and how far apart these are comes last.
    """

    def __init__(
        self, run: Run, ranks: int, stated: int, apart: int, cluster: tuple[int, int] = (1, 0)
    ) -> None:
        self.run, self.ranks = run, ranks
        system = run.system
        if apart == 0:
            self.number = stated
            self.group: Group = stated_group(system, ranks, stated)
        elif cluster[0] > 1:
            near, places = mesh_group(system, run.levels, *cluster), ranks // cluster[0]
            span = places * apart if places > 1 else cluster[0] * cluster[1]
            self.number = outermost(run.levels, span)
            self.group = clustered(near, mesh_group(system, run.levels, places, apart))
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

    def moved(self, op: str, size: float) -> dict[int, float]:
        """Bytes through a port of each network."""
        run, algorithm = self.run, self.run.execution.coll_algo
        if op == "all_to_all" and algorithm == "published":
            algorithm = "auto"
        if algorithm == "published":
            return {self.number: self.network.volume(op, size, self.ranks)}
        return group_bytes(run.system, self.group, op, size, algorithm)

    def copied(self, size: float) -> dict[int, float]:
        """Bytes through a port of each network of a library of experts, whose copies are so large."""
        run = self.run
        sent = copies(run.system, self.group, run.node, run.model) if self.ranks > 1 else {}
        return {number: each * size for number, each in sent.items()}

    def time(self, op: str, size: float) -> float:
        """Seconds of a collective by the algorithm of the execution."""
        run, algorithm = self.run, self.run.execution.coll_algo
        if op == "all_to_all" and algorithm == "published":
            algorithm = "auto"  # networks do not say what an exchange moves
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

    is_half = False  # of a microbatch, beside the other half

    def __init__(self, model: Model, execution: Execution, system: System, rules: Rules) -> None:
        ex = self._with_modules(model, execution)
        self.model, self.execution, self.system, self.rules = model, ex, system, rules
        self.fusion_of_step = ex.fusion  # one optimizer steps blocks, embedding and head
        self.microbatches = ex.batch_size // ex.data_par // ex.microbatch_size  # per pipeline
        self.ranks, self.chunks = ex.pipeline_par, ex.pipeline_interleaving
        self.mirrored = ex.pp_schedule == "dualpipe"
        # Half of the ranks, of the way there and back; half of the microbatches, each way.
        if self.mirrored:
            self.microbatches, self.ranks, self.chunks = self.microbatches // 2, self.ranks // 2, 2
        self.folded = ex.pp_schedule in FOLDED
        self.ends_apart = ex.pipeline_par > 1 and not self.folded
        stops = self.microbatches * self.chunks + ex.pipeline_par - 1
        stops = stops if ex.pipeline_par > 1 else 0
        self.host = system.host + stops * ex.stage_stop_us * 1e-6  # s, in which no kernel runs
        self.sequence_par = ex.tensor_par_comm_type == "rs_ag"
        self.full_recompute = ex.activation_recompute == "full"
        self._recomputed()
        self.per_step = rules.latency_per_step and ex.latency_per_step
        self._widths()
        self.width_par = ex.expert_tensor_par or ex.tensor_par  # of experts
        self.expert_ranks = ex.expert_par * self.width_par  # that have all of them once

        # The backward pass repeats the collective at the input of attention, of the MLP.
        split = self.sequence_par or not rules.regather_needs_sequence_par
        redo = ex.seq_par_ag_redo or self.redoes_norm
        self.regathers_attention = split and (self.recomputes_attention or redo)
        self.regathers_attention |= split and self.redoes_heads
        self.regathers_shared = split and redo
        self.regathers_mlp = split and (self.redoes_mlp or redo)

        self.layout = stage_blocks(model, ex)  # if one is stated, or a schedule of whole stages
        self.blocks = -(-model.num_blocks // ex.pipeline_par)  # of the most loaded stage
        if self.layout is not None:
            self.blocks = max(self.layout)
        self.missing_blocks = self.blocks * self.ranks - model.num_blocks  # of later stages
        self.chunk_blocks: float = self.blocks // self.chunks
        if self.layout is not None:  # the mean of those that a stage lists
            self.chunk_blocks = self.blocks / self.chunks
        self.edge_blocks = 1.0
        self.base_blocks = self.chunk_blocks - 1  # per chunk, besides the edge block
        self.has_ends = True, True  # embedding and head, on the stage that is looked at

        # Tokens of one document, where all of a sequence have equally many.
        self.document = max(1, model.seq_size * ex.packed_percent / 100)
        # Who splits heads in attention itself.
        self.near_parts = {"a2a": ex.context_par, "a2a_p2p": max(1, ex.cp_a2a_size)}.get(
            ex.cp_comm, 1
        )
        self.head_ranks = ex.tensor_par * self.near_parts
        # Of a microbatch; ranks have equal parts of every sequence.
        self.tokens = ex.microbatch_size * model.seq_size // ex.context_par
        self.activation = self.tokens * model.hidden
        self.split_activation = self.tokens // ex.tensor_par * model.hidden
        # An activation in the residual region.
        self.residual = self.split_activation if self.sequence_par else self.activation
        # What is sent of them to experts.
        self.latents = self.residual // model.hidden * model.row_width
        self._groups()
        self._rows()

    def _with_modules(self, model: Model, ex: Execution) -> Execution:
        """Return the execution, whose list of blocks counts modules of a stage before the last."""
        self.modules = 0
        if (place := place_of_modules(ex)) is None:
            return ex
        self.modules, counts = model.mtp_layers, counts_of(ex)
        counts[place] += self.modules
        return replace(ex, stage_blocks="-".join(map(str, counts)))

    def _rows(self) -> None:
        """Rows of a rank: of its own tokens, those that it receives, those of its experts."""
        ex, each = self.execution, self.model.experts_per_token
        own = each * self.residual / self.model.hidden
        natural, most = ex.moe_imbalance_percent / 100, ex.moe_capacity_percent / 100
        kept, load = 1.0, natural
        if most:
            kept, load = min(1, most), min(natural, most)
        if ex.moe_pad_to_capacity:
            kept = load = most
        self.most_loaded = load
        self.own_rows, self.received_rows = own * kept, own * load
        # Of libraries of experts it gets a copy of a token for all of its experts.
        self.arrived = self.residual / self.model.hidden
        if ex.expert_par > 1 and self.model.mixes:
            self.arrived *= load * ranks_of_token(self.model, ex.expert_par)
        # Peers with other parts of the same experts have other tokens.
        self.expert_rows = each * self.tokens * self.width_par / ex.tensor_par * load
        self.dropped = 1 - min(1, most / natural) if most else 0.0

    def _recomputed(self) -> None:
        """What the backward pass computes again, and what is not kept for it."""
        ex, full = self.execution, self.full_recompute
        modules = set(ex.recompute_modules.split("+"))
        if ex.recompute_modules == "norm_activation":
            modules = {"norm", "activation"}
        self.by_operator = "ops" in modules  # all but attention and every other product
        eager = ex.attn_impl == "eager"
        self.recomputes_attention = full or ex.activation_recompute == "attn_only"
        self.recomputes_attention |= "core_attn" in modules
        if self.by_operator:
            self.recomputes_attention = eager
        self.drops_inputs = self.by_operator or "norm" in modules  # of column-split products
        self.redoes_norm = full or self.drops_inputs
        # Functions of shared experts, of those that are chosen, of the only MLP.
        self.redoes_shared_function = full or self.by_operator or "activation" in modules
        self.redoes_expert_function = self.redoes_shared_function or "moe_act" in modules
        self.redoes_function = self.redoes_shared_function or "mlp" in modules
        self.drops_mlp = "mlp" in modules
        self.redoes_mlp = full or self.drops_mlp
        # Queries, keys and values, made of latents.
        self.drops_heads = "mla_up_proj" in modules
        self.redoes_heads = full or self.drops_heads
        # The norm after the state of the gated delta rule, whose result is not kept.
        self.redoes_delta_norm = full or "gdn_norm_out" in modules
        # Modules that are computed again as a whole.
        self.redoes_experts = "moe" in modules
        self.redoes_shared = self.redoes_experts or "shared_experts" in modules
        self.redoes_operators = full or self.by_operator
        # The residual stream between attention and MLP; a reduction that splits it is kept.
        self.drops_stream = self.by_operator and not self.sequence_par
        self.redoes_stream = full or self.drops_stream

    def _widths(self) -> None:
        """Bytes of an element: as stored, as products read it, as products write it."""
        ex = self.execution
        self.multiply_type = ex.datatype if ex.matmul_dtype == "same" else ex.matmul_dtype
        self.recipe = recipe_of(ex, self.system.recipes)
        if self.recipe is not None:
            self.multiply_type = self.recipe.arithmetic
        self.element_bytes = BYTES_PER_ELEMENT[ex.datatype]
        self.operand_bytes: float = min(
            self.element_bytes, MULTIPLIED_BYTES.get(self.multiply_type, 0.5)
        )
        self.weight_bytes = self.operand_bytes  # of a weight as it is multiplied
        self.result_bytes: int = min(self.element_bytes, max(2, int(self.operand_bytes)))
        if self.recipe is not None:
            self.operand_bytes, self.weight_bytes = self.recipe.size, self.recipe.weight
        self.narrow = self.operand_bytes < self.element_bytes
        # Attention of 8-bit products is computed in the type of their results.
        self.core_type = self.multiply_type
        if ex.matmul_dtype == "float8" or ex.fp8_recipe != "none":
            self.core_type = ex.datatype
            if self.result_bytes < self.element_bytes:
                halves = [x for x in ("bfloat16", "float16") if x in self.system.matrix]
                self.core_type = (halves or [ex.datatype])[0]

    def _groups(self) -> None:
        """Who works with whom: neighbors first, then replicas or stages as the mesh says."""
        ex = self.execution
        c = ex.context_par
        inner = ex.tensor_par * c
        self.replica_distance = self.stage_distance = 0
        if ex.mesh_order == "tp-dp-pp":
            self.replica_distance, self.stage_distance = inner, inner * ex.data_par
        elif ex.mesh_order == "tp-pp-dp":
            self.replica_distance, self.stage_distance = inner * ex.pipeline_par, inner
        near = 0 if ex.mesh_order == "stated" else 1
        self.data_ranks = c * ex.data_par  # that have the same weights
        shards = max(1, ex.dp_shard // c) if ex.dp_shard else ex.data_par
        replicas = [shards, ex.data_par // shards]
        heads = min(max(1, ex.cp_a2a_size), c)
        parts = [heads, c // heads]
        if ex.mesh_order == "tp-dp-pp":
            degrees = [ex.tensor_par, *parts, *replicas, ex.pipeline_par]
        else:
            degrees = [ex.tensor_par, *parts, ex.pipeline_par, *replicas]
        # Experts on more ranks than a tensor group are groups of a mesh, too.
        apart = ex.expert_par > 1 and (ex.mesh_order == "tp-dp-pp" or c > 1)
        spread = self.expert_ranks if apart else 1
        self.levels = used_levels(self.system, [n for n in degrees if n > 0], spread, near=inner)
        self.tp_team = Team(self, ex.tensor_par, ex.tensor_par_net, near)
        net, next_to = ex.context_par_net, near * ex.tensor_par
        self.cp_team = Team(self, c, net, next_to)
        self.heads_team = self.ring_team = self.cp_team
        if ex.cp_comm == "a2a_p2p":
            self.heads_team = Team(self, heads, net, next_to)
            self.ring_team = Team(self, c // heads, net, next_to * heads)
        self.tp_network = self.tp_team.network
        self._expert_groups(near)
        self.pp_net = ex.pipeline_par_net
        if near:
            self.pp_net = outermost(self.levels, ex.pipeline_par * self.stage_distance)
        self.pp_network = self.system.networks[self.pp_net]
        self.dp_team = self.replicas(self.data_ranks)
        self.dp_network = self.dp_team.network
        self.dp_slows = max(self.dp_team.usage, ex.data_par_slowdown / 100)
        self.dp_on_tp = self.dp_team.meets(self.tp_team)
        self.dp_on_pp = self.dp_team.number == self.pp_net
        # Communicators: of each axis, two where replicas form groups that share.
        axes = (ex.tensor_par, c, ex.pipeline_par, ex.data_par, ex.expert_par)
        self.groups = sum(n > 1 for n in axes)
        self.groups += c > 1 and ex.data_par > 1  # all ranks with the same weights
        self.groups += 0 < ex.dp_shard < self.data_ranks
        self._expert_replicas()

    def _expert_replicas(self) -> None:
        """Who has the same experts: groups of their own, unless they are those of other weights."""
        ex = self.execution
        spread = ex.expert_par > 1 or self.width_par != ex.tensor_par
        self.experts_apart = self.model.mixes and self.model.num_experts > 1 and spread
        self.expert_data_par = self.expert_shards(self.data_ranks) if self.experts_apart else 1
        self.expert_team = self.experts_on(self.expert_data_par)
        self.groups += self.expert_data_par > 1
        if self.expert_data_par > 1:
            self.dp_on_tp = self.dp_on_tp or self.expert_team.meets(self.tp_team)
            own = self.dp_team.usage if self.data_ranks > 1 else 0
            used = max(own, self.expert_team.usage)
            self.dp_slows = max(used, ex.data_par_slowdown / 100)

    def expert_shards(self, same: int) -> int:
        """Return how many ranks have the same experts, of tensor groups of so many with the same other weights."""
        return max(1, same * self.execution.tensor_par // self.expert_ranks)

    def experts_on(self, ranks: int, apart: int = 1) -> Team:
        """Return groups of so many ranks with the same experts, each so many of these from the next."""
        ex = self.execution
        distance = self.replica_distance
        if distance and ex.context_par > 1:
            inner = ex.tensor_par * ex.context_par
            near = max(1, inner // self.expert_ranks)  # next to each other
            distance = max(distance, self.expert_ranks) * max(1, apart // near)
            cluster = min(near, ranks) if apart == 1 else 1
            return Team(self, ranks, self._data_net, distance, (cluster, self.expert_ranks))
        if distance and self.expert_ranks != ex.tensor_par:
            distance = self.expert_ranks
        return Team(self, ranks, self._data_net, distance * apart)

    def both_classes(self, dense: float, experts: float) -> float:
        """Return the time of traffic of both: one after the other on the same network, else the longer."""
        dense = dense if self.data_ranks > 1 else 0
        experts = experts if self.expert_data_par > 1 else 0
        if self.dp_team.meets(self.expert_team):
            return dense + experts
        return max(dense, experts)

    def _expert_groups(self, near: int) -> None:
        """Who has other experts, other parts of the same, all of them once; these are next to each other."""
        ex, t = self.execution, self.execution.tensor_par
        levels = self.levels
        inner = t * ex.context_par
        self.levels = used_levels(
            self.system, [max(inner, self.expert_ranks)], t, inner, self.expert_ranks
        )
        self.ep_team = Team(self, ex.expert_par, ex.expert_par_net, near * self.width_par)
        self.width_team = Team(self, self.width_par, ex.tensor_par_net, near)
        self.experts_team = Team(self, self.expert_ranks, ex.expert_par_net, near)
        self.alone = Team(self, 1, 0, 0)
        self.node = next((number for number, _ in rooms(self.system)), 0)  # network inside of one
        self.levels = levels
        self.ep_net = ex.expert_par_net
        if near:
            self.ep_net = outermost(levels, self.expert_ranks)

    def stages(self) -> list[Run]:
        """Return the run as each stage of a stated layout sees it; one for all stages that are alike."""
        if self.layout is None:
            return [self]
        found = []
        for place, blocks in enumerate(self.layout):
            stage = copy(self)
            stage.blocks = blocks
            stage.chunk_blocks = blocks / self.chunks
            # Of less than a block in the mean, all are edge blocks.
            stage.edge_blocks = min(1, stage.chunk_blocks)
            stage.base_blocks = stage.chunk_blocks - stage.edge_blocks
            stage.has_ends = place == 0, place == len(self.layout) - 1
            if self.folded:
                stage.has_ends = place == 0, place == 0
            found.append(stage)
        return found

    @property
    def lists(self) -> Lists:
        """What all ranks of the pipeline do, where that is listed."""
        ex = self.execution
        count = ex.batch_size // ex.data_par // ex.microbatch_size
        return lists_of(ex.pp_schedule, ex.pipeline_par, count)

    def replicas(self, ranks: int, apart: int = 1) -> Team:
        """Return groups of so many ranks with the same weights, each so many of these from the next."""
        parts = self.execution.context_par
        distance = self.replica_distance * max(1, apart // parts)
        cluster = min(parts, ranks) if apart == 1 else 1
        return Team(self, ranks, self._data_net, distance, (cluster, self.execution.tensor_par))

    @property
    def _data_net(self) -> int:
        """Stated network between ranks with the same weights: the outer one of two."""
        ex = self.execution
        if ex.context_par > 1 and ex.data_par == 1:
            return ex.context_par_net
        return max(ex.data_par_net, ex.context_par_net)

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
            recompute_blocks=0,
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
            fp8_recipe="none",
            fp8_param_gather=False,
            fp8_attention=False,
            bias_after_reduce=False,
        )
        found = Run(self.model, plain, self.system, self.rules)
        found.fusion_of_step = self.execution.fusion
        return found

    def kinds(self) -> list[Model | str]:
        """Return the kind of every block; modules that are blocks follow the others."""
        return [*self.model.kinds(), *["module"] * self.modules]

    def of_kind(self, kind: Model) -> Run:
        """Return the run of a model of blocks of one kind."""
        return Run(kind, self.execution, self.system, self.rules)

    def of_stored(self) -> Run:
        """Return the run of blocks that store everything, beside one that recomputes."""
        plain = replace(
            self.execution,
            activation_recompute="none",
            recompute_modules="none",
            recompute_every=1,
            recompute_blocks=0,
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
