"""A deployment that serves as files have it: a declared record with the names of model and machine, and all figures."""

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
from calculon.serving.passes.row_times import QUANTITIES, CausesRecord, PassTimes, RowRecord
from calculon.serving.records.deployment import Deployment
from calculon.serving.records.load import Workload
from calculon.serving.records.speculation import Speculation
from calculon.serving.states.served_points import CUTS, Limit

STEADY_STATE = "steady state"


_UNLIMITED = [
    name for name, one in SERVING_FIGURES.items() if not one.nullable and one.unit.symbol != "B"
]
"""Figures that can be infinite, such as a wait; files have null for infinity. Memory is always finite."""


@dataclass(frozen=True, kw_only=True)
@with_numbers(SERVING_FIGURES.values(), unlimited=_UNLIMITED)
class FigureRecord:
    """The figures of a deployment."""

    unknown_keys: ClassVar[str] = "ignored"

    def __getitem__(self, name: str) -> Any:
        """Return a figure by name; None if it is unknown."""
        return getattr(self, name)


@dataclass(frozen=True, slots=True, kw_only=True)
class PassRecord:
    """The time of a pass in seconds, its rows by name, and the causes of its time."""

    unknown_keys: ClassVar[str] = "ignored"

    time: float = number("whole time")
    rows: dict[str, RowRecord] = declare("rows by name")
    causes: CausesRecord = declare("causes of the time")

    @classmethod
    def of(cls, times: PassTimes) -> "PassRecord":
        """Return the first of some passes; its rows of each name together."""
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
    """A limit of the workload, and whether it is kept."""

    unknown_keys: ClassVar[str] = "ignored"

    name: str = declare("the figure that is limited")
    most: float = number("the limit", default=math.inf)
    found: float = number("the figure", default=math.inf, nullable=True, null=math.inf)
    met: bool = declare("whether it is kept")
    in_words: str = declare("the figure and the limit in words")

    @classmethod
    def of(cls, limit: Limit) -> "LimitRecord":
        """Return a limit as files have it."""
        names = ("name", "most", "found", "met", "in_words")
        return cls(**{name: getattr(limit, name) for name in names})


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedRecord:
    """What a deployment gives, as :func:`calculon.serve` finds it and files have it."""

    unknown_keys: ClassVar[str] = "ignored"

    model: str = declare("name of the model")
    seq_size: int = declare("tokens of a sequence of its training", default=0)
    system: str = declare("name of the machine")
    provenance: dict[str, Any] = declare("origin of its figures")
    deployment: Deployment = declare("the deployment")
    workload: Workload = declare("the workload")
    method: str = declare("how it is estimated", default=STEADY_STATE)
    batch: int = declare("sequences that a replica decodes at a time", at_least=0)
    cut: str = declare("what bounds them", choices=CUTS)
    speculation: Speculation | None = declare("drafted tokens", default=None, nullable=True)
    figures: FigureRecord = declare("the figures")
    run_time: float | None = number("seconds of a finite run", default=None, nullable=True)
    price: str = declare("source of the price; empty without one")
    power: str = declare("source of the power, and what it assumes; empty without one")
    served_class: ServedClass | None = declare(
        "class by which published rows are compared with it", default=None, nullable=True
    )
    ranges: dict[str, FigureRange] = declare("ranges of figures by published rows")
    limits: tuple[LimitRecord, ...] = declare("limits of the workload", default=())
    worth: str = declare(
        "figure by which parts of the machine are worth something",
        choices=("output_rate", "interactivity"),
    )
    helps: dict[str, float] = number("elasticity of this figure by part, the largest first")
    passes: PassRecords = declare("passes")

    def problems(self, path: str) -> Iterator[Problem]:
        """Yield figures that are unknown though another part of the result needs them."""
        needed = list(_OF_DRAFTS) if self.speculation is not None else []
        for name, others in _KNOWN_WITH.items():
            needed += others if self.figures[name] is not None else ()
        if self.run_time is not None and self.workload.requests is None:
            place = f"{path}.workload.requests".lstrip(".")
            yield Problem(place, "the number of requests, since run_time is stated", "null")
        for name in needed:
            if self.figures[name] is None:
                yield Problem(f"{path}.figures.{name}".lstrip("."), "a number", "null")

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain data."""
        return encode(self) | {DEPLOYMENT: with_replicas(self.deployment)}


_OF_DRAFTS = ("spec_tokens", "spec_speedup", "spec_break_even")
"""Figures that are known if tokens are drafted."""

_KNOWN_WITH = {
    "prefill_busy": ("decode_busy", "balanced_prefill"),
    "usd_per_mtoken": ("usd_per_mtoken_blended",),
}
"""Figures that are known if another figure is."""


def with_replicas(deployment: Deployment) -> dict[str, Any]:
    """Return the fields of a deployment, and how many replicas each pool has."""
    found = deployment.to_dict() | {REPLICAS: deployment.replicas}
    if (pool := deployment.prefill) is not None:
        found["prefill"] |= {REPLICAS: pool.replicas}
    return found


def read_served(raw: Mapping[str, Any], path: str) -> ServedRecord:
    """Return the record of a document that ``serve`` wrote; ranges are by the published rows that are known now.

    Raises:
        SpecError: With everything wrong in it.
    """
    older: dict[str, Any] = {"provenance": {}}  # members that some files lack
    deployment = without_replicas(raw[DEPLOYMENT], path, DEPLOYMENT)
    stated = {DEPLOYMENT: deployment, "ranges": {}}
    found = decode(ServedRecord, {**older, **raw, **stated}, path)
    if found.served_class is None:  # files before ranges had classes
        return found
    figures = {name: found.figures[name] for name in FIGURES}
    return replace(found, ranges=served_ranges(found.served_class, figures))
