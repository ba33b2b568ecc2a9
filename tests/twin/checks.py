"""Whether an execution may run.  The first requirement that fails decides.

Rules 21 and 22, that the memories suffice, follow in `batch`; that the curves of the system cover
a size (part of rule 20) shows when it is looked up.
"""

from collections.abc import Mapping
from dataclasses import fields, replace
from math import gcd, prod
from typing import Any

from .copies_of_tokens import NAMES as LIBRARIES
from .errors import require, require_fit
from .fields import CHOICES, MULTIPLIED_BYTES, OPTIONS, Execution, Model
from .mesh import places
from .pipelines import FOLDED, SIMULATED
from .rules import EDITIONS, Rules
from .run import Run
from .stages import counts_of, ends_as_blocks, place_of_modules, states_stages
from .system import System


def checked_run(
    model: Mapping[str, Any],
    execution: Mapping[str, Any],
    system: Mapping[str, Any],
    rules: Rules | None = None,
) -> Run:
    """Read the contents of the three files and check what they ask for.

    The rules are those of the edition that the execution names, unless others are given.
    """
    odd = {field.name for field in fields(Execution)} ^ (set(execution) | set(OPTIONS))
    require(1, not odd, f"missing or unknown fields: {sorted(odd)}")
    ex = Execution(**execution)
    require(4, ex.edition in EDITIONS, "unknown edition")
    # Other keys of a model are ignored.
    shape = Model(**{f.name: model[f.name] for f in fields(Model) if f.name in model})
    extended = any(getattr(ex, name) != default for name, default in OPTIONS.items())
    asked = rules is not None or ex.edition != "sc23"
    require(1, asked or not (extended or not shape.plain), "the published edition has no options")
    hardware = System.of(system, extended=asked)
    if ex.seq_length:
        positions = max(shape.positions, shape.seq_size)
        fits = not shape.positions or ex.seq_length <= positions
        require(33, fits, "every token has its learned position")
        shape = replace(shape, seq_size=ex.seq_length)
    _check_modules(ex, shape)
    if not ex.training:  # only that predicts further tokens
        shape = replace(shape, mtp_layers=0)
    _check_request(ex)
    _check_products(ex, shape)
    _check_optimizer(ex)
    halves = shape.part == "block" and not shape.parallel_attention
    require(5, halves or ex.recompute_modules == "none", "no attention, and then an MLP")
    for module in ex.recompute_modules.split("+"):
        require(5, _has(shape, module), f"no block has {module}")
    _check_replicas(ex)
    _check_networks(ex, hardware)
    _check_stages(ex, shape)
    run = Run(shape, ex, hardware, rules or EDITIONS[ex.edition])
    _check_shares(run)
    _check_division(run)
    _check_packed(run)
    _check_contexts(run)
    _check_experts(run)
    _check_overlap(run)
    for engine in (hardware.matrix, hardware.vector):
        require(20, ex.datatype in engine, "the system lacks the datatype")
    _check_recipe(ex, shape, hardware)
    wide = MULTIPLIED_BYTES.get(run.multiply_type, 0.5) > run.element_bytes
    require(30, not wide, "products read no more than is stored")
    require(30, run.multiply_type in hardware.multiply, "the system does not multiply this type")
    if ex.attn_kernel != "auto":
        require(34, ex.attn_impl == "flash", "only flash attention is a kernel")
        fused = hardware.fused.get(run.core_type)
        known = fused is not None and ex.attn_kernel in fused["kernels"]
        require(34, known, "the system has constants of the kernel")
    return run


