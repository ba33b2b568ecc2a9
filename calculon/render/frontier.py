"""Scatter plot of two statistics in characters: a Pareto front, or the best plans by processor count."""

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby, pairwise

from calculon.base.frozen import dataclass
from calculon.base.records import Column
from calculon.base.units import GIB, Unit
from calculon.render.document import Line, Styled, dim

_HEIGHT, _LEAST, _WIDEST = 13, 16, 76
_TICKS, _MANY_TICKS = 4, 8
"""Approximate and maximum number of intervals of an axis."""

_MIN_POINTS = 3
"""Minimum number of points worth drawing."""

_PLANE = 2
"""Number of objectives of a front that the plot shows completely."""

_FAR = 8
"""Ratio of largest to smallest value from which an axis is logarithmic."""

_PLAIN = {"point": "*", "step": ".", "side": "|", "corner": "+", "floor": "-"}
_DRAWN = {"point": "●", "step": "·", "side": "│", "corner": "└", "floor": "─"}


@dataclass(frozen=True, slots=True)
class Axis:
    """Axis: its name, its unit, and whether it is logarithmic."""

    name: str
    unit: Unit
    ratios: bool = False

    @classmethod
    def of(cls, name: str, unit: Unit, values: Sequence[float]) -> "Axis":
        """Return the axis of some values: logarithmic if the largest is many times the smallest."""
        return cls(name, unit, bool(values) and 0 < _FAR * min(values) < max(values))

    def scale(self, values: Sequence[float]) -> tuple[float, str]:
        """Return the divisor for numbers at the axis, and the name of the resulting unit."""
        largest = max(map(abs, values))
        if self.unit.symbol == "s":
            return next(one for one in _TIMES if largest < one[2])[:2]
        if self.unit.symbol == "fraction":
            return 0.01, "%"
        if self.unit.binary:
            return (GIB, "GiB") if largest > GIB / 4 else (2.0**20, "MiB")
        power = max(0, min(5, int(math.log10(largest) // 3))) if largest > 0 else 0
        if not self.unit.symbol:  # counts are written in full
            return 1.0, ""
        return 1000.0**power, f"{' kMGTP'[power]}{self.unit.symbol}".strip()

    def ticks(self, values: Sequence[float]) -> list[float]:
        """Return round numbers that enclose the values."""
        low, high = min(values), max(values)
        if self.ratios and not self.unit.symbol and len({*values}) <= _MANY_TICKS:
            return sorted({*values})  # a tick at each of a few counts
        if self.ratios:
            return _decades(low, high)
        spread = (high - low) or abs(high) or 1.0
        size = 10.0 ** math.floor(math.log10(spread / _TICKS))
        step = next(size * k for k in (1, 2, 2.5, 5, 10) if size * k * _TICKS >= spread * 0.999)
        first, last = math.floor(low / step), math.ceil(high / step)
        return [step * number for number in range(first, max(last, first + 1) + 1)]

    def place(self, value: float, ticks: Sequence[float]) -> float:
        """Return the position of a value between the first and the last tick, from 0 to 1."""
        write: Callable[[float], float] = math.log if self.ratios else float
        return (write(value) - write(ticks[0])) / (write(ticks[-1]) - write(ticks[0]))


def _decades(low: float, high: float) -> list[float]:
    """Return numbers with one significant digit that enclose a range: 1, 2, 5, 10, ..., or powers of ten only.

    >>> _decades(0.854, 25.4)
    [0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0]
    """
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    digits = (1, 2, 5) if len(powers) <= _MANY else (1,)
    every = [float(f"{digit}e{power}") for power in powers for digit in digits]
    first = max(i for i, tick in enumerate(every) if tick <= low)
    last = min(i for i, tick in enumerate(every) if tick >= high and i > first)
    return every[first : last + 1]


_MANY = 4
"""Number of powers of ten up to which ticks lie between them."""

_NAMED = 2
"""Maximum number of labels per cluster of points, unless they are consecutive."""

_TIMES = ((1e-6, "us", 1e-3), (1e-3, "ms", 1.0), (1.0, "s", math.inf))


@dataclass(frozen=True, slots=True)
class Frontier:
    """Numbered points over two axes; `steps` connect each point with the next one."""

    x: Axis
    y: Axis
    points: Sequence[tuple[str, float, float]]
    steps: bool = True

    @classmethod
    def of(
        cls, objectives: Sequence[Column], points: Sequence[tuple[str, float, float]]
    ) -> "Frontier":
        """Return the plot of a front over its first two objectives; without steps if it has more objectives."""
        x, y = objectives[:2]
        _, across, up = zip(*points, strict=True)
        axes = Axis.of(x.name, x.unit, across), Axis.of(y.name, y.unit, up)
        return cls(*axes, points, steps=len(objectives) == _PLANE)

    @property
    def worth_drawing(self) -> bool:
        """True if there are enough points, all of them finite."""
        finite = all(math.isfinite(x + y) for _, x, y in self.points)
        return finite and len(self.points) >= _MIN_POINTS

    def lines(self, width: int, *, blocks: bool) -> Iterator[Line]:
        """Yield the lines of the plot.

        Args:
            width: Available characters per line; the plot uses at most 76.
            blocks: Whether characters outside ASCII are allowed.
        """
        marks = _DRAWN if blocks else _PLAIN
        sides, unit = self._labels(self.y, [y for _, _, y in self.points])
        feet, foot_unit = self._labels(self.x, [x for _, x, _ in self.points])
        margin = max(map(len, sides.values())) + 1
        width = max(_LEAST, min(width, _WIDEST) - margin - 2)
        grid = _Grid(width, _HEIGHT, marks)
        across, up = list(feet), list(sides)
        places = [
            (label, self._at(self.x, x, across, width), self._at(self.y, y, up, _HEIGHT))
            for label, x, y in self.points
        ]
        if self.steps:
            for (_, column, row), (_, right, below) in pairwise(places):
                grid.step(column, row, right, below)
        for label, column, row in places:
            grid.point(label, column, row)
        named = {self._at(self.y, value, up, _HEIGHT): text for value, text in sides.items()}
        yield dim(f"{self.y.name}{unit}")
        for row, line in zip(reversed(range(_HEIGHT)), reversed(grid.lines()), strict=True):
            side = named.get(row, "").rjust(margin)
            yield (dim(f"{side} {marks['side']}"), *line)
        yield dim(f"{' ' * margin} {marks['corner']}{marks['floor'] * width}")
        yield dim(f"{' ' * (margin + 2)}{self._foot(feet, across, width)}")
        yield dim(f"{self.x.name}{foot_unit}".rjust(margin + 2 + width))

    @staticmethod
    def _labels(axis: Axis, values: Sequence[float]) -> tuple[dict[float, str], str]:
        """Return the ticks with their labels, and the unit to append to the name of the axis."""
        size, unit = axis.scale(values)
        ticks = axis.ticks([value / size for value in values])
        return {tick * size: f"{tick:,.6g}" for tick in ticks}, f", {unit}" if unit else ""

    @staticmethod
    def _at(axis: Axis, value: float, ticks: Sequence[float], cells: int) -> int:
        return round(axis.place(value, ticks) * (cells - 1))

    def _foot(self, feet: dict[float, str], across: Sequence[float], width: int) -> str:
        """Return the line of numbers below the horizontal axis; numbers that would overlap are omitted."""
        line = ""
        for value, text in feet.items():
            place = self._at(self.x, value, across, width)
            start = min(max(0, place - len(text) // 2), width - len(text))
            if not line or start > len(line):
                line = line.ljust(start) + text
        return line


class _Grid:
    """Character grid; adjacent points form a cluster with one label."""

    def __init__(self, width: int, height: int, marks: dict[str, str]):
        self._cells = [[" "] * width for _ in range(height)]
        self._width, self._marks = width, marks
        self._groups: list[tuple[int, int, list[str]]] = []

    def step(self, column: int, row: int, right: int, below: int) -> None:
        """Draw the edge from a point to the next: along its row, then along the column of the next point."""
        for place in range(min(column, right), max(column, right) + 1):
            self._cells[row][place] = self._marks["step"]
        for place in range(min(row, below), max(row, below) + 1):
            self._cells[place][right] = self._marks["step"]

    def point(self, label: str, column: int, row: int) -> None:
        """Add a point; it joins a cluster that it touches."""
        for first, line, labels in self._groups:
            if line == row and first - 1 <= column <= first + len(self._text(labels)) + 1:
                labels.append(label)
                return
        self._groups.append((column, row, [label]))

    def lines(self) -> list[list[Styled]]:
        """Return the lines, lowest first."""
        lines = [[dim(character) for character in cells] for cells in self._cells]
        for column, row, labels in self._groups:
            text = f"{self._text(labels)} "
            start = max(0, min(column, self._width - len(text)))
            named = [Styled(text[0], "vermilion"), *map(Styled, text[1:])]
            lines[row][start : start + len(text)] = named
        return [
            [
                Styled("".join(one.text for one in several), style)
                for style, several in groupby(line, key=lambda one: one.style)
            ]
            for line in lines
        ]

    def _text(self, labels: Sequence[str]) -> str:
        return f"{self._marks['point']}{_several(labels)}"


def _several(labels: Sequence[str]) -> str:
    """Format the labels of a cluster of points.

    >>> _several(["3"]), _several(["3", "4", "5"]), _several(["3", "5"]), _several(["3", "5", "7", "9"])
    ('3', '3-5', '3,5', '3,5,...')
    """
    if len(labels) > 1 and all(label.isdecimal() for label in labels):
        numbers = [*map(int, labels)]
        if numbers == list(range(numbers[0], numbers[0] + len(numbers))):
            return f"{labels[0]}-{labels[-1]}"
    return ",".join(
        (*labels[:_NAMED], *(("...",) if len(labels) > _NAMED + 1 else labels[_NAMED:]))
    )
