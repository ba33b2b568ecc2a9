"""Results side by side, and on one page to send, from Python."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from calculon.apps.notebook.given import Given, results_of
from calculon.apps.report.comparison import Comparison
from calculon.apps.views.compared import compared
from calculon.apps.views.report_file import PAGES, write_report
from calculon.campaign.read import CampaignSource, read_campaign
from calculon.errors import Problem, SpecError
from calculon.spec.files import check_output


def compare(*results: Given, **named: Given) -> Comparison:
    """Set results side by side, as ``calculon compare`` does; the others are compared with the first.

    Parameters
    ----------
    results, named
        Estimates, searches (the best of each) and answers (one's own plan and the best), with names or without:
        ``compare(today=estimate(...), best=search(...))``.

    Returns
    -------
    Comparison
        The inputs that differ, the parts of time and memory, the largest difference first, and all statistics; whether
        measured runs confirm the order of times.

    Raises
    ------
    SpecError
        For fewer than two results, and for anything else.
    Infeasible
        For a search and an answer that found nothing.

    Examples
    --------
    >>> from calculon import compare, estimate
    >>> system = "a100_80g_sxm"
    >>> one, four = (estimate("llama3-8B", f"llama3-8B_h100x64{end}", system) for end in ("", "_p4"))
    >>> both = compare(one, four)
    >>> both
    <Comparison of llama3-8B_h100x64 (edition corrected), llama3-8B_h100x64_p4 (edition corrected)>
    >>> both.time[0].name, both.time[0].ratios[0] > 1  # the largest difference
    ('backward computation', True)
    """
    return compared(results_of("compare", results, named))


def report(
    results: Given | Sequence[Given] | Mapping[str, Given],
    path: str | os.PathLike[str],
    *,
    campaign: CampaignSource | None = None,
) -> None:
    """Write results as one HTML page to send to a colleague, as ``calculon report`` does.

    Parameters
    ----------
    results : Estimate, SearchResult or Answer, or a list or a mapping of them
        What to report, a mapping with names; the page of a search lists its executions.
    path : str or path
        Where: ``NAME.html``.
    campaign : str, path, mapping or Campaign, optional
        Adds the whole training run of each result: ``{"tokens": "15T"}``.

    Raises
    ------
    SpecError
        For another kind of file, for one that cannot be written, and without results.
    Infeasible
        For a search and an answer that found nothing.
    """
    place = os.fspath(path)
    check_output(place, PAGES)
    given: Any = results
    named = dict(given) if isinstance(given, Mapping) else {}
    several = isinstance(given, (list, tuple))
    unnamed = [] if named else list(given) if several else [given]
    if not unnamed and not named:
        raise SpecError("report", Problem("results", "results to report", "none"))
    asked = None if campaign is None else read_campaign(campaign)
    write_report(results_of("report", unnamed, named), place, asked)
