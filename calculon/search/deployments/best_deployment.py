"""Estimate of a deployment that serves a model, and the search for the best deployments."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from numbers import Integral
from typing import Any

from calculon import inputs
from calculon.declarations.model import Model
from calculon.estimate.argument_order import takes_either_order
from calculon.hardware.system import System
from calculon.inputs import Source
from calculon.search.deployments.deployment_search import DeploymentSearch
from calculon.search.deployments.deployment_space import DeploymentSpace
from calculon.search.deployments.deployment_vocabulary import ANY
from calculon.search.deployments.fewest_processors import check_fewest, fewest
from calculon.search.deployments.serving_search import OBJECTIVE, make_space, searched
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


@takes_either_order
def search_deployments(
    model: Source | Model,
    num_procs: int | str | Sequence[int],
    system: Source | System,
    workload: WorkloadSource | None = None,
    *,
    objective: str = OBJECTIVE,
    top: int = 1,
    pareto: Sequence[str] = (),
    where: str | None = None,
    fix: Mapping[str, Any] | None = None,
    add: Mapping[str, Any] | None = None,
    apart: bool = False,
    **options: Any,
) -> DeploymentSearch:
    """Search for the best deployments of a model.

    The search tries each split of the processors into replicas, and of replicas into tensor, pipeline and expert
    parallelism, with chunked prefill (token budgets from 512 to 16,384) and with prefill in separate passes. Batches
    are solved as in :func:`calculon.serve`, and all limits are met. Data types have 16 bits, unless `fix` or `add`
    names others.

    Args:
        model, system, workload, **options: As in :func:`calculon.serve`.
        num_procs: Processors of the deployment; several counts as ``"8:64:x2"``, or as a list; ``"any"`` for the fewest
            that answer a rate or a number of users
            (:func:`~calculon.search.deployments.fewest_processors.fewest`).
        objective, top: ``FIGURE[:max|min]`` to rank by (``calculon describe serving``), and the number of best
            deployments to return.
        pareto: Figures of a Pareto front; for loads without a rate or users also over batches of powers of two.
        where: A condition such as ``"ttft_p < 0.5 and tensor_par <= 4"``.
        fix: Values by field of a deployment, the only ones to try: ``{"tensor_par": 8}``.
        add: Additional values by field: ``{"weights_dtype": "float8"}``.
        apart: True to try disaggregated deployments, too: each number of prefill replicas of each split.

    Returns:
        The best first; ties go to the shortest time per token, then to the first deployment.

    Raises:
        SpecError: For every error in the arguments.

    Examples:
        >>> found = search_deployments("llama3-8B", "1,2", "h100_80g_sxm", prompt=1000, output=200, rate=5)
        >>> found.best.deployment.num_procs
        1
    """
    space = make_space(
        model, num_procs, system, workload, options, fix, add, vary_batch=bool(pareto), apart=apart
    )
    if not space.counts:
        check_fewest({"objective": objective != OBJECTIVE, "pareto": pareto, "where": where})
        return fewest(space, top).found
    return searched(space, objective, top, pareto, where)


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
