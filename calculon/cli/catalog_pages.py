"""The pages of ``calculon catalog``: one model, system, execution, preset or study with its figures and sources."""

import json
import re
from collections.abc import Iterator, Mapping
from itertools import combinations, groupby
from typing import Any

from calculon.cli.commands import describe
from calculon.cli.options import Log
from calculon.declarations import catalog
from calculon.declarations.expression import Expression
from calculon.declarations.files import json_text, read_document
from calculon.declarations.presets import find_preset
from calculon.declarations.presets import plain as shown
from calculon.render.text_tables import Column, Table, plain

_LONGEST = 60  # characters of a list
_RATES = re.compile(r"ext\.(kernels\.[^.]+\.[^.]+|networks\[\d+\]\.operations\.)")
_FIELDS = tuple(Column(key, key, fold=key != "field") for key in ("field", "value", "description"))
_TOLD = ("sources", "assumed", "kernels")
_SCORES = ("median", "p90", "bias")


def show_document(kind: str, name: str, form: str, log: Log) -> None:
    """Print one spec, every field with its unit and description; as JSON, its document."""
    path = catalog.names(kind)[name]
    document = catalog.load(kind, name)[1] if kind != "study" else read_document(str(path))
    if form == "json":
        log(json_text(document))
        return
    if form == "text":
        log(f"{name}: {'an' if kind == 'execution' else 'a'} {kind} ({path})\n")
        if kind == "system" and isinstance(document, Mapping):
            _show_system(document, log)
            return
    if kind == "preset":
        _show_preset(name, form, log)
        return
    log.table(leaves(kind, document), form)


def _show_system(document: Mapping[str, Any], log: Log) -> None:
    """Print the values of a system, then where they come from and how far its laws are from measured kernels.

    A law with its constants is one line; one of another type that is equal is named.
    """
    about = document.get("about") or {}
    values = {key: one for key, one in _without_repeats(document).items() if key != "about"}
    fields = [row for row in leaves("system", values).rows if not _RATES.match(row["field"])]
    rates = [leaf for leaf in _together(_walk(values, "")) if _RATES.match(leaf[0])]
    log.table(Table(_FIELDS, [{**row, "value": _with_unit(row)} for row in fields]), "text")
    rest = {key: value for key, value in about.items() if key not in _TOLD}
    origins = [
        *(("rate of kernels", "constants", path, str(value)) for path, value in rates),
        *(("figure", "source", path, text) for path, text in about.get("sources", {}).items()),
        *(("assumed", "as", *line.split(": ", 1)) for line in about.get("assumed", [])),
        *(("about", "", path, str(value)) for path, value in _walk(rest, "")),
    ]
    for title, other in dict.fromkeys(origin[:2] for origin in origins):
        columns = [Column("path", title), Column("text", other, fold=True)]
        rows = [
            {"path": one[2].replace(", ", "\n"), "text": one[-1]}
            for one in origins
            if one[0] == title
        ]
        log("")
        log.table(Table(tuple(columns), rows), "text")
    if kernels := about.get("kernels"):
        log("\nHow far the laws are from them:")
        log.table(kernels_table(kernels), "text")


def kernels_table(kernels: Mapping[str, Mapping[str, float]]) -> Table:
    """Return a table of the errors of laws, in percent, by group of measured kernels."""
    scores = [Column(key, f"{key} %", right=True, text=_percent) for key in _SCORES]
    columns = [Column("of", "kernels that no fit saw"), Column("n", "n", right=True), *scores]
    return Table(tuple(columns), [{"of": of, **errors} for of, errors in kernels.items()])


def _with_unit(row: Mapping[str, Any]) -> str:
    return f"{plain(row['value'])} {row['unit']}".rstrip()


def _percent(error: float) -> str:
    return f"{error:.1f}"


