"""Deployments with their figures, from a result or from the file that ``serve -o`` wrote."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from calculon.base.errors import Infeasible, Problem, SpecError
from calculon.base.frozen import dataclass
from calculon.documents.comparison import MOST
from calculon.documents.result import Document
from calculon.documents.served_comparison import ServedComparison, ServedResult
from calculon.render.document import Picture
from calculon.serving.by_batch import by_batch
from calculon.serving.serve import Served, serve
from calculon.serving.served_record import ServedRecord

_AGREES = 1e-9


def is_served(raw: object) -> bool:
    """Return True if a document was written by ``serve -o``."""
    return isinstance(raw, Mapping) and {"deployment", "workload", "figures", "passes"} <= set(raw)


@dataclass(frozen=True, slots=True)
class FoundResult(ServedResult):
    """Deployment with the result of its record."""

    found: Served | None = None


def served_result(label: str, served: Served, sources: tuple[Document, ...] = ()) -> ServedResult:
    """Return a result under a name."""
    return FoundResult(label, served.record, sources, found=served)


def compared_served(results: Sequence[ServedResult]) -> ServedComparison:
    """Compare deployments; unnamed ones are named by model, processors and system.

    Raises:
        SpecError: For fewer than two deployments, and for more deployments than letters.
    """
    if not 2 <= len(results) <= MOST:
        wanted = f"2 to {MOST} deployments to compare"
        raise SpecError("compare", Problem("", wanted, str(len(results))))
    return ServedComparison(named(results))


def named(results: Sequence[ServedResult]) -> list[ServedResult]:
    """Return named deployments; unnamed ones are named by model, processors and system."""
    return [replace(one, label=one.label or _name(one.record)) for one in results]


def _name(record: ServedRecord) -> str:
    return f"{record.model} on {record.deployment.num_procs:,} x {record.system}"


def pictured(results: Sequence[ServedResult]) -> list[ServedResult]:
    """Return deployments with charts, if they can be estimated again."""
    from calculon.documents.charts.batch_chart import WORDS, batch_curves

    result = []
    for one in results:
        again = one.found if isinstance(one, FoundResult) else _again(one.record)
        shown = () if again is None else (Picture(batch_curves(by_batch(again)), WORDS),)
        result.append(replace(one, pictures=shown))
    return result


def _again(record: ServedRecord) -> Served | None:
    """Estimate a deployment by the names in its record; None if the figures have changed since."""
    try:
        found = serve(record.model, record.deployment, record.system, record.workload)
    except (SpecError, Infeasible):
        return None
    mine, theirs = found.stats, record.figures
    same = all(
        mine[name] == theirs[name]
        or math.isclose(mine[name] or 0, theirs[name] or 0, rel_tol=_AGREES)
        for name in mine
    )
    return found if same else None
