"""A tile has the statistics and numbers of its executions, knows which fit, and promises no less than they hold."""

import numpy as np

from calculon.editions import EDITIONS
from calculon.search.objective import Objective
from tests.search.brute import same_rows
from tests.search.pool import all_tiles, on_pool, searched


@on_pool(0, 4)
def test_rows_have_the_statistics_of_their_executions_to_the_bit(case, draw):
    feasible = np.flatnonzero(case.table.feasible)
    numbers, found = searched(case.space)
    assert same_rows(case.space.plan(numbers), case.plan.take(feasible))
    for name, values in found.items():
        assert np.array_equal(values, case.table[name][feasible], equal_nan=True), name


@on_pool(1, 4)
def test_no_execution_beats_what_its_cell_can_hope_for(case, draw):
    known = [column.name for column in EDITIONS[case.edition].columns]
    bounded = [one for one in ("sample_rate", "total_time", "tokens_per_second") if one in known]
    objectives = [Objective.parse(text) for text in bounded]
    for tile in all_tiles(case.space):
        axes = len(tile.shape)
        cells = tuple(np.indices(tile.shape).reshape(axes, -1))  # those that do not fit as well
        least = tile.time_lower_bound
        assert (least > 0).all()
        assert least.shape == (tile.shape[0], tile.shape[-1])
        of_cell, batches = least[cells[0], cells[-1]], tile.batch_size[cells[-1]]
        all_tokens = tile.tokens[cells[-1]]
        done = 0
        for rows in tile.rows(cells):
            here = slice(done, done + rows.numbers.shape[-1])
            part, batch_size, tokens = of_cell[here], batches[here], all_tokens[here]
            done += len(part)
            for objective in objectives:
                bound = objective.bound(part.copy, batch_size, tokens)
                assert (objective.score(rows.batch) <= bound).all()
        assert done == len(of_cell)


@on_pool(3, 12)
def test_a_forgotten_grid_changes_nothing(case, draw):
    for tile in all_tiles(case.space):
        tile.count(mbs_break=True)
        fits, least = tile.fits.copy(), tile.time_lower_bound.copy()
        tile.release_grid()
        assert (tile.fits == fits).all()
        assert (tile.time_lower_bound == least).all()
