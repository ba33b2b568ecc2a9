"""``calculon describe``: reference tables of all fields, from their declarations."""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args, get_origin

from calculon.base.errors import Problem, SpecError, nearest
from calculon.base.records import columns
from calculon.cli.options import Log, Parser, Suggested, add_format
from calculon.declarations.fields import JSON_TYPES, Declaration, SpecField, shown, spec_fields
from calculon.declarations.files import json_text
from calculon.declarations.lists_of_counts import ListsOfCounts
from calculon.declarations.module_sets import ModuleSets
from calculon.declarations.named_values import CORRECTED
from calculon.declarations.overlay import BASE, HELP
from calculon.declarations.run_figures import CampaignFigures
from calculon.declarations.schema import schema
from calculon.declarations.serving_figures import ServingFigures
from calculon.render.text_tables import FORMATS, Column, Table

SPECS = ("execution", "model", "system", "campaign", "deployment", "workload")
RESULTS = ("stats", "layers", "figures", "serving")
ALL = "all"
"""Marks a statistic that every edition has."""

_FIGURES = {"figures": CampaignFigures, "serving": ServingFigures}

_OVERLAY = {
    kind: ({"field": BASE, "takes": "text; optional", "unit": "", "description": words},)
    for kind, words in HELP.items()
}
"""Fields that exist only in overlays."""

_FOLDED = ("takes", "value", "description", "source")
_TITLES = {"source": "default from"}

_WORDS = {int: "integer", float: "number", bool: "true, false", str: "text"}


def configure(parser: Parser) -> None:
    """Declare the arguments."""
    parser.explain(
        "Explain every statistic of an estimate, or every field of a spec file; or one of them by its name. "
        "--format schema prints the JSON Schema of a spec, with which editors complete and check files.",
        "calculon describe stats\n"
        "calculon describe execution --format markdown\n"
        "calculon describe zero_stage\n"
        "calculon describe campaign\n"
        "calculon describe system --format schema > system.schema.json",
    )
    parser.argument(
        "SUBJECT",
        "stats (statistics), layers (members of a layer), figures (of a whole training run), "
        "serving (figures of a deployment), a spec ("
        + ", ".join(SPECS)
        + "), or the name of one field",
        choices=Suggested((*RESULTS, *SPECS)),
    )
    add_format(parser, (*FORMATS, "schema"), "default: text")


def run(arguments: argparse.Namespace, log: Log) -> int:
    """Print the reference of one subject."""
    subject, form = arguments.subject, arguments.format
    if form == "schema":
        if subject not in SPECS:
            wanted = "one of " + ", ".join(SPECS)
            raise SpecError("describe --format schema", Problem("", wanted, repr(subject)))
        log(json_text(schema(_spec(subject))))
        return 0
    log.table(_table(subject) if subject in (*RESULTS, *SPECS) else _named(subject), form)
    return 0


def _table(subject: str) -> Table:
    """Return all rows of a subject."""
    return _results(subject) if subject in RESULTS else _fields(subject)


def _named(name: str) -> Table:
    """Look up a statistic, a member of a layer or a field by its full name, or by the last part of its path."""
    known = [
        {"of": subject, "name": row.get("field") or row["name"], "takes": "", "source": "", **row}
        for subject in (*RESULTS, *SPECS)
        for row in _table(subject).rows
    ]
    found = [row for row in known if row["name"] == name or row["name"].endswith(f".{name}")]
    if not found:
        names = [*RESULTS, *SPECS, *(row["name"] for row in known)]
        hint = nearest(name, names) or "calculon describe --help lists subjects"
        wanted = "a subject, or the name of a statistic or field"
        raise SpecError("describe", Problem("", wanted, repr(name), hint))
    fields = [row["source"] for row in found if row["of"] in SPECS]
    sources = ("source",) if any(fields) else ()
    return _listed(("of", "name", "takes", "unit", "description", *sources), found)


def _results(subject: str) -> Table:
    """Return a table of the statistics, the figures of a run, or the members of a layer."""
    if subject == "stats":
        from calculon.declarations.statistics import BOUNDS, CorrectedStats, Stats

        published = {column.name for column in columns(Stats)}
        rows = [
            row | {"edition": ALL if row["name"] in published else CORRECTED}
            for row in _columns(CorrectedStats)
        ]
        common = {"source": "", "edition": CORRECTED}
        rows += [
            {"name": name, "description": text, "unit": "s", **common}
            for name, text in BOUNDS.items()
        ]
    elif subject in _FIGURES:
        rows = _columns(_FIGURES[subject])
    else:
        from calculon.estimate.layer_list import LayerStats

        own = {"name": "name", "unit": "", "description": "the layer", "source": "2.1"}
        rows = [own, *_columns(LayerStats)]
    edition = Column("edition", "edition", text=lambda name: "" if name == ALL else str(name))
    return Table(
        (
            Column("name", "name"),
            Column("unit", "unit"),
            Column("description", "description", fold=True),
            *((edition,) if subject == "stats" else ()),
            Column("source", for_people=False),
        ),
        rows,
    )


