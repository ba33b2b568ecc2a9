"""One search: count a space exactly and find its best executions."""

from collections.abc import Iterator, Sequence
from math import prod

import numpy as np

from calculon.plan.columns import Columns
from calculon.search.cost_tables import CostTables
from calculon.search.grid import GRID_AXES, OFFLOADS, along, enumerated
from calculon.search.nodes import alike, nodes_of
from calculon.search.ranking import Ranking
from calculon.search.select import Counts
from calculon.search.space import Space, Unit
from calculon.search.tile import Tile
from calculon.spec.axes import PUBLISHED_AXES
from calculon.units import Array

GRID_CELLS = 524_288
"""Cells of a memory grid that are computed at once."""

WAITING_CELLS = 4_000_000
"""Cells of tiles that wait until the most promising one is known."""

TABLE_ROWS = 60_000
"""Blocks whose costs are held at once."""

FEW_NODES = 256
"""Nodes of a tile that are evaluated without a closer look at their hopes."""

_COUNTED = ("microbatch_size", *GRID_AXES)
"""Axes of what is counted; those of a memory grid have the microbatch size in their nodes."""

FIRST_CELLS, MORE_CELLS = 512, 8_192
"""Cells of a tile that are evaluated before its hopes are looked at again."""


def count_space(space: Space, *, mbs_break: bool = False) -> int:
    """Count the executions of a space without evaluating any.

    With `mbs_break` every loop over microbatch sizes stops after the first, since nothing is found to be good.
    """
    total = 0
    for unit in space.units:
        networks = prod(
            len(space.networks(axis.network, getattr(unit, axis.degree))) for axis in PUBLISHED_AXES
        )
        overlaps = len(space.replicated("data_par_overlap", unit.data_par))
        cells = len(unit.interleavings) * networks * overlaps
        total += cells * _combinations(space, unit, mbs_break=mbs_break)
    return total


def _combinations(space: Space, unit: Unit, *, mbs_break: bool) -> int:
    """Count the combinations of variants, sharding, offloading and microbatch size that a unit has.

    With `mbs_break` those that differ in nothing but the microbatch size are one.
    """
    variants, switches = space.variants, space.switches
    numbers = np.arange(len(variants)) if unit.tensor_par > 1 else np.flatnonzero(variants.serial)
    sharding = space.replicated("optimizer_sharding", unit.data_par)
    sizes = np.array(unit.microbatches)
    columns = {
        **space.rules.constants,
        **{axis.degree: np.array(getattr(unit, axis.degree)) for axis in PUBLISHED_AXES},
        "batch_size": np.array(unit.batch_size),
        "microbatch_size": along(sizes, "microbatch_size", _COUNTED),
        "optimizer_sharding": along(sharding, "optimizer_sharding"),
        **{name: along(switches[name], name) for name in OFFLOADS},
        **variants.take(numbers),
    }
    shape = (len(sharding), *(len(switches[name]) for name in OFFLOADS), len(numbers))
    held = enumerated(space, Columns(columns))
    if held.ndim < len(_COUNTED):  # the same for every microbatch size
        count = int(np.count_nonzero(np.broadcast_to(held, shape)))
        return count if mbs_break else count * len(sizes)
    held = np.broadcast_to(held, (len(sizes), *shape))
    return int(np.count_nonzero(held.any(axis=0) if mbs_break else held))


def search_space(space: Space, ranking: Ranking, *, mbs_break: bool = False) -> Counts:
    """Count a space exactly, and offer to a ranking what it could want.

    Memory decides feasibility without a single time, so that counts are exact. Then tiles are visited from the most
    promising on, and within a tile the cells; cells whose bound is below the ranking's threshold are skipped.
    """
    counts = Counts()
    for group in groups(space):
        tables = CostTables(space, group)
        promising: list[tuple[Tile, Array]] = []
        cells = 0
        for tile in tiles(space, tables, group):
            counts.add(tile.count(mbs_break=mbs_break))
            if not tile.feasible:
                continue
            hopes = ranking.bound(tile)
            if hopes is None:
                for rows in tile.rows(np.nonzero(tile.fits)):
                    ranking.offer(space, rows)
                continue
            hopes = np.where(tile.fits.any(axis=(1, 2, 3)), hopes, -np.inf)
            if hopes.max() >= ranking.threshold:
                tile.forget_grid()
                promising.append((tile, hopes))
                cells += tile.fits.size
            if cells > WAITING_CELLS:
                _most_promising_first(space, promising, ranking)
                cells = 0
        _most_promising_first(space, promising, ranking)
    return counts


def _most_promising_first(
    space: Space, promising: list[tuple[Tile, Array]], ranking: Ranking
) -> None:
    """Offer the executions of tiles, given with the hopes of their cells; each tile is freed when it is done."""
    promising.sort(key=lambda one: float(one[1].max()))
    while promising:
        tile, hopes = promising.pop()
        _best_first(space, tile, hopes, ranking)


def _best_first(space: Space, tile: Tile, hopes: Array, ranking: Ranking) -> None:
    """Offer the executions of a tile, the most promising cells first, until no hope is left."""
    hopes = _refined(tile, hopes, ranking)
    cells = np.nonzero(tile.fits & (hopes >= ranking.threshold)[:, None, None, None, :])
    hope = hopes[cells[0], cells[-1]]
    order = np.argsort(-hope, kind="stable")
    hope, done, step = hope[order], 0, FIRST_CELLS
    while done < len(hope) and hope[done] >= ranking.threshold:
        part = order[done : done + step]
        for rows in tile.rows(tuple(index[part] for index in cells)):
            ranking.offer(space, rows)
        done, step = done + step, MORE_CELLS


def _refined(tile: Tile, hopes: Array, ranking: Ranking) -> Array:
    """Lower the hopes of what is left by the data-parallel term of the bound, where much is left."""
    left = np.flatnonzero((hopes >= ranking.threshold).any(axis=0))
    if len(left) <= FEW_NODES:
        return hopes
    lower = ranking.bound(tile, left)
    if lower is None:
        return hopes
    refined = np.full_like(hopes, -np.inf)
    refined[:, left] = np.minimum(hopes[:, left], lower)
    return refined


def groups(space: Space) -> Iterator[list[Unit]]:
    """Split the units by tensor degree, so that the block tables of a group stay small."""
    if not space.units:
        return
    blocks = len(space.block_groups)
    group: list[Unit] = []
    sizes: set[tuple[int, int]] = set()
    for unit in space.units:
        more = sizes | {(unit.tensor_par, b) for b in unit.microbatches}
        new_degree = bool(group) and unit.tensor_par != group[-1].tensor_par
        if new_degree and len(more) * blocks * len(space.system.networks) > TABLE_ROWS:
            yield group
            group, more = [], {(unit.tensor_par, b) for b in unit.microbatches}
        group.append(unit)
        sizes = more
    if group:
        yield group


def tiles(space: Space, tables: CostTables, units: Sequence[Unit]) -> Iterator[Tile]:
    """Cut units into tiles of nodes that share the strategies of a batch, so many that a memory grid stays small."""
    each = 2 * prod(len(space.switches[name]) for name in OFFLOADS)
    most = max(1, GRID_CELLS // each)
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
