"""Parser of the user's own plan: in words, as a mapping, or from a file."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from calculon.base.frozen import dataclass
from calculon.declarations.spellings.plan_pairs import pairs_of, plan_fields
from calculon.inputs import Source, as_mapping, launch_in

if TYPE_CHECKING:
    from calculon.launch.dialect import Launch


@dataclass(frozen=True, slots=True)
class StatedPlan:
    """Baseline plan as stated: fields by name, or the path of a file, which may be a launch file."""

    fields: Mapping[str, Any] | None = None
    file: str = ""
    launch: "Launch | None" = None


def read_baseline(source: Source, num_procs: int | None = None) -> StatedPlan:
    """Read a plan: ``NAME=VALUE`` pairs, a mapping, the name of an execution or its file, or a launch file.

    Args:
        source: The plan.
        num_procs: Processors for a launch file that does not state them.

    Raises:
        SpecError: With all names that are not fields of an execution.

    Examples:
        >>> read_baseline("tp=8 pp=4 mbs=1").fields
        {'tensor_par': 8, 'pipeline_par': 4, 'microbatch_size': 1}
    """
    given = as_mapping(source)
    if given is None:
        text = str(source)
        if "=" not in text:
            return StatedPlan(file=text, launch=launch_in(text, num_procs))
        given = pairs_of(text)
    return StatedPlan(plan_fields(given, "--mine"))
