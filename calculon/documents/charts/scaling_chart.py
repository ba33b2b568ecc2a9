"""Chart of the best rate, and its efficiency, by processor count."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from calculon.base.frozen import dataclass
from calculon.base.records import column
from calculon.declarations.named_values import PUBLISHED
from calculon.declarations.statistics import CorrectedStats
from calculon.documents.plans_table import figure
from calculon.render.chart import Axis, Chart, Line, Mark, Panel, PointInfo, line_look
from calculon.render.chart_axes import Quantity, count_axis, log_axis, value_axis

RATE, EFFICIENCY = "sample_rate", "total_efficiency"

_IDEAL = "linear scaling"


@dataclass(frozen=True, slots=True)
class Point(PointInfo):
    """Best plan on a number of processors, with its figures in words, or the reason why there is none.

    Attributes:
        num_procs: Number of processors.
        rate, efficiency: Samples/s, and time at peak rate as a share of the actual time; None if no plan can run.
    """

    num_procs: int
    rate: float | None = None
    efficiency: float | None = None


def count_point(num_procs: int, words: str, stats: Mapping[str, Any], link: str = "") -> Point:
    """Return a plan on a number of processors with its rate and its efficiency."""
    rate, efficiency = (stats.get(one.name) for one in _OF_COUNTS)
    figures = [figure(one, stats[one.name], stats) for one in _OF_COUNTS if stats.get(one.name)]
    return Point(
        num_procs=num_procs,
        rate=rate,
        efficiency=efficiency,
        words="\n".join((words, ", ".join(figures))),
        link=link,
    )


_OF_COUNTS = tuple(column(CorrectedStats, name) for name in ("sample_rate", "total_efficiency"))


@dataclass(frozen=True, slots=True)
class Series:
    """One model on one system in one edition of the cost model, by processor count."""

    label: str
    points: Sequence[Point]
    terms: str = PUBLISHED


def scaling(series: Sequence[Series]) -> Chart:
    """Return rates above and efficiencies below; dotted lines show linear scaling."""
    ordered = [_Ordered(one, number) for number, one in enumerate(series)]
    counts = count_axis("Processors", [n for one in ordered for n in one.counts])
    words = "best plan for each processor count"
    return Chart(
        title=f"{series[0].label}: {words}" if len(series) == 1 else words.capitalize(),
        terms=[one.terms for one in series],
        rows=((_rates(ordered, counts),), (_efficiencies(ordered, counts),)),
        width=6.4,
        shared=True,
    )


class _Ordered:
    """Series in the order of processor counts, with its line style."""

    def __init__(self, series: Series, number: int):
        self.label = series.label
        self.points = sorted(series.points, key=lambda point: point.num_procs)
        self.good = [point for point in self.points if point.rate is not None]
        self.bad = [point for point in self.points if point.rate is None]
        self.counts = [point.num_procs for point in self.points]
        self.color, self.marker, self.dash = line_look(number)

    def _line(self, points: Sequence[Point], values: Sequence[float], **look: Any) -> Line:
        """Return values by processor count for some points."""
        return Line(
            x=[point.num_procs for point in points],
            y=values,
            words=[f"{point.num_procs:,} processors: {point.words}" for point in points],
            links=[point.link for point in points],
            keys=[str(point.num_procs) for point in points],
            **look,
        )

    def line(self, values: Sequence[float]) -> Line:
        """Return the line through the values of the points with a plan."""
        look = {"color": self.color, "marker": self.marker, "dash": self.dash}
        return self._line(self.good, values, name=self.label, **look)

    def ideal(self) -> Iterator[Line]:
        """Yield linear scaling from the smallest feasible processor count."""
        if len(self.good) < 2:
            return
        first, last = self.good[0], self.good[-1]
        rate = first.rate or 0.0
        yield Line(
            name=_IDEAL,
            x=[first.num_procs, last.num_procs],
            y=[rate, rate * last.num_procs / first.num_procs],
            color=self.color,
            dash="dot",
            width=1.0,
        )

    def crosses(self) -> Iterator[Line]:
        """Yield crosses at the bottom of a panel for processor counts on which no plan can run."""
        if self.bad:
            look = {"color": "gray", "marker": "thin cross", "dash": "none", "clip": False}
            yield self._line(self.bad, [0.0] * len(self.bad), name="no plan can run", **look)


def _rates(series: Sequence[_Ordered], counts: Axis) -> Panel:
    quantity = Quantity(RATE)
    lines = [one.line([point.rate or 0.0 for point in one.good]) for one in series]
    marks: list[Mark] = [*lines, *(ideal for one in series for ideal in one.ideal())]
    values = [y for mark in marks if isinstance(mark, Line) for y in mark.y]
    axis = log_axis if counts.scale == "log" else value_axis
    y = axis(quantity.title, quantity.unit, values)
    return Panel(x=counts, y=y, marks=marks, height=3.0)


def _efficiencies(series: Sequence[_Ordered], counts: Axis) -> Panel:
    quantity = Quantity(EFFICIENCY)
    lines = [
        one.line([(point.efficiency or 0.0) * quantity.factor for point in one.good])
        for one in series
    ]
    crosses = [cross for one in series for cross in one.crosses()]
    largest = max((y for line in lines for y in line.y), default=100.0)
    # Above one half, the distance to 100 % is the relevant information.
    top = 100.0 if 50.0 < largest <= 100.0 else 1.06 * largest
    y = Axis(label=quantity.title, unit=quantity.unit, limits=(0.0, top))
    return Panel(x=counts, y=y, marks=[*lines, *crosses], height=2.0)
