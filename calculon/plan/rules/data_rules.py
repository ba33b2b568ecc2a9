"""Rules of data parallelism: ZeRO stages, FSDP, hybrid sharding and gradient buffers."""

import numpy as np

from calculon.base.errors import Problem
from calculon.base.units import Array
from calculon.declarations.named_values import SPLIT_WEIGHTS, ZERO_STAGES
from calculon.plan.columns import DEFAULTS, FIELDS, code, field_of
from calculon.plan.mesh import data_ranks, expert_ranks
from calculon.plan.plan import Plan
from calculon.plan.rules.rule import Request, Requests, Rule, expected
from calculon.plan.stage_layout import listed_counts, own_stages

_CODES = {name: code("zero_stage", name) for name in ZERO_STAGES}
_REPLICATED = ("auto", "0")
_SPLIT = tuple(name for name in ZERO_STAGES if name not in _REPLICATED)


NEEDING: tuple[str, ...] = tuple(
    field.name
    for field in FIELDS
    if "zero_stage" in field.declaration.needs and field.name != "grad_buffer"
)
"""Fields that need certain forms of data parallelism."""


def _is_one_of(r: Requests, *stages: str) -> Array:
    return np.isin(r.plan.zero_stage, [_CODES[name] for name in stages])


def _explain_state(one: Request) -> Problem:
    stage = one.execution.zero_stage
    wanted = "false, since nothing is split" if stage == "0" else "true, since its state is split"
    found = str(one.execution.optimizer_sharding).lower()
    return Problem("optimizer_sharding", f"{wanted} with zero_stage: {stage}", found)


def _needs(name: str) -> Rule:
    """Create the rule that a field needs a certain form of data parallelism."""
    declared = field_of(name).declaration
    forms: tuple[str, ...] = tuple(declared.needs["zero_stage"])

    def holds(r: Requests) -> Array:
        plain: Array = getattr(r.plan, name) == DEFAULTS[name]
        return plain | _is_one_of(r, *forms)

    def explain(one: Request) -> Problem:
        default = str(DEFAULTS[name]).lower()
        wanted = f"{default} with zero_stage: {one.execution.zero_stage}"
        found = str(getattr(one.execution, name)).lower()
        return Problem(name, wanted, found, f"{declared.why}: zero_stage {', '.join(forms)}")

    return Rule(f"{name}_needs_form", holds, explain, (name,))


def _shards_divide(r: Requests) -> Array:
    shards = r.plan.dp_shard
    divides = (shards > 1) & (data_ranks(r.plan) % np.maximum(shards, 1) == 0)
    return (shards == 0) | (divides & (shards % r.plan.context_par == 0))


def _explain_shards(one: Request) -> Problem:
    e = one.execution
    if e.context_par == 1:
        wanted = f"0, or a divisor of data_par={e.data_par} above 1"
        return Problem("dp_shard", wanted, str(e.dp_shard))
    every = e.context_par * e.data_par
    wanted = (
        f"0, or a divisor of context_par x data_par = {every} that is a multiple of context_par="
        f"{e.context_par}"
    )
    return Problem(
        "dp_shard", wanted, str(e.dp_shard), "context-parallel ranks share the state, too"
    )


def _explain_owners(one: Request) -> Problem:
    e = one.execution
    parts = f"such that context_par={e.context_par} x data_par is " if e.context_par > 1 else ""
    wanted = f"{parts}a divisor of the {one.blocks} blocks of a stage, which ranks own whole"
    return Problem("data_par", wanted, str(e.data_par))


def _units_divide(r: Requests) -> Array:
    chunks = r.plan.pipeline_interleaving
    chunk = np.floor(r.blocks / chunks)
    # Chunks of stated layouts may differ by a block, so only units of one block always divide them.
    if (stated := own_stages(r.plan) & (chunks > 1)).any():
        chunk = np.where(stated, 1, chunk)
    if (listed := r.plan.stage_blocks).any():
        chunk = np.where(listed > 0, listed_counts(listed).divisor, chunk)
    return np.mod(chunk, r.plan.fsdp_unit) == 0


def _expert_ranks(one: Request) -> int:
    return int(expert_ranks(Plan.of(one.execution)).item())


def _explain_expert_shards(one: Request) -> Problem:
    e, ranks = one.execution, _expert_ranks(one)
    wanted = (
        f"such that expert_par x expert_tensor_par = {ranks} divides tensor_par x dp_shard = "
        f"{e.tensor_par * e.dp_shard}"
    )
    return Problem(
        "dp_shard", wanted, str(e.dp_shard), "experts are sharded over whole groups, too"
    )