def leaves(kind: str, document: object) -> Table:
    """List the values of a document by path, with the declarations of the fields they belong to."""
    declared = {} if kind == "study" else {row["field"]: row for row in describe._fields(kind).rows}
    patterns = [
        (re.compile(re.escape(field).replace(r"\*", "[^.]+").replace(r"\[\]", r"\[\d+\]")), row)
        for field, row in declared.items()
    ]
    rows = []
    for path, value in _walk(document, ""):
        row = next((row for pattern, row in patterns if pattern.fullmatch(path)), {})
        told = {key: row.get(key, "") for key in ("unit", "description")}
        rows.append({"field": path, "value": value, **told})
    return describe._listed(("field", "unit", "description", "value"), rows)


def _walk(value: object, path: str) -> Iterator[tuple[str, object]]:
    """Yield path and value of everything in a document that is no object; lists of numbers are one value.

    So are the residuals of a group of kernels.
    """
    if isinstance(value, Mapping) and path.startswith("about.kernels."):
        yield path, ", ".join(f"{key} {inner:g}" for key, inner in value.items())
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _walk(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list) and any(isinstance(inner, Mapping) for inner in value):
        for i, inner in enumerate(value):
            yield from _walk(inner, f"{path}[{i}]")
    elif isinstance(value, list) and len(json.dumps(value)) > _LONGEST:
        yield path, f"{len(value)} entries, {json.dumps(value[0])} to {json.dumps(value[-1])}"
    else:
        yield path, json.dumps(value) if isinstance(value, (list, bool)) else value


def _without_repeats(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a system in which rates of kernels that are those of an earlier type say so."""
    extension = dict(document.get("ext", {}))
    kernels = {}
    for kind, types in extension.get("kernels", {}).items():
        kernels[kind] = dict(types)
        for (one, rate), (other, same) in combinations(types.items(), 2):
            if rate == same and isinstance(kernels[kind][one], Mapping):
                kernels[kind][other] = f"as {one}"
    return {**document, "ext": {**extension, "kernels": kernels}}


def _together(leaves: Iterator[tuple[str, object]]) -> Iterator[tuple[str, object]]:
    """Yield leaves, those of a rate of kernels or of an operation of a network as one."""
    for above, some in groupby(leaves, key=lambda leaf: leaf[0].rpartition(".")[0]):
        if _RATES.match(above):
            told = [(path.rpartition(".")[2], value) for path, value in some]
            yield above, ", ".join(f"{key} {value}" for key, value in told)
        else:
            yield from some


def _show_preset(name: str, form: str, log: Log) -> None:
    """Print what a preset fills in, what its framework has, what a search tries, and what it cannot combine."""
    preset = find_preset(name)
    titles = {
        "field": "field",
        "value": "filled in",
        "runs": "runs",
        "tries": "tried",
        "why": "why",
    }
    folded = ("value", "why")
    rows = [
        {
            "field": field,
            "value": entry.value.text
            if isinstance(entry.value, Expression)
            else shown(entry.value),
            "runs": ", ".join(map(shown, entry.runs)) or "any",
            "tries": ", ".join(map(shown, entry.tries)) or "as they divide",
            "why": entry.why,
        }
        for field, entry in preset.entries.items()
    ]
    if form == "text":
        log(f"{preset.title}\n{preset.framework} {preset.version}\nsources: {preset.source}\n")
    log.table(Table(tuple(Column(k, t, fold=k in folded) for k, t in titles.items()), rows), form)
    if form == "text" and preset.limits:
        limits = [{"that": one.that.text, "why": one.why} for one in preset.limits]
        log("")
        columns = Column("that", "must hold", fold=True), Column("why", "why", fold=True)
        log.table(Table(columns, limits), form)
    if form == "text" and preset.practice:
        practice = [{"that": one.that.text, "why": one.why} for one in preset.practice]
        log("")
        columns = Column("that", "people keep to", fold=True), Column("why", "why", fold=True)
        log.table(Table(columns, practice), form)
    if form == "text" and preset.uneven:
        uneven = [{"pp_layout": one.pp_layout, "why": one.why} for one in preset.uneven]
        log("")
        columns = Column("pp_layout", "uneven stages"), Column("why", "why", fold=True)
        log.table(Table(columns, uneven), form)
