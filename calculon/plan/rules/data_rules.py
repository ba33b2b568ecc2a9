"""What makes a form of data parallelism valid."""

import numpy as np

from calculon.errors import Problem
from calculon.plan.columns import DEFAULTS, FIELDS, code, field_of
from calculon.plan.rules.rule import Request, Requests, Rule, expected
from calculon.plan.stage_layout import listed_counts, own_stages
from calculon.spec.execution import ZERO_STAGES
from calculon.units import Array

_CODES = {name: code("zero_stage", name) for name in ZERO_STAGES}
_REPLICATED = ("auto", "0")
_SPLIT = tuple(name for name in ZERO_STAGES if name not in _REPLICATED)
_SPLIT_WEIGHTS = ("3", "fsdp", "owner")


NEEDING: tuple[str, ...] = tuple(
    field.name
    for field in FIELDS
    if "zero_stage" in field.declaration.needs and field.name != "grad_buffer"
)
"""Fields that only some forms of data parallelism have."""


def _is_one_of(r: Requests, *stages: str) -> Array:
    return np.isin(r.plan.zero_stage, [_CODES[name] for name in stages])


def _explain_state(one: Request) -> Problem:
    stage = one.execution.zero_stage
    wanted = "false, since nothing is split" if stage == "0" else "true, since its state is split"
    found = str(one.execution.optimizer_sharding).lower()
    return Problem("optimizer_sharding", f"{wanted} with zero_stage: {stage}", found)


def _needs(name: str) -> Rule:
    """Make the rule that a field goes with the form of data parallelism."""
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
    divides = (shards > 1) & (r.plan.data_par % np.maximum(shards, 1) == 0)
    return (shards == 0) | divides


def _units_divide(r: Requests) -> Array:
    chunks = r.plan.pipeline_interleaving
    chunk = np.floor(r.blocks / chunks)
    if (stated := own_stages(r.plan) & (chunks > 1)).any():  # chunks that differ by a block
        chunk = np.where(stated, 1, chunk)
    if (listed := r.plan.stage_blocks).any():
        chunk = np.where(listed > 0, listed_counts(listed).divisor, chunk)
    return np.mod(chunk, r.plan.fsdp_unit) == 0


_FORM = ("zero_stage",)

UNIT_RULES: tuple[Rule, ...] = (
    Rule(
        "dp_shard_split",
        _shards_divide,
        expected("dp_shard", "0, or a divisor of data_par={e.data_par} above 1"),
        ("dp_shard",),
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
        lambda r: ~_is_one_of(r, "owner") | (np.mod(r.blocks, r.plan.data_par) == 0),
        expected("data_par", "a divisor of the {blocks} blocks of a stage, which ranks own whole"),
        _FORM,
        counted=True,
    ),
    Rule(
        "whole_weights_offload",
        lambda r: ~(r.plan.weight_offload & _is_one_of(r, *_SPLIT_WEIGHTS)),
        expected("weight_offload", "false with zero_stage: {e.zero_stage}, which splits weights"),
        _FORM,
        counted=True,
    ),
)
"""Requirements that depend on degrees and sizes."""

REPLICA_RULES: tuple[Rule, ...] = (
    Rule(
        "zero_stage_data_par",
        lambda r: (r.plan.data_par > 1) | ~_is_one_of(r, *_SPLIT),
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
            "zero_stage 0 and 1 leave them whole",
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
