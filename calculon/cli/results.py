"""``RESULT`` arguments of the commands that compare, draw and report results."""

import argparse
import hashlib
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from calculon import inputs
from calculon.base.errors import Infeasible, Problem, SpecError
from calculon.base.frozen import dataclass
from calculon.cli.changes import parsed, with_changes
from calculon.cli.options import naming
from calculon.cli.result_files import (
    DOCUMENTS,
    TABLES,
    file_document,
    named_source,
    results_in,
    short_name,
)
from calculon.declarations import catalog
from calculon.declarations.axes import PUBLISHED_DEGREES
from calculon.declarations.decode import SpecWarning
from calculon.declarations.files import STDIN, document_suffix, read_document
from calculon.declarations.origin import titled
from calculon.declarations.result_selection import is_result, split
from calculon.declarations.spellings.plan_pairs import in_blanks, is_plan
from calculon.documents.compared import labeled
from calculon.documents.estimate_record import STATISTICS_OF
from calculon.documents.estimate_result import result_of
from calculon.documents.result import Document, Result
from calculon.documents.waterfalls import Estimated
from calculon.estimate.argument_order import is_system
from calculon.estimate.estimate import Estimate, estimate
from calculon.estimate.question import warn_of_differences
from calculon.inputs import Changed, sources_in
from calculon.version import __version__

_AGREES = 1e-9  # relative difference between the statistics of a file and of an estimate
_TRIPLE = "a file, or APP,EXE,SYS: three catalog names or files"


def requested_results(arguments: argparse.Namespace) -> list[Result]:
    """Return the results named by the arguments of :func:`.add_result_arguments`."""
    a = arguments
    return read_results(a.results, a.model, a.system, a.edition, a.preset, a.changes)


def read_results(
    texts: Sequence[str],
    model: str | None = None,
    system: str | None = None,
    editions: Sequence[str] = (),
    preset: str | None = None,
    changes: Sequence[str] = (),
) -> list[Result]:
    """Return the results of `RESULT` arguments, each with a distinct name.

    Args:
        texts: The arguments, see :data:`.RESULT_HELP`. A search over several processor counts gives each best.
        model, system: Specs that complete or replace the specs named by files; with both, executions are estimated
            again, with all layers.
        editions: Editions in which every execution is estimated instead of its own; files of statistics are
            unchanged.
        preset: Framework that completes executions instead of their own framework; results are already complete.
        changes: ``PATH=VALUE`` of ``--set``: spec values for every execution that is estimated.

    Raises:
        SpecError: For a search of another model or system.
    """
    texts = _triples(texts)
    options = _Options({"model": model, "system": system}, editions, preset, changes)
    launched = {text: path for text in texts if (path := _launch_file(text)) is not None}
    # Launch files are read last, since they may take model and system from the other results.
    read = {text: [*_read(text, options)] for text in texts if text not in launched}
    specs_given = _launch_specs(texts, read, options)
    read |= {
        text: [*_launched(text, path, specs_given, options)] for text, path in launched.items()
    }
    found = [one for text in texts for one in read[text]]
    for option, given in (("--edition", editions), ("--set", changes)):
        if given and all(one.inputs is None for one in found):
            wanted = "executions to estimate"
            hint = "give APP,EXE,SYS, or for the files of searches --model and --system"
            raise SpecError(option, Problem("", wanted, "files of results only", hint))
    return labeled(found, several_editions=len(editions) > 1)


def _triples(texts: Sequence[str]) -> Sequence[str]:
    """Return MODEL, plans and systems as one triple per plan and system; any other arguments unchanged.

    Arguments are triples already if the first or last is a result: a triple, a file, or a named result. Several systems
    are separate arguments or joined by commas.
    """
    model, *plans = texts
    systems: list[str] = []
    while len(plans) > 1 and is_system(plans[-1]) and not Path(plans[-1]).is_file():
        systems = [*(one.strip() for one in plans.pop().split(",")), *systems]
    if not systems and len(plans) > 1:
        systems = [plans.pop()]
    if not systems or any(_may_be_result(one) for one in (model, *systems)):
        return texts
    words = [in_blanks(one) if is_plan(one) else one for one in plans]
    return [f"{model},{plan},{system}" for plan in words for system in systems]


def _may_be_result(text: str) -> bool:
    return any(mark in text for mark in ",=#") or Path(text).is_file()


