"""``calculon catalog show``: one page about a model, system, execution, preset or study."""

import re
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

from calculon.architecture.parameters import (
    active_count,
    computing_count,
    module_count,
    parameter_count,
)
from calculon.base.units import GIB, GIGA, scaled
from calculon.cli.catalog_pages import kernels_table, leaves, show_document
from calculon.cli.options import Log
from calculon.declarations import catalog
from calculon.declarations.files import json_text, read_document
from calculon.declarations.overlay import BASE
from calculon.declarations.spellings.catalog_words import aliases
from calculon.declarations.statistics import MEMORIES
from calculon.documents.catalog_tables import family_of, model_family, rate
from calculon.inputs import model
from calculon.render.document import Block, Document
from calculon.render.text_tables import Column, Table, words_table
from calculon.render.texts import bandwidth, capacity

_LAWS = re.compile(r"ext\.(kernels\.\w+|traffic|launch|networks\[[\d*]+\]\.operations)\b")
"""System extensions that describe the speed of kernels and collectives."""

Levels = tuple[tuple[str, Mapping[str, Any]], ...]
"""A system document and the base documents it overlays, each with its name, the overlay first."""

_MEASURED = re.compile(r"\b(measured|fitted|smallest|median)\b")


def show(kind: str, name: str, form: str, log: Log) -> None:
    """Print one page about a catalog document; in other formats its figures or the document itself."""
    if kind not in ("model", "system") or form in ("csv", "markdown"):
        show_document(kind, name, form, log, drawn=True)
        return
    document: Any = catalog.load(kind, name)[1]
    about = document.get("about") or {}
    facts = _facts(kind, name, document)
    figures = list(_figures(document, _levels(name)) if kind == "system" else _shape(document))
    if form == "json":
        told = {key: about.get(key) or {} for key in ("assumed", "kernels")}
        told = {"assumed": told["assumed"] or [], "measured": told["kernels"]}
        log(json_text({"name": name, "kind": kind} | facts | {"figures": figures} | told))
        return
    last = "source" if kind == "system" else "meaning"
    columns = Column("figure", "figure"), Column("value", "value"), Column(last, last, fold=True)
    parts = ["\n".join(_heading(kind, name, facts)), Table(columns, figures)]
    laws = _laws_blocks(about, name, _levels(name)) if kind == "system" else ()
    log.show(Document("", parts=(*parts, *laws)))