def _columns(record: type) -> list[dict[str, str]]:
    """Return the columns of a record."""
    return [
        {"name": c.name, "unit": c.unit.symbol, "description": c.help, "source": c.source}
        for c in columns(record)
    ]


def _fields(subject: str) -> Table:
    """Return a table of the fields of a spec."""
    rows = [*_rows(_spec(subject), ""), *_OVERLAY.get(subject, ())]
    sources = ("source",) if any(row.get("source") for row in rows) else ()
    return _listed(("field", "takes", "unit", "description", *sources), rows)


def _listed(keys: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return texts by key as a table; long columns are folded."""
    columns = (Column(key, _TITLES.get(key, key), fold=key in _FOLDED) for key in keys)
    return Table(tuple(columns), rows)


def _spec(subject: str) -> type:
    """Return the record class of a kind of spec."""
    from calculon.campaign.record import Campaign
    from calculon.declarations.execution import Execution
    from calculon.declarations.model import Model
    from calculon.hardware.system import System
    from calculon.serving.records.deployment import Deployment
    from calculon.serving.records.load import Workload

    kinds: dict[str, type] = {
        "execution": Execution,
        "model": Model,
        "system": System,
        "campaign": Campaign,
        "deployment": Deployment,
        "workload": Workload,
    }
    return kinds[subject]


def _rows(cls: type, path: str) -> Iterator[dict[str, str]]:
    """Yield the fields of a record class and of the records nested in it."""
    for field in spec_fields(cls):
        inner, suffix = _inside(field.annotation)
        yield {
            "field": path + field.key,
            "takes": _takes(field),
            "unit": field.declaration.unit,
            "description": field.declaration.help,
            "source": field.declaration.source,
        }
        if inner is not None:
            yield from _rows(inner, f"{path}{field.key}{suffix}.")


def _inside(kind: Any) -> tuple[type | None, str]:
    """Return the record class nested in a field, and the suffix that its key gets in paths."""
    if kind in _WORDS or hasattr(kind, "schema"):
        return None, ""
    if get_origin(kind) is dict:
        return get_args(kind)[1], ".*"
    return (get_args(kind)[0], "[]") if get_origin(kind) is tuple else (kind, "")


def _takes(field: SpecField) -> str:
    """Return the values that a field accepts, and its default."""
    # The values come first, since readers look for them; defaults are in the unit of the file.
    values = _values(field.annotation, field.declaration)
    if not field.declaration.optional:
        return values
    default = field.default
    numeric = isinstance(default, float)  # times are floats too, although they also accept words
    if default in (None, "") or (field.annotation not in JSON_TYPES and not numeric):
        return f"{values}; optional"
    if numeric:
        return f"{values}; default {default / field.declaration.scale:g}"
    return f"{values}; default {default if field.annotation is str else shown(default)}"


def _values(kind: Any, declaration: Declaration) -> str:  # noqa: PLR0911 (one return a kind)
    """Return the values of a field: its type and limits, or its choices."""
    if get_origin(kind) is dict:
        return "object with " + ", ".join(declaration.choices)
    if isinstance(declaration.choices, (ListsOfCounts, ModuleSets)):
        return declaration.choices.wanted
    if declaration.choices:
        return ", ".join(declaration.choices)
    if kind in _WORDS:
        limits = (
            (">", declaration.above),
            (">=", declaration.at_least),
            ("<", declaration.below),
            ("<=", declaration.at_most),
        )
        words = (f"{sign} {limit:g}" for sign, limit in limits if limit is not None)
        return " ".join((_WORDS[kind], ", ".join(words))).strip()
    if wanted := getattr(kind, "WANTED", ""):
        return str(wanted)
    if hasattr(kind, "schema"):
        # A type with its own JSON Schema accepts several forms, which are summarized from the schema.
        own = kind.schema()
        if "type" not in own:
            return "anything"
        if own["type"] == "array":
            columns = own["items"].get("minItems")
            return {None: "list of counts", 3: "list of triples"}.get(columns, "list of pairs")
        if "required" not in own:
            return " or ".join("text" if one == "string" else one for one in own["type"])
        return "object with " + ", ".join(own["required"])
    return "list of objects" if get_origin(kind) is tuple else "object"
