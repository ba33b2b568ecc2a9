"""Sensitivity: dependence of a statistic of a plan on machine parameters, and the value of improving each."""

from typing import Any

from calculon.advise.elasticities import Case
from calculon.advise.runs.run_case import run_figure
from calculon.advise.runs.run_of_plan import best_plan
from calculon.advise.runs.run_of_plan import campaign as whole_run
from calculon.advise.sensitivity_of_case import (
    DAYS,
    TIME,
    Seen,
    SensitivityOptions,
    answer,
    estimate_named,
    run_sensitivity_with,
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
    """Analyze a statistic of a plan, or of its whole run: elasticities, shadow prices, break-even.

    Args:
        model, execution, system: As in :func:`calculon.estimate`. If the execution is a number of processors, the best
            plan is searched first.
        of: Statistic, by default ``total_time``; with a campaign a figure of the run (``usd``), by default ``days``.
        spread: Relative variation of a parameter to both sides: ``0.25``, ``"25%"``; ``"calibrated"`` uses the error of
            a part if the system was calibrated.
        replan: Whether to search the plan again on each changed machine, and for the value of more memory.
        against: Another execution: finds the value of each parameter at which both are equally good; times are compared
            per token and processor.
        against_system: Another machine: the same comparison, with this plan on both; with `replan`, the other machine
            runs its own best plan.
        campaign: Whole run, as in :func:`calculon.campaign`: its parameters then have effects, too.
        edition, preset: As in :func:`calculon.estimate`.
        seen: Callback after each search, which receives the total number of searches.

    Raises:
        SpecError, Infeasible: For a malformed request, and for a plan that cannot run.

    Examples:
        >>> sensitivity("megatron-1T", "3072_t4_p64_d12_mbs4_full", "a100_80g")
        <Sensitivity of total_time of megatron-1T on a100_80g: matrix.float16.tflops -0.85, mem1.GBps -0.08,
        networks[0].bandwidth -0.06>
    """
    terms = SensitivityOptions(spread, replan, against, against_system, seen or (lambda _: None))
    if campaign is not None:
        _check_edition(edition)
        name = run_figure(DAYS if of is None else of).name  # fail before planning starts
        asked = read_campaign(campaign)
        return run_sensitivity_with(
            whole_run(model, execution, system, asked, preset=preset), name, terms
        )
    statistic = known_statistic(TIME if of is None else of, "sensitivity")
    shape, machine, plan, framework = _asked(model, execution, system, edition, preset)
    check_statistic(statistic.name, "sensitivity", EDITIONS[plan.edition])
    return answer(Case(shape, plan, machine, statistic.name), framework, statistic, terms)


def _check_edition(edition: str | None) -> None:
    """Refuse an edition without whole runs."""
    if edition not in (None, CORRECTED):
        wanted = f"{CORRECTED}, the only edition with whole runs"
        raise SpecError("sensitivity", Problem("edition", wanted, repr(edition)))


def _asked(
    model: Any, execution: Any, system: Any, edition: str | None, preset: str | None
) -> tuple[Model, System, Execution, Preset]:
    """Return the input records, and the preset of the plan, which must run."""
    if isinstance(execution, int):
        found = best_plan(model, execution, system, preset=preset)
    else:
        found = estimate_named("", model, execution, system, edition=edition, preset=preset)
    assert found.preset is not None
    return found.model, found.system, found.execution, found.preset
