"""``calculon catalog``: the specs that are shipped, with the figures that tell them apart; or one of them."""

import argparse
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, groupby
from typing import Any

from calculon.apps.cli.commands import describe
from calculon.apps.cli.options import Log, Parser, Suggested
from calculon.apps.report.text_tables import FORMATS, Column, Table, plain
from calculon.apps.report.texts import bandwidth, capacity
from calculon.architecture.parameters import parameter_count
from calculon.errors import Problem, SpecError, nearest
from calculon.expression import Expression
from calculon.hardware.memory import Memory
from calculon.inputs import execution, model, system
from calculon.presets import find_preset
from calculon.presets import plain as shown
from calculon.spec import catalog
from calculon.spec.execution import PRESETS
from calculon.spec.fields import spec_fields
from calculon.spec.files import json_text, read_document
from calculon.spec.model import Model
from calculon.units import GIB, GIGA, TERA, scaled


def configure(parser: Parser) -> None:
    """Declare the arguments."""
    parser.explain(
        "List the models, systems, executions, presets of frameworks and studies that come with calculon, or show "
        "one of them. Their names can be used in place of their files in every command.",
        "calculon catalog\n"
        "calculon catalog models llama3 qwen\n"
        "calculon catalog h100_80g_sxm\n"
        "calculon catalog megatron-lm\n"
        "calculon catalog systems --format csv",
    )
    parser.add_argument(
        "words",
        metavar="WORD",
        nargs="*",
        choices=Suggested(TABLES),
        help=f"list only one kind ({', '.join(TABLES)}) or names that have one of the words in them; a whole name "
        "shows that one",
    )
    parser.add_argument("-f", "--format", choices=FORMATS, default="text", help="default: text")


def run(arguments: argparse.Namespace, log: Log) -> int:
    """Print one spec, one table, or all of them."""
    words, form = arguments.words, arguments.format
    if len(words) == 1 and (found := _kind_of(words[0])):
        _show(found, words[0], form, log)
        return 0
    kind = words[0] if words and words[0] in tuple(TABLES) else None
    words = words[1:] if kind else words
    tables = {
        name: _chosen(table(), words) for name, table in TABLES.items() if kind in (None, name)
    }
    if words and not any(table.rows for table in tables.values()):
        known = [name for one in tables for name in catalog.names(SINGULAR[one])]
        hint = nearest(words[0], [*TABLES, *known])
        raise SpecError("KIND", Problem("", _WANTED, " ".join(words), hint))
    if words:
        tables = {name: table for name, table in tables.items() if table.rows}
    if form == "csv" and len(tables) > 1:
        hint = "each is a table of its own: calculon catalog models --format csv"
        wanted = "one of " + ", ".join(TABLES)
        raise SpecError("KIND", Problem("", f"{wanted} for --format csv", "nothing", hint))
    if form == "json":
        records = {name: table.records() for name, table in tables.items()}
        log(json_text(records if kind is None else records[kind]))
        return 0
    for i, (name, table) in enumerate(tables.items()):
        if kind is None:
            title = f"## {name.capitalize()}\n" if form == "markdown" else name.capitalize()
            log(f"\n{title}" if i else title)
        shown, aside = _set_aside(table) if form == "text" and not words else (table, [])
        log.table(shown, form)
        if aside:
            log(f"for tests, of parts of a model: {', '.join(aside)}")
    return 0


def _chosen(table: Table, words: Sequence[str]) -> Table:
    """Return the rows whose name has one of some words in it, in either case; without words all."""
    rows = [
        row
        for row in table.rows
        if not words or any(word.lower() in row["name"].lower() for word in words)
    ]
    return replace(table, rows=rows)


def _set_aside(table: Table) -> tuple[Table, list[str]]:
    """Return a table without parts of models, which are for tests, and without their executions; and their names."""
    parts = tuple(name for name in catalog.names("model") if model(name).part != "block")
    aside = [row["name"] for row in table.rows if row["name"].partition("_")[0] in parts]
    return replace(table, rows=[row for row in table.rows if row["name"] not in aside]), aside


def _kind_of(name: str) -> str | None:
    """Return the kind of spec that the catalog has by a name."""
    return next((kind for kind in SINGULAR.values() if name in catalog.names(kind)), None)


def _show(kind: str, name: str, form: str, log: Log) -> None:
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
    log.table(_leaves(kind, document), form)


def _show_system(document: Mapping[str, Any], log: Log) -> None:
    """Print the values of a system, then where they come from and how far its laws are from measured kernels.

    A law with its constants is one line; one of another type that is equal is named.
    """
    about = document.get("about") or {}
    values = {key: one for key, one in _without_repeats(document).items() if key != "about"}
    fields = [row for row in _leaves("system", values).rows if not _RATES.match(row["field"])]
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
        scores = [Column(key, f"{key} %", right=True, text=_percent) for key in _SCORES]
        columns = [Column("of", "kernels that no fit saw"), Column("n", "n", right=True), *scores]
        log("\nHow far the laws are from them:")
        rows = [{"of": of, **errors} for of, errors in kernels.items()]
        log.table(Table(tuple(columns), rows), "text")


def _with_unit(row: Mapping[str, Any]) -> str:
    return f"{plain(row['value'])} {row['unit']}".rstrip()


def _percent(error: float) -> str:
    return f"{error:.1f}"


def _leaves(kind: str, document: object) -> Table:
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


