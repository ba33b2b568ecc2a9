"""The process groups of an estimate: their networks, and bytes through the port of one rank in a step."""

from collections.abc import Mapping, Sequence
from typing import Any

from calculon.base.units import scaled
from calculon.declarations.axes import AXES
from calculon.render.document import Cell, Grid, Section, dim

REMARK = "ranks that work together, and bytes through the port of one"

TITLES = ("", "groups", "first ranks", "network", "members", "per step")

WORDS = {
    **{axis.kind: f"{axis.kind}-parallel" for axis in AXES},
    "shards": "data, shards",
    "copies": "data, copies",
    "expert data": "data, experts",
    "expert shards": "data, shards of experts",
    "expert copies": "data, copies of experts",
}


def groups_section(
    groups: Sequence[Mapping[str, Any]], domains: Sequence[Mapping[str, Any]] = ()
) -> Section | None:
    """Return the groups, and which processors stay idle; None for one rank alone."""
    if not groups:
        return None
    rows: list[tuple[Cell, ...]] = [(*map(dim, TITLES),)]
    for group in groups:
        named = WORDS[group["kind"]], f"{group['groups']:,}", str(group["example"])
        for place in group["networks"]:
            moved = scaled(place["bytes"], "B", digits=2) if place["bytes"] else "-"
            rows.append((*named, str(place["network"]), f"{place['members']:,}", moved))
            named = "", "", ""  # the same as above
    grid = Grid(("text", "right", "text", "right", "right", "right"), tuple(rows), heads=1)
    return Section("Groups", (grid, *map(_idle, domains)), REMARK)


def _idle(domain: Mapping[str, Any]) -> str:
    """Say how many processors of each network stay idle."""
    used, size, instances = domain["used"], domain["size"], domain["instances"]
    return (
        f"Each network {domain['network']} uses {used:,} of its {size:,} processors, so that all groups have equal "
        f"parts: {instances:,} of them, with {domain['idle']:,} idle processors, which are counted nowhere."
    )