def _check_recipe(ex: Execution, model: Model, hardware: System) -> None:
    """What a recipe of narrow products needs."""
    recipe = ex.fp8_recipe
    if recipe != "none":
        require(30, recipe in hardware.recipes, "the system runs the recipe")
        require(30, ex.datatype != "float8", "recipes convert what has more than 8 bits")
        require(30, ex.matmul_impl == "gemm", "recipes are of matrix products")
        agrees = ex.matmul_dtype == "float8" and "fp4" not in recipe
        agrees = agrees and (ex.float8_scaling == "delayed" or recipe == "tensorwise")
        require(30, ex.matmul_dtype == "same" or agrees, "the recipe says the type of products")
        again = {"norm", "norm_activation", "moe_act"} & {*ex.recompute_modules.split("+")}
        require(30, recipe != "delayed" or not again, "factors of steps before count once")
    if ex.fp8_attention:
        law = hardware.fused.get("float8", {"kernels": {}})
        known = "cudnn" in law["kernels"] and ex.attn_kernel in ("auto", "cudnn")
        require(30, known and ex.attn_impl == "flash", "cuDNN has attention in 8 bits")
        require(30, recipe not in ("none", "blockwise"), "the recipe has attention in 8 bits")
    if ex.fp8_param_gather:
        require(
            30,
            recipe not in ("none", "nvfp4", "nvfp4_plain"),
            "weights are kept in the 8 bits of a recipe",
        )
        require(30, ex.training, "nothing is gathered in inference")
        whole = ex.zero_stage not in ("3", "owner") and not ex.weight_offload
        require(30, whole, "narrow weights are whole on every rank")
        require(30, not model.mtp_layers, "modules keep their weights")


def _has(model: Model, module: str) -> bool:
    """Whether there is something that a module names."""
    if module == "mlp":
        if model.layer_pattern:
            return "-" in model.layer_pattern
        return any(not kind.mixes for kind in model.kinds())
    return {
        "ops": not (model.mixes or model.linear or model.layer_pattern),
        "gdn_norm_out": model.linear and model.linear_attention == "gated_delta",
        "core_attn": model.scores,
        "moe": model.num_experts > 1,
        "moe_act": model.num_experts > 1,
        "shared_experts": model.shared_feedforward > 0,
        "mla_up_proj": model.kv_lora_rank > 0,
    }.get(module, True)


def _check_request(ex: Execution) -> None:
    degrees = (ex.tensor_par, ex.context_par, ex.pipeline_par, ex.data_par)
    require(2, ex.num_procs > 0 and min(degrees) > 0, "degrees must be positive")
    require(2, ex.num_procs == prod(degrees), "degrees must multiply to the processors")
    require(3, ex.batch_size > 0 and ex.microbatch_size > 0, "batches must be positive")
    require(3, ex.batch_size % ex.data_par == 0, "data parallelism must divide the batch")
    local_batch = ex.batch_size // ex.data_par
    require(3, local_batch % ex.microbatch_size == 0, "the microbatch must divide the batch")
    for name, allowed in CHOICES.items():
        require(4, getattr(ex, name) in allowed, f"{name} must be one of {allowed}")
    recompute, chunks = ex.activation_recompute, ex.pipeline_interleaving
    require(5, recompute == "none" or ex.training, "only training recomputes")
    require(6, chunks > 0, "interleaving must be positive")
    require(6, ex.pipeline_par > 1 or chunks == 1, "there is no pipeline to interleave")
    require(
        7,
        not ex.optimizer_sharding or ex.data_par * ex.context_par > 1,
        "there is nothing to shard over",
    )
    overlap = ex.tensor_par_overlap != "none"
    require(8, not overlap or ex.tensor_par > 1, "there is no communication to overlap")
    stores = recompute != "full" or ex.recompute_every > (ex.recompute_blocks or 1)
    redo_fits = ex.tensor_par_comm_type == "rs_ag" and stores
    require(9, not ex.seq_par_ag_redo or redo_fits, "there is nothing to gather again")
    gradients = ex.training and ex.data_par * ex.context_par > 1
    modules, every = ex.recompute_modules != "none", ex.recompute_every
    require(5, not modules or (ex.training and recompute != "full"), "recomputed twice, or never")
    plain = ex.tp_impl == "megatron" and ex.matmul_impl == "gemm"
    require(5, not modules or plain, "products of another form")
    said = "core_attn" in ex.recompute_modules and recompute == "attn_only"
    require(5, not said, "attention is said twice")
    again = (recompute != "none" or modules) and not ex.activations_offload
    require(5, every > 0 and (every == 1 or again), "there is nothing to recompute")
    some = ex.recompute_blocks
    again = recompute != "none" or modules
    require(5, some == 0 or (again and 0 < some <= every), "there are not so many blocks")
    require(10, not ex.data_par_overlap or gradients, "there are no gradients to overlap")
    require(11, not ex.optimizer_offload or ex.training, "there is no optimizer to offload")


