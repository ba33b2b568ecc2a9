"""The tables of the published tool: a row per model, a column per mode, comma-separated."""

from calculon.base.units import GIB
from calculon.validate.measured_and_predicted import Comparison, Result
from calculon.validate.published_study import Layout


def published_tables(result: Result) -> list[str]:
    """Return the lines of every quantity of a study that has a table of its own."""
    beside = result.own.prediction.values
    position = {row.number: i for i, row in enumerate(result.rows)}
    lines: list[str] = []
    for one in result.own.comparisons:
        if layout := one.quantity.table:
            extra = {}
            if layout.beside:
                values = beside[layout.beside]
                extra = {row.number: values[position[row.number]] / GIB for row in one.rows}
            lines += _lines(one, layout, extra)
    return lines


def _lines(one: Comparison, layout: Layout, extra: dict[int, float]) -> list[str]:
    """Return title, header, one line per row name, mean and largest deviation, and a comma."""
    cells: dict[str, dict[str, list[str]]] = {}
    for i, row in enumerate(one.rows):
        deviation = 100 * (1 - one.estimated[i] / one.measured[i])  # the published sign
        cell = [f"{one.measured[i]:.2f}", f"{one.estimated[i]:.2f}", f"{deviation:.2f}%"]
        cell += [f"{extra[row.number]:.2f}"] if extra else []
        name, column = str(row.cells[layout.rows]), str(row.cells[layout.columns])
        cells.setdefault(name, {})[column] = cell
    modes = list(dict.fromkeys(mode for line in cells.values() for mode in line))
    headings = ["profile", "calc", "delta", *(["GiB"] if extra else [])]
    lines = [layout.title, ",".join(["", *(f"{m} {h}" for m in modes for h in headings)])]
    blank = [""] * len(headings)
    for name, line in cells.items():
        lines.append(",".join([name, *(text for mode in modes for text in line.get(mode, blank))]))
    if one.score:
        lines += [f"Ave,,{one.score.mean:.2f}%", f"Max,,{one.score.largest:.2f}%"]
    return [*lines, ","]
