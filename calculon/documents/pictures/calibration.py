"""Measured rates over sizes and the fitted curve, or measured over predicted times: a panel for each part."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from calculon.base.frozen import dataclass
from calculon.base.units import scaled
from calculon.render.bars import COLORS
from calculon.render.canvas import GREY, LIGHT, drawing, figure, logarithmic_ticks
from calculon.render.chart_axes import time_unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_WIDEST = 3
"""Panels in a row."""

_MOST_ERRORS = 4
"""The same of errors."""


@dataclass(frozen=True, slots=True)
class Panel:
    """One part of a system.

    Attributes
    ----------
    title : str
        The part, and a few words about its errors.
    unit : str
        Of the sizes: ``B`` or ``FLOP``.
    fitted, held : pair of sequences of float
        Sizes and measured rates of the rows that were fitted, and of those held out.
    curve : pair of sequences of float
        Sizes and rates of the new file.
    left : pair of sequences of float
        As `fitted`: rows that did not count.
    """

    title: str
    unit: str
    fitted: tuple[Sequence[float], Sequence[float]]
    held: tuple[Sequence[float], Sequence[float]]
    curve: tuple[Sequence[float], Sequence[float]]
    left: tuple[Sequence[float], Sequence[float]] = ((), ())


BAND = 0.1
"""Relative error of the band around the diagonal."""


MOST = 50.0
"""Largest error that is drawn, in percent."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Predicted and measured times in seconds, of rows that were fitted and of those held out."""

    title: str
    fitted: tuple[Sequence[float], Sequence[float]]
    held: tuple[Sequence[float], Sequence[float]]


@dataclass(frozen=True, slots=True)
class Errors:
    """Measured times in seconds and errors of the prediction in percent, of rows fitted and of those held out."""

    title: str
    fitted: tuple[Sequence[float], Sequence[float]]
    held: tuple[Sequence[float], Sequence[float]]


