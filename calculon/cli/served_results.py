"""``RESULT`` arguments that are deployments: files of ``serve``, or three sources with a workload."""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calculon.base.errors import Infeasible, Problem, SpecError
from calculon.cli.field_options import processors_in_place
from calculon.cli.result_files import (
    DOCUMENTS,
    TABLES,
    file_document,
    named_source,
    results_in,
    short_name,
)
from calculon.cli.serving_options import served
from calculon.declarations import catalog
from calculon.declarations.decode import decode
from calculon.declarations.files import document_suffix, read_document
from calculon.declarations.named_values import CORRECTED
from calculon.declarations.result_records import FoundDeployments
from calculon.declarations.result_selection import WINNERS, check_single, is_result, split

if TYPE_CHECKING:
    from calculon.documents.result import Document
    from calculon.documents.served_comparison import ServedResult

_SOURCES = ("MODEL", "DEPLOYMENT", "SYSTEM")

_LARGEST = 2**20
"""Maximum size in bytes of a result of ``serve``."""


def requested_served_results(arguments: argparse.Namespace) -> "list[ServedResult]":
    """Return the named deployments of the arguments; empty if all are executions, SpecError for a mixture."""
    texts: Sequence[str] = arguments.results
    # Classify all arguments first: the error for a mixture names the argument that does not fit.
    about = {text: _deployment_in(text) for text in texts}
    if not any(about.values()):
        return []
    for text, kind in about.items():
        if not kind:
            raise _no_deployment(text)
    for option in ("model", "system", "preset"):
        if getattr(arguments, option):
            wanted = "executions: a deployment has none" if option == "preset" else "executions"
            raise SpecError(f"--{option}", Problem("", wanted, "deployments"))
    if arguments.edition not in (None, (), (CORRECTED,), CORRECTED):
        found = ", ".join(arguments.edition)
        raise SpecError("--edition", Problem("", f"{CORRECTED}, which serving exists in", found))
    from calculon.documents.served_documents import named

    return named([_named_read(text, about[text], arguments) for text in texts])


def _deployment_in(text: str) -> str:
    """Return the form of a deployment argument: ``search``, ``file`` or ``sources``; empty for other arguments."""
    rest = named_source(text)[1]
    path = split(rest)[0]
    place = Path(path)
    if document_suffix(path) in DOCUMENTS and place.is_file() and place.stat().st_size <= _LARGEST:
        from calculon.documents.served_documents import is_served

        try:
            raw = read_document(path)
        except SpecError:
            return ""
        if isinstance(raw, Mapping) and isinstance(raw.get(WINNERS), list):
            return "search"
        return "file" if is_served(raw) else ""
    if rest.count(",") != 2:
        return ""
    middle = rest.split(",")[1].strip()
    return "sources" if processors_in_place(middle) is not None or _is_deployment(middle) else ""


def _no_deployment(text: str) -> SpecError:
    """Return the error of an argument that names no deployment although others do."""
    rest = named_source(text)[1]
    path = split(rest)[0]
    parts = [source.strip() for source in rest.split(",")]
    found = "an execution"
    try:
        if len(parts) == len(_SOURCES) and not Path(path).is_file():
            if parts[1] not in catalog.names("execution"):
                catalog.load("deployment", parts[1])
        elif document_suffix(path) in TABLES:
            next(results_in(path))
        elif document_suffix(path) in DOCUMENTS or Path(path).exists():
            raw = read_document(path)
            catalog.check_kind("deployment", raw, path)
            found = found if is_result(raw) else "another document"
        else:
            found = repr(rest)
    except SpecError as error:
        return error
    wanted = f"a deployment, like the other arguments: the JSON of serve, or {','.join(_SOURCES)}"
    return SpecError(text, Problem("", wanted, found))


def _is_deployment(source: str) -> bool:
    """Return True if a text names a deployment: in the catalog, in a file, or as a script of an engine."""
    path = split(source)[0]
    if path in catalog.names("deployment"):
        return True
    if not Path(path).is_file():
        return False
    if document_suffix(path) not in DOCUMENTS:
        from calculon.launch.launch_files import is_engine_script  # only for other files

        return is_engine_script(path)
    try:
        raw = catalog.load("deployment", source)[1]
    except SpecError:
        return False
    # Executions also state num_procs; data_par tells the two apart.
    return isinstance(raw, Mapping) and "num_procs" in raw and "data_par" not in raw


def _named_read(text: str, kind: str, arguments: argparse.Namespace) -> "ServedResult":
    """Read or estimate one of several deployments; the message of an infeasible one names it."""
    try:
        return _read(text, kind, arguments)
    except Infeasible as error:
        rest = (error.needed, error.available, error.tier)
        raise Infeasible(error.reason, f"{text}: {error}", *rest) from None


def _read(text: str, kind: str, arguments: argparse.Namespace) -> "ServedResult":
    """Read or estimate one deployment: a winner of a ``search``, a ``file``, or three ``sources``."""
    from calculon.documents.served_comparison import ServedResult
    from calculon.documents.served_documents import served_result
    from calculon.serving.served_record import read_served

    label, rest = named_source(text)
    if kind == "search":
        return _winner(label, rest, arguments)
    if kind == "file":
        check_single(*reversed(split(rest)))
        rest = split(rest)[0]
        documents = (file_document("result", rest, Path(rest).name),)
        raw: Any = read_document(rest)
        return ServedResult(label or short_name(rest), read_served(raw, rest), documents)
    model, deployment, system = (source.strip() for source in rest.split(","))
    counted = processors_in_place(deployment) is not None
    specs = {
        "model": model,
        "deployment": None if counted else deployment,
        "system": system,
        "workload": arguments.workload,
    }
    one = served(arguments, model, deployment, system)
    sources = tuple(_source(kind, source) for kind, source in specs.items() if source is not None)
    return served_result(label or ("" if counted else short_name(deployment)), one, sources)


def _winner(label: str, text: str, arguments: argparse.Namespace) -> "ServedResult":
    """Estimate a deployment of a search again, on the machine and under the workload that its file names."""
    from calculon.documents.served_documents import served_result

    path = split(text)[0]
    raw: Any = read_document(path)
    search = decode(FoundDeployments, raw, path)
    found = served(arguments, search.model, text, search.system, text)
    return served_result(
        label or short_name(text), found, (file_document("result", path, Path(path).name),)
    )


def _source(kind: str, source: str) -> "Document":
    """Return the hash of a spec file."""
    return file_document(kind, catalog.find(kind, split(source)[0]), short_name(source))
