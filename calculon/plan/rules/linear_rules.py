"""How heads of linear attention are split, and what parts of blocks (``layer_pattern``) cannot be combined with."""

from collections.abc import Callable

import numpy as np

from calculon.base.errors import Problem
from calculon.base.units import Array
from calculon.declarations.model import Model
from calculon.plan.rules.rule import Request, Requests, Rule, expected


def _heads(model: Model) -> str:
    """Return the field of heads that tensor parallelism splits; value heads are a multiple of key heads."""
    if not model.has_linear:
        return ""
    names = {"gated_delta": "linear_key_heads", "mamba2": "ssm_heads"}
    return names.get(model.linear_attention, "")  # lightning attention has attn_heads, with a rule


def _groups(model: Model) -> int:
    """Return the groups of heads of Mamba-2; 0 where there are none."""
    return model.ssm_groups if model.has_linear and model.linear_attention == "mamba2" else 0


def _explain_heads(one: Request) -> Problem:
    name = _heads(one.model)
    wanted = f"a divisor of the model's {name}={getattr(one.model, name)}"
    return Problem("tensor_par", wanted, str(one.execution.tensor_par))


def _heads_split(r: Requests) -> Array:
    name = _heads(r.model)
    even: Array = np.array(getattr(r.model, name) if name else 0) % r.plan.tensor_par == 0
    return even


def _groups_split(r: Requests) -> Array:
    groups, degree = _groups(r.model), r.plan.tensor_par
    if not groups:
        return np.array(True)
    even: Array = (groups % degree == 0) | (degree % groups == 0)
    return even


def _contexts_split(r: Requests) -> Array:
    """Whether each rank of tensor and context parallelism has whole heads, and whole groups or parts of one."""
    ranks, model = r.plan.tensor_par * r.plan.context_par, r.model
    if not model.has_linear:
        return np.array(True)
    groups = _groups(model)
    even: Array = getattr(model, _heads(model) or "attn_heads") % ranks == 0
    if groups:
        even = even & ((groups % ranks == 0) | (ranks % groups == 0))
    return even | (r.plan.context_par == 1)


def _explain_contexts(one: Request) -> Problem:
    name, groups = _heads(one.model) or "attn_heads", _groups(one.model)
    more = f", and divides or is a multiple of ssm_groups={groups}" if groups else ""
    wanted = f"such that tensor_par x context_par divides {name}={getattr(one.model, name)}{more}"
    hint = "linear attention exchanges heads over context-parallel ranks"
    return Problem("context_par", wanted, str(one.execution.context_par), hint)


def _in_parts(holds: Callable[[Requests], Array]) -> Callable[[Requests], Array]:
    """Ask only models whose blocks are parts."""
    return lambda r: holds(r) if r.model.in_parts else np.array(True)


LINEAR_RULES = (
    Rule(
        "linear_heads_split",
        _heads_split,
        _explain_heads,
        counted=True,
    ),
    Rule(
        "linear_groups_split",
        _groups_split,
        expected(
            "tensor_par", "a divisor or a multiple of the model's ssm_groups={model.ssm_groups}"
        ),
        counted=True,
    ),
    Rule("cp_linear", _contexts_split, _explain_contexts, ("context_par",)),
    Rule(
        "pattern_comm",
        _in_parts(lambda r: ~r.plan.is_choice("tensor_par_comm_type", "p2p_rs_ag")),
        expected(
            "tensor_par_comm_type",
            "ar or rs_ag, since blocks of {model.name} are parts with one reduction each",
        ),
    ),
    Rule(
        "pattern_ep_overlap",
        _in_parts(lambda r: r.plan.is_choice("ep_overlap", "none")),
        expected(
            "ep_overlap",
            "none, since blocks of {model.name} are parts: attention beside experts is in others",
        ),
        ("ep_overlap",),
    ),
)
"""Requirements of linear attention and of parts of blocks, in the order of checking."""
