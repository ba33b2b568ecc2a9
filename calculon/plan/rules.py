"""What makes an execution valid, declared once: a mask for tables, a message with numbers for one execution.

The rules stand in the order in which they are checked; the first that fails gives a row its reason. A rule is either about
the request itself (*malformed*: the same on every system of this many networks) or about whether it can run (*infeasible*).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from calculon.errors import Infeasible, Problem, SpecError
from calculon.hardware.system import System
from calculon.plan.plan import NAMES, Plan
from calculon.spec.execution import DATATYPE_BYTES, Execution
from calculon.spec.model import Model
from calculon.units import Array, Bytes, scaled

DEGREES = ("tensor_par", "pipeline_par", "data_par")


@dataclass(frozen=True, slots=True)
class Question:
    """Executions of a model on a system; `plan` is a table, or one :class:`Execution` when a message is needed."""

    model: Model
    system: System
    plan: Plan


@dataclass(frozen=True, slots=True)
class One:
    """One execution of a model on a system, for messages."""

    model: Model
    system: System
    execution: Execution

    @property
    def blocks(self) -> int:
        """Blocks of the most loaded pipeline stage."""
        return -(-self.model.num_blocks // self.execution.pipeline_par)


@dataclass(frozen=True, slots=True)
class Rule:
    """One requirement.

    Attributes
    ----------
    reason : str
        Short stable identifier.
    holds : callable
        Mask of the rows of a question that meet it.
    explain : callable
        Message for one execution that does not: a :class:`Problem` for a malformed request, else text.
    """

    reason: str
    holds: Callable[[Question], Array]
    explain: Callable[[One], Problem | str]


def _degrees_product(q: Question) -> Array:
    degrees = [getattr(q.plan, name).astype(float) for name in DEGREES]
    mask: Array = degrees[0] * degrees[1] * degrees[2] == q.plan.num_procs
    return mask


def _explain_product(one: One) -> Problem:
    e = one.execution
    product = e.tensor_par * e.pipeline_par * e.data_par
    parts = f"{e.tensor_par} x {e.pipeline_par} x {e.data_par}"
    return Problem(
        "num_procs",
        f"tensor_par x pipeline_par x data_par = {parts} = {product}",
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
    wanted = f"a divisor of batch_size / data_par = {local}"
    return Problem("microbatch_size", wanted, str(e.microbatch_size), _divisors_near(local, e))


def _divisors_near(local: int, e: Execution) -> str:
    below = next(d for d in range(min(e.microbatch_size, local), 0, -1) if local % d == 0)
    return f"{below} is one"


def _networks_exist(q: Question) -> Array:
    count = len(q.system.networks)
    masks = [getattr(q.plan, f"{name}_net") < count for name in DEGREES]
    mask: Array = masks[0] & masks[1] & masks[2]
    return mask


def _explain_networks(one: One) -> Problem:
    count = len(one.system.networks)
    names = [f"{name}_net" for name in DEGREES]
    name = next(name for name in names if getattr(one.execution, name) >= count)
    wanted = f"one of the {count} networks of {one.system.name}, numbered 0 to {count - 1}"
    return Problem(name, wanted, str(getattr(one.execution, name)))


def _group_size(q: Question, network: int) -> Array:
    """Product of the degrees above 1 that a network carries; 1 where it carries none."""
    product = np.ones(len(q.plan))
    for name in DEGREES:
        degree = getattr(q.plan, name)
        on_network = (getattr(q.plan, f"{name}_net") == network) & (degree > 1)
        product = product * np.where(on_network, degree, 1)
    return product


def _networks_large_enough(q: Question) -> Array:
    fits = np.ones(len(q.plan), bool)
    for i, network in enumerate(q.system.networks):
        group = _group_size(q, i)
        fits &= (group == 1) | (group <= network.size)
    return fits


def _networks_filled(q: Question) -> Array:
    fits = np.ones(len(q.plan), bool)
    for i, network in enumerate(q.system.networks):
        if network.must_be_filled:
            fits &= np.mod(network.size, _group_size(q, i)) == 0
    return fits


def _network_use(one: One, *, too_large: bool) -> tuple[int, int, str]:
    """Return the first offending network, the size of the group on it, and which degrees make it up."""
    e = one.execution
    for i, network in enumerate(one.system.networks):
        used = [n for n in DEGREES if getattr(e, f"{n}_net") == i and getattr(e, n) > 1]
        group = int(np.prod([getattr(e, name) for name in used], dtype=object)) if used else 1
        if (too_large and used and group > network.size) or (
            not too_large and network.must_be_filled and network.size % group
        ):
            return i, group, " x ".join(f"{name}={getattr(e, name)}" for name in used)
    raise AssertionError("no network offends")


def _explain_too_small(one: One) -> str:
    i, group, used = _network_use(one, too_large=True)
    size = one.system.networks[i].size
    return (
        f"network {i} of {one.system.name} is not big enough: it joins {size} processors, and {used} "
        f"needs {group} ({group - size} too many)"
    )


def _explain_not_filled(one: One) -> str:
    i, group, used = _network_use(one, too_large=False)
    size = one.system.networks[i].size
    return (
        f"network {i} of {one.system.name} must be filled: {used} makes groups of {group}, which do "
        f"not divide its {size} processors"
    )


def _blocks(q: Question) -> Array:
    blocks: Array = np.ceil(q.model.num_blocks / q.plan.pipeline_par)
    return blocks


def _divides_model(field: str) -> Rule:
    """Make the rule that a width of the model divides over tensor parallelism."""

    def holds(q: Question) -> Array:
        mask: Array = getattr(q.model, field) % q.plan.tensor_par == 0
        return mask

    def explain(one: One) -> Problem:
        width = getattr(one.model, field)
        wanted = f"a divisor of the model's {field}={width}"
        return Problem("tensor_par", wanted, str(one.execution.tensor_par))

    return Rule(f"{field}_split", holds, explain)


def _conflict(field: str, expected: str) -> Callable[[One], Problem]:
    """Make the explanation of a field that contradicts another."""

    def explain(one: One) -> Problem:
        found = getattr(one.execution, field)
        return Problem(
            field, expected, str(found).lower() if isinstance(found, bool) else str(found)
        )

    return explain


def _tokens_split(q: Question) -> Array:
    tokens = q.plan.microbatch_size.astype(float) * q.model.seq_size
    even = np.mod(tokens, q.plan.tensor_par) == 0
    mask: Array = q.plan.is_choice("tensor_par_comm_type", "ar") | even
    return mask


def _explain_tokens(one: One) -> Problem:
    e = one.execution
    tokens = e.microbatch_size * one.model.seq_size
    wanted = f"a divisor of microbatch_size x seq_size = {tokens}"
    return Problem("tensor_par", wanted, str(e.tensor_par), "or use tensor_par_comm_type: ar")


def _datatype_known(q: Question) -> Array:
    known = np.array([name in q.system.datatypes for name in DATATYPE_BYTES])
    mask: Array = known[q.plan.datatype]
    return mask


def _explain_datatype(one: One) -> Problem:
    wanted = f"a datatype of both engines of {one.system.name}: {', '.join(one.system.datatypes)}"
    return Problem("datatype", wanted, repr(one.execution.datatype))


def _offloads(plan: Plan) -> Array:
    mask: Array = plan.weight_offload | plan.activations_offload | plan.optimizer_offload
    return mask


RULES: tuple[Rule, ...] = (
    Rule("degrees_product", _degrees_product, _explain_product),
    Rule("batch_split", lambda q: q.plan.batch_size % q.plan.data_par == 0, _explain_batch),
    Rule(
        "microbatch_split",
        lambda q: (q.plan.batch_size // q.plan.data_par) % q.plan.microbatch_size == 0,
        _explain_microbatch,
    ),
    Rule(
        "recompute_needs_training",
        lambda q: q.plan.training | q.plan.is_choice("activation_recompute", "none"),
        _conflict("activation_recompute", "none, since there is no backward pass in inference"),
    ),
    Rule(
        "interleaving_needs_pipeline",
        lambda q: (q.plan.pipeline_par > 1) | (q.plan.pipeline_interleaving == 1),
        _conflict("pipeline_interleaving", "1, since pipeline_par is 1"),
    ),
    Rule(
        "sharding_needs_data_par",
        lambda q: (q.plan.data_par > 1) | ~q.plan.optimizer_sharding,
        _conflict("optimizer_sharding", "false, since data_par is 1"),
    ),
    Rule(
        "overlap_needs_tensor_par",
        lambda q: (q.plan.tensor_par > 1) | q.plan.is_choice("tensor_par_overlap", "none"),
        _conflict("tensor_par_overlap", "none, since tensor_par is 1"),
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
        _conflict(
            "seq_par_ag_redo",
            "false, unless tensor_par_comm_type is rs_ag and activation_recompute is not full",
        ),
    ),
    Rule(
        "dp_overlap_needs_training",
        lambda q: ~q.plan.data_par_overlap | (q.plan.training & (q.plan.data_par > 1)),
        _conflict("data_par_overlap", "false, unless training with data_par above 1"),
    ),
    Rule(
        "optimizer_offload_needs_training",
        lambda q: q.plan.training | ~q.plan.optimizer_offload,
        _conflict("optimizer_offload", "false, since inference has no optimizer"),
    ),
    Rule("network_number", _networks_exist, _explain_networks),
    Rule("network_size", _networks_large_enough, _explain_too_small),
    Rule("network_filled", _networks_filled, _explain_not_filled),
    Rule(
        "interleaving_size",
        lambda q: q.plan.pipeline_interleaving <= _blocks(q),
        lambda one: (
            f"pipeline_interleaving={one.execution.pipeline_interleaving} is more than the "
            f"{one.blocks} blocks of a pipeline stage"
        ),
    ),
    Rule(
        "interleaving_split",
        lambda q: np.mod(_blocks(q), q.plan.pipeline_interleaving) == 0,
        lambda one: (
            f"the {one.blocks} blocks of a pipeline stage do not divide into "
            f"pipeline_interleaving={one.execution.pipeline_interleaving} equal chunks"
        ),
    ),
    Rule(
        "offload_blocks",
        lambda q: ~_offloads(q.plan) | (_blocks(q) >= 3),
        lambda one: (
            f"offloading needs at least 3 blocks per pipeline stage; here there "
            f"{'is 1' if one.blocks == 1 else f'are {one.blocks}'}"
        ),
    ),
    Rule("tokens_split", _tokens_split, _explain_tokens),
    _divides_model("hidden"),
    _divides_model("feedforward"),
    _divides_model("attn_heads"),
    Rule("datatype_engine", _datatype_known, _explain_datatype),
)
"""Every requirement that needs no cost, in the order of checking."""

MEMORY_REASONS = ("mem1_capacity", "mem2_capacity")
INVALID_REASONS = tuple(f"invalid_{name}" for name in NAMES)
REASONS: tuple[str, ...] = (
    "",
    *INVALID_REASONS,
    *(rule.reason for rule in RULES),
    *MEMORY_REASONS,
)
"""Why a row is not evaluated, by code; code 0 is a feasible row."""

_FIRST_RULE = 1 + len(INVALID_REASONS)


def check(question: Question) -> Array:
    """Return a code of :data:`REASONS` for every row: the first rule that fails, or 0."""
    reason = question.plan.malformed.astype(np.int16) + 1
    for code, rule in enumerate(RULES, start=_FIRST_RULE):
        failed = ~rule.holds(question)
        if failed.any():
            reason[failed & (reason == 0)] = code
    return reason


def check_memory(reason: Array, tier1: Bytes, tier2: Bytes, system: System) -> Array:
    """Mark rows whose memory does not fit; equality fits."""
    for name, needed, memory in zip(
        MEMORY_REASONS, (tier1, tier2), (system.mem1, system.mem2), strict=True
    ):
        reason[(reason == 0) & (needed > memory.capacity)] = REASONS.index(name)
    return reason


def raise_for(one: One, code: int, tier1: float = 0.0, tier2: float = 0.0) -> None:
    """Raise the error that a reason code stands for; nothing for code 0.

    Raises
    ------
    SpecError
        For a malformed request.
    Infeasible
        For a request that cannot run on this system; the message says which limit, and by how much.
    """
    if code == 0:
        return
    reason = REASONS[code]
    if reason in MEMORY_REASONS:
        tier, needed, memory = (
            (1, tier1, one.system.mem1)
            if reason == MEMORY_REASONS[0]
            else (2, tier2, one.system.mem2)
        )
        raise Infeasible(reason, _memory_message(one.system, tier, needed, memory.capacity))
    explanation = RULES[code - _FIRST_RULE].explain(one)
    if isinstance(explanation, Problem):
        raise SpecError("execution", explanation)
    raise Infeasible(reason, explanation)


def _memory_message(system: System, tier: int, needed: float, capacity: float) -> str:
    def text(value: float) -> str:
        return scaled(value, "B", binary=True, digits=2)

    return (
        f"tier-{tier} memory of {system.name} is too small: {text(needed)} needed, {text(capacity)} "
        f"there ({text(needed - capacity)} too much)"
    )
