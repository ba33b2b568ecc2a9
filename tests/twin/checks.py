"""Whether an execution may run.  The first requirement that fails decides.

Rules 21 and 22, that the memories suffice, follow in `batch`; that the curves of the system cover
a size (part of rule 20) shows when it is looked up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from math import prod
from typing import Any

from .errors import require, require_fit
from .optimizer import OPERATIONS
from .rules import EDITIONS, Rules
from .run import BYTES_PER_ELEMENT, Execution, Model, Run
from .system import System

CHOICES = {
    "attention_type": ("multihead", "multiquery"),
    "activation_recompute": ("full", "attn_only", "none"),
    "tensor_par_comm_type": ("ar", "p2p_rs_ag", "rs_ag"),
    "tensor_par_overlap": ("none", "ring", "pipe"),
    "edition": tuple(EDITIONS),
    "attn_impl": ("eager",),  # what the twin knows
    "ce_impl": ("eager", "fused"),
    "grad_buffer": ("sharded", "full"),
    "grad_comm_dtype": ("same", *BYTES_PER_ELEMENT),
    "optimizer": tuple(OPERATIONS),  # what the twin knows
    "optimizer_impl": ("fused", "foreach", "loop"),
    "optimizer_state_dtype": ("float32", "bfloat16"),
    "grad_dtype": ("auto", "float32", "bfloat16", "float16"),
}


def checked_run(
    model: Mapping[str, Any],
    execution: Mapping[str, Any],
    system: Mapping[str, Any],
    rules: Rules | None = None,
) -> Run:
    """Read the contents of the three files and check what they ask for.

    The rules are those of the edition that the execution names, unless others are given.
    """
    options = {field.name for field in fields(Execution) if field.default is not MISSING}
    odd = {field.name for field in fields(Execution)} ^ (set(execution) | options)
    require(1, not odd, f"missing or unknown fields: {sorted(odd)}")
    ex, hardware = Execution(**execution), System.of(system)
    require(4, ex.edition in EDITIONS, "unknown edition")
    extended = any(getattr(ex, name) != getattr(Execution, name) for name in options)
    asked = rules is not None or ex.edition != "sc23"
    require(1, asked or not extended, "the published edition has no options")
    _check_request(ex, len(hardware.networks))
    _check_networks(ex, hardware)
    require(14, ex.datatype in BYTES_PER_ELEMENT, "unknown datatype")
    # The fields of a model that are not ours are ignored.
    shape = Model(**{field.name: model[field.name] for field in fields(Model)})
    run = Run(shape, ex, hardware, rules or EDITIONS[ex.edition])
    _check_division(run)
    for engine in (hardware.matrix, hardware.vector):
        require(20, ex.datatype in engine, "the system lacks the datatype")
    return run


def _check_request(ex: Execution, num_networks: int) -> None:
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
    redo_fits = ex.tensor_par_comm_type == "rs_ag" and recompute != "full"
    require(9, not ex.seq_par_ag_redo or redo_fits, "there is nothing to gather again")
    gradients = ex.training and ex.data_par > 1
    require(10, not ex.data_par_overlap or gradients, "there are no gradients to overlap")
    require(11, not ex.optimizer_offload or ex.training, "there is no optimizer to offload")
    short = ex.optimizer_state_dtype != "float32"
    require(4, not short or ex.optimizer in ("adam", "lion", "sgd_momentum"), "no such moments")
    small = ex.grad_dtype in ("bfloat16", "float16")
    require(4, small or not ex.main_grad, "there are no smaller gradients to copy")
    for network in (ex.tensor_par_net, ex.pipeline_par_net, ex.data_par_net):
        require(12, 0 <= network < num_networks, f"there is no network {network}")


def _check_networks(ex: Execution, system: System) -> None:
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
            filled = network.size % used == 0
            require_fit(13, filled or not network.must_be_filled, f"network {index} is not filled")


def _check_division(run: Run) -> None:
    model, ex = run.model, run.execution
    chunks, t = ex.pipeline_interleaving, ex.tensor_par
    require_fit(15, chunks <= run.blocks, "there are more chunks than blocks")
    require_fit(16, run.blocks % chunks == 0, "chunks must divide the blocks evenly")
    offload = ex.weight_offload or ex.activations_offload or ex.optimizer_offload
    require_fit(17, not offload or run.blocks >= 3, "offloading takes three blocks or more")
    split = ex.tensor_par_comm_type != "ar"
    require(18, not split or run.tokens % t == 0, "tokens must split evenly")
    for size in (model.hidden, model.feedforward, model.attn_heads):
        require(19, size % t == 0, f"tensor parallelism must divide {size}")
