"""Table of the operators of a block: their times, and the memory they keep."""

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
"""Minimum width for arithmetic, traffic and bars."""

TIMES = ((1e-3, 1e6, "us"), (1.0, 1e3, "ms"), (float("inf"), 1.0, "s"))
SIZES = ((2.0**20, 2.0**-10, "KiB"), (2.0**30, 2.0**-20, "MiB"), (float("inf"), 2.0**-30, "GiB"))
COUNTS = (
    (1e9, 1e-6, "MFLOP"),
    (1e12, 1e-9, "GFLOP"),
    (float("inf"), 1e-12, "TFLOP"),
)


@dataclass(frozen=True, slots=True)
class Quantity:
    """Column of the table: its heading, the members of a layer that it sums, and possible units.

    Nested members have a dotted name: ``time.forward``.
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
    """Return the layers of a block of one kind; wide pages add arithmetic, traffic and bars.

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
        groups: Groups of columns; the columns of a group share a unit.
        titles: The titles of the groups.
        total: Label of the sum over all operators.
        shares, bars: Show the share of each operator in the first group (times), and a bar of it.
    """
    shown = [quantity for group in groups for quantity in group]
    units = group_units(groups, operators)
    busy = [sum(quantity.value(one) for quantity in groups[0]) for one in operators]

    def texts(name: str, numbers: Sequence[int]) -> list[str]:
        time = sum(busy[i] for i in numbers)
        # A dash distinguishes an exact 0 from a small share.
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
    """Return the half of a block (attention or MLP) of an operator, and the operator's name in it."""
    # Operators are named HALF_OPERATOR, such as AttnBlock_Query.
    half, _, name = str(layer["name"]).partition("_")
    return half, name


def by_kind(layers: Sequence[Layer]) -> list[list[Layer]]:
    """Return the layers of each kind of block."""
    return [list(same) for _, same in groupby(layers, key=lambda layer: layer.get("kind"))]


def kind_of(layers: Sequence[Layer]) -> str:
    """Return the kind of block of some layers, and its number of blocks if there are several kinds."""
    one = layers[0] if layers else {}
    return f"block of {one['blocks']:,} ({one['kind']})" if "kind" in one else "block"


def timed_quantities(layers: Sequence[Layer], *, training: bool) -> list[Quantity]:
    """Return the times of layers of a block; for the network, exposed tensor-parallel time inside a chunk."""
    passes = ("fw", "bw") if training else ("fw",)
    names = tuple(f"baseblock_{one}_tp_comm_time_exposed" for one in passes)
    network = Quantity("network", names, TIMES)
    timed = [FORWARD, *([BACKWARD] if training else [])]
    return [*timed, *([network] if any(network.value(layer) > 0 for layer in layers) else [])]


def group_units(groups: Sequence[Sequence[Quantity]], layers: Sequence[Layer]) -> Units:
    """Return a unit for each quantity: within a group, the unit of the largest value."""
    return [min(one.scale(layers) for one in group) for group in groups for _ in group]


def cells(shown: Sequence[Quantity], units: Units, layers: Sequence[Layer]) -> list[str]:
    """Write the sum over some layers for every column; a dash means exactly 0."""
    sums = [sum(quantity.value(layer) for layer in layers) for quantity in shown]
    return [
        f"{value * factor:,.3f}" if value else "-"
        for value, (factor, _) in zip(sums, units, strict=True)
    ]
