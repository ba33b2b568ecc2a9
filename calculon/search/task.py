"""Search as a message: the request to a worker, the work, and the response."""

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import MISSING, Field, field, fields
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

import calculon
from calculon.base.errors import CalculonError
from calculon.base.frozen import dataclass
from calculon.declarations import catalog
from calculon.declarations.model import Model
from calculon.declarations.named_values import PUBLISHED
from calculon.declarations.presets import Preset
from calculon.estimate.question import question
from calculon.hardware.system import System
from calculon.search.driver import SearchResult, make_ranking, make_space, run
from calculon.search.ranking import Ranking
from calculon.search.search_counts import Counts
from calculon.search.space import Space, Values
from calculon.search.within_risk import joined_conditions, search_preferring
from calculon.version import __version__

if TYPE_CHECKING:
    from calculon.campaign.record import Campaign
    from calculon.search.training_runs import TrainingRuns


# The program that computed a result: journals are continued, and workers respond, only with an identical program.


@cache
def program() -> str:
    """Return the version of the package with a hash of its source and presets, such as ``1.12.0+3f2a9c0d1e5b``.

    The version alone is not enough for a checkout, because formulas change between releases.
    """
    digest = hashlib.sha256()
    package = Path(calculon.__file__).parent
    for path in (*sorted(package.rglob("*.py")), *sorted(catalog.names("preset").values())):
        digest.update(path.name.encode() + path.read_bytes())
    return f"{__version__}+{digest.hexdigest()[:12]}"


