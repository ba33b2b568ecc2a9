"""Form of a rule: a mask for tables and grids, and a message with numbers for a single execution."""

from collections.abc import Callable, Iterable
from functools import cached_property

import numpy as np

from calculon.base.errors import Problem
from calculon.base.frozen import dataclass
from calculon.base.units import Array
from calculon.declarations.execution import Execution
from calculon.declarations.model import Model
from calculon.declarations.recipes import FLOAT8
from calculon.hardware.system import System
from calculon.plan.columns import Columns, code


@dataclass(frozen=True)
class Requests:
    """Executions of a model on a system, as columns that broadcast: the input of rules."""

    model: Model
    system: System
    plan: Columns

    @property
    def blocks(self) -> Array:
        """Blocks of the largest pipeline stage."""
        return np.ceil(self.model.num_blocks / self.plan.pipeline_par)

    @property
    def multiplied(self) -> Array:
        """Codes of ``matmul_dtype`` that determine the result types of matrix products and attention."""
        narrow = self.plan.fp8_recipe > 0
        return np.where(narrow, code("matmul_dtype", FLOAT8), self.plan.matmul_dtype)

    @cached_property
    def asked(self) -> frozenset[str]:
        """Optional fields that differ from their default in some execution."""
        return self.plan.asked()


@dataclass(frozen=True, slots=True)
class Request:
    """Execution of a model on a system; rules explain their violations with a message."""

    model: Model
    system: System
    execution: Execution

    @property
    def blocks(self) -> int:
        """Blocks of the largest pipeline stage."""
        return -(-self.model.num_blocks // self.execution.pipeline_par)


@dataclass(frozen=True, slots=True)
class Rule:
    """Requirement on executions.

    Attributes:
        reason: Short stable identifier.
        holds: Function that returns a mask of the executions that meet the requirement.
        explain: Function that returns a message for a violation: a :class:`Problem` for a malformed request, else text.
        about: Optional fields; if all of them have their default, the rule holds.
        counted: True if a search counts rejected executions as infeasible. Executions that other rules reject do not
            belong to the space, because the published enumeration has no loop for them.
        every: Function that returns all explanations, for a rule with several requirements; by default only `explain`.
        parts: Rules that together reject the same executions. A search applies each as soon as it knows the fields
            that the part reads. Empty for a rule that is applied as a whole.
    """

    reason: str
    holds: Callable[[Requests], Array]
    explain: Callable[[Request], Problem | str]
    about: tuple[str, ...] = ()
    counted: bool = False
    every: Callable[[Request], Iterable[Problem | str]] | None = None
    parts: tuple["Rule", ...] = ()

    def concerns(self, requests: Requests) -> bool:
        """Return True if any row can violate the rule."""
        return not self.about or not requests.asked.isdisjoint(self.about)


def expected(field: str, wanted: str, hint: str = "") -> Callable[[Request], Problem]:
    """Return an explanation for a field with an unsuitable value.

    `wanted` and `hint` may refer to fields of the execution ``{e.data_par}``, of ``{model}`` and ``{system}``, and to
    the numbers of ``{blocks}`` of the largest stage and of a ``{chunk}`` of it.
    """

    def explain(one: Request) -> Problem:
        e = one.execution
        known = {"e": e, "model": one.model, "system": one.system, "blocks": one.blocks}
        known["chunk"] = one.blocks // e.pipeline_interleaving
        found = getattr(e, field)
        text = str(found).lower() if found is True or found is False else str(found)
        return Problem(field, wanted.format(**known), text, hint.format(**known))

    return explain
