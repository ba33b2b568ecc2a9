"""The pages of ``calculon catalog``: one model, system, execution, preset or study with its values and sources."""

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
from calculon.declarations.preset_file import Entry
from calculon.declarations.preset_file import plain as shown
from calculon.declarations.presets import AT, FRAMEWORKS, Preset, find_preset
from calculon.render.document import Block, Document
from calculon.render.text_tables import Column, Table, plain, words_table
from calculon.serving.records.engine_presets import ENGINE_PRESETS

_LONGEST = 60  # longest list that is printed in full, in characters
_RATES = re.compile(r"ext\.(kernels\.[^.]+\.[^.]+|networks\[\d+\]\.operations\.)")
_FIELDS = tuple(Column(key, key, fold=key != "field") for key in ("field", "value", "description"))
_TOLD = ("sources", "assumed", "kernels")
_SCORES = ("median", "p90", "bias")
_PRESETS = {one.catalog: one for one in (FRAMEWORKS, ENGINE_PRESETS)}


def show_document(kind: str, name: str, form: str, log: Log, *, drawn: bool = False) -> None:
    """Print one spec, with unit and description of every field; as JSON, the document itself.

    With `drawn`, the page has terminal width even if the output is a pipe.
    """
    file = name.partition(AT)[0] if kind in _PRESETS else name
    path = catalog.names(kind)[file]
    document = catalog.load(kind, file)[1] if kind != "study" else read_document(str(path))
    if form == "json":
        log(json_text(document))
        return
    preset = find_preset(name, _PRESETS[kind]) if kind in _PRESETS else None
    table = leaves(kind, document) if preset is None else _preset_table(preset)
    if form != "text":
        log(table.written(form))
        return
    title = f"{name}: {'an' if kind in ('execution', 'engine') else 'a'} {kind} ({path})"
    if kind == "system" and isinstance(document, Mapping):
        blocks: tuple[Block, ...] = (title, *_system_blocks(document))
    elif preset is not None:
        blocks = (title, *_preset_blocks(preset, table))
    else:
        blocks = (title, table)
    if drawn:
        log.show(Document("", parts=blocks))
    else:
        log.parts(*blocks)


def _system_blocks(document: Mapping[str, Any]) -> Iterator[Block]:
    """Yield the values of a system, their sources, and the errors of its kernel laws.

    A law and its constants take one line; a data type with equal constants refers to the earlier type.
    """
    about = document.get("about") or {}
    values = {key: one for key, one in _without_repeats(document).items() if key != "about"}
    fields = [row for row in leaves("system", values).rows if not _RATES.match(row["field"])]
    rates = [leaf for leaf in _together(_walk(values, "")) if _RATES.match(leaf[0])]
    yield Table(_FIELDS, [{**row, "value": _with_unit(row)} for row in fields])
    rest = {key: value for key, value in about.items() if key not in _TOLD}
    origins = {
        ("rate of kernels", "constants"): [(path, str(value)) for path, value in rates],
        ("figure", "source"): about.get("sources", {}).items(),
        ("assumed", "as"): [line.split(": ", 1) for line in about.get("assumed", [])],
        ("about", ""): [(path, str(value)) for path, value in _walk(rest, "")],
    }
    for titles, rows in origins.items():
        # A sheet of paths and texts is easier to read with one path per line than with comma-separated paths.
        if rows:
            cells = [(path.replace(", ", "\n"), text) for path, text in rows]
            yield words_table(titles, cells, titles[1:])
    if kernels := about.get("kernels"):
        yield "Errors of the laws for held-out kernels:"
        yield kernels_table(kernels)


def kernels_table(kernels: Mapping[str, Mapping[str, float]]) -> Table:
    """Return a table of errors of kernel laws in percent, by group of measured kernels."""
    scores = [Column(key, f"{key} %", right=True, text=_percent) for key in _SCORES]
    columns = [Column("of", "held-out kernels"), Column("n", "n", right=True), *scores]
    return Table(tuple(columns), [{"of": of, **errors} for of, errors in kernels.items()])


def _with_unit(row: Mapping[str, Any]) -> str:
    return f"{plain(row['value'])} {row['unit']}".rstrip()


def _percent(error: float) -> str:
    return f"{error:.1f}"


