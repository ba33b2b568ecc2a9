"""Data parallelism of the published model: gradients are reduced once per batch, during the last chunk's backward."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from calculon.base.units import Array, Bytes, Count, Seconds
from calculon.cost.data.data_collectives import (
    both_classes,
    groups_of,
    multiprocessor_share,
    on_tensor_network,
    reduced_bytes,
)
from calculon.cost.data.synced import (
    BackwardPass,
    GradientSync,
    SyncedBlock,
    SyncedBytes,
    SyncedEmbeddingHead,
)
from calculon.cost.process_groups import CollectiveCost, data_group, slow_down
from calculon.editions.edition import DataParallelWindow, Edition
from calculon.hardware.system import System
from calculon.plan.schedule import Schedule


def synchronized(synced: SyncedBytes, cost: CollectiveCost) -> Array:
    """Return the cost of reducing gradients and, with a sharded optimizer, of gathering weights.

    Source: all-reduce, or reduce-scatter and all-gather: Rajbhandari et al., *ZeRO*, arXiv 1910.02054, section 7.
    """
    schedule = cost.schedule
    group = data_group(schedule, cost.system, schedule.data_ranks)
    split = cost("reduce_scatter", synced.gradient, group)
    split = split + cost("all_gather", synced.weight, group)
    return np.where(schedule.shards > 1, split, cost("all_reduce", synced.gradient, group))


def of_block(synced: SyncedBlock, cost: CollectiveCost) -> Array:
    """Return the cost of synchronizing a block, with routed experts among their own replicas."""
    dense = synchronized(synced.dense, cost)
    if synced.experts is None:
        return dense
    schedule, groups = cost.schedule, groups_of(synced, cost.schedule, cost.system)
    split = cost("reduce_scatter", synced.experts.gradient, groups[1])
    split = split + cost("all_gather", synced.experts.weight, groups[1])
    whole = cost("all_reduce", synced.experts.gradient, groups[1])
    experts = np.where(schedule.shards > 1, split, whole)
    experts = np.where(synced.experts.weight > 0, experts, 0.0)
    return both_classes(dense, experts, (groups[0], groups[1]), cost)


def published_traffic(
    synced: SyncedBlock, embedding_head: SyncedEmbeddingHead | None, cost: CollectiveCost
) -> Array:
    """Return the cost of all collectives of a batch in the unit of the cost function; `synced` is one block."""
    blocks: Array = cost.schedule.blocks * of_block(synced, cost)
    if embedding_head is None:
        return blocks
    ends = _embedding_head_traffic(embedding_head, cost).of_longer
    if synced.experts is not None:  # experts may have replicas when the model has one
        ends = np.where(cost.schedule.data_ranks > 1, ends, 0.0)
    return blocks + ends


def published_sync(
    synced: SyncedBlock,
    embedding_head: SyncedEmbeddingHead | None,
    backward: BackwardPass,
    cost: CollectiveCost,
    edition: Edition,
) -> GradientSync:
    """Return the times of data parallelism; gradients are reduced once per batch, in a window of the last chunk."""
    schedule, system = cost.schedule, cost.system
    active = schedule.reduces & schedule.training
    collective = of_block(synced, cost)
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
        ends = _embedding_head_traffic(embedding_head, cost)
        ends_link = np.where(active & (schedule.data_ranks > 1), ends.of_longer, 0.0)
        with_ends = (
            exposed if window is None else _exposed_with_ends(exposed, window, ends, edition)
        )
        exposed = np.where(overlapped, with_ends, exposed + ends_link)
        link = link + ends_link
    return GradientSync(
        message=reduced_bytes(synced, schedule),
        link=link,
        exposed=exposed,
        chunk_bandwidth=chunk_bandwidth,
        tail_bandwidth=tail_bandwidth,
    )


class _EmbeddingHeadTraffic(NamedTuple):
    """Cost of the collectives of embedding and of head, and the cost on the stage where they take longest."""

    embedding: Array
    head: Array
    of_longer: Array
    piped: Array


def _embedding_head_traffic(
    embedding_head: SyncedEmbeddingHead, cost: CollectiveCost
) -> _EmbeddingHeadTraffic:
    """Return the cost of embedding and head; a tied table on one stage is reduced once, after both have used it."""
    piped = cost.schedule.separate_ends

    def apart(cost: CollectiveCost) -> tuple[Array, Array]:
        def of(end: SyncedBytes) -> Array:
            return np.where(end.weight > 0, synchronized(end, cost), 0.0)

        first, last = of(embedding_head.first), of(embedding_head.last)
        if not embedding_head.tied:
            return first, last
        both = of(embedding_head.both)
        return np.where(piped, first, both), np.where(piped, last, 0.0)

    embedding, head = apart(cost)
    of_longer = np.where(piped, cost.of_longer(apart), embedding + head)
    return _EmbeddingHeadTraffic(embedding, head, of_longer, piped)


def _exposed_with_ends(
    exposed: Seconds, window: DataParallelWindow, ends: _EmbeddingHeadTraffic, edition: Edition
) -> Seconds:
    """Return the exposed time with overlap: the head's gradients come first and may be hidden, the embedding's last."""
    with_head = edition.data_par_exposed(replace(window, head=ends.head))
    slower_stage = np.maximum(exposed + ends.embedding, with_head)
    return np.where(ends.piped, slower_stage, with_head + ends.embedding)


def _volume(synced: SyncedBlock, schedule: Schedule, system: System) -> Bytes:
    """Return the bytes that the collectives of a block move per endpoint."""

    def moved(part: SyncedBytes, ranks: Count) -> Bytes:
        def volume(operation: str, message: Bytes) -> Bytes:
            return system.fabric.volume(schedule.data_network, operation, message, ranks)

        split = volume("reduce_scatter", part.gradient) + volume("all_gather", part.weight)
        return np.where(schedule.shards > 1, split, volume("all_reduce", part.gradient))

    dense = moved(synced.dense, schedule.data_ranks)
    if synced.experts is None:
        return dense
    experts = moved(synced.experts, schedule.expert_data_par)
    return dense + np.where(schedule.expert_data_par > 1, experts, 0.0)


def _window(
    synced: SyncedBlock,
    collective: Seconds,
    backward: BackwardPass,
    schedule: Schedule,
    system: System,
) -> DataParallelWindow:
    """Return the window for overlapped traffic: time that uses neither the memory nor the network of the traffic."""
    network, sharded = schedule.data_network, schedule.shards > 1
    chunks = schedule.in_one_chunk if schedule.choice.folded else schedule
    scalars = system.fabric.scalars
    factor = np.where(
        sharded,
        scalars["reduce_scatter"][network]
        + scalars["all_gather"][network] * (synced.dense.weight / synced.dense.gradient),
        scalars["all_reduce"][network],
    )
    same_link = on_tensor_network(synced, schedule, system)
    groups = groups_of(synced, schedule, system)
    usage = groups[0].usage(system) if len(groups) == 1 else multiprocessor_share(groups, system)
    return DataParallelWindow(
        collective=collective,
        backward_base=backward.base,
        backward_edge=backward.edge,
        backward_chunk=chunks.chunk_sum(backward.base, backward.edge),
        memory=backward.memory,
        tensor_base=np.where(same_link, backward.tensor_base, 0.0),
        tensor_edge=np.where(same_link, backward.tensor_edge, 0.0),
        compute=backward.arithmetic,
        step_compute=np.where(sharded, 0.0, backward.step_arithmetic),
        slack=np.where(sharded, 0.0, backward.step - backward.step_memory),
        p2p=backward.p2p,
        shares_pipeline_network=network == schedule.networks["pp"],
        usage=slow_down(usage, schedule.columns.data_par_slowdown),
        microbatches=schedule.microbatches,
        pipeline_par=schedule.pipeline_par,
        interleaving=chunks.interleaving,
        chunk_blocks=chunks.chunk_blocks,
        message=synced.dense.gradient,
        traffic_factor=factor,
        volume=_volume(synced, schedule, system),
    )
