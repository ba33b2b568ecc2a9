"""Winners of searches as documents and tables: the output files of ``calculon loe``."""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

from calculon.declarations.files import csv_text
from calculon.declarations.named_values import PUBLISHED
from calculon.declarations.result_records import QUESTION
from calculon.search.search_result import SearchResult


def document(
    result: SearchResult, question: Mapping[str, Any], *, layers: bool = False
) -> dict[str, Mapping[str, Any]]:
    """Return the winners for one processor count by rank, in the format of the published tool.

    Other editions add the evidence of the interval, and the question of the search.

    Args:
        result: The winners.
        question: Question of the search.
        layers: Include the cost of every layer.
    """
    found = _entries(result, layers=layers)
    if result.edition == PUBLISHED:
        return found
    return {
        rank: {
            **winner,
            **({} if belief is None else {"belief": belief.to_dict()}),
            "order": order.to_dict(),
            QUESTION: question,
        }
        for (rank, winner), belief, order in zip(
            found.items(), result.beliefs(), result.orders, strict=True
        )
    }


def _entries(result: SearchResult, *, layers: bool) -> dict[str, Mapping[str, Any]]:
    """Return execution and statistics of the winners by rank."""
    details = result.estimates(layers=True) if layers else []
    found: dict[str, Mapping[str, Any]] = {}
    for rank, (execution, stats) in enumerate(result.winners()):
        more = {"layers": details[rank].layers} if layers else {}
        found[str(rank)] = {"execution": execution, "stats": {**stats, **more}}
    return found


def table_text(results: Sequence[SearchResult], *, layers: bool = False) -> str:
    """Return a CSV line for each winner: rank, execution, statistics, and layers as JSON text."""
    first, bounds = results[0].evaluation, results[0].bounds
    names = (
        *first.fields,
        *first.names,
        *bounds,
        *(["layers"] if layers else []),
        *results[0].names,
    )
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["", *names])
    for result in results:
        for rank, winner in _entries(result, layers=layers).items():
            stats = dict(winner["stats"])
            if layers:
                stats["layers"] = json.dumps(stats["layers"])
            named = map(csv_text, result.names.values())
            writer.writerow([rank, *winner["execution"].values(), *stats.values(), *named])
    return text.getvalue()
