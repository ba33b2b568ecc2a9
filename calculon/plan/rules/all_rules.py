"""All rules for valid executions, in the order of checking.

The first rule that fails determines the reason of a row. A rule concerns either the request itself (its explanation is
a :class:`~calculon.base.errors.Problem`: malformed) or whether it can run on the system (text: infeasible).
"""

from functools import reduce
from math import isnan, nan, prod
from typing import Any

import numpy as np

from calculon.architecture.shape import sequence_lengths
from calculon.base.errors import Infeasible, Problem, SpecError
from calculon.base.units import Array, Bytes, chance, scaled
from calculon.declarations.axes import MESH_AXES, PUBLISHED_AXES
from calculon.declarations.model import Model
from calculon.declarations.named_values import CORRECTED, DATATYPE_BYTES, PUBLISHED
from calculon.declarations.statistics import MEMORIES
from calculon.editions import EDITIONS
from calculon.hardware.system import System
from calculon.plan.columns import PLAIN, divisors
from calculon.plan.mesh import data_ranks, processors
from calculon.plan.plan import NAMES, Plan
from calculon.plan.rules.data_rules import REPLICA_RULES, UNIT_RULES
from calculon.plan.rules.expert_rules import EXPERT_NETWORK_RULES, EXPERT_RULES, OVERLAP_RULES
from calculon.plan.rules.model_rules import (
    LATENT_RULES,
    LINEAR_RULES,
    MODULE_RULES,
    PREDICTION_RULES,
    stores_some_blocks,
)
from calculon.plan.rules.network_rules import FURTHER_RULES, MESH_RULES, NETWORK_RULES
from calculon.plan.rules.pipeline_rules import STAGE_RULES
from calculon.plan.rules.precision_rules import OPTIMIZER_RULES, PRECISION_RULES, RECIPE_RULES
from calculon.plan.rules.preset_rules import PRESET_RULES
from calculon.plan.rules.rule import Request, Requests, Rule, expected
from calculon.plan.rules.sequence_rules import CONTEXT_NETWORK_RULES, CONTEXT_RULES, PACKED_RULES
from calculon.plan.rules.tensor_rules import TENSOR_RULES
from calculon.plan.stage_layout import own_stages


def _explain_product(one: Request) -> Problem:
    e = one.execution
    names = [
        axis.degree for axis in MESH_AXES if axis in PUBLISHED_AXES or getattr(e, axis.degree) > 1
    ]
    degrees = [getattr(e, name) for name in names]
    product = prod(degrees)
    return Problem(
        "num_procs",
        f"{' x '.join(names)} = {' x '.join(map(str, degrees))} = {product}",
        str(e.num_procs),
        f"set num_procs to {product}, or change a degree",
    )


