"""Record of a serving result, as files contain it: names of model and machine, and all figures."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar

from calculon.base.errors import Problem
from calculon.base.frozen import dataclass
from calculon.declarations.decode import decode
from calculon.declarations.encode import encode
from calculon.declarations.fields import declare
from calculon.declarations.result_numbers import number, with_numbers
from calculon.declarations.result_records import DEPLOYMENT, REPLICAS, without_replicas
from calculon.declarations.serving_classes import ServedClass
from calculon.declarations.serving_figures import SERVING_FIGURES
from calculon.estimate.served_errors import FIGURES, FigureRange, served_ranges
from calculon.serving.engine_settings import SettingRecord
from calculon.serving.passes.row_times import QUANTITIES, CausesRecord, PassTimes, RowRecord
from calculon.serving.records.deployment import Deployment
from calculon.serving.records.load import Workload
from calculon.serving.records.speculation import Speculation
from calculon.serving.states.served_points import CUTS, Limit

STEADY_STATE = "steady state"


_UNLIMITED = [
    name for name, one in SERVING_FIGURES.items() if not one.nullable and one.unit.symbol != "B"
]
"""Figures that can be infinite, such as a wait; files contain null for infinity. Memory is always finite."""


@dataclass(frozen=True, kw_only=True)
@with_numbers(SERVING_FIGURES.values(), unlimited=_UNLIMITED)
class FigureRecord:
    """Figures of a deployment."""

    unknown_keys: ClassVar[str] = "ignored"

    def __getitem__(self, name: str) -> Any:
        """Return a figure by name; None if it is unknown."""
        return getattr(self, name)


@dataclass(frozen=True, slots=True, kw_only=True)
class PassRecord:
    """Time of a pass in seconds, its rows by name, and the causes of its time."""

    unknown_keys: ClassVar[str] = "ignored"

    time: float = number("total time")
    rows: dict[str, RowRecord] = declare("rows by name")
    causes: CausesRecord = declare("causes of the time")

    @classmethod
    def of(cls, times: PassTimes) -> "PassRecord":
        """Return the record of the first pass, with the rows of each name added up."""
        rows = {}
        for name in dict.fromkeys(row.name for row in times.rows):
            sums = {
                one: sum(float(getattr(row, one)[0]) for row in times.of(name))
                for one in QUANTITIES
            }
            rows[name] = RowRecord(**sums)
        causes = {name: float(value[0]) for name, value in times.causes().items()}
        return cls(time=float(times.time[0]), rows=rows, causes=CausesRecord(**causes))


@dataclass(frozen=True, slots=True, kw_only=True)
class PassRecords:
    """The pass that decodes the batch, and the pass of one whole prompt."""

    unknown_keys: ClassVar[str] = "ignored"

    decode: PassRecord = declare("the pass that decodes the batch")
    prefill: PassRecord = declare("the pass of one whole prompt")


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitRecord:
    """A limit of the workload, with the result of its check."""

    unknown_keys: ClassVar[str] = "ignored"

    name: str = declare("the limited figure")
    most: float = number("the limit", default=math.inf)
    found: float = number("the figure", default=math.inf, nullable=True, null=math.inf)
    met: bool = declare("true if the limit is met")
    in_words: str = declare("the figure and the limit in words")

    @classmethod
    def of(cls, limit: Limit) -> "LimitRecord":
        """Return the record of a limit."""
        names = ("name", "most", "found", "met", "in_words")
        return cls(**{name: getattr(limit, name) for name in names})


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedRecord:
    """Result of serving, as :func:`calculon.serve` returns it and files contain it."""

    unknown_keys: ClassVar[str] = "ignored"

    model: str = declare("name of the model")
    seq_size: int = declare("sequence length of its training", default=0)
    system: str = declare("name of the machine")
    provenance: dict[str, Any] = declare("origin of its figures")
    deployment: Deployment = declare("the deployment")
    tried: int = declare(
        "deployments of a search of which it is the best; 0 if it was stated", at_least=0, default=0
    )
    arithmetic: str = declare(
        "16-bit type that narrower weights are multiplied in; empty if their own", default=""
    )
    workload: Workload = declare("the workload")
    method: str = declare("method of the estimate", default=STEADY_STATE)
    batch: int = declare("sequences that a replica decodes concurrently", at_least=0)
    cut: str = declare("reason that limits the batch", choices=CUTS)
    speculation: Speculation | None = declare("speculative decoding", default=None, nullable=True)
    figures: FigureRecord = declare("the figures")
    run_time: float | None = number("seconds of a finite run", default=None, nullable=True)
    price: str = declare("source of the price; empty without one")
    power: str = declare("source of the power, and its assumptions; empty without one")
    served_class: ServedClass | None = declare(
        "class of deployments that published rows are compared with", default=None, nullable=True
    )
    rooflines: dict[str, float] = number(
        "fastest values of figures that the peaks of the machine allow"
    )
    ranges: dict[str, FigureRange] = declare("prediction intervals of figures, from published rows")
    limits: tuple[LimitRecord, ...] = declare("limits of the workload", default=())
    worth: str = declare(
        "figure that better hardware is judged by",
        choices=("output_rate", "interactivity"),
    )
    helps: dict[str, float] = number("elasticity of this figure by hardware part, largest first")
    settings: tuple[SettingRecord, ...] = declare(
        "the deployment with its engine's own defaults, and with the best limits of the scheduler",
        default=(),
    )
    passes: PassRecords = declare("passes")

    def problems(self, path: str) -> Iterator[Problem]:
        """Yield figures that are unknown although another part of the result needs them."""
        needed = list(_OF_DRAFTS) if self.speculation is not None else []
        for name, others in _KNOWN_WITH.items():
            needed += others if self.figures[name] is not None else ()
        if self.run_time is not None and self.workload.requests is None:
            place = f"{path}.workload.requests".lstrip(".")
            yield Problem(place, "the number of requests, because run_time is stated", "null")
        for name in needed:
            if self.figures[name] is None:
                yield Problem(f"{path}.figures.{name}".lstrip("."), "a number", "null")

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-serializable dict."""
        return encode(self) | {DEPLOYMENT: with_replicas(self.deployment)}


