"""Pages and charts of whole runs in reports."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from calculon.base.errors import Infeasible, Problem, SpecError
from calculon.declarations.named_values import CORRECTED
from calculon.documents.result import Result
from calculon.documents.waterfalls import Estimated
from calculon.render.document import Picture

if TYPE_CHECKING:
    from calculon.advise.runs.training_run import TrainingRun
    from calculon.campaign.record import Campaign
    from calculon.documents.report_page import RunShown


def runs_shown(results: Sequence[Result], asked: "Campaign | None") -> "list[RunShown]":
    """Return the whole runs of results, with charts if possible.

    Without a campaign, return the runs of results that were searched for one, if they can be estimated.

    Raises:
        SpecError: For a result that cannot be estimated again, and for one of another edition.
        Infeasible: If a part of a run does not fit.
    """
    from calculon.advise.runs.training_run import training_run
    from calculon.campaign.read import read_campaign

    result = []
    for one in results:
        campaign = asked
        if campaign is None:
            carried = (one.question or {}).get("campaign")
            if not isinstance(carried, Mapping) or not isinstance(one, Estimated):
                continue
            campaign = read_campaign(carried)
        if not isinstance(one, Estimated) or one.edition != CORRECTED:
            wanted = f"an execution of edition {CORRECTED} whose model and system are known"
            hint = "give APP,EXE,SYS, or for the files of searches --model and --system"
            known = isinstance(one, Estimated)
            said = f"edition {one.edition}" if known else "statistics alone"
            raise SpecError(one.label, Problem("campaign", wanted, said, "" if known else hint))
        try:
            run = training_run(campaign, one.estimate)
        except Infeasible as error:
            raise Infeasible(error.reason, f"{one.label}: {error}") from None
        result.append(_shown(one.label, run))
    return result


def _shown(label: str, run: "TrainingRun") -> "RunShown":
    """Return the page of a run, with its charts."""
    from calculon.advise.runs.goodput_by_size import goodput_by_size
    from calculon.documents.campaign_page import campaign_page
    from calculon.documents.charts import goodput_chart, run_days_chart
    from calculon.documents.report_page import RunShown

    pictures = (
        Picture(run_days_chart.run_days(run), run_days_chart.WORDS),
        Picture(goodput_chart.goodput_curves(goodput_by_size(run).to_dict()), goodput_chart.WORDS),
    )
    missed = tuple(limit.in_words for limit in run.limits if not limit.met)
    return RunShown(label, (campaign_page(run), *pictures), missed)
