"""Predicted against measured, a panel for each study and quantity, with a band of errors."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from calculon.base.frozen import dataclass
from calculon.base.units import MEGA
from calculon.declarations.named_values import PUBLISHED
from calculon.render.bars import COLORS
from calculon.render.canvas import GREY, LIGHT, drawing, figure, logarithmic_ticks

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BAND = 0.10
"""Relative error that the band shows."""

_WIDEST = 4
"""Panels in a row."""

MOST_ROWS = 16
"""Rows of a single panel that are drawn one below the other, each with its name."""


@dataclass(frozen=True, slots=True)
class Panel:
    """One quantity of one study.

    Attributes
    ----------
    title, quantity, unit : str
        The study, the measured quantity, and its unit.
    measured, estimated : sequence of float
        Pairs in this unit.
    score : mapping
        ``n``, ``mean`` absolute error and ``bias``, in percent.
    labels : sequence of str
        Names of the pairs; none where they are too many to be read.
    """

    title: str
    quantity: str
    unit: str
    measured: Sequence[float]
    estimated: Sequence[float]
    score: Mapping[str, Any]
    labels: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Scatter:
    """The content of the picture: the panels, and the edition of the model."""

    panels: Sequence[Panel]
    edition: str = PUBLISHED


def draw(scatter: Scatter) -> "Figure":
    """Draw the panels; the line is perfect agreement, the band errors up to :data:`BAND`.

    A single panel of few named rows is drawn row by row.
    """
    panels, edition = scatter.panels, scatter.edition
    if len(panels) == 1 and 1 < len(panels[0].labels) <= MOST_ROWS:
        return _rows(panels[0], edition)
    across = min(_WIDEST, len(panels))
    down = -(-len(panels) // across)
    with drawing():
        picture = figure(0.4 + 2.3 * across, 0.6 + 2.45 * down)
        grid = picture.subplots(down, across, squeeze=False)
        for axes, one in zip(grid.flat, panels, strict=False):
            _panel(axes, one)
        for axes in list(grid.flat)[len(panels) :]:
            axes.set_visible(False)
        handles, labels = grid[0, 0].get_legend_handles_labels()
        picture.legend(handles, labels, loc="outside upper center", ncols=3 if across > 1 else 1)
        picture.supylabel(f"Predicted (edition {edition})", fontsize=10)
        picture.supxlabel("Measured", fontsize=10)
    return picture


def _rows(one: Panel, edition: str) -> "Figure":
    """Draw measured and predicted on one line for each row, and the error in percent."""
    factor, unit = (1e3, "ms") if one.unit == "s" and max(one.measured) < 10 else (1.0, one.unit)
    places = list(range(len(one.labels)))
    measured, estimated = ([v * factor for v in values] for values in (one.measured, one.estimated))
    with drawing():
        picture = figure(7.2, 1.3 + 0.3 * len(places))
        axes = picture.subplots()
        axes.hlines(places, measured, estimated, color=LIGHT, lw=3)
        axes.plot(measured, places, "o", color=GREY, mfc="white", ms=7, label="measured")
        label = f"predicted (edition {edition})"
        axes.plot(estimated, places, "o", color=COLORS["blue"], ms=5, label=label)
        for place, true, found in zip(places, measured, estimated, strict=True):
            error = f"{(found / true - 1) * 100:+.1f} %".replace("-", "\N{MINUS SIGN}")
            where = (max(true, found), place)
            axes.annotate(error, where, (8, 0), textcoords="offset points", va="center", fontsize=8)
        if logarithmic := 0 < 5 * min(measured) < max(measured):
            axes.set_xscale("log")
            axes.set_xlim(min(measured) / 1.5, max(measured) * 2)
        else:
            axes.set_xlim(0, max(*measured, *estimated) * 1.15)
        _ticks(axes, logarithmic=logarithmic, horizontal_only=True)
        axes.set_yticks(places, list(one.labels), fontsize=8)
        axes.invert_yaxis()
        axes.set_xlabel(f"{one.quantity} ({unit})")
        axes.set_title(f"{one.title}: mean error {one.score['mean']:.1f} %", fontsize=10)
        picture.legend(loc="outside lower center", ncols=2)
    return picture


def _panel(axes: "Axes", one: Panel) -> None:
    """Draw pairs on equal axes, logarithmic when they span much."""
    small = one.unit == "s" and max(one.measured) < 0.1
    unit, factor = ("ms", 1e3) if small else (one.unit, 1.0)
    measured = [value * factor for value in one.measured]
    estimated = [value * factor for value in one.estimated]
    both = [*measured, *estimated]
    low, high = min(both), max(both)
    logarithmic = low > 0 and high / low > 5
    if logarithmic:
        ends = [low / 1.35, high * 1.35]
        axes.set_xscale("log")
        axes.set_yscale("log")
    else:
        margin = max(0.15 * (high - low), 1.5 * BAND * high)
        ends = [max(0.0, low - margin), high + margin]
    lower, upper = ([end * (1 + sign * BAND) for end in ends] for sign in (-1, 1))
    band = f"within {BAND:.0%}".replace("%", " %")
    axes.fill_between(ends, lower, upper, color=COLORS["sky"], alpha=0.3, lw=0, label=band)
    axes.plot(ends, ends, color=GREY, lw=0.9, label="predicted = measured")
    size = 4.0 if len(one.measured) < 100 else 2.5
    axes.plot(
        measured,
        estimated,
        "o",
        color=COLORS["blue"],
        markersize=size,
        markeredgecolor="white",
        markeredgewidth=0.3,
        alpha=0.85,
        label="an execution",
    )
    axes.set_xlim(*ends)
    axes.set_ylim(*ends)
    axes.set_box_aspect(1)
    _ticks(axes, logarithmic=logarithmic)
    bias = f"{one.score['bias']:+.1f} %".replace("-", "\N{MINUS SIGN}")
    axes.set_title(
        f"{one.title}\n{one.quantity} ({unit}), n = {one.score['n']:,}\n"
        f"mean error {one.score['mean']:.1f} %, bias {bias}",
        fontsize=7.5,
    )


def _ticks(axes: "Axes", *, logarithmic: bool, horizontal_only: bool = False) -> None:
    """Put the same few ticks on both axes, in plain numbers."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    low, high = axes.get_xlim()
    for axis in (axes.xaxis,) if horizontal_only else (axes.xaxis, axes.yaxis):
        if logarithmic:
            logarithmic_ticks(axis, (1.0, 3.0) if high / low < 300 else (1.0,), _plain)
        else:
            axis.set_major_locator(MaxNLocator(4))
            axis.set_major_formatter(FuncFormatter(lambda value, _: _plain(value)))
        axis.set_tick_params(which="minor", length=0)


def _plain(value: float) -> str:
    """Write a number without an exponent.

    >>> _plain(0.3), _plain(300_000.0), _plain(1.05e6)
    ('0.3', '300,000', '1.05 M')
    """
    return f"{value / MEGA:,g} M" if value >= MEGA else f"{value:,g}"
