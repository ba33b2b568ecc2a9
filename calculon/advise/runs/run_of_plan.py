"""Whole training run of a plan, or of the best plan on a number of processors."""

from typing import Any

from calculon import inputs
from calculon.advise.answer import best_on
from calculon.advise.ask import ask
from calculon.advise.infeasibility import why_none
from calculon.advise.runs.training_run import TrainingRun, training_run
from calculon.base.errors import Infeasible, Problem, SpecError
from calculon.campaign.launched_run import with_launch
from calculon.campaign.read import CampaignSource, read_campaign
from calculon.declarations.execution import Execution
from calculon.declarations.model import Model
from calculon.declarations.named_values import CORRECTED
from calculon.estimate.argument_order import takes_either_order
from calculon.estimate.estimate import Estimate, estimate
from calculon.hardware.system import System
from calculon.inputs import Source, launch_in


@takes_either_order
def campaign(
    model: Source | Model,
    execution: Source | Execution | int,
    system: Source | System,
    run: CampaignSource | None = None,
    *,
    preset: str | None = None,
    **options: Any,
) -> TrainingRun:
    """Return the whole training run of a plan: days, failures, checkpoints, money and energy.

    Args:
        model, execution, system: As in :func:`calculon.estimate`, with edition ``corrected``. If the execution is a
            number of processors, the best plan is used, as in :func:`calculon.plan`.
        run: Campaign: a name of the catalog, a file, or its fields. If the execution is a launch file, it provides
            fields that the campaign omits: tokens, batch ramp-up, steps between checkpoints.
        preset: As in :func:`calculon.estimate`.
        **options: Fields that override those of `run`: ``tokens="15T"``, ``deadline="60d"``; nested fields use two
            underscores: ``fleet__price=2.0``.

    Raises:
        SpecError: For a malformed request, such as a run without tokens, or a budget without a price.
        Infeasible: If a part of the run does not fit (the message names it), and if failures are so frequent that the
            run never ends. A run that exceeds its limits is returned nevertheless (:attr:`TrainingRun.limits`).
    """
    if "campaign" in options:
        hint = "calculon.campaign(..., run=...) takes the name or the file of a campaign"
        raise SpecError(
            "campaign", Problem("campaign", "fields of a campaign", "an argument", hint)
        )
    stated = {name.replace("__", "."): value for name, value in options.items()}
    asked = read_campaign(run, stated)
    if (launch := launch_in(execution)) is not None:
        asked = with_launch(asked, launch)
    if isinstance(execution, int):
        batch, seq = asked.final_batch_and_length
        base = best_plan(model, execution, system, preset=preset, batch=batch, seq=seq)
    else:
        shape, machine = inputs.model(model), inputs.system(system)
        base = estimate(shape, execution, machine, edition=CORRECTED, preset=preset)
    return training_run(asked, base)


def best_plan(
    model: Source | Model, num_procs: int, system: Source | System, **words: Any
) -> Estimate:
    """Return the fastest plan on a number of processors.

    Args:
        **words: Arguments ``preset``, ``batch`` and ``seq`` of :func:`calculon.plan`.

    Raises:
        SpecError, Infeasible: For a malformed request, and if no plan fits.
    """
    question = ask(model, num_procs, system, **words)
    found = best_on(question, num_procs)
    if not len(found):
        reason = why_none(found.counts)
        raise Infeasible("nothing", f"no plan fits: {reason}; calculon plan suggests changes")
    return found[0]
