"""``calculon catalog``: what is shipped, with the figures that tell specs apart."""

import argparse
import json
from collections.abc import Callable, Mapping
from typing import Any

from calculon.apps.cli.options import Log, Parser
from calculon.apps.report.text_tables import FORMATS, Column, Table
from calculon.apps.report.texts import bandwidth, capacity
from calculon.architecture.parameters import parameter_count
from calculon.errors import Problem, SpecError
from calculon.hardware.memory import Memory
from calculon.inputs import execution, model, system
from calculon.spec import catalog
from calculon.spec.fields import spec_fields
from calculon.spec.files import read_document
from calculon.spec.model import Model
from calculon.units import GIB, GIGA, TERA, scaled


def configure(parser: Parser) -> None:
    """Declare the arguments."""
    parser.explain(
        "List the models, systems, executions and studies that come with calculon. Their names stand for their\n"
        "files in every command.",
        "calculon catalog\ncalculon catalog models --format csv",
    )
    parser.add_argument(
        "kind",
        metavar="KIND",
        nargs="?",
        choices=tuple(TABLES),
        help=f"list only these: {', '.join(TABLES)} (default: everything)",
    )
    parser.add_argument("-f", "--format", choices=FORMATS, default="text", help="default: text")


def run(arguments: argparse.Namespace, log: Log) -> int:
    """Print one table, or all of them."""
    kind, form = arguments.kind, arguments.format
    if kind is not None:
        log.table(TABLES[kind](), form)
    elif form == "csv":
        wanted = "one of " + ", ".join(TABLES)
        hint = "each is a table of its own: calculon catalog models --format csv"
        raise SpecError("KIND", Problem("", f"{wanted} for --format csv", "nothing", hint))
    elif form == "json":
        log(json.dumps({name: table().records() for name, table in TABLES.items()}, indent=2))
    else:
        for i, (name, table) in enumerate(TABLES.items()):
            title = f"## {name.capitalize()}\n" if form == "markdown" else name.capitalize()
            log(f"\n{title}" if i else title)
            log.table(table(), form)
    return 0


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
                "processing_mode": machine.processing_mode,
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


TABLES: dict[str, Callable[[], Table]] = {
    "models": _models,
    "systems": _systems,
    "executions": _executions,
    "studies": _studies,
}


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
