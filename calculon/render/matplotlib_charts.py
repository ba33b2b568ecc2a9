"""Matplotlib backend of charts: reproducible pictures in files, reports and notebooks."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from calculon.render.canvas import GREY, INK, drawing, figure, wrapped
from calculon.render.chart import (
    Area,
    Axis,
    Bars,
    Boxes,
    Cells,
    Chart,
    Line,
    Mark,
    Notes,
    Panel,
    Rule,
    Span,
    color_code,
    legend_entries,
    plain,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MARKERS = {
    "circle": "o",
    "square": "s",
    "triangle": "^",
    "diamond": "D",
    "down": "v",
    "plus": "P",
    "cross": "X",
    "thin cross": "x",
    "star": "*",
    "": "",
}
_DASHES: Mapping[str, Any] = {
    "solid": "-",
    "dash": "--",
    "dashdot": "-.",
    "dot": (0, (1, 2)),
    "none": "none",
}
_STEPS = {"": "default", "before": "steps-pre", "after": "steps-post"}
_DENSE = 4
"""Repetitions of a hatch character, which set the density of the hatch."""

_LETTER, _HANDLE = 0.058, 0.5
"""Widths in inches: a character of a legend text, and the symbol before it."""

_MAX_COLUMNS = 6
_WIDE = 3.0
"""Minimum width of a panel in inches for a title in the usual size."""

_LARGEST = 7.0
"""Maximum size of a marker in a legend, in points."""

_MANY = 1000
"""Number of points from which vector files embed a line as an image."""

_TITLE = 13
"""Characters of a title per inch of width."""

_OFFSETS: Mapping[str, tuple[float, float, str, str]] = {
    "right": (5, 0, "left", "center"),
    "left": (-5, 0, "right", "center"),
    "center": (0, 0, "center", "center_baseline"),
    "above": (0, 4, "center", "bottom"),
    "upper right": (5, 4, "left", "bottom"),
    "upper left": (-5, 4, "right", "bottom"),
    "below": (5, -4, "left", "top"),
}
"""Offset in points and alignment of a text, for each side of its point."""

_RULE_LINE = 9
"""Line height of the texts above rules, in points."""


def draw(chart: Chart) -> "Figure":
    """Return the picture of a chart."""
    heights = [max(panel.height for panel in row) for row in chart.rows]
    entries = [legend_entries(row) for row in chart.rows]
    title = "\n".join(wrapped(line, round(_TITLE * chart.width)) for line in chart.heading)
    # Height of the chart title: 0.2 inches per line; 0.19 below is a line of a legend.
    around = 0.2 * (title.count("\n") + 1) + 0.1
    with drawing():
        if chart.legends == "rows":
            heights = [
                height + 0.19 * _lines(own, chart.width)
                for height, own in zip(heights, entries, strict=True)
            ]
            picture = figure(chart.width, around + sum(heights))
            parts = picture.subfigures(len(heights), 1, squeeze=False, height_ratios=heights)[:, 0]
            for part, row, own in zip(parts, chart.rows, entries, strict=True):
                grid = part.subplots(
                    1, len(row), squeeze=False, width_ratios=[p.share for p in row]
                )
                _panels(grid, [row], chart.width)
                _legend(part, own, chart.width)
        else:
            own = legend_entries(chart.panels) if chart.legends == "one" else []
            picture = figure(chart.width, around + sum(heights) + 0.19 * _lines(own, chart.width))
            grid = picture.subplots(
                len(heights),
                max(map(len, chart.rows)),
                squeeze=False,
                height_ratios=heights,
                width_ratios=[panel.share for panel in chart.rows[0]],
            )
            _panels(grid, chart.rows, chart.width, shared=chart.shared)
            _legend(picture, own, chart.width)
        picture.suptitle(title, x=0.01, ha="left", fontsize=10)
    return picture


def _panels(
    grid: Any, rows: Sequence[Sequence[Panel]], width: float, *, shared: bool = False
) -> None:
    """Draw panels on a grid of axes with the given total width in inches."""
    size = 9 if width >= _WIDE * len(rows[0]) else 7.5
    for place, row in enumerate(rows):
        for axes, panel in zip(grid[place], row, strict=False):
            _panel(axes, panel, size)
            if shared and place < len(rows) - 1:
                axes.tick_params(axis="x", labelbottom=False)
                axes.set_xlabel("")
        for axes in grid[place][len(row) :]:
            axes.set_visible(False)


def _panel(axes: "Axes", panel: Panel, size: float) -> None:
    """Draw a panel with a title of the given font size."""
    # Scales are set before marks are drawn, so that autoscaling sees the right one.
    for axis, which in ((panel.x, "x"), (panel.y, "y")):
        if axis.scale == "log":
            (axes.set_xscale if which == "x" else axes.set_yscale)("log")
    for place, mark in enumerate(panel.marks):
        _DRAWN[type(mark)](axes, mark, 2 + 0.01 * place)
    _axis(axes, panel.x, "x")
    _axis(axes, panel.y, "y")
    if panel.square:
        axes.set_box_aspect(1)
    if panel.title:
        axes.set_title(panel.title, fontsize=size)


def _axis(axes: "Axes", axis: Axis, which: str) -> None:
    """Set limits, ticks and label of an axis."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

    own = axes.xaxis if which == "x" else axes.yaxis
    if axis.limits is not None:
        (axes.set_xlim if which == "x" else axes.set_ylim)(*axis.limits)
    own.set_minor_locator(NullLocator())
    if axis.ticks is not None:
        own.set_ticks([place for place, _ in axis.ticks], [text for _, text in axis.ticks])
    elif axis.scale == "linear":
        own.set_major_locator(MaxNLocator("auto", steps=[1, 2, 2.5, 5, 10]))
        own.set_major_formatter(FuncFormatter(lambda value, _: plain(value)))
    if not axis.grid:
        axes.grid(visible=False, axis=which)  # type: ignore[arg-type]
        axes.tick_params(axis=which, length=0)  # type: ignore[arg-type]
    if not axis.shown:
        axes.tick_params(axis=which, labelleft=False, labelbottom=False)  # type: ignore[arg-type]
    else:
        (axes.set_xlabel if which == "x" else axes.set_ylabel)(axis.text)


