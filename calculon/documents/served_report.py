"""HTML report of deployments: their pages and charts, comparison, and assumptions."""

from collections.abc import Mapping, Sequence

from calculon.documents.comparison_page import comparison_page
from calculon.documents.report_page import last_parts
from calculon.documents.served_comparison import ServedComparison, ServedResult
from calculon.documents.serving_page import serving_page
from calculon.render.html_file import Part, html_file
from calculon.render.text_tables import Table

ASSUMPTIONS = (
    "A steady state with mean values: requests are not simulated individually, and all prompts, and all outputs, of a "
    "batch have the same length.",
    "Passes use the layers of edition corrected; each row takes a floor, plus the longer of its arithmetic and its "
    "memory traffic.",
    "Requests arrive as a Poisson process unless the workload says otherwise; the wait before prefill is the wait in a "
    "queue with as many servers as replicas.",
    "Nothing fails, and no request is evicted or preempted.",
)
"""Assumptions of every estimate of a deployment."""


def served_report(
    results: Sequence[ServedResult], versions: Mapping[str, str], validation: Mapping[str, Table]
) -> str:
    """Return the report of deployments; arguments as in :func:`~calculon.documents.report_page.report_page`."""
    several = len(results) > 1
    parts: list[Part] = [
        (
            f"result-{i}",
            one.label if several else "Deployment",
            (serving_page(one.record), *one.pictures),
        )
        for i, one in enumerate(results)
    ]
    if several:
        parts.append(("comparison", "Side by side", (comparison_page(ServedComparison(results)),)))
    sources = dict.fromkeys(source for one in results for source in one.sources)
    title = f"Served: {', '.join(dict.fromkeys(one.label for one in results))}"
    return html_file(title, [*parts, *last_parts(validation, ASSUMPTIONS, sources, versions)])
