"""What capacity of memory buys when the plan is searched again: one search for every capacity."""

from calculon.advise.elasticities import Case
from calculon.advise.replanned import CapacitySweep, Replanner, capacity_sweep
from calculon.declarations.presets import Preset
from calculon.estimate.estimate import Estimate

TIME = "total_time"

AMPLE = 2**20
"""GiB of tier 1 in which everything fits that ever will."""


def capacities(best: Estimate, preset: Preset) -> CapacitySweep:
    """Return the best plan of each capacity of tier 1, on a machine and with a preset.

    Args:
        best: Any plan of the question, which says processors, batch and precision: the steps do not depend on it.
        preset: The framework whose plans are searched.
    """
    case = Case(best.model, best.execution, best.system, TIME)
    return Replanner(case, preset).capacity_sweep()


def at_capacity(found: CapacitySweep, capacity: float) -> CapacitySweep:
    """Return the same steps as a machine of another capacity (B) stands on them."""
    return capacity_sweep(capacity, found.withheld, found.steps, lambda time: -time)
