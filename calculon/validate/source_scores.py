"""Errors of whole training steps by source: of each source, of those that a fit saw, and of those only judged.

A source is the outermost folder of a study. In it each study has the same weight, and each row of a study; over sources
each source has the same weight. So no figure follows from how many rows somebody happened to publish.
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from calculon.base.frozen import dataclass
from calculon.base.units import Array
from calculon.estimate.run_table import Run, Runs, runs
from calculon.estimate.source_errors import equal_weights, weighted_quantile
from calculon.validate.measured_and_predicted import Result
from calculon.validate.published_study import UNITS
from calculon.validate.run_rows import run_rows
from calculon.validate.score import Rank


@dataclass(frozen=True, slots=True)
class SourceScore:
    """Errors of the whole steps of a source, or of several, in percent of what was measured.

    Attributes:
        name: The source; of several, which.
        fitted: Fields of executions that were fitted with its rows in sight.
        sources, rows: How many.
        mean, median, bias: Of the absolute errors, and of the errors with their sign; of several sources means and
            median by equal weights.
        worst, largest: The source with the largest mean, and that mean; of one source the study.
        coverage: Percentage of the measured times inside the intervals that all other sources give, those of the
            catalog that are not among the results too; None where these are too few.
        sweeps: Sets of plans of one model that were measured alike.
        tau, regret: Mean of Kendall's tau, and of what the plan predicted to be fastest costs over the fastest, over
            the sweeps of a source, and then over sources; None without a sweep.
        errors, weights (shape (rows,)): Absolute errors and their weights, which add up to 1 in each source.
    """

    name: str
    fitted: str
    sources: int
    rows: int
    mean: float
    median: float
    bias: float
    worst: str
    largest: float
    coverage: float | None
    sweeps: int
    tau: float | None
    regret: float | None
    errors: Array
    weights: Array


def source_scores(results: Sequence[Result]) -> list[SourceScore]:
    """Return the score of each source that has whole steps; the results are those of one edition.

    Sources have no steps in the published edition.
    """
    found: dict[str, list[Run]] = {}
    for run in run_rows(results):
        found.setdefault(run.source, []).append(run)
    names = list(found)
    covered = _coverage(_with_others([run for own in found.values() for run in own]))
    return [
        _of_source(name, found[name], covered.get(name), _rank(name, results)) for name in names
    ]


def inside(results: Sequence[Result]) -> Iterator[bool | None]:
    """Yield of whole steps whether each is in the interval that all other sources give; None where these are too few.

    Results are those of one edition; steps are in their order.
    """
    own = run_rows(results)
    found = (_with_others(own).by_source.sides == 0).tolist()
    yield from found[: len(own)] or [None] * len(own)


def _coverage(some: Runs) -> dict[str, float]:
    """Return the percentage of the rows of each source inside the intervals of all other sources."""
    errors = some.by_source
    if not len(errors.sides):
        return {}
    shares = np.bincount(errors.source, (errors.sides == 0) * errors.weight)
    names = np.unique(some.columns["source"]).tolist()
    return {name: 100 * round(share, 9) for name, share in zip(names, shares.tolist(), strict=True)}


def _with_others(own: Sequence[Run]) -> Runs:
    """Return some runs, and after them those of the catalog of all other sources."""
    sources = {run.source for run in own}
    if not sources:
        return Runs.of([])
    shipped, columns = runs(), Runs.of(own).columns
    others = [i for i, source in enumerate(shipped.columns["source"]) if source not in sources]
    return Runs(
        {
            name: [*column, *(shipped.columns[name][i] for i in others)]
            for name, column in columns.items()
        }
    )


def together(name: str, scores: Sequence[SourceScore]) -> SourceScore:
    """Return the score of several sources, at least one, each of the same weight."""
    worst = max(scores, key=lambda one: one.mean)
    return SourceScore(
        name=name,
        fitted=" ".join(one.name for one in scores if one.fitted),
        sources=len(scores),
        rows=sum(one.rows for one in scores),
        mean=float(np.mean([one.mean for one in scores])),
        median=weighted_quantile(
            np.concatenate([one.errors for one in scores]),
            np.concatenate([one.weights for one in scores]),
            0.5,
        ),
        bias=float(np.mean([one.bias for one in scores])),
        worst=worst.name,
        largest=worst.mean,
        coverage=_mean(one.coverage for one in scores),
        sweeps=sum(one.sweeps for one in scores),
        tau=_mean(one.tau for one in scores),
        regret=_mean(one.regret for one in scores),
        errors=np.concatenate([one.errors for one in scores]),
        weights=np.concatenate([one.weights for one in scores]),
    )


def _of_source(
    name: str, runs: Sequence[Run], coverage: float | None, rank: Rank | None
) -> SourceScore:
    errors = np.array([run.error for run in runs])
    weights = equal_weights([name] * len(runs), [run.study for run in runs])
    studies = dict.fromkeys((run.study for run in runs), 0.0)
    sizes = np.abs(errors)
    for study in studies:
        studies[study] = float(sizes[[run.study == study for run in runs]].mean())
    worst = max(studies, key=studies.__getitem__)
    return SourceScore(
        name=name,
        fitted=" ".join(dict.fromkeys(one for run in runs for one in run.fitted.split())),
        sources=1,
        rows=len(runs),
        mean=float(sizes @ weights),
        median=weighted_quantile(sizes, weights, 0.5),
        bias=float(errors @ weights),
        worst=worst,
        largest=studies[worst],
        coverage=coverage,
        sweeps=rank.sweeps if rank else 0,
        tau=rank.tau if rank else None,
        regret=rank.regret if rank else None,
        errors=sizes,
        weights=weights,
    )


def _mean(values: Iterable[float | None]) -> float | None:
    """Return the mean of the values that there are; nothing of none."""
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def _rank(source: str, results: Sequence[Result]) -> Rank | None:
    """Return how well plans are ordered within all sweeps of a source; a sweep may span its studies."""
    groups: list[tuple[object, ...]] = []
    measured: list[Array] = []
    estimated: list[Array] = []
    for result in results:
        steps, sweep = result.steps, result.study.sweep
        if result.study.origin == source and steps is not None and sweep:
            scale = UNITS[steps.quantity.unit][1]
            groups += [(sweep, *(row.cells[name] for name in sweep)) for row in steps.rows]
            measured.append(steps.measured * scale)
            estimated.append(steps.estimated * scale)
    if not groups:
        return None
    return Rank.of(groups, np.concatenate(measured), np.concatenate(estimated))
