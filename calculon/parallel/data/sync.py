"""Data parallelism: reducing gradients, gathering updated weights, and what can hide it."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from calculon.editions.edition import DataParallelWindow, Edition
from calculon.hardware.system import System
from calculon.parallel.data.exchanges import Exchanges
from calculon.parallel.data.replication import Replication, Synchronisation, Windows
from calculon.parallel.data.synced import NOTHING, Synced, SyncedEnds
from calculon.parallel.process_groups import Meter, data_team
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


def synchronised(synced: Synced, meter: Meter) -> Array:
    """Reduce gradients, and with a sharded optimizer gather weights.

    Source: all-reduce, or reduce-scatter and all-gather: Rajbhandari et al., *ZeRO*, arXiv 1910.02054, section 7.
    """
    schedule = meter.schedule
    team = data_team(schedule, meter.system, schedule.data_par)
    split = meter("reduce_scatter", synced.gradient, team)
    split = split + meter("all_gather", synced.weight, team)
    return np.where(schedule.shards > 1, split, meter("all_reduce", synced.gradient, team))


def data_traffic(synced: Synced, ends: SyncedEnds | None, meter: Meter) -> Array:
    """Return what all collectives of a batch take, as a meter counts it; `synced` is one block."""
    schedule = meter.schedule
    found = schedule.blocks * synchronised(synced, meter)
    if ends is not None:
        found = found + _ends(ends, meter).of_longer
    if (form := schedule.replicas) is not None:
        both = _apart(ends, schedule)
        found = np.where(form.stated, Exchanges(synced, both, meter).batch, found)
    return np.where((schedule.data_par > 1) & schedule.training, found, 0.0)


def gradient_sync(
    synced: Synced,
    backward: BackwardPass,
    schedule: Schedule,
    system: System,
    edition: Edition,
    ends: SyncedEnds | None = None,
) -> GradientSync:
    """Time the synchronisation of replicas (section 5.6); `synced` is one block."""
    form = schedule.replicas
    active = (schedule.data_par > 1) & schedule.training
    if form is not None and np.all(form.stated):
        published = _nothing(np.where(active, synced.gradient, 0.0))
    else:
        published = _published_sync(synced, backward, schedule, system, edition, ends)
    if form is None:
        return published
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


def _nothing(message: Bytes) -> GradientSync:
    """Return traffic of these messages that takes no time yet."""
    none = np.zeros_like(message)
    return GradientSync(
        message=message, link=none, exposed=none, chunk_bandwidth=none, tail_bandwidth=none
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
    exchanges = Exchanges(synced, _apart(ends, schedule), Meter(system, schedule))
    return Replication(exchanges, windows).synchronisation()


def _apart(ends: SyncedEnds | None, schedule: Schedule) -> tuple[Synced, Synced]:
    """Return embedding and head, each on its stage."""
    return (NOTHING, NOTHING) if ends is None else ends.apart(schedule.pipeline_par > 1)


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
    meter = Meter(system, schedule)
    collective = synchronised(synced, meter)
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
        more = _ends(ends, meter)
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


class _Ends(NamedTuple):
    """What the collectives of embedding and head take, and those of the stage where they take longest."""

    embedding: Array
    head: Array
    of_longer: Array
    piped: Array


def _ends(ends: SyncedEnds, meter: Meter) -> _Ends:
    """Count the collectives of the ends; a shared table on one stage is reduced once, after both have used it."""
    piped = meter.schedule.pipeline_par > 1

    def apart(meter: Meter) -> tuple[Array, Array]:
        first, last = (synchronised(end, meter) for end in (ends.first, ends.last))
        if not ends.tied:
            return first, last
        both = synchronised(ends.both, meter)
        return np.where(piped, first, both), np.where(piped, last, 0.0)

    embedding, head = apart(meter)
    of_longer = np.where(piped, meter.of_longer(apart), embedding + head)
    return _Ends(embedding, head, of_longer, piped)


def _hidden_head(
    exposed: Seconds, window: DataParallelWindow, ends: _Ends, edition: Edition
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
