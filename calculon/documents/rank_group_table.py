"""The process groups of an estimate: their networks, and bytes through the port of one rank in a step."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from calculon.base.units import scaled
from calculon.declarations.axes import AXES
from calculon.render.grids import grid, indented, styled
from calculon.render.texts import heading

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
) -> Iterator[RenderableType]:
    """Yield heading and table, and which processors stay idle, unless there is one rank alone."""
    if not groups:
        return
    table = grid("text", "right", "text", "right", "right", "right")
    table.add_row(*styled(TITLES, "dim"))
    for group in groups:
        named = WORDS[group["kind"]], f"{group['groups']:,}", str(group["example"])
        for place in group["networks"]:
            moved = scaled(place["bytes"], "B", digits=2) if place["bytes"] else "-"
            table.add_row(*named, str(place["network"]), f"{place['members']:,}", moved)
            named = "", "", ""  # the same as above
    yield Text()
    yield heading("Groups", REMARK)
    yield indented(table)
    for one in domains:
        used, size, instances = one["used"], one["size"], one["instances"]
        text = (
            f"Each network {one['network']} uses {used:,} of its {size:,} processors, so that all groups have equal "
            f"parts: {instances:,} of them, with {one['idle']:,} idle processors, which are counted nowhere."
        )
        yield indented(Text(text))
