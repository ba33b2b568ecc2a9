"""Read deployments and workloads from a catalog name, a file or a mapping, with options that override fields."""

import os
import re
from collections.abc import Mapping
from math import prod
from types import SimpleNamespace
from typing import Any, TypeVar

from calculon import inputs
from calculon.base.errors import Problem, SpecError, nearest
from calculon.declarations import arguments, catalog
from calculon.declarations.decode import decode
from calculon.declarations.fields import shown, spec_fields
from calculon.declarations.override import override
from calculon.declarations.parse import parse_value
from calculon.declarations.result_selection import split
from calculon.declarations.short_names import field_name
from calculon.declarations.spellings.plan_pairs import pairs_of
from calculon.declarations.spellings.precisions import with_number_types
from calculon.serving.records.deployment import Deployment
from calculon.serving.records.engine_presets import with_engine
from calculon.serving.records.load import DEFAULT_WORKLOAD, Workload

R = TypeVar("R", Deployment, Workload)
DeploymentSource = str | os.PathLike[str] | Mapping[str, Any] | Deployment
WorkloadSource = str | os.PathLike[str] | Mapping[str, Any] | Workload


def read_deployment(
    source: DeploymentSource,
    options: Mapping[str, Any] | None = None,
    facts: SimpleNamespace | None = None,
) -> Deployment:
    """Return a deployment; the engine that it names fills in missing fields.

    Args:
        source: A name of the catalog, a file, a mapping of fields, or a record.
        options: Values by field that override the source, in the form of a file.
        facts: Model and machine on which defaults of engines depend
            (:func:`~calculon.serving.records.engine_presets.facts_of`).

    Raises:
        SpecError: If there is no such deployment, and for all of its problems.
    """
    return _read(Deployment, "deployment", source, options, facts)


def read_workload(
    source: WorkloadSource | None = None, options: Mapping[str, Any] | None = None
) -> Workload:
    """Return a workload; without a source, from options alone. Arguments and errors as in :func:`read_deployment`."""
    # command-line options that are not given are None, and must not override a file
    stated = {name: value for name, value in (options or {}).items() if value is not None}
    if source is None and (missing := [one for one in ("prompt", "output") if one not in stated]):
        hint = (
            "add --prompt 2000 --output 500, or name a workload that states them: --workload chat"
        )
        problems = [Problem(name, "a number of tokens", "none", hint) for name in missing]
        raise SpecError("workload", problems)
    return _read(Workload, "workload", {} if source is None else source, options)


def usual_workload(
    workload: WorkloadSource | None, options: Mapping[str, Any]
) -> WorkloadSource | None:
    """Return the stated workload; the default one if neither it nor prompt or output are stated."""
    stated = workload is not None or any(options.get(name) for name in ("prompt", "output"))
    return workload if stated else DEFAULT_WORKLOAD


def names_file(deployment: object) -> bool:
    """Return True for the path of a file, with or without the place of a result in it."""
    text = os.fsdecode(deployment) if isinstance(deployment, (str, os.PathLike)) else ""
    return os.path.isfile(split(text)[0])  # noqa: PTH113 (a text that can be no path has none)


_WORD = r"[\w.]+=[^\s,]+"
_OTHER_NAMES = {"procs": "num_procs", "gpus": "num_procs", "dp": "replicas"}


def deployment_in_words(source: object) -> dict[str, Any] | None:
    """Return the fields of a deployment in words, ``tp=2 dp=4``; None for any other source.

    Names are short names of degrees, ``procs`` or ``dp`` (replicas), and fields of a deployment. Without ``procs``
    there are as many processors as replicas have.

    Raises:
        SpecError: For an unknown name, and for a number of replicas that the processors do not make.

    Examples:
        >>> deployment_in_words("tp=2 dp=4")
        {'tensor_par': 2, 'pipeline_par': 1, 'num_procs': 8}
        >>> deployment_in_words("procs=8 max_batch=64")
        {'num_procs': 8, 'max_batch': 64}
    """
    if not isinstance(source, str) or os.path.exists(source):  # noqa: PTH110 (a text that can be no path has none)
        return None
    if not re.fullmatch(rf"{_WORD}([\s,]+{_WORD})*", source.strip()):
        return None
    known = [one.key for one in spec_fields(Deployment)]
    fields: dict[str, Any] = {}
    for name, value in pairs_of(source).items():
        field = field_name(_OTHER_NAMES.get(name.lower(), name))
        if field.partition(".")[0] not in (*known, "replicas"):
            wanted = "a field of a deployment, or one of tp, pp, dp, ep, cp, procs"
            hint = nearest(name, [*known, "procs"]) or "calculon describe deployment lists them"
            raise SpecError("deployment", Problem(name, wanted, "an unknown name", hint))
        fields[field] = parse_value(value)
    return _with_processors(with_number_types(fields))


def _with_processors(fields: dict[str, Any]) -> dict[str, Any]:
    """Return fields with the number of processors in place of the number of replicas."""
    replicas = fields.pop("replicas", None)
    if "num_procs" in fields and replicas is None:
        return fields
    degrees = [fields.setdefault(name, 1) for name in ("tensor_par", "pipeline_par")]
    sizes = [*degrees, 1 if replicas is None else replicas]
    wrong = [one for one in sizes if type(one) is not int or one < 1]
    if wrong:
        raise SpecError("deployment", Problem("", "degrees of at least 1", shown(wrong[0])))
    procs = prod(sizes)
    if fields.setdefault("num_procs", procs) != procs:
        wanted = f"tp * pp * dp = {procs:,}"
        raise SpecError("deployment", Problem("procs", wanted, shown(fields["num_procs"])))
    return fields


def _read(
    cls: type[R],
    kind: str,
    source: Any,
    options: Mapping[str, Any] | None,
    facts: SimpleNamespace | None = None,
) -> R:
    changes = with_number_types(
        {name: value for name, value in (options or {}).items() if value is not None}
    )
    name, file = kind, kind
    raw: Mapping[Any, Any]
    if isinstance(source, cls):
        if not changes:
            return source
        name, raw = source.name, source.to_dict()
    elif (fields := inputs.as_mapping(source)) is not None:
        raw = dict(fields)
    elif cls is Deployment and (stated := deployment_in_words(source)) is not None:
        raw = stated
    elif not isinstance(source, (str, os.PathLike)) or not str(source):
        wanted = f"a name of the catalog, a path, a mapping with the fields of a file, or a {cls.__name__}"
        hint = "a number of processors gives a default deployment" if kind == "deployment" else ""
        raise SpecError(kind, Problem("", wanted, arguments.described(source), hint))
    else:
        file = os.fsdecode(source)
        name, found = catalog.load(kind, file)
        if not isinstance(found, Mapping):
            raise SpecError(file, Problem("", "an object with named fields", shown(found)))
        raw = found
    document = override(raw, changes, file, cls) if changes else raw
    if cls is Deployment and not isinstance(source, cls):  # a record states every field
        document = with_engine(document, facts, file)
    return decode(cls, document, file, name=name, document=document)
