"""The form of a rule: a mask for tables and grids alike, a message with numbers for one execution."""

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
    """Requests of executions of a model on a system, as columns that broadcast; a rule tells which of them meet it."""

    model: Model
    system: System
    plan: Columns

    @property
    def blocks(self) -> Array:
        """Blocks of the most loaded pipeline stage."""
        return np.ceil(self.model.num_blocks / self.plan.pipeline_par)

    @property
    def multiplied(self) -> Array:
        """The ``matmul_dtype``, as its code, by which results of products and attention have their types."""
        narrow = self.plan.fp8_recipe > 0
        return np.where(narrow, code("matmul_dtype", FLOAT8), self.plan.matmul_dtype)

    @cached_property
    def asked(self) -> frozenset[str]:
        """The optional fields that have another value than their default in some execution."""
        return self.plan.asked()


@dataclass(frozen=True, slots=True)
class Request:
    """A request: one execution of a model on a system. A rule that it breaks explains that with a message."""

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

    Attributes:
        reason: Short stable identifier.
        holds: Mask of the requests that meet it.
        explain: Message for one execution that does not: a :class:`Problem` for a malformed request, else text.
        about: Optional fields: where all of them have their default, the rule holds.
        counted: A search counts what it rejects as infeasible. What other rules reject is not in the space at all: the
            published enumeration has no loop for it.
        every: Explanations of all that breaks it, where it asks for several things at once; by default `explain` is
            all.
    """

    reason: str
    holds: Callable[[Requests], Array]
    explain: Callable[[Request], Problem | str]
    about: tuple[str, ...] = ()
    counted: bool = False
    every: Callable[[Request], Iterable[Problem | str]] | None = None

    def concerns(self, requests: Requests) -> bool:
        """Whether any row can break the rule."""
        return not self.about or not requests.asked.isdisjoint(self.about)


def expected(field: str, wanted: str, hint: str = "") -> Callable[[Request], Problem]:
    """Return the explanation of a field whose value does not fit.

    `wanted` and `hint` may refer to fields of the execution ``{e.data_par}``, of ``{model}`` and ``{system}``, and to
    the ``{blocks}`` of the most loaded stage and of a ``{chunk}`` of it.
    """

    def explain(one: Request) -> Problem:
        e = one.execution
        known = {"e": e, "model": one.model, "system": one.system, "blocks": one.blocks}
        known["chunk"] = one.blocks // e.pipeline_interleaving
        found = getattr(e, field)
        text = str(found).lower() if found is True or found is False else str(found)
        return Problem(field, wanted.format(**known), text, hint.format(**known))

    return explain
