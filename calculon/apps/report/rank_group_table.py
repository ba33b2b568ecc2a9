"""The process groups of an estimate: their networks, and bytes through the port of one rank in a step."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from calculon.apps.report.texts import heading
from calculon.spec.axes import AXES
from calculon.units import scaled

REMARK = "ranks that work together, and bytes through the port of one"

TITLES = ("", "groups", "first ranks", "network", "members", "per step")

NUMBERS = (False, True, False, True, True, True)
"""Which columns are numbers."""

WORDS = {
    **{axis.kind: f"{axis.kind}-parallel" for axis in AXES},
    "shards": "data, shards",
    "copies": "data, copies",
}


def groups_section(groups: Sequence[Mapping[str, Any]]) -> Iterator[RenderableType]:
    """Yield heading and table, unless there is one rank alone."""
    if not groups:
        return
    table = Table.grid(padding=(0, 2))
    for number in NUMBERS:
        table.add_column(justify="right" if number else "left", no_wrap=number)
    table.add_row(*(Text(title, "dim") for title in TITLES))
    for group in groups:
        named = WORDS[group["kind"]], f"{group['groups']:,}", str(group["example"])
        for place in group["networks"]:
            moved = scaled(place["bytes"], "B", digits=2) if place["bytes"] else "-"
            table.add_row(*named, str(place["network"]), f"{place['members']:,}", moved)
            named = "", "", ""  # the same as above
    yield Text()
    yield heading("Groups", REMARK)
    yield Padding(table, (0, 0, 0, 2))
