"""The view of serving: a deployment with its latency and rates, the cheapest ones, and the frontier of all."""

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
from calculon.explore.part import Part, PartKind
from calculon.explore.serving.asked_deployments import (
    answered,
    deployments,
    frontier,
    with_deployment,
)
from calculon.explore.serving.served_words import DEPLOYMENT
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


def _served(state: State, answers: Answers) -> Part:
    """Return the deployment in words, and its latency, rates and costs."""
    found = answered(state, answers)
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
        title = "No deployment keeps the limits"
        nearest = "The nearest deployment, which misses them:"
        blocks = (_sentence(found.problem), nearest, *blocks)
    return Part(
        title=title,
        blocks=blocks,
        spoken=", ".join(f"{label} {text}" for label, text, _ in facts.rows),
    )


def _none(problem: str) -> Part:
    """Say why there is no deployment."""
    text = _sentence(problem)
    return Part(title="No deployment fits", blocks=(text,), spoken=f"No deployment fits: {text}")


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


def _asked(page: Document) -> Block:
    """Return the requests, and what limits the batch, of the lead of the page of a deployment."""
    (lead,) = page.lead
    assert isinstance(lead, Grid)
    return replace(lead, rows=tuple(row for row in lead.rows if words(row[0]) in _ASKED))


_ASKED = ("requests", "batch", "drafts")
"""Rows of this lead that the page of a deployment repeats nowhere."""


def _best(state: State, answers: Answers) -> Part | None:
    """Return the cheapest deployments as a table, whose rows lead to them."""
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
    said = (
        "Those that generate the most tokens/s with each processor, and so cost the least a token."
    )
    return Part(title="The cheapest deployments", blocks=(dim(said), *blocks, *others, tried))


def _with_links(state: State, found: DeploymentSearch, table: Table) -> Table:
    """Return the table of a search with links to its deployments."""
    shown = zip(found.deployments, table.rows, strict=False)
    return replace(table, rows=[_linked(state, one, row, "replicas") for one, row in shown])


def _linked(state: State, one: Deployment, row: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Return a row of a table whose cell leads to a deployment."""
    return {**row, key: Styled(str(row[key]), link=with_deployment(state, one.to_dict()))}


def _frontier(state: State, answers: Answers) -> Part:
    """Return the rates of processors against the rates of users, of all deployments at every batch."""
    title = "Tokens/s of a processor against tokens/s of a user"
    try:
        found = frontier(state, answers)
    except Infeasible:
        return Part(title=title, blocks=("No deployment fits and keeps the limits at any batch.",))

    def link(point: Plain) -> str:
        return with_deployment(state, _of_point(point))

    page = serving_frontier_page(found)
    points = [
        block for part in page.parts for block in inner_blocks(part) if isinstance(block, Table)
    ]
    one = answered(state, answers).served
    here = None if one is None else (one["interactivity"], one["output_rate_per_proc"])
    said = "No deployment at any batch beats a point in both rates. A click on a point shows its deployment."
    return Part(
        title=title,
        blocks=(f"{requests_words(found['workload'])}.", dim(said)),
        chart=serving_frontier(found, link, here),
        summary="Frontier of deployments; the table below has its points",
        below=(Section("The same as a table", (*points,)),),
    )


def _of_point(point: Plain) -> dict[str, Any]:
    """Return the deployment of a point, with its batch as the largest."""
    fields: dict[str, Any] = point["deployment"].to_dict()
    return fields | {"max_batch": int(point["batch"])}


def _details(state: State, answers: Answers) -> Part | None:
    """Return what limits the deployment, its memory, its passes, and what would help."""
    served = answered(state, answers).served
    if served is None:
        return None
    _, *parts = serving_page(served.record).parts
    return Part(title="What limits it, its memory and its passes", blocks=tuple(parts))


PARTS = (
    PartKind(name="served", title="The deployment", make=_served),
    PartKind(name="serving-frontier", title="Frontier", make=_frontier, later=True),
    PartKind(name="serving-best", title="The cheapest deployments", make=_best, later=True),
    PartKind(name="serving-details", title="What limits it", make=_details, later=True),
)
