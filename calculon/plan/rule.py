"""What a rule is: a mask for tables, a message with numbers for one execution."""

from collections.abc import Callable
from dataclasses import dataclass

from calculon.errors import Problem
from calculon.hardware.system import System
from calculon.plan.plan import Plan
from calculon.spec.execution import Execution
from calculon.spec.model import Model
from calculon.units import Array

DEGREES = ("tensor_par", "pipeline_par", "data_par")


@dataclass(frozen=True, slots=True)
class Question:
    """A table of executions of a model on a system: what a rule answers with a mask."""

    model: Model
    system: System
    plan: Plan


@dataclass(frozen=True, slots=True)
class One:
    """One execution of a model on a system: what a rule answers with a message."""

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