def _explain_expert_replicas(one: Request) -> Problem:
    e, ranks = one.execution, _expert_ranks(one)
    wanted = (
        f"tp-dp-pp, since replicas of experts on {ranks} ranks are inside of tensor groups of {e.tensor_par} and "
        "on the other side of the pipeline"
    )
    hint = "or expert_par x expert_tensor_par equal to tensor_par"
    return Problem("mesh_order", wanted, e.mesh_order, hint)


_EXPERT_DEGREES = ("expert_par", "expert_tensor_par")

_FORM = ("zero_stage",)

UNIT_RULES: tuple[Rule, ...] = (
    Rule(
        "dp_shard_split",
        _shards_divide,
        _explain_shards,
        ("dp_shard",),
        counted=True,
    ),
    Rule(
        "expert_shards_split",
        lambda r: (
            (r.plan.dp_shard == 0)
            | np.array(not r.model.mixes)
            | (r.plan.tensor_par * r.plan.dp_shard % expert_ranks(r.plan) == 0)
        ),
        _explain_expert_shards,
        _EXPERT_DEGREES,
        counted=True,
    ),
    Rule(
        "expert_replicas_apart",
        lambda r: (
            np.array(not r.model.mixes)
            | ~r.plan.is_choice("mesh_order", "tp-pp-dp")
            | (r.plan.pipeline_par == 1)
            | (r.plan.data_par == 1)
            | (r.plan.context_par > 1)
            | (expert_ranks(r.plan) == r.plan.tensor_par)
            | (r.plan.tensor_par % expert_ranks(r.plan) > 0)  # the rule expert_mesh refuses these
        ),
        _explain_expert_replicas,
        _EXPERT_DEGREES,
        counted=True,
    ),
    Rule(
        "fsdp_unit_split",
        _units_divide,
        expected("fsdp_unit", "a divisor of the {chunk} blocks of a chunk of a pipeline stage"),
        ("fsdp_unit",),
        counted=True,
    ),
    Rule(
        "owner_split",
        lambda r: ~_is_one_of(r, "owner") | (np.mod(r.blocks, data_ranks(r.plan)) == 0),
        _explain_owners,
        _FORM,
        counted=True,
    ),
    Rule(
        "owner_experts",
        lambda r: (
            np.array(not r.model.mixes)
            | ~_is_one_of(r, "owner")
            | (expert_ranks(r.plan) >= r.plan.tensor_par)
        ),
        expected(
            "zero_stage",
            "another one, since experts have more replicas than the blocks of a stage have owners",
            "with zero_stage: owner, expert_par x expert_tensor_par is tensor_par={e.tensor_par} or more",
        ),
        _EXPERT_DEGREES,
        counted=True,
    ),
    Rule(
        "whole_weights_offload",
        lambda r: ~(r.plan.weight_offload & _is_one_of(r, *SPLIT_WEIGHTS)),
        expected("weight_offload", "false with zero_stage: {e.zero_stage}, which splits weights"),
        _FORM,
        counted=True,
    ),
)
"""Requirements that depend on degrees and sizes."""

REPLICA_RULES: tuple[Rule, ...] = (
    Rule(
        "zero_stage_data_par",
        lambda r: (data_ranks(r.plan) > 1) | ~_is_one_of(r, *_SPLIT),
        expected("zero_stage", "auto or 0, since data_par is {e.data_par}"),
        _FORM,
    ),
    Rule(
        "zero_stage_training",
        lambda r: r.plan.training | _is_one_of(r, "auto"),
        expected("zero_stage", "auto, since nothing is trained in inference"),
        _FORM,
    ),
    Rule(
        "zero_stage_sharding",
        lambda r: _is_one_of(r, "auto") | (_is_one_of(r, *_SPLIT) == r.plan.optimizer_sharding),
        _explain_state,
        _FORM,
    ),
    *(_needs(name) for name in NEEDING),
    Rule(
        "grad_buffer_auto",
        lambda r: r.plan.is_choice("grad_buffer", "sharded") | _is_one_of(r, "auto", "0", "1"),
        expected(
            "grad_buffer",
            "sharded, since zero_stage: {e.zero_stage} splits gradients",
            "zero_stage 0 and 1 do not shard them",
        ),
        _FORM,
    ),
    Rule(
        "latency_once",
        lambda r: ~r.plan.latency_per_step | r.plan.is_choice("coll_algo", "published"),
        expected("latency_per_step", "false with coll_algo: {e.coll_algo}, which pays it anyway"),
        ("latency_per_step",),
    ),
)
"""Requirements on data parallelism, in the order of checking."""
