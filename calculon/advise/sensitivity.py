"""Sensitivity: what a statistic of a plan depends on, and what more of each figure of the machine is worth."""

from typing import Any

from calculon.advise.elasticities import Case
from calculon.advise.runs.run_case import run_figure
from calculon.advise.runs.run_of_plan import best_plan
from calculon.advise.runs.run_of_plan import campaign as whole_run
from calculon.advise.sensitivity_of_case import (
    DAYS,
    TIME,
    Seen,
    Terms,
    answer,
    estimated,
    of_run_in,
)
from calculon.advise.sensitivity_result import Sensitivity
from calculon.base.errors import Problem, SpecError
from calculon.campaign.read import CampaignSource, read_campaign
from calculon.declarations.execution import Execution
from calculon.declarations.model import Model
from calculon.declarations.named_values import CORRECTED
from calculon.declarations.presets import Preset
from calculon.editions import EDITIONS
from calculon.estimate.argument_order import takes_either_order
from calculon.hardware.system import System
from calculon.inputs import Source
from calculon.search.objective import check_statistic, known_statistic


@takes_either_order
def sensitivity(
    model: Source | Model,
    execution: Source | Execution | int,
    system: Source | System,
    *,
    of: str | None = None,
    spread: float | str = 0.25,
    replan: bool = False,
    against: Source | Execution | None = None,
    against_system: Source | System | None = None,
    campaign: CampaignSource | None = None,
    edition: str | None = None,
    preset: str | None = None,
    seen: Seen | None = None,
) -> Sensitivity:
    """Find what a statistic of a plan, or of its whole run, depends on: elasticities, shadow prices, break-even.

    Args:
        model, execution, system: As in :func:`calculon.estimate`. A number of processors instead of an execution is
            planned first.
        of: The statistic, ``total_time`` if absent; with a campaign the figure of the run (``usd``), ``days`` if
            absent.
        spread: By which share of its value a figure is lower and higher: ``0.25``, ``"25%"``; ``"calibrated"`` takes
            the interval of a part where the system was calibrated.
        replan: Also search the plan again on each changed machine, and for what more memory is worth.
        against: Another execution: at which value of a figure both are as good; as fast by the tokens of a processor.
        against_system: Another machine: likewise, with this plan on both; with `replan` the other has the best plan of
            its own.
        campaign: The whole run, as in :func:`calculon.campaign`: then its figures have effects, too.
        edition, preset: As in :func:`calculon.estimate`.
        seen: Told after each search of how many it is one.

    Raises:
        SpecError, Infeasible: For a malformed request, and for a plan that cannot run.

    Examples:
        >>> sensitivity("megatron-1T", "3072_t4_p64_d12_mbs4_full", "a100_80g")
        <Sensitivity of total_time of megatron-1T on a100_80g: matrix.float16.tflops -0.85, mem1.GBps -0.08,
        networks[0].bandwidth -0.06>
    """
    terms = Terms(spread, replan, against, against_system, seen or (lambda _: None))
    if campaign is not None:
        _check_edition(edition)
        name = run_figure(DAYS if of is None else of).name  # before anything is planned
        asked = read_campaign(campaign)
        return of_run_in(whole_run(model, execution, system, asked, preset=preset), name, terms)
    statistic = known_statistic(TIME if of is None else of, "sensitivity")
    shape, machine, plan, framework = _asked(model, execution, system, edition, preset)
    check_statistic(statistic.name, "sensitivity", EDITIONS[plan.edition])
    return answer(Case(shape, plan, machine, statistic.name), framework, statistic, terms)


def _check_edition(edition: str | None) -> None:
    """Refuse an edition that knows no whole runs."""
    if edition not in (None, CORRECTED):
        wanted = f"{CORRECTED}, as whole runs are of no other edition"
        raise SpecError("sensitivity", Problem("edition", wanted, repr(edition)))


def _asked(
    model: Any, execution: Any, system: Any, edition: str | None, preset: str | None
) -> tuple[Model, System, Execution, Preset]:
    """Return the records, and the preset of the plan, which runs."""
    if isinstance(execution, int):
        found = best_plan(model, execution, system, preset=preset)
    else:
        found = estimated("", model, execution, system, edition=edition, preset=preset)
    assert found.preset is not None
    return found.model, found.system, found.execution, found.preset