_OF_DRAFTS = ("spec_tokens", "spec_speedup", "spec_break_even")
"""Figures that are known with speculative decoding."""

_KNOWN_WITH = {
    "prefill_busy": ("decode_busy", "balanced_prefill"),
    "usd_per_mtoken": ("usd_per_mtoken_blended",),
}
"""Figures that are known if another figure is known."""


def with_replicas(deployment: Deployment) -> dict[str, Any]:
    """Return the fields of a deployment, with the number of replicas of each pool."""
    result = deployment.to_dict() | {REPLICAS: deployment.replicas}
    if (pool := deployment.prefill) is not None:
        result["prefill"] |= {REPLICAS: pool.replicas}
    return result


def read_served(raw: Mapping[str, Any], path: str) -> ServedRecord:
    """Return the record of a document that ``serve`` wrote; prediction intervals use the rows published by now.

    Raises:
        SpecError: With all problems of the document.
    """
    older: dict[str, Any] = {"provenance": {}, "rooflines": {}}  # members that older files lack
    deployment = without_replicas(raw[DEPLOYMENT], path, DEPLOYMENT)
    # ranges are computed from the published rows of today instead of being read
    stated = {DEPLOYMENT: deployment, "ranges": {}}
    result = decode(ServedRecord, {**older, **raw, **stated}, path)
    if result.served_class is None:  # written before ranges had classes
        return result
    figures = {name: result.figures[name] for name in FIGURES}
    ranges = served_ranges(result.served_class, figures, result.rooflines)
    return replace(result, ranges=ranges)