def _facts(kind: str, name: str, document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts that a file states about its document, apart from the figures."""
    path = catalog.names(kind)[name]
    raw, about = read_document(str(path)), document.get("about") or {}
    facts: dict[str, Any] = {
        "file": str(path),
        "family": family_of(document) if kind == "system" else model_family(name),
        "aliases": dict(aliases(path)),
    }
    if isinstance(raw, Mapping) and BASE in raw:
        facts["overlay_of"] = raw[BASE]
        facts["changes"] = [key for key in raw if key not in (BASE, "about")]
    if kind == "model":
        shape = model(name)
        facts["parameters"] = parameter_count(shape)
        if shape.has_experts:
            facts["active_parameters"] = active_count(shape)
            facts["active_parameters_without_embedding"] = computing_count(shape)
        if shape.mtp_layers:
            facts["mtp_parameters"] = module_count(shape)
        if isinstance(about.get("parameters"), str):
            facts["published_parameters"] = about["parameters"]
        facts |= {key: about[key] for key in ("source", "note") if key in about}
    return facts


def _heading(kind: str, name: str, facts: Mapping[str, Any]) -> Iterator[str]:
    """Yield the first lines of a page: name, aliases, and the values an overlay changes."""
    of = f" of the family {facts['family']}" if facts["family"] else ""
    count = f", {scaled(facts['parameters'])} parameters" if "parameters" in facts else ""
    if "active_parameters" in facts:
        active, computing = (
            facts[key] for key in ("active_parameters", "active_parameters_without_embedding")
        )
        less = f", {scaled(computing)} without the input embedding" if computing < active else ""
        count += f" ({scaled(active)} active{less})"
    if "mtp_parameters" in facts:
        count += f", {scaled(facts['mtp_parameters'])} more for multi-token prediction"
    yield f"{name}: a {kind}{of}{count}"
    yield f"file: {facts['file']}"
    if not facts["family"] and kind == "system":
        yield "origin: the published Calculon 0.1.0, unchanged; it states no sources"
    if facts["aliases"]:
        names = (f"{one} ({why})" if why else one for one, why in facts["aliases"].items())
        yield f"also called: {', '.join(names)}"
    if "overlay_of" in facts:
        yield f"overlay of: {facts['overlay_of']}; changes {', '.join(facts['changes'])}"
    for key in ("published_parameters", "source", "note"):
        if key in facts:
            yield f"{key.replace('_', ' ')}: {facts[key]}"


def _shape(document: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    """Yield the fields of a model with their meanings."""
    values = {key: value for key, value in document.items() if key != "about"}
    for row in leaves("model", values).rows:
        value = row["value"]
        text = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else value
        yield {"figure": row["field"], "value": str(text), "meaning": row["description"]}


def _figures(document: Mapping[str, Any], levels: Levels) -> Iterator[dict[str, str]]:
    """Yield the figures of a system with value and source; data types with equal values share a row."""
    figures = [
        (figure, (value, _origin(path, levels))) for path, figure, value in _values(document)
    ]
    for (value, source), some in groupby(figures, key=lambda one: one[1]):
        first, *others = (figure for figure, _ in some)
        names = (one.removeprefix("matrix ").removeprefix("vector ") for one in others)
        yield {"figure": ", ".join((first, *names)), "value": value, "source": source}


def _levels(name: str) -> Levels:
    """Return a catalog system as written in its file, followed by the chain of systems it overlays."""
    # A name that repeats would be a cycle of overlays, which the decoder reports; here it only has to end.
    known, levels = catalog.names("system"), {}
    while name in known and name not in levels:
        raw = read_document(str(known[name]))
        if isinstance(raw, Mapping):
            levels[name] = raw
            name = str(raw.get(BASE, ""))
    return tuple(levels.items())


def _values(document: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield path, name and value of each data-sheet figure."""
    more = document.get("ext", {}).get("matrix", {})
    for part, engines in (
        ("matrix", document["matrix"]),
        ("ext.matrix", more),
        ("vector", document["vector"]),
    ):
        unit = "matrix" if "matrix" in part else "vector"
        for datatype, engine in engines.items():
            path = f"{part}.{datatype}.tflops"
            yield path, f"{unit} {datatype}", f"{rate(engine['tflops'])} TFLOP/s"
    for tier, memory in zip(MEMORIES, ("mem1", "mem2"), strict=True):
        yield f"{memory}.GiB", tier, capacity(document[memory]["GiB"] * GIB)
        yield f"{memory}.GBps", f"{tier}, rate", bandwidth(document[memory]["GBps"] * GIGA)
    for i, network in enumerate(document["networks"]):
        yield f"networks[{i}].size", f"network {i}", f"{network['size']:,} processors"
        yield (
            f"networks[{i}].bandwidth",
            f"network {i}, rate",
            bandwidth(network["bandwidth"] * GIGA),
        )


def _origin(path: str, levels: Levels) -> str:
    """Return the source or assumption that the stating file gives for a figure; empty if it gives none."""
    for above, (name, raw) in enumerate(levels):
        about = raw.get("about") or {}
        stated = [(paths, str(text)) for paths, text in about.get("sources", {}).items()]
        stated += [
            (line.partition(": ")[0], f"assumed: {line.partition(': ')[2]}")
            for line in about.get("assumed", [])
        ]
        if found := next((text for paths, text in stated if _covers(paths, path)), ""):
            return f"as {name}: {found}" if above else found
        # A level that overrides the value without naming a source must not inherit the source of its base.
        if _states(raw, path):
            return ""
    return ""


def _states(raw: Mapping[str, Any], path: str) -> bool:
    """Return True if a document has a value at a path, or a list that contains it."""
    for key, value in raw.items():
        rest = path.removeprefix(key)
        if path.startswith(key) and (not rest or rest[0] in ".["):
            return not rest or not isinstance(value, Mapping) or _states(value, rest[1:])
    return False


def _covers(paths: str, path: str) -> bool:
    """Return True if one of the comma-separated `paths`, in which ``*`` matches any text, matches a path.

    >>> _covers("mem1.GiB, matrix.*16.tflops", "matrix.bfloat16.tflops")
    True
    """
    patterns = (re.escape(one).replace(r"\*", ".*") for one in paths.split(", "))
    return any(re.fullmatch(pattern, path) for pattern in patterns)


def _laws_blocks(about: Mapping[str, Any], name: str, levels: Levels) -> Iterator[Block]:
    """Yield the laws fitted to measured kernels, their errors for held-out kernels, and the assumed values.

    Overlays replace lists of networks completely, so collective sources come from the file that states the list.
    """
    stating = (raw for _, raw in levels if _states(raw, "ext.networks"))
    links = next(stating, {}).get("about") or {}
    if laws := _laws(about, links):
        yield words_table(("measured", "from"), laws.items(), ("from",))
    kernels = {
        of: errors
        for of, errors in (about.get("kernels") or {}).items()
        if "kernels" in links or not of.startswith("collectives")
    }
    # A total over all kernels of a group replaces the groups that it contains.
    whole = tuple(of.removesuffix("all") for of in kernels if of.endswith(", all"))
    few = {of: kernels[of] for of in kernels if of.endswith(", all") or not of.startswith(whole)}
    if few:
        yield kernels_table(few)
    if assumed := [line.partition(": ")[0] for line in about.get("assumed", [])]:
        yield (f"Assumed (`calculon catalog {name}` explains why): {', '.join(assumed)}")


def _laws(about: Mapping[str, Any], links: Mapping[str, Any]) -> dict[str, str]:
    """Return the data that the kernel laws, and the collective laws of `links`, were fitted to, by kind."""
    stated = [one for one in about.get("sources", {}).items() if "networks" not in one[0]]
    stated += [one for one in links.get("sources", {}).items() if "networks" in one[0]]
    found: dict[str, dict[str, None]] = {}
    for paths, text in stated:
        law = _LAWS.match(paths)
        if law and _MEASURED.search(text):
            short = re.sub(
                r"(: |\(| of |, )?systems/measured.*", "", text.partition(", using the")[0]
            )
            short = short.strip()
            short = f"{short} measured collectives" if short == "fitted to" else short
            found.setdefault(law[1], {})[short] = None
    return {law: "; ".join(texts) for law, texts in found.items()}
