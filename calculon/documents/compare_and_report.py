"""Comparisons of results, and HTML reports, from Python."""

import os
from collections.abc import Mapping, Sequence
from typing import Any, overload

from calculon.base.errors import Problem, SpecError
from calculon.campaign.read import CampaignSource, read_campaign
from calculon.declarations import arguments
from calculon.declarations.files import check_output
from calculon.documents.compared import compared
from calculon.documents.comparison import Comparison
from calculon.documents.given_results import Given, results_of
from calculon.documents.report_file import (
    PAGES,
    report_text,
    served_report_text,
    write_page,
)
from calculon.documents.served_comparison import ServedComparison, ServedResult
from calculon.documents.served_documents import compared_served, served_result
from calculon.documents.served_documents import named as served_named
from calculon.serving.serve import Served


@overload
def compare(*results: Served, **named: Served) -> ServedComparison: ...
@overload
def compare(*results: Given, **named: Given) -> Comparison: ...
def compare(*results: Given | Served, **named: Given | Served) -> Comparison | ServedComparison:
    """Compare results, as ``calculon compare`` does; the first result is the reference.

    Args:
        results, named: Estimates, searches (their best execution) and plan results (user's plan and best), named
            or not: ``compare(today=estimate(...), best=search(...))``; or deployments that serve a model.

    Returns:
        The inputs that differ, the parts of time and memory, largest difference first, all statistics, and the
        confidence in the order of times; for deployments their figures, passes and memory.

    Raises:
        SpecError: For fewer than two results, and for other objects.
        Infeasible: If a search or a plan result found nothing.

    Examples:
        >>> from calculon import compare, estimate
        >>> system = "a100_80g_sxm"
        >>> one, four = (estimate("llama3-8B", f"llama3-8B_h100x64{end}", system) for end in ("", "_p4"))
        >>> both = compare(one, four)
        >>> both
        <Comparison of llama3-8B_h100x64 (edition corrected), llama3-8B_h100x64_p4 (edition corrected)>
        >>> both.time[0].name, both.time[0].ratios[0] > 1  # the largest difference
        ('backward computation', True)
    """
    if any(isinstance(one, Served) for one in (*results, *named.values())):
        return compared_served(_deployments("compare", results, named))
    return compared(results_of("compare", results, named))


def _deployments(call: str, given: Sequence[Any], named: Mapping[str, Any]) -> list[ServedResult]:
    """Return deployments with their names; raise SpecError for other objects."""
    pairs = [*(("", one) for one in given), *named.items()]
    for label, one in pairs:
        if not isinstance(one, Served):
            wanted = "a Served, like the others"
            raise SpecError(call, Problem(label, wanted, arguments.kind(one)))
    return [served_result(label, one) for label, one in pairs]


def report(
    results: Given | Served | Sequence[Given | Served] | Mapping[str, Given | Served],
    path: str | os.PathLike[str],
    *,
    campaign: CampaignSource | None = None,
) -> None:
    """Write results as a self-contained HTML page, as ``calculon report`` does.

    Args:
        results: Results, or a mapping of names to results; the page of a search lists its executions. Deployments
            (Served) have a separate kind of page.
        path: File to write: ``NAME.html``.
        campaign: Add the whole training run of each result: ``{"tokens": "15T"}``.

    Raises:
        SpecError: For another file type, for a file that cannot be written, and without results.
        Infeasible: If a search or a plan result found nothing.
    """
    place = os.fspath(path)
    check_output(place, PAGES)
    given: Any = results
    named = dict(given) if isinstance(given, Mapping) else {}
    several = isinstance(given, (list, tuple))
    unnamed = [] if named else list(given) if several else [given]
    if not unnamed and not named:
        raise SpecError("report", Problem("results", "results to report", "none"))
    if any(isinstance(one, Served) for one in (*unnamed, *named.values())):
        if campaign is not None:
            found = "deployments, which are not trained"
            raise SpecError("report", Problem("campaign", "results of training", found))
        text, _ = served_report_text(served_named(_deployments("report", unnamed, named)))
        write_page(text, place)
        return
    asked = None if campaign is None else read_campaign(campaign)
    text, _ = report_text(results_of("report", unnamed, named), asked)
    write_page(text, place)
