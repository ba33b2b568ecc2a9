"""The operators of a block as a table: where its time goes, and what it keeps in memory."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from calculon.base.frozen import dataclass
from calculon.render.bars import Bar, Share
from calculon.render.document import ByWidth, Cell, Grid, Section, bold, dim
from calculon.render.texts import percent

Layer = Mapping[str, Any]
Units = Sequence[tuple[float, str]]
"""Factor and name of the unit of each column."""

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
    """A column: its heading, the members of a layer that it adds up, and the units to choose from.

    Members of members are named with a point: ``time.forward``.
    """

    title: str
    names: tuple[str, ...]
    units: tuple[tuple[float, float, str], ...]
    wide: bool = False

    def value(self, layer: Layer) -> float:
        """Return the value of a layer."""
        return float(sum(_member(layer, name) for name in self.names))

    def scale(self, layers: Sequence[Layer]) -> tuple[float, str]:
        """Return factor and name of the unit that suits the largest value."""
        largest = max(self.value(layer) for layer in layers)
        return next((factor, unit) for limit, factor, unit in self.units if largest < limit)


def _member(layer: Layer, name: str) -> float:
    found: Any = layer
    for key in name.split("."):
        found = found[key]
    return float(found)


FORWARD = Quantity("forward", ("fw_processing_time",), TIMES)
BACKWARD = Quantity("backward", ("agrad_processing_time", "wgrad_processing_time"), TIMES)
QUANTITIES = (
    Quantity("arithmetic", ("fw_flops",), COUNTS, wide=True),
    Quantity("traffic", ("fw_mem_accessed",), SIZES, wide=True),
    Quantity("weights", ("weight",), SIZES),
    Quantity("stored", ("activation",), SIZES),
)


def layers_section(layers: Sequence[Layer], *, training: bool) -> Section:
    """Return the layers of a block of one kind; a wide page also has their arithmetic, their traffic and bars.

    Args:
        layers: The published members of every layer.
        training: There is a backward pass.
    """
    timed = timed_quantities(layers, training=training)

    def grid(*, wide: bool) -> Grid:
        others = [[q] for q in QUANTITIES if wide or not q.wide]
        return operator_grid(layers, [timed, *others], total="total", shares=True, bars=wide)

    by_width = ByWidth(WIDE, (grid(wide=True),), (grid(wide=False),))
    return Section("Layers", (by_width,), f"one {kind_of(layers)}, one microbatch")


def operator_grid(
    operators: Sequence[Layer],
    groups: Sequence[Sequence[Quantity]],
    titles: Sequence[str] = (),
    *,
    total: str = "sum",
    shares: bool = False,
    bars: bool = False,
) -> Grid:
    """Return operators by half of the block, with sums.

    Args:
        operators: The published members of every operator.
        groups: Columns; the columns of a group have one unit.
        titles: The titles of the groups.
        total: Label of the sum over all operators.
        shares, bars: Show the share of each operator in the first group, of times; and a bar of it.
    """
    shown = [quantity for group in groups for quantity in group]
    units = group_units(groups, operators)
    busy = [sum(quantity.value(one) for quantity in groups[0]) for one in operators]

    def texts(name: str, numbers: Sequence[int]) -> list[str]:
        time = sum(busy[i] for i in numbers)
        share = [percent(time / sum(busy)) if time else "-"] if shares else []
        return [name, *cells(shown, units, [operators[i] for i in numbers]), *share]

    rows: list[tuple[Cell, ...]] = []
    if titles:
        above = (
            title if number == 0 else ""
            for title, group in zip(titles, groups, strict=True)
            for number in range(len(group))
        )
        rows.append(("", *map(bold, above)))
    rows.append(("", *map(dim, [*(q.title for q in shown), *["time"] * shares])))
    rows.append(("", *map(dim, [*(unit for _, unit in units), *["share"] * shares])))
    heads = len(rows)
    for half, members in groupby(enumerate(operators), key=lambda one: split_name(one[1])[0]):
        inside = [i for i, _ in members]
        rows.append((*map(bold, texts(half, inside)),))
        for i in inside:
            bar = [Bar((Share(busy[i] / max(busy), "blue"),))] if bars else []
            rows.append((*texts(f"  {split_name(operators[i])[1]}", [i]), *bar))
    rows.append((*map(bold, texts(total, range(len(operators)))),))
    kinds = ("left", *["right"] * (len(shown) + shares), *["wide"] * shares)
    return Grid(kinds, tuple(rows), heads=heads)


def split_name(layer: Layer) -> tuple[str, str]:
    """Return which half of a block an operator belongs to, and its name there."""
    half, _, name = str(layer["name"]).partition("_")
    return half, name


def by_kind(layers: Sequence[Layer]) -> list[list[Layer]]:
    """Return the layers of each kind of block."""
    return [list(same) for _, same in groupby(layers, key=lambda layer: layer.get("kind"))]


def kind_of(layers: Sequence[Layer]) -> str:
    """Name the kind of block that layers are of, and how many there are of it where it is not the only one."""
    one = layers[0] if layers else {}
    return f"block of {one['blocks']:,} ({one['kind']})" if "kind" in one else "block"


def timed_quantities(layers: Sequence[Layer], *, training: bool) -> list[Quantity]:
    """Return the times that layers of a block have; of the network exposed tensor-parallel time, inside a chunk."""
    passes = ("fw", "bw") if training else ("fw",)
    names = tuple(f"baseblock_{one}_tp_comm_time_exposed" for one in passes)
    network = Quantity("network", names, TIMES)
    timed = [FORWARD, *([BACKWARD] if training else [])]
    return [*timed, *([network] if any(network.value(layer) > 0 for layer in layers) else [])]


def group_units(groups: Sequence[Sequence[Quantity]], layers: Sequence[Layer]) -> Units:
    """Choose the unit of the largest for all quantities of a group."""
    return [min(one.scale(layers) for one in group) for group in groups for _ in group]


def cells(shown: Sequence[Quantity], units: Units, layers: Sequence[Layer]) -> list[str]:
    """Write the sum over some layers of every column; a dash is exactly nothing."""
    sums = [sum(quantity.value(layer) for layer in layers) for quantity in shown]
    return [
        f"{value * factor:,.3f}" if value else "-"
        for value, (factor, _) in zip(sums, units, strict=True)
    ]
