"""Value of a machine change when the plan is searched again: its true value to a buyer."""

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from calculon.advise.elasticities import Case, Change, Effect, is_hardware, is_network_size
from calculon.advise.near_machines import TIME, BestPlan, best_of_each, change_key, memory_condition
from calculon.advise.nearest_infeasible import unlimited
from calculon.base.errors import Problem, SpecError
from calculon.base.frozen import dataclass
from calculon.base.units import GIB
from calculon.declarations.execution import Execution
from calculon.declarations.named_values import CORRECTED, PUBLISHED
from calculon.declarations.presets import Preset
from calculon.declarations.statistics import FITS, OFFLOADS, RISK
from calculon.editions import EDITIONS
from calculon.estimate.memory_limit import errors_of
from calculon.hardware.figures import Figure, figures_of, with_figures
from calculon.hardware.system import System
from calculon.plan.plan import all_fields
from calculon.search.candidates import EXTENSIONS
from calculon.search.driver import run
from calculon.search.objective import MEMORY, Objective
from calculon.search.ranking import Best, ParetoFront
from calculon.search.request import make_space
from calculon.search.space import Space

TIMES_SIZE = (2, 4, 8)
"""Factors by which the size of the innermost network is multiplied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replanned:
    """Best plan on a machine.

    Attributes:
        value: Value of the statistic.
        execution: Fields of the plan.
        kept: Whether it is the original plan.
    """

    value: float
    execution: Mapping[str, Any]
    kept: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {"value": self.value, "kept": self.kept, "execution": dict(self.execution)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Step of a capacity sweep: from this capacity on, a better plan fits.

    Attributes:
        capacity: Required bytes of tier 1 per processor.
        best: Best plan with this capacity.
    """

    capacity: float
    best: Replanned


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacitySweep:
    """Best plan at each capacity of tier 1.

    Attributes:
        capacity: Present capacity in bytes.
        withheld: Bytes of the capacity that are unavailable to plans.
        steps: Best plan at each capacity, from the smallest capacity at which anything fits; each is better than the
            one before.
        now: Index of the present step; -1 if nothing fits.
    """

    capacity: float
    withheld: float
    steps: tuple[Step, ...]
    now: int

    @property
    def here(self) -> Step | None:
        """Present step."""
        return self.steps[self.now] if self.now >= 0 else None

    @property
    def up(self) -> tuple[Step, ...]:
        """Steps that need more memory, nearest first."""
        return self.steps[self.now + 1 :]

    @property
    def down(self) -> Step | None:
        """Next step with less memory."""
        return self.steps[self.now - 1] if self.now > 0 else None

    def at(self, capacity: float) -> Replanned | None:
        """Return the best plan at a capacity in bytes; None if nothing fits."""
        fitting = [step for step in self.steps if step.capacity <= capacity]
        return fitting[-1].best if fitting else None

    @property
    def shadow_price(self) -> float | None:
        """Decrease of the statistic with one more GiB: 0 if memory is not the limit."""
        before, after = self.at(self.capacity), self.at(self.capacity + GIB)
        return None if before is None or after is None else before.value - after.value

    def to_dict(self) -> dict[str, Any]:
        """Return the sweep as plain data, with sizes in bytes."""
        return {
            "capacity": self.capacity,
            "withheld": self.withheld,
            "shadow_price_of_1_GiB": self.shadow_price,
            "now": self.now,
            "steps": [{"capacity": one.capacity, **one.best.to_dict()} for one in self.steps],
        }


def capacity_sweep(
    capacity: float, withheld: float, steps: Iterable[Step], score: Callable[[float], float]
) -> CapacitySweep:
    """Return the capacity sweep of plans: each step is better than all plans that need less memory.

    `score` is larger for better values; the other arguments are as in :class:`CapacitySweep`, in any order.
    """
    rising: list[Step] = []
    # A plan that needs more memory without being better is no step.
    for one in sorted(steps, key=lambda s: (s.capacity, -score(s.best.value))):
        if not rising or score(one.best.value) > score(rising[-1].best.value):
            rising.append(one)
    here = [i for i, one in enumerate(rising) if one.capacity <= capacity]
    now = here[-1] if here else -1
    return CapacitySweep(capacity=capacity, withheld=withheld, steps=tuple(rising), now=now)