def draw(panels: Sequence[Panel | Comparison]) -> "Figure":
    """Draw the panels, both axes logarithmic."""
    across = min(_WIDEST, len(panels))
    down = -(-len(panels) // across)
    with drawing():
        picture = figure(1.0 + 3.6 * across, 0.6 + 3.0 * down)
        grid = picture.subplots(down, across, squeeze=False)
        for axes, one in zip(grid.flat, panels, strict=False):
            if isinstance(one, Panel):
                _panel(axes, one)
            else:
                _comparison(axes, one)
        for axes in list(grid.flat)[len(panels) :]:
            axes.set_visible(False)
        lines = {line.get_label(): line for axes in grid.flat for line in axes.lines}
        columns = 2 if across == 1 and len(lines) > 3 else len(lines)
        picture.legend(lines.values(), lines.keys(), loc="outside upper center", ncols=columns)
    return picture


def _ticks(axes: "Axes", *forms: Callable[[float], str]) -> None:
    """Write few ticks, in plain numbers."""
    for axis, form in zip((axes.xaxis, axes.yaxis), forms, strict=True):
        low, high = axis.get_view_interval()
        several = (1.0, 2.0, 5.0) if high / low < 20 else (1.0, 3.0) if high / low < 100 else (1.0,)
        logarithmic_ticks(axis, several, form, most=7)
        axis.set_tick_params(which="minor", length=0)


def _comparison(axes: "Axes", one: Comparison) -> None:
    """Draw measured over predicted times, with the diagonal and the band around it."""
    axes.set_xscale("log")
    axes.set_yscale("log")
    times = [time for pair in (one.fitted, one.held) for some in pair for time in some]
    ends = [min(times) / 1.3, max(times) * 1.3]
    axes.plot(ends, ends, color=COLORS["vermilion"], label="calibrated file")
    lower, upper = ([end * (1 + sign * BAND) for end in ends] for sign in (-1, 1))
    color = COLORS["vermilion"]
    axes.fill_between(ends, lower, upper, color=color, alpha=0.15, linewidth=0)
    blue = COLORS["blue"]
    axes.plot(*one.fitted, "o", color=blue, markersize=4, label="measured, fitted")
    axes.plot(*one.held, "s", color=blue, markersize=4.5, mfc="white", label="measured, held out")
    axes.set_xlim(*ends)
    axes.set_ylim(*ends)
    axes.set_title(one.title, fontsize=7.5)
    axes.set_xlabel(f"predicted, s (band: {100 * BAND:g} %)", fontsize=8)
    axes.set_ylabel("measured, s", fontsize=8)
    _ticks(axes, "{:g}".format, "{:g}".format)


def draw_errors(title: str, panels: Sequence[Errors]) -> "Figure":
    """Draw errors over measured times, with one vertical axis; those beyond :data:`MOST` stand at the edge."""
    across = min(_MOST_ERRORS, len(panels))
    down = -(-len(panels) // across)
    with drawing():
        picture = figure(0.9 + 2.4 * across, 1.2 + 1.8 * down)
        grid = picture.subplots(down, across, squeeze=False, sharey=True)
        for axes, one in zip(grid.flat, panels, strict=False):
            _errors(axes, one)
        for axes in list(grid.flat)[len(panels) :]:
            axes.set_visible(False)
        picture.supxlabel("measured time", fontsize=9)
        beyond = f"those beyond {MOST:g} % stand at the edge"
        picture.supylabel(f"error of the prediction, % ({beyond})", fontsize=9)
        names = grid[0][0].get_legend_handles_labels()
        picture.legend(*names, loc="outside upper center", ncols=4, title=title, title_fontsize=10)
    return picture


def _errors(axes: "Axes", one: Errors) -> None:
    """Draw the errors of a group, those of held-out rows above the others."""
    from matplotlib.ticker import MultipleLocator

    axes.set_xscale("log")
    axes.axhline(0, color=GREY, linewidth=0.8)
    band = 100 * BAND
    axes.axhspan(-band, band, color=LIGHT, alpha=0.5, linewidth=0, label=f"within {band:g} %")
    looks = (
        ("o", COLORS["sky"], COLORS["sky"], "seen by the fit"),
        ("s", "white", COLORS["vermilion"], "held out"),
    )
    for (times, errors), (marker, face, edge, label) in zip(
        (one.fitted, one.held), looks, strict=True
    ):
        inside = [min(max(error, -MOST), MOST) for error in errors]
        axes.plot(times, inside, marker, color=edge, mfc=face, markersize=2.5, mew=0.7, label=label)
    axes.set_ylim(-MOST - 4, MOST + 4)
    axes.set_title(one.title, fontsize=7.5)
    axes.yaxis.set_major_locator(MultipleLocator(25))
    low, high = axes.get_xlim()
    several = (1.0, 2.0, 5.0) if high / low < 12 else (1.0, 3.0) if high / low < 100 else (1.0,)
    logarithmic_ticks(axes.xaxis, several, _duration, most=6)
    axes.xaxis.set_tick_params(which="minor", length=0)


def _duration(seconds: float) -> str:
    unit, factor = time_unit(seconds * 1.001)
    return f"{seconds * factor:g} {unit}"


def _panel(axes: "Axes", one: Panel) -> None:
    scale, prefix = (1e9, "G") if one.unit == "B" else (1e12, "T")
    axes.set_xscale("log")
    axes.set_yscale("log")
    curve, fitted, held, left = (
        (sizes, [rate / scale for rate in rates])
        for sizes, rates in (one.curve, one.fitted, one.held, one.left)
    )
    axes.plot(*curve, color=COLORS["vermilion"], label="calibrated file")
    blue = COLORS["blue"]
    axes.plot(*fitted, "o", color=blue, markersize=4, label="measured, fitted")
    axes.plot(*held, "s", color=blue, markersize=4.5, mfc="white", label="measured, held out")
    if one.left[0]:
        axes.plot(*left, "x", color=blue, markersize=4.5, label="measured, left out")
    axes.set_title(one.title, fontsize=7.5)
    axes.set_xlabel("size, FLOP" if one.unit == "FLOP" else "bytes moved", fontsize=8)
    axes.set_ylabel(f"rate, {prefix}{one.unit}/s", fontsize=8)
    _ticks(axes, _size, "{:,g}".format)


def _size(value: float) -> str:
    return scaled(value, digits=0) if value >= 1 else f"{value:g}"
