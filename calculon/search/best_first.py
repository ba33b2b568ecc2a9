"""One search: count a space exactly and find its best executions."""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from math import prod
from operator import attrgetter

import numpy as np

from calculon.base.units import Array
from calculon.declarations.axes import PUBLISHED_AXES
from calculon.declarations.scope_choices import BlockChoice
from calculon.declarations.statistics import OFFLOADS
from calculon.plan.columns import Columns
from calculon.search.cost_tables import CostTables
from calculon.search.grid import FEW, GRID_AXES, OF_CELLS, WITHIN, along, enumerated
from calculon.search.nodes import alike, nodes_of
from calculon.search.ranking import Ranking
from calculon.search.search_counts import Counts, Splits
from calculon.search.space import Space, Unit
from calculon.search.tile import Tile
from calculon.search.variants import OF_UNIT

GRID_CELLS = 524_288
"""Cells of a memory grid that are computed at once."""

GRID_NODES = 32_768
"""Nodes of a memory grid: each has some forty columns of its own."""

WAITING_NODES = 400_000
"""Nodes of tiles that wait until the most promising one is known; each takes about a hundred bytes."""

TABLE_ROWS = 60_000
"""Blocks whose costs are held at once."""

FEW_NODES = 256
"""Nodes of a tile that are evaluated without the closer, slower bound."""

_COUNTED = ("microbatch_size", *GRID_AXES)
"""Axes of what is counted; those of a memory grid have the microbatch size in their nodes."""

FIRST_CELLS, MORE_CELLS = 512, 8_192
"""Cells of a tile that are evaluated before the threshold is compared with the next bounds."""


Seen = Callable[[int], None]
"""Told how many more executions were looked at, often; what it raises ends a search."""


def count_space(space: Space, *, mbs_break: bool = False) -> int:
    """Count the executions of a space without evaluating any.

    With `mbs_break` every loop over microbatch sizes stops after the first, since nothing is found to be good.
    """
    total = 0
    for unit in space.units:
        networks = prod(
            len(space.networks(axis.network, getattr(unit, axis.degree))) for axis in PUBLISHED_AXES
        )
        for parts in dict.fromkeys(space.switches["context_par"]):
            if unit.further % parts:
                continue
            overlaps = len(space.replicated("data_par_overlap", unit.data_par * parts))
            cells = len(unit.interleavings) * networks * overlaps
            total += cells * _combinations(space, unit, parts, mbs_break=mbs_break)
    return total


def _combinations(space: Space, unit: Unit, parts: int, *, mbs_break: bool) -> int:
    """Count the combinations of variants, sharding, offloading and microbatch size that a unit has.

    With so many parts of sequences. With `mbs_break` those that differ in nothing but the microbatch size are one.
    """
    variants, switches = space.variants, space.switches
    fitting = space.fitting(unit)
    if len(switches["context_par"]) > 1:
        fitting = fitting & (variants.columns["context_par"] == parts)
    numbers = np.flatnonzero(fitting)
    sharding = space.replicated("optimizer_sharding", unit.data_par * parts)
    if not (len(numbers) and len(sharding)):
        return 0
    sizes = np.array(unit.microbatches)
    columns = {
        **space.rules.constants,
        **{name: np.array(getattr(unit, name)) for name in OF_UNIT},
        "microbatch_size": along(sizes, "microbatch_size", _COUNTED),
        "optimizer_sharding": along(sharding, "optimizer_sharding"),
        **{name: along(switches[name], name) for name in OF_CELLS},
        **variants.take(numbers),
    }
    shape = (len(sharding), *(len(switches[name]) for name in OF_CELLS), len(numbers))
    held = enumerated(space, Columns(columns))
    if held.ndim < len(_COUNTED):  # the same for every microbatch size
        count = int(np.count_nonzero(np.broadcast_to(held, shape)))
        return count if mbs_break else count * len(sizes)
    held = np.broadcast_to(held, (len(sizes), *shape))
    return int(np.count_nonzero(held.any(axis=0) if mbs_break else held))


