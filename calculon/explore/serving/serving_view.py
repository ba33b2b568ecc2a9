"""The serving view: a deployment with its latency and rates, the cheapest deployments, and the frontier."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from calculon.base.errors import Infeasible
from calculon.base.records import Plain
from calculon.documents.charts.serving_frontier_chart import serving_frontier
from calculon.documents.deployments_page import deployments_page
from calculon.documents.serving_frontier_page import serving_frontier_page
from calculon.documents.serving_page import (
    deployment_words,
    requests_words,
    serving_page,
)
from calculon.explore.answers import Answers
from calculon.explore.page_state import State
from calculon.explore.serving.served_words import DEPLOYMENT
from calculon.explore.serving.serving_results import (
    deployments,
    displayed_deployment,
    frontier,
    with_deployment,
)
from calculon.explore.view_part import ViewPart, ViewPartKind
from calculon.render.document import (
    Block,
    Document,
    Facts,
    Grid,
    Section,
    Styled,
    dim,
    inner_blocks,
    words,
)
from calculon.render.text_tables import Table
from calculon.search.deployments.deployment_search import DeploymentSearch
from calculon.serving.records.deployment import Deployment


def _served(state: State, answers: Answers) -> ViewPart:
    """Return the deployment in words, with its latency, rates and costs."""
    found = displayed_deployment(state, answers)
    if found.served is None:
        return _none(found.problem)
    page = serving_page(found.served.brief)
    first, *_ = page.parts
    facts = next(block for block in inner_blocks(first) if isinstance(block, Facts))
    own = any(state.option(word) for word in DEPLOYMENT)
    title = "Your deployment" if own else "The best deployment"
    about = dim(deployment_words(found.served.deployment))
    blocks: tuple[Block, ...] = (about, *inner_blocks(first), _asked(page))
    if found.problem:
        title = "No deployment meets the limits"
        nearest = "The nearest deployment, which misses them:"
        blocks = (_sentence(found.problem), nearest, *blocks)
    return ViewPart(
        title=title,
        blocks=blocks,
        spoken=", ".join(f"{label} {text}" for label, text, _ in facts.rows),
    )


def _none(problem: str) -> ViewPart:
    """Return the reason why there is no deployment."""
    text = _sentence(problem)
    return ViewPart(
        title="No deployment fits", blocks=(text,), spoken=f"No deployment fits: {text}"
    )


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


def _asked(page: Document) -> Block:
    """Return the requests, and the limits of the batch, from the deployment's page."""
    (lead,) = page.lead
    assert isinstance(lead, Grid)
    return replace(lead, rows=tuple(row for row in lead.rows if words(row[0]) in _ASKED))


_ASKED = ("requests", "batch", "drafts")
"""Rows of the page's lead that no other part of it repeats."""


def _best(state: State, answers: Answers) -> ViewPart | None:
    """Return the cheapest deployments as a table whose rows link to them."""
    found = deployments(state, answers)
    if not len(found):
        return None
    page = deployments_page(found)
    best, *others = page.parts
    blocks = tuple(
        _with_links(state, found, block) if isinstance(block, Table) else block
        for block in inner_blocks(best)
    )
    tried = Section("What was tried", page.lead)
    said = "The deployments with the most tokens/s per processor, and so the lowest cost per token."
    return ViewPart(title="The cheapest deployments", blocks=(dim(said), *blocks, *others, tried))


def _with_links(state: State, result: DeploymentSearch, table: Table) -> Table:
    """Return the table of a search with links to its deployments."""
    shown = zip(result.deployments, table.rows, strict=False)
    return replace(table, rows=[_linked(state, one, row, "replicas") for one, row in shown])


def _linked(state: State, one: Deployment, row: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Return a table row with a cell that links to a deployment."""
    return {**row, key: Styled(str(row[key]), link=with_deployment(state, one.to_dict()))}


def _frontier(state: State, answers: Answers) -> ViewPart:
    """Return the frontier of tokens/s per processor and per user, of all deployments at every batch."""
    title = "Tokens/s per processor against tokens/s per user"
    try:
        found = frontier(state, answers)
    except Infeasible:
        return ViewPart(
            title=title, blocks=("No deployment fits and meets the limits at any batch.",)
        )

    def link(point: Plain) -> str:
        return with_deployment(state, _of_point(point))

    page = serving_frontier_page(found)
    points = [
        block for part in page.parts for block in inner_blocks(part) if isinstance(block, Table)
    ]
    one = displayed_deployment(state, answers).served
    here = None if one is None else (one["interactivity"], one["output_rate_per_proc"])
    said = (
        "No deployment at any batch beats a point in both rates. Click a point for its deployment."
    )
    return ViewPart(
        title=title,
        blocks=(f"{requests_words(found['workload'])}.", dim(said)),
        chart=serving_frontier(found, link, here),
        summary="Frontier of deployments; the table below has its points",
        below=(Section("Data as a table", (*points,)),),
    )


def _of_point(point: Plain) -> dict[str, Any]:
    """Return the deployment of a point, with the point's batch as the largest."""
    fields: dict[str, Any] = point["deployment"].to_dict()
    return fields | {"max_batch": int(point["batch"])}


def _details(state: State, answers: Answers) -> ViewPart | None:
    """Return the limits of the deployment, its memory, its passes, and improvements."""
    served = displayed_deployment(state, answers).served
    if served is None:
        return None
    _, *parts = serving_page(served.record).parts
    return ViewPart(title="Limits, memory and passes", blocks=tuple(parts))


PARTS = (
    ViewPartKind(name="served", title="The deployment", make=_served),
    ViewPartKind(name="serving-frontier", title="Frontier", make=_frontier, later=True),
    ViewPartKind(name="serving-best", title="The cheapest deployments", make=_best, later=True),
    ViewPartKind(name="serving-details", title="Limits", make=_details, later=True),
)
