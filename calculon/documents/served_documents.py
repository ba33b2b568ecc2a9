"""Deployments with their figures as plain data: of a result, or of the file that ``serve -o`` wrote."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from calculon.base.errors import Infeasible, Problem, SpecError
from calculon.base.frozen import dataclass
from calculon.declarations.fields import shown
from calculon.declarations.serving_figures import SERVING_FIGURES
from calculon.documents.comparison import MOST
from calculon.documents.result import Document
from calculon.documents.served_comparison import ServedComparison, ServedResult
from calculon.estimate.served_errors import published_errors
from calculon.render.document import Picture
from calculon.serving.by_batch import by_batch
from calculon.serving.passes.row_times import CAUSES, QUANTITIES
from calculon.serving.records.asked import read_deployment, read_workload
from calculon.serving.serve import Served, serve, with_replicas
from calculon.serving.states.served_points import CUTS

_AGREES = 1e-9
_DERIVED = "replicas"
"""Member of a deployment in a document that is no field."""


def is_served(raw: object) -> bool:
    """Return whether a document is what ``serve -o`` writes."""
    return isinstance(raw, Mapping) and {"deployment", "workload", "figures", "passes"} <= set(raw)


@dataclass(frozen=True, slots=True)
class FoundResult(ServedResult):
    """A deployment with the result that its document is of."""

    found: Served | None = None


def served_result(label: str, found: Served, sources: tuple[Document, ...] = ()) -> ServedResult:
    """Return a result under a name."""
    return FoundResult(label, found.to_dict(), sources, found=found)


def compared_served(results: Sequence[ServedResult]) -> ServedComparison:
    """Compare deployments; a deployment without a name is named by model, processors and system.

    Raises:
        SpecError: For fewer than two of them, and for more than there are letters.
    """
    if not 2 <= len(results) <= MOST:
        wanted = f"2 to {MOST} deployments to compare"
        raise SpecError("compare", Problem("", wanted, str(len(results))))
    return ServedComparison(named(results))


def named(results: Sequence[ServedResult]) -> list[ServedResult]:
    """Return deployments with names: model, processors and system where they have none."""
    return [replace(one, label=one.label or _name(one.document)) for one in results]


def _name(document: Mapping[str, Any]) -> str:
    count = document["deployment"]["num_procs"]
    return f"{document['model']} on {count:,} x {document['system']}"


def pictured(results: Sequence[ServedResult]) -> list[ServedResult]:
    """Return deployments with pictures, where the document can be estimated again."""
    from calculon.documents.charts.batch_chart import WORDS, batch_curves

    found = []
    for one in results:
        again = one.found if isinstance(one, FoundResult) else _again(one.document)
        shown = () if again is None else (Picture(batch_curves(by_batch(again).to_dict()), WORDS),)
        found.append(replace(one, pictures=shown))
    return found


def _again(document: Mapping[str, Any]) -> Served | None:
    """Estimate a deployment by the names in its document; nothing where these give other figures by now."""
    try:
        fields = _without_replicas(document["deployment"])
        found = serve(document["model"], fields, document["system"], document["workload"])
    except (SpecError, Infeasible):
        return None
    mine, theirs = found.stats, document["figures"]
    same = all(
        mine[name] == theirs[name]
        or math.isclose(mine[name] or 0, theirs[name] or 0, rel_tol=_AGREES)
        for name in mine
    )
    return found if same else None


def _without_replicas(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a deployment, and of its pool that prefills, as a file states them."""
    return {
        name: _without_replicas(value) if isinstance(value, Mapping) else value
        for name, value in fields.items()
        if name != _DERIVED
    }


def read_document_of(raw: Any, path: str) -> dict[str, Any]:
    """Return the document of a deployment with every value checked; a figure without end is infinite again.

    Raises:
        SpecError: For anything that ``serve`` does not write.
    """
    reader = _Reader(path)
    found: dict[str, Any] = reader.read(_LATER | dict(raw), _SERVED, "")
    given = found["figures"]
    figures = {
        name: math.inf if given[name] is None and not figure.nullable else given[name]
        for name, figure in SERVING_FIGURES.items()
    }
    if found["speculation"] is not None:
        reader.read(figures, _OF_DRAFTS, "figures")
    deployment = read_deployment(_without_replicas(found["deployment"]))
    return found | {
        "deployment": with_replicas(deployment),
        "workload": read_workload(found["workload"]).to_dict(),
        "figures": figures,
        "published": published_errors(),  # those that are known now
    }


@dataclass(frozen=True, slots=True)
class _OrNone:
    """The shape of a value that may be null."""

    shape: Any


_LATER = {"seq_size": 0, "run_time": None, "speculation": None}
"""Members that older files lack."""

_EACH = ""
"""The name that stands for all names of an object."""

_PASS = {
    "time": float,
    "causes": dict.fromkeys(CAUSES, float),
    "rows": {_EACH: dict.fromkeys(QUANTITIES, float)},
}
_SERVED = {
    "model": str,
    "seq_size": float,
    "system": str,
    "deployment": {},
    "workload": {},
    "batch": float,
    "cut": CUTS,
    "speculation": _OrNone({"draft": str, "tokens": float, "acceptance": float}),
    "figures": dict.fromkeys(SERVING_FIGURES, _OrNone(float)),
    "run_time": _OrNone(float),
    "price": str,
    "power": str,
    "limits": [{"name": str, "met": bool, "in_words": str}],
    "worth": ("output_rate", "interactivity"),
    "helps": {_EACH: float},
    "passes": {"decode": _PASS, "prefill": _PASS},
}
"""The shape of the document: types, choices, lists, and objects with the shapes of their members."""

_OF_DRAFTS = dict.fromkeys(("spec_tokens", "spec_speedup", "spec_break_even"), float)
"""Figures that are known if tokens are drafted."""

_WORDS = {str: "text", float: "a number", bool: "true or false"}


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads values of a file; each error names the file and the place."""

    path: str

    def read(self, value: Any, shape: Any, place: str) -> Any:
        """Return a value of a shape; of an object also the members that the shape does not have."""
        if isinstance(shape, _OrNone):
            return None if value is None else self.read(value, shape.shape, place)
        if isinstance(shape, Mapping):
            self._check(isinstance(value, Mapping), place, "an object", value)
            shapes = dict.fromkeys(value, shape[_EACH]) if _EACH in shape else shape
            return dict(value) | {
                name: self.read(value.get(name, ...), inner, f"{place}.{name}".lstrip("."))
                for name, inner in shapes.items()
            }
        if isinstance(shape, list):
            self._check(isinstance(value, list), place, "a list", value)
            return [self.read(one, shape[0], f"{place}[{i}]") for i, one in enumerate(value)]
        if isinstance(shape, tuple):
            self._check(value in shape, place, f"one of {', '.join(shape)}", value)
        else:
            number = shape is float and isinstance(value, int) and not isinstance(value, bool)
            self._check(number or isinstance(value, shape), place, _WORDS[shape], value)
        return value

    def _check(self, good: bool, place: str, wanted: str, value: object) -> None:
        """Raise SpecError for a value that is not what is wanted."""
        if not good:
            found = "nothing (the field is missing)" if value in (None, ...) else shown(value)
            hint = "calculon serve ... -o FILE.json writes such a file"
            raise SpecError(self.path, Problem(place, wanted, found, hint))
