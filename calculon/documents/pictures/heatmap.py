"""The best value over tensor and pipeline parallelism; cells without any execution that can run are marked."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from calculon.base.frozen import dataclass
from calculon.base.units import significant
from calculon.declarations.named_values import PUBLISHED
from calculon.render.bars import COLORS
from calculon.render.canvas import GREY, drawing, figure, note_edition
from calculon.render.chart_axes import Quantity

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from calculon.base.units import Array


@dataclass(frozen=True, slots=True)
class Cell:
    """One pair of degrees: its best value in the statistic's own unit, or None and why nothing can run."""

    tensor_par: int
    pipeline_par: int
    value: float | None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Heatmap:
    """The content of the picture: cells, the statistic, whether small is good, a title, and editions of the model."""

    title: str
    statistic: str
    cells: Sequence[Cell]
    smallest: bool = False
    editions: Sequence[str] = (PUBLISHED,)

    @property
    def degrees(self) -> tuple[list[int], list[int]]:
        """Tensor and pipeline degrees, ascending."""
        return (
            sorted({cell.tensor_par for cell in self.cells}),
            sorted({cell.pipeline_par for cell in self.cells}),
        )

    @property
    def best(self) -> Cell | None:
        """The cell with the best value; the first of equal ones."""
        feasible = [cell for cell in self.cells if cell.value is not None]
        choose = min if self.smallest else max
        return choose(feasible, key=lambda cell: cell.value or 0.0) if feasible else None

    @property
    def quantity(self) -> Quantity:
        """The statistic on an axis."""
        return Quantity(self.statistic)

    @property
    def label(self) -> str:
        """The text of the scale of values."""
        words = self.quantity.label
        return f"Best {words[0].lower()}{words[1:]}"

    def values(self) -> "Array":
        """Return the values in their unit by tensor and pipeline degree; not-a-number where nothing can run."""
        import numpy as np

        factor = self.quantity.factor
        tensor, pipeline = self.degrees
        found = np.full((len(tensor), len(pipeline)), np.nan)
        for cell in self.cells:
            if cell.value is not None:
                place = tensor.index(cell.tensor_par), pipeline.index(cell.pipeline_par)
                found[place] = cell.value * factor
        return found


_DARK = 0.45
"""Share of the scale up to which a colour needs light text."""


def draw(heatmap: Heatmap) -> "Figure":
    """Draw a map with tensor parallelism upwards and pipeline parallelism to the right."""
    import numpy as np

    tensor, pipeline = heatmap.degrees
    values = heatmap.values()
    with drawing():
        picture = figure(max(5.0, 2.0 + 0.62 * len(pipeline)), max(2.6, 1.5 + 0.42 * len(tensor)))
        axes = picture.subplots()
        image = axes.imshow(values, cmap="cividis", origin="lower", aspect="auto")
        if heatmap.best is None:
            image.set_clim(0, 1)
        for cell in heatmap.cells:
            _annotate(axes, heatmap, cell, tensor, pipeline, values)
        axes.set_xticks(range(len(pipeline)), [f"{degree:,}" for degree in pipeline])
        axes.set_yticks(range(len(tensor)), [f"{degree:,}" for degree in tensor])
        axes.set_xticks(np.arange(len(pipeline) - 1) + 0.5, minor=True)
        axes.set_yticks(np.arange(len(tensor) - 1) + 0.5, minor=True)
        axes.grid(visible=False, which="major")
        axes.grid(visible=True, which="minor", color="white", linewidth=1.2)
        axes.tick_params(which="both", length=0)
        axes.spines[:].set_visible(False)
        axes.set_xlabel("Pipeline parallelism")
        axes.set_ylabel("Tensor parallelism")
        axes.set_title(heatmap.title)
        note_edition(axes, heatmap.editions)
        if heatmap.best is not None:
            picture.colorbar(image, ax=axes, label=heatmap.label)
        picture.legend(handles=_legend(heatmap), loc="outside lower center", ncols=3)
    return picture


def _annotate(
    axes: "Axes",
    heatmap: Heatmap,
    cell: Cell,
    tensor: Sequence[int],
    pipeline: Sequence[int],
    values: object,
) -> None:
    """Write a value, or mark that nothing can run."""
    import numpy as np
    from matplotlib.patches import Rectangle

    grid = np.asarray(values)
    y, x = tensor.index(cell.tensor_par), pipeline.index(cell.pipeline_par)
    corner = (x - 0.5, y - 0.5)
    if cell.value is None:
        axes.add_patch(Rectangle(corner, 1, 1, facecolor="#f0f0f0", edgecolor="white", zorder=1))
        text = f"×\n{cell.note}" if cell.note else "×"
        axes.text(x, y, text, ha="center", va="center", fontsize=6.5, color=GREY, linespacing=1.0)
        return
    low, high = np.nanmin(grid), np.nanmax(grid)
    share = (grid[y, x] - low) / (high - low) if high > low else 1.0
    best = cell is heatmap.best
    axes.text(
        x,
        y,
        short(float(grid[y, x])),
        ha="center",
        va="center",
        fontsize=7.5,
        color="white" if share < _DARK else "black",
        fontweight="bold" if best else "normal",
    )
    if best:
        frame = Rectangle(corner, 1, 1, fill=False, edgecolor=COLORS["vermilion"], lw=2.2, zorder=4)
        axes.add_patch(frame)


def short(value: float) -> str:
    """Write a value with three digits.

    >>> short(112.76), short(12345.0), short(0.051234)
    ('113', '12,345', '0.0512')
    """
    return f"{value:,.0f}" if abs(value) >= 100 else significant(value, 3)


def _legend(heatmap: Heatmap) -> list["object"]:
    """Return the meaning of the marks."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    found: list[object] = []
    if heatmap.best is not None:
        edge = COLORS["vermilion"]
        found.append(Patch(facecolor="none", edgecolor=edge, linewidth=2.0, label="best"))
    missing = [cell for cell in heatmap.cells if cell.value is None]
    if missing:
        words = "no execution can run"
        if any("GiB" in cell.note for cell in missing):
            words += " (memory that is missing)"
        found.append(
            Line2D([], [], color=GREY, marker="x", linestyle="none", markersize=5, label=words)
        )
    return found