def _models() -> Table:
    """List the models: parameters and shape; every other field for programs."""
    shapes = {name: model(name) for name in catalog.names("model")}
    shown = {
        "hidden": "hidden",
        "num_blocks": "blocks",
        "attn_heads": "heads",
        "kv_heads": "kv",
        "feedforward": "ffn",
        "vocab": "vocab",
        "seq_size": "seq",
    }
    others = [field.key for field in spec_fields(Model) if field.key not in shown]
    return Table(
        (
            Column("name", "name"),
            Column("parameters", "parameters", right=True, text=scaled),
            *(Column(key, title, right=True, text=_stated) for key, title in shown.items()),
            *(Column(key, for_people=False) for key in others),
        ),
        [
            {"name": name, "parameters": parameter_count(shape)}
            | {key: getattr(shape, key) for key in (*shown, *others)}
            for name, shape in shapes.items()
        ],
    )


def _systems() -> Table:
    """List the systems: peak rates, memory and networks."""
    machines = {name: system(name) for name in catalog.names("system")}
    return Table(
        (
            Column("name", "name"),
            Column("matrix_tflops", "matrix TFLOP/s", text=_rates),
            Column("vector_tflops", "vector TFLOP/s", text=_rates, for_people=False),
            Column("mem1", "tier 1", text=_tier),
            Column("mem2", "tier 2", text=_tier),
            Column("networks", "networks", text=_networks),
            Column("processing_mode", "arithmetic and memory time", for_people=False),
        ),
        [
            {
                "name": name,
                "matrix_tflops": {d: e.peak / TERA for d, e in machine.matrix.items()},
                "vector_tflops": {d: e.peak / TERA for d, e in machine.vector.items()},
                "mem1": _memory(machine.mem1),
                "mem2": _memory(machine.mem2),
                "networks": [
                    {"size": n.size, "GBps": n.bandwidth / GIGA, "efficiency": n.efficiency}
                    for n in machine.networks
                ],
                "processing_mode": machine.mode,
            }
            for name, machine in machines.items()
        ],
    )


def _executions() -> Table:
    """List the executions: split, batch and mode."""
    plans = {name: execution(name) for name in catalog.names("execution")}
    fields = {
        "num_procs": "procs",
        "tensor_par": "TP",
        "pipeline_par": "PP",
        "data_par": "DP",
        "batch_size": "batch",
        "microbatch_size": "micro",
        "datatype": "datatype",
        "activation_recompute": "recompute",
    }
    words = ("datatype", "activation_recompute")
    own = (Column(key, title, right=key not in words) for key, title in fields.items())
    return Table(
        (Column("name", "name"), *own),
        [
            {"name": name} | {key: getattr(plan, key) for key in fields}
            for name, plan in plans.items()
        ],
    )


def _presets() -> Table:
    """List the presets: framework, version, and what each describes."""
    found = [find_preset(name) for name in PRESETS]
    return Table(
        (
            Column("name", "name"),
            Column("framework", "framework", fold=True),
            Column("version", "version", fold=True),
            Column("title", "what it is", fold=True),
        ),
        [
            {"name": p.name, "framework": p.framework, "version": p.version, "title": p.title}
            for p in found
        ],
    )


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
    if form == "text" and preset.uneven:
        uneven = [{"pp_layout": one.pp_layout, "why": one.why} for one in preset.uneven]
        log("")
        columns = Column("pp_layout", "uneven stages"), Column("why", "why", fold=True)
        log.table(Table(columns, uneven), form)


def _studies() -> Table:
    """List the studies: what each is about."""
    documents = {name: read_document(str(path)) for name, path in catalog.names("study").items()}
    return Table(
        (Column("name", "name"), Column("about", "about")),
        [
            {"name": name, "about": raw.get("about", "") if isinstance(raw, Mapping) else ""}
            for name, raw in documents.items()
        ],
    )


_LONGEST = 60  # characters of a list
_RATES = re.compile(r"ext\.(kernels\.[^.]+\.[^.]+|networks\[\d+\]\.operations\.)")
_FIELDS = tuple(Column(key, key, fold=key != "field") for key in ("field", "value", "description"))
_TOLD = ("sources", "assumed", "kernels")
_SCORES = ("median", "p90", "bias")
_WANTED = (
    "a kind (models, systems, executions, presets, studies), a name of the catalog or a part of one"
)

TABLES: dict[str, Callable[[], Table]] = {
    "models": _models,
    "systems": _systems,
    "executions": _executions,
    "presets": _presets,
    "studies": _studies,
}
SINGULAR = dict(zip(TABLES, catalog.FOLDERS, strict=True))


def _stated(number: int) -> str:
    """Write a number that is 0 where nothing was stated."""
    return f"{number:,}" if number else ""


def _memory(memory: Memory) -> dict[str, float]:
    return {"GiB": memory.capacity / GIB, "GBps": memory.bandwidth / GIGA}


def _tier(tier: Mapping[str, float]) -> str:
    return f"{capacity(tier['GiB'] * GIB)}\n{bandwidth(tier['GBps'] * GIGA)}"


def _rates(rates: Mapping[str, float]) -> str:
    return "\n".join(f"{rate:g} {datatype}" for datatype, rate in rates.items())


def _networks(networks: list[dict[str, Any]]) -> str:
    return "\n".join(f"{n['size']:,} at {bandwidth(n['GBps'] * GIGA)}" for n in networks)