def _check_optimizer(ex: Execution) -> None:
    short = ex.optimizer_state_dtype != "float32"
    moments = ex.optimizer in ("adam", "lion", "sgd_momentum", "muon")
    require(32, moments or not short, "no such moments")
    small = ex.grad_dtype in ("bfloat16", "float16")
    require(32, small or not ex.main_grad, "there are no smaller gradients to copy")
    summed = small and not ex.main_grad
    require(32, summed or not ex.grad_sums, "there are no smaller gradients to add up")


def _check_networks(ex: Execution, system: System) -> None:
    require(35, ex.expert_par > 1 or ex.expert_par_net == 0, "experts are not spread")
    require(37, ex.context_par > 1 or ex.context_par_net == 0, "sequences are not split")
    if ex.mesh_order != "stated":
        return
    for net in (ex.expert_par_net, ex.context_par_net):
        require(12, net < len(system.networks), "there is no such network")
    for number in (ex.tensor_par_net, ex.pipeline_par_net, ex.data_par_net):
        require(12, 0 <= number < len(system.networks), f"there is no network {number}")
    assigned = (
        (ex.tensor_par_net, ex.tensor_par),
        (ex.pipeline_par_net, ex.pipeline_par),
        (ex.data_par_net, ex.data_par),
        (ex.context_par_net, ex.context_par),
    )
    for index, network in enumerate(system.networks):
        degrees = [degree for net, degree in assigned if net == index and degree > 1]
        if degrees:
            used = prod(degrees)
            require_fit(13, used <= network.size, f"network {index} is too small")
            filled = network.size % used == 0 or ex.edition != "sc23"
            require_fit(13, filled or not network.must_be_filled, f"network {index} is not filled")
    leaves, ranks = ex.expert_par > 1, ex.expert_par * (ex.expert_tensor_par or ex.tensor_par)
    size = system.networks[ex.expert_par_net].size
    require_fit(35, not leaves or ranks <= size, "experts are on too many ranks")


def _check_products(ex: Execution, model: Model) -> None:
    """Forms of tensor parallelism and of products."""
    alone = ex.tensor_par_overlap == "none"
    whole = alone and ex.tensor_par_comm_type == "ar"
    megatron = ex.tp_impl == "megatron"
    behind = ex.training and ex.tensor_par > 1 and alone and megatron
    require(23, model.part != "linear" or whole, "one linear layer has no row-split product")
    require(23, megatron or whole, "gathered activations are not split")
    require(23, not ex.tp_async or behind, "there is nothing to run behind weight gradients")
    split = ex.tensor_par > 1 and ex.tensor_par_comm_type == "rs_ag"
    copied = split and alone and not ex.tp_async
    require(23, copied or not ex.seq_par_copies, "no tensor is split along its second dimension")
    joins = ex.fusion in ("compile", "max")
    require(23, joins or ex.compile_scope == "step", "nothing is compiled")
    stated = ex.fusion == "published"
    require(23, not stated or ex.rotary_impl == "real", "published kernels are real")
    require(23, 0 <= ex.data_par_slowdown < 100, "no work stands still")
    rings = ex.tensor_par_overlap == "ring" and ex.tensor_par_comm_type == "rs_ag"
    require(23, not ex.tp_user_buffers or rings, "user buffers are rings of split inputs")
    require(23, not alone or ex.tp_hidden_percent == 100, "there is nothing to hide")
    scaled = ex.float8_scaling == "delayed" or ex.matmul_dtype == "float8"
    require(23, scaled, "there are no factors of 8 bits")
    biased = model.part in ("block", "attention") and model.out_bias
    biased = biased or (model.part in ("block", "mlp") and model.mlp_bias)
    require(23, not ex.bias_after_reduce or (megatron and biased), "no bias follows a reduction")
    plain = alone and ex.matmul_dtype == "same"
    require(23, ex.matmul_impl == "gemm" or plain, "the vector engine has no tiles, no types")
    simple = alone and megatron and ex.matmul_impl == "gemm"
    require(23, simple or not model.mixes, "experts have one form only")