def _codes(mark: Mark) -> Any:
    """Return the color code of a mark, or the codes of its points."""
    if isinstance(mark.color, str):
        return color_code(mark.color)
    return [color_code(name) for name in mark.color]


def _bars(axes: "Axes", mark: Bars, order: float) -> None:
    starts = mark.starts or [0.0] * len(mark.at)
    look: dict[str, Any] = {"color": _codes(mark), "edgecolor": "white", "linewidth": 0.8}
    draw = axes.bar if mark.upright else axes.barh
    drawn = draw(mark.at, mark.lengths, mark.thick, starts, zorder=order, **look)
    hatched = mark.hatched or [True] * len(mark.at)
    for bar, one in zip(drawn, hatched, strict=True):
        bar.set_hatch(mark.hatch * _DENSE if one else None)


def _line(axes: "Axes", mark: Line, order: float) -> None:
    # Without points it is a legend entry only; unclipped, it would have infinite bounds.
    if len(mark.x) == 0:
        return
    code, size = _codes(mark), mark.sizes[0] if mark.sizes else 0.0
    if len(mark.sizes) > 1 or not isinstance(code, str):
        areas = [one**2 for one in mark.sizes]
        axes.scatter(
            mark.x,
            mark.y,
            areas,
            code,
            marker=_MARKERS[mark.marker],
            edgecolors="white",
            linewidths=0.5,
            zorder=order,
        )
        return
    every = -(-len(mark.x) // mark.most) if mark.most else None
    look = _line_look(mark, size)
    axes.plot(mark.x, mark.y, zorder=order, clip_on=mark.clip, markevery=every, **look)


def _line_look(mark: Line, size: float) -> dict[str, Any]:
    """Return the style of a line and its markers."""
    code = color_code(mark.main_color)
    return {
        "color": code,
        "linestyle": _DASHES[mark.dash],
        "linewidth": mark.width,
        "drawstyle": _STEPS[mark.steps],
        "marker": _MARKERS[mark.marker],
        "markersize": size,
        "markerfacecolor": "white" if mark.hollow else code,
        "rasterized": len(mark.x) > _MANY,
    }


def _area(axes: "Axes", mark: Area, order: float) -> None:
    look: dict[str, Any] = {"facecolor": _codes(mark), "edgecolor": "white", "linewidth": 0.4}
    hatch = mark.hatch * _DENSE
    axes.fill_between(
        mark.x, mark.low, mark.high, hatch=hatch, alpha=mark.opacity, zorder=order, **look
    )


def _boxes(axes: "Axes", mark: Boxes, order: float) -> None:
    from matplotlib.collections import PolyCollection

    corners = [[(a, c), (b, c), (b, d), (a, d)] for a, b, c, d in mark.boxes]
    look: dict[str, Any] = {"facecolors": _codes(mark), "edgecolors": "white"}
    if mark.hatch or not mark.filled:
        look = {"facecolors": "white" if mark.hatch else "none", "edgecolors": _codes(mark)}
    drawn = PolyCollection(
        corners, linewidths=mark.edge, hatch=mark.hatch * _DENSE or None, zorder=order, **look
    )
    axes.add_collection(drawn, autolim=True)


def _cells(axes: "Axes", mark: Cells, order: float) -> None:
    import numpy as np
    from matplotlib.colors import LinearSegmentedColormap

    values = np.array(mark.values, dtype=float)
    colors = LinearSegmentedColormap.from_list("cells", [color_code(one) for one in mark.scale])
    low, high = mark.limits or (0.0, 1.0)
    edges = [np.arange(count + 1) - 0.5 for count in reversed(values.shape)]
    image = axes.pcolormesh(
        *edges,
        values,
        cmap=colors,
        vmin=low,
        vmax=high,
        edgecolors="white",
        linewidth=1.2,
        zorder=order,
    )
    for (row, column), value in np.ndenumerate(values):
        axes.text(
            column,
            row,
            mark.texts[row][column],
            ha="center",
            va="center",
            fontsize=7.5,
            color=GREY if np.isnan(value) else INK,
            fontweight="bold" if mark.bold == (row, column) else "normal",
            zorder=order + 0.005,
        )
    axes.spines[:].set_visible(False)
    if mark.label:
        axes.figure.colorbar(image, ax=axes, label=mark.label)


def _notes(axes: "Axes", mark: Notes, order: float) -> None:
    from matplotlib.patheffects import withStroke

    halo = [withStroke(linewidth=2.0, foreground="white")] if mark.halo else []
    sides = [mark.side] * len(mark.texts) if isinstance(mark.side, str) else mark.side
    colors = [mark.color] * len(mark.texts) if isinstance(mark.color, str) else mark.color
    for x, y, text, side, color in zip(mark.x, mark.y, mark.texts, sides, colors, strict=True):
        across, up, horizontal, vertical = _OFFSETS[side]
        axes.annotate(
            text,
            (x, y),
            xytext=(across, up),
            textcoords="offset points",
            ha=horizontal,
            va=vertical,
            fontsize=mark.size,
            color=INK if color == "black" else color_code(color),
            path_effects=halo,
            zorder=3 + order / 10,
        )


def _rule(axes: "Axes", mark: Rule, order: float) -> None:
    look = {"color": _codes(mark), "linestyle": _DASHES[mark.dash], "linewidth": mark.width}
    (axes.axhline if mark.level else axes.axvline)(mark.at, zorder=order, **look)
    if mark.text:
        axes.annotate(
            mark.text,
            (mark.at, 1),
            xycoords=("data", "axes fraction"),
            xytext=(0, 3 + _RULE_LINE * mark.row),
            textcoords="offset points",
            ha=mark.side,
            fontsize=7,
        )


def _span(axes: "Axes", mark: Span, order: float) -> None:
    look: dict[str, Any] = {"color": _codes(mark), "alpha": mark.opacity, "linewidth": 0}
    (axes.axhspan if mark.level else axes.axvspan)(mark.low, mark.high, zorder=order, **look)


_DRAWN: Mapping[type, Callable[["Axes", Any, float], None]] = {
    Bars: _bars,
    Line: _line,
    Area: _area,
    Boxes: _boxes,
    Cells: _cells,
    Notes: _notes,
    Rule: _rule,
    Span: _span,
}


def _handle(mark: Mark) -> Any:
    """Return the legend symbol of a mark."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    code = color_code(mark.main_color)
    if isinstance(mark, Line):
        return Line2D([], [], label=mark.name, **_line_look(mark, min(mark.sizes[0], _LARGEST)))
    if isinstance(mark, Rule):
        dash = _DASHES[mark.dash]
        return Line2D([], [], label=mark.name, color=code, linestyle=dash, linewidth=mark.width)
    if isinstance(mark, Boxes) and (mark.hatch or not mark.filled):
        look: dict[str, Any] = {"hatch": mark.hatch * _DENSE, "linewidth": mark.edge}
        return Patch(facecolor="none", edgecolor=code, label=mark.name, **look)
    opacity = mark.opacity if isinstance(mark, (Area, Span)) else 1.0
    hatch = getattr(mark, "hatch", "") * _DENSE
    return Patch(facecolor=code, edgecolor="white", hatch=hatch, alpha=opacity, label=mark.name)


def _columns(entries: Sequence[Mark], width: float) -> int:
    """Return the number of legend columns that fit."""
    widest = max((len(mark.name) for mark in entries), default=0)
    fit = int(width / (_HANDLE + _LETTER * widest))
    return max(1, min(fit, len(entries), _MAX_COLUMNS))


def _lines(entries: Sequence[Mark], width: float) -> int:
    """Return the number of lines of a legend."""
    return -(-len(entries) // _columns(entries, width))


def _legend(part: Any, entries: Sequence[Mark], width: float) -> None:
    """Draw a legend below the panels."""
    if entries:
        handles = [_handle(mark) for mark in entries]
        columns = _columns(entries, width)
        part.legend(handles=handles, loc="outside lower center", ncols=columns)
