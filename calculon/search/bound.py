"""A time that no execution of a cell of a tile beats: what lets a search skip cells and stay exact."""

from dataclasses import fields

import numpy as np

from calculon.cost.block_cost import BlockCost
from calculon.cost.block_times import block_passes
from calculon.cost.embedding_head import EmbeddingHeadTimes
from calculon.parallel.data.strategies import STRATEGIES
from calculon.parallel.data.synced import BackwardPass, SyncedBytes
from calculon.parallel.pipeline.transfers import bubble_time
from calculon.parallel.process_groups import CollectiveCost
from calculon.plan.columns import Columns
from calculon.plan.schedule import Schedule
from calculon.records import gather
from calculon.search.grid import Grid
from calculon.units import Array, Seconds


def time_lower_bound(grid: Grid) -> Seconds:
    """Return a time that no execution of a cell beats, whatever its networks, overlap and offloading.

    Computation, recomputation, the least tensor-parallel time and the bubble of these. Transfers, data-parallel and
    offload traffic are left out: they only add to it, and each would need the grid of networks and switches, which a
    bound is there to avoid (:func:`exposed_lower_bound`).

    Returns
    -------
    array
        On the axes (sharding, node).
    """
    tables, schedule, optimizer = grid.tables, grid.memory.schedule, grid.memory.optimizer
    rows = grid.nodes.block_rows
    block = gather(tables.block, rows)
    forward, backward = _passes(grid, block, schedule.pipeline_par > 1)
    base, edge = (forward + backward).min(axis=1)
    embedding_head = tables.embedding_head(rows, grid.step_rows)
    embedding_head_times = EmbeddingHeadTimes(embedding_head, schedule) if embedding_head else None
    if schedule.layout is not None:
        time = _of_stages(schedule, np.minimum(base, edge), embedding_head_times)
    else:
        time = schedule.batch_sum(base, edge) + bubble_time(schedule, base, edge)
        if embedding_head_times is not None:
            time = time + embedding_head_times.least()
    time = time + schedule.blocks * optimizer.step.time
    return np.asarray(time[:, 0, 0, 0, :])


def _passes(grid: Grid, block: BlockCost, piped: Array) -> tuple[Seconds, Seconds]:
    """Return forward and backward time of blocks without transfers and offloading: axes (kind, network, node)."""
    return block_passes(block, grid.tables.edition.at_edge(block.collectives, piped))


def _of_stages(
    schedule: Schedule, block: Seconds, embedding_head: EmbeddingHeadTimes | None
) -> Seconds:
    """Return a time of the passes that no schedule and layout beats: that of the mean and of the fullest stage."""
    assert schedule.layout is not None
    mean = schedule.layout.mean(schedule.pipeline_par) * block
    if embedding_head is not None:
        mean = (
            mean
            + (embedding_head.embedding + embedding_head.head).min(axis=0) / schedule.pipeline_par
        )
    fullest: Seconds = np.maximum(mean, schedule.blocks * block)
    return schedule.microbatches * fullest


def exposed_lower_bound(grid: Grid, nodes: Array) -> Seconds | float:
    """Return the least exposed time of data-parallel traffic of some nodes: axes (sharding, node).

    On the best of the data networks, with overlap where it is tried, behind the longest passes that blocks have without
    transfers and offloading. Waiting for those makes what traffic hides behind longer, but the iteration by as much.
    Nothing is known of the published laws.
    """
    strategy = STRATEGIES[grid.choice.zero_stage]
    if strategy.sharding is None:
        return 0.0
    known = {n: v[nodes] if v.ndim else v for n, v in grid.nodes.columns.items()}
    rows, steps = grid.nodes.block_rows[:, nodes], grid.step_rows[:, nodes]
    block, embedding_head = gather(grid.tables.block, rows), grid.tables.embedding_head(rows, steps)
    piped = known["pipeline_par"] > 1
    forward, backward = (time[0].max(axis=0) for time in _passes(grid, block, piped))
    columns = Columns(
        {
            **known,
            "optimizer_sharding": np.array(grid.sharding)[:, None],
            "data_par_overlap": np.array(any(grid.overlap)),
            "data_par_net": np.array(grid.networks[0])[:, None, None],
            "pipeline_par_net": np.array(-1),
            "tensor_par_net": np.array(-1),  # its own network: nothing of a window is taken off
        }
    )
    system = grid.space.system
    schedule = Schedule(columns, grid.choice, grid.space.model, system)
    none = np.zeros(
        1
    )  # what explicit strategies do not hide behind, or what only the published laws read
    head = (
        none
        if embedding_head is None
        else EmbeddingHeadTimes(embedding_head, schedule).head_backward.max(axis=0)
    )
    windows = BackwardPass(
        **dict.fromkeys((field.name for field in fields(BackwardPass)), none)
        | {"forward": forward, "base": backward, "edge": backward, "head": head}
    )
    weight, gradient = block.weight[0], block.gradient_message[0]
    synced = SyncedBytes(weight=weight, gradient=gradient)
    of_embedding_head = None if embedding_head is None else embedding_head.synced(gradient / weight)
    cost = CollectiveCost(system, schedule)
    found = strategy.sync(synced, of_embedding_head, windows, cost, grid.tables.edition)
    exposed: Array = np.broadcast_to(
        found.exposed, np.broadcast_shapes(found.exposed.shape, (1, 1, 1))
    )
    return np.asarray(exposed.min(axis=0))
