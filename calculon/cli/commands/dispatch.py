"""``calculon dispatch``: time of MoE token dispatch (expert parallelism, all-to-all), by dispatcher."""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from calculon.base.errors import Infeasible, Problem, SpecError
from calculon.base.units import duration, scaled
from calculon.cli.changes import add_changes, with_changes
from calculon.cli.options import Log, Parser, add_format, log_machine, one_of, positive
from calculon.declarations.model import Model
from calculon.declarations.named_values import DATATYPE_BYTES
from calculon.hardware.collectives.algorithm_times import AUTO, group_time, group_volume
from calculon.hardware.collectives.dispatch import (
    LIBRARIES,
    SCALED_BYTES,
    Routing,
    engine_share,
    exchange_time,
    exchange_volume,
    has_ports,
)
from calculon.hardware.collectives.placement import Group, place
from calculon.hardware.system import System
from calculon.render.text_tables import FORMATS, Column, Table
from calculon.render.texts import counted, percent


def configure(parser: Parser) -> None:
    """Declare the arguments."""
    parser.explain(
        "Compare dispatchers that send tokens to the experts of a model, split among RANKS, and their results back: "
        "the time of one exchange, the bytes through each port of a rank, and the share of its compute engines "
        "that it occupies.\n\n"
        "allgather gives every rank all tokens; alltoall sends a row for each expert of a token; deepep and hybridep "
        "send one copy to each node that has an expert of the token, which forwards it to each such rank, at the rate "
        "that ext.ep_library of the system states. Experts are equally likely, chosen from router_group_topk of "
        "router_groups if the model has groups; --imbalance sets the load of the busiest rank.\n\n"
        "Ranks fill the first network of the system (a node) up to its size, then the next; --per-node changes that. "
        "float8 includes one 4-byte scale per 128 elements.",
        "calculon dispatch qwen3-235B-a22B 32 h800_80g_sxm\n"
        "calculon dispatch qwen3-235B-a22B 32 h100_80g_sxm --tokens 8192 --datatype float8\n"
        "calculon dispatch mixtral-8x7B 8 b200_sxm --format json",
    )
    parser.argument("MODEL", "a model with experts: a catalog name, a file, or -")
    parser.argument("RANKS", "ranks over which the experts are split", type=positive)
    parser.argument("SYS", "the system: a name of the catalog, a file, or -", "system")
    parser.option("-t, --tokens N", "tokens per rank (default: one sequence)", type=positive)
    parser.option(
        "-d, --datatype TYPE",
        f"datatype of the tokens: {', '.join(DATATYPE_BYTES)} (default: bfloat16)",
        type=one_of(*DATATYPE_BYTES),
        choices=tuple(DATATYPE_BYTES),
        default="bfloat16",
    )
    parser.option(
        "-i, --imbalance PERCENT",
        "rows of the busiest rank, in percent of the mean (default: 100)",
        type=positive,
        default=100,
    )
    parser.option("-g, --per-node G", "ranks in each node (default: as many as fit)", type=positive)
    add_changes(parser, "model", "system")
    add_format(parser, FORMATS, "format of the printed output (default: text)")


def run(arguments: argparse.Namespace, log: Log) -> int:
    """Print one row per dispatcher."""
    from calculon import inputs

    specs = with_changes(arguments.changes, model=arguments.model, system=arguments.system)
    model, system = inputs.model(specs["model"]), inputs.system(specs["system"])
    if not model.has_experts:
        problem = Problem("num_experts", "1 or more", str(model.num_experts), "MODEL needs experts")
        raise SpecError(model.name, problem)
    if model.num_experts % arguments.ranks:
        reason = f"{model.num_experts:,} experts of {model.name} are not split evenly among {arguments.ranks:,} ranks"
        raise Infeasible("experts_split", reason)
    if arguments.imbalance < 100:
        wanted = "at least 100, since the busiest rank has at least the mean"
        raise SpecError("--imbalance", Problem("", wanted, str(arguments.imbalance)))
    group = place(system, arguments.ranks, arguments.per_node)
    tokens = arguments.tokens or model.seq_size
    table = _table(model, system, group, tokens, arguments)
    if arguments.format == "text":
        log_machine(log, system)
        sent = f"{counted(tokens, 'token')} of each of {counted(arguments.ranks, 'rank')} of {system.name}"
        title = f"{sent}, {arguments.datatype},\nto {_routed(model)}"
        log.parts(title, replace(table, rows=_joined(table.rows)))
    else:
        log(table.written(arguments.format))
    return 0


def _routed(model: Model) -> str:
    """Describe how tokens choose their experts."""
    groups = f" in {model.router_group_topk:,} of {model.router_groups:,} groups"
    limited = groups if model.router_groups else ""
    return f"{model.experts_per_token:,} of {counted(model.num_experts, 'expert')}{limited}"


def _table(
    model: Model, system: System, group: Group, tokens: int, arguments: argparse.Namespace
) -> Table:
    """Return time, bytes on each network of the group, and occupied share of the engines, by dispatcher."""
    size = SCALED_BYTES if arguments.datatype == "float8" else DATATYPE_BYTES[arguments.datatype]
    # Latent MoE models send the down-projected hidden state.
    width = model.moe_latent or model.hidden
    row, imbalance = np.array(size * width), arguments.imbalance / 100
    routing, whole = Routing.of(model), np.array(float(arguments.ranks * tokens)) * size * width
    rows: list[dict[str, Any]] = []
    for name in ("allgather", "alltoall", *LIBRARIES):
        if not has_ports(system, name, group):
            # The cost model of a dispatcher needs port rates that not every system states; such rows are left out.
            continue
        if name == "allgather":
            time = group_time(system, "all_gather", whole, group, AUTO)
            moved = group_volume(system, "all_gather", whole, group, AUTO)
        else:
            asked = (system, name, tokens, row, routing, group)
            time = exchange_time(*asked, imbalance=imbalance)
            moved = exchange_volume(*asked, imbalance=imbalance)
        sent = {f"network_{i}_bytes": float(moved[i]) for i, used in enumerate(group.used) if used}
        share = float(engine_share(system, name, group))
        rows.append({"dispatcher": name, "seconds": float(time), "engine": share, **sent})
    networks = [key for key in rows[0] if key.endswith("_bytes")]
    columns = (
        Column("dispatcher", "dispatcher"),
        Column("seconds", "time", right=True, text=duration),
        Column("engine", "of the\nengines", right=True, text=percent),
        *(
            Column(key, f"bytes on\nnetwork {key.split('_')[1]}", right=True, text=_bytes)
            for key in networks
        ),
    )
    return Table(columns, rows)


def _joined(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Merge rows that differ only in the dispatcher into one row that names all their dispatchers."""
    names: dict[tuple[Any, ...], list[str]] = {}
    for row in rows:
        names.setdefault(tuple(row.items())[1:], []).append(row["dispatcher"])
    return [{"dispatcher": ", ".join(same), **dict(rest)} for rest, same in names.items()]


def _bytes(value: float) -> str:
    return scaled(value, "B")