@dataclass(frozen=True, slots=True)
class _Options:
    """Given model and system, and settings for estimates of executions."""

    specs: Mapping[str, str | None]
    editions: Sequence[str]
    preset: str | None
    changes: Sequence[str]

    @property
    def given(self) -> bool:
        """True if both specs were given."""
        return all(self.specs.values())

    def estimated(self, specs: Mapping[str, Any], file: str, asked: str) -> Iterator[Estimate]:
        """Estimate an execution in each edition; an error names its `file`, or the argument `asked`."""
        for edition in self.editions or (None,):
            try:
                with naming(file):
                    made = estimate(**specs, layers=True, edition=edition, preset=self.preset)
            except Infeasible as error:
                words = f"{asked} in edition {edition}" if edition else asked
                raise Infeasible(error.reason, f"{words}: {error}") from None
            yield made

    def to_result(
        self, made: Estimate, parts: tuple[str, ...], documents: tuple[Document, ...]
    ) -> Result:
        """Return an estimate as a result, with the edition in its name if there are several."""
        terms = (f"edition {made.edition}",) if len(self.editions) > 1 else ()
        return Estimated.of(
            replace(result_of(made), documents=documents, parts=(*parts, *terms)), made
        )

    def named(self, label: str, one: Result) -> Result:
        """Return a result under the given name, with its edition if there are several."""
        several = label and len(self.editions) > 1 and one.inputs is not None
        return replace(one, label=f"{label}, edition {one.edition}" if several else label)


def _launch_file(text: str) -> str | None:
    """Return the path of an argument that is a launch file or an execution; None for other arguments."""
    path = named_source(text)[1]
    if document_suffix(path) in TABLES or not Path(path).is_file():
        return None
    if document_suffix(path) in DOCUMENTS and Path(path).stat().st_size > _LARGEST_LAUNCH:
        return None
    from calculon.launch.launch_files import is_launch_file  # only for files

    return path if is_launch_file(path) or _is_execution(path) else None


def _is_execution(path: str) -> bool:
    """Return True for a document with the degrees of an execution, such as an imported one."""
    if document_suffix(path) not in DOCUMENTS:
        return False
    raw = read_document(path)
    return isinstance(raw, Mapping) and raw.keys() >= {*PUBLISHED_DEGREES} and not is_result(raw)


_LARGEST_LAUNCH = 2**18
"""Maximum size in bytes of a document that may be a launcher configuration."""


def _launch_specs(
    texts: Sequence[str], read: Mapping[str, Sequence[Result]], options: _Options
) -> dict[str, Any]:
    """Return model and system for launch files: the given ones, or else the specs of the first other result."""
    result: dict[str, Any] = {kind: source for kind, source in options.specs.items() if source}
    for text in texts:
        rest, results = named_source(text)[1], read.get(text, ())
        path = rest.partition("#")[0]
        if rest.count(",") == 2 and not Path(path).is_file():
            first, _, last = (source.strip() for source in rest.split(","))
            result = {"model": first, "system": last} | result
        for one in results:
            result = {**sources_in(one.question or {}, path), **result}
    return result


def _launched(
    text: str, path: str, specs_given: Mapping[str, Any], options: _Options
) -> Iterator[Result]:
    """Estimate a launch file, with the model that it describes if no other model is known."""
    from calculon.inputs import launch_in

    launch = launch_in(path)
    described = {} if launch is None else launch.model
    model = specs_given.get("model") or described.get("name") or described
    if not model or "system" not in specs_given:
        kind = "model" if not model else "system"
        found = f"no {kind} in the file or options"
        raise SpecError(
            text, Problem("", f"a launch file of a known {kind}", found, f"--{kind} names it")
        )
    specs = {"model": model, "execution": path, "system": specs_given["system"]}
    known = {kind: source for kind, source in specs.items() if not isinstance(source, Mapping)}
    documents = tuple(_document(kind, _path(source)) for kind, source in known.items())
    changed = with_changes(options.changes, **specs)
    shape = changed["model"] = inputs.model(changed["model"])
    if launch is not None and launch.execution.get("seq_length") == shape.seq_size:
        # 0 means the model's own length.
        changed["execution"] = Changed.of(changed["execution"], {"seq_length": 0})
    label = named_source(text)[0]
    for made in options.estimated(changed, path, text):
        yield options.named(label, options.to_result(made, (short_name(path),), documents))


def _read(text: str, options: _Options) -> Iterator[Result]:
    """Return the results of one argument."""
    label, rest = named_source(text)
    path, _, selector = rest.partition("#")
    if rest.count(",") == 2 and not Path(path).is_file():
        results = _estimated(rest, options)
    elif document_suffix(path) in (*DOCUMENTS, *TABLES):
        results = results_in(path, selector)
    else:
        hint = "write APP,EXE,SYS without blanks" if "," in rest else ""
        raise SpecError(text, Problem("", _TRIPLE, repr(rest), hint))
    for one in results:
        for whole in _completed(one, path, options):
            yield options.named(label, whole)


