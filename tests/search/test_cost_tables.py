"""The rows of the block tables of a search are those that an evaluation has."""

import numpy as np

from calculon.editions import EDITIONS
from calculon.evaluate import evaluate_rows
from calculon.plan.plan import NAMES, Plan
from calculon.plan.schedule import shard_count
from calculon.records import columns, gather
from calculon.search.best_first import groups
from calculon.search.cost_tables import CostTables
from calculon.search.grid import OF_CELLS
from calculon.statistics import Stats
from tests.search.pool import on_pool, several_parts

OF_BLOCK = [c for c in columns(Stats) if c.path[0] in ("fw", "re", "agrad", "wgrad")]


@on_pool(2, 12)
def test_blocks_and_steps_are_found_where_they_are_laid(case, draw):
    if several_parts(case):  # variants have shards of their own
        return
    space = case.space
    for group in groups(space):
        tables = CostTables(space, group)
        assert tables.variants is space.variants
        for unit in group:
            numbers = np.arange(len(space.variants))
            if unit.tensor_par == 1:
                numbers = np.flatnonzero(space.variants.serial)
            variant, size = (
                index.ravel()
                for index in np.meshgrid(numbers, np.arange(len(unit.microbatches)), indexing="ij")
            )
            networks = tables.networks(unit)
            rows = tables.block_rows(tables.of_unit(unit)[2][size], variant, networks).ravel()
            block = gather(tables.block, rows)
            for sharded in (False, True) if unit.data_par > 1 else (False,):
                plan = _plan(space, unit, variant, size, sharded=sharded)
                shards = shard_count(
                    plan.optimizer_sharding, plan.dp_shard, plan.data_par * plan.context_par
                )
                every = np.tile(variant, networks)
                step = gather(
                    tables.optimizer, tables.step_rows(plan.tensor_par, every, shards.astype(int))
                )
                found = 0
                for part, batch in evaluate_rows(
                    case.model, case.system, plan, EDITIONS[space.edition]
                ):
                    found += len(part)
                    form = plan.values("zero_stage")[part]
                    own = ~np.isin(
                        form, ("3", "fsdp", "owner")
                    )  # weights that arrive are copied, by batch
                    for column in OF_BLOCK:
                        same = column.of(block)[part] == column.of(batch)
                        assert same[own].all(), column.name
                    shown = batch.edition.at_edge(
                        gather(tables.block.collectives, rows[part]),
                        np.array(unit.pipeline_par > 1),
                    )
                    exposed = shown.fw_tp.time_exposed
                    assert (exposed == batch.fw_tp.time_exposed).all()
                    assert (step.state[part] == batch.optimizer.state).all()
                    assert (step.step.time[part] == batch.optimizer.step.time).all()
                assert found == len(rows)


def _plan(space, unit, variant, size, *, sharded):
    """One execution for each tensor network, variant and microbatch size, in the order of the rows."""
    networks = space.networks("tensor_par_net", unit.tensor_par)
    of_unit = {
        "tensor_par": unit.tensor_par,
        "pipeline_par": unit.pipeline_par,
        "data_par": unit.data_par,
        "pipeline_par_net": 0,
        "data_par_net": 0,
        "batch_size": unit.batch_size,
        "pipeline_interleaving": 1,
        "optimizer_sharding": sharded,
        "data_par_overlap": False,
        **dict.fromkeys(OF_CELLS, False),
    }
    columns = {
        **space.rules.constants,
        **{name: np.array(value) for name, value in of_unit.items()},
        **space.variants.take(np.tile(variant, len(networks))),
        "microbatch_size": np.tile(np.array(unit.microbatches)[size], len(networks)),
        "tensor_par_net": np.repeat(networks, len(variant)),
    }
    rows = len(networks) * len(variant)
    return Plan({name: np.array(np.broadcast_to(columns[name], rows)) for name in NAMES})
