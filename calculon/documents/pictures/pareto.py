"""One statistic against another: all executions, and those that no other one beats in both."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from calculon.base.frozen import dataclass
from calculon.base.units import Array
from calculon.declarations.named_values import PUBLISHED
from calculon.render.bars import COLORS
from calculon.render.canvas import LIGHT, count_axis, drawing, figure, note_edition, plain_ticks
from calculon.render.chart_axes import Quantity

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CELLS = (360, 240)
"""Dots that fit in a row and in a column: of several at one place, one is drawn."""

_LABELS = 8
"""Names that are written at executions of the front."""


@dataclass(frozen=True, slots=True)
class Pareto:
    """The content of the picture: values in the statistics' own units, the rows of the front, and a name for each.

    Attributes
    ----------
    x, y : str
        Statistics, or fields of the execution.
    columns : array, shape (2, rows)
        Their values.
    front : array of int64
        Rows of the front, in the order of `x`.
    names : sequence of str
        One per row of the front.
    complete : bool
        The rows are all executions, not only the front.
    editions : sequence of str
        Editions of the model.
    """

    title: str
    x: str
    y: str
    columns: Array
    front: Array
    names: Sequence[str]
    complete: bool = True
    editions: Sequence[str] = (PUBLISHED,)


def draw(pareto: Pareto) -> "Figure":
    """Draw the front as a line through its executions, the others as dots behind it."""
    x, y = Quantity(pareto.x), Quantity(pareto.y)
    values = pareto.columns * np.array([[x.factor], [y.factor]])
    front = values[:, pareto.front]
    with drawing():
        picture = figure(6.4, 4.4)
        axes = picture.subplots()
        if pareto.complete:
            dots = values[:, scattered(values)]
            label = f"{values.shape[1]:,} executions that can run"
            axes.plot(*dots, ".", color=LIGHT, markersize=2.5, label=label, rasterized=True)
        drawstyle = "steps-post" if _ascends(front) else "steps-pre"
        axes.plot(*front, color=COLORS["blue"], linewidth=1.2, drawstyle=drawstyle)
        words = f"not beaten in both by any other ({front.shape[1]:,}), with TP.PP.DP"
        axes.plot(*front, "o", color=COLORS["blue"], markersize=4.5, label=words)
        axes.margins(0.06, 0.08)
        _names(axes, front, pareto.names)
        if pareto.x == "num_procs":
            count_axis(axes, np.unique(values[0]).tolist())
            if axes.get_xscale() == "log" and values[1].min() > 0:
                axes.set_yscale("log")
                plain_ticks(axes)
        axes.set_xlabel(x.label)
        axes.set_ylabel(y.label)
        axes.set_title(pareto.title)
        note_edition(axes, pareto.editions)
        picture.legend(loc="outside lower center", ncols=2, markerscale=1.5)
    return picture


def _ascends(front: Array) -> bool:
    return bool(front.shape[1] < 2 or front[1, -1] >= front[1, 0])


def scattered(values: Array) -> Array:
    """Return rows so that no two would be drawn at the same place, ascending."""
    low = values.min(axis=1, keepdims=True)
    span = values.max(axis=1, keepdims=True) - low
    span[span == 0] = 1.0
    places = ((values - low) / span * (np.array(CELLS)[:, None] - 1)).astype(np.int64)
    _, rows = np.unique(places[0] * CELLS[1] + places[1], return_index=True)
    return np.sort(rows)


def _names(axes: "Axes", front: Array, names: Sequence[str]) -> None:
    """Name executions of the front: the ends, and between them such as are far enough apart."""
    from matplotlib.patheffects import withStroke

    halo = [withStroke(linewidth=2.0, foreground="white")]
    for i in spread(front, _LABELS):
        axes.annotate(
            names[i],
            (front[0, i], front[1, i]),
            xytext=(5, -4),
            textcoords="offset points",
            va="top",
            fontsize=6.5,
            color="#222222",
            path_effects=halo,
        )


def spread(front: Array, most: int) -> list[int]:
    """Choose points of a front that lie apart from each other: the best first, then the others in turn."""
    if not front.shape[1]:
        return []
    span = np.ptp(front, axis=1)
    span[span == 0] = 1.0
    places = front / span[:, None]
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
