"""Deployments with their figures as plain data: of a result, or of the file that ``serve -o`` wrote."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from calculon.base.errors import Infeasible, Problem, SpecError
from calculon.base.frozen import dataclass
from calculon.declarations.fields import shown
from calculon.declarations.serving_figures import SERVING_FIGURES
from calculon.documents.result import Document
from calculon.documents.served_comparison import ServedComparison, ServedResult
from calculon.estimate.served_errors import published_errors
from calculon.serving.by_batch import by_batch
from calculon.serving.passes.row_times import CAUSES, QUANTITIES
from calculon.serving.records.asked import read_deployment, read_workload
from calculon.serving.serve import Served, serve, with_replicas
from calculon.serving.states.served_points import CUTS

MOST = 26
"""Deployments that have a letter each."""

_AGREES = 1e-9
_DERIVED = "replicas"
"""What a document says of a deployment beside its fields."""


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
    """Set deployments side by side; those without a name have one of what tells them apart.

    Raises
    ------
    SpecError
        For fewer than two of them, and for more than there are letters.
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
    """Return deployments with pictures, where matplotlib is there and the document can be estimated again."""
    from calculon.render.canvas import require_library, svg

    try:
        require_library()
    except SpecError:
        return list(results)
    from calculon.documents.charts.batch_curves import WORDS, batch_curves
    from calculon.render.matplotlib_charts import draw

    found = []
    for one in results:
        again = one.found if isinstance(one, FoundResult) else _again(one.document)
        svgs = () if again is None else (svg(draw(batch_curves(by_batch(again).to_dict())), WORDS),)
        found.append(replace(one, svgs=svgs))
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
    found = {name: value for name, value in fields.items() if name != _DERIVED}
    if isinstance(pool := found.get("prefill"), Mapping):
        found["prefill"] = {name: value for name, value in pool.items() if name != _DERIVED}
    return found


def read_document_of(raw: Any, path: str) -> dict[str, Any]:
    """Return the document of a deployment with every value checked; a figure without end is infinite again.

    Raises
    ------
    SpecError
        For anything that ``serve`` does not write.
    """
    reader = _Reader(path)
    fields = reader.mapping(raw, "deployment")
    deployment = read_deployment(_without_replicas(fields))
    workload = read_workload(dict(reader.mapping(raw, "workload")))
    given = reader.mapping(raw, "figures")
    figures = {name: reader.figure(given, name) for name in SERVING_FIGURES}
    found = dict(raw) | {
        "model": reader.text(raw, "model"),
        "seq_size": reader.number(raw, "seq_size", "seq_size") if "seq_size" in raw else 0,
        "system": reader.text(raw, "system"),
        "deployment": with_replicas(deployment),
        "workload": workload.to_dict(),
        "figures": figures,
        "price": reader.text(raw, "price"),
        "power": reader.text(raw, "power"),
        "published": published_errors(),  # those that are known now
        "speculation": reader.speculation(raw, figures),
        "batch": reader.number(raw, "batch", "batch"),
        "passes": {
            name: reader.passes(reader.mapping(raw, "passes"), name)
            for name in ("decode", "prefill")
        },
        "helps": {
            str(name): reader.number(reader.mapping(raw, "helps"), name, f"helps.{name}")
            for name in reader.mapping(raw, "helps")
        },
    }
    if raw.get("cut") not in CUTS:
        raise reader.wrong("cut", "one of " + ", ".join(CUTS), raw.get("cut"))
    if raw.get("worth") not in ("output_rate", "interactivity"):
        raise reader.wrong("worth", "output_rate or interactivity", raw.get("worth"))
    if raw.get("run_time") is not None:
        found["run_time"] = reader.number(raw, "run_time", "run_time")
    return found | {"run_time": found.get("run_time"), "limits": reader.limits(raw)}


class _Reader:
    """Reads values of a document; each error names the file and the place."""

    def __init__(self, path: str):
        self.path = path

    def wrong(self, place: str, wanted: str, value: object) -> SpecError:
        """Return the error of a value."""
        found = "nothing (the field is missing)" if value is None else shown(value)
        hint = "calculon serve ... -o FILE.json writes such a file"
        return SpecError(self.path, Problem(place, wanted, found, hint))

    def mapping(self, raw: Mapping[str, Any], name: str, place: str = "") -> Mapping[str, Any]:
        """Return an object of a document."""
        value = raw.get(name)
        if not isinstance(value, Mapping):
            raise self.wrong(place or name, "an object", value)
        return value

    def text(self, raw: Mapping[str, Any], name: str) -> str:
        """Return a text."""
        value = raw.get(name)
        if not isinstance(value, str):
            raise self.wrong(name, "text", value)
        return value

    def number(self, raw: Mapping[str, Any], name: str, place: str) -> float:
        """Return a number."""
        value = raw.get(name)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self.wrong(place, "a number", value)
        return value

    def figure(self, raw: Mapping[str, Any], name: str) -> float | None:
        """Return a figure; one that is null is unknown, or without end."""
        if name in raw and raw[name] is None:
            return None if SERVING_FIGURES[name].nullable else math.inf
        return self.number(raw, name, f"figures.{name}")

    def passes(self, raw: Mapping[str, Any], name: str) -> dict[str, Any]:
        """Return a pass: its time, its causes and its rows."""
        place = f"passes.{name}"
        one = self.mapping(raw, name, place)
        causes = self.mapping(one, "causes", f"{place}.causes")
        rows = self.mapping(one, "rows", f"{place}.rows")
        return {
            "time": self.number(one, "time", f"{place}.time"),
            "causes": {c: self.number(causes, c, f"{place}.causes.{c}") for c in CAUSES},
            "rows": {
                str(row): {
                    q: self.number(
                        self.mapping(rows, row, f"{place}.rows.{row}"), q, f"{place}.rows.{row}.{q}"
                    )
                    for q in QUANTITIES
                }
                for row in rows
            },
        }

    def speculation(
        self, raw: Mapping[str, Any], figures: Mapping[str, float | None]
    ) -> dict[str, Any] | None:
        """Return what is drafted, if anything is."""
        if raw.get("speculation") is None:
            return None
        one = self.mapping(raw, "speculation")
        for name in ("spec_tokens", "spec_speedup", "spec_break_even"):
            if figures[name] is None:
                raise self.wrong(f"figures.{name}", "a number, since tokens are drafted", None)
        return dict(one) | {
            "draft": self.text(one, "draft"),
            "tokens": int(self.number(one, "tokens", "speculation.tokens")),
            "acceptance": self.number(one, "acceptance", "speculation.acceptance"),
        }

    def limits(self, raw: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the limits: whether each is met, and that in words."""
        listed = raw.get("limits")
        if not isinstance(listed, list):
            raise self.wrong("limits", "a list", listed)
        for i, one in enumerate(listed):
            if not isinstance(one, Mapping) or not isinstance(one.get("met"), bool):
                raise self.wrong(f"limits[{i}]", "an object with met", one)
            self.text(one, "in_words")
        return [dict(one) for one in listed]