def search_space(
    space: Space,
    ranking: Ranking,
    *,
    mbs_break: bool = False,
    seen: Seen | None = None,
    splits: Splits | None = None,
) -> Counts:
    """Count a space exactly, and let a ranking consider every execution that may be among the best.

    Branch and bound: memory alone decides feasibility, so that counts are exact without a single time. Then tiles are
    visited in the order of their upper bounds, and within a tile the cells; cells whose upper bound is below the
    ranking's threshold are pruned.

    Args:
        space: What is searched.
        ranking: A fresh one.
        mbs_break: Give up on larger microbatches after the first that does not fit.
        seen: Told how many more executions were looked at, a few times a second or more, also 0; together all that are
            counted. What it raises ends the search.
        splits: Executions of each split of the processors are added to it.
    """
    counts = Counts()
    told = seen or (lambda _: None)

    def counted(tile: Tile) -> Counts:
        of_tile = tile.count(mbs_break=mbs_break, splits=splits)
        counts.add(of_tile)
        return of_tile

    for units, blocks in portions(space):
        _search_portion(CostTables(space, units, blocks), units, ranking, counted, told)
    return counts


def _search_portion(
    tables: CostTables,
    units: Sequence[Unit],
    ranking: Ranking,
    counted: Callable[[Tile], Counts],
    seen: Seen,
) -> None:
    """Search what the tables of a portion hold; they are released when it is done."""
    space = tables.space
    promising: list[tuple[Tile, Array]] = []
    waiting = 0
    for whole in tiles(space, tables, units):
        of_tile = counted(whole)
        seen(of_tile.bad)
        if not whole.feasible:
            continue
        some = np.flatnonzero(whole.fits.any(axis=(0, *WITHIN)))
        few = len(some) < FEW * len(whole.nodes)
        tile = Tile.joined([(whole, some)]) if few else whole
        bounds = ranking.upper_bound(tile)
        if bounds is None:
            for rows in tile.rows(np.nonzero(tile.fits)):
                ranking.consider(space, rows)
                seen(rows.count)
            continue
        seen(of_tile.good)
        bounds = np.where(tile.fits.any(axis=WITHIN), bounds, -np.inf)
        if (bounds >= ranking.least(tile.nodes.numbers)).any():
            tile.release_grid()
            promising.append((tile, bounds))
            waiting += len(tile.nodes)
        if waiting > WAITING_NODES:
            _most_promising_first(space, promising, ranking, seen)
            waiting = 0
    _most_promising_first(space, promising, ranking, seen)


def _most_promising_first(
    space: Space, promising: list[tuple[Tile, Array]], ranking: Ranking, seen: Seen
) -> None:
    """Consider the executions of tiles, given with the bounds of their cells; each tile is released when it is done.

    What others than the first have above the threshold is considered together, as far as it is of one kind.
    """
    promising.sort(key=lambda one: float(one[1].max()))
    if promising:
        _best_first(space, *promising.pop(), ranking, seen)
    while promising:
        tile, bounds = _joined(promising, ranking)
        if len(tile.nodes):
            _best_first(space, tile, bounds, ranking, seen)


def _joined(promising: list[tuple[Tile, Array]], ranking: Ranking) -> tuple[Tile, Array]:
    """Take what the most promising tile has above the threshold, and the same of as many others of its kind."""
    kind = promising[-1][0].kind
    parts: list[tuple[Tile, Array]] = []
    bounds: list[Array] = []
    left: list[tuple[Tile, Array]] = []
    count = 0
    while promising:
        tile, of_tile = promising.pop()
        some = np.flatnonzero((of_tile >= ranking.least(tile.nodes.numbers)).any(axis=0))
        if tile.kind != kind or (parts and count + len(some) > GRID_NODES):
            left.append((tile, of_tile))
        elif len(some) or not parts:
            parts.append((tile, some))
            bounds.append(of_tile[:, some])
            count += len(some)
    promising += reversed(left)
    return Tile.joined(parts), np.concatenate(bounds, axis=1)


