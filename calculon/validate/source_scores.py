"""Errors of whole training steps by class, and by class and source, with the coverage of their intervals.

A source is the outermost folder of a study. In it each study has the same weight, and each row of a study; over sources
each source has the same weight. So no figure follows from how many rows somebody happened to publish.
"""

from collections.abc import Hashable, Iterable, Sequence

import numpy as np

from calculon.base.frozen import dataclass
from calculon.base.units import Array
from calculon.declarations.named_values import PUBLISHED
from calculon.estimate.run_table import Run, Runs, runs
from calculon.estimate.source_errors import equal_weights, weighted_quantile
from calculon.validate.measured_and_predicted import Result
from calculon.validate.run_classes import CLASSES, RunClass, class_of
from calculon.validate.run_rows import run_rows
from calculon.validate.score import Rank
from calculon.validate.study_rows import part_names


@dataclass(frozen=True, slots=True)
class Step:
    """A measured whole training step among those that are scored.

    Attributes:
        run: The measured and the predicted time, and the execution.
        run_class: Its class.
        part: The part of its study, if the study declares parts.
        sweep: Equal for steps that are ranked against each other; None for a step of no sweep.
        side: -1 if the measured time is below the interval that all other sources give, 0 inside, 1 above; None if
            the other sources are too few for an interval.
    """

    run: Run
    run_class: RunClass
    part: str
    sweep: Hashable | None
    side: int | None

    @property
    def origin(self) -> tuple[str, str]:
        """Source and part of the study."""
        return self.run.source, self.part


@dataclass(frozen=True, slots=True)
class StepScore:
    """Errors of the whole steps of a class, or of one source in a class, in percent of the measured time.

    Attributes:
        run_class: The class.
        name: The study, or the source if several studies of it are in the class, and the part of the study; empty for
            a whole class.
        fitted: Fields of executions that were fitted with some of its rows in sight.
        sources, rows: Their number.
        parameters: The smallest and the largest model.
        processors: Names of the processors.
        median, absolute: Weighted median of the errors with their sign, and of their absolute values.
        coverage: Percentage of the measured times inside the intervals that all other sources give; None if these
            are too few.
        below, above: Percentage of the measured times below and above these intervals.
        sweeps: Sets of plans of one model that were measured alike.
        tau, regret: Mean of Kendall's tau over the sweeps, and mean cost of the plan with the lowest prediction over
            the fastest plan in percent; of a class the mean over its sources. None without a sweep.
    """

    run_class: RunClass
    name: str
    fitted: str
    sources: int
    rows: int
    parameters: tuple[int, int]
    processors: tuple[str, ...]
    median: float
    absolute: float
    coverage: float | None
    below: float | None
    above: float | None
    sweeps: int
    tau: float | None
    regret: float | None


def scored_steps(results: Sequence[Result]) -> list[Step]:
    """Return the whole steps of results of one edition, in the order of the results; none in the published edition.

    Intervals rest on the steps of all other sources, and on the runs of the catalog of sources that are not among the
    results.
    """
    described = [step for one in results for step in _described(one)]
    found = _with_others([run for run, _, _ in described]).by_source.sides.tolist()
    sides = found[: len(described)] or [None] * len(described)
    return [
        Step(run, class_of(run), part, sweep, side)
        for (run, part, sweep), side in zip(described, sides, strict=True)
    ]


def _described(result: Result) -> Iterable[tuple[Run, str, Hashable | None]]:
    """Return the steps of a study, each with its part of the study and its sweep."""
    if result.steps is None or result.edition == PUBLISHED:
        return ()
    rows, names = result.steps.rows, result.study.sweep
    sweeps = [(names, *(row.cells[name] for name in names)) if names else None for row in rows]
    return zip(run_rows([result]), part_names(result.study, rows), sweeps, strict=True)


def _with_others(own: Sequence[Run]) -> Runs:
    """Return some runs, and after them the runs of the catalog of all other sources."""
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


def class_scores(results: Sequence[Result]) -> list[StepScore]:
    """Return for each class the score of all its steps and then of each of its sources; results of one edition."""
    members: dict[RunClass, list[Step]] = {one: [] for one in CLASSES}
    for step in scored_steps(results):
        members[step.run_class].append(step)
    return [score for steps in members.values() if steps for score in _of_class(steps)]


def _of_class(steps: Sequence[Step]) -> list[StepScore]:
    found: dict[tuple[str, str], list[Step]] = {}
    for step in steps:
        found.setdefault(step.origin, []).append(step)
    return [
        _scored("", steps, list(found.values())),
        *(_scored(_name(own), own, [own]) for own in found.values()),
    ]


def _name(steps: Sequence[Step]) -> str:
    """Return the name of some steps of one source: their study if it is the only one."""
    source, part = steps[0].origin
    studies = {step.run.study for step in steps}
    name = studies.pop() if len(studies) == 1 else source
    return f"{name}: {part}" if part else name


def _scored(name: str, steps: Sequence[Step], origins: Sequence[Sequence[Step]]) -> StepScore:
    """Return the score of some steps of one class.

    Args:
        name: The name of the score.
        steps: The steps.
        origins: The same steps by source and part of the study.
    """
    errors = np.array([step.run.error for step in steps])
    some = [step.run for step in steps]
    weights = equal_weights([run.source for run in some], [run.study for run in some])
    ranks = [rank for one in origins if (rank := _rank(one))]
    known = [step.side for step in steps if step.side is not None]
    sides = np.array(known) if len(known) == len(steps) else None
    shares = [
        None if sides is None else 100 * float(weights @ (sides == side)) / float(weights.sum())
        for side in (-1, 0, 1)
    ]
    return StepScore(
        run_class=steps[0].run_class,
        name=name,
        fitted=" ".join(dict.fromkeys(one for run in some for one in run.fitted.split())),
        sources=len({run.source for run in some}),
        rows=len(some),
        parameters=(min(run.parameters for run in some), max(run.parameters for run in some)),
        processors=tuple(dict.fromkeys(run.processor for run in some)),
        median=weighted_median(errors, weights),
        absolute=weighted_median(np.abs(errors), weights),
        below=shares[0],
        coverage=shares[1],
        above=shares[2],
        sweeps=sum(rank.sweeps for rank in ranks),
        tau=float(np.mean([rank.tau for rank in ranks])) if ranks else None,
        regret=float(np.mean([rank.regret for rank in ranks])) if ranks else None,
    )


def weighted_median(values: Array, weights: Array) -> float:
    """Return the middle of the values from which on, and up to which, there is half of the weight.

    >>> weighted_median(np.array([3.0, 1.0, 2.0, 9.0]), np.ones(4))
    2.5
    """
    low = weighted_quantile(values, weights, 0.5)
    return (low - weighted_quantile(-values, weights, 0.5)) / 2


def _rank(steps: Sequence[Step]) -> Rank | None:
    """Return how well plans are ordered within all sweeps of some steps; a sweep may span studies."""
    swept = [step for step in steps if step.sweep is not None]
    if not swept:
        return None
    measured, predicted = (
        np.array([getattr(step.run, name) for step in swept]) for name in ("measured", "predicted")
    )
    return Rank.of([step.sweep for step in swept], measured, predicted)
