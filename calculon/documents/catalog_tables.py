"""Lists of ``calculon catalog``: models, systems, executions, presets and studies with their main properties."""

import re
from collections.abc import Callable, Mapping
from functools import partial
from operator import attrgetter
from typing import Any

from calculon.architecture.parameters import parameter_count
from calculon.base.units import GIB, GIGA, TERA, scaled
from calculon.campaign.read import read_campaign
from calculon.campaign.record import Campaign
from calculon.declarations import catalog
from calculon.declarations.axes import PUBLISHED_AXES
from calculon.declarations.fields import spec_fields
from calculon.declarations.files import read_document
from calculon.declarations.model import Model
from calculon.declarations.presets import FRAMEWORKS, PresetKind, find_preset
from calculon.declarations.spellings import catalog_words
from calculon.hardware.processor import Memory
from calculon.inputs import execution, model, system
from calculon.render.text_tables import Column, Table
from calculon.render.texts import bandwidth, capacity
from calculon.serving.records.engine_presets import ENGINE_PRESETS
from calculon.serving.records.load import Workload
from calculon.serving.records.read_records import read_deployment, read_workload


def _models() -> Table:
    """Return the models: parameters and shape; for programs also all other fields, family and aliases."""
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
    others = {field.key: "" for field in spec_fields(Model) if field.key not in shown}
    return _listed(
        shapes,
        (Column("family", for_people=False), lambda one: model_family(one.name)),
        (Column("parameters", "params", right=True, text=scaled), parameter_count),
        *_members(shown, right=True, text=_stated),
        *_members(others, for_people=False),
        (
            Column("aliases", for_people=False, text=", ".join),
            lambda one: aliases("model", one.name),
        ),
    )


def model_family(name: str) -> str:
    """Return the family of a model: the first word of its name.

    >>> model_family("llama3.1-405B"), model_family("qwen2.5-7B")
    ('llama', 'qwen')
    """
    return re.split(r"[^a-z]", name.lower(), maxsplit=1)[0]


def aliases(kind: str, name: str) -> list[str]:
    """Return the aliases of a file of the catalog."""
    return [*catalog_words.aliases(catalog.names(kind)[name])]


def _systems() -> Table:
    """Return the systems: peak rates, memory and networks; for programs also rates by type and all networks."""
    documents = {name: catalog.load("system", name)[1] for name in catalog.names("system")}
    return Table(
        (
            Column("name", "name"),
            Column("family", for_people=False),
            Column("tflops", "TFLOP/s", right=True, text=rate),
            Column("tflops_8bit", "8-bit", right=True, text=rate),
            Column("memory", "memory", right=True, text=lambda size: capacity(size * GIB)),
            Column("bandwidth", "GB/s", right=True, text=rate),
            Column("domain", for_people=False),
            Column("domain_text", "domain x GB/s"),
            Column("network_GBps", "net GB/s", right=True, text=rate),
            *(Column(key, for_people=False) for key in ("domain_GBps", "host_memory")),
            *(Column(key, for_people=False, text=_rates) for key in ("matrix_tflops",)),
            *(Column(key, for_people=False, text=_rates) for key in ("vector_tflops",)),
            *(Column(key, for_people=False, text=_tier) for key in ("mem1", "mem2")),
            Column("networks", for_people=False, text=_networks),
            Column("processing_mode", for_people=False),
            Column("aliases", for_people=False, text=", ".join),
        ),
        [_system_row(name, document) for name, document in documents.items()],
    )


def _system_row(name: str, document: object) -> dict[str, Any]:
    """Return the figures of a system: rates in TFLOP/s, memories in GiB, links in GB/s per direction."""
    machine = system(document if isinstance(document, Mapping) else name)
    matrix = {d: e.peak / TERA for d, e in machine.matrix.items()}
    first, *others = machine.networks
    networks = [
        {"size": n.size, "GBps": n.bandwidth / GIGA, "efficiency": n.efficiency}
        for n in machine.networks
    ]
    return {
        "name": name,
        "family": family_of(document),
        "tflops": max((r for d, r in matrix.items() if d in ("float16", "bfloat16")), default=0),
        "tflops_8bit": matrix.get("float8", 0),
        "memory": machine.mem1.capacity / GIB,
        "bandwidth": machine.mem1.bandwidth / GIGA,
        "domain": first.size,
        "domain_text": f"{first.size:,} x {rate(first.bandwidth / GIGA)}",
        "network_GBps": others[0].bandwidth / GIGA if others else 0,
        "domain_GBps": first.bandwidth / GIGA,
        "host_memory": machine.mem2.capacity / GIB,
        "matrix_tflops": matrix,
        "vector_tflops": {d: e.peak / TERA for d, e in machine.vector.items()},
        "mem1": _memory(machine.mem1),
        "mem2": _memory(machine.mem2),
        "networks": networks,
        "processing_mode": machine.mode,
        "aliases": aliases("system", name),
    }


def family_of(document: object) -> str:
    """Return the family that a system states, such as ``NVIDIA Hopper``; empty for systems of the published tool."""
    about = document.get("about") if isinstance(document, Mapping) else None
    return str(about.get("family", "")) if isinstance(about, Mapping) else ""


