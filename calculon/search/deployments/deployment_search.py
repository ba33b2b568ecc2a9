"""Result of a search for deployments: the best as a table, as a DataFrame, or one by one."""

import math
import operator
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex, overload

import numpy as np

from calculon.base.display import Tabular, columns_of, draw_result
from calculon.base.errors import Infeasible
from calculon.base.frozen import dataclass
from calculon.base.units import Array
from calculon.declarations.result_records import DEPLOYMENT
from calculon.declarations.result_selection import WINNERS
from calculon.declarations.serving_classes import ServedClass
from calculon.declarations.serving_figures import SERVING_FIGURES
from calculon.estimate.served_errors import FigureRange
from calculon.search.deployments.deployment_rows import solve
from calculon.search.deployments.deployment_space import DeploymentSpace
from calculon.search.deployments.deployment_vocabulary import TYPES
from calculon.search.objective import Objective
from calculon.serving.records.deployment import Deployment
from calculon.serving.serve import STATED, Served, class_of, flat, serve

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from plotly.graph_objects import Figure as InteractiveFigure


@dataclass(frozen=True, slots=True)
class DeploymentCounts:
    """Counts of deployments: enumerated, solved and infeasible ones.

    Attributes:
        total: Deployments of the space.
        solved: Deployments whose batch was solved; the others cannot be among the best.
        unfit: Solved deployments without memory for a sequence.
        missing: Solved deployments that miss a limit.
    """

    total: int
    solved: int
    unfit: int
    missing: int

    @property
    def feasible(self) -> int:
        """Deployments that meet all limits."""
        return self.solved - self.unfit - self.missing

    def to_dict(self) -> dict[str, int]:
        """Return the counts by name."""
        names = ("total", "solved", "unfit", "missing", "feasible")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class DeploymentSearch(Tabular):
    """The best deployments of a space, best first: a sequence of :class:`~calculon.serving.serve.Served`.

    Attributes:
        space: The space that was searched.
        objectives: Objectives of the ranking; several give a Pareto front.
        counts: Enumerated, solved, and infeasible deployments.
        numbers (shape (results,)): Numbers of the deployments in the space.
        nearest: If no deployment meets all limits: the number of the deployment that misses its worst limit by the
            least; deployments with memory for a sequence come first.
        unknown: Figures of the ranking or the condition that no deployment that meets the limits has.
    """

    space: DeploymentSpace
    objectives: tuple[Objective, ...]
    counts: DeploymentCounts
    numbers: Array
    nearest: int | None
    unknown: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.numbers)

    @overload
    def __getitem__(self, rank: SupportsIndex) -> Served: ...
    @overload
    def __getitem__(self, rank: slice) -> list[Served]: ...
    def __getitem__(self, rank: SupportsIndex | slice) -> Served | list[Served]:
        """Return the result of the deployment of a rank (0 is the best); a list for a slice."""
        if isinstance(rank, slice):
            return [self._served(int(number)) for number in self.numbers[rank]]
        number = operator.index(rank)
        if not -len(self) <= number < len(self):
            message = f"rank {number} of {len(self)} deployments"
            raise IndexError(message)
        return self._served(int(self.numbers[number]))

    def __iter__(self) -> Iterator[Served]:
        return (self._served(int(number)) for number in self.numbers)

    @property
    def best(self) -> Served:
        """The best deployment.

        Raises:
            Infeasible: When none meets the limits: the message states which the nearest one misses, and by how much.
        """
        if len(self):
            return self[0]
        raise self.why

    @property
    def best_or_nearest(self) -> Served:
        """The best deployment; if none meets the limits, the one that comes closest.

        Raises:
            Infeasible: When none fits in memory, or no split divides the model.
        """
        if len(self):
            return self[0]
        why = self.why
        if why.reason != "limits" or self.nearest is None:
            raise why
        return self._served(self.nearest)

    @property
    def why(self) -> Infeasible:
        """Error that explains why there is no deployment, with the nearest one."""
        if self.counts.feasible:
            message = f"none of {self.counts.feasible:,} feasible deployments meets the condition"
            return Infeasible("nothing", message)
        if self.nearest is None:
            return Infeasible("nothing", "no split of this number of processors divides the model")
        total = f"none of {self.counts.total:,} deployments"
        try:
            found = self._served(self.nearest)
        except Infeasible as error:
            message = f"{total} fits in memory; the nearest, {self.space.deployment(self.nearest).in_words}: {error}"
            return Infeasible(error.reason, message, error.needed, error.available, error.tier)
        before = f"{total} meets the limits; the nearest, {found.deployment.in_words}, misses"
        return found.infeasible(before)

    @cached_property
    def deployments(self) -> tuple[Deployment, ...]:
        """The deployments as records."""
        return tuple(self.space.deployment(int(number)) for number in self.numbers)

    @cached_property
    def columns(self) -> Mapping[str, Array]:
        """Batches and figures of the deployments by name, best first."""
        names = ("batch", *SERVING_FIGURES)
        found = {name: np.zeros(len(self)) for name in names}
        for group in self.space.groups:
            own = np.flatnonzero(
                (self.numbers >= group.number) & (self.numbers < group.number + len(group))
            )
            if len(own):
                rows = solve(self.space, group, self.numbers[own] - group.number)
                for name in names:
                    found[name][own] = rows.batch if name == "batch" else rows.value(name)
        return found | {"batch": found["batch"].astype(np.int64)}

    def _served(self, number: int) -> Served:
        space = self.space
        return serve(space.model, space.deployment(number), space.system, space.workload)

    def to_dict(self) -> dict[str, Any]:
        """Return question, counts and winners as plain values; deployments have the form of files."""
        space = self.space
        figures = {name: column.tolist() for name, column in self.columns.items()}
        winners = []
        for rank, deployment in enumerate(self.deployments):
            values = {name: nullable(column[rank]) for name, column in figures.items()}
            batch = values.pop("batch")
            winners.append(
                {
                    DEPLOYMENT: deployment.to_dict(),
                    "replicas": deployment.replicas,
                    "batch": batch,
                    "figures": values,
                    "served_class": asdict(self.class_of(rank)),
                    "ranges": {name: asdict(one) for name, one in self.ranges(rank).items()},
                }
            )
        return {
            "model": space.model.name,
            "system": space.system.name,
            "provenance": space.system.provenance.to_dict(),
            "workload": space.workload.to_dict(),
            "num_procs": list(space.counts),
            "objectives": [f"{one.statistic.name}:{one.sense}" for one in self.objectives],
            "bounds": space.bounds,
            "types": {name: list(space.tried(name)) for name in TYPES},
            "asked": {name: list(values) for name, values in space.asked.items()},
            "left_out": {name: list(values) for name, values in space.left_out.items()},
            "counts": self.counts.to_dict(),
            WINNERS: winners,
        }

    def class_of(self, rank: int) -> ServedClass:
        """Return the class of a deployment, which selects the published rows to compare with."""
        at_once, most = (
            float(self.columns[name][rank]) for name in ("concurrency", "max_concurrency")
        )
        space = self.space
        return class_of(space.model, self.deployments[rank], space.system, at_once, most)

    def ranges(self, rank: int) -> dict[str, FigureRange]:
        """Return the ranges of the figures of a deployment, as in :attr:`calculon.serving.serve.Served.ranges`."""
        return self[rank].ranges

    def table(self) -> dict[str, Any]:
        """Return fields, batch, figures, model and system of the deployments by name, with a row each, best first."""
        fields = (flat(one.to_dict()) for one in self.deployments)
        asked = {"model": self.space.model.name, "system": self.space.system.name}
        names = {name: np.full(len(self), text, object) for name, text in asked.items()}
        return {**columns_of(fields, STATED), **self.columns, **names}

    @overload
    def plot(self, kind: str = "frontier", *, interactive: Literal[False] = False) -> "Figure": ...

    @overload
    def plot(
        self, kind: str = "frontier", *, interactive: Literal[True]
    ) -> "InteractiveFigure": ...

    def plot(
        self, kind: str = "frontier", *, interactive: bool = False
    ) -> "Figure | InteractiveFigure":
        """Plot the throughput per processor over the rate of a user at every batch, as ``calculon plot frontier``.

        Args:
            interactive: Return a plotly Figure as on the web page (extra ``web``).

        Raises:
            SpecError: For another kind than ``frontier``, for a load that states a request rate, and if the library is
                missing.
            Infeasible: Without deployments.
        """
        return draw_result(self, kind, interactive=interactive)

    def __repr__(self) -> str:
        counts = self.counts
        text = (
            f"{counts.total:,} deployments, {counts.solved:,} solved, {counts.feasible:,} feasible"
        )
        if len(self):
            first = self.objectives[0].statistic
            value = f"{self.columns[first.name][0]:.6g} {first.unit.symbol}".rstrip()
            text += f", best {first.name} {value}"
        return f"<DeploymentSearch: {text}>"


def nullable(value: float | None) -> float | None:
    """Return a value, or None if it is not finite, as JSON cannot represent it."""
    return value if value is not None and math.isfinite(value) else None
