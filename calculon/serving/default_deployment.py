"""Default deployment of a model on a number of processors: tensor parallelism within a node, and replicas."""

from collections.abc import Iterator, Mapping
from typing import Any

from calculon.base.errors import Problem, SpecError, nearest
from calculon.declarations.fields import shown, spec_fields
from calculon.declarations.model import Model
from calculon.hardware.system import System
from calculon.serving.passes.replica import Replica
from calculon.serving.records.deployment import Deployment
from calculon.serving.records.deployments import POOL_SIZES, Deployments
from calculon.serving.records.engine_presets import facts_of
from calculon.serving.records.load import Workload
from calculon.serving.records.number_types import WIDE_TYPES
from calculon.serving.records.pool import Pool
from calculon.serving.records.read_records import read_deployment
from calculon.serving.states.operating_point import OperatingPointSolver

PREFILL = "prefill"
"""Field of the processors that only prefill (disaggregated prefill); changes of its parts are ``prefill.NAME``."""


def default_types(model: Model) -> Mapping[str, Any]:
    """Return fields of a deployment whose default is the type of the released weights of a model.

    They apply to deployments that are searched, stated in words or by a script, which loads the checkpoint as released;
    not to files of deployments. Machines without an engine for a type compute in 16 bits.
    """
    return {} if model.origin is None else model.origin.released


def with_released_types(model: Model, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields of an engine's command with the types of the released weights, unless it states narrower ones.

    An engine loads a checkpoint as released unless its options or comments state other types.
    """
    wide = fields.get("weights_dtype") in WIDE_TYPES and fields.get("experts_dtype") == "same"
    return {**fields, **(default_types(model) if wide else {})}


def solver_of(
    model: Model, system: System, deployment: Deployment, workload: Workload
) -> OperatingPointSolver:
    """Return the operating point solver of a single deployment."""
    return OperatingPointSolver(Replica(model, system, Deployments.of(deployment), workload))


def deployment_of(
    model: Model,
    system: System,
    procs: int,
    workload: Workload,
    changes: Mapping[str, Any] | None = None,
) -> Deployment:
    """Return the default deployment on a number of processors: tensor parallelism within a node, and replicas.

    Tensor parallelism is as wide as a node allows, and divides the processors and the attention heads. If a sequence
    does not fit, pipeline stages are added, as few as possible. Processors that only prefill are split by the same
    rule.

    Raises:
        SpecError: For no processors, and as in :func:`~calculon.serving.records.read_records.read_deployment`.
    """
    if procs < 1:
        raise SpecError(
            "deployment", Problem("", "a deployment, or at least 1 processor", str(procs))
        )
    given, pool = _pools(changes or {})
    if problems := [*_wrong(Deployment, given), *_wrong(Pool, pool or {}, f"{PREFILL}.")]:
        raise SpecError("deployment", problems)
    if pool is None:
        return _plain(model, system, procs, workload, given)
    prefill_procs = pool.get("num_procs")
    if prefill_procs is None or prefill_procs >= procs:
        wanted = f"1 to {procs - 1} of {procs} processors that only prefill"
        raise SpecError(
            "deployment",
            Problem(
                f"{PREFILL}.num_procs", wanted, shown(prefill_procs) if prefill_procs else "none"
            ),
        )
    # both pools share data types and scheduler; only the split over processors differs
    choices = {name: value for name, value in given.items() if name not in POOL_SIZES}
    decodes = _plain(model, system, procs - prefill_procs, workload, given)
    prefills = _plain(model, system, prefill_procs, workload, choices | pool)
    split = {name: getattr(decodes, name) for name in POOL_SIZES}
    prefill_split = {name: getattr(prefills, name) for name in POOL_SIZES}
    fields = given | split | {"num_procs": procs, PREFILL: prefill_split}
    return read_deployment(fields, facts=facts_of(model, system))


def _pools(changes: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Return the changes of a deployment, and the changes of its prefill pool (None without one)."""
    dotted = f"{PREFILL}."
    other = {name: value for name, value in changes.items() if not name.startswith(dotted)}
    dotted_changes = {
        name.removeprefix(dotted): value for name, value in changes.items() if name not in other
    }
    stated = other.pop(PREFILL, None)
    if stated is None and not dotted_changes:
        return other, None
    if not isinstance(stated, Mapping | None):
        hint = f"{PREFILL}.num_procs=N states how many processors only prefill"
        wanted = "an object with named fields"
        raise SpecError("deployment", Problem(PREFILL, wanted, shown(stated), hint))
    return other, dict(stated or {}) | dotted_changes


def _wrong(record: type, stated: Mapping[str, Any], place: str = "") -> Iterator[Problem]:
    """Yield unknown fields of a pool, and invalid sizes, which have to be valid before the default split is derived."""
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
    """Return the default deployment of one pool."""
    each = procs // given.get("pipeline_par", 1)
    widest = [
        t for t in range(1, min(each, system.networks[0].size) + 1)
        if each % t == 0 and model.attn_heads % t == 0
    ] or [1]  # fmt: skip
    plain = {"num_procs": procs, "tensor_par": widest[-1], **given}
    split = plain["tensor_par"]
    # without a valid split, the first attempt raises the error that names the field
    stages = [p for p in range(1, procs // split + 1) if procs % (split * p) == 0] or [1]
    facts = facts_of(model, system)
    result = read_deployment(plain, facts=facts)
    for stage in stages:
        result = read_deployment({"pipeline_par": stage, **plain}, facts=facts)
        if "pipeline_par" in given or solver_of(model, system, result, workload).capacity[0] > 0:
            break
    return result
