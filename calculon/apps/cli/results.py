"""``RESULT`` arguments of the commands that compare, draw and report."""

import argparse
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from calculon.apps.cli.commands.llm import result_of
from calculon.apps.cli.options import Parser, add_edition, add_preset, naming
from calculon.apps.cli.result_files import (
    DOCUMENTS,
    STATISTICS_OF,
    TABLES,
    file_document,
    results_in,
    short_name,
)
from calculon.apps.report.result import Document, Result
from calculon.errors import Infeasible, Problem, SpecError
from calculon.estimate import Estimate, estimate
from calculon.spec import catalog
from calculon.spec.files import STDIN, document_suffix

RESULT_HELP = (
    "APP,EXE,SYS estimates an execution (names of the catalog or files); FILE is the JSON of llm or of loe; "
    "FILE#RANK, FILE#PROCS or FILE#PROCS/RANK selects from a search, FILE#ROW from a table (CSV, Parquet); "
    "NAME=RESULT gives it a name"
)
_AGREES = 1e-9  # relative difference between the statistics of a file and of an estimate
_NAMED = re.compile(r"(?P<label>[^=,/#]+)=(?P<rest>.+)", re.DOTALL)
_TRIPLE = "a file, or APP,EXE,SYS: three names of the catalog or files"


def add_result_arguments(parser: Parser) -> None:
    """Declare the results, and the specs that complete those of a search."""
    parser.add_argument("results", metavar="RESULT", nargs="+", help=RESULT_HELP)
    parser.add_argument(
        "--model", metavar="APP", help="the model that the files of searches are about"
    )
    parser.add_argument(
        "--system", metavar="SYS", help="the system that the files of searches are about"
    )
    add_edition(parser, several=True, absent="what each execution says")
    add_preset(parser)


def asked_results(arguments: argparse.Namespace) -> list[Result]:
    """Return the results that the arguments of :func:`add_result_arguments` name."""
    a = arguments
    return read_results(a.results, a.model, a.system, a.edition, a.preset)


def least_ratio_of(results: Sequence[Result]) -> float | None:
    """Return the ratio of times from which an order is sure; nothing for results without intervals."""
    if sum(one.interval is not None for one in results) < 2:
        return None
    from calculon.inspect.told_apart import least_ratio

    return least_ratio()


def read_results(
    texts: Sequence[str],
    model: str | None = None,
    system: str | None = None,
    editions: Sequence[str] = (),
    preset: str | None = None,
) -> list[Result]:
    """Return the results of `RESULT` arguments, each with a name of its own.

    Parameters
    ----------
    texts : sequence of str
        The arguments: see :data:`RESULT_HELP`. A search over several processor counts gives the best of each.
    model, system : str, optional
        Specs that files of searches do not name; with both, their executions are estimated again, with all layers.
    editions : sequence of str
        Editions in which every execution is estimated, in place of its own; files of statistics stay as they are.

    preset : str, optional
        Framework that fills in what executions leave out, in place of their own; results are complete.

    Raises
    ------
    SpecError
        For anything malformed, and for a search that was about another model or system.
    Infeasible
        When an execution to be estimated cannot run.
    """
    found = [one for text in texts for one in _read(text, model, system, editions, preset)]
    if editions and all(one.inputs is None for one in found):
        wanted = "executions to estimate"
        hint = "give APP,EXE,SYS, or for the files of searches --model and --system"
        raise SpecError("--edition", Problem("", wanted, "files of results only", hint))
    unnamed = [one.parts for one in found if not one.label]
    mixed = len(unnamed) < len(found)  # where some have a name, an edition alone tells too little
    shared = set() if len(editions) > 1 and mixed else _shared(unnamed)
    named = []
    for one in found:
        parts = [part for i, part in enumerate(one.parts) if i not in shared] or one.parts
        named.append(replace(one, label=one.label or ", ".join(parts)))
    return named


