"""Heatmap of the best value by tensor and pipeline parallelism; infeasible degrees are crossed out."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from calculon.base.frozen import dataclass
from calculon.base.units import significant
from calculon.declarations.named_values import PUBLISHED
from calculon.render.chart import (
    Axis,
    Boxes,
    Cells,
    Chart,
    Mark,
    Notes,
    Panel,
    PointInfo,
    categories,
    dots,
    point_attributes,
)
from calculon.render.chart_axes import Quantity

_SCALE = ("blue+30", "blue+65", "blue+90")
"""Colors from the best value to values :data:`_FAR` times worse: light enough for dark digits."""

_FAR = 2.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell(PointInfo):
    """Pair of degrees, with the best plan in words, or the reason why there is none.

    Attributes:
        tensor_par, pipeline_par: Degrees of parallelism.
        value: The best value in the unit of the statistic; None if no plan can run.
        note: Reason why no plan can run, in one word.
        text: Formatted value; by default the value with three digits.
    """

    tensor_par: int
    pipeline_par: int
    value: float | None = None
    note: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True)
class Heatmap:
    """Cells, the statistic, its direction (`smallest`), a title, editions, and the key of a page's plan."""

    title: str
    statistic: str
    cells: Sequence[Cell]
    smallest: bool = False
    terms: Sequence[str] = (PUBLISHED,)
    selected: str = ""

    @property
    def degrees(self) -> tuple[list[int], list[int]]:
        """Tensor and pipeline degrees, ascending."""
        return (
            sorted({cell.tensor_par for cell in self.cells}),
            sorted({cell.pipeline_par for cell in self.cells}),
        )

    def place(self, cell: Cell) -> tuple[int, int]:
        """Return the row and the column of a cell."""
        tensor, pipeline = self.degrees
        return tensor.index(cell.tensor_par), pipeline.index(cell.pipeline_par)

    @property
    def feasible(self) -> list[Cell]:
        """Cells with a plan."""
        return [cell for cell in self.cells if cell.value is not None]

    @property
    def best(self) -> Cell | None:
        """Cell with the best value; the first one in a tie."""
        choose = min if self.smallest else max
        return choose(self.feasible, key=lambda cell: cell.value or 0.0, default=None)

    @property
    def quantity(self) -> Quantity:
        """Statistic on an axis."""
        return Quantity(self.statistic)

    @property
    def label(self) -> str:
        """Name of the values with their unit."""
        words = self.quantity.label
        return f"Best {words[0].lower()}{words[1:]}"

    def ratio(self, cell: Cell) -> float:
        """Return the factor by which a value is worse than the best: 1 or more."""
        best, value = (self.best.value if self.best else None) or 0.0, cell.value or 0.0
        worse, better = (value, best) if self.smallest else (best, value)
        if better > 0 and worse > 0:
            return worse / better
        # A ratio is meaningless next to 0 or between signs: these values get the worst color.
        return 1.0 if value == best else _FAR

    def text(self, cell: Cell) -> str:
        """Write the value of a cell."""
        return cell.text or short((cell.value or 0.0) * self.quantity.factor)


def heatmap(data: Heatmap) -> Chart:
    """Return the heatmap, tensor parallelism upwards and pipeline parallelism to the right."""
    tensor, pipeline = data.degrees
    marks: list[Mark] = [_values(data)] if data.feasible else []
    marks += [*_crosses(data), *_frame(data)]
    y = categories([f"{degree:,}" for degree in tensor], label="Tensor parallelism", down=False)
    x = categories([f"{n:,}" for n in pipeline], label="Pipeline parallelism", down=False)
    panel = Panel(
        x=_whole(x, len(pipeline)),
        y=_whole(y, len(tensor)),
        marks=marks,
        height=max(1.6, 0.7 + 0.42 * len(tensor)),
    )
    width = max(5.6, 1.4 + 0.66 * len(pipeline))
    return Chart(
        title=data.title,
        subtitle=data.label,
        terms=data.terms,
        rows=((panel,),),
        width=width,
    )


def surface(data: Heatmap) -> Chart:
    """Return the heatmap with colors proportional to the values, and a color scale: it shows the slope."""
    chart = heatmap(data)
    (panel,), cells = chart.rows[0], _values(data)
    grid: list[list[float | None]] = [[None] * len(row) for row in cells.values]
    for cell in data.feasible:
        row, column = data.place(cell)
        grid[row][column] = (cell.value or 0.0) * data.quantity.factor
    values = [value for line in grid for value in line if value is not None]
    scale = _SCALE if data.smallest else _SCALE[::-1]
    limits = min(values), max(values)
    tiles = replace(cells, values=grid, scale=scale, limits=limits, label=data.label)
    marks = [tiles if isinstance(mark, Cells) else mark for mark in panel.marks]
    return replace(chart, rows=((replace(panel, marks=marks),),), width=chart.width + 0.9)


def _whole(axis: Axis, count: int) -> Axis:
    """Return an axis that ends at the edges of its cells."""
    return replace(axis, limits=(-0.5, count - 0.5))


def _values(data: Heatmap) -> Cells:
    """Return the cells with a plan; the others are empty."""
    tensor, pipeline = data.degrees
    by_place = {data.place(cell): cell for cell in data.feasible}
    rows, columns = range(len(tensor)), range(len(pipeline))
    grid = [[by_place.get((row, column)) for column in columns] for row in rows]
    flat = [cell for row in grid for cell in row]
    best = data.best
    return Cells(
        values=[[min(_FAR, data.ratio(cell)) if cell else None for cell in row] for row in grid],
        texts=[[data.text(cell) if cell else "" for cell in row] for row in grid],
        scale=_SCALE,
        limits=(1.0, _FAR),
        bold=None if best is None else data.place(best),
        **point_attributes(flat),
    )


def _crosses(data: Heatmap) -> Iterator[Mark]:
    """Yield crosses on the cells without a plan, with the reasons below."""
    missing = [cell for cell in data.cells if cell.value is None]
    if not missing:
        return
    places = [data.place(cell) for cell in missing]
    words = "no plan can run"
    if any("GiB" in cell.note for cell in missing):
        words += " (missing memory)"
    noted = [(row, column, cell.note) for (row, column), cell in zip(places, missing, strict=True)]
    # Crosses move up to leave space for the reason below.
    crosses = [(column, row + (0.15 if note else 0)) for row, column, note in noted]
    yield dots(crosses, "thin cross", name=words, color="gray", **point_attributes(missing))
    if noted := [one for one in noted if one[2]]:
        yield Notes(
            x=[column for _, column, _ in noted],
            y=[row - 0.2 for row, _, _ in noted],
            texts=[note for *_, note in noted],
            side="center",
            size=6.0,
            color="gray",
        )


def _frame(data: Heatmap) -> Iterator[Boxes]:
    """Yield a frame around the plan of the page, or else around the best."""
    selected = [cell for cell in data.cells if cell.key and cell.key == data.selected]
    best = [data.best] if data.best is not None else []
    for cell in selected or best:
        row, column = data.place(cell)
        yield Boxes(
            name="best" if cell is data.best else "shown plan",
            boxes=((column - 0.5, column + 0.5, row - 0.5, row + 0.5),),
            color="vermilion",
            filled=False,
            edge=2.2,
        )


def short(value: float) -> str:
    """Write a value with three digits.

    >>> short(112.76), short(12345.0), short(0.051234)
    ('113', '12,345', '0.0512')
    """
    return f"{value:,.0f}" if abs(value) >= 100 else significant(value, 3)
