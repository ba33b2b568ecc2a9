"""Data parallelism as the published model has it: gradients once per batch, in a window of the last chunk."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from calculon.editions.edition import DataParallelWindow, Edition
from calculon.hardware.system import System
from calculon.parallel.beside import slow_down
from calculon.parallel.data.synced import (
    BackwardPass,
    GradientSync,
    SyncedBytes,
    SyncedEmbeddingHead,
)
from calculon.parallel.process_groups import CollectiveCost, axis_group, data_group
from calculon.plan.schedule import Schedule
from calculon.units import Array, Bytes, Seconds


def synchronised(synced: SyncedBytes, cost: CollectiveCost) -> Array:
    """Reduce gradients, and with a sharded optimizer gather weights.

    Source: all-reduce, or reduce-scatter and all-gather: Rajbhandari et al., *ZeRO*, arXiv 1910.02054, section 7.
    """
    schedule = cost.schedule
    group = data_group(schedule, cost.system, schedule.data_par)
    split = cost("reduce_scatter", synced.gradient, group)
    split = split + cost("all_gather", synced.weight, group)
    return np.where(schedule.shards > 1, split, cost("all_reduce", synced.gradient, group))


def published_traffic(
    synced: SyncedBytes, embedding_head: SyncedEmbeddingHead | None, cost: CollectiveCost
) -> Array:
    """Return what all collectives of a batch take, as a cost function counts it; `synced` is one block."""
    found: Array = cost.schedule.blocks * synchronised(synced, cost)
    return (
        found
        if embedding_head is None
        else found + _embedding_head_traffic(embedding_head, cost).of_longer
    )


def published_sync(
    synced: SyncedBytes,
    embedding_head: SyncedEmbeddingHead | None,
    backward: BackwardPass,
    cost: CollectiveCost,
    edition: Edition,
) -> GradientSync:
    """Time data parallelism as the published model has it: gradients once per batch, in a window of the last chunk."""
    schedule, system = cost.schedule, cost.system
    active = (schedule.data_par > 1) & schedule.training
    collective = synchronised(synced, cost)
    link = np.where(active, schedule.blocks * collective, 0.0)
    overlapped = active & schedule.columns.data_par_overlap
    none = np.zeros_like(link)
    exposed, chunk_bandwidth, tail_bandwidth = link, none, none
    window = None
    if overlapped.any():
        window = _window(synced, collective, backward, schedule, system)
        exposed = np.where(overlapped, edition.data_par_exposed(window), link)
        chunk, tail = edition.data_par_bandwidth(window)
        chunk_bandwidth = np.where(overlapped, chunk, 0.0)
        tail_bandwidth = np.where(overlapped, tail, 0.0)
    if embedding_head is not None:
        more = _embedding_head_traffic(embedding_head, cost)
        after = np.where(active, more.of_longer, 0.0)
        hidden = exposed if window is None else _hidden_head(exposed, window, more, edition)
        exposed = np.where(overlapped, hidden, exposed + after)
        link = link + after
    return GradientSync(
        message=np.where(active, synced.gradient, 0.0),
        link=link,
        exposed=exposed,
        chunk_bandwidth=chunk_bandwidth,
        tail_bandwidth=tail_bandwidth,
    )


class _EmbeddingHeadTraffic(NamedTuple):
    """What the collectives of embedding and head take, and those of the stage where they take longest."""

    embedding: Array
    head: Array
    of_longer: Array
    piped: Array


def _embedding_head_traffic(
    embedding_head: SyncedEmbeddingHead, cost: CollectiveCost
) -> _EmbeddingHeadTraffic:
    """Count those of embedding and LM head; a shared table on one stage is reduced once, after both have used it."""
    piped = cost.schedule.pipeline_par > 1

    def apart(cost: CollectiveCost) -> tuple[Array, Array]:
        first, last = (
            np.where(end.weight > 0, synchronised(end, cost), 0.0)
            for end in (embedding_head.first, embedding_head.last)
        )
        if not embedding_head.tied:
            return first, last
        both = synchronised(embedding_head.both, cost)
        return np.where(piped, first, both), np.where(piped, last, 0.0)

    embedding, head = apart(cost)
    of_longer = np.where(piped, cost.of_longer(apart), embedding + head)
    return _EmbeddingHeadTraffic(embedding, head, of_longer, piped)


def _hidden_head(
    exposed: Seconds,
    window: DataParallelWindow,
    embedding_head: _EmbeddingHeadTraffic,
    edition: Edition,
) -> Seconds:
    """Exposed time with overlap: the head's gradients come first and may hide, the embedding's come last."""
    with_head = edition.data_par_exposed(replace(window, head=embedding_head.head))
    alone = np.maximum(exposed + embedding_head.embedding, with_head)
    return np.where(embedding_head.piped, alone, with_head + embedding_head.embedding)


def _volume(synced: SyncedBytes, schedule: Schedule, system: System) -> Bytes:
    """Bytes that the collectives of a block move per endpoint."""

    def volume(operation: str, message: Bytes) -> Bytes:
        return system.fabric.volume(schedule.networks["dp"], operation, message, schedule.data_par)

    split = volume("reduce_scatter", synced.gradient) + volume("all_gather", synced.weight)
    return np.where(schedule.shards > 1, split, volume("all_reduce", synced.gradient))


def _window(
    synced: SyncedBytes,
    collective: Seconds,
    backward: BackwardPass,
    schedule: Schedule,
    system: System,
) -> DataParallelWindow:
    """Gather what overlapped traffic can hide behind: time that uses neither memory nor its network."""
    network, sharded = schedule.networks["dp"], schedule.shards > 1
    scalars = system.fabric.scalars
    factor = np.where(
        sharded,
        scalars["reduce_scatter"][network]
        + scalars["all_gather"][network] * (synced.weight / synced.gradient),
        scalars["all_reduce"][network],
    )
    group = data_group(schedule, system, schedule.data_par)
    same_link = group.meets(axis_group(schedule, system, "tp"), system)
    return DataParallelWindow(
        collective=collective,
        backward_base=backward.base,
        backward_edge=backward.edge,
        backward_chunk=schedule.chunk_sum(backward.base, backward.edge),
        memory=backward.memory,
        tensor_base=np.where(same_link, backward.tensor_base, 0.0),
        tensor_edge=np.where(same_link, backward.tensor_edge, 0.0),
        compute=backward.arithmetic,
        step_compute=np.where(sharded, 0.0, backward.step_arithmetic),
        slack=np.where(sharded, 0.0, backward.step - backward.step_memory),
        p2p=backward.p2p,
        shares_pipeline_network=network == schedule.networks["pp"],
        usage=slow_down(group.usage(system), schedule.columns.data_par_slowdown),
        microbatches=schedule.microbatches,
        pipeline_par=schedule.pipeline_par,
        interleaving=schedule.interleaving,
        chunk_blocks=schedule.chunk_blocks,
        message=synced.gradient,
        traffic_factor=factor,
        volume=_volume(synced, schedule, system),
    )
