"""Whether an execution may run.  The first requirement that fails decides.

Rules 21 and 22, that the memories suffice, follow in `batch`; that the curves of the system cover
a size (part of rule 20) shows when it is looked up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from math import gcd, prod
from typing import Any

from .errors import require, require_fit
from .fields import CHOICES, MULTIPLIED_BYTES, OPTIONS, Execution, Model
from .mesh import places
from .rules import EDITIONS, Rules
from .run import Run
from .stages import counts_of, ends_as_blocks
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
    _check_request(ex)
    _check_products(ex, shape)
    _check_optimizer(ex)
    halves = shape.part == "block" and not shape.parallel_attention
    require(5, halves or ex.recompute_modules == "none", "no attention, and then an MLP")
    _check_replicas(ex)
    _check_networks(ex, hardware)
    _check_stages(ex, shape)
    run = Run(shape, ex, hardware, rules or EDITIONS[ex.edition])
    _check_shares(run)
    _check_division(run)
    for engine in (hardware.matrix, hardware.vector):
        require(20, ex.datatype in engine, "the system lacks the datatype")
    wide = MULTIPLIED_BYTES[run.multiply_type] > run.element_bytes
    require(30, not wide, "products read no more than is stored")
    require(30, run.multiply_type in hardware.multiply, "the system does not multiply this type")
    if ex.attn_kernel != "auto":
        require(34, ex.attn_impl == "flash", "only flash attention is a kernel")
        fused = hardware.fused.get(run.core_type)
        known = fused is not None and ex.attn_kernel in fused["kernels"]
        require(34, known, "the system has constants of the kernel")
    return run


def _check_request(ex: Execution) -> None:
    degrees = (ex.tensor_par, ex.pipeline_par, ex.data_par)
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
    require(7, not ex.optimizer_sharding or ex.data_par > 1, "there is nothing to shard over")
    overlap = ex.tensor_par_overlap != "none"
    require(8, not overlap or ex.tensor_par > 1, "there is no communication to overlap")
    stores = recompute != "full" or ex.recompute_every > 1
    redo_fits = ex.tensor_par_comm_type == "rs_ag" and stores
    require(9, not ex.seq_par_ag_redo or redo_fits, "there is nothing to gather again")
    gradients = ex.training and ex.data_par > 1
    modules, every = ex.recompute_modules != "none", ex.recompute_every
    require(5, not modules or (ex.training and recompute != "full"), "recomputed twice, or never")
    plain = ex.tp_impl == "megatron" and ex.matmul_impl == "gemm"
    require(5, not modules or plain, "products of another form")
    again = (recompute != "none" or modules) and not ex.activations_offload
    require(5, every > 0 and (every == 1 or again), "there is nothing to recompute")
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
    if ex.mesh_order != "stated":
        return
    for number in (ex.tensor_par_net, ex.pipeline_par_net, ex.data_par_net):
        require(12, 0 <= number < len(system.networks), f"there is no network {number}")
    assigned = (
        (ex.tensor_par_net, ex.tensor_par),
        (ex.pipeline_par_net, ex.pipeline_par),
        (ex.data_par_net, ex.data_par),
    )
    for index, network in enumerate(system.networks):
        degrees = [degree for net, degree in assigned if net == index and degree > 1]
        if degrees:
            used = prod(degrees)
            require_fit(13, used <= network.size, f"network {index} is too small")
            filled = network.size % used == 0 or ex.edition != "sc23"
            require_fit(13, filled or not network.must_be_filled, f"network {index} is not filled")


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


def _check_replicas(ex: Execution) -> None:
    """Forms of data parallelism."""
    if ex.zero_stage != "auto":
        require(24, ex.data_par > 1 or ex.zero_stage == "0", "there is nothing to share")
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
    "ddp_bucket_mib": ("0", "1", "2"),
    "no_sync": ("0", "1"),
    "overlap_param_gather": ("1", "2"),
    "grad_sums": ("0", "1", "2"),
    "grad_group": ("2",),
}
"""What some forms of data parallelism have alone."""


def _check_stages(ex: Execution, model: Model) -> None:
    """Schedule and layout of a pipeline."""
    first, last = ex.first_stage_blocks, ex.last_stage_blocks
    layout = ex.pp_layout != "uniform" or first > 0 or last > 0
    stated = layout or ex.pp_schedule != "1f1b"
    p = ex.pipeline_par
    require(27, p > 1 or not (stated or ex.p2p_overlap), "there is no pipeline")
    single = ex.pp_schedule == "1f1b" or ex.pipeline_interleaving == 1
    require(27, single, "stages have one chunk")
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
        due = (chunks or ex.pp_schedule == "gpipe") if ex.training else not chunks
        enough = ex.batch_size // (ex.data_par * ex.microbatch_size) >= p
        require(27, due and enough, "nothing else is due during a transfer")


def _check_shares(run: Run) -> None:
    """Whether shards, units and owners come out even, and groups of a mesh."""
    ex, blocks = run.execution, -(-run.model.num_blocks // run.execution.pipeline_par)
    even = ex.dp_shard == 0 or (ex.dp_shard > 1 and ex.data_par % ex.dp_shard == 0)
    require(28, even, "shards must divide the replicas")
    chunk = gcd(*counts_of(ex)) or blocks // ex.pipeline_interleaving
    if ex.pipeline_interleaving > 1 and run.layout is not None and not ex.stage_blocks:
        chunk = 1  # chunks differ by a block
    require(28, chunk % ex.fsdp_unit == 0, "units must divide a chunk")
    owned = ex.zero_stage == "owner"
    require(28, not owned or blocks % ex.data_par == 0, "owners have whole layers")
    split = ex.zero_stage in ("3", "fsdp", "owner")
    require(28, not (split and ex.weight_offload), "split weights stay")
    if ex.mesh_order == "stated":
        return
    largest = max(network.size for network in run.system.networks)
    require_fit(29, ex.num_procs <= largest, "the largest network is too small")
    require_fit(29, ex.num_procs <= places(run.levels), "groups leave too many processors unused")


def _check_division(run: Run) -> None:
    model, ex = run.model, run.execution
    chunks, t = ex.pipeline_interleaving, ex.tensor_par
    blocks = -(-model.num_blocks // ex.pipeline_par)
    require_fit(15, chunks <= blocks, "there are more chunks than blocks")
    require_fit(
        16, run.layout is not None or blocks % chunks == 0, "chunks must divide the blocks evenly"
    )
    offload = ex.weight_offload or ex.activations_offload or ex.optimizer_offload
    require_fit(17, not offload or blocks >= 3, "offloading takes three blocks or more")
    split = ex.tensor_par_comm_type != "ar"
    require(18, not split or run.tokens % t == 0, "tokens must split evenly")
    attends, widens = model.part in ("block", "attention"), model.part != "attention"
    for size, there in (
        (model.hidden, True),
        (model.feedforward, widens),
        (model.attn_heads, attends),
    ):
        require(19, size % t == 0 or not there, f"tensor parallelism must divide {size}")
    groups = model.kv_heads not in (0, 1, model.attn_heads)
    one = ex.attention_type == "multiquery"
    require(31, not (groups and one), "the model has more heads than one")
    shared = model.key_heads % t == 0 or t % model.key_heads == 0
    published = ex.edition == "sc23"
    require(31, shared or not attends or published, "key heads must divide")
