"""Tables of executions in any form that people have them in."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, Union

from calculon import inputs
from calculon.base.errors import Problem, SpecError
from calculon.declarations.execution import Execution
from calculon.plan.plan import Plan

if TYPE_CHECKING:
    import pandas as pd

Executions: TypeAlias = Union[
    Plan, Execution, Mapping[str, Any], Iterable[Execution | Mapping[str, Any]], "pd.DataFrame"
]
"""A table, a DataFrame, records or mappings, a mapping of columns, or one execution."""

_WANTED = "a Plan, a DataFrame, a list of Executions or of mappings with their fields, or a mapping of columns"


def as_plan(source: Executions, edition: str | None = None) -> Plan:
    """Return a table of executions from any form of one, in an edition if one is asked for.

    Fields that rows of edition corrected leave out are filled in as their preset says, without one by what all
    frameworks share; of others the optional ones have their defaults.

    Raises:
        SpecError: For anything else, for a missing or unknown field, and for columns of different lengths.
    """
    given: Any = source
    if isinstance(given, Plan):
        return given if edition is None else given.replaced(edition=edition)
    if isinstance(given, Execution):
        return as_plan(Plan.of(given), edition)
    if isinstance(given, Mapping):
        return Plan.from_columns(given, edition)
    if inputs.is_frame(given):
        return Plan.from_frame(given, edition)
    if inputs.is_row(given):
        return Plan.from_records([given], edition)
    if isinstance(given, Iterable) and not isinstance(given, (str, bytes)):
        rows = list(given)
        if all(isinstance(row, Execution) or inputs.as_mapping(row) is not None for row in rows):
            return Plan.from_records(rows, edition)
    hint = "pass its plan" if isinstance(getattr(given, "plan", None), Plan) else ""
    raise SpecError("plan", Problem("", _WANTED, inputs.found(given), hint))
