"""Chart of plans by two statistics, with the Pareto front."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from calculon.base.frozen import dataclass
from calculon.base.units import Array
from calculon.declarations.named_values import PUBLISHED
from calculon.render.chart import (
    Axis,
    Chart,
    Line,
    Mark,
    Notes,
    Panel,
    PointInfo,
    dots,
    point_attributes,
)
from calculon.render.chart_axes import Quantity, count_axis, log_axis, time_unit, widened

CELLS = (360, 240)
"""Raster of distinguishable dots (columns, rows): only one dot per cell is drawn."""

_LABELS = 8
"""Maximum number of labeled plans of the front."""

_FAR = 20.0
"""Ratio of the ends of the front from which on an axis is logarithmic."""

COUNTS = "num_procs"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanPoint(PointInfo):
    """Plan on the chart, with its statistics in words.

    Attributes:
        x, y: Its statistics, in their own units.
        label: A short name next to the point.
    """

    x: float
    y: float
    label: str = ""


@dataclass(frozen=True, slots=True)
class Pareto:
    """Executions by two statistics, with their Pareto front.

    Attributes:
        x, y: Statistics, or fields of the execution.
        columns (shape (2, rows)): Values of both statistics, in their own units.
        front: Rows of the front, in the order of `x`.
        names: One per row of the front.
        complete: The rows are all executions, not the front alone.
        terms: Editions of the model.
    """

    title: str
    x: str
    y: str
    columns: Array
    optimal: Array
    names: Sequence[str]
    complete: bool = True
    terms: Sequence[str] = (PUBLISHED,)


def pareto(data: Pareto) -> Chart:
    """Return the front as a line through its executions, and the others as dots."""
    x, y = data.columns
    front = [
        PlanPoint(x=x[row], y=y[row], label=name)
        for row, name in zip(data.optimal.tolist(), data.names, strict=True)
    ]
    words = f"Pareto-optimal ({len(front):,}), with TP.PP.DP"
    others = []
    if data.complete:
        rows = scattered(data.columns)
        others = [PlanPoint(x=x[row], y=y[row]) for row in rows.tolist()]
    drawn = _Plans(data.x, data.y, [*front, *others], front)
    marks = [
        drawn.points(others, f"{len(x):,} executions that can run", "silver", (1.4,)),
        *drawn.front(front, words),
    ]
    return drawn.chart(data.title, data.terms, marks[0 if others else 1 :])


def plans_chart(
    title: str,
    terms: str,
    statistics: tuple[str, str],
    *,
    front: Sequence[PlanPoint],
    splits: Sequence[PlanPoint],
    shown: PlanPoint | None = None,
    best: PlanPoint | None = None,
) -> Chart:
    """Return the best plan of each split, the front, the best plan overall, and the plan of the page.

    Args:
        title, terms: Question, and edition with preset.
        statistics: Names of the horizontal and the vertical statistic.
        front: Pareto-optimal plans, in the order of `x`.
        splits: The best plan of each split.
        shown, best: Plan of the page, and the best plan overall.
    """
    single = [one for one in (best, shown) if one is not None]
    drawn = _Plans(*statistics, [*front, *splits, *single], [*front, *single])
    marks = [
        drawn.points(splits, "each split", "gray", (5.0,)),
        *drawn.front(front, "Pareto-optimal"),
    ]
    if best is not None:
        marks.append(drawn.points([best], "best", "orange", (10.0,), "star"))
    if shown is not None:
        marks.append(drawn.points([shown], "shown", "vermilion", (10.5,), hollow=True))
    return drawn.chart(title, [terms], marks)


class _Plans:
    """Two statistics on their axes.

    Args:
        x, y: The statistics.
        every: All plans; the axes include them.
        important: Plans that decide if an axis is logarithmic.
    """

    def __init__(self, x: str, y: str, every: Sequence[PlanPoint], important: Sequence[PlanPoint]):
        counted = x == COUNTS
        across, up = [one.x for one in every], [one.y for one in every]
        self.x, self.x_factor = _axis(x, across, [one.x for one in important])
        # Processor counts by powers of two need a matching vertical axis, to keep scaling straight.
        powers = counted and self.x.scale == "log" and min(up) > 0
        self.y, self.y_factor = _axis(y, up, [one.y for one in important], log=powers)

    def points(
        self,
        plans: Sequence[PlanPoint],
        name: str,
        color: str,
        sizes: Sequence[float],
        marker: str = "circle",
        *,
        hollow: bool = False,
    ) -> Line:
        """Return plans as points."""
        return dots(
            [(one.x * self.x_factor, one.y * self.y_factor) for one in plans],
            marker,
            name=name,
            color=color,
            sizes=sizes,
            hollow=hollow,
            **point_attributes(plans),
        )

    def front(self, plans: Sequence[PlanPoint], name: str) -> Iterator[Mark]:
        """Yield the front: a line through its plans, and labels that do not overlap."""
        points = self.points(plans, name, "blue", (4.5,))
        values = np.array([points.x, points.y])
        steps = "after" if ascends(values) else "before"
        yield replace(points, dash="solid", width=1.2, steps=steps)
        labeled = [i for i in spread(values, _LABELS) if plans[i].label]
        if not labeled:
            return
        yield Notes(
            x=[points.x[i] for i in labeled],
            y=[points.y[i] for i in labeled],
            texts=[plans[i].label for i in labeled],
            side="below",
            size=6.5,
        )

    def chart(self, title: str, terms: Sequence[str], marks: Sequence[Mark]) -> Chart:
        """Return the chart of some marks."""
        panel = Panel(x=self.x, y=self.y, marks=marks, height=4.0)
        return Chart(title=title, terms=terms, rows=((panel,),), width=6.4)


def _axis(
    name: str, values: Sequence[float], important: Sequence[float], *, log: bool = False
) -> tuple[Axis, float]:
    """Return the axis of a statistic, and the factor to its unit."""
    quantity = Quantity(name)
    if name == COUNTS:
        return count_axis(quantity.title, values), 1.0
    unit, factor = quantity.unit, quantity.factor
    if unit == "s":
        unit, factor = time_unit(max(values))
    scaled = [factor * value for value in values]
    if log or (0 < _FAR * min(important) < max(important) and min(values) > 0):
        return log_axis(quantity.title, unit, scaled), factor
    return Axis(label=quantity.title, unit=unit, limits=widened(scaled, 0.08)), factor


def ascends(front: Array) -> bool:
    """Return True if the second statistic increases with the first."""
    return bool(front.shape[1] < 2 or front[1, -1] >= front[1, 0])


def scattered(values: Array) -> Array:
    """Return rows, ascending, so that no two are drawn at the same position."""
    # Thousands of overlapping dots would make files large and slow, without any visible difference.
    low = values.min(axis=1, keepdims=True)
    span = values.max(axis=1, keepdims=True) - low
    span[span == 0] = 1.0
    places = ((values - low) / span * (np.array(CELLS)[:, None] - 1)).astype(np.int64)
    _, rows = np.unique(places[0] * CELLS[1] + places[1], return_index=True)
    return np.sort(rows)


def spread(front: Array, most: int) -> list[int]:
    """Choose well-separated points of a front: the best first, then others in order."""
    if not front.shape[1]:
        return []
    span = np.ptp(front, axis=1)
    span[span == 0] = 1.0
    places = front / span[:, None]
    # The best by the vertical statistic is always labeled.
    order = sorted(range(front.shape[1]), key=lambda i: -front[1, i])
    chosen: list[int] = []
    for i in order:
        apart = all(
            abs(places[1, i] - places[1, j]) > 0.05 or abs(places[0, i] - places[0, j]) > 0.2
            for j in chosen
        )
        if apart and len(chosen) < most:
            chosen.append(i)
    return chosen
