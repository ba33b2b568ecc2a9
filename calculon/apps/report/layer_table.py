"""The layers of a block on the page of an estimate: where its time goes, and what it keeps in memory."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from calculon.apps.report.bars import Bar, Share
from calculon.apps.report.texts import heading, percent

Layer = Mapping[str, Any]
WIDE = 120
"""Width from which a table also shows arithmetic, traffic and a bar."""

TIMES = ((1e-3, 1e6, "us"), (1.0, 1e3, "ms"), (float("inf"), 1.0, "s"))
SIZES = ((2.0**20, 2.0**-10, "KiB"), (2.0**30, 2.0**-20, "MiB"), (float("inf"), 2.0**-30, "GiB"))
COUNTS = (
    (1e9, 1e-6, "MFLOP"),
    (1e12, 1e-9, "GFLOP"),
    (float("inf"), 1e-12, "TFLOP"),
)


@dataclass(frozen=True, slots=True)
class Quantity:
    """A column: its heading, its value for a layer, and the units to choose from."""

    title: str
    value: Callable[[Layer], float]
    units: tuple[tuple[float, float, str], ...]
    wide: bool = False

    def scale(self, layers: Sequence[Layer]) -> tuple[float, str]:
        """Return factor and name of the unit that suits the largest value."""
        largest = max(self.value(layer) for layer in layers)
        return next((factor, unit) for limit, factor, unit in self.units if largest < limit)


def _total(*names: str) -> Callable[[Layer], float]:
    return lambda layer: float(sum(layer[name] for name in names))


FORWARD = Quantity("forward", _total("fw_processing_time"), TIMES)
BACKWARD = Quantity("backward", _total("agrad_processing_time", "wgrad_processing_time"), TIMES)
QUANTITIES = (
    Quantity("arithmetic", _total("fw_flops"), COUNTS, wide=True),
    Quantity("traffic", _total("fw_mem_accessed"), SIZES, wide=True),
    Quantity("weights", _total("weight"), SIZES),
    Quantity("stored", _total("activation"), SIZES),
)


def layer_table(layers: Sequence[Layer], width: int, *, training: bool) -> list[RenderableType]:
    """Return heading and table of the layers of a block of one kind.

    Parameters
    ----------
    layers : sequence of mapping
        The published members of every layer.
    width : int
        Characters there are; wide tables show more columns.
    training : bool
        There is a backward pass.
    """
    timed = timed_quantities(layers, training=training)
    shown = [*timed, *(q for q in QUANTITIES if width >= WIDE or not q.wide)]
    busy = [sum(q.value(layer) for q in timed) for layer in layers]
    units = chosen_units(shown, timed, layers)
    table = Table.grid(padding=(0, 2), expand=True)
    table.add_column(no_wrap=True)
    for _ in range(len(shown) + 1):
        table.add_column(justify="right", no_wrap=True)
    table.add_column(ratio=1)
    table.add_row("", *(Text(q.title, "dim") for q in shown), Text("time", "dim"), "")
    table.add_row("", *(Text(unit, "dim") for _, unit in units), Text("share", "dim"), "")
    rows = zip(layers, busy, strict=True)
    for group, members in groupby(rows, key=lambda row: row[0]["name"].partition("_")[0]):
        inside = list(members)
        inner = cells(shown, units, [layer for layer, _ in inside])
        time = sum(time for _, time in inside)
        table.add_row(*(Text(text, "bold") for text in (group, *inner, percent(time / sum(busy)))))
        for layer, time in inside:
            bar = Bar((Share(time / max(busy), "blue"),)) if width >= WIDE else ""
            share = percent(time / sum(busy)) if time else "-"
            name = layer["name"].partition("_")[2]
            table.add_row(f"  {name}", *cells(shown, units, [layer]), share, bar)
    whole = ["total", *cells(shown, units, layers), "100.0 %"]
    table.add_row(*(Text(cell, "bold") for cell in whole))
    remark = f"one {kind_of(layers)}, one microbatch"
    return [heading("Layers", remark), Padding(table, (0, 0, 0, 2))]


def by_kind(layers: Sequence[Layer]) -> list[list[Layer]]:
    """Return the layers of each kind of block."""
    return [list(same) for _, same in groupby(layers, key=lambda layer: layer.get("kind"))]


def kind_of(layers: Sequence[Layer]) -> str:
    """Name the kind of block that layers are of, and how many there are of it where it is not the only one."""
    one = layers[0] if layers else {}
    return f"{one['kind']} of {one['blocks']:,}" if "kind" in one else "block"


def timed_quantities(layers: Sequence[Layer], *, training: bool) -> list[Quantity]:
    """Return the times that layers of a block have."""
    timed = [FORWARD, *([BACKWARD] if training else [])]
    network = _network(training)
    return [*timed, *([network] if any(network.value(layer) > 0 for layer in layers) else [])]


def _network(training: bool) -> Quantity:
    """Return the column of exposed tensor-parallel time, inside a chunk."""
    passes = ("fw", "bw") if training else ("fw",)
    names = [f"baseblock_{one}_tp_comm_time_exposed" for one in passes]
    return Quantity("network", _total(*names), TIMES)


def chosen_units(
    shown: Sequence[Quantity], timed: Sequence[Quantity], layers: Sequence[Layer]
) -> list[tuple[float, str]]:
    """Choose units: one for all times, so that they can be compared."""
    coarsest = min(quantity.scale(layers) for quantity in timed)
    return [coarsest if quantity in timed else quantity.scale(layers) for quantity in shown]


def cells(
    shown: Sequence[Quantity], units: Sequence[tuple[float, str]], layers: Sequence[Layer]
) -> list[str]:
    """Write the sum over some layers of every column; a dash is exactly nothing."""
    sums = [sum(quantity.value(layer) for layer in layers) for quantity in shown]
    return [
        f"{value * factor:,.3f}" if value else "-"
        for value, (factor, _) in zip(sums, units, strict=True)
    ]
