"""Every rule that one execution breaks, each with the numbers of both sides."""

import re
from collections.abc import Iterable
from typing import Any

import numpy as np

from calculon.base.errors import Problem
from calculon.base.frozen import dataclass
from calculon.base.units import Array
from calculon.declarations.execution import Execution
from calculon.declarations.model import Model
from calculon.hardware.system import System
from calculon.plan.plan import NAMES, Plan
from calculon.plan.rules.all_rules import RULES
from calculon.plan.rules.rule import Request, Requests, Rule

_SENSELESS = (ArithmeticError, LookupError, ValueError, StopIteration, AssertionError)
"""What the explanation of a rule may raise where an earlier rule fails that it takes for granted."""

_WORDS = re.compile("[a-z0-9_]+")

_AFTER = {
    "microbatch_split": ("batch_split",),
    "interleaving_split": ("interleaving_size",),
    "mesh_even": ("mesh_size",),
    "dp_shard_split": ("dp_shard_needs_form",),
    "fsdp_unit_split": ("interleaving_size", "interleaving_split", "fsdp_unit_needs_form"),
    "pairs_need_microbatches": ("batch_split", "microbatch_split"),
}
"""Rules that ask for nothing of their own where one of some others fails."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A rule that an execution breaks.

    Attributes:
        reason: Identifier of the rule, such as ``attn_heads_split``.
        field: The field that is named for it; empty where several fields together do not fit the system.
        message: What was expected and found, with the numbers of both.
        hint: What helps; may be empty.
        malformed: Whether the execution contradicts itself, its model or its framework; else it does not fit the
            system.
    """

    reason: str
    field: str
    message: str
    hint: str = ""
    malformed: bool = True

    @classmethod
    def of(cls, reason: str, explanation: Problem | str) -> "Failure":
        """Make a failure of the explanation of a rule."""
        if isinstance(explanation, Problem):
            message = f"expected {explanation.expected}, found {explanation.found}"
            return cls(reason, explanation.field, message, explanation.hint)
        return cls(reason, "", explanation, malformed=False)

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields that it names, the one that it is about first."""
        words = _WORDS.findall(f"{self.field} {self.message}")
        return tuple(dict.fromkeys(word for word in words if word in NAMES))

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "reason": self.reason,
            "field": self.field,
            "fields": list(self.fields),
            "message": self.message,
            "hint": self.hint,
            "malformed": self.malformed,
        }

    def __str__(self) -> str:
        field = f"{self.field}: " if self.field else ""
        return f"{field}{self.message}"


def failures(model: Model, execution: Execution, system: System) -> tuple[Failure, ...]:
    """Return every rule that an execution breaks, in the order of checking; nothing where it may run but for memory.

    The first is the one that an estimate raises. A rule that means nothing where an earlier one fails is left out.
    """
    one = Request(model, system, execution)
    requests = Requests(model, system, Plan.of(execution).scalars())
    found: list[Failure] = []
    for rule in RULES:
        broken = {failure.reason for failure in found}
        if not rule.concerns(requests) or broken.intersection(_AFTER.get(rule.reason, ())):
            continue
        try:
            if np.all(rule.holds(requests)):
                continue
            found += [Failure.of(rule.reason, text) for text in _explanations(rule, one)]
        except _SENSELESS:
            if not found:
                raise
    return tuple(dict.fromkeys(found))


def broken_rules(model: Model, system: System, plan: Plan) -> Array:
    """Return for every row of a table how many rules it breaks."""
    requests = Requests(model, system, plan)
    count = np.zeros(len(plan), np.int64)
    for rule in RULES:
        if rule.concerns(requests):
            count += ~np.broadcast_to(rule.holds(requests), len(plan))
    return count


def _explanations(rule: Rule, one: Request) -> Iterable[Problem | str]:
    return [rule.explain(one)] if rule.every is None else [*rule.every(one)]