def _check_replicas(ex: Execution) -> None:
    """Forms of data parallelism."""
    if ex.zero_stage != "auto":
        require(
            24,
            ex.data_par * ex.context_par > 1 or ex.zero_stage == "0",
            "there is nothing to share",
        )
        require(24, ex.training, "only training has gradients")
        require(24, ex.optimizer_sharding == (ex.zero_stage != "0"), "the stage says what is split")
    for name, stages in FORMS.items():
        fits = ex.zero_stage in stages or getattr(ex, name) == OPTIONS[name]
        require(25, fits, f"{name} needs zero_stage {stages}")
    whole = ex.zero_stage in ("auto", "0", "1") or ex.grad_buffer == "sharded"
    require(24, whole, "gradients are split")
    once = ex.coll_algo == "published" or not ex.latency_per_step
    require(26, once, "algorithms count steps by themselves")


FORMS = {
    "dp_shard": ("1", "2", "3", "fsdp"),
    "fsdp_unit": ("3", "fsdp"),
    "fsdp_prefetch": ("3", "fsdp"),
    "reshard_after_forward": ("3", "fsdp"),
    "sync_once": ("3", "fsdp"),
    "ddp_bucket_mib": ("0", "1", "2"),
    "no_sync": ("0", "1"),
    "overlap_param_gather": ("1", "2"),
    "grad_sums": ("0", "1", "2"),
    "grad_group": ("2",),
}
"""What some forms of data parallelism have alone."""


def _check_modules(ex: Execution, model: Model) -> None:
    """Place of the modules that predict further tokens: after all blocks, of a rank in the middle the last chunk."""
    place, counts, p = place_of_modules(ex), counts_of(ex), ex.pipeline_par
    if place is None:
        return
    require(27, model.mtp_layers > 0, "there are modules")
    require(27, ex.pp_schedule not in FOLDED, "the first rank has both ends")
    require(27, len(counts) - p < place < len(counts) - 1, "it is the last chunk of a rank")
    require(27, not any(counts[place + 1 :]), "modules follow the blocks")


def _check_stages(ex: Execution, model: Model) -> None:
    """Schedule and layout of a pipeline."""
    first, last = ex.first_stage_blocks, ex.last_stage_blocks
    layout = ex.pp_layout != "uniform" or first > 0 or last > 0
    stated = layout or ex.pp_schedule != "1f1b"
    p = ex.pipeline_par
    require(27, p > 1 or not (stated or ex.p2p_overlap), "there is no pipeline")
    chunks = 2 if ex.pp_schedule in ("zbv", "dualpipev") else 1
    fits = ex.pp_schedule == "1f1b" or ex.pipeline_interleaving == chunks
    require(27, fits, "stages have the chunks of the schedule")
    m = ex.batch_size // (ex.data_par * ex.microbatch_size)
    if ex.pp_schedule == "dualpipe":
        require(27, p % 2 == 0 and m % 2 == 0, "there are two directions")
        require(27, ex.zero_stage in ("auto", "0", "1"), "two ranks add their gradients up")
    if ex.pp_schedule.startswith("dualpipe"):
        require(27, m >= 2 * p, "there are enough microbatches")
    require(27, not layout or ex.pp_schedule not in FOLDED, "the first rank has both ends")
    counts = counts_of(ex)
    require(27, p > 1 or not counts, "there is no pipeline")
    require(27, not (layout and counts), "the layout is stated twice")
    whole = len(counts) == p * ex.pipeline_interleaving and sum(counts) == model.num_blocks
    require(27, whole or not counts, "every chunk and every block is listed")
    require(27, ex.training or ex.pp_schedule == "1f1b", "inference passes forward only")
    require(27, ex.pp_layout == "uniform" or not (first or last), "the layout is stated twice")
    if first or last:
        free, left = p - (first > 0) - (last > 0), model.num_blocks - first - last
        require(27, left >= free if free else left == 0, "every stage has blocks")
    if ends := sum(ends_as_blocks(ex)):
        enough = model.num_blocks + ends >= 2 * p
        require(27, enough, "a stage has more than an end")
    if ex.p2p_overlap:
        chunks = ex.pipeline_interleaving > 1
        due = chunks or ex.pp_schedule in ("gpipe", *SIMULATED) if ex.training else not chunks
        enough = ex.batch_size // (ex.data_par * ex.microbatch_size) >= p
        require(27, due and enough, "nothing else is due during a transfer")


