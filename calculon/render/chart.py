"""Chart specifications as frozen data: titles, panels, axes and marks, which matplotlib and Plotly draw alike.

Positions are values on the axes. Categories have the positions 0, 1, 2 and so on, and their names are the tick labels.
Marks are drawn in order, later ones over earlier ones; a mark with a name has an entry in the legend.

Colors come from Okabe and Ito and remain distinguishable for readers with any kind of color vision; hatches, markers
and line styles repeat the same information, so that charts can be read in grayscale.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from calculon.base.frozen import dataclass
from calculon.render.bars import COLORS

Floats = Sequence[float]
Texts = Sequence[str]

PALETTE: Mapping[str, str] = {
    **COLORS,
    "gray": "#8a8f98",
    "silver": "#d9d9d9",
    "black": "#000000",
    "white": "#ffffff",
    "azure": "#2d71c7",
    "leaf": "#37a15e",
    "teal": "#2b7f79",
    "amber": "#c97001",
    "cyan": "#0b96c6",
    "violet": "#7656d8",
    "pink": "#d55299",
    "plum": "#9e48ab",
    "slate": "#6b6f76",
}
"""Color codes by name; from azure on, each has a contrast ratio of at least 3 on light and dark pages."""

SERIES = ("blue", "vermilion", "green", "purple", "orange", "sky", "black")
"""Colors of successive lines."""

MARKERS = ("circle", "square", "triangle", "diamond", "down", "plus", "cross")
DASHES = ("solid", "dash", "dashdot", "dot")


def line_look(number: int) -> tuple[str, str, str]:
    """Return the color, marker and dash style of the line with this number.

    >>> line_look(0), line_look(8)
    (('blue', 'circle', 'solid'), ('vermilion', 'square', 'solid'))
    """
    return (
        SERIES[number % len(SERIES)],
        MARKERS[number % len(MARKERS)],
        DASHES[number % len(DASHES)],
    )


def lighter(color: str, share: float) -> str:
    """Return the name of a palette color that is mixed with a share of white.

    >>> lighter("blue", 0.4), lighter("blue", 0.0)
    ('blue+40', 'blue')
    """
    return f"{color}+{round(100 * share)}" if round(100 * share) else color


def color_code(name: str) -> str:
    """Return the hexadecimal code of a palette color, mixed with its share of white.

    >>> color_code("blue"), color_code("blue+40")
    ('#0072b2', '#66aad1')
    """
    color, _, percent = name.partition("+")
    code, share = PALETTE[color], int(percent or 0) / 100
    parts = (int(code[at : at + 2], 16) for at in (1, 3, 5))
    return "#" + "".join(f"{round(part + (255 - part) * share):02x}" for part in parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """Axis of a panel.

    Attributes:
        label, unit: Label of the axis, and the unit of its numbers.
        scale: ``linear`` or ``log``.
        limits: Both ends; descending limits reverse the axis.
        ticks: Positions and labels of ticks. A linear axis without them gets round numbers.
        grid, shown: Whether grid lines are drawn, and whether ticks and label are drawn.
    """

    label: str = ""
    unit: str = ""
    scale: str = "linear"
    limits: tuple[float, float] | None = None
    ticks: Sequence[tuple[float, str]] | None = None
    grid: bool = True
    shown: bool = True

    @property
    def text(self) -> str:
        """Label with the unit in parentheses."""
        return f"{self.label} ({self.unit})" if self.unit else self.label

    def share(self, value: float) -> float:
        """Return the relative position of a value on an axis with limits: 0 at its first end, 1 at its last."""
        low, high, value = self._even(*(self.limits or (0.0, 1.0)), value)
        return (value - low) / (high - low)

    def value(self, share: float) -> float:
        """Return the value at a relative position of an axis with limits."""
        low, high = self._even(*(self.limits or (0.0, 1.0)))
        place = low + share * (high - low)
        return math.exp(place) if self.scale == "log" else place

    def _even(self, *values: float) -> list[float]:
        return [math.log(value) if self.scale == "log" else value for value in values]


def categories(names: Texts, *, label: str = "", down: bool = True) -> Axis:
    """Return the axis of categories, the first category at the top or at the left."""
    # A margin of 0.6 around the outer positions leaves space around bars of thickness 0.62.
    ends = (len(names) - 0.4, -0.6) if down else (-0.6, len(names) - 0.4)
    return Axis(label=label, limits=ends, ticks=tuple(enumerate(names)), grid=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Series of points with the same appearance.

    Attributes:
        name: Name in the legend.
        color: Palette color, or one color for each point.
        words, links, keys: For each point: the hover text, the address that a click opens, and the key that it shares
            with points and rows elsewhere on the page.
    """

    name: str = ""
    color: str | Texts = "blue"
    words: Texts = ()
    links: Texts = ()
    keys: Texts = ()

    @property
    def main_color(self) -> str:
        """Color of the mark, or of its first point."""
        return self.color if isinstance(self.color, str) else self.color[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class PointInfo:
    """Hover text, link and key of a point."""

    words: str = ""
    link: str = ""
    key: str = ""


def point_attributes(points: Sequence[PointInfo | None]) -> dict[str, Any]:
    """Return the words, links and keys of points for their mark; attributes that no point has are omitted."""
    some = [one or PointInfo() for one in points]
    found = {
        "words": [one.words for one in some],
        "links": [one.link for one in some],
        "keys": [one.key for one in some],
    }
    return {name: texts for name, texts in found.items() if any(texts)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars(Mark):
    r"""Horizontal bars at positions of the vertical axis, or upright bars at positions of the horizontal axis.

    ``hatch`` is one of ``/``, ``\``, ``x``, ``.`` and ``-``; ``hatched`` selects the bars that have it (all by
    default).
    """

    at: Floats
    lengths: Floats
    starts: Floats = ()
    hatch: str = ""
    hatched: Sequence[bool] = ()
    thick: float = 0.62
    upright: bool = False


def stacked(pieces: Sequence[Bars]) -> list[Bars]:
    """Return bars that start where the previous ones end."""
    result: list[Bars] = []
    for piece in pieces:
        starts = [0.0] * len(piece.at)
        if result:
            starts = [a + b for a, b in zip(result[-1].starts, result[-1].lengths, strict=True)]
        result.append(replace(piece, starts=starts))
    return result


@dataclass(frozen=True, slots=True, kw_only=True)
class Line(Mark):
    """A line through points, with or without markers; markers alone with ``dash="none"``.

    ``steps`` is ``before`` or ``after`` the change of a value; ``sizes`` are the widths of markers in points, and
    ``most`` is about how many points have a marker, 0 for all.
    """

    x: Floats
    y: Floats
    dash: str = "solid"
    width: float = 1.5
    steps: str = ""
    marker: str = ""
    sizes: Floats = (5.0,)
    most: int = 0
    hollow: bool = False
    clip: bool = True


def dots(points: Iterable[tuple[float, float]], marker: str = "circle", /, **look: Any) -> Line:
    """Return markers at points, without a line."""
    several = [*points]
    x, y = ([point[which] for point in several] for which in (0, 1))
    return Line(x=x, y=y, dash="none", marker=marker, **look)


@dataclass(frozen=True, slots=True, kw_only=True)
class Area(Mark):
    """Area between two lines."""

    x: Floats
    low: Floats
    high: Floats
    hatch: str = ""
    opacity: float = 1.0


def band(ends: Floats, share: float, **look: Any) -> Area:
    """Return the band within a relative tolerance (`share`) of the identity line, between two ends of an axis."""
    low, high = ([end * factor for end in ends] for factor in (1 - share, 1 + share))
    return Area(x=ends, low=low, high=high, **look)


@dataclass(frozen=True, slots=True, kw_only=True)
class Boxes(Mark):
    """Rectangles of one color, each given by its left, right, lower and upper end.

    ``groups`` numbers the row of each box; all boxes of a row share a link.
    """

    boxes: Sequence[tuple[float, float, float, float]]
    hatch: str = ""
    edge: float = 0.0
    filled: bool = True
    groups: Sequence[int] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Cells(Mark):
    """Heat map of values at integer positions, rows from the bottom; None leaves a cell empty.

    ``scale`` names the colors from the lowest value to the highest; ``label`` is the title of the color bar.
    """

    values: Sequence[Sequence[float | None]]
    texts: Sequence[Texts]
    scale: Texts
    label: str = ""
    limits: tuple[float, float] | None = None
    bold: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Notes(Mark):
    """Text labels next to points.

    A side is ``right``, ``left``, ``center``, ``above``, ``upper right``, ``upper left`` or ``below``.
    """

    x: Floats
    y: Floats
    texts: Texts
    side: str | Texts = "right"
    size: float = 8.0
    halo: bool = True
    color: str | Texts = "black"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule(Mark):
    """Line across a panel at a value of the horizontal axis, or with ``level`` of the vertical axis.

    ``text`` is written above the line, ``row`` lines higher than usual, aligned to one ``side``.
    """

    at: float
    level: bool = False
    dash: str = "solid"
    width: float = 1.4
    text: str = ""
    row: int = 0
    side: str = "center"
    color: str | Texts = "black"


@dataclass(frozen=True, slots=True, kw_only=True)
class Span(Mark):
    """Shaded range of the horizontal axis, or with ``level`` of the vertical axis."""

    low: float
    high: float
    level: bool = False
    opacity: float = 0.4
    color: str | Texts = "silver"


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """Axes with marks.

    Attributes:
        height: Height in inches, including title and labels.
        share: Width relative to the other panels of the row.
        square: Whether the axes are as high as they are wide.
    """

    x: Axis
    y: Axis
    marks: Sequence[Mark]
    title: str = ""
    height: float = 3.0
    share: float = 1.0
    square: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Chart: rows of panels below a title.

    Attributes:
        title, subtitle: Model, machine and plan; further information.
        terms: Editions of the cost model with their presets.
        rows: Rows of panels, from the top.
        width: Width in inches.
        legends: ``one`` legend for all panels, one for each of the ``rows``, or ``none``.
        shared: Whether panels above each other share one horizontal axis, with tick labels below the last panel.
    """

    title: str
    rows: Sequence[Sequence[Panel]]
    subtitle: str = ""
    terms: Texts = ()
    width: float = 7.6
    legends: str = "one"
    shared: bool = False

    @property
    def panels(self) -> list[Panel]:
        """All panels, row by row."""
        return [panel for row in self.rows for panel in row]

    @property
    def heading(self) -> list[str]:
        """Lines above the panels: the title, and the subtitle with the editions."""
        edition = edition_words(self.terms) if any(self.terms) else ""
        return [*filter(None, (self.title, "; ".join(filter(None, (self.subtitle, edition)))))]


def plain(value: float) -> str:
    """Format a number of an axis without an exponent.

    >>> plain(0.3), plain(300_000.0), plain(1.05e6)
    ('0.3', '300,000', '1.05 M')
    """
    return f"{value / 1e6:,.10g} M" if abs(value) >= 1e6 else f"{value:,.10g}"


def tiled(panels: Sequence[Panel], across: int) -> list[Sequence[Panel]]:
    """Arrange panels in rows; a label that repeats the label of the left or lower neighbor is omitted."""
    tiles = []
    for place, panel in enumerate(panels):
        below = panels[place + across] if place + across < len(panels) else None
        left = panels[place - 1] if place % across else None
        x = panel.x if below is None or below.x.text != panel.x.text else _unlabeled(panel.x)
        y = panel.y if left is None or left.y.text != panel.y.text else _unlabeled(panel.y)
        tiles.append(replace(panel, x=x, y=y))
    return [tiles[at : at + across] for at in range(0, len(tiles), across)]


def _unlabeled(axis: Axis) -> Axis:
    return replace(axis, label="", unit="")


def legend_entries(panels: Sequence[Panel]) -> list[Mark]:
    """Return one mark for each legend entry, in order of appearance."""
    # Reversed, so that the first mark of a name wins.
    found = {mark.name: mark for panel in reversed(panels) for mark in reversed(panel.marks)}
    order = dict.fromkeys(mark.name for panel in panels for mark in panel.marks if mark.name)
    return [found[name] for name in order]


def edition_words(terms: Texts) -> str:
    """Name the editions of the cost model, each with its preset if it has one.

    >>> edition_words(["sc23", "sc23"]), edition_words(["sc23", "corrected, megatron-lm"])
    ('edition sc23', 'editions sc23; corrected, megatron-lm')
    """
    names = list(dict.fromkeys(terms))
    separator = "; " if any("," in name for name in names) else ", "
    return f"edition{'s' if len(names) > 1 else ''} {separator.join(names)}"


def linked(chart: Chart, links: Texts) -> Chart:
    """Return a chart of one panel whose bars lead to addresses: one for each place of the axis of categories."""
    ((panel,),) = chart.rows

    def with_links(mark: Mark) -> Mark:
        if not isinstance(mark, Bars):
            return mark
        return replace(mark, links=[links[int(at)] for at in mark.at])

    marks = tuple(map(with_links, panel.marks))
    return replace(chart, rows=((replace(panel, marks=marks),),))
