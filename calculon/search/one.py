"""One search: count a space exactly and find its best executions."""

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from calculon.plan.rules.data_rules import shares_state
from calculon.search.cost_tables import SearchTables
from calculon.search.ranking import Ranking
from calculon.search.select import Counts
from calculon.search.space import Space, Unit
from calculon.search.tile import Tile
from calculon.units import Array

GRID_CELLS = 1_000_000
"""Cells of a memory grid that are computed at once."""

WAITING_CELLS = 16_000_000
"""Cells of tiles that wait until the most promising one is known."""

TABLE_ROWS = 60_000
"""Blocks whose costs are held at once."""

FIRST_CELLS, MORE_CELLS = 512, 8_192
"""Cells of a tile that are evaluated before its hopes are looked at again."""


def count_space(space: Space, *, mbs_break: bool = False) -> int:
    """Count the executions of a space without evaluating any.

    With `mbs_break` every loop over microbatch sizes stops after the first, since nothing is found to be good.
    """
    total = 0
    ways = _ways(space)
    for unit in space.units:
        sizes = 1 if mbs_break else len(unit.microbatches)
        networks = (
            len(space.networks("tensor_par_net", unit.tensor_par))
            * len(space.networks("pipeline_par_net", unit.pipeline_par))
            * len(space.networks("data_par_net", unit.data_par))
        )
        offloads = len(space.switches["weight_offload"]) * len(space.switches["optimizer_offload"])
        shared = sum(
            ways[unit.tensor_par > 1, on]
            for on in space.replicated("optimizer_sharding", unit.data_par)
        )
        overlaps = len(space.replicated("data_par_overlap", unit.data_par))
        total += len(unit.interleavings) * sizes * networks * offloads * shared * overlaps
    return total


def _ways(space: Space) -> dict[tuple[bool, bool], int]:
    """Count structures with activation offload: with tensor parallelism or without, optimizer sharding or not.

    Activation offload is not enumerated with full recomputation, and optimizer sharding where a form contradicts it.
    """
    ways: Counter[tuple[bool, bool]] = Counter()
    offload = space.switches["activations_offload"]
    everywhere = True in space.add.get("activations_offload", ())
    for parallel in (True, False):
        for choice in space.structures(parallel=parallel):
            several = sum(1 for on in offload if everywhere or not (on and choice.recompute_all))
            for sharding in shares_state(choice.zero_stage):
                ways[parallel, sharding] += several
    return ways


def search_space(space: Space, ranking: Ranking, *, mbs_break: bool = False) -> Counts:
    """Count a space exactly, and offer to a ranking what it could want.

    Memory decides feasibility without a single time, so that counts are exact. Then tiles are visited from the most
    promising on, and within a tile the cells; cells whose bound is below the ranking's threshold are skipped.
    """
    counts = Counts()
    for group in groups(space):
        tables = SearchTables(space, group)
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
            hopes = np.where(tile.fits.any(axis=(2, 3, 4)), hopes, -np.inf)
            if hopes.max() >= ranking.threshold:
                tile.forget_grid()
                promising.append((tile, hopes))
                cells += tile.fits.size
            if cells > WAITING_CELLS:
                _most_promising_first(space, promising, ranking)
                promising, cells = [], 0
        _most_promising_first(space, promising, ranking)
    return counts


def _most_promising_first(
    space: Space, promising: list[tuple[Tile, Array]], ranking: Ranking
) -> None:
    """Offer the executions of tiles, given with the hopes of their cells."""
    for tile, hopes in sorted(promising, key=lambda one: -float(one[1].max())):
        _best_first(space, tile, hopes, ranking)


def _best_first(space: Space, tile: Tile, hopes: Array, ranking: Ranking) -> None:
    """Offer the executions of a tile, the most promising cells first, until no hope is left."""
    cells = np.nonzero(tile.fits & (hopes >= ranking.threshold)[:, :, None, None, None, :])
    hope = hopes[cells[0], cells[1], cells[5]]
    order = np.argsort(-hope, kind="stable")
    hope, done, step = hope[order], 0, FIRST_CELLS
    while done < len(hope) and hope[done] >= ranking.threshold:
        part = order[done : done + step]
        for rows in tile.rows(tuple(index[part] for index in cells)):
            ranking.offer(space, rows)
        done, step = done + step, MORE_CELLS


def groups(space: Space) -> Iterator[list[Unit]]:
    """Split the units by tensor degree, so that the block tables of a group stay small."""
    structures = len(space.structures(parallel=True))
    group: list[Unit] = []
    sizes: set[tuple[int, int]] = set()
    for unit in space.units:
        more = sizes | {(unit.tensor_par, b) for b in unit.microbatches}
        new_degree = bool(group) and unit.tensor_par != group[-1].tensor_par
        if new_degree and len(more) * structures * len(space.system.networks) > TABLE_ROWS:
            yield group
            group, more = [], {(unit.tensor_par, b) for b in unit.microbatches}
        group.append(unit)
        sizes = more
    if group:
        yield group


def tiles(space: Space, tables: SearchTables, units: Sequence[Unit]) -> Iterator[Tile]:
    """Cut units into tiles of so many structures that a memory grid stays small."""
    offloads = 8
    for unit in units:
        numbers = np.arange(len(tables.structures)) if unit.tensor_par > 1 else tables.serial
        cells = len(unit.interleavings) * 2 * offloads * len(unit.microbatches)
        step = max(1, GRID_CELLS // cells)
        for start in range(0, len(numbers), step):
            yield Tile(space, tables, unit, numbers[start : start + step])


def feasible_numbers(space: Space) -> Iterator[Array]:
    """Yield the numbers of all feasible executions in order, a unit or a part of it at a time."""
    for group in groups(space):
        tables = SearchTables(space, group)
        for unit in group:
            found = [
                rows.numbers[np.broadcast_to(rows.allowed, rows.numbers.shape)]
                for tile in tiles(space, tables, [unit])
                if tile.feasible
                for rows in tile.rows(np.nonzero(tile.fits))
            ]
            if found:
                yield np.sort(np.concatenate(found))
