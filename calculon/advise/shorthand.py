"""A plan in the words that people use: ``tp=8 pp=4 mbs=1``."""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from calculon.base.errors import Problem, SpecError, nearest
from calculon.base.frozen import dataclass
from calculon.declarations.fields import SpecField
from calculon.declarations.short_names import FIELDS as SHORT
from calculon.declarations.short_names import field_name, field_value
from calculon.inputs import Source, as_mapping, launch_in
from calculon.plan.columns import FIELDS

if TYPE_CHECKING:
    from calculon.launch.dialect import Launch

_KNOWN = {one.name: one for one in FIELDS}


@dataclass(frozen=True, slots=True)
class StatedPlan:
    """A plan to set beside the best one: its fields by name, or where its file is, and that as one of a launcher."""

    fields: Mapping[str, Any] | None = None
    file: str = ""
    launch: "Launch | None" = None


def read_mine(source: Source, num_procs: int | None = None) -> StatedPlan:
    """Read a plan: ``NAME=VALUE`` pairs, a mapping, the name of an execution or its file, or a launch file.

    Args:
        source: The plan.
        num_procs: Processors of a launch file that does not say how many.

    Raises:
        SpecError: With every name that is none of an execution.

    Examples:
        >>> read_mine("tp=8 pp=4 mbs=1").fields
        {'tensor_par': 8, 'pipeline_par': 4, 'microbatch_size': 1}
    """
    given = as_mapping(source)
    if given is None:
        text = str(source)
        if "=" not in text:
            return StatedPlan(file=text, launch=launch_in(text, num_procs))
        parts = [part.partition("=") for part in re.split(r"[,\s]+", text.strip())]
        given = {name: value for name, _, value in parts}
    problems: list[Problem] = []
    fields = {}
    for name, value in given.items():
        field = field_name(str(name))
        if field not in _KNOWN:
            wanted = f"a field of an execution, or one of {', '.join(SHORT)}"
            hint = nearest(str(name), [*SHORT, *_KNOWN])
            problems.append(Problem(str(name), wanted, "an unknown name", hint))
        else:
            fields[field] = _value(_KNOWN[field], str(name), value)
    if problems:
        raise SpecError("--mine", problems)
    return StatedPlan(fields)


def _value(field: SpecField, name: str, value: Any) -> Any:
    """Return a value as a file has it; what is none is told by the decoder."""
    text = field_value(name, str(value).strip())
    if field.declaration.choices:
        return text
    if field.annotation is bool:
        return {"true": True, "1": True, "false": False, "0": False}.get(text.lower(), value)
    return int(text) if re.fullmatch(r"-?\d+", text) else value
