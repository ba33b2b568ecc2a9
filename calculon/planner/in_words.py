"""Plans and their figures in words."""

from calculon.estimate import Estimate
from calculon.plan.plan import NAMES
from calculon.presets import find_preset
from calculon.spec.execution import Execution
from calculon.spec.plan_words import plan_words
from calculon.units import GIB, duration


def plan_in_words(execution: Execution) -> str:
    """Write the split of an execution, and what is not as its preset has it.

    >>> from calculon import inputs
    >>> plan_in_words(inputs.execution("llama3-8B_h100x64"))
    'TP 2, DP 32, microbatch 2, ZeRO-1, sequence parallel'
    """
    fields = {name: getattr(execution, name) for name in NAMES}
    return plan_words(fields, find_preset(execution.preset).usual(fields))


def figures(found: Estimate) -> str:
    """Write the memory that an execution needs and the time of a step, with the digits that its interval leaves."""
    time, belief = found.stats["total_time"] or 0.0, found.belief
    error = 0.0 if belief is None else (belief.high - belief.low) / 2
    memory = gib(found.stats["proc_mem_tier1_cap_req"] or 0.0)
    return f"{memory}, {duration(time, error)} a step"


def gib(size: float) -> str:
    """Write a size with a decimal; one that is smaller with more, so that nothing that counts reads as 0."""
    gib = size / GIB
    return f"{gib:,.1f} GiB" if gib >= 0.1 else f"{gib:,.2g} GiB"
