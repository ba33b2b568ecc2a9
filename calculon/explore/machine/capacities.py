"""What capacity of memory buys when the plan is searched again: one search for every capacity."""

from calculon.advise.elasticities import Case
from calculon.advise.replanned import Replanner, Staircase, Step, staircase
from calculon.declarations.presets import Preset
from calculon.estimate.estimate import Estimate

TIME = "total_time"

LEAST_GAIN = 0.005
"""Share of the time from which on a step has a line."""

MOST = 10
"""Lines of a table of steps."""

AMPLE = 2**20
"""GiB of tier 1 in which everything fits that ever will."""


def capacities(best: Estimate, preset: Preset) -> Staircase:
    """Return the best plan of each capacity of tier 1, on a machine and with a preset.

    Parameters
    ----------
    best : Estimate
        Any plan of the question, which says processors, batch and precision: the steps do not depend on it.
    preset : Preset
        The framework whose plans are searched.
    """
    case = Case(best.model, best.execution, best.system, TIME)
    return Replanner(case, preset).staircase()


def at_capacity(found: Staircase, capacity: float) -> Staircase:
    """Return the same steps as a machine of another capacity (B) stands on them."""
    return staircase(capacity, found.withheld, found.steps, lambda time: -time)


def rungs(found: Staircase) -> list[Step]:
    """Return the steps that are worth a line: the one below, that of now, and each that gains a little more."""
    if found.here is None:
        return list(found.steps[:MOST])
    shown = [one for one in (found.down, found.here) if one is not None]
    for step in found.up:
        if step.best.value < shown[-1].best.value * (1 - LEAST_GAIN):
            shown.append(step)
    return shown[:MOST]
