"""Read deployments and workloads from a catalog name, a file or a mapping, with options that override fields."""

import os
from collections.abc import Mapping
from typing import Any, TypeVar

from calculon import inputs
from calculon.base.errors import Problem, SpecError
from calculon.declarations import catalog
from calculon.declarations.decode import decode
from calculon.declarations.fields import shown
from calculon.declarations.override import override
from calculon.serving.records.deployment import Deployment
from calculon.serving.records.load import Workload

R = TypeVar("R", Deployment, Workload)
DeploymentSource = str | os.PathLike[str] | Mapping[str, Any] | Deployment
WorkloadSource = str | os.PathLike[str] | Mapping[str, Any] | Workload


def read_deployment(
    source: DeploymentSource, options: Mapping[str, Any] | None = None
) -> Deployment:
    """Return a deployment.

    Args:
        source: A name of the catalog, a file, a mapping of fields, or a record.
        options: Values by field that override the source, in the form of a file.

    Raises:
        SpecError: If there is no such deployment, and for all of its problems.
    """
    return _read(Deployment, "deployment", source, options)


def read_workload(
    source: WorkloadSource | None = None, options: Mapping[str, Any] | None = None
) -> Workload:
    """Return a workload; without a source, from options alone. Arguments and errors as in :func:`read_deployment`."""
    # command-line options that are not given are None, and must not override a file
    stated = {name: value for name, value in (options or {}).items() if value is not None}
    if source is None and (missing := [one for one in ("prompt", "output") if one not in stated]):
        hint = "add --prompt 2k --output 500, or name a workload that states them: --workload chat"
        problems = [Problem(name, "a number of tokens", "none", hint) for name in missing]
        raise SpecError("workload", problems)
    return _read(Workload, "workload", {} if source is None else source, options)


def _read(cls: type[R], kind: str, source: Any, options: Mapping[str, Any] | None) -> R:
    changes = {name: value for name, value in (options or {}).items() if value is not None}
    name, file = kind, kind
    raw: Mapping[Any, Any]
    if isinstance(source, cls):
        if not changes:
            return source
        name, raw = source.name, source.to_dict()
    elif (fields := inputs.as_mapping(source)) is not None:
        raw = dict(fields)
    elif not isinstance(source, (str, os.PathLike)) or not str(source):
        wanted = f"a name of the catalog, a path, a mapping with the fields of a file, or a {cls.__name__}"
        hint = "a number of processors gives a default deployment" if kind == "deployment" else ""
        raise SpecError(kind, Problem("", wanted, inputs.found(source), hint))
    else:
        file = os.fsdecode(source)
        name, found = catalog.load(kind, file)
        if not isinstance(found, Mapping):
            raise SpecError(file, Problem("", "an object with named fields", shown(found)))
        raw = found
    document = override(raw, changes, file, cls) if changes else raw
    return decode(cls, document, file, name=name, document=document)