def _estimated(text: str, options: _Options) -> Iterator[Result]:
    """Estimate an execution from three specs, in its own edition or in the given ones."""
    sources = [source.strip() for source in text.split(",")]
    if STDIN in sources:
        raise SpecError(text, Problem("", _TRIPLE, "standard input"))
    roles = ("model", "execution", "system")
    documents = tuple(_document(*pair) for pair in zip(roles, sources, strict=True))
    set_in = parsed(options.changes, roles)
    names = tuple(titled(one.name, set_in[one.role]) for one in documents)
    specs = with_changes(options.changes, **dict(zip(roles, sources, strict=True)))
    for made in options.estimated(specs, sources[1], text):
        yield options.to_result(made, names, documents)


def _document(role: str, source: str) -> Document:
    """Return the hash of a spec file, by catalog name or path; for a plan in words, the hash of the words."""
    if role == "execution" and is_plan(source):
        return Document(role, source, hashlib.sha256(source.encode()).hexdigest())
    file, selector = split(source) if role == "execution" else (source, "")
    path = catalog.find(role, file)
    try:
        return file_document(role, path, f"{short_name(path)}{selector and f'#{selector}'}")
    except SpecError:
        catalog.load(role, source)  # its error is more specific
        raise


def _completed(one: Result, path: str, options: _Options) -> Iterator[Result]:
    """Estimate the execution of a file again if model and system are known from options or from the file."""
    if one.inputs is not None or one.execution is None:
        yield one
        return
    given = {kind: source for kind, source in options.specs.items() if source}
    specs: dict[str, Any] = {**sources_in(one.question or {}, path), **given}
    place = ", ".join(one.parts)
    for kind in options.specs:
        if kind not in specs and kind in (one.question or {}):
            named = (one.question or {})[kind]
            _warn(
                f"{place}: its {kind} {named.get('source') or named.get('name')} was not found; give it with --{kind}"
            )
    if len(specs) < len(options.specs):
        yield one
        return
    made = _again(one, place, specs, options)
    if made is None:
        yield one
        return
    documents = (*(_document(kind, _path(specs[kind])) for kind in options.specs), *one.documents)
    changes = parsed(options.changes, ("model", "execution", "system"))
    changed = {
        kind: Changed.of(source, changes[kind])
        for kind, source in (specs | {"execution": one.execution}).items()
    }
    for edition in options.editions or (one.edition,):
        if edition != made.edition or any(changes.values()):
            try:
                with naming(place):
                    made = estimate(**changed, layers=True, edition=edition)
            except Infeasible as error:
                raise Infeasible(error.reason, f"{place} in edition {edition}: {error}") from None
        whole = options.to_result(made, one.parts, documents)
        same = edition == one.edition and not any(changes.values())
        yield replace(whole, winners=one.winners, question=one.question) if same else whole


def _again(one: Result, place: str, specs: Mapping[str, Any], options: _Options) -> Estimate | None:
    """Estimate an execution with its original specs; None if these have changed since.

    Raises:
        SpecError, Infeasible: If the given specs differ from the original ones.
    """
    try:
        made = estimate(specs["model"], one.execution or {}, specs["system"], layers=True)
    except (SpecError, Infeasible) as error:
        if options.given:
            raise
        _warn(f"{place}: it cannot be estimated again: {error}")
        return None
    differs = warn_of_differences(place, one.question or {}, made.model, made.system)
    # Equal statistics prove that the specs are the ones of the search, so that layers can be added to the result.
    for name in STATISTICS_OF[one.edition]:
        mine, theirs = made.stats[name] or 0.0, one.stats[name] or 0.0
        if math.isclose(mine, theirs, rel_tol=_AGREES, abs_tol=1e-15):
            continue
        if options.given:
            named = " on ".join(str(source) for source in options.specs.values())
            wanted = f"results for {named}, {name} = {mine:.10g}"
            hint = "was it searched for a different model or system?"
            raise SpecError(place, Problem(name, wanted, f"{theirs:.10g}", hint))
        if not differs:
            version = (one.question or {}).get("calculon", "another version")
            who = f"calculon {__version__} computes {name} = {mine:.6g}"
            if version == __version__:  # one version gives equal results for equal specs
                who = f"it is for a different model or system than {made.model.name} on {made.system.name}: {who}"
                version = "the file"
            _warn(f"{place}: {who}, {version} had {theirs:.6g}")
        return None
    return made


def _path(source: Any) -> str:
    return str(source.source if isinstance(source, Changed) else source)


def _warn(text: str) -> None:
    warnings.warn(text, SpecWarning, stacklevel=2)
