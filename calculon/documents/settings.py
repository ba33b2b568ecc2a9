"""Changes to the launch file of one result that run each of the others."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from calculon.base.errors import Problem, SpecError
from calculon.documents.result import Result
from calculon.documents.waterfalls import Estimated
from calculon.inputs import launch_in

if TYPE_CHECKING:
    from calculon.launch.dialect import Launch


def settings_changes(
    results: Sequence[Result], dialect: str = ""
) -> tuple[int, dict[int, dict[str, Any]]]:
    """Return the number of the result whose settings are changed, and the changes for each other one, by number.

    It is the first result from a launch file, or else the first of all if a launcher is requested. Results of other
    models are left out.

    Args:
        results: The results.
        dialect: Launcher; by default the launcher of the launch file.

    Raises:
        SpecError: For an unknown launcher, for a launcher that cannot express the first result, and for results with
            unknown models.
    """
    known = [one for one in results if isinstance(one, Estimated)]
    pairs = [(one, launch) for one in known if (launch := _launch(one)) is not None]
    mine, launch = pairs[0] if pairs else (known[0] if dialect and known else None, None)
    if mine is None:
        if dialect:
            hint = "give APP,EXE,SYS, or for the files of searches --model and --system"
            wanted = "executions whose model and system are known"
            raise SpecError("--dialect", Problem("", wanted, "statistics alone", hint))
        return 0, {}
    from calculon.advise.launch_flags import settings_between

    model, number = mine.estimate.model, list(results).index(mine)
    found = {
        list(results).index(other): settings_between(
            mine.estimate.execution, other.estimate.execution, model, launch, dialect
        ).to_dict()
        for other in known
        if other is not mine and other.estimate.model == model
    }
    return number, found


def _launch(one: Estimated) -> "Launch | None":
    """Return the launch file of a result; None if it is not from one."""
    origin = one.estimate.origin
    if origin is None or not origin.source:
        return None
    return launch_in(origin.source, one.estimate.execution.num_procs)
