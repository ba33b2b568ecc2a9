"""What a sweep returns: a row for every combination, with what was asked, why it cannot run, and its statistics."""

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from calculon.base.display import Tabular, draw_result
from calculon.base.errors import Problem, SpecError, nearest
from calculon.base.frozen import dataclass
from calculon.base.records import columns
from calculon.base.units import Array
from calculon.declarations.short_names import field_name
from calculon.declarations.statistics import CorrectedStats
from calculon.estimate.evaluate import Evaluation
from calculon.plan.plan import NAMES, Plan

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from plotly.graph_objects import Figure as InteractiveFigure


@dataclass(frozen=True)
class Sweep(Tabular):
    """Every combination of models, systems, executions and values of their fields, each with its statistics.

    Attributes:
        asked: What was combined, a column each: ``model``, ``system``, ``execution`` (its name, or its number from 0),
            and the values of each path under the path.
        evaluation: The executions of the rows, why rows cannot run, and the statistics, in the same order.
        units: Units of the columns by name: of paths those of files, of statistics those of ``describe stats``; empty
            for shares of 1, counts, names and switches.
        stats: The statistics that frames have.

    Examples:
        >>> from calculon import sweep
        >>> found = sweep("llama3-8B", "llama3-8B_h100x64", "h100", {"system.mem1.GBps": [2000, 4000]})
        >>> found
        <Sweep of 2 rows over system.mem1.GBps, 2 feasible>
        >>> bool(found["total_time"][0] > found["total_time"][1])
        True
    """

    asked: Mapping[str, Array]
    evaluation: Evaluation
    units: Mapping[str, str]
    stats: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.evaluation)

    def __getitem__(self, name: str) -> Array:
        """Return a column by name, that of a field also by its short name (``tp``).

        Columns are those of what was asked, execution fields, ``reason`` and statistics.

        Statistics are float64, and not-a-number in rows that cannot run.

        Raises:
            KeyError: When there is none of this name; the message names the nearest.
        """
        name = name if name in self.asked else field_name(str(name))
        if name in self.asked:
            return self.asked[name]
        try:
            return self.evaluation.column(name)
        except KeyError:
            known = (*self.asked, "reason", *NAMES, *self.evaluation.names)
            raise KeyError(
                f"no column {name!r}; {nearest(str(name), known)}".rstrip("; ")
            ) from None

    @property
    def feasible(self) -> Array:
        """Mask of the rows that can run."""
        return self.evaluation.feasible

    @cached_property
    def axes(self) -> tuple[str, ...]:
        """The columns of what was asked that have several values."""
        return tuple(name for name, one in self.asked.items() if len(set(map(str, one))) > 1)

    @cached_property
    def fields(self) -> tuple[str, ...]:
        """The execution fields in which rows differ, but for those that were asked for by path."""
        plan = self.evaluation.plan
        asked = {name.removeprefix("execution.") for name in self.asked}
        return tuple(
            name
            for name, one in plan.columns.items()
            if name not in asked and len(one) and (one != one[0]).any()
        )

    @property
    def mfu(self) -> Array:
        """Model FLOP utilisation of each row as a share of 1, as :attr:`calculon.Evaluation.mfu`."""
        return self.evaluation.mfu

    def table(self) -> dict[str, Array]:
        """Return a row for each combination: what was asked, fields in which rows differ, ``reason``, statistics."""
        return {name: self[name] for name in self._columns}

    def to_dict(self) -> dict[str, Any]:
        """Return the columns as plain data, each with its unit; what is not a finite number is None."""
        return {
            name: {"unit": self.units.get(name, ""), "values": _plain(self[name])}
            for name in self._columns
        }

    @property
    def _columns(self) -> tuple[str, ...]:
        return (*self.asked, *self.fields, "reason", *self.stats)

    @overload
    def plot(
        self,
        x: str = "",
        y: str = "sample_rate",
        by: str | None = None,
        *,
        interactive: Literal[False] = False,
    ) -> "Figure": ...

    @overload
    def plot(
        self,
        x: str = "",
        y: str = "sample_rate",
        by: str | None = None,
        *,
        interactive: Literal[True],
    ) -> "InteractiveFigure": ...

    def plot(
        self,
        x: str = "",
        y: str = "sample_rate",
        by: str | None = None,
        *,
        interactive: bool = False,
    ) -> "Figure | InteractiveFigure":
        """Draw a statistic over one of the columns, with a curve for each value of another.

        Where several rows of a curve have the same place, the best of them is drawn; places at which nothing can run
        are marked.

        Args:
            x: A column; by default what was asked with the most values.
            y: ``STATISTIC[:max|min]``; without a sense, what is better for it.
            by: A column with a curve for each of its values; by default all that was asked; "" for one curve.
            interactive: As the page in a browser draws it (extra ``web``): a plotly Figure.

        Raises:
            SpecError: For a column that there is not, for too many curves, and where the library is missing.
            Infeasible: When no row can run.
        """
        return draw_result(self, "curves", interactive=interactive, x=x, y=y, by=by)

    def __repr__(self) -> str:
        over = f" over {', '.join(self.axes)}" if self.axes else ""
        return f"<Sweep of {len(self):,} rows{over}, {int(self.feasible.sum()):,} feasible>"


def _plain(column: Array) -> list[Any]:
    """Return a column as values of JSON."""
    return [
        None if isinstance(value, float) and not math.isfinite(value) else value
        for value in column.tolist()
    ]


def asked_stats(stats: Any, known: tuple[str, ...]) -> tuple[str, ...]:
    """Return the statistics that were asked for: all without a list.

    Raises:
        SpecError: For a name that there is not; the hint has the nearest.
    """
    if stats is None:
        return known
    wanted = (stats,) if isinstance(stats, str) else tuple(stats)
    for name in wanted:
        if name not in known:
            every = [column.name for column in columns(CorrectedStats)]
            found = "one that its edition does not have" if name in every else repr(name)
            raise SpecError(
                "sweep", Problem("stats", "statistics", found, nearest(str(name), known))
            )
    return wanted


def joined(parts: Sequence[tuple[Array, Evaluation]], plan: Plan) -> Evaluation:
    """Join evaluations, of some rows of a table each, in the order of the table."""
    rows = len(plan)
    names = max((one.names for _, one in parts), key=len)
    values = {name: np.full(rows, np.nan) for name in names}
    codes = np.zeros(rows, np.int16)
    for places, one in parts:
        codes[places] = one.codes
        for name in one.names:
            values[name][places] = one[name]
    return Evaluation(plan, codes, values)
