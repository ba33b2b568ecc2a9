"""Result of a sensitivity analysis: elasticities, replanned executions, and break-even values."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import field
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Any, Literal, overload

from calculon.advise.break_even import BreakEven
from calculon.advise.elasticities import STEADY, Effect, Range, Total, described
from calculon.advise.replanned import CapacitySweep, Replanned
from calculon.base.display import WithMfu, columns_of, draw_result
from calculon.base.frozen import dataclass
from calculon.base.records import Column
from calculon.campaign.assumed import assumed_defaults
from calculon.campaign.record import Campaign
from calculon.declarations.execution import Execution
from calculon.declarations.model import Model
from calculon.declarations.presets import Preset
from calculon.declarations.result_records import QUESTION
from calculon.declarations.statistics import FITS
from calculon.estimate.estimate import Estimate, estimate
from calculon.estimate.question import question
from calculon.hardware.figures import OF_WHOLE_RUNS
from calculon.hardware.system import System

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from plotly.graph_objects import Figure as InteractiveFigure


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplannedPlans:
    """Best plans on the changed machines.

    Attributes:
        now: Best plan on the unchanged machine.
        ends: Best plans by path with the parameter at both ends of its range; None if nothing fits or there is no end.
        sizes: By a larger size of the innermost network: the statistic of the same plan (None if it cannot run), and
            the best plan.
        staircase: Best plan at each memory capacity.
    """

    now: Replanned
    ends: Mapping[str, tuple[Replanned | None, Replanned | None]]
    sizes: Mapping[int, tuple[float | None, Replanned | None]]
    staircase: CapacitySweep

    def to_dict(self) -> dict[str, Any]:
        """Return the plans as plain data."""

        def as_dict(one: Replanned | None) -> dict[str, Any] | None:
            return None if one is None else one.to_dict()

        return {
            "now": self.now.to_dict(),
            "ends": {
                path: [as_dict(low), as_dict(high)] for path, (low, high) in self.ends.items()
            },
            "sizes": {
                str(size): {"same_plan": value, "best": as_dict(best)}
                for size, (value, best) in self.sizes.items()
            },
            "capacity": self.staircase.to_dict(),
        }


@dataclass(frozen=True)
class Sensitivity(WithMfu[float | None]):
    """Sensitivity of a statistic of a plan to the figures of its machine.

    Attributes:
        model, execution, system: The plan.
        preset: Framework of the plan.
        statistic: The statistic.
        within: Range over which parameters were varied.
        value: Present value of the statistic.
        effects: Effects of the system parameters, largest swing first; parameters without effect are omitted.
        idle: Parameters without effect, in file order.
        total: Sum of the elasticities; only for times.
        searched: Best plans on the changed machines, if the plan was searched again.
        rival: Name of the alternative of the break-even; empty without one.
        compared: Description of the two compared plans.
        break_evens: Parameter values at which the plan is as good as the alternative.
        campaign: Whole run whose figure the statistic is; None for a statistic of a step.
    """

    model: Model
    execution: Execution
    system: System
    preset: Preset
    statistic: Column
    within: Range
    value: float
    effects: tuple[Effect, ...]
    idle: tuple[Effect, ...]
    total: Total | None
    searched: ReplannedPlans | None = None
    rival: str = ""
    compared: str = ""
    break_evens: tuple[BreakEven, ...] = field(default=())
    campaign: Campaign | None = None

    def __getitem__(self, path: str) -> Effect:
        """Return the effect of a parameter by its path.

        Raises:
            KeyError: If the parameter has no effect or does not exist.
        """
        return self._by_path[path]

    @cached_property
    def _estimate(self) -> Estimate:
        return estimate(self.model, self.execution, self.system)

    @property
    def fits(self) -> float | None:
        """Probability that the plan fits in tier-1 memory; None if unknown."""
        return self._estimate.stats.get(FITS)

    def _statistic(self, name: str) -> float | None:
        return self._estimate.stats.get(name)

    @cached_property
    def _by_path(self) -> dict[str, Effect]:
        return {one.figure.path: one for one in self.effects}

    @property
    def elasticities(self) -> dict[str, float]:
        """Elasticity with respect to each parameter that has one, by path."""
        return {
            one.figure.path: one.elasticity for one in self.effects if one.elasticity is not None
        }

    @cached_property
    def _of_other_plans(self) -> tuple[Effect, ...]:
        """Parameters without effect on this plan that affect the best plan."""
        if self.searched is None:
            return ()
        ends, now = self.searched.ends, self.searched.now.value
        return tuple(
            one
            for one in self.idle
            if any(
                best is not None and not math.isclose(best.value, now, rel_tol=STEADY)
                for best in ends.get(one.figure.path, ())
            )
        )

    @property
    def without_effect(self) -> list[str]:
        """Paths of the parameters without effect on any plan."""
        return [one.figure.path for one in self.idle if one not in self._of_other_plans]

    @property
    def assumed(self) -> list[dict[str, Any]]:
        """Defaults of the whole run that were not stated, including prices and powers; empty for a step."""
        if self.campaign is None:
            return []
        return [*assumed_defaults(self.campaign, [self.system.name]), *self._of_system]

    @property
    def _of_system(self) -> Iterator[dict[str, Any]]:
        """Effective prices and powers of the system as plain data, with their sources."""
        for one in (effect.figure for effect in self.effects):
            if one.path.startswith(OF_WHOLE_RUNS):
                record: Any = reduce(getattr, one.place[:-1], self.system)
                source = f"{record.source}, {record.date}"
                row = {"field": one.path, "value": one.value, "unit": one.unit}
                yield row | {"source": source, "counts": True}

    def rows(self) -> list[dict[str, Any]]:
        """Return a row of plain data for each effect, including the values of replanned executions."""
        ends = {} if self.searched is None else self.searched.ends
        rows = []
        for row in described((*self.effects, *self._of_other_plans)):
            if self.searched is not None:
                best = ends.get(row["path"], (None, None))
                values = [None if one is None else one.value for one in best]
                row |= dict(zip(("replanned_at_low", "replanned_at_high"), values, strict=True))
            rows.append(row)
        return rows

    def to_dict(self) -> dict[str, Any]:
        """Return the analysis as plain data."""
        edition = self.execution.edition
        asked: dict[str, Any] = {"execution": {"fields": self.execution.to_dict()}}
        if self.campaign is not None:
            asked["campaign"] = dict(self.campaign.document)
        result: dict[str, Any] = {
            QUESTION: question(self.model, self.system, edition, self.preset, **asked),
            "statistic": self.statistic.name,
            "help": self.statistic.help,
            "unit": self.statistic.unit.symbol,
            "value": self.value,
            FITS: self.fits,
            "range": {"share": self.within.share, "calibrated": self.within.calibrated},
            "figures": self.rows(),
            "without_effect": self.without_effect,
        }
        if self.campaign is not None:
            result["assumed"] = self.assumed
        if self.total is not None:
            names = ("stated", "lists", "sum", "together", "unstated")
            result["sum_of_elasticities"] = {name: getattr(self.total, name) for name in names}
        if self.searched is not None:
            result["replanned"] = self.searched.to_dict()
        if self.rival:
            result["break_even"] = {
                "with": self.rival,
                "compared": self.compared,
                "figures": [
                    {
                        "path": one.figure.path,
                        "unit": one.figure.unit,
                        "value": one.value,
                        "factor": one.factor,
                    }
                    for one in self.break_evens
                ],
            }
        return result

    def table(self) -> dict[str, list[Any]]:
        """Return a row for each figure with an effect, the largest swing first.

        ``path`` and ``name`` identify the figure, ``kind`` is its kind, and ``hardware`` is true for figures of the
        machine. ``value``, ``low`` and ``high`` are in the ``unit`` of the row; ``at_low`` and ``at_high`` are the
        statistic at these two. ``elasticity`` is taken at the value (``kink`` is the right minus the left one),
        ``elasticity_between_ends`` between low and high. With ``replan=True`` there are also ``replanned_at_low`` and
        ``replanned_at_high``.
        """
        return columns_of(self.rows())

    @overload
    def plot(self, kind: str = "tornado", *, interactive: Literal[False] = False) -> "Figure": ...

    @overload
    def plot(self, kind: str = "tornado", *, interactive: Literal[True]) -> "InteractiveFigure": ...

    def plot(
        self, kind: str = "tornado", *, interactive: bool = False
    ) -> "Figure | InteractiveFigure":
        """Draw the effects on the statistic.

        Args:
            kind: ``tornado`` (default): range of the statistic as each parameter is varied, longest bar first.
            interactive: Draw it like the web page (extra ``web``): a plotly Figure. With ``replan=True`` a step time
                also has ``capacity``: time of the best plan over the memory per processor.

        Raises:
            SpecError: For an unknown kind, and if the library is missing.
        """
        return draw_result(self, kind, interactive=interactive)

    def __repr__(self) -> str:
        most = ", ".join(f"{one.figure.path} {one.elasticity:+.2f}" for one in self._most)
        return f"<Sensitivity of {self.statistic.name} of {self.model.name} on {self.system.name}: {most}>"

    @property
    def _most(self) -> list[Effect]:
        known = [one for one in self.effects if one.elasticity]
        return sorted(known, key=lambda one: -abs(one.elasticity or 0.0))[:3]