def _shared(names: Sequence[tuple[str, ...]]) -> set[int]:
    """Return the positions of the parts that all names have in common."""
    if len(names) < 2 or len(set(map(len, names))) > 1:
        return set()
    return {i for i, parts in enumerate(zip(*names, strict=True)) if len(set(parts)) == 1}


def _read(
    text: str,
    model: str | None,
    system: str | None,
    editions: Sequence[str],
    preset: str | None,
) -> Iterator[Result]:
    """Read one argument."""
    named = _NAMED.fullmatch(text)
    label, rest = ("", text)
    if named and not Path(text.partition("#")[0]).is_file():
        label, rest = named["label"].strip(), named["rest"]
    path, _, selector = rest.partition("#")
    if rest.count(",") == 2 and not Path(path).is_file():
        results = _estimated(rest, editions, preset)
    elif document_suffix(path) in (*DOCUMENTS, *TABLES):
        results = results_in(path, selector)
    else:
        hint = "write APP,EXE,SYS without blanks" if "," in rest else ""
        raise SpecError(text, Problem("", _TRIPLE, repr(rest), hint))
    for one in results:
        for whole in _completed(one, model, system, editions) if model and system else (one,):
            several = label and len(editions) > 1 and whole.inputs is not None
            yield replace(whole, label=f"{label}, edition {whole.edition}" if several else label)


def _estimated(text: str, editions: Sequence[str], preset: str | None) -> Iterator[Result]:
    """Estimate an execution from three specs, in its own edition or in others."""
    sources = [source.strip() for source in text.split(",")]
    if STDIN in sources:
        raise SpecError(text, Problem("", _TRIPLE, "standard input"))
    roles = ("model", "execution", "system")
    documents = tuple(_document(*pair) for pair in zip(roles, sources, strict=True))
    names = tuple(one.name for one in documents)
    for edition in editions or (None,):
        try:
            with naming(sources[1]):
                made = estimate(
                    sources[0],
                    sources[1],
                    sources[2],
                    layers=True,
                    edition=edition,
                    preset=preset,
                )
        except Infeasible as error:
            asked = f"{text} in edition {edition}" if edition else text
            raise Infeasible(error.reason, f"{asked}: {error}") from None
        yield _whole(made, names, documents, editions)


def _whole(
    made: Estimate,
    parts: tuple[str, ...],
    documents: tuple[Document, ...],
    editions: Sequence[str],
) -> Result:
    """Return an estimate as a result, with the edition in its name where several were asked for."""
    told = (f"edition {made.edition}",) if len(editions) > 1 else ()
    return replace(result_of(made), documents=documents, parts=(*parts, *told))


def _document(role: str, source: str) -> Document:
    """Return the hash of a spec file, by catalog name or path."""
    path = catalog.find(role, source)
    try:
        return file_document(role, path, short_name(path))
    except SpecError:
        catalog.load(role, source)  # says better what is wrong
        raise


def _completed(one: Result, model: str, system: str, editions: Sequence[str]) -> Iterator[Result]:
    """Estimate the execution of a search again, now that model and system are known."""
    if one.inputs is not None or one.execution is None:
        yield one
        return
    documents = (_document("model", model), _document("system", system), *one.documents)
    place = ", ".join(one.parts)
    made = estimate(model, one.execution, system, layers=True)
    for name in STATISTICS_OF[one.edition]:
        mine, theirs = made.stats[name] or 0.0, one.stats[name] or 0.0
        if not math.isclose(mine, theirs, rel_tol=_AGREES, abs_tol=1e-15):
            wanted = f"results for {model} on {system}, {name} = {mine:.10g}"
            hint = "was it searched for another model or system?"
            raise SpecError(place, Problem(name, wanted, f"{theirs:.10g}", hint))
    for edition in editions or (one.edition,):
        if edition != made.edition:
            try:
                with naming(place):
                    made = estimate(model, one.execution, system, layers=True, edition=edition)
            except Infeasible as error:
                raise Infeasible(error.reason, f"{place} in edition {edition}: {error}") from None
        whole = _whole(made, one.parts, documents, editions)
        yield replace(whole, winners=one.winners) if edition == one.edition else whole