class Replanner:
    """Search for the best plan on variants of a machine; the original plan is always a candidate.

    Args:
        case: Plan and statistic.
        preset: Framework whose plans are searched.

    Raises:
        SpecError: For an inference plan, since searches are for training.
    """

    def __init__(self, case: Case, preset: Preset):
        if not case.execution.training:
            wanted, hint = "a plan of training", "searches are for training; leave out --replan"
            raise SpecError("--replan", Problem("training", wanted, "false", hint))
        self.case = case
        self.objective = Objective.parse(case.statistic)
        self.space = space_around(case, preset)
        self._found: dict[Hashable, BestPlan | None] = {}
        own = self._of_own(FITS, case.system) if case.execution.edition == CORRECTED else math.nan
        # Other plans may be as risky as the original one, or as a recommended one.
        self.least = 0.0 if math.isnan(own) else min(own, 1 - RISK)

    @property
    def fields(self) -> dict[str, Any]:
        """Fields of the original plan."""
        return all_fields(self.case.execution)

    def best(self, system: System, original: float | None) -> Replanned | None:
        """Return the best plan on a system; None if nothing fits.

        `original` is the statistic of the original plan on this system, None if it cannot run there.
        """
        found = run(self._space(system), Best(self.objective, 1, memory_condition(self.least)))
        score = float(found.scores[0, 0]) if len(found) else -math.inf
        if original is not None and score <= self._score(original):
            return Replanned(value=original, execution=all_fields(self.case.execution), kept=True)
        return self._replanned(score, found.plan.row(0)) if len(found) else None

    def prefetch(self, changes: Sequence[Change]) -> None:
        """Search at once for the best plans with several single-parameter changes, which are requested later."""
        if self.objective != TIME or self.case.execution.edition != CORRECTED:
            return  # only times of this edition never grow on a better machine
        case = self.case
        every = [{}, *changes]
        self._found |= best_of_each(
            self._space, case.system, every, case.values(every).tolist(), self.least
        )

    def with_figures(self, values: Change, original: float | None) -> Replanned | None:
        """Return the best plan on the system with changed parameters; arguments as for :meth:`best`."""
        if (key := change_key(values)) not in self._found:
            return self.best(with_figures(self.case.system, values), original)
        found = self._found[key]
        score = -math.inf if found is None else found.score
        if original is not None and score <= self._score(original):
            return Replanned(value=original, execution=self.fields, kept=True)
        if found is None:
            return None
        return self._replanned(score, self.space.plan(np.array([found.number])).row(0))

    def capacity_sweep(self) -> CapacitySweep:
        """Return the best plan at each capacity of tier 1.

        One search on a machine with unlimited memory finds the Pareto front of statistic and memory. At any capacity,
        the best plan of the front that fits is the best plan of all. Each capacity includes the margin with which
        the plan fits with probability :attr:`least`.
        """
        system, withheld = self.case.system, self._machine(self.case.system).ext.memory.withheld
        large = unlimited(system, (1,))
        least = Objective.parse(f"{MEMORY[0]}:min")
        found = run(self._space(large), ParetoFront([self.objective, least]))
        steps = [
            Step(
                capacity=float(least.value(need)) * self._margin(found.plan.row(i)) + withheld,
                best=self._replanned(float(score), found.plan.row(i)),
            )
            for i, (score, need) in enumerate(found.scores.T.tolist())
        ]
        value, need = (self._of_own(name, large) for name in (self.case.statistic, MEMORY[0]))
        if math.isfinite(value):
            original = Replanned(value=value, execution=all_fields(self.case.execution), kept=True)
            margin = self._margin(self.case.execution)
            steps.append(Step(capacity=need * margin + withheld, best=original))
        return capacity_sweep(system.mem1.capacity, withheld, steps, self._score)

    def _margin(self, execution: Execution) -> float:
        """Return the ratio of usable to predicted memory at which an execution is a candidate."""
        errors = errors_of(self.case.model, execution.preset, execution.zero_stage)
        return errors.capacity_ratio(self.least) if errors is not None and self.least > 0 else 1.0

    def to_replan(self, felt: Iterable[Effect], idle: Iterable[Effect]) -> list[Effect]:
        """Return the hardware effects to replan: effects on this plan, and parts that other plans may use more."""
        offloads = any(True in self.space.switches[name] for name in OFFLOADS)
        procs = self.case.execution.num_procs
        others = (one for one in idle if _used(one.figure, procs, offloads))
        return [one for one in (*felt, *others) if is_hardware(one.figure)]

    def _machine(self, system: System) -> System:
        return EDITIONS[self.case.execution.edition].machine(system)

    def _space(self, system: System) -> Space:
        return replace(self.space, system=self._machine(system))

    def _score(self, value: float) -> float:
        return value if self.objective.sense == "max" else -value

    def _of_own(self, statistic: str, system: System) -> float:
        """Return a statistic of the original plan."""
        return Case(self.case.model, self.case.execution, system, statistic).on(system)

    def _replanned(self, score: float, execution: Execution) -> Replanned:
        value = float(np.asarray(self.objective.value(np.array(score))))
        kept = execution == self.case.execution
        return Replanned(value=value, execution=all_fields(execution), kept=kept)


def _used(figure: Figure, num_procs: int, offloads: bool) -> bool:
    """Return True for parameters of memories and networks that other plans may use more than this one."""
    part = figure.path.partition(".")[0].partition("[")[0]
    if part == "mem2" or figure.path.startswith("ext.host"):
        return offloads
    if is_network_size(figure):
        # A network of half this size must be too small for all processors: otherwise no plan
        # notices.
        return figure.value // 2 < num_procs
    return part in ("mem1", "networks")


def space_around(case: Case, preset: Preset) -> Space:
    """Return the search space around a plan: the options that its framework tries, on the same processors.

    Batch, precision and everything else that the framework does not vary are taken from the plan.
    """
    e = case.execution

    def made(held: Mapping[str, Any]) -> Space:
        known = None if e.edition == PUBLISHED else e.preset
        fix = {"batch_size": e.batch_size, **held}
        specs = case.model, case.system, e.num_procs, e.batch_size, e.datatype
        return replace(make_space(*specs, fix=fix, edition=e.edition, preset=known), preset=preset)

    space = made({})
    # Options with a single tried value keep the value of the plan instead, if the framework
    # supports it.
    held = {
        name: getattr(e, name)
        for name in EXTENSIONS
        if len(space.switches[name]) == 1
        and getattr(e, name) not in space.switches[name]
        and preset.problem(name, getattr(e, name)) is None
    }
    return made(held) if held else space


def domain_sizes(system: System, num_procs: int) -> list[tuple[str, int]]:
    """Return path and value of larger sizes of the innermost network, if the processors would use them."""
    path = "networks[0].size"
    if path not in figures_of(system) or len(system.networks) < 2:
        return []
    now, next_one = system.networks[0].size, system.networks[1].size
    sizes = (now * times for times in TIMES_SIZE)
    return [(path, size) for size in sizes if size // 2 < num_procs and size <= next_one]
