"""Rates of processors against rates of users: the frontier of the deployments of a model on machines."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from calculon import inputs
from calculon.errors import Infeasible
from calculon.hardware.system import System
from calculon.inputs import Source
from calculon.search.search_counts import pareto_front
from calculon.serving.asked import WorkloadSource, read_workload
from calculon.serving.by_batch import ByBatch, by_batch
from calculon.serving.load import Workload
from calculon.serving.serve import Served, serve
from calculon.spec.model import Model


def frontier_of(
    model: Source | Model,
    num_procs: int,
    systems: Sequence[Source | System],
    workload: WorkloadSource | None,
    changes: Mapping[str, Any],
    options: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the frontiers of machines as plain data.

    Parameters
    ----------
    model : source
        What is served.
    num_procs : int
        Processors of all replicas, which have tensor parallelism of every degree, and as few stages as it takes.
    systems : sequence of source
        The machines.
    workload, options
        What is asked, as of :func:`calculon.serving.serve.serve`.
    changes : mapping
        Fields of the deployments.

    Raises
    ------
    SpecError
        For everything wrong with the inputs.
    Infeasible
        Where the model fits on none, and where no batch of any deployment keeps the limits.
    """
    shape, load = inputs.model(model), read_workload(workload, options)
    curves = []
    for source in systems:
        machine = inputs.system(source)
        several = [*_deployments(shape, machine, num_procs, load, changes)]
        curves.append({"system": machine.name, "points": _points(several)})
    if not any(curve["points"] for curve in curves):
        names = ", ".join(inputs.system(one).name for one in systems)
        raise Infeasible("nothing", f"{names}: no deployment fits and keeps the limits")
    return {
        "model": shape.name,
        "num_procs": num_procs,
        "workload": load.to_dict(),
        "curves": curves,
    }


def _deployments(
    model: Model, system: System, num_procs: int, load: Workload, changes: Mapping[str, Any]
) -> Iterator[Served]:
    """Yield the deployments of a machine into whose memory the model fits."""
    widest = min(num_procs, system.networks[0].size)
    degrees = [t for t in range(1, widest + 1) if num_procs % t == model.attn_heads % t == 0]
    for degree in degrees if "tensor_par" not in changes else (changes["tensor_par"],):
        try:
            yield serve(model, num_procs, system, load, changes={**changes, "tensor_par": degree})
        except Infeasible:
            continue


def _points(several: Sequence[Served]) -> list[dict[str, Any]]:
    """Return the points of deployments that nothing beats in both rates, the fastest for a user first."""
    every = [point for served in several for point in _kept(by_batch(served))]
    if not every:
        return []
    scores = np.array([(one["interactivity"], one["output_rate_per_proc"]) for one in every]).T
    return [every[i] for i in pareto_front(scores, np.arange(len(every)))]


def _kept(curve: ByBatch) -> Iterator[dict[str, Any]]:
    """Yield the batches of a deployment that keep the limits."""
    w, d = curve.served.workload, curve.served.deployment
    kept = np.ones(len(curve.batch), bool)
    for times, limit in ((curve.tpot, w.tpot_limit), (curve.ttft, w.ttft_limit)):
        kept &= times <= (np.inf if limit is None else limit)
    kept &= curve.batch <= (d.max_batch or np.inf)
    fields = d.to_dict() | {"replicas": d.replicas}
    columns = {name: curve.columns[name][kept].tolist() for name in _FIGURES}
    for values in zip(*columns.values(), strict=True):
        yield dict(zip(columns, values, strict=True)) | {"deployment": fields}


_FIGURES = ("batch", "interactivity", "output_rate_per_proc", "output_rate", "tpot", "ttft")