def _best_first(space: Space, tile: Tile, bounds: Array, ranking: Ranking, seen: Seen) -> None:
    """Consider the executions of a tile, the most promising first, until the rest is below the threshold."""
    bounds = _refined(tile, bounds, ranking)
    numbers = tile.nodes.numbers
    enough = bounds >= ranking.least(numbers)
    cells = np.nonzero(tile.fits & np.expand_dims(enough, WITHIN))
    bound, numbers = bounds[cells[0], cells[-1]], numbers[cells[-1]]
    left, step = ranking.order(bound, numbers), FIRST_CELLS
    while len(left):
        part, left = left[:step], left[step:]
        for rows in tile.rows(tuple(index[part] for index in cells)):
            ranking.consider(space, rows)
            seen(0)
        left, step = left[bound[left] >= ranking.least(numbers[left])], MORE_CELLS


def _refined(tile: Tile, bounds: Array, ranking: Ranking) -> Array:
    """Lower the bounds of the cells that are left by what data parallelism exposes, where many are left."""
    left = np.flatnonzero((bounds >= ranking.least(tile.nodes.numbers)).any(axis=0))
    if len(left) <= FEW_NODES:
        return bounds
    lower = ranking.upper_bound(tile, left)
    if lower is None:
        return bounds
    refined = np.full_like(bounds, -np.inf)
    refined[:, left] = np.minimum(bounds[:, left], lower)
    return refined


def groups(space: Space) -> Iterator[list[Unit]]:
    """Split the units by tensor degree, so that the block tables of a group stay small."""
    group: list[Unit] = []
    for _, units in groupby(space.units, attrgetter("tensor_par")):
        of_degree = list(units)
        if group and _table_rows(space, [*group, *of_degree]) > TABLE_ROWS:
            yield group
            group = []
        group += of_degree
    if group:
        yield group


def portions(
    space: Space,
) -> Iterator[tuple[Sequence[Unit], Sequence[tuple[BlockChoice, Array]]]]:
    """Split the block choices where all units have too many different blocks, and the units where one choice has.

    A table with all sizes of some choices is made sooner than several with some sizes of all.
    """
    if not space.units:
        return
    rows_of_choice = _table_rows(space, space.units) // len(space.block_groups)
    for units in groups(space) if rows_of_choice > TABLE_ROWS else [space.units]:
        blocks = space.block_groups
        if units[-1].tensor_par == 1:  # the only degree, at which nothing overlaps
            blocks = [one for one in blocks if not one[0].layout.overlapped]
        rows = _table_rows(space, units)
        count = max(1, len(blocks) * TABLE_ROWS // rows) if rows > TABLE_ROWS else len(blocks)
        for start in range(0, len(blocks), count):
            yield units, blocks[start : start + count]


def _table_rows(space: Space, units: Sequence[Unit]) -> int:
    """Return how many rows the block table of units has with all block choices, or a little more."""
    sizes = {(unit.tensor_par, size) for unit in units for size in unit.microbatches}
    networks = 1 if space.meshed else len(space.system.networks)
    return len(sizes) * len(space.block_groups) * len(space.block_sizes[0]) * networks


def tiles(space: Space, tables: CostTables, units: Sequence[Unit]) -> Iterator[Tile]:
    """Cut units into tiles of nodes that share the strategies of a batch, few enough for a small memory grid."""
    each = 2 * prod(len(space.switches[name]) for name in OFFLOADS)
    most = max(1, min(GRID_CELLS // each, GRID_NODES))
    for kind in alike(space, units):
        for choice, variants in tables.groups:
            for nodes in nodes_of(tables, choice, kind, variants, most):
                tile = Tile(nodes)
                if tile.sharding:  # else the space has no execution in it
                    yield tile


def feasible_numbers(space: Space) -> Iterator[Array]:
    """Yield the numbers of all feasible executions in order, a unit or a part of it at a time."""
    for group in groups(space):
        tables = CostTables(space, group)
        for unit in group:
            found = [
                rows.numbers[np.broadcast_to(rows.allowed, rows.numbers.shape)]
                for tile in tiles(space, tables, [unit])
                if tile.feasible
                for rows in tile.rows(np.nonzero(tile.fits))
            ]
            if found:
                yield np.sort(np.concatenate(found))
