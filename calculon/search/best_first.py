"""Best-first branch-and-bound search: count a space exactly and find its best executions."""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby, product
from math import prod
from operator import attrgetter

import numpy as np

from calculon.base.units import Array
from calculon.declarations.axes import PUBLISHED_AXES
from calculon.declarations.scope_choices import BlockChoice
from calculon.declarations.statistics import OFFLOADS
from calculon.plan.columns import Columns
from calculon.search.cost_cache import CostCache
from calculon.search.cost_tables import CostTables
from calculon.search.grid import FEW, GRID_AXES, OF_CELLS, WITHIN, along, enumerated
from calculon.search.nodes import nodes_of, similar_units
from calculon.search.ranking import Ranking
from calculon.search.search_counts import Counts, Splits
from calculon.search.space import Space, Unit
from calculon.search.tile import Tile
from calculon.search.variants import OF_UNIT

GRID_CELLS = 524_288
"""Largest number of cells of a memory grid that is computed at once."""

# Each node has about forty columns, so nodes and not only cells limit the memory of a grid.
GRID_NODES = 32_768
"""Largest number of nodes of a memory grid."""

# A node takes about a hundred bytes, 40 MB in total. Waiting for many tiles finds a better threshold first.
WAITING_NODES = 400_000
"""Nodes of tiles that are collected before the most promising tile is searched."""

TABLE_ROWS = 60_000
"""Largest number of blocks whose costs are held at once."""

FEW_NODES = 256
"""Nodes of a tile that are evaluated directly: below this number the closer bound costs more than it saves."""

_COUNTED = ("microbatch_size", *GRID_AXES)
"""Axes of a count; in a memory grid, nodes include the microbatch size."""

# The first batch is small: a few good executions raise the threshold enough to prune most of the other cells.
FIRST_CELLS, MORE_CELLS = 512, 8_192
"""Cells of a tile that are evaluated between two updates of the pruning threshold."""


Seen = Callable[[int], None]
"""Progress callback: takes the number of executions examined since the last call; its exceptions end the search."""


def count_space(space: Space, *, mbs_break: bool = False) -> int:
    """Count the executions of a space without evaluating any.

    With `mbs_break` every loop over microbatch sizes stops after the first: nothing is known to fit.
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
    """Count the combinations of variants, sharding, offloading and microbatch size of a unit.

    `parts` is the degree of context parallelism. With `mbs_break`, combinations that differ only in the microbatch size
    count once.
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
    cache: CostCache | None = None,
) -> Counts:
    """Count a space exactly, and rank every execution that may be among the best.

    Branch and bound: memory alone decides feasibility, so counts are exact before any time is computed. Tiles are then
    visited in the order of their upper bounds, and so are the cells of a tile. Cells with an upper bound below the
    threshold of the ranking are pruned.

    Args:
        space: The space to search.
        ranking: A fresh ranking.
        mbs_break: Skip larger microbatches after the first that does not fit.
        seen: Progress callback, called at least a few times a second, also with 0. The numbers add up to the executions
            counted.
        splits: Counter of executions by split of the processors; updated in place.
        cache: Known costs of the same model, machine and edition; updated in place.
    """
    counts = Counts()
    report = seen or (lambda _: None)

    def counted(tile: Tile) -> Counts:
        of_tile = tile.count(mbs_break=mbs_break, splits=splits)
        counts.add(of_tile)
        return of_tile

    for units, blocks in portions(space):
        _search_portion(CostTables(space, units, blocks, cache), units, ranking, counted, report)
    return counts


