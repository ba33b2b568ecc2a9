"""Estimate of a deployment that serves a model; for a number of processors, the best deployment of a search."""

from collections.abc import Mapping
from dataclasses import replace
from numbers import Integral
from typing import Any

from calculon import inputs
from calculon.declarations.model import Model
from calculon.estimate.argument_order import takes_either_order
from calculon.hardware.system import System
from calculon.inputs import Source
from calculon.search.deployments.deployment_space import DeploymentSpace
from calculon.search.deployments.deployment_vocabulary import ANY
from calculon.search.deployments.fewest_processors import fewest
from calculon.search.deployments.serving_search import make_space, searched
from calculon.serving import serve as serving
from calculon.serving.default_deployment import PREFILL, default_types
from calculon.serving.records.read_records import (
    DeploymentSource,
    WorkloadSource,
    deployment_in_words,
    names_file,
    usual_workload,
)
from calculon.serving.serve import Served


@takes_either_order
def serve(
    model: Source | Model,
    deployment: DeploymentSource | int,
    system: Source | System,
    workload: WorkloadSource | None = None,
    *,
    changes: Mapping[str, Any] | None = None,
    **options: Any,
) -> Served:
    """Estimate a deployment that serves a model.

    Args:
        model, system: As in :func:`calculon.estimate`.
        deployment: A name of the catalog, a file, a mapping of fields, or a record; a script that starts vLLM, SGLang
            or TensorRT-LLM, or the command itself (options that are not modeled give a warning); words
            (``"tp=2 dp=4"``); or a number of processors, for their best deployment
            (:func:`calculon.search_deployments`); ``"procs=8 tp=2"`` restricts it; ``"any"`` for the fewest processors
            that answer a rate or a number of users.
        workload: A name of the catalog (default: ``chat``), a file, a mapping or a record, or the document of a result
            of this function, which contains a workload. If `deployment` is such a result and no workload with prompt
            and output is given, its workload is used.
        changes: Fields that override the deployment, or that the deployments of a number of processors have.
        **options: Fields that override the workload: ``prompt=2000``.

    Returns:
        The figures in the steady state. If the load states neither a rate nor users, the batch is the largest one that
        meets the limits; if none does, the batch is one sequence, and the limits state by how much they are missed. If
        no deployment of a number of processors meets the limits, the one that comes closest.

    Raises:
        SpecError: For all problems of the inputs.
        Infeasible: If the model or a single sequence does not fit.

    Examples:
        >>> found = serve("llama3-8B", 1, "h100_80g_sxm", prompt=1000, output=200)
        >>> found["tpot"] >= found["decode_time"]
        True
    """
    stated = {name: value for name, value in (changes or {}).items() if value is not None}
    space = space_of(model, deployment, system, workload, stated, options)
    if space is None:
        if not names_file(deployment):  # which may have its own workload
            workload = usual_workload(workload, options)
        if _processors(deployment) is not None:
            stated = {**default_types(inputs.model(model)), **stated}
        return serving.serve(model, deployment, system, workload, changes=stated, **options)
    found = searched(space) if space.counts else fewest(space).found
    if not len(found) and found.nearest is None:
        # The default split names the field that divides nothing.
        (count,), fix = space.counts, {name: values[0] for name, values in space.fix.items()}
        fix = {**default_types(space.model), **fix}
        return serving.serve(space.model, count, space.system, space.workload, changes=fix)
    total = found.counts.total
    return replace(found.best_or_nearest, tried=total if total > 1 else 0)


def space_of(
    model: Source | Model,
    deployment: DeploymentSource | int,
    system: Source | System,
    workload: WorkloadSource | None,
    changes: Mapping[str, Any],
    options: Mapping[str, Any],
) -> DeploymentSpace | None:
    """Return the deployments that :func:`serve` searches; None if it estimates a stated one."""
    asked = _processors(deployment)
    # Pools of disaggregated prefill are split as stated, not searched.
    if asked is None or any(name.partition(".")[0] == PREFILL for name in changes):
        return None
    count, fields = asked
    names = ("deployment", "add")
    return make_space(
        model, count, system, workload, options, fix=fields | dict(changes), named=names
    )


def _processors(deployment: Any) -> tuple[int | str, dict[str, Any]] | None:
    """Return the processors of a deployment that states no complete split, and its other fields; None for others."""
    if deployment == ANY:
        return ANY, {}
    # bool is an Integral too, but True is not a number of processors
    if type(deployment) is not bool and isinstance(deployment, Integral):
        count, fields = int(deployment), dict[str, Any]()
    elif (words := deployment_in_words(deployment)) is None or "pipeline_par" in words:
        return None
    else:
        count, fields = words.pop("num_procs"), words
    # The default deployment names what is wrong with the number.
    return (count, fields) if type(count) is int and count > 0 else None