def _check_shares(run: Run) -> None:
    """Whether shards, units and owners come out even, and groups of a mesh."""
    ex, blocks = run.execution, -(-run.model.num_blocks // run.execution.pipeline_par)
    same = run.data_ranks
    even = ex.dp_shard == 0 or (ex.dp_shard > 1 and same % ex.dp_shard == 0)
    require(28, even, "shards must divide the ranks with the same weights")
    require(28, ex.dp_shard % ex.context_par == 0, "shards are of whole sequences")
    chunk = gcd(*counts_of(ex)) or blocks // ex.pipeline_interleaving
    chunk = 1 if run.modules else chunk  # they are no unit of blocks
    if ex.pipeline_interleaving > 1 and states_stages(ex) and not ex.stage_blocks:
        chunk = 1  # chunks differ by a block
    require(28, chunk % ex.fsdp_unit == 0, "units must divide a chunk")
    owned = ex.zero_stage == "owner"
    require(28, not owned or blocks % same == 0, "owners have whole layers")
    if run.model.mixes and run.model.num_experts > 1:
        t, ranks = ex.tensor_par, run.expert_ranks
        require(28, t * ex.dp_shard % ranks == 0, "shards of experts are whole")
        between = ex.mesh_order == "tp-pp-dp" and ex.pipeline_par > 1 and ex.data_par > 1
        between = between and ex.context_par == 1
        require(
            28,
            ranks == t or t % ranks > 0 or not between,
            "no pipeline is between replicas of experts",
        )
        require(28, not owned or ranks >= t, "experts have owners")
    split = ex.zero_stage in ("3", "fsdp", "owner")
    require(28, not (split and ex.weight_offload), "split weights stay")
    if ex.mesh_order == "stated":
        return
    largest = max(network.size for network in run.system.networks)
    require_fit(29, ex.num_procs <= largest, "the largest network is too small")
    require_fit(29, ex.num_procs <= places(run.levels), "groups leave too many processors unused")


def _check_contexts(run: Run) -> None:
    """Check how sequences are split over ranks."""
    model, ex, c = run.model, run.execution, run.execution.context_par
    changed = ("cp_comm", "cp_a2a_size", "cp_kv_replicate", "cp_balance", "cp_skip")
    plain = all(getattr(ex, name) == OPTIONS[name] for name in changed)
    require(37, c > 1 or plain, "sequences are not split")
    if c == 1:
        return
    both = ex.cp_comm == "a2a_p2p"
    by_heads = ex.cp_comm == "a2a" or both
    require(37, both or ex.cp_a2a_size == 0, "there is one kind of exchange")
    require(37, not both or (ex.cp_a2a_size > 0 and c % ex.cp_a2a_size == 0), "no equal groups")
    require(37, ex.cp_comm in ("p2p", "a2a_p2p") or not ex.cp_skip, "there is no ring")
    near = 0 < model.sliding_window < run.document and ex.cp_balance != "striped"
    require(37, near or not ex.cp_skip, "all parts are needed")
    require(37, ex.cp_balance == "zigzag" or ex.cp_comm != "a2a", "a rank has whole sequences")
    two = 2 if ex.cp_balance == "zigzag" else 1
    require(37, model.seq_size % (two * c) == 0, "ranks have equal parts of a sequence")
    require(37, by_heads or not ex.cp_kv_replicate, "heads are not exchanged")
    if model.linear:
        ranks = c * ex.tensor_par
        heads = {"gated_delta": model.linear_key_heads, "mamba2": model.ssm_heads}
        own = heads.get(model.linear_attention, model.attn_heads)
        require(37, own % ranks == 0, "states of whole sequences are of whole heads")
        groups = model.ssm_groups if model.linear_attention == "mamba2" else 1
        require(37, groups % ranks == 0 or ranks % groups == 0, "so are groups")
    if not model.scores:
        return
    require(37, ex.cp_comm == "a2a" or ex.attn_impl == "flash", "scores are in memory")
    split = run.head_ranks
    if split == ex.tensor_par:
        require(37, not ex.cp_kv_replicate, "heads are not exchanged")
        return
    keys = 1 if ex.attention_type == "multiquery" else model.key_heads
    require(37, model.attn_heads % split == 0, "every rank has as many heads")
    copies = ex.cp_kv_replicate and split > keys and split % keys == 0
    require(37, copies or (keys % split == 0 and not ex.cp_kv_replicate), "so it has of keys")
    again = set(ex.recompute_modules.split("+")) & {"ops", "mla_up_proj"}
    require(37, not again, "what was exchanged stays")


def _check_experts(run: Run) -> None:
    """Check how experts are spread over ranks."""
    model, ex = run.model, run.execution
    ranks, width, t = run.expert_ranks, run.width_par, run.execution.tensor_par
    if not (model.mixes and model.num_experts > 1):
        fields = ("expert_par", "expert_tensor_par", "moe_dispatcher", "moe_capacity_percent")
        plain = all(getattr(ex, name) == OPTIONS[name] for name in fields)
        require(35, plain, "there are no experts")
    spread, padded = ex.expert_par > 1, ex.moe_pad_to_capacity
    balanced, most = ex.moe_imbalance_percent == 100, 100 * ex.expert_par
    require(35, balanced or not padded, "all ranks have as many rows")
    require(35, ex.moe_imbalance_percent <= most, "more than all rows are on one rank")
    require(35, ex.moe_capacity_percent > 0 or not padded, "there is no capacity")
    exchanged = spread and ex.moe_dispatcher != "allgather"
    for name in (ex.dispatch_dtype, ex.combine_dtype):
        narrow = {"same": 0, "bfloat16": 2, "float8": 1 + 4 / 128}[name] < run.result_bytes
        require(35, name == "same" or (exchanged and narrow), "nothing is sent in fewer bytes")
    if not (model.mixes and model.num_experts > 1):
        return
    require(35, t % width == 0, "parts of experts stay in tensor groups")
    require(35, model.num_experts % ex.expert_par == 0, "experts are not cut")
    require(35, model.inner_width % width == 0, "widths of experts divide")
    require(35, t * run.data_ranks % ranks == 0, "groups of experts are made of whole replicas")
    if ex.mesh_order != "stated":
        inner = t * ex.context_par
        shards = max(inner, t * ex.dp_shard)
        around = ranks % inner == 0 and (ranks % shards == 0 or shards % ranks == 0)
        around = around and ex.mesh_order == "tp-dp-pp"
        inside = inner % ranks == 0 and (t % ranks == 0 or ranks % t == 0)
        require(35, inside or around, "groups of experts nest with others")
    if ex.moe_dispatcher in LIBRARIES:
        require(35, spread and width == 1 and not padded, "whole experts get copies of tokens")
        used = run.ep_team.group.used
        torus = any(run.system.networks[number].torus is not None for number in used)
        require(35, not torus, "ranks have ports")
    same = ex.expert_par == 1 and width == t
    require(35, same or t == 1 or run.sequence_par, "each rank sends its own tokens")


def _check_packed(run: Run) -> None:
    """Check what sequences of several documents need."""
    model, ex = run.model, run.execution
    several, slowest = ex.packed_percent < 100, ex.pack_imbalance_percent
    if several:
        require(38, model.scores and ex.attn_impl == "flash", "a kernel knows documents")
    require(38, several or slowest == 100, "sequences are the same work")
    last = 2 - 1 / ex.context_par if ex.cp_comm == "all_gather" else 1
    require(38, ex.packed_percent * slowest <= last * 100**2, "a document ends with its sequence")


def _check_overlap(run: Run) -> None:
    """Check what hides the exchange of experts."""
    model, ex = run.model, run.execution
    v, p = ex.pipeline_interleaving, ex.pipeline_par
    exchanged = ex.expert_par > 1 and ex.moe_dispatcher != "allgather"
    beside = ex.ep_overlap != "none"
    require(36, exchanged or not (beside or ex.moe_shared_overlap), "nothing is exchanged")
    if ex.moe_shared_overlap:
        require(36, model.shared_feedforward > 0, "there are no shared experts")
        require(36, not model.moe_latent, "latents are made between router and dispatch")
        again = "shared_experts" in ex.recompute_modules
        require(36, not (beside or again), "shared experts run beside the exchange")
    require(36, ex.ep_overlap == "1f1b" or not ex.delay_wgrad, "nothing is delayed")
    if ex.ep_overlap == "two_batch":
        half, odd = divmod(ex.microbatch_size, 2)
        require(36, not odd, "microbatches have two halves")
        even = half * model.seq_size % (ex.tensor_par * ex.context_par) == 0
        require(36, even or ex.tensor_par_comm_type == "ar", "tokens of halves split evenly")
    listed = exchanged and ex.pp_schedule.startswith("dualpipe")
    require(36, ex.ep_overlap == "1f1b" or not listed, "pairs are listed")
    if ex.ep_overlap != "1f1b":
        return
    wide = ex.datatype == "float32"
    again = run.full_recompute or "moe" in ex.recompute_modules.split("+")
    require(36, ex.training and not wide and not again, "passes are paired")
    require(36, model.mtp_layers <= 1, "one further token at most")
    several = p == 1 or v > 1
    paired = several if ex.pp_schedule == "1f1b" else ex.pp_schedule.startswith("dualpipe")
    require(36, paired, "a stage has several chunks, or a list of pairs")
    require(36, not (ex.weight_offload or ex.activations_offload), "pairs stay")
    once = ex.zero_stage in ("auto", "0", "1") and ex.no_sync
    require(36, once, "replicas wait for the last microbatch")
    count = ex.batch_size // (ex.data_par * ex.microbatch_size)
    require(36, count * v > (v - 1) * p + 1, "some passes are paired")


def _check_linear(run: Run) -> None:
    """Check heads of states, and blocks that are parts."""
    model, ex = run.model, run.execution
    t = ex.tensor_par
    heads = {"gated_delta": model.linear_key_heads, "mamba2": model.ssm_heads}
    if model.linear:
        require(19, heads.get(model.linear_attention, t) % t == 0, "states are of whole heads")
    if model.linear and model.linear_attention == "mamba2":
        groups = model.ssm_groups
        require(19, groups % t == 0 or t % groups == 0, "groups are whole")
    if model.layer_pattern:
        require(18, ex.tensor_par_comm_type != "p2p_rs_ag", "a part has one reduction")
        require(36, ex.ep_overlap == "none", "parts have no other part")


def _check_division(run: Run) -> None:
    model, ex = run.model, run.execution
    chunks, t = ex.pipeline_interleaving, ex.tensor_par
    blocks = -(-model.num_blocks // ex.pipeline_par)
    require_fit(15, chunks <= blocks, "there are more chunks than blocks")
    require_fit(
        16, states_stages(ex) or blocks % chunks == 0, "chunks must divide the blocks evenly"
    )
    offload = ex.weight_offload or ex.activations_offload or ex.optimizer_offload
    require_fit(17, not offload or blocks >= 3, "offloading takes three blocks or more")
    split = ex.tensor_par_comm_type != "ar"
    require(18, not split or run.tokens % t == 0, "tokens must split evenly")
    attends = model.scores or (model.linear and model.linear_attention == "lightning")
    widens = model.part != "attention"
    dense = any(not kind.mixes for kind in model.kinds())
    if model.layer_pattern:
        dense = "-" in model.layer_pattern
        widens = dense or "E" in model.layer_pattern
    _check_linear(run)
    for size, there in (
        (model.hidden, True),
        (model.inner_width, widens and not ex.expert_tensor_par),
        (model.feedforward, widens and dense),
        (model.shared_feedforward, model.mixes),
        (model.attn_heads, attends),
    ):
        require(19, size % t == 0 or not there, f"tensor parallelism must divide {size}")
    groups = model.kv_heads not in (0, 1, model.attn_heads)
    one = ex.attention_type == "multiquery"
    require(31, not (groups and one), "the model has more heads than one")
    if model.kv_lora_rank and attends:
        require(31, not one, "every head of a latent is different")
        tiled = ex.tensor_par_overlap != "none" or ex.tp_impl != "megatron"
        require(23, not tiled, "latents are made of the tokens of a rank")
        sent = ex.tensor_par_comm_type == "p2p_rs_ag"
        require(23, not sent, "stages do not send latents")
        require(5, ex.recompute_modules != "ops", "which products of latents are kept is open")
    if model.mtp_layers:
        require(23, ex.tensor_par_overlap == "none", "the output of a module is one piece")
        require(23, ex.tp_impl == "megatron", "embeddings are whole on every rank")
    shared = model.key_heads % t == 0 or t % model.key_heads == 0
    published = ex.edition == "sc23"
    require(31, shared or not attends or published, "key heads must divide")
