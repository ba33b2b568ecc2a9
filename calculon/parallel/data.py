"""Data parallelism: reducing gradients, gathering updated weights, and what can hide it."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from calculon.edition import DataParallelWindow, Edition
from calculon.hardware.system import System
from calculon.parallel.groups import collective, data_team
from calculon.parallel.replication import Replication, Synchronisation, Windows
from calculon.parallel.synced import NOTHING, Synced, SyncedEnds
from calculon.plan.schedule import Schedule
from calculon.records import apply, record
from calculon.units import Array, Bytes, BytesPerSecond, Seconds


@record
class GradientSync:
    """Data-parallel traffic of one batch; ``stalled`` is the part of what is exposed that each microbatch waits for."""

    message: Bytes
    link: Seconds
    exposed: Seconds
    chunk_bandwidth: BytesPerSecond
    tail_bandwidth: BytesPerSecond
    stalled: Seconds | None = None


@record
class BackwardPass:
    """What the backward pass of a block offers to data-parallel traffic.

    ``forward`` is the forward time of a base block, ``tensor_forward`` what of it is on the tensor-parallel link,
    ``head`` the backward time of the output head. ``base`` and ``edge`` are the whole backward times, ``p2p`` the
    transfer in an edge block. ``memory`` is time on tier-1 memory, ``tensor_base`` and ``tensor_edge`` time on the
    tensor-parallel link, ``arithmetic`` that of the gradient passes and of recomputation; ``step_memory``,
    ``step_arithmetic`` and ``step`` belong to the optimizer.
    """

    forward: Seconds
    tensor_forward: Seconds
    head: Seconds
    base: Seconds
    edge: Seconds
    p2p: Seconds
    memory: Seconds
    tensor_base: Seconds
    tensor_edge: Seconds
    arithmetic: Seconds
    step: Seconds
    step_memory: Seconds
    step_arithmetic: Seconds


def collective_time(synced: Synced, schedule: Schedule, system: System) -> Seconds:
    """Time to reduce gradients, and with a sharded optimizer to gather weights.

    Source: all-reduce, or reduce-scatter and all-gather: Rajbhandari et al., *ZeRO*, arXiv 1910.02054, section 7.
    """
    team = data_team(schedule, system, schedule.data_par)

    def time(operation: str, message: Bytes) -> Seconds:
        return collective(system, operation, message, team, schedule)

    split = time("reduce_scatter", synced.gradient) + time("all_gather", synced.weight)
    return np.where(schedule.shards > 1, split, time("all_reduce", synced.gradient))


def gradient_sync(
    synced: Synced,
    backward: BackwardPass,
    schedule: Schedule,
    system: System,
    edition: Edition,
    ends: SyncedEnds | None = None,
) -> GradientSync:
    """Time the synchronisation of replicas (section 5.6); `synced` is one block."""
    published = _published_sync(synced, backward, schedule, system, edition, ends)
    form = schedule.replicas
    if form is None:
        return published
    active = (schedule.data_par > 1) & schedule.training
    natural = _natural_sync(synced, backward, schedule, system, ends)
    here, none = active & form.stated, np.zeros_like(published.link)
    return GradientSync(
        message=published.message,
        link=np.where(here, natural.link, published.link),
        exposed=np.where(here, natural.exposed, published.exposed),
        chunk_bandwidth=np.where(form.stated, none, published.chunk_bandwidth),
        tail_bandwidth=np.where(form.stated, none, published.tail_bandwidth),
        stalled=np.where(here, natural.stalled, none),
    )


def _natural_sync(
    synced: Synced,
    backward: BackwardPass,
    schedule: Schedule,
    system: System,
    ends: SyncedEnds | None,
) -> Synchronisation:
    """Time data parallelism in the forms that executions state."""
    same_link = schedule.data_par_net == schedule.tensor_par_net
    windows = Windows(
        forward=backward.forward - np.where(same_link, backward.tensor_forward, 0.0),
        backward=backward.base - np.where(same_link, backward.tensor_base, 0.0),
        head=backward.head,
    )
    windows = apply(lambda window: np.maximum(window, 0.0), [windows])
    both = (NOTHING, NOTHING) if ends is None else ends.apart(schedule.pipeline_par > 1)
    return Replication(synced, both, windows, schedule, system).synchronisation()


def _published_sync(
    synced: Synced,
    backward: BackwardPass,
    schedule: Schedule,
    system: System,
    edition: Edition,
    ends: SyncedEnds | None,
) -> GradientSync:
    """Time data parallelism as the published model has it: gradients once per batch, in a window of the last chunk."""
    active = (schedule.data_par > 1) & schedule.training
    collective = collective_time(synced, schedule, system)
    link = np.where(active, schedule.blocks * collective, 0.0)
    overlapped = active & schedule.data_par_overlap
    none = np.zeros_like(link)
    exposed, chunk_bandwidth, tail_bandwidth = link, none, none
    window = None
    if overlapped.any():
        window = _window(synced, collective, backward, schedule, system)
        exposed = np.where(overlapped, edition.data_par_exposed(window), link)
        chunk, tail = edition.data_par_bandwidth(window)
        chunk_bandwidth = np.where(overlapped, chunk, 0.0)
        tail_bandwidth = np.where(overlapped, tail, 0.0)
    if ends is not None:
        more = _end_times(ends, schedule, system)
        after = np.where(active, more.link, 0.0)
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


class _EndTimes(NamedTuple):
    """Time of the collectives of embedding and head, and of those of the stage that has most of it."""

    embedding: Seconds
    head: Seconds
    link: Seconds
    piped: Array


def _end_times(ends: SyncedEnds, schedule: Schedule, system: System) -> _EndTimes:
    """Time the collectives of the ends; a shared table on one stage is reduced once, after both have used it."""
    piped = schedule.pipeline_par > 1
    first, last = (collective_time(end, schedule, system) for end in (ends.first, ends.last))
    embedding, head = first, last
    if ends.tied:
        both = collective_time(ends.both, schedule, system)
        embedding, head = np.where(piped, first, both), np.where(piped, last, 0.0)
    link = np.where(piped, np.maximum(embedding, head), embedding + head)
    return _EndTimes(embedding, head, link, piped)


def _hidden_head(
    exposed: Seconds, window: DataParallelWindow, ends: _EndTimes, edition: Edition
) -> Seconds:
    """Exposed time with overlap: the head's gradients come first and may hide, the embedding's come last."""
    with_head = edition.data_par_exposed(replace(window, head=ends.head))
    alone = np.maximum(exposed + ends.embedding, with_head)
    return np.where(ends.piped, alone, with_head + ends.embedding)


def _volume(synced: Synced, schedule: Schedule, system: System) -> Bytes:
    """Bytes that the collectives of a block move per endpoint."""

    def volume(operation: str, message: Bytes) -> Bytes:
        return system.fabric.volume(schedule.data_par_net, operation, message, schedule.data_par)

    split = volume("reduce_scatter", synced.gradient) + volume("all_gather", synced.weight)
    return np.where(schedule.shards > 1, split, volume("all_reduce", synced.gradient))


def _window(
    synced: Synced,
    collective: Seconds,
    backward: BackwardPass,
    schedule: Schedule,
    system: System,
) -> DataParallelWindow:
    """Gather what overlapped traffic can hide behind: time that uses neither memory nor its network."""
    network, sharded = schedule.data_par_net, schedule.shards > 1
    scalars = system.fabric.scalars
    factor = np.where(
        sharded,
        scalars["reduce_scatter"][network]
        + scalars["all_gather"][network] * (synced.weight / synced.gradient),
        scalars["all_reduce"][network],
    )
    same_link = network == schedule.tensor_par_net
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
        shares_pipeline_network=network == schedule.pipeline_par_net,
        usage=system.fabric.processor_usage[network],
        microbatches=schedule.microbatches,
        pipeline_par=schedule.pipeline_par,
        interleaving=schedule.interleaving,
        chunk_blocks=schedule.chunk_blocks,
        message=synced.gradient,
        traffic_factor=factor,
        volume=_volume(synced, schedule, system),
    )
