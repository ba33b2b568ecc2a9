"""``calculon catalog``: list the shipped specs with their main figures, or show one of them."""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace

from calculon.base.errors import Problem, SpecError, nearest
from calculon.cli.catalog_pages import show_document
from calculon.cli.catalog_show import show
from calculon.cli.options import Log, Parser, Suggested, add_format
from calculon.declarations import catalog
from calculon.declarations.files import json_text
from calculon.declarations.presets import AT, is_preset
from calculon.declarations.serving_classes import PRESET_ENGINES
from calculon.documents.catalog_rows import chosen, filtered
from calculon.documents.catalog_tables import SINGULAR, TABLES
from calculon.inputs import model
from calculon.render.text_tables import FORMATS, Table

SHOW = "show"
"""First word of a call that shows a single page."""

_WANTED = (
    "a kind (models, systems, executions, presets, engines, studies, campaigns, deployments, workloads), a name of the "
    "catalog or a part of one"
)


def configure(parser: Parser) -> None:
    """Declare the arguments."""
    parser.explain(
        "List the models, systems, executions, presets of frameworks and engines, studies and campaigns that come with "
        "calculon, or show one of them. Every command accepts their names in place of files.",
        "calculon catalog\n"
        "calculon catalog models llama3 qwen\n"
        "calculon catalog systems --family hopper\n"
        "calculon catalog systems --where 'memory >= 100 and domain == 72'\n"
        "calculon catalog show h100\n"
        "calculon catalog show llama-3.1-70b\n"
        "calculon catalog h100_80g_sxm\n"
        "calculon catalog systems --format csv",
    )
    parser.argument(
        "WORD",
        f"list only one kind ({', '.join(TABLES)}) or names that contain one of the words; show NAME prints "
        "one page, with the name in any usual spelling; a full name alone lists every field",
        "words",
        nargs="*",
        choices=Suggested((*TABLES, SHOW)),
    )
    parser.option(
        "--family TEXT",
        "only models or systems whose family contains this text, such as llama, nvidia or hopper",
    )
    parser.option(
        "--where EXPR",
        "only rows that meet a condition on the columns of --format csv, such as 'memory >= 100' (GiB), "
        "'tflops > 900 and network_GBps >= 50' or 'parameters < 10e9'",
    )
    add_format(parser, FORMATS, "default: text")


def run(arguments: argparse.Namespace, log: Log) -> int:
    """Print one spec, one table, or all of them."""
    words, form = arguments.words, arguments.format
    if words[:1] == [SHOW]:
        show(*_named(words[1:]), form, log)
        return 0
    if len(words) == 1 and (found := _kind_of(words[0])):
        show_document(found, words[0], form, log)
        return 0
    kind = words[0] if words and words[0] in tuple(TABLES) else None
    words = words[1:] if kind else words
    tables = {
        name: chosen(table(), words) for name, table in TABLES.items() if kind in (None, name)
    }
    if words and not any(table.rows for table in tables.values()):
        known = [name for one in tables for name in catalog.names(SINGULAR[one])]
        hint = nearest(words[0], [*TABLES, *known])
        raise SpecError("KIND", Problem("", _WANTED, " ".join(words), hint))
    tables = filtered(tables, arguments.family, arguments.where, "--")
    if words or arguments.family or arguments.where:
        tables = {name: table for name, table in tables.items() if table.rows or name == kind}
    if form == "csv" and len(tables) > 1:
        hint = "each kind is a separate table: calculon catalog models --format csv"
        wanted = "one of " + ", ".join(TABLES)
        raise SpecError("KIND", Problem("", f"{wanted} for --format csv", "nothing", hint))
    if form == "json":
        records = {name: table.records() for name, table in tables.items()}
        log(json_text(records if kind is None else records[kind]))
        return 0
    # Parts of models exist for tests; they would only distract in the full list, but a search may name them.
    apart = form == "text" and not words and not arguments.family
    parts = _parts_of_models() if apart else ()
    if kind is None and form == "text":
        log.show(_counts(tables))
        log("")
    for i, (name, table) in enumerate(tables.items()):
        if kind is None:
            title = f"## {name.capitalize()}\n" if form == "markdown" else name.capitalize()
            log(f"\n{title}" if i else title)
        shown = _without(parts, table)
        log.table(shown, form)
        if aside := len(table.rows) - len(shown.rows):
            log(f"and {aside} for tests, with a part of a model (--format csv)")
    return 0


def _counts(tables: Mapping[str, Table]) -> str:
    """Return the number of rows of each table in words, and the command that shows one of them."""
    sizes = {name: len(table.rows) for name, table in tables.items()}
    counts = (f"{size:,} {SINGULAR[name] if size == 1 else name}" for name, size in sizes.items())
    return f"{', '.join(counts)}; one kind: calculon catalog KIND, one page: catalog show NAME"


def _parts_of_models() -> tuple[str, ...]:
    """Return the names of model parts (attention or MLP alone), which exist for tests."""
    return tuple(name for name in catalog.names("model") if model(name).part != "block")


def _without(parts: tuple[str, ...], table: Table) -> Table:
    """Return a table without model parts and their executions."""
    rows = [row for row in table.rows if row["name"].partition("_")[0] not in parts]
    return replace(table, rows=rows)


def _kind_of(name: str) -> str | None:
    """Return the kind of spec that has this catalog name, or is a preset with a date; None if there is none."""
    if AT in name and is_preset(name):
        return "preset"
    if AT in name and name.partition(AT)[0] in PRESET_ENGINES:
        return "engine"
    return next((kind for kind in SINGULAR.values() if name in catalog.names(kind)), None)


def _named(words: Sequence[str]) -> tuple[str, str]:
    """Return kind and exact name of the spec that `words` name: exact name, or usual spelling.

    Raises:
        SpecError: If no spec, several specs, or specs of two kinds match.
    """
    text = " ".join(words)
    if not text:
        wanted = "the name of a model, system, execution, preset, engine, study, campaign, deployment or workload"
        raise SpecError("catalog show", Problem("", wanted, "nothing", "see: calculon catalog"))
    if kind := _kind_of(text):
        return kind, text
    refused: list[SpecError] = []
    found = []
    for kind in SINGULAR.values():
        try:
            name = catalog.exact(kind, text)
        except SpecError as error:
            refused.append(error)
            continue
        if name in catalog.names(kind):
            found.append((kind, name))
    if len(found) == 1:
        return found[0]
    several = next((one for one in refused if "matches" in one.found), None)
    specific = ("did you mean", "system: ")
    hints = [one.hint for one in refused if one.hint.startswith(specific)]
    if several and not found:
        raise several
    hint = "did you mean " + " or ".join(name for _, name in found) + "?" if found else ""
    hint = hint or (hints[0] if hints else "see: calculon catalog")
    raise SpecError("catalog show", Problem("", "a name of the catalog", repr(text), hint))
