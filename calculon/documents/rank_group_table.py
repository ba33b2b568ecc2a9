"""Table of the process groups of an estimate: networks, and bytes per step through the port of a rank."""

from collections.abc import Mapping, Sequence
from typing import Any

from calculon.base.units import scaled
from calculon.declarations.axes import AXES
from calculon.render.document import Cell, Grid, Section, dim

REMARK = "process groups, and bytes through the port of a rank"

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
    """Return the process groups, and the idle processors; None for a single rank."""
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
    """Return the number of idle processors in each network."""
    used, size, instances = domain["used"], domain["size"], domain["instances"]
    return (
        f"Each network {domain['network']} uses {used:,} of its {size:,} processors, so that all groups have equal "
        f"parts: {instances:,} of them, with {domain['idle']:,} idle processors, which are not counted."
    )
