"""A plain deployment on so many processors, where none is stated."""

from collections.abc import Iterator, Mapping
from typing import Any

from calculon.base.errors import Problem, SpecError, nearest
from calculon.declarations.fields import shown, spec_fields
from calculon.declarations.model import Model
from calculon.hardware.system import System
from calculon.serving.passes.replica import Replica
from calculon.serving.records.asked import read_deployment
from calculon.serving.records.deployment import Deployment
from calculon.serving.records.deployments import POOL_SIZES, Deployments
from calculon.serving.records.load import Workload
from calculon.serving.records.pool import Pool
from calculon.serving.states.operating_point import Load

PREFILL = "prefill"
"""The field of processors of their own that prefill; a change of a part of it has a dot after it."""


def loaded(model: Model, system: System, deployment: Deployment, workload: Workload) -> Load:
    """Return a single deployment with its load."""
    return Load(Replica(model, system, Deployments.of(deployment), workload))


def deployment_of(
    model: Model,
    system: System,
    procs: int,
    workload: Workload,
    changes: Mapping[str, Any] | None = None,
) -> Deployment:
    """Return a plain deployment on so many processors: tensor parallelism over a node, and replicas.

    Tensor parallelism is as wide as a node allows, and divides processors and attention heads. Where a sequence does
    not fit, stages are added, as few as it takes. Processors of their own that prefill are split in the same way.

    Raises:
        SpecError: For no processors, and as :func:`~calculon.serving.asked.read_deployment`.
    """
    if procs < 1:
        raise SpecError(
            "deployment", Problem("", "a deployment, or 1 processor at least", str(procs))
        )
    given, pool = _pools(changes or {})
    if problems := [*_wrong(Deployment, given), *_wrong(Pool, pool or {}, f"{PREFILL}.")]:
        raise SpecError("deployment", problems)
    if pool is None:
        return _plain(model, system, procs, workload, given)
    apart = pool.get("num_procs")
    if apart is None or apart >= procs:
        wanted = f"the processors of {procs} that only prefill: 1 to {procs - 1}"
        raise SpecError(
            "deployment", Problem(f"{PREFILL}.num_procs", wanted, shown(apart) if apart else "none")
        )
    choices = {name: value for name, value in given.items() if name not in POOL_SIZES}
    decodes = _plain(model, system, procs - apart, workload, given)
    prefills = _plain(model, system, apart, workload, choices | pool)
    split = {name: getattr(decodes, name) for name in POOL_SIZES}
    own = {name: getattr(prefills, name) for name in POOL_SIZES}
    return read_deployment(given | split | {"num_procs": procs, PREFILL: own})


def _pools(changes: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Return changes of a deployment, and those of its processors that prefill, if there are any."""
    dotted = f"{PREFILL}."
    own = {name: value for name, value in changes.items() if not name.startswith(dotted)}
    parts = {name.removeprefix(dotted): value for name, value in changes.items() if name not in own}
    whole = own.pop(PREFILL, None)
    if whole is None and not parts:
        return own, None
    if not isinstance(whole, Mapping | None):
        hint = f"{PREFILL}.num_procs=N states how many processors only prefill"
        wanted = "an object with named fields"
        raise SpecError("deployment", Problem(PREFILL, wanted, shown(whole), hint))
    return own, dict(whole or {}) | parts


def _wrong(record: type, stated: Mapping[str, Any], place: str = "") -> Iterator[Problem]:
    """Yield unknown fields of a pool, and numbers of its split that are none, from which the plain split follows."""
    known = {one.key: one for one in spec_fields(record)}
    for name, value in stated.items():
        if name not in known:
            hint = nearest(name, list(known))
            found = f"the unknown field {shown(name)}"
            wanted = f"a field of {PREFILL if place else 'a deployment'}"
            yield Problem(f"{place}{name}", wanted, found, hint)
        elif name in POOL_SIZES or name == "num_procs":
            problem = known[name].declaration.problem(int, value, f"{place}{name}")
            if problem is not None:
                yield problem


def _plain(
    model: Model, system: System, procs: int, workload: Workload, given: Mapping[str, Any]
) -> Deployment:
    """Return a plain deployment of one pool."""
    each = procs // given.get("pipeline_par", 1)
    widest = [
        t for t in range(1, min(each, system.networks[0].size) + 1)
        if each % t == 0 and model.attn_heads % t == 0
    ] or [1]  # fmt: skip
    plain = {"num_procs": procs, "tensor_par": widest[-1], **given}
    split = plain["tensor_par"]
    stages = [p for p in range(1, procs // split + 1) if procs % (split * p) == 0] or [1]
    found = read_deployment(plain)
    for stage in stages:
        found = read_deployment({"pipeline_par": stage, **plain})
        if "pipeline_par" in given or loaded(model, system, found, workload).room[0] > 0:
            break
    return found
