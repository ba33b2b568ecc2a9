"""Deployments as commands of serving engines, using the known model, machine and largest batch within limits."""

import os
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from calculon import inputs
from calculon.base.errors import Problem, SpecError
from calculon.base.frozen import dataclass
from calculon.declarations import catalog
from calculon.declarations.decode import decode
from calculon.declarations.files import read_document
from calculon.declarations.model import Model
from calculon.declarations.result_records import FoundDeployments
from calculon.declarations.result_selection import (
    WINNERS,
    WORKLOAD,
    is_served,
    number_in,
    split,
)
from calculon.hardware.system import System
from calculon.inputs import Source
from calculon.launch.dialect import Dialect
from calculon.serving.default_deployment import default_types, deployment_of
from calculon.serving.engine_scripts import UNCUT_TOKENS, deployment_text, server_of
from calculon.serving.records.deployment import Deployment
from calculon.serving.records.engine_presets import facts_of
from calculon.serving.records.load import SATURATED, Workload
from calculon.serving.records.read_records import DeploymentSource, read_deployment, read_workload
from calculon.serving.serve import Served

LIMITED = ("tpot", "ttft", "memory", "requests")
"""Reasons for a batch limit that is passed to the engine; a batch set by a request rate or user count may grow."""


@dataclass(frozen=True, slots=True)
class DeploymentContext:
    """Context of a deployment given by its source.

    Attributes:
        model, system: Names of both, or the records.
        batch: Sequences per replica within the limits; 0 if unknown.
        workload: Workload; its prompts are the largest passes if prefill is not chunked.
    """

    model: Source | Model | None = None
    system: Source | System | None = None
    batch: int = 0
    workload: Workload | None = None


def engine_text(
    dialect: Dialect,
    source: Served | DeploymentSource | int,
    *,
    model: Source | Model | None = None,
    system: Source | System | None = None,
    changes: Mapping[str, Any] | None = None,
) -> str:
    """Return the script that starts an engine for a deployment.

    Args:
        dialect: The serving engine.
        source: What to run: a deployment; a result, whose largest batch within its limits fills in an unstated batch;
            or a number of processors, for their default split, which needs model and
            system.
        model, system: Model and machine, which convert shares of free memory to shares of all memory; defaults to those
            of the result.
        changes: Fields that override the deployment.

    Raises:
        SpecError: For all problems of the inputs, and for a field that the engine cannot express.
    """
    if isinstance(source, Served):
        batch = source.batch if source.cut in LIMITED else 0
        known = DeploymentContext(source.model, source.system, batch, source.workload)
        one = read_deployment(source.deployment, changes)
    elif isinstance(source, int):
        known, one = DeploymentContext(), _plain(source, model, system, changes)
    else:
        known = _context_of(source)
        own = (model or known.model, system or known.system)
        one = read_deployment(source, changes, _facts(*own))
    if not one.max_batch and known.batch:
        one = read_deployment(one, {"max_batch": known.batch})
    model, system = model or known.model, system or known.system
    server = None
    if model is not None and system is not None:
        server = server_of(inputs.model(model), inputs.system(system), known.workload)
    return deployment_text(dialect, one, server, _facts(model, system))


def _facts(model: Source | Model | None, system: Source | System | None) -> SimpleNamespace:
    """Return the facts on which defaults of engines depend, as far as model and machine are known."""
    return facts_of(
        None if model is None else inputs.model(model),
        None if system is None else inputs.system(system),
    )


def _plain(
    procs: int,
    model: Source | Model | None,
    system: Source | System | None,
    changes: Mapping[str, Any] | None,
) -> Deployment:
    """Return the default deployment on a number of processors."""
    if model is None or system is None:
        wanted = "a model and a system, which determine the split of the processors"
        missing = " and no ".join(
            name for name, one in (("model", model), ("system", system)) if one is None
        )
        raise SpecError(str(procs), Problem("", wanted, f"no {missing}", "name it: --system h100"))
    load = read_workload({"prompt": UNCUT_TOKENS, "output": 2})
    shape = inputs.model(model)
    stated = {**default_types(shape), **(changes or {})}
    return deployment_of(shape, inputs.system(system), procs, load, stated)


def _context_of(source: DeploymentSource) -> DeploymentContext:
    """Return the context of a deployment from its result file; an empty context for any other source."""
    if not isinstance(source, (str, os.PathLike)):
        return DeploymentContext()
    path, selector = split(os.fspath(source))
    if not path.endswith((".json", ".json.gz")) or not os.path.isfile(path):  # noqa: PTH113
        return DeploymentContext()
    raw = read_document(path)
    if not isinstance(raw, Mapping) or not is_served(raw):
        return DeploymentContext()
    workload = read_workload(source) if WORKLOAD in raw else None
    batch, limited = raw.get("batch", 0), raw.get("cut") in LIMITED
    if isinstance(raw.get(WINNERS), list):
        winners = decode(FoundDeployments, raw, path).winners
        batch = winners[number_in(selector, len(winners), path, "rank")].batch
        # Winners of a search state no reason for their batch; only a saturated workload fills it.
        limited = workload is not None and workload.kind == SATURATED
    names = (raw.get(kind) for kind in ("model", "system"))
    model, system = (
        name if isinstance(name, str) and name in catalog.names(kind) else None
        for kind, name in zip(("model", "system"), names, strict=True)
    )
    return DeploymentContext(
        model, system, batch if limited and type(batch) is int else 0, workload
    )
