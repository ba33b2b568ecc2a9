"""What makes an execution valid, declared once, in the order of checking.

The first rule that fails gives a row its reason. A rule is either about the request itself (its explanation is a
:class:`~calculon.errors.Problem`: malformed) or about whether it can run on the system (text: infeasible).
"""

from math import prod

import numpy as np

from calculon.architecture.workload import sequence_lengths
from calculon.errors import Problem
from calculon.plan.columns import PLAIN
from calculon.plan.divisors import divisors
from calculon.plan.mesh import DEGREES, processors
from calculon.plan.rules.data_rules import REPLICA_RULES, UNIT_RULES
from calculon.plan.rules.network_rules import FURTHER_RULES, MESH_RULES, NETWORK_RULES
from calculon.plan.rules.optimizer_rules import OPTIMIZER_RULES
from calculon.plan.rules.pipeline_rules import STAGE_RULES
from calculon.plan.rules.precision_rules import PRECISION_RULES
from calculon.plan.rules.rule import One, Question, Rule, expected
from calculon.plan.rules.tensor_rules import TENSOR_RULES
from calculon.spec.execution import CORRECTED, DATATYPE_BYTES, PUBLISHED
from calculon.spec.model import Model
from calculon.units import Array


def _explain_product(one: One) -> Problem:
    e = one.execution
    degrees = [getattr(e, name) for name in DEGREES]
    product = prod(degrees)
    return Problem(
        "num_procs",
        f"{' x '.join(DEGREES)} = {' x '.join(map(str, degrees))} = {product}",
        str(e.num_procs),
        f"set num_procs to {product}, or change a degree",
    )


