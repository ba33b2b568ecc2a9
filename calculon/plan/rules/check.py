"""Check executions against every rule: a reason per row, or an error for one execution."""

import numpy as np

from calculon.base.errors import Infeasible, Problem, SpecError
from calculon.base.units import Array, Bytes, scaled
from calculon.declarations.model import Model
from calculon.editions import EDITIONS
from calculon.hardware.system import System
from calculon.plan.plan import NAMES, Plan
from calculon.plan.rules.all_rules import RULES
from calculon.plan.rules.rule import Request, Requests

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


def check(model: Model, system: System, plan: Plan) -> Array:
    """Return a code of :data:`REASONS` for every row: the first rule that fails, or 0."""
    requests = Requests(model, system, plan.scalars() if len(plan) == 1 else plan)
    reason = plan.malformed.astype(np.int16) + 1
    for code, rule in enumerate(RULES, start=_FIRST_RULE):
        if not rule.concerns(requests):
            continue
        holds = rule.holds(requests)
        if not holds.all():
            reason[np.broadcast_to(~holds, reason.shape) & (reason == 0)] = code
    return reason


def check_memory(reason: Array, tier1: Bytes, tier2: Bytes, system: System) -> Array:
    """Mark rows whose memory does not fit a system, as their edition knows it; equality fits."""
    for name, needed, usable in zip(MEMORY_REASONS, (tier1, tier2), system.usable, strict=True):
        reason[(reason == 0) & (needed > usable)] = REASONS.index(name)
    return reason


def raise_for(one: Request, code: int, tier1: float = 0.0, tier2: float = 0.0) -> None:
    """Raise the error that a reason code stands for; nothing for code 0.

    Raises:
        SpecError: For a malformed request.
        Infeasible: For a request that cannot run on this system; the message says which limit, and by how much.
    """
    if code == 0:
        return
    reason = REASONS[code]
    if reason in MEMORY_REASONS:
        tier = 1 + MEMORY_REASONS.index(reason)
        needed = (tier1, tier2)[tier - 1]
        system = EDITIONS[one.execution.edition].machine(one.system)
        raise Infeasible(
            reason, _memory_message(system, tier, needed), needed, system.usable[tier - 1], tier
        )
    explanation = RULES[code - _FIRST_RULE].explain(one)
    if isinstance(explanation, Problem):
        raise SpecError("execution", explanation)
    raise Infeasible(reason, explanation)


def _memory_message(system: System, tier: int, needed: float) -> str:
    def text(value: float) -> str:
        return scaled(value, "B", binary=True, digits=2)

    capacity, usable = (system.mem1, system.mem2)[tier - 1].capacity, system.usable[tier - 1]
    there = text(capacity) if usable == capacity else f"{text(usable)} of {text(capacity)}"
    return (
        f"tier-{tier} memory of {system.name} is too small: {text(needed)} needed, {there} "
        f"there ({text(needed - usable)} too much)"
    )
