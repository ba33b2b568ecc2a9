"""Errors of whole training steps by class, and by class and source, with the coverage of their prediction intervals.

A source is the outermost folder of a study. The studies of a source have equal weights, and so have the rows of a
study and the sources of a class. So no figure depends on the number of rows that a source happened to publish.
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
    """Measured whole training step that is scored.

    Attributes:
        run: Measured and predicted time, and the execution.
        run_class: Class of the step.
        part: Part of its study, if the study declares parts.
        sweep: Equal for steps that are ranked against each other; None outside of sweeps.
        side: -1 if the measured time is below the interval from all other sources, 0 inside, 1 above; None if there are
            too few other sources.
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
        name: Study, or source if several of its studies are in the class, and part of the study; empty for the complete
            class.
        fitted: Fields of executions that were fitted to some of the rows.
        sources, rows: Numbers of sources and rows.
        parameters: Sizes of the smallest and the largest model.
        processors: Names of the processors.
        median, absolute: Weighted medians of the signed and of the absolute errors.
        coverage: Percentage of the measured times inside the intervals from all other sources; None if there are too
            few.
        below, above: Percentages of the measured times below and above these intervals.
        sweeps: Number of sets of plans of one model under equal conditions.
        tau, regret: Mean of Kendall's tau over the sweeps, and mean cost of the plan with the lowest prediction over
            the fastest plan in percent; for a class, means over its sources. None without a sweep.
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
    """Return the whole steps of results of one edition in the order of the results; none for the published edition.

    Intervals use the steps of all other sources, and the runs of the catalog from sources that are not among the
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
    """Return the steps of a study with their part of the study and their sweep."""
    if result.steps is None or result.edition == PUBLISHED:
        return ()
    rows, names = result.steps.rows, result.study.sweep
    sweeps = [(names, *(row.cells[name] for name in names)) if names else None for row in rows]
    return zip(run_rows([result]), part_names(result.study, rows), sweeps, strict=True)


def _with_others(own: Sequence[Run]) -> Runs:
    """Return the given runs, followed by the runs of the catalog from all other sources."""
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
    """Return the scores of each class and then of each of its sources; all results are for one edition."""
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
    """Return the name of steps of one source: the study if there is only one."""
    source, part = steps[0].origin
    studies = {step.run.study for step in steps}
    name = studies.pop() if len(studies) == 1 else source
    return f"{name}: {part}" if part else name


def _scored(name: str, steps: Sequence[Step], origins: Sequence[Sequence[Step]]) -> StepScore:
    """Return the score of steps of one class.

    Args:
        name: Name of the score.
        steps: The steps.
        origins: The steps grouped by source and part of the study.
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
    """Return the weighted median: the middle of the values that split the weight in half.

    >>> weighted_median(np.array([3.0, 1.0, 2.0, 9.0]), np.ones(4))
    2.5
    """
    low = weighted_quantile(values, weights, 0.5)
    return (low - weighted_quantile(-values, weights, 0.5)) / 2


def _rank(steps: Sequence[Step]) -> Rank | None:
    """Return the accuracy of the predicted order in all sweeps of some steps; a sweep may span studies."""
    swept = [step for step in steps if step.sweep is not None]
    if not swept:
        return None
    measured, predicted = (
        np.array([getattr(step.run, name) for step in swept]) for name in ("measured", "predicted")
    )
    return Rank.of([step.sweep for step in swept], measured, predicted)
