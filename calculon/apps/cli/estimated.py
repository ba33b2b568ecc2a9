"""A result of the command line with the estimate that it was made of."""

from dataclasses import fields
from typing import TYPE_CHECKING

from calculon.apps.report.result import Result
from calculon.frozen import dataclass

if TYPE_CHECKING:
    from calculon.estimate import Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimated(Result):
    """A result with the estimate that it is from."""

    estimate: "Estimate"

    @classmethod
    def of(cls, result: Result, estimate: "Estimate") -> "Estimated":
        """Return a result with its estimate beside it."""
        members = {field.name: getattr(result, field.name) for field in fields(Result)}
        return cls(**members, estimate=estimate)