def check_version(asking: str) -> None:
    """Raise CalculonError if this worker runs another program than the process that asks."""
    if asking != program():
        raise CalculonError(f"a worker has calculon {program()}, but the request is from {asking}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """Request of one search: a few kilobytes that are sent to processes and machines.

    Attributes:
        number: Position in the sweep.
        version: Program that sends the request (:func:`program`); workers with another program refuse it.

        risk: Acceptable probability of running out of memory; None for any.

    The other attributes are the arguments of :func:`calculon.search.driver.search`.
    """

    number: int
    model: Model
    system: System
    num_procs: int
    max_batch_size: int
    datatype: str
    top: int = 1
    objective: str = "sample_rate"
    pareto: tuple[str, ...] = ()
    where: str | None = None
    risk: float | None = None
    mbs_break: bool = False
    fused: tuple[bool, ...] | None = None
    tensor_overlap: bool = True
    data_overlap: bool = True
    fix: Mapping[str, Values] = field(default_factory=dict)
    add: Mapping[str, Values] = field(default_factory=dict)
    any_batch: bool = False
    edition: str = PUBLISHED
    preset: str | None = None
    campaign: "Campaign | None" = None
    version: str = field(default_factory=program)

    def space(self) -> Space:
        """Return the space; raise SpecError if the request is invalid."""
        return make_space(
            self.model,
            self.system,
            self.num_procs,
            self.max_batch_size,
            self.datatype,
            fused=self.fused,
            tensor_overlap=self.tensor_overlap,
            data_overlap=self.data_overlap,
            fix=self.fix,
            add=self.add,
            any_batch=self.any_batch,
            edition=self.edition,
            preset=self.preset,
            campaign=self.campaign,
        )

    def question(self, preset: Preset) -> dict[str, Any]:
        """Return the inputs as results state them: specs, edition, preset, and options.

        Options with default values are left out.
        """
        plain = {f.name: f for f in fields(self) if f.name not in _OWN}
        options = {
            name: _plain(value)
            for name, f in plain.items()
            if (value := getattr(self, name)) != _default(f)
        }
        asked: dict[str, Any] = {"search": options}
        if self.campaign is not None:
            from calculon.campaign.assumed import assumed_defaults  # most searches do not need it

            asked["campaign"] = dict(self.campaign.document)
            asked["assumed_of_run"] = assumed_defaults(self.campaign, [self.system.name])
        if self.runs is not None and self.runs.price is not None:
            asked["price"] = self.runs.price
        return question(self.model, self.system, self.edition, preset, **asked)

    @property
    def runs(self) -> "TrainingRuns | None":
        """Training runs of the campaign; None to evaluate steps only."""
        if self.campaign is None:
            return None
        from calculon.search.training_runs import TrainingRuns  # most searches do not need it

        return TrainingRuns(self.campaign, self.model, self.system, self.datatype)

    def ranking(self, further: str | None = None) -> Ranking:
        """Return a fresh ranking, with a further condition; raise SpecError if the condition is invalid."""
        where = joined_conditions(self.where, further)
        return make_ranking(self.top, self.objective, self.pareto, where, self.edition, self.runs)

    def run(self) -> SearchResult:
        """Search executions, those within the risk first."""
        space = self.space()

        def search(further: str | None) -> SearchResult:
            return run(space, self.ranking(further), mbs_break=self.mbs_break)

        return search_preferring(search, self.risk)


_OWN = ("number", "model", "system", "edition", "preset", "campaign", "version")
"""Fields that are not options of a search, or that results state elsewhere."""


def _default(f: Field[Any]) -> Any:
    return {} if f.default_factory is not MISSING else f.default


def _plain(value: Any) -> Any:
    """Return the value of an option as a JSON value."""
    if isinstance(value, Mapping):
        return {name: list(values) for name, values in value.items()}
    return list(value) if isinstance(value, tuple) else value


@dataclass(frozen=True, slots=True)
class Outcome:
    """Response of a worker: counts, and numbers and scores of the best executions, best first.

    Attributes:
        search: Number of the search.
        numbers: Numbers of the executions in their space.
        scores: Scores of the executions for each objective; larger is better.
        riskier: Number of the best execution at any risk, if it is not the first.
    """

    search: int
    counts: Counts
    numbers: tuple[int, ...]
    scores: tuple[tuple[float, ...], ...]
    riskier: int | None = None

    def to_record(self) -> dict[str, Any]:
        """Return the outcome as a line of a journal."""
        counts = self.counts
        return {
            "search": self.search,
            "total": counts.total,
            "good": counts.good,
            "reasons": dict(counts.reasons),
            "nearest_miss": counts.nearest_miss,
            "numbers": self.numbers,
            "scores": self.scores,
            "riskier": self.riskier,
        }

    @classmethod
    def of_record(cls, record: Mapping[str, Any]) -> Self:
        """Return the outcome of a record; raise KeyError, TypeError or ValueError for a damaged one."""
        counts = Counts(
            int(record["total"]),
            int(record["good"]),
            Counter(record["reasons"]),
            {name: float(miss) for name, miss in record["nearest_miss"].items()},
        )
        numbers = tuple(int(number) for number in record["numbers"])
        scores = tuple(tuple(float(score) for score in row) for row in record["scores"])
        if any(len(row) != len(numbers) for row in scores):
            raise ValueError
        riskier = None if record["riskier"] is None else int(record["riskier"])
        return cls(int(record["search"]), counts, numbers, scores, riskier)

    def result(self, search: Search) -> SearchResult:
        """Return the result, equal to the result of a local search."""
        scores = np.array(self.scores).reshape(len(self.scores), len(self.numbers))
        numbers = np.array(self.numbers, np.int64)
        objectives = search.ranking().objectives
        return SearchResult(
            *(search.space(), objectives, self.counts, numbers, scores),
            risk=search.risk,
            riskier=self.riskier,
        )


def run_search(search: Search) -> Outcome:
    """Run one search as the task of a worker.

    Raises:
        CalculonError: When the worker has another version of the package than the sender.
    """
    check_version(search.version)
    found = search.run()
    scores = tuple(tuple(row) for row in found.scores.tolist())
    numbers = tuple(found.numbers.tolist())
    return Outcome(search.number, found.counts, numbers, scores, found.riskier)
