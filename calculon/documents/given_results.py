"""Conversion of function arguments into results of pages: each with name, inputs and search."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from calculon.advise.answer import Answer
from calculon.base.errors import Infeasible, Problem, SpecError
from calculon.declarations import arguments
from calculon.declarations.origin import titled
from calculon.declarations.statistics import BOUNDS, LEVEL
from calculon.documents.compared import labeled
from calculon.documents.estimate_result import result_of
from calculon.documents.result import ENDS, Document, Result
from calculon.documents.waterfalls import Estimated
from calculon.estimate.estimate import Estimate, estimate
from calculon.search.search_result import SearchResult

Given = Estimate | SearchResult | Answer
"""Arguments of comparisons and reports: an estimate, a search (its best), or a plan result (user's plan and best)."""


def results_of(call: str, given: Sequence[Any], named: Mapping[str, Any]) -> list[Result]:
    """Return results with all layers, each with a name.

    Args:
        call: Name of the function, for messages.
        given, named: Results without and with names.

    Raises:
        SpecError: For other objects.
        Infeasible: If a search or a plan result found nothing.
    """
    pairs = [*(("", one) for one in given), *named.items()]
    found = [result for label, one in pairs for result in _results(call, label, one)]
    editions = {result.edition for result in found}
    several = len(editions) > 1
    parts = [(*one.parts, *((f"edition {one.edition}",) if several else ())) for one in found]
    return labeled([replace(one, parts=own) for one, own in zip(found, parts, strict=True)])


def _results(call: str, label: str, one: Any) -> Iterator[Result]:
    """Yield the results of an argument."""
    if isinstance(one, Estimate):
        yield _result(one, label)
    elif isinstance(one, SearchResult):
        yield replace(_result(one.best, label), winners=tuple(_winners(one)))
    elif isinstance(one, Answer):
        mine = None if one.mine is None else one.mine.estimate
        plans = {"mine": mine, "best": one.best}
        known = {name: plan for name, plan in plans.items() if plan is not None}
        if not known:
            raise Infeasible("nothing", "no plan fits")
        for name, plan in known.items():
            own = f"{label}: {name}" if label and len(known) > 1 else label or name
            yield _result(plan, own if len(known) > 1 else label)
    else:
        wanted = "an Estimate, a SearchResult or an Answer"
        hint = "pass several as separate arguments" if isinstance(one, (list, tuple)) else ""
        raise SpecError(call, Problem(label, wanted, arguments.kind(one), hint))


def _result(one: Estimate, label: str) -> Result:
    """Convert an estimate, with all layers and the names of its inputs."""
    whole = one
    # Estimates are made without layers unless asked: they are computed again for the report.
    if one.layers is None:
        made = estimate(one.model, one.execution, one.system, layers=True)
        whole = replace(one, layers=made.layers)
    found = result_of(whole)
    plan = titled(one.origin.name, one.origin.changes) if one.origin else found.split
    origins = {"model": one.model.origin, "execution": one.origin, "system": one.system.origin}
    documents = tuple(
        Document(role, titled(origin.name, origin.changes), origin.digest)
        for role, origin in origins.items()
        if origin is not None
    )
    names = (one.model.name, plan, one.system.name)
    result = replace(found, label=label, parts=names, documents=documents)
    return Estimated.of(result, whole)


def _winners(result: SearchResult) -> Iterator[Result]:
    """Yield the executions of a search, best first, like a result file."""
    for execution, stats in result.winners():
        low, high = (stats.get(name) for name in BOUNDS)
        ends = (
            None
            if low is None or high is None
            else dict(zip(ENDS, (LEVEL, low, high), strict=True))
        )
        own = {name: value for name, value in stats.items() if name not in BOUNDS}
        yield Result(stats=own, edition=result.edition, execution=execution, interval=ends)
