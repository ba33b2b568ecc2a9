"""How far published rates and times of served models were from the model: the rows of ``validation/served.csv``.

``scripts/render`` writes the file from the studies of served models under ``validation/serving``. A range holds 90 % of
the measured values over the predicted ones; nothing was fitted to them, and they are no interval of a given deployment:
published rows are of few models and processors, and of engines that were tuned for them.
"""

from functools import cache
from typing import Any

from calculon.base.frozen import dataclass
from calculon.declarations import catalog

FILE = "validation/served.csv"
"""The file, below the root of the catalog."""

FIGURES = ("tpot", "output_rate", "ttft")
"""Figures that published rows have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedError:
    """Measured values over predicted ones of a figure, of an engine.

    Attributes:
        engine, figure: The engine, or :data:`~calculon.declarations.serving_figures.ALL_ENGINES`; one of
            :data:`FIGURES`.
        rows, studies: Published rows, and the studies that they are of.
        low, median, high: Quantiles of 5, 50 and 95 %.
    """

    engine: str
    figure: str
    rows: int
    studies: int
    low: float
    median: float
    high: float

    def to_dict(self) -> dict[str, Any]:
        """Return what is known but the engine and the figure, which name it."""
        names = ("rows", "studies", "low", "median", "high")
        return {name: getattr(self, name) for name in names}


@cache
def served_errors() -> tuple[ServedError, ...]:
    """Return the rows of the file; none where it is not there."""
    try:
        first, *lines = (catalog.root() / FILE).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return ()
    names = first.split(",")
    found = []
    for line in lines:
        cells = dict(zip(names, line.split(","), strict=True))
        numbers: dict[str, Any] = {name: int(cells[name]) for name in ("rows", "studies")}
        numbers |= {name: float(cells[name]) for name in ("low", "median", "high")}
        found.append(ServedError(engine=cells["engine"], figure=cells["figure"], **numbers))
    return tuple(found)


def published_errors() -> dict[str, dict[str, dict[str, Any]]]:
    """Return the errors by figure and engine, as plain data."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for one in served_errors():
        found.setdefault(one.figure, {})[one.engine] = one.to_dict()
    return found
