"""All rules that one execution violates, each with the expected and actual numbers."""

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
"""Errors of an explanation that assumes that earlier rules hold."""

_WORDS = re.compile("[a-z0-9_]+")

_AFTER = {
    "microbatch_split": ("batch_split",),
    "interleaving_split": ("interleaving_size",),
    "mesh_even": ("mesh_size",),
    "dp_shard_split": ("dp_shard_needs_form",),
    "fsdp_unit_split": ("interleaving_size", "interleaving_split", "fsdp_unit_needs_form"),
    "pairs_need_microbatches": ("batch_split", "microbatch_split"),
}
"""Rules that are not reported if one of the given rules fails, because they would only repeat it."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Rule that an execution violates.

    Attributes:
        reason: Identifier of the rule, such as ``attn_heads_split``.
        field: Field that the rule is about; empty if several fields together do not fit the system.
        message: Expected and actual values, with numbers.
        hint: Suggestion; may be empty.
        malformed: True if the execution contradicts itself, its model or its framework; False if it does not fit the
            system.
    """

    reason: str
    field: str
    message: str
    hint: str = ""
    malformed: bool = True

    @classmethod
    def of(cls, reason: str, explanation: Problem | str) -> "Failure":
        """Return the failure for an explanation of a rule."""
        if isinstance(explanation, Problem):
            message = f"expected {explanation.expected}, found {explanation.found}"
            return cls(reason, explanation.field, message, explanation.hint)
        return cls(reason, "", explanation, malformed=False)

    @property
    def fields(self) -> tuple[str, ...]:
        """Fields in the message, starting with the main field."""
        words = _WORDS.findall(f"{self.field} {self.message}")
        return tuple(dict.fromkeys(word for word in words if word in NAMES))

    def to_dict(self) -> dict[str, Any]:
        """Return the failure as plain data."""
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
    """Return all rules that an execution violates, in the order of checking; memory is not checked.

    The first one is the error of an estimate. Rules that are meaningless after an earlier failure are left out.
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
            if not found:  # no earlier failure explains the error: it is a bug of the rule
                raise
    return tuple(dict.fromkeys(found))


def broken_rules(model: Model, system: System, plan: Plan) -> Array:
    """Return the number of violated rules for every row of a table."""
    requests = Requests(model, system, plan)
    count = np.zeros(len(plan), np.int64)
    for rule in RULES:
        if rule.concerns(requests):
            count += ~np.broadcast_to(rule.holds(requests), len(plan))
    return count


def _explanations(rule: Rule, one: Request) -> Iterable[Problem | str]:
    return [rule.explain(one)] if rule.every is None else [*rule.every(one)]