def _explain_batch(one: One) -> Problem:
    e = one.execution
    nearby = max(1, e.batch_size // e.data_par) * e.data_par
    return Problem(
        "batch_size", f"a multiple of data_par={e.data_par}", str(e.batch_size), f"{nearby} is one"
    )


def _explain_microbatch(one: One) -> Problem:
    e = one.execution
    local = e.batch_size // e.data_par
    nearby = max(d for d in divisors(local) if d <= max(e.microbatch_size, 1))
    wanted = f"a divisor of batch_size / data_par = {local}"
    return Problem("microbatch_size", wanted, str(e.microbatch_size), f"{nearby} is one")


_OF_PART = {"attn_heads": "attends", "feedforward": "feeds_forward"}
"""What of a model has a width, where a part of a block may lack it."""


def _divides_model(field: str, *, counted: bool = False) -> Rule:
    """Make the rule that a width of the model divides over tensor parallelism."""

    def holds(q: Question) -> Array:
        if not getattr(q.model, _OF_PART.get(field, "hidden")):
            return np.array(True)
        return getattr(q.model, field) % q.plan.tensor_par == 0

    wanted = f"a divisor of the model's {field}={{model.{field}}}"
    return Rule(f"{field}_split", holds, expected("tensor_par", wanted), counted=counted)


def _tokens_split(q: Question) -> Array:
    length = sequence_lengths(q.model, q.plan.seq_length)
    tokens = q.plan.microbatch_size.astype(float) * length
    even = np.mod(tokens, q.plan.tensor_par) == 0
    return q.plan.is_choice("tensor_par_comm_type", "ar") | even


def _explain_tokens(one: One) -> Problem:
    e = one.execution
    tokens = e.microbatch_size * (e.seq_length or one.model.seq_size)
    wanted = f"a divisor of microbatch_size x seq_size = {tokens}"
    return Problem("tensor_par", wanted, str(e.tensor_par), "or use tensor_par_comm_type: ar")


def _most_tokens(model: Model) -> int:
    """Return how long sequences may be that executions state, where positions are learned.

    The model's own length never fails: whether it fits is a matter of the model, not of a plan.
    """
    return max(model.positions, model.seq_size)


def _has_positions(q: Question) -> Array:
    if not q.model.positions:
        return np.array(True)
    return q.plan.seq_length <= _most_tokens(q.model)


def _explain_positions(one: One) -> Problem:
    model = one.model
    wanted = f"at most {_most_tokens(model)}: {model.name} has {model.positions} learned positions"
    hint = "positions of the model states them"
    return Problem("seq_length", wanted, str(one.execution.seq_length), hint)


def _datatype_known(q: Question) -> Array:
    known = np.array([name in q.system.datatypes for name in DATATYPE_BYTES])
    return known[q.plan.datatype]


def _explain_datatype(one: One) -> Problem:
    wanted = f"a datatype of both engines of {one.system.name}: {', '.join(one.system.datatypes)}"
    return Problem("datatype", wanted, repr(one.execution.datatype))


def _known_to_edition(q: Question) -> Array:
    """Hold where the edition knows what execution and model ask for: the published one knows its own fields only."""
    published = q.plan.is_choice("edition", PUBLISHED)
    if q.model.extensions:
        return ~published
    asked = [getattr(q.plan, name) != PLAIN[name] for name in q.asked - {"edition"}]
    return ~(published & np.logical_or.reduce(asked)) if asked else np.array(True)


def _explain_edition(one: One) -> Problem:
    """Name the first field that the published edition does not know."""
    asked = {k: v for k, v in one.execution.extensions.items() if k != "edition"}
    where, fields = ("", asked) if asked else (f"{one.model.name}: ", one.model.extensions)
    name, value = next(iter(fields.items()))
    return Problem(
        "edition",
        f"{CORRECTED}, which {where}{name}={str(value).lower()} needs",
        PUBLISHED,
        f"add edition: {CORRECTED} to the execution, or --edition {CORRECTED}",
    )


def _kv_heads_split(q: Question) -> Array:
    heads, degree = q.model.key_value_heads, q.plan.tensor_par
    if heads == q.model.attn_heads or not q.model.attends:
        return np.array(True)  # which the rule before has seen to
    mask: Array = (heads % degree == 0) | (degree % heads == 0)
    return mask | q.plan.is_choice("edition", PUBLISHED)


RULES: tuple[Rule, ...] = (
    Rule("edition_fields", _known_to_edition, _explain_edition),
    Rule("degrees_product", lambda q: processors(q.plan) == q.plan.num_procs, _explain_product),
    Rule("batch_split", lambda q: q.plan.batch_size % q.plan.data_par == 0, _explain_batch),
    Rule(
        "microbatch_split",
        lambda q: (q.plan.batch_size // q.plan.data_par) % q.plan.microbatch_size == 0,
        _explain_microbatch,
    ),
    Rule(
        "recompute_needs_training",
        lambda q: q.plan.training | q.plan.is_choice("activation_recompute", "none"),
        expected("activation_recompute", "none, since there is no backward pass in inference"),
    ),
    Rule(
        "interleaving_needs_pipeline",
        lambda q: (q.plan.pipeline_par > 1) | (q.plan.pipeline_interleaving == 1),
        expected("pipeline_interleaving", "1, since pipeline_par is 1"),
    ),
    Rule(
        "sharding_needs_data_par",
        lambda q: (q.plan.data_par > 1) | ~q.plan.optimizer_sharding,
        expected("optimizer_sharding", "false, since data_par is 1"),
    ),
    Rule(
        "overlap_needs_tensor_par",
        lambda q: (q.plan.tensor_par > 1) | q.plan.is_choice("tensor_par_overlap", "none"),
        expected("tensor_par_overlap", "none, since tensor_par is 1"),
    ),
    Rule(
        "redo_needs_sequence_parallel",
        lambda q: (
            ~q.plan.seq_par_ag_redo
            | (
                q.plan.is_choice("tensor_par_comm_type", "rs_ag")
                & ~q.plan.is_choice("activation_recompute", "full")
            )
        ),
        expected(
            "seq_par_ag_redo",
            "false, unless tensor_par_comm_type is rs_ag and activation_recompute is not full",
        ),
    ),
    Rule(
        "dp_overlap_needs_training",
        lambda q: ~q.plan.data_par_overlap | (q.plan.training & (q.plan.data_par > 1)),
        expected("data_par_overlap", "false, unless training with data_par above 1"),
    ),
    Rule(
        "optimizer_offload_needs_training",
        lambda q: q.plan.training | ~q.plan.optimizer_offload,
        expected("optimizer_offload", "false, since inference has no optimizer"),
    ),
    *TENSOR_RULES,
    *OPTIMIZER_RULES,
    *REPLICA_RULES,
    *FURTHER_RULES,
    *NETWORK_RULES,
    *STAGE_RULES,
    *UNIT_RULES,
    *MESH_RULES,
    Rule(
        "interleaving_size",
        lambda q: q.plan.pipeline_interleaving <= q.blocks,
        lambda one: (
            f"pipeline_interleaving={one.execution.pipeline_interleaving} is more than the "
            f"{one.blocks} blocks of a pipeline stage"
        ),
    ),
    Rule(
        "interleaving_split",
        lambda q: (np.mod(q.blocks, q.plan.pipeline_interleaving) == 0) | (q.plan.stage_blocks > 0),
        lambda one: (
            f"the {one.blocks} blocks of a pipeline stage do not divide into "
            f"pipeline_interleaving={one.execution.pipeline_interleaving} equal chunks"
        ),
    ),
    Rule(
        "offload_blocks",
        lambda q: (
            ~(q.plan.weight_offload | q.plan.activations_offload | q.plan.optimizer_offload)
            | (q.blocks >= 3)
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
    _divides_model("feedforward", counted=True),
    _divides_model("attn_heads"),
    Rule(
        "multiquery_heads",
        lambda q: (
            q.plan.is_choice("attention_type", "multihead")
            if q.model.groups_queries
            else np.array(True)
        ),
        expected("attention_type", "multihead, since the model states kv_heads={model.kv_heads}"),
    ),
    Rule(
        "kv_heads_split",
        _kv_heads_split,
        expected(
            "tensor_par", "a divisor or a multiple of the model's kv_heads={model.key_value_heads}"
        ),
    ),
    Rule("datatype_engine", _datatype_known, _explain_datatype),
    *PRECISION_RULES,
)
"""Every requirement that needs no cost, in the order of checking."""
