"""A time that no execution of a cell of a tile beats: what lets a search skip cells and stay exact."""

from collections.abc import Sequence
from dataclasses import fields
from functools import reduce
from operator import add
from typing import NamedTuple

import numpy as np

from calculon.base.records import gather, view
from calculon.base.units import Array, Seconds
from calculon.cost.block_cost import BlockCost
from calculon.cost.block_times import block_passes
from calculon.cost.data.stage_traffic import StageTraffic
from calculon.cost.data.strategies import STRATEGIES
from calculon.cost.data.synced import BackwardPass, SyncedBlock, SyncedEmbeddingHead, synced_block
from calculon.cost.embedding_head import EmbeddingHeadTimes
from calculon.cost.pipeline.schedules import Passes, batch_time
from calculon.cost.pipeline.transfers import bubble_time
from calculon.cost.process_groups import CollectiveCost
from calculon.plan.columns import Columns
from calculon.plan.schedule import Schedule
from calculon.plan.stage_layout import FIRST, LAST, SECOND
from calculon.search.candidates import REPLICATED
from calculon.search.grid import NETWORKS, WITHIN, Grid


def time_lower_bound(grid: Grid) -> Seconds:
    """Return a time that no execution of a cell beats, whatever its networks, overlap and offloading.

    Computation, recomputation, the least tensor-parallel time and the bubble of these. Transfers, data-parallel and
    offload traffic are left out: they only add to it, and each would need the grid of networks and switches, which a
    bound is there to avoid (:func:`exposed_lower_bound`).

    Returns:
        On the axes (sharding, node).
    """
    tables, schedule, optimizer = grid.tables, grid.memory.schedule, grid.memory.stage.optimizer
    rows = grid.nodes.block_rows
    embedding_head = tables.embedding_head(rows, grid.step_rows)
    embedding_head_times = EmbeddingHeadTimes(embedding_head, schedule) if embedding_head else None
    if schedule.layout is not None:
        kinds = tables.kinds(rows, grid.step_rows)
        blocks = [gather(tables.block, rows)] if kinds is None else kinds.blocks
        each = [_shortest(grid, block, schedule.pipeline_par > 1) for block in blocks]
        time = _of_stages(schedule, each, embedding_head_times)
    else:
        block = gather(tables.block, rows)
        forward, backward = _passes(grid, block, schedule.pipeline_par > 1)
        base, edge = (forward + backward).min(axis=1)
        time = schedule.batch_sum(base, edge) + bubble_time(schedule, base, edge)
        if schedule.choice.pairs_passes:
            time = time - schedule.pairs * schedule.blocks * block.paired.max(axis=0)
        if embedding_head_times is not None:
            time = time + embedding_head_times.least()
    # blocks of the largest stage may be of a kind that costs less than the mean
    fullest = schedule.mean_blocks if tables.several_kinds else schedule.blocks
    time = time + fullest * optimizer.step.time
    return np.asarray(time.min(axis=WITHIN))


def _passes(grid: Grid, block: BlockCost, piped: Array) -> tuple[Seconds, Seconds]:
    """Return forward and backward time of blocks without transfers and offloading: axes (kind, network, node)."""
    tables = grid.tables
    collectives = tables.edition.at_edge(block.collectives, piped)
    return block_passes(block, collectives, exchanges=tables.exchanges)


def _shortest(grid: Grid, block: BlockCost, piped: Array) -> Seconds:
    """Return the time of both passes of the faster kind of block, on the fastest network, beside others if they are."""
    forward, backward = _passes(grid, block, piped)
    shortest: Seconds = (forward + backward).min(axis=(0, 1))
    return shortest - block.paired.max(axis=0) if grid.choice.pairs_passes else shortest