def leaves(kind: str, document: object) -> Table:
    """List the values of a document by path, with unit and description of the field that each belongs to."""
    # Studies are free-form documents without declared fields.
    declared = {} if kind == "study" else {row["field"]: row for row in describe._fields(kind).rows}
    # Field names of dictionaries and lists ("*", "[]") become patterns, since a document has concrete keys there.
    patterns = [
        (re.compile(re.escape(field).replace(r"\*", "[^.]+").replace(r"\[\]", r"\[\d+\]")), row)
        for field, row in declared.items()
    ]
    rows = []
    for path, value in _walk(document, ""):
        row = next((row for pattern, row in patterns if pattern.fullmatch(path)), {})
        field_info = {key: row.get(key, "") for key in ("unit", "description")}
        rows.append({"field": path, "value": value, **field_info})
    return describe._listed(("field", "unit", "description", "value"), rows)


def _walk(value: object, path: str) -> Iterator[tuple[str, object]]:
    """Yield path and value of every scalar of a document; a list of numbers counts as one value.

    The residuals of a kernel group count as one value, too.
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
    """Return a system document in which kernel rates equal to an earlier data type's rates refer to that type."""
    extension = dict(document.get("ext", {}))
    kernels = {}
    for kind, types in extension.get("kernels", {}).items():
        kernels[kind] = dict(types)
        for (one, rate), (other, same) in combinations(types.items(), 2):
            if rate == same and isinstance(kernels[kind][one], Mapping):
                kernels[kind][other] = f"as {one}"
    return {**document, "ext": {**extension, "kernels": kernels}}


def _together(leaves: Iterator[tuple[str, object]]) -> Iterator[tuple[str, object]]:
    """Yield leaves; the constants of one kernel rate or one network operation are joined into one leaf."""
    for above, some in groupby(leaves, key=lambda leaf: leaf[0].rpartition(".")[0]):
        if _RATES.match(above):
            constants = [(path.rpartition(".")[2], value) for path, value in some]
            yield above, ", ".join(f"{key} {value}" for key, value in constants)
        else:
            yield from some


def _preset_table(preset: Preset) -> Table:
    """Return the values that a preset fills in, the values its framework allows, and the values a search tries."""
    columns = (
        Column("field", "field"),
        Column("value", "filled in", fold=True),
        Column("runs", "runs"),
        Column("tries", "tried"),
        Column("why", "why", fold=True),
    )
    rows = [
        {
            "field": field,
            "value": _filled_in(entry),
            "runs": ", ".join(map(shown, entry.runs)) or "any",
            "tries": ", ".join(map(shown, entry.tries)) or "all that divide evenly",
            "why": entry.why,
        }
        for field, entry in preset.entries.items()
    ]
    return Table(columns, rows)


def _filled_in(entry: Entry) -> str:
    """Return the value or the expression of an entry as text."""
    return entry.value.text if isinstance(entry.value, Expression) else shown(entry.value)


def _preset_blocks(preset: Preset, table: Table) -> Iterator[Block]:
    """Yield a preset with its table of fields, its constraints, and the rules of practice."""
    yield f"{preset.title}\n{preset.framework} {preset.version}\nsources: {preset.source}"
    yield table
    for title, rules in (("must hold", preset.limits), ("in practice", preset.practice)):
        if rules:
            titles = title, "why"
            yield words_table(titles, [(rule.that.text, rule.why) for rule in rules], titles)
    if preset.uneven:
        rows = [(one.pp_layout, one.why) for one in preset.uneven]
        yield words_table(("uneven stages", "why"), rows, ("why",))
    if preset.since and not preset.month:
        dated = preset.kind is FRAMEWORKS
        several = (
            f"{preset.name}@MONTH or {preset.name}@YEAR" if dated else f"{preset.name}@RELEASE"
        )
        yield f"Earlier releases: {several}, from {preset.since} on"
        order = preset.kind.order
        changes = sorted(preset.changes, key=lambda one: order(one.before), reverse=True)
        earlier = [
            (one.before, field, _filled_in(entry), entry.why)
            for one in changes
            for field, entry in one.fields.items()
        ]
        columns = "before", "field", "filled in", "why"
        yield words_table(columns, earlier, ("filled in", "why"))
