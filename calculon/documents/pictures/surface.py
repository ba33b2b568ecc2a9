"""The best value over tensor and pipeline parallelism as a surface; degrees without any execution lie on the floor."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from calculon.documents.charts.heatmap_chart import Heatmap, short
from calculon.render.bars import COLORS
from calculon.render.canvas import GREY, drawing, figure, note_edition

if TYPE_CHECKING:
    from matplotlib.figure import Figure

VIEW = {"elev": 27.0, "azim": -126.0}
"""Direction of the view in degrees: small degrees of parallelism are in front."""


def draw(heatmap: Heatmap) -> "Figure":
    """Draw the surface over both degrees, which are one step apart as in the heat map.

    A face needs three or four neighbours that can run. A pair of degrees without a face has a mark with a line to the
    floor, and so has the best.
    """
    tensor, pipeline = heatmap.degrees
    values = _values(heatmap)
    with drawing():
        picture = figure(6.8, 4.9)
        axes: Any = picture.add_subplot(projection="3d")
        axes.view_init(**VIEW)
        axes.set_box_aspect((1.3, 1.3, 0.85), zoom=1.05)
        if heatmap.best is not None:
            faces = _surface(axes, values)
            picture.colorbar(faces, ax=axes, label=heatmap.label, shrink=0.7, pad=0.02)
        for cell in heatmap.cells:
            y, x = tensor.index(cell.tensor_par), pipeline.index(cell.pipeline_par)
            best = cell is heatmap.best
            _mark(axes, (x, y, float(values[y, x])), best=best, alone=not _covered(values, y, x))
        axes.set_zlim(bottom=0)
        axes.set_xticks(range(len(pipeline)), [f"{degree:,}" for degree in pipeline])
        axes.set_yticks(range(len(tensor)), [f"{degree:,}" for degree in tensor])
        axes.set_xlabel("Pipeline parallelism", labelpad=2)
        axes.set_ylabel("Tensor parallelism", labelpad=2)
        picture.suptitle(heatmap.title, x=0.01, ha="left", fontsize=10)
        note_edition(axes, heatmap.terms)
        if legend := _legend(heatmap):
            picture.legend(handles=legend, loc="outside lower left", ncols=2)
    return picture


def _values(heatmap: Heatmap) -> Any:
    """Return the values in their unit by tensor and pipeline degree; not-a-number where nothing can run."""
    import numpy as np

    found = np.full([len(degrees) for degrees in heatmap.degrees], np.nan)
    for cell in heatmap.feasible:
        found[heatmap.place(cell)] = (cell.value or 0.0) * heatmap.quantity.factor
    return found


def _surface(axes: Any, values: Any) -> Any:
    """Draw the faces between neighbours that can run, and return what a scale of colours is made of."""
    import numpy as np
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    scale = Normalize(float(np.nanmin(values)), float(np.nanmax(values)))
    if min(values.shape) > 1:
        x, y = np.meshgrid(np.arange(values.shape[1]), np.arange(values.shape[0]))
        colours = {"cmap": "cividis", "norm": scale, "shade": False, "alpha": 0.92}
        axes.plot_surface(
            x, y, values, rstride=1, cstride=1, edgecolor="white", linewidth=0.6, **colours
        )
    return ScalarMappable(scale, "cividis")


def _covered(values: Any, y: int, x: int) -> bool:
    """Tell whether a pair of degrees is the corner of a face."""
    corners = [values[j : j + 2, i : i + 2] for j in (y - 1, y) for i in (x - 1, x) if j >= 0 <= i]
    return any(four.size == 4 and sum(map(math.isnan, four.flat)) < 2 for four in corners)


def _mark(axes: Any, place: Sequence[float], *, best: bool, alone: bool) -> None:
    """Mark a pair of degrees at its value, or by a cross on the floor where nothing can run."""
    x, y, value = place
    if math.isnan(value):
        axes.plot([x], [y], [0], marker="x", color=GREY, markersize=4, linestyle="none")
        return
    if not best and not alone:
        return
    color, width, size = (COLORS["vermilion"], 1.4, 7) if best else ("#222222", 0.6, 3)
    axes.plot([x, x], [y, y], [0, value], color=color, linewidth=width, zorder=5)
    axes.plot([x], [y], [value], marker="o", color=color, markersize=size, zorder=6)
    if best:
        words = f"{short(value)}\n"
        bold = {"fontsize": 9, "fontweight": "bold", "ha": "center", "va": "bottom"}
        axes.text(x, y, value, words, color=color, linespacing=0.8, zorder=7, **bold)


def _legend(heatmap: Heatmap) -> list[Any]:
    """Return the meaning of the marks."""
    from matplotlib.lines import Line2D

    def mark(marker: str, color: str, size: float, words: str) -> Any:
        look: Any = {"marker": marker, "color": color, "markersize": size, "linestyle": "none"}
        return Line2D([], [], label=words, **look)

    found, best, quantity = [], heatmap.best, heatmap.quantity
    if best is not None and best.value is not None:
        value = f"{short(best.value * quantity.factor)} {quantity.unit}".rstrip()
        words = f"best: {value} at TP {best.tensor_par:,}, PP {best.pipeline_par:,}"
        found.append(mark("o", COLORS["vermilion"], 7, words))
    if any(cell.value is None for cell in heatmap.cells):
        found.append(mark("x", GREY, 5, "no execution can run"))
    return found