def _search_portion(
    tables: CostTables,
    units: Sequence[Unit],
    ranking: Ranking,
    counted: Callable[[Tile], Counts],
    seen: Seen,
) -> None:
    """Search one portion of a space; its cost tables are released afterwards."""
    space = tables.space
    promising: list[tuple[Tile, Array]] = []
    waiting = 0
    for whole in tiles(space, tables, units):
        of_tile = counted(whole)
        seen(of_tile.bad)
        if not whole.feasible:
            continue
        # A grid in which few nodes fit is copied without the others: every later array shrinks with it.
        some = np.flatnonzero(whole.fits.any(axis=(0, *WITHIN)))
        few = len(some) < FEW * len(whole.nodes)
        tile = Tile.joined([(whole, some)]) if few else whole
        bounds = ranking.upper_bound(tile)
        if bounds is None:  # no bound for this objective: evaluate every execution
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
    """Rank the executions of tiles, given with the upper bounds of their cells; release each tile afterwards.

    The first tile is searched alone to raise the threshold. The remaining promising nodes of tiles of one kind are then
    searched together, because many small tiles would be slow in NumPy.
    """
    promising.sort(key=lambda one: float(one[1].max()))
    if promising:
        _best_first(space, *promising.pop(), ranking, seen)
    while promising:
        tile, bounds = _joined(promising, ranking)
        if len(tile.nodes):
            _best_first(space, tile, bounds, ranking, seen)


def _joined(promising: list[tuple[Tile, Array]], ranking: Ranking) -> tuple[Tile, Array]:
    """Join the promising nodes of the best tile with the promising nodes of other tiles of its kind."""
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
    """Rank the executions of a tile in the order of their bounds until the rest is below the threshold."""
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
            seen(0)  # counted above; the call only lets the caller interrupt
        left, step = left[bound[left] >= ranking.least(numbers[left])], MORE_CELLS


def _refined(tile: Tile, bounds: Array, ranking: Ranking) -> Array:
    """Subtract the least exposed data-parallel time from the bounds of promising cells, if there are many."""
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
    """Group units by tensor degree so that the block table of each group stays small."""
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
    """Split block choices if all units have too many different blocks, and units if a single choice has too many.

    Splitting by choice comes first: one table with all sizes of a few choices is faster to compute than several tables
    with a few sizes of all choices.
    """
    choices = _choices(space, space.units)
    if not choices:
        return
    rows_of_choice = _table_rows(space, space.units) // len(choices)
    for units in groups(space) if rows_of_choice > TABLE_ROWS else [space.units]:
        blocks, rows = _choices(space, units), _table_rows(space, units)
        count = max(1, len(blocks) * TABLE_ROWS // rows) if rows > TABLE_ROWS else len(blocks)
        for start in range(0, len(blocks), count):
            yield units, blocks[start : start + count]


def _choices(space: Space, units: Sequence[Unit]) -> list[tuple[BlockChoice, Array]]:
    """Return the block choices of which any unit has a variant, each with all its variants."""
    fitting = np.zeros(len(space.variants), bool)
    for unit in units:
        fitting |= space.fitting(unit)
    return [
        (choice, variants) for choice, variants in space.block_groups if fitting[variants].any()
    ]


def _table_rows(space: Space, units: Sequence[Unit]) -> int:
    """Return the number of rows (or slightly more) that the block table of units has with all block choices."""
    sizes: set[tuple[int, int, int]] = set()
    for unit in units:
        own = np.bincount(space.block_sizes[1][space.fitting(unit)])
        sizes |= {*product([unit.tensor_par], unit.microbatches, np.flatnonzero(own).tolist())}
    networks = 1 if space.meshed else len(space.system.networks)
    return len(sizes) * len(_choices(space, units)) * networks


def tiles(space: Space, tables: CostTables, units: Sequence[Unit]) -> Iterator[Tile]:
    """Cut units into tiles of nodes with equal batch strategies, small enough for one memory grid."""
    each = 2 * prod(len(space.switches[name]) for name in OFFLOADS)
    most = max(1, min(GRID_CELLS // each, GRID_NODES))
    for kind in similar_units(space, units):
        for choice, variants in tables.groups:
            for nodes in nodes_of(tables, choice, kind, variants, most):
                tile = Tile(nodes)
                if tile.sharding:  # else the space has no execution in it
                    yield tile


def feasible_numbers(space: Space) -> Iterator[Array]:
    """Yield the numbers of all feasible executions in ascending order, one unit at a time."""
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
