"""What pictures of whole runs show."""

from typing import TYPE_CHECKING

from calculon.apps.report.pictures.run_days import RunDays
from calculon.apps.views.estimate_result import result_of

if TYPE_CHECKING:
    from calculon.planner.training_run import TrainingRun


def run_days(run: "TrainingRun") -> RunDays:
    """Return where the days of a run go, and when it ends, with the digits that its interval leaves."""
    main = result_of(run.main.estimate)
    return RunDays(run.to_dict(), main.digits, main.interval)
