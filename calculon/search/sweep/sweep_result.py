"""Result of a sweep: a row for every combination, with its inputs, infeasibility reason and statistics."""

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from calculon.base.display import WithMfu, draw_result
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
class Sweep(WithMfu[Array]):
    """Every combination of models, systems, executions and values of their fields, with statistics.

    Attributes:
        asked: Inputs, a column each: ``model``, ``system``, ``execution`` (its name, or its index from 0), and the
            values of each path.
        evaluation: Executions, infeasibility reasons and statistics of the rows, in the same order.
        units: Units of the columns by name: of paths as in files, of statistics as in ``describe stats``; empty for
            fractions, counts, names and switches.
        stats: Statistics in frames.

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
        """Return a column by name, and columns of fields also by their short names (``tp``).

        Columns are an input, execution fields, ``reason`` and statistics.

        Statistics are float64, and not-a-number in rows that cannot run.

        Raises:
            KeyError: For an unknown name; the message names the nearest column.
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
        """Input columns with several values."""
        return tuple(name for name, one in self.asked.items() if len(set(map(str, one))) > 1)

    @cached_property
    def fields(self) -> tuple[str, ...]:
        """Execution fields that differ between rows, without the fields that are axes."""
        plan = self.evaluation.plan
        asked = {name.removeprefix("execution.") for name in self.asked}
        return tuple(
            name
            for name, one in plan.columns.items()
            if name not in asked and len(one) and (one != one[0]).any()
        )

    def _statistic(self, name: str) -> Array:
        return self.evaluation._statistic(name)

    def table(self) -> dict[str, Array]:
        """Return a row for each combination: what was asked, fields in which rows differ, ``reason``, statistics."""
        return {name: self[name] for name in self._columns}

    def to_dict(self) -> dict[str, Any]:
        """Return the columns as plain data, each with its unit; values that are not finite become None."""
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
        """Plot a statistic over one of the columns, with a curve for each value of another.

        If several rows of a curve share a position, the best of them is drawn; positions at which nothing can run are
        marked.

        Args:
            x: A column; by default the input with the most values.
            y: ``STATISTIC[:max|min]``; by default the better direction.
            by: A column with a curve for each of its values; by default all other inputs; "" for one curve.
            interactive: Return a plotly Figure as on the web page (extra ``web``).

        Raises:
            SpecError: For an unknown column, for too many curves, and if the library is missing.
            Infeasible: When no row can run.
        """
        return draw_result(self, "curves", interactive=interactive, x=x, y=y, by=by)

    def __repr__(self) -> str:
        over = f" over {', '.join(self.axes)}" if self.axes else ""
        return f"<Sweep of {len(self):,} rows{over}, {int(self.feasible.sum()):,} feasible>"


def _plain(column: Array) -> list[Any]:
    """Return a column as JSON values."""
    return [
        None if isinstance(value, float) and not math.isfinite(value) else value
        for value in column.tolist()
    ]


def requested_stats(stats: Any, known: tuple[str, ...]) -> tuple[str, ...]:
    """Return the requested statistics; all if there is no list.

    Raises:
        SpecError: For an unknown name; the hint has the nearest.
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
    """Join evaluations of parts of a table in the order of the table."""
    rows = len(plan)
    names = max((one.names for _, one in parts), key=len)
    values = {name: np.full(rows, np.nan) for name in names}
    codes = np.zeros(rows, np.int16)
    for places, one in parts:
        codes[places] = one.codes
        for name in one.names:
            values[name][places] = one[name]
    return Evaluation(plan, codes, values)
