"""The rows of the block tables of a search are those that an evaluation has."""

import numpy as np
from hypothesis import given, settings

import calculon
from calculon.editions import EDITIONS
from calculon.evaluate import evaluate_rows
from calculon.records import columns, gather
from calculon.search.cost_tables import SearchTables
from calculon.search.one import groups
from calculon.statistics import Stats
from tests.search.brute import cases

OF_BLOCK = [c for c in columns(Stats) if c.path[0] in ("fw", "re", "agrad", "wgrad")]


@settings(max_examples=20)
@given(case=cases())
def test_blocks_and_steps_are_found_where_they_are_laid(case):
    space = case.space
    for group in groups(space):
        tables = SearchTables(space, group)
        for unit in group:
            parallel = unit.tensor_par > 1
            numbers = np.arange(len(tables.structures)) if parallel else tables.serial
            choices = [tables.structures[i] for i in numbers]
            assert choices == list(space.structures(parallel=parallel))
            shards = np.array([1, unit.data_par])
            block = gather(tables.block, tables.block_rows(unit, numbers))
            step = gather(tables.optimizer, tables.step_rows(unit, numbers, shards[:, None]))
            for sharded in (False, True) if unit.data_par > 1 else (False,):
                plan, networks = _plan(space, unit, choices, sharded)
                _, batch = next(
                    evaluate_rows(case.model, case.system, plan, EDITIONS[space.edition])
                )
                for column in OF_BLOCK:
                    found = column.of(block).ravel()
                    assert (found == column.of(batch)).all(), column.name
                shown = batch.edition.at_edge(block.collectives, np.array(unit.pipeline_par > 1))
                exposed = shown.fw_tp.time_exposed.reshape(2, -1)
                assert (exposed == batch.fw_tp.time_exposed).all()
                state = np.tile(step.state[int(sharded)], networks)
                times = np.tile(step.step.time[int(sharded)], networks)
                assert (state == batch.optimizer.state).all()
                assert (times == batch.optimizer.step.time).all()


def _plan(space, unit, choices, sharded):
    """One execution for each tensor network, structure and microbatch size, in the order of the rows."""
    networks = space.networks("tensor_par_net", unit.tensor_par)
    names = type(choices[0]).__slots__
    records = [
        {
            **{name: getattr(choice, name) for name in names},
            "num_procs": space.num_procs,
            "tensor_par": unit.tensor_par,
            "pipeline_par": unit.pipeline_par,
            "data_par": unit.data_par,
            "tensor_par_net": network,
            "pipeline_par_net": 0,
            "data_par_net": 0,
            "batch_size": unit.batch_size,
            "microbatch_size": size,
            "pipeline_interleaving": 1,
            "optimizer_sharding": sharded,
            "data_par_overlap": False,
            "weight_offload": False,
            "activations_offload": False,
            "optimizer_offload": False,
        }
        for network in networks
        for choice in choices
        for size in unit.microbatches
    ]
    return calculon.Plan.from_records(records), len(networks)
