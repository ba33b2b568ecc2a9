"""A tile has the statistics and numbers of its executions, knows which fit, and promises no less than they hold."""

import numpy as np

import calculon
from calculon.editions import EDITIONS
from calculon.search.best_first import groups, tiles
from calculon.search.cost_tables import CostTables
from calculon.search.objective import Objective
from tests.search.brute import Case
from tests.search.pool import on_pool


def _tiles(space):
    for group in groups(space):
        yield from tiles(space, CostTables(space, group), group)


@on_pool(0, 4)
def test_rows_have_the_statistics_of_their_executions_to_the_bit(case, draw):
    feasible, known = np.flatnonzero(case.table.feasible), EDITIONS[case.edition].columns
    numbers, found = [np.zeros(0, int)], {column.name: [np.zeros(0)] for column in known}
    for tile in _tiles(case.space):
        for rows in tile.rows(np.nonzero(tile.fits)) if tile.feasible else ():
            shape = rows.numbers.shape
            chosen = np.broadcast_to(rows.allowed, shape)
            numbers.append(rows.numbers[chosen])
            for column in known:
                values = np.broadcast_to(column.of(rows.batch), shape)
                found[column.name].append(values[chosen])
    order = np.argsort(np.concatenate(numbers))
    plan, wanted = case.space.plan(np.concatenate(numbers)[order]), case.plan.take(feasible)
    assert all((plan.values(name) == wanted.values(name)).all() for name in case.space.values)
    for name, values in found.items():
        mine = np.concatenate(values)[order]
        assert np.array_equal(mine, case.table[name][feasible], equal_nan=True), name


@on_pool(1, 4)
def test_no_execution_beats_what_its_cell_can_hope_for(case, draw):
    known = [column.name for column in EDITIONS[case.edition].columns]
    bounded = [one for one in ("sample_rate", "total_time", "tokens_per_second") if one in known]
    objectives = [Objective.parse(text) for text in bounded]
    for tile in _tiles(case.space):
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


def test_a_forgotten_grid_changes_nothing():
    case = _case(8, fix={"data_par_overlap": (False,), "weight_offload": (False,)})
    for tile in _tiles(case.space):
        tile.count(mbs_break=True)
        fits, least = tile.fits.copy(), tile.time_lower_bound.copy()
        tile.release_grid()
        assert (tile.fits == fits).all()
        assert (tile.time_lower_bound == least).all()


def test_only_executions_that_the_loops_have_are_enumerated():
    assert not any(_with_offload_and_full(_case(4, add={})))
    assert any(_with_offload_and_full(_case(4, add={"activations_offload": (True,)})))


def _with_offload_and_full(case):
    for tile in _tiles(case.space):
        for rows in tile.rows(np.nonzero(tile.fits)):
            plan = case.space.plan(rows.numbers.ravel())
            full = plan.is_choice("activation_recompute", "full")
            yield (full & plan.activations_offload).any()


def _case(num_procs, **options):
    model = calculon.Model(
        hidden=768, feedforward=3072, seq_size=512, attn_heads=12, attn_size=64, num_blocks=12
    )
    return Case(
        model, calculon.inputs.system("a100_80g"), num_procs, num_procs, "float16", **options
    )