def _of_stages(
    schedule: Schedule, blocks: Sequence[Seconds], embedding_head: EmbeddingHeadTimes | None
) -> Seconds:
    """Return a time of the passes that no schedule and layout beats, from the least time of each kind of block.

    Every form of :func:`~calculon.cost.pipeline.schedules.batch_time` rises with the time of each stage. That of
    ZB-H1 fills the pipeline with forward passes alone, of which nothing is known here, nor is of what is simulated: the
    slowest stage does all of its passes.
    """
    layout, name = schedule.layout, schedule.choice.pp_schedule
    assert layout is not None
    of_kind = [layout.blocks] if layout.of_kind is None else layout.of_kind
    both = reduce(add, (count * time for count, time in zip(of_kind, blocks, strict=True)))
    if embedding_head is not None:
        first, last = embedding_head.embedding.min(axis=0), embedding_head.head.min(axis=0)
        alone = np.where(layout.count[FIRST] > 0, 0.0, first)
        both = np.concatenate(
            [both[:SECOND] + first, both[SECOND:LAST], both[LAST:] + last + alone]
        )
    none = np.zeros_like(both)
    passes = Passes(stages=layout.count, forward=both, backward=none, weight=none)
    if name == "zb_h1" or schedule.choice.simulated:
        return schedule.microbatches * passes.largest(both)
    return batch_time(name, passes, schedule.microbatches, schedule.interleaving)


def exposed_lower_bound(grid: Grid, nodes: Array) -> Seconds | float:
    """Return the least exposed time of data-parallel traffic of some nodes: axes (sharding, node).

    On the best of the data networks, with overlap where it is tried, behind the longest passes that blocks have without
    transfers and offloading. Waiting for those makes what traffic hides behind longer, but the iteration by as much.
    Every stage is stalled at least as long as the one that is least. Nothing is known of the published laws, nor of
    stages whose blocks are of several kinds.
    """
    strategy = STRATEGIES[grid.choice.zero_stage]
    if strategy.sharding is None or grid.tables.several_kinds:
        return 0.0
    known = {n: v[nodes] if v.ndim else v for n, v in grid.nodes.columns.items()}
    rows, steps = grid.nodes.block_rows[:, nodes], grid.step_rows[:, nodes]
    block, embedding_head = gather(grid.tables.block, rows), grid.tables.embedding_head(rows, steps)
    piped = known["pipeline_par"] > 1
    forward, backward = (time[0].max(axis=0) for time in _passes(grid, block, piped))
    sharding = np.array(grid.sharding)[:, None]
    columns = Columns(
        {
            **known,
            **dict(zip(REPLICATED, (sharding, np.array(any(grid.overlap))), strict=True)),
            "overlap_param_gather": np.array(True in grid.space.switches["overlap_param_gather"]),
            **dict.fromkeys(NETWORKS, np.array(-1)),  # nothing of a window is taken off
            "data_par_net": np.array(grid.networks[0])[:, None, None],
        }
    )
    system = grid.space.system
    schedule = Schedule(columns, grid.choice, grid.space.model, system)
    none = np.zeros(
        1
    )  # what explicit strategies do not hide behind, or what only the published laws read
    head = none if embedding_head is None else embedding_head.head_backward.max(axis=0)
    windows = BackwardPass(
        **dict.fromkeys((field.name for field in fields(BackwardPass)), none)
        | {"forward": forward, "base": backward, "edge": backward, "head": head}
    )
    first = view(block, lambda values: values[0])
    reduced = first.gradient_message / first.weight
    synced = synced_block(first, schedule)
    of_embedding_head = None
    if embedding_head is not None:
        ends = embedding_head.on_stages(schedule.ends_apart)
        of_embedding_head = ends.synced(reduced, schedule)
    stages = [_Synced((synced, of_embedding_head), windows)]
    if schedule.layout is not None:
        stages *= len(schedule.layout.blocks)
    cost = CollectiveCost(system, schedule)
    exposed: Array = StageTraffic(stages, cost, grid.tables.edition).least_exposed
    exposed = np.broadcast_to(exposed, np.broadcast_shapes(exposed.shape, (1, 1, 1)))
    return np.asarray(exposed.min(axis=0))


class _Synced(NamedTuple):
    """What a stage synchronises, and the passes that can hide it."""

    synced: tuple[SyncedBlock, SyncedEmbeddingHead | None]
    backward_pass: BackwardPass
