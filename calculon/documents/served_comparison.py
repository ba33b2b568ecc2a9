"""Comparison of deployments: inputs that differ, and their figures, passes and memory."""

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from calculon.base.frozen import dataclass
from calculon.base.units import Unit
from calculon.declarations.serving_figures import SERVING_FIGURES
from calculon.documents.comparison import SECONDS, Line, SideBySide, ranked
from calculon.documents.result import Document
from calculon.documents.serving_page import PASSES
from calculon.render.document import Picture
from calculon.serving.passes.row_times import CAUSES
from calculon.serving.served_record import ServedRecord, with_replicas

_BYTES = Unit("B", binary=True)
_NAMES = ("model", "system")
_MEMORY = ("weights", "cache", "activation", "reserve")


@dataclass(frozen=True, slots=True)
class ServedResult:
    """Deployment with its figures and its name.

    Attributes:
        label: Name.
        record: Its results.
        sources: Its input files.
        pictures: Its charts.
    """

    label: str
    record: ServedRecord
    sources: tuple[Document, ...] = ()
    pictures: tuple[Picture, ...] = ()

    @property
    def missed(self) -> list[str]:
        """Limits that it misses, in words."""
        return [one.in_words for one in self.record.limits if not one.met]


@dataclass(frozen=True)
class ServedComparison(SideBySide):
    """Two or more deployments, compared with the first.

    Attributes:
        results: The deployments.
    """

    results: Sequence[ServedResult]
    __repr__ = SideBySide.__repr__  # else the dataclass decorator would add its own

    @property
    def headings(self) -> list[str]:
        """Column headings of the deployments: their letters."""
        return list(self.letters)

    @cached_property
    def inputs(self) -> list[tuple[str, list[Any]]]:
        """Inputs that differ: deployment, then model and system, then workload; None if not stated."""
        records = [one.record for one in self.results]
        documents = [
            {"deployment": with_replicas(one.deployment), "workload": one.workload.to_dict()}
            for one in records
        ]
        rows: list[tuple[str, list[Any]]] = []
        for part in ("deployment", "workload"):
            names = dict.fromkeys(name for one in documents for name in one[part])
            rows += [(name, [one[part].get(name) for one in documents]) for name in names]
            if part == "deployment":
                rows += [(name, [getattr(one, name) for one in records]) for name in _NAMES]
        return [(name, values) for name, values in rows if len(set(map(str, values))) > 1]

    @cached_property
    def figures(self) -> list[Line]:
        """All figures, in the order of ``calculon describe serving``."""
        found = [one.record.figures for one in self.results]
        return [
            Line(c.name, c.help, c.unit, tuple(_finite(one[c.name]) for one in found))
            for c in SERVING_FIGURES.values()
        ]

    def causes(self, name: str) -> list[Line]:
        """Return the causes of the time of a pass (``decode`` or ``prefill``), largest difference first."""
        found = [getattr(one.record.passes, name).causes for one in self.results]
        lines = (
            Line(words, cause, SECONDS, tuple(getattr(one, cause) for one in found))
            for cause, words in CAUSES.items()
        )
        return ranked(lines)

    @property
    def memory(self) -> list[Line]:
        """Memory of a rank by kind, largest difference first."""
        found = [one.record.figures for one in self.results]
        return ranked(
            Line(name, name, _BYTES, tuple(one[f"mem_{name}"] for one in found)) for name in _MEMORY
        )

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-serializable dict."""
        return {
            "results": [
                {
                    "label": one.label,
                    **{name: getattr(one.record, name) for name in _NAMES},
                    "deployment": with_replicas(one.record.deployment),
                    "workload": one.record.workload.to_dict(),
                    "missed": one.missed,
                }
                for one in self.results
            ],
            "inputs": [{"field": name, "values": values} for name, values in self.inputs],
            "figures": [line.to_dict() for line in self.figures],
            "passes": {name: [line.to_dict() for line in self.causes(name)] for name in PASSES},
            "memory": [line.to_dict() for line in self.memory],
        }

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each value that is compared with the first result's."""
        lines = [("figures", line) for line in self.figures]
        lines += [(name, line) for name in PASSES for line in self.causes(name)]
        lines += [("memory", line) for line in self.memory]
        return [*self._rows_of(lines)]


def _finite(value: float | None) -> float | None:
    """Return a figure; None if it is missing, or if it is an infinite wait."""
    return value if value is not None and math.isfinite(value) else None
