"""Lower bounds on the time of all executions of a cell: they let a search prune cells and remain exact."""

from collections.abc import Sequence
from dataclasses import fields
from functools import reduce
from operator import add
from typing import NamedTuple

import numpy as np

from calculon.base.record_arrays import gather, view
from calculon.base.units import Array, Seconds
from calculon.cost.block_cost import BlockCost
from calculon.cost.block_times import block_passes
from calculon.cost.data.stage_traffic import StageTraffic
from calculon.cost.data.strategies import STRATEGIES
from calculon.cost.data.synced import BackwardPass, SyncedBlock, SyncedEmbeddingHead, synced_block
from calculon.cost.embedding_head import EmbeddingHeadTimes
from calculon.cost.pipeline.schedules import Passes, batch_time
from calculon.cost.pipeline.transfers import bubble_time
from calculon.cost.prediction_modules import with_modules_apart
from calculon.cost.process_groups import CollectiveCost
from calculon.plan.columns import Columns
from calculon.plan.schedule import Schedule
from calculon.plan.stage_layout import FIRST, LAST, SECOND
from calculon.search.candidates import REPLICATED
from calculon.search.grid import NETWORKS, WITHIN, Grid


def time_lower_bound(grid: Grid) -> Seconds:
    """Return a lower bound on the time of a cell over all its networks, overlap and offloading options.

    The bound contains compute, activation recomputation, the least exposed tensor-parallel time and the pipeline bubble
    of these. It ignores pipeline transfers, data-parallel traffic and offload traffic: they only add time, and each
    would need the grid of networks and switches that the bound avoids (:func:`exposed_lower_bound`).

    Returns:
        Seconds, on the axes (sharding, node).
    """
    tables, schedule, optimizer = grid.tables, grid.memory.schedule, grid.memory.stage.optimizer
    rows = grid.nodes.block_rows
    embedding_head, kinds = tables.embedding_head(rows, grid.step_rows), None
    if schedule.layout is not None:
        kinds = tables.kinds(rows, grid.step_rows)
    if schedule.modules and embedding_head is not None:
        block = gather(tables.block, rows)
        embedding_head, kinds = with_modules_apart(embedding_head, block, optimizer, kinds)
    embedding_head_times = EmbeddingHeadTimes(embedding_head, schedule) if embedding_head else None
    if schedule.layout is not None:
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
    # The blocks of the largest stage may be of a kind that costs less than the mean.
    several = tables.several_kinds or schedule.modules > 0
    fullest = schedule.mean_blocks if several else schedule.blocks
    time = time + fullest * optimizer.step.time
    return np.asarray(time.min(axis=WITHIN))


def _passes(grid: Grid, block: BlockCost, piped: Array) -> tuple[Seconds, Seconds]:
    """Return forward and backward times of blocks without transfers and offloading: axes (kind, network, node)."""
    tables = grid.tables
    collectives = tables.edition.at_edge(block.collectives, piped)
    return block_passes(block, collectives, exchanges=tables.exchanges)


def _shortest(grid: Grid, block: BlockCost, piped: Array) -> Seconds:
    """Return the least time of both passes over block kinds and networks, net of overlapped passes."""
    forward, backward = _passes(grid, block, piped)
    shortest: Seconds = (forward + backward).min(axis=(0, 1))
    return shortest - block.paired.max(axis=0) if grid.choice.pairs_passes else shortest


def _of_stages(
    schedule: Schedule, blocks: Sequence[Seconds], embedding_head: EmbeddingHeadTimes | None
) -> Seconds:
    """Return a lower bound on the passes for every schedule and layout, from the least time of each kind of block.

    Every form of :func:`~calculon.cost.pipeline.schedules.batch_time` rises with the time of each stage. ZB-H1 fills
    the pipeline with forward passes only, whose time is unknown here, and simulated schedules have no formula. For both
    the bound is the time of all passes of the slowest stage. So it is for chunks that differ, or the time of all passes
    of the last stage, before and after which one microbatch passes the first chunks of the other stages.
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
    time = batch_time(name, passes, schedule.microbatches, schedule.interleaving)
    chunks = schedule.chunk_layouts
    if chunks is None:
        return time
    before = np.array([one.of_kind[:, :-1, 0].sum() for one in chunks.layouts])[chunks.number]
    fill = before * reduce(np.minimum, blocks)
    if embedding_head is not None:
        fill = fill + first
    several = schedule.microbatches * passes.largest(both)
    several = np.maximum(several, schedule.microbatches * both[LAST] + fill)
    return np.where(chunks.differ, several, time)


def exposed_lower_bound(grid: Grid, nodes: Array) -> Seconds | float:
    """Return a lower bound on the exposed data-parallel time of nodes: axes (sharding, node).

    The bound takes the fastest data network, overlap if the search tries it, and the longest passes without transfers
    and offloading as the windows that hide traffic. Waiting for transfers widens a window, but lengthens the iteration
    by the same amount. The stage with the least exposed time bounds all stages. The bound is 0 for the published laws
    and for stages with several kinds of block.
    """
    strategy = STRATEGIES[grid.choice.zero_stage]
    several = grid.tables.several_kinds or grid.choice.modules_apart
    if strategy.sharding is None or several:
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
            # Networks that differ from the data network: pipeline and tensor traffic does not shrink the windows.
            **dict.fromkeys(NETWORKS, np.array(-1)),
            "data_par_net": np.array(grid.networks[0])[:, None, None],
        }
    )
    system = grid.space.system
    schedule = Schedule(columns, grid.choice, grid.space.model, system)
    # Windows that the explicit strategies do not use, or that only the published laws read, are empty.
    none = np.zeros(1)
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
        ends = embedding_head.on_stages(schedule.separate_ends)
        of_embedding_head = ends.synced(reduced, schedule)
    stages = [_Synced((synced, of_embedding_head), windows)]
    if schedule.layout is not None:
        stages *= len(schedule.layout.blocks)
    cost = CollectiveCost(system, schedule)
    exposed: Array = StageTraffic(stages, cost, grid.tables.edition).least_exposed
    exposed = np.broadcast_to(exposed, np.broadcast_shapes(exposed.shape, (1, 1, 1)))
    return np.asarray(exposed.min(axis=0))


class _Synced(NamedTuple):
    """Data that a stage synchronizes, and the passes that can hide the traffic."""

    synced: tuple[SyncedBlock, SyncedEmbeddingHead | None]
    backward_pass: BackwardPass
