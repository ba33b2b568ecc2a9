"""Deployments that serve a model as one HTML file to send: their pages and pictures, side by side, and assumptions."""

from collections.abc import Mapping, Sequence

from calculon.documents.comparison_page import comparison_page
from calculon.documents.report_page import last_parts
from calculon.documents.served_comparison import ServedComparison, ServedResult
from calculon.documents.serving_page import serving_page
from calculon.render.html_file import Part, html_file
from calculon.render.text_tables import Table

ASSUMPTIONS = (
    "A steady state of mean values: no single request is simulated, and all prompts, and all outputs, of a batch have "
    "one length.",
    "Passes have the layers of training in edition corrected; each row takes a floor, and then its arithmetic or its "
    "bytes, whichever is longer.",
    "A rate comes as a Poisson process unless the workload says otherwise; the wait before prefill is that of a queue "
    "with as many servers as replicas.",
    "Nothing fails, and no request is evicted or preempted.",
)
"""What every estimate of a deployment takes for granted."""


def served_report(
    results: Sequence[ServedResult], versions: Mapping[str, str], validation: Mapping[str, Table]
) -> str:
    """Return the report of deployments; arguments as of :func:`~calculon.documents.report_page.report_page`."""
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
