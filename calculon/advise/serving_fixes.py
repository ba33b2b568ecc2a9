"""Changes with which a served model fits in memory, each of them checked."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from calculon.base.errors import Infeasible, SpecError
from calculon.declarations.model import Model
from calculon.hardware.system import System
from calculon.inputs import Source
from calculon.search.deployments.best_deployment import space_of
from calculon.search.deployments.deployment_rows import fits_in_memory
from calculon.search.deployments.deployment_space import DeploymentSpace
from calculon.search.deployments.fewest_processors import largest_replica
from calculon.serving.records.deployment import Deployment
from calculon.serving.records.number_types import WEIGHT_TYPES
from calculon.serving.records.read_records import DeploymentSource, WorkloadSource, read_deployment
from calculon.serving.serve import ServedQuestion, question

MEMORY = "mem1_capacity"
"""Reason of a deployment whose weights or KV cache exceed the memory capacity."""

NARROWER = ("float8", "int4_g128")
"""Types of weights to suggest, widest first."""

_DOUBLINGS = 6
"""Largest number of processors to suggest, as a power of two of the present number."""


def with_fixes(error: Infeasible, fixes: Iterator[str]) -> Infeasible:
    """Return the error of a model that does not fit, with the changes that help as its hint."""
    if error.reason != MEMORY or not (found := list(fixes)):
        return error
    message = f"{error}. Hint: it fits {', or '.join(found)}"
    return Infeasible(MEMORY, message, error.needed, error.available, error.tier)


def fixes_of(
    model: Source | Model,
    deployment: DeploymentSource | int,
    system: Source | System,
    workload: WorkloadSource | None,
    changes: Mapping[str, Any],
    options: Mapping[str, Any],
) -> Iterator[str]:
    """Yield changes with which a model fits that :func:`calculon.serve` found not to fit; arguments as there."""
    asked = model, deployment, system, workload, changes, options
    space = space_of(*asked)
    yield from fixes_of_deployment(question(*asked)) if space is None else fixes_of_search(space)


def fixes_of_search(space: DeploymentSpace, option: str = "--set") -> Iterator[str]:
    """Yield changes with which some deployment of a space fits.

    Args:
        space: Deployments of which none fits.
        option: Option of the command that states a field.
    """
    if not space.counts:
        space = replace(space, counts=(largest_replica(space),))
    stated = {**space.fix, **space.add}.get("weights_dtype", space.tried("weights_dtype"))
    for name in _narrower(stated):
        fix = {**space.fix, "weights_dtype": (name,)}
        if fits_in_memory(replace(space, fix=fix, add={})):
            yield f"with {option} weights_dtype={name}"
            break
    yield from _more_processors(space)


def fixes_of_deployment(asked: ServedQuestion) -> Iterator[str]:
    """Yield changes with which a stated deployment fits: its types, its split, or more processors."""
    one = asked.deployment
    for name in _narrower((one.weights_dtype,)):
        if _fits(replace(asked, deployment=read_deployment(one, {"weights_dtype": name}))):
            yield f"with --set weights_dtype={name}"
            break
    space = _space_of(asked, one)
    if fits_in_memory(space):
        yield f"with another split of its {one.num_procs:,} processors (calculon serve-optimal)"
    else:
        yield from _more_processors(space)


def _narrower(stated: tuple[Any, ...]) -> Iterator[str]:
    """Yield types that take fewer bytes than all stated ones."""
    least = min(WEIGHT_TYPES[name].bytes for name in stated)
    return (name for name in NARROWER if WEIGHT_TYPES[name].bytes < least)


def _fits(asked: ServedQuestion) -> bool:
    """Return True if a deployment holds at least one sequence."""
    try:
        asked.solve()
    except (Infeasible, SpecError):
        return False
    return True


def _space_of(asked: ServedQuestion, one: Deployment) -> DeploymentSpace:
    """Return all splits of the processors of a deployment, with its data types."""
    names = ("weights_dtype", "experts_dtype", "head_dtype", "kv_dtype")
    types: Mapping[str, Any] = {name: (getattr(one, name),) for name in names}
    counts = (one.num_procs,)
    return DeploymentSpace(asked.model, asked.system, asked.workload, counts, types, {})


def _more_processors(space: DeploymentSpace) -> Iterator[str]:
    """Yield the smallest number of processors that fits, among a few doublings."""
    most = max(space.counts)
    for power in range(1, _DOUBLINGS + 1):
        count = most << power
        if fits_in_memory(replace(space, counts=(count,))):
            yield f"on {count:,} processors"
            return
