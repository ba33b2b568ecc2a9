"""``calculon plan`` under limits: machines and numbers of processors side by side."""

import argparse
from typing import TYPE_CHECKING, Any

from calculon.base.errors import Infeasible
from calculon.cli.options import Log

if TYPE_CHECKING:
    from calculon.campaign.record import Campaign
    from calculon.cli.emission import Emission

OBJECTIVE = "usd"
"""What fleets are compared by where limits are stated, and no objective."""


def objective_of(arguments: argparse.Namespace, campaign: "Campaign", systems: int) -> str | None:
    """Return what fleets are compared by; None where one count of one machine is to be planned."""
    from calculon.advise.runs.fleet_search import ANY
    from calculon.campaign.limits import LIMITED

    if arguments.objective is not None:
        return str(arguments.objective)
    limited = any(getattr(campaign, name) is not None for name in LIMITED)
    return OBJECTIVE if limited or systems > 1 or arguments.num_procs == ANY else None


def plan_fleets(
    arguments: argparse.Namespace,
    log: Log,
    model: Any,
    systems: list[Any],
    campaign: "Campaign",
    emitted: "Emission | None",
    **words: Any,
) -> int:
    """Compare fleets, then print the page or write the file.

    Raises
    ------
    Infeasible
        When nothing meets the limits.
    """
    from calculon.advise.runs.fleet_search import ask_fleet, fleet_answer
    from calculon.render.console import status

    asked = ask_fleet(model, arguments.num_procs, systems, campaign=campaign, **words)
    with status("searching") as searched:
        answer = fleet_answer(asked, searched)
    alone = emitted is not None and not emitted.file
    if arguments.output is None and not alone:
        from calculon.documents.fleet_page import fleet_page

        log.show(fleet_page(answer))
    elif arguments.output is not None:
        log.write(answer.to_dict(), arguments.output)
    if answer.best is None:
        raise Infeasible("limits", answer.misses)
    if emitted is not None:
        emitted.write(answer.best.answer, log)
    return 0
