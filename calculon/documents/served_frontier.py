"""Frontier of deployments: tokens/s per processor and tokens/s per user, on one or several machines."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from calculon import inputs
from calculon.base.errors import Infeasible, Problem, SpecError
from calculon.declarations.model import Model
from calculon.hardware.system import System
from calculon.inputs import Source
from calculon.search.deployments.best_deployment import search_deployments
from calculon.search.deployments.deployment_search import DeploymentSearch
from calculon.search.search_counts import pareto_front
from calculon.serving.by_batch import ByBatch, by_batch
from calculon.serving.records.load import SATURATED, Workload
from calculon.serving.records.read_records import WorkloadSource, read_workload
from calculon.serving.serve import serve

AXES = ("output_rate_per_proc", "interactivity")
"""Figures of a frontier."""


def frontier_of(
    model: Source | Model,
    num_procs: int | str | Sequence[int],
    systems: Sequence[Source | System],
    workload: WorkloadSource | None,
    options: Mapping[str, Any],
    fix: Mapping[str, Any] | None = None,
    add: Mapping[str, Any] | None = None,
    *,
    apart: bool = False,
) -> dict[str, Any]:
    """Return the frontiers of machines as plain data: the Pareto-optimal deployments in both rates.

    Args:
        model, num_procs, workload, options, fix, add, apart: As in
            :func:`~calculon.search.deployments.best_deployment.search_deployments`.
        systems: The machines; duplicates count once.

    Raises:
        SpecError: For all invalid inputs, and for a workload with a fixed load.
        Infeasible: If the model fits on no machine, and if no batch of any deployment keeps the limits.
    """
    shape, load = inputs.model(model), read_workload(workload, options)
    _check_saturated(load)
    machines: dict[object, System] = {}
    for one in map(inputs.system, systems):
        content = None if one.origin is None else one.origin.digest
        machines.setdefault((one.name, content or id(one)), one)
    return frontiers(
        [
            search_deployments(
                shape, num_procs, one, load, pareto=AXES, fix=fix, add=add, apart=apart
            )
            for one in machines.values()
        ]
    )


def frontier_in(result: DeploymentSearch) -> dict[str, Any]:
    """Return the frontier of the deployments that a search found."""
    _check_saturated(result.space.workload)
    return frontiers([result])


def frontiers(several: Sequence[DeploymentSearch]) -> dict[str, Any]:
    """Return the frontiers of searches for one model under one workload on several machines.

    A search tries powers of two as batches. Here its deployments are evaluated at every batch between them, and
    the Pareto-optimal points are kept.
    """
    curves = []
    for found in several:
        space = found.space
        # Batch limits would cut the curve; each split needs one curve only.
        free = {replace(one, max_batch=0): None for one in found.deployments}
        own = [by_batch(serve(space.model, one, space.system, space.workload)) for one in free]
        points = _points(own, space.workload)
        none = None if points else _none(found)
        machine = {"system": space.system.name, "provenance": space.system.provenance.to_dict()}
        curves.append({**machine, "points": points, "none": none})
    if not any(curve["points"] for curve in curves):
        raise Infeasible(
            "nothing", "; ".join(f"{one.space.system.name}: {one.why}" for one in several)
        )
    space = several[0].space
    return {
        "model": space.model.name,
        "num_procs": list(space.counts),
        "workload": space.workload,
        "curves": curves,
    }


def _none(result: DeploymentSearch) -> str:
    """Return the reason why no deployment of a search is on the frontier."""
    if result.why.needed is not None:
        return "none fits in memory"
    return (
        "none meets the limits" if result.why.reason == "limits" else "no split divides the model"
    )


def _check_saturated(load: Workload) -> None:
    """Raise SpecError for a workload with a fixed load."""
    if load.kind != SATURATED:
        hint = "calculon serve estimates a given load"
        wanted = "none: a frontier covers all batches, and therefore all loads"
        raise SpecError("workload", Problem(load.kind, wanted, "a value", hint))


def _points(several: Sequence[ByBatch], load: Workload) -> list[dict[str, Any]]:
    """Return the Pareto-optimal points of deployments in both rates, fastest per user first."""
    every = [point for curve in several for point in _kept(curve, load)]
    if not every:
        return []
    scores = np.array([[one[name] for name in reversed(AXES)] for one in every]).T
    return [every[i] for i in pareto_front(scores, np.arange(len(every)))]


def _kept(curve: ByBatch, load: Workload) -> Iterator[dict[str, Any]]:
    """Yield the batches of a deployment that keep the limits."""
    kept = np.ones(len(curve.batch), bool)
    for times, limit in ((curve.tpot, load.tpot_limit), (curve.ttft, load.ttft_limit)):
        kept &= times <= (np.inf if limit is None else limit)
    columns = {name: curve.columns[name][kept].tolist() for name in _FIGURES}
    for values in zip(*columns.values(), strict=True):
        yield dict(zip(columns, values, strict=True)) | {"deployment": curve.served.deployment}


_FIGURES = ("batch", "interactivity", "output_rate_per_proc", "output_rate", "tpot", "ttft")