def _listed(records: Mapping[str, Any], *columns: tuple[Column, Callable[[Any], Any]]) -> Table:
    """Return a row for each record: its name, and the values of the columns."""
    rows = [
        {"name": name, **{column.key: value(one) for column, value in columns}}
        for name, one in records.items()
    ]
    return Table((Column("name", "name"), *(column for column, _ in columns)), rows)


def _members(titles: Mapping[str, str], **look: Any) -> list[tuple[Column, Callable[[Any], Any]]]:
    """Return columns for members of the records, with titles and other properties."""
    return [(Column(key, title, **look), attrgetter(key)) for key, title in titles.items()]


def _about(document: Any) -> str:
    """Return the description of a document."""
    return str(document.get("about", "")) if isinstance(document, Mapping) else ""


ABOUT = (Column("about", "about", fold=True), lambda one: _about(one.document))


def _executions() -> Table:
    """Return the executions: split, batch and mode."""
    numbers = {
        "num_procs": "procs",
        **{axis.degree: axis.name.upper() for axis in PUBLISHED_AXES},
    }
    return _listed(
        {name: execution(name) for name in catalog.names("execution")},
        *_members(numbers, right=True),
        *_members({"batch_size": "batch", "microbatch_size": "micro"}, right=True),
        *_members({"datatype": "datatype", "activation_recompute": "recompute"}),
    )


def _presets(kind: PresetKind = FRAMEWORKS) -> Table:
    """Return the presets of a kind: framework or engine, version, and description."""
    titles = {"framework": "framework", "version": "version", "title": "description"}
    found = {name: find_preset(name, kind) for name in kind.names}
    return _listed(found, *_members(titles, fold=True))


def _studies() -> Table:
    """Return the studies with their descriptions."""
    documents = {name: read_document(str(path)) for name, path in catalog.names("study").items()}
    return _listed(documents, (Column("about", "about"), _about))


def _campaigns() -> Table:
    """Return the campaigns: tokens, ramps, and descriptions."""

    def length(one: Campaign) -> str:
        stated = (one.document[key] for key in ("tokens", "loss", "steps") if key in one.document)
        return str(next(stated, ""))

    def ramps(one: Campaign) -> str:
        return ", ".join(key for key in ("batch_ramp", "seq_ramp") if key in one.document)

    return _listed(
        {name: read_campaign(name) for name in catalog.names("campaign")},
        (Column("tokens", "tokens", right=True), length),
        (Column("phases", "phases", right=True), lambda one: len(one.phases) or 1),
        (Column("ramps", "ramps"), ramps),
        ABOUT,
    )


def _deployments() -> Table:
    """Return the deployments: replicas, split, types, and descriptions."""
    split = {key: key for key in ("replicas", "tensor_par", "pipeline_par")}
    return _listed(
        {name: read_deployment(name) for name in catalog.names("deployment")},
        (Column("processors", "processors", right=True), attrgetter("num_procs")),
        *_members(split, right=True),
        (Column("weights", "weights"), attrgetter("weights_dtype")),
        (Column("cache", "cache"), attrgetter("kv_dtype")),
        ABOUT,
    )


def _workloads() -> Table:
    """Return the workloads: lengths, load, and descriptions."""

    def load(one: Workload) -> str:
        known = {"rate": f"{one.rate} requests/s", "users": f"{one.users} users"}
        return known.get(one.kind, one.kind)

    return _listed(
        {name: read_workload(name) for name in catalog.names("workload")},
        *_members({"prompt": "prompt", "output": "output"}, right=True),
        (Column("load", "load"), load),
        ABOUT,
    )


TABLES: dict[str, Callable[[], Table]] = {
    "models": _models,
    "systems": _systems,
    "executions": _executions,
    "presets": _presets,
    "engines": partial(_presets, ENGINE_PRESETS),
    "studies": _studies,
    "campaigns": _campaigns,
    "deployments": _deployments,
    "workloads": _workloads,
}
SINGULAR = dict(zip(TABLES, catalog.FOLDERS, strict=True))


def _stated(number: int) -> str:
    """Write a number; empty if it is 0, the default."""
    return f"{number:,}" if number else ""


def _memory(memory: Memory) -> dict[str, float]:
    return {"GiB": memory.capacity / GIB, "GBps": memory.bandwidth / GIGA}


def _tier(tier: Mapping[str, float]) -> str:
    return f"{capacity(tier['GiB'] * GIB)}\n{bandwidth(tier['GBps'] * GIGA)}"


def _rates(rates: Mapping[str, float]) -> str:
    return "\n".join(f"{rate:g} {datatype}" for datatype, rate in rates.items())


def _networks(networks: list[dict[str, Any]]) -> str:
    return "\n".join(f"{n['size']:,} at {bandwidth(n['GBps'] * GIGA)}" for n in networks)


def rate(value: float) -> str:
    """Write a data sheet figure; empty for 0.

    >>> rate(1979), rate(83.55), rate(0)
    ('1,979', '83.5', '')
    """
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}" if value else ""
