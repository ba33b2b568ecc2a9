"""The best plan of each split of the processors as a map: tensor across, pipeline parallelism up."""

from collections.abc import Mapping, Sequence
from typing import Any

from calculon.base.frozen import dataclass
from calculon.render.bars import COLORS

_COLORS = [[0.0, COLORS["sky"]], [1.0, "#e3e8ed"]]
"""From the best to :data:`_FAR` times as bad: light enough for dark digits."""

_INK = "#101418"

_FAR = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A split.

    Attributes
    ----------
    tensor_par, pipeline_par : int
        Degrees of parallelism.
    name : str
        What it has in common with points and rows.
    text : str
        The best value; empty where no plan can run.
    ratio : float or None
        How many times as bad as the best of all, 1 or more; None where no plan can run.
    words : str
        The best plan, or why none can run.
    link : str
        The address of the page with that plan.
    """

    tensor_par: int
    pipeline_par: int
    name: str
    text: str = ""
    ratio: float | None = None
    words: str
    link: str = ""


def split_map(cells: Sequence[Cell], selected: str) -> Mapping[str, Any]:
    """Return the map; splits without a plan have a cross.

    Parameters
    ----------
    cells : sequence of Cell
        The splits.
    selected : str
        The name of that of the shown plan.
    """
    across, up = degrees(cells)
    good = {(c.tensor_par, c.pipeline_par): c for c in cells if c.ratio is not None}
    grid = [[good.get((x, y)) for x in across] for y in up]
    tiles = {
        "type": "heatmap",
        "x": [*map(str, across)],
        "y": [*map(str, up)],
        "z": [[None if c is None else min(_FAR, c.ratio or 1.0) for c in row] for row in grid],
        "text": [["" if c is None else c.text for c in row] for row in grid],
        "customdata": [
            [["", "", ""] if c is None else [c.link, c.name, c.words] for c in row] for row in grid
        ],
        "texttemplate": "%{text}",
        "textfont": {"color": _INK},
        "hovertemplate": "%{customdata[2]}<br>%{text}<extra></extra>",
        "hoverongaps": False,
        "colorscale": _COLORS,
        "zmin": 1.0,
        "zmax": _FAR,
        "showscale": False,
        "xgap": 2,
        "ygap": 2,
    }
    bad = [cell for cell in cells if cell.ratio is None]
    crosses = {
        "type": "scatter",
        "mode": "markers",
        "x": [str(cell.tensor_par) for cell in bad],
        "y": [str(cell.pipeline_par) for cell in bad],
        "customdata": [[cell.link, cell.name, cell.words] for cell in bad],
        "marker": {"symbol": "x-thin-open", "size": 9, "color": "#8a929c"},
        "hovertemplate": "%{customdata[2]}<extra></extra>",
    }
    layout = {**_layout(across, up), "shapes": _frame(cells, selected)}
    return {"data": [tiles, crosses], "layout": layout}


def degrees(cells: Sequence[Cell]) -> tuple[list[int], list[int]]:
    """Return the tensor and the pipeline degrees of cells, ascending."""
    return sorted({c.tensor_par for c in cells}), sorted({c.pipeline_par for c in cells})


def _frame(cells: Sequence[Cell], selected: str) -> list[dict[str, Any]]:
    """Return the mark of the cell of the shown plan; axes of names count their places from 0."""
    across, up = degrees(cells)
    places = [
        (across.index(c.tensor_par), up.index(c.pipeline_par)) for c in cells if c.name == selected
    ]
    mark = {"type": "rect", "line": {"color": COLORS["vermilion"], "width": 3}}
    return [{**mark, "x0": x - 0.5, "x1": x + 0.5, "y0": y - 0.5, "y1": y + 0.5} for x, y in places]


def _layout(across: Sequence[int], up: Sequence[int]) -> dict[str, Any]:
    axis = {"type": "category", "showgrid": False, "zeroline": False, "fixedrange": True}
    return {
        "height": 110 + 34 * max(4, len(up)),
        "showlegend": False,
        "hovermode": "closest",
        "xaxis": {**axis, "categoryarray": [*map(str, across)], "title": {"text": "TP"}},
        "yaxis": {
            **axis,
            "categoryarray": [*map(str, up)],
            "title": {"text": "PP"},
            "automargin": True,
        },
    }