def _explain_batch(one: Request) -> Problem:
    e = one.execution
    nearby = max(1, e.batch_size // e.data_par) * e.data_par
    return Problem(
        "batch_size", f"a multiple of data_par={e.data_par}", str(e.batch_size), f"{nearby} is one"
    )


def _explain_microbatch(one: Request) -> Problem:
    e = one.execution
    local = e.batch_size // e.data_par
    nearby = max(d for d in divisors(local) if d <= max(e.microbatch_size, 1))
    wanted = f"a divisor of batch_size / data_par = {local}"
    return Problem("microbatch_size", wanted, str(e.microbatch_size), f"{nearby} is one")


_OF_PART = {"attn_heads": "attends"}
"""Width fields of a model that only some parts of a block have, with the field that tells whether it has them."""


def _divides_model(field: str) -> Rule:
    """Create the rule that tensor parallelism divides a width of the model."""

    def holds(r: Requests) -> Array:
        if not getattr(r.model, _OF_PART.get(field, "hidden")):
            return np.array(True)
        return getattr(r.model, field) % r.plan.tensor_par == 0

    wanted = f"a divisor of the model's {field}={{model.{field}}}"
    return Rule(f"{field}_split", holds, expected("tensor_par", wanted))


def _inner_widths(model: Model) -> dict[str, int]:
    """Return the inner widths of blocks by field: of the MLP, of routed experts, and of shared experts."""
    if not model.feeds_forward:
        return {}
    own = model.has_experts and model.expert_feedforward
    widths = {"expert_feedforward" if own else "feedforward": model.inner_width}
    if model.mixes_kinds:
        widths["feedforward"] = model.feedforward
    if model.has_experts and model.shared_feedforward:
        widths["shared_feedforward"] = model.shared_feedforward
    return widths


def _inner_widths_split(r: Requests) -> Array:
    masks = [
        (width % r.plan.tensor_par == 0) | _split_by_itself(r.model, name, r.plan.expert_tensor_par)
        for name, width in _inner_widths(r.model).items()
    ]
    return np.logical_and.reduce(masks) if masks else np.array(True)


def _split_by_itself(model: Model, name: str, stated: Any) -> Any:
    """Return a mask for inner widths of experts with their own degree of tensor parallelism, which have a rule."""
    return (stated > 0) & (model.mixes and name != "shared_feedforward")


def _explain_inner_widths(one: Request) -> Problem:
    degree, stated = one.execution.tensor_par, one.execution.expert_tensor_par
    wrong = (
        f"{name}={w}"
        for name, w in _inner_widths(one.model).items()
        if w % degree and not _split_by_itself(one.model, name, stated)
    )
    return Problem("tensor_par", f"a divisor of the model's {next(wrong)}", str(degree))


def _tokens_split(r: Requests) -> Array:
    length = sequence_lengths(r.model, r.plan.seq_length)
    tokens = r.plan.microbatch_size.astype(float) * length
    even = np.mod(tokens, r.plan.tensor_par * r.plan.context_par) == 0
    # If context parallelism does not divide the sequence, another rule reports it.
    parts = np.mod(tokens, r.plan.context_par) == 0
    return r.plan.is_choice("tensor_par_comm_type", "ar") | even | ~parts


def _explain_tokens(one: Request) -> Problem:
    e = one.execution
    tokens = e.microbatch_size * (e.seq_length or one.model.seq_size) // e.context_par
    parts = " / context_par" if e.context_par > 1 else ""
    wanted = f"a divisor of microbatch_size x seq_size{parts} = {tokens}"
    return Problem("tensor_par", wanted, str(e.tensor_par), "or use tensor_par_comm_type: ar")


def _most_tokens(model: Model) -> int:
    """Return the longest sequence that executions may state for a model with learned positions.

    The model's own length always passes, because it is a matter of the model and not of a plan.
    """
    return max(model.positions, model.seq_size)


def _has_positions(r: Requests) -> Array:
    if not r.model.positions:
        return np.array(True)
    return r.plan.seq_length <= _most_tokens(r.model)


def _explain_positions(one: Request) -> Problem:
    model = one.model
    wanted = f"at most {_most_tokens(model)}: {model.name} has {model.positions} learned positions"
    hint = "positions of the model states them"
    return Problem("seq_length", wanted, str(one.execution.seq_length), hint)


def _explain_datatype(one: Request) -> Problem:
    wanted = f"a datatype of both engines of {one.system.name}: {', '.join(one.system.datatypes)}"
    return Problem("datatype", wanted, repr(one.execution.datatype))


def _known_to_edition(r: Requests) -> Array:
    """Return a mask of executions whose edition supports all stated fields of execution and model."""
    published = r.plan.is_choice("edition", PUBLISHED)
    if r.model.extensions:
        return ~published
    asked = [getattr(r.plan, name) != PLAIN[name] for name in r.asked - {"edition"}]
    # reduce instead of logical_or.reduce: columns of a grid broadcast, and have different shapes.
    return ~(published & reduce(np.logical_or, asked)) if asked else np.array(True)


def _explain_edition(one: Request) -> Problem:
    """Return the problem of the first field that the published edition does not support."""
    asked = {k: v for k, v in one.execution.extensions.items() if k != "edition"}
    where, fields = ("", asked) if asked else (f"{one.model.name}: ", one.model.extensions)
    name, value = next(iter(fields.items()))
    return Problem(
        "edition",
        f"{CORRECTED}, which {where}{name}={str(value).lower()} needs",
        PUBLISHED,
        f"add edition: {CORRECTED} to the execution, or --edition {CORRECTED}",
    )


def _kv_heads_split(r: Requests) -> Array:
    heads, degree = r.model.key_value_heads, r.plan.tensor_par
    if heads == r.model.attn_heads or not r.model.attends:
        return np.array(True)  # the rule on attn_heads already checks this
    mask: Array = (heads % degree == 0) | (degree % heads == 0)
    return mask | r.plan.is_choice("edition", PUBLISHED)


RULES: tuple[Rule, ...] = (
    Rule("edition_fields", _known_to_edition, _explain_edition),
    *PRESET_RULES,
    Rule("degrees_product", lambda r: processors(r.plan) == r.plan.num_procs, _explain_product),
    Rule("batch_split", lambda r: r.plan.batch_size % r.plan.data_par == 0, _explain_batch),
    Rule(
        "microbatch_split",
        lambda r: (r.plan.batch_size // r.plan.data_par) % r.plan.microbatch_size == 0,
        _explain_microbatch,
    ),
    Rule(
        "recompute_needs_training",
        lambda r: r.plan.training | r.plan.is_choice("activation_recompute", "none"),
        expected("activation_recompute", "none, since there is no backward pass in inference"),
    ),
    *MODULE_RULES,
    Rule(
        "interleaving_needs_pipeline",
        lambda r: (r.plan.pipeline_par > 1) | (r.plan.pipeline_interleaving == 1),
        expected("pipeline_interleaving", "1, since pipeline_par is 1"),
    ),
    Rule(
        "sharding_needs_data_par",
        lambda r: (data_ranks(r.plan) > 1) | ~r.plan.optimizer_sharding,
        expected("optimizer_sharding", "false, since data_par is 1"),
    ),
    Rule(
        "overlap_needs_tensor_par",
        lambda r: (r.plan.tensor_par > 1) | r.plan.is_choice("tensor_par_overlap", "none"),
        expected("tensor_par_overlap", "none, since tensor_par is 1"),
    ),
    Rule(
        "redo_needs_sequence_parallel",
        lambda r: (
            ~r.plan.seq_par_ag_redo
            | (
                r.plan.is_choice("tensor_par_comm_type", "rs_ag")
                & (~r.plan.is_choice("activation_recompute", "full") | stores_some_blocks(r))
            )
        ),
        expected(
            "seq_par_ag_redo",
            "false, unless tensor_par_comm_type is rs_ag and activation_recompute is not full",
        ),
    ),
    Rule(
        "dp_overlap_needs_training",
        lambda r: ~r.plan.data_par_overlap | (r.plan.training & (data_ranks(r.plan) > 1)),
        expected("data_par_overlap", "false, unless training with data_par above 1"),
    ),
    Rule(
        "optimizer_offload_needs_training",
        lambda r: r.plan.training | ~r.plan.optimizer_offload,
        expected("optimizer_offload", "false, since inference has no optimizer"),
    ),
    *TENSOR_RULES,
    *OPTIMIZER_RULES,
    *REPLICA_RULES,
    *FURTHER_RULES,
    *NETWORK_RULES,
    *CONTEXT_NETWORK_RULES,
    *EXPERT_NETWORK_RULES,
    *STAGE_RULES,
    *UNIT_RULES,
    *MESH_RULES,
    Rule(
        "interleaving_size",
        lambda r: r.plan.pipeline_interleaving <= r.blocks,
        lambda one: (
            f"pipeline_interleaving={one.execution.pipeline_interleaving} is more than the "
            f"{one.blocks} blocks of a pipeline stage"
        ),
    ),
    Rule(
        "interleaving_split",
        lambda r: (np.mod(r.blocks, r.plan.pipeline_interleaving) == 0) | own_stages(r.plan),
        lambda one: (
            f"the {one.blocks} blocks of a pipeline stage do not divide into "
            f"pipeline_interleaving={one.execution.pipeline_interleaving} equal chunks"
        ),
    ),
    Rule(
        "offload_blocks",
        lambda r: (
            ~(r.plan.weight_offload | r.plan.activations_offload | r.plan.optimizer_offload)
            | (r.blocks >= 3)
        ),
        lambda one: (
            f"offloading needs at least 3 blocks per pipeline stage; here there "
            f"{'is 1' if one.blocks == 1 else f'are {one.blocks}'}"
        ),
        counted=True,
    ),
    Rule("positions_cover_sequence", _has_positions, _explain_positions, ("seq_length",)),
    Rule("tokens_split", _tokens_split, _explain_tokens),
    _divides_model("hidden"),
    Rule("feedforward_split", _inner_widths_split, _explain_inner_widths, counted=True),
    _divides_model("attn_heads"),
    Rule(
        "multiquery_heads",
        lambda r: (
            r.plan.is_choice("attention_type", "multihead")
            if r.model.groups_queries
            else np.array(True)
        ),
        expected("attention_type", "multihead, since the model states kv_heads={model.kv_heads}"),
    ),
    *LATENT_RULES,
    *LINEAR_RULES,
    *PACKED_RULES,
    *CONTEXT_RULES,
    *EXPERT_RULES,
    *OVERLAP_RULES,
    *PREDICTION_RULES,
    Rule(
        "kv_heads_split",
        _kv_heads_split,
        expected(
            "tensor_par", "a divisor or a multiple of the model's kv_heads={model.key_value_heads}"
        ),
    ),
    Rule(
        "datatype_engine",
        lambda r: np.array([name in r.system.datatypes for name in DATATYPE_BYTES])[
            r.plan.datatype
        ],
        _explain_datatype,
    ),
    *PRECISION_RULES,
    *RECIPE_RULES,
)
"""All requirements that need no cost, in the order of checking."""


# Checks of executions against all rules: a reason per row, or an error for one execution.

MEMORY_REASONS = ("mem1_capacity", "mem2_capacity")
INVALID_REASONS = tuple(f"invalid_{name}" for name in NAMES)
REASONS: tuple[str, ...] = (
    "",
    *INVALID_REASONS,
    *(rule.reason for rule in RULES),
    *MEMORY_REASONS,
)
"""Reasons why a row is not evaluated, by code; code 0 is a feasible row."""

_FIRST_RULE = 1 + len(INVALID_REASONS)


def check(model: Model, system: System, plan: Plan) -> Array:
    """Return a code of :data:`REASONS` for every row: the first rule that fails, or 0."""
    requests = Requests(model, system, plan.scalars() if len(plan) == 1 else plan)
    reason = plan.malformed.astype(np.int16) + 1
    for code, rule in enumerate(RULES, start=_FIRST_RULE):
        if not rule.concerns(requests):
            continue
        holds = rule.holds(requests)
        if not holds.all():  # the usual case is that all rows meet a rule
            reason[np.broadcast_to(~holds, reason.shape) & (reason == 0)] = code
    return reason


def check_memory(
    reason: Array, tier1: Bytes, tier2: Bytes, system: System, tolerance: Array
) -> Array:
    """Mark rows that do not fit in the memory of a system; rows that fill it exactly fit.

    Args:
        reason: Codes of :data:`REASONS`; rows with code 0 are checked, in place.
        tier1, tier2: Required bytes of each row.
        system: The system, as its edition sees it.
        tolerance: Largest ratio of predicted to usable tier-1 memory at which rows may run. Tier 2 has no tolerance.
    """
    usable1, usable2 = system.usable
    limits = (usable1 * tolerance, usable2)
    for name, needed, limit in zip(MEMORY_REASONS, (tier1, tier2), limits, strict=True):
        reason[(reason == 0) & (needed > limit)] = REASONS.index(name)
    return reason


def raise_for(
    one: Request, code: int, tier1: float = 0.0, tier2: float = 0.0, fits: float = nan
) -> None:
    """Raise the error of a reason code; do nothing for code 0.

    Args:
        one: The request.
        code: The code of :data:`REASONS`.
        tier1, tier2: Required bytes.
        fits: Probability of fitting in tier 1; not-a-number if unknown.

    Raises:
        SpecError: For a malformed request.
        Infeasible: For a request that cannot run on this system; the message states the limit, and the excess.
    """
    if code == 0:
        return
    reason = REASONS[code]
    if reason in MEMORY_REASONS:
        tier = 1 + MEMORY_REASONS.index(reason)
        needed = (tier1, tier2)[tier - 1]
        system = EDITIONS[one.execution.edition].machine(one.system)
        message = _memory_message(system, tier, needed)
        if tier == 1 and not isnan(fits):
            message += f"; it fits with a probability of {chance(fits)}"
        raise Infeasible(reason, message, needed, system.usable[tier - 1], tier)
    explanation = RULES[code - _FIRST_RULE].explain(one)
    if isinstance(explanation, Problem):
        raise SpecError("execution", explanation)
    raise Infeasible(reason, explanation)


def _memory_message(system: System, tier: int, needed: float) -> str:
    def text(value: float) -> str:
        return scaled(value, "B", binary=True, digits=2)

    capacity, usable = (system.mem1, system.mem2)[tier - 1].capacity, system.usable[tier - 1]
    available = text(capacity) if usable == capacity else f"{text(usable)} of {text(capacity)}"
    return (
        f"{MEMORIES[tier - 1]} of {system.name} is too small: {text(needed)} needed, {available} "
        f"available ({text(needed - usable)} too much)"
    )
