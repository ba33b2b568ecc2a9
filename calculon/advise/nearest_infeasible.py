"""Executions nearest to fitting: their memory need, and its contents."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from calculon.advise.stage_needs import needs_of
from calculon.base.frozen import dataclass
from calculon.declarations.named_values import PUBLISHED
from calculon.estimate.estimate import Estimate
from calculon.estimate.memory_limit import errors_of
from calculon.hardware.system import System
from calculon.plan.rules.all_rules import MEMORY_REASONS
from calculon.search.conditions import Condition
from calculon.search.driver import run
from calculon.search.objective import MEMORY, Objective
from calculon.search.ranking import Best, ParetoFront
from calculon.search.space import Space

TIERS = (1, 2)

UNLIMITED = 2.0**80
"""Memory size in bytes that exceeds the need of every execution."""

_LEAST = tuple(Objective.parse(f"{name}:min") for name in MEMORY)


@dataclass(frozen=True, slots=True)
class NearestInfeasible:
    """Execution that would run if a tier of memory were larger.

    Attributes:
        tier: Memory tier, 1 or 2.
        estimate: Execution on a system with sufficient memory.
        needed, available: Bytes needed and available.
        fits: Probability that it fits in the present tier 1; None if unknown.
        parts: Bytes by kind, largest first, without zeros.
    """

    tier: int
    estimate: Estimate
    needed: float
    available: float
    fits: float | None
    parts: Mapping[str, float]

    @property
    def over(self) -> float:
        """Bytes over the limit."""
        return self.needed - self.available


def nearest_infeasible(
    space: Space, reasons: Mapping[str, int], where: Condition | None = None
) -> tuple[NearestInfeasible, ...]:
    """Return, for each tier that is too small, the execution with the smallest need of that tier.

    All other limits remain, including that of the other tier. If enlarging one tier alone does not help, one execution
    for both tiers is returned.
    """
    short = [t for t, reason in zip(TIERS, MEMORY_REASONS, strict=True) if reasons.get(reason)]
    found = [_over(space, one, (tier,)) for tier in short if (one := least(space, tier, where))]
    if not found and short:
        found = [_over(space, one, TIERS) for one in _least_of_both(space, where)]
    return tuple(one for several in found for one in several if one.over > 0)


def least(space: Space, tier: int, where: Condition | None = None) -> Estimate | None:
    """Return the execution with the smallest need of a tier if that were unlimited; None if that does not help."""
    found = run(_unlimited(space, (tier,)), Best(_LEAST[tier - 1], 1, where))
    return found[0] if len(found) else None


def with_memory(system: System, needed: Mapping[int, float]) -> System:
    """Return a system with the needed usable bytes in some tiers, rounded up to whole bytes of capacity."""
    use = system.ext.memory
    for tier, size in needed.items():
        name = f"mem{tier}"
        # The inverse of `System.usable`: tier 1 withholds a constant, tier 2 shares the host
        # memory.
        capacity = size + use.withheld if tier == 1 else size / (use.host_share or 1.0)
        # Rounding of the sums may leave the usable size just below the need: one more byte suffices.
        for whole in (np.ceil(capacity), np.ceil(capacity) + 1):
            memory = replace(getattr(system, name), capacity=float(whole))
            system = replace(system, **{name: memory})
            if system.usable[tier - 1] >= size:
                break
    return system


def unlimited(system: System, tiers: Sequence[int] = TIERS) -> System:
    """Return a system in which some memory tiers have no limit, even tiers that the system lacks."""
    return with_memory(system, dict.fromkeys(tiers, UNLIMITED))


def _unlimited(space: Space, tiers: Sequence[int]) -> Space:
    """Return the space on a system with unlimited memory tiers; execution numbers do not change."""
    there = [tier for tier in tiers if tier == 1 or space.system.usable[1] > 0]
    return replace(space, system=unlimited(space.system, there))


def _least_of_both(space: Space, where: Condition | None) -> list[Estimate]:
    """Return the execution with the smallest sum of excess over both tiers."""
    found = run(_unlimited(space, TIERS), ParetoFront(_LEAST, where))
    if not len(found):
        return []
    over = -found.scores - np.array(space.system.usable)[:, None]
    return [found[int(np.argmin(np.maximum(over, 0).sum(axis=0)))]]


def _over(space: Space, plan_estimate: Estimate, tiers: Sequence[int]) -> list[NearestInfeasible]:
    """Return the memory that an execution lacks in some tiers."""
    stages, execution = needs_of(plan_estimate), plan_estimate.execution
    errors = errors_of(space.model, execution.preset, execution.zero_stage)
    known = errors is not None and space.edition != PUBLISHED

    def fits(tier: int, needed: float) -> float | None:
        if errors is None or not known or tier > 1:
            return None
        return float(errors.fits(np.array(needed), space.system.usable[0]))

    fullest = [(tier, max(stages, key=lambda one: one.needed[tier - 1])) for tier in tiers]
    return [
        NearestInfeasible(
            tier=tier,
            estimate=plan_estimate,
            needed=stage.needed[tier - 1],
            available=space.system.usable[tier - 1],
            fits=fits(tier, stage.needed[tier - 1]),
            parts=stage.parts[tier - 1],
        )
        for tier, stage in fullest
    ]
