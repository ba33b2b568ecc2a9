"""Data parallelism: reducing gradients, gathering updated weights, and what can hide it."""

import numpy as np

from calculon.edition import DataParallelWindow, Edition
from calculon.hardware.system import System
from calculon.plan.schedule import Schedule
from calculon.records import record
from calculon.units import Array, Bytes, BytesPerSecond, Seconds


@record
class GradientSync:
    """Data-parallel traffic of one batch."""

    message: Bytes
    link: Seconds
    exposed: Seconds
    chunk_bandwidth: BytesPerSecond
    tail_bandwidth: BytesPerSecond


@record
class BackwardPass:
    """What the backward pass of a block offers to data-parallel traffic.

    ``base`` and ``edge`` are the whole backward times, ``p2p`` the transfer in an edge block. ``memory`` is time on
    tier-1 memory, ``tensor_base`` and ``tensor_edge`` time on the tensor-parallel link, ``arithmetic`` that of the
    gradient passes and of recomputation; ``step_memory``, ``step_arithmetic`` and ``step`` belong to the optimizer.
    """

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


def gradient_sync(
    weight: Bytes, backward: BackwardPass, schedule: Schedule, system: System, edition: Edition
) -> GradientSync:
    """Time the reduction of gradients, and with a sharded optimizer the gather of weights (section 5.6).

    Source: all-reduce, or reduce-scatter and all-gather: Rajbhandari et al., *ZeRO*, arXiv 1910.02054, section 7.
    """
    active = (schedule.data_par > 1) & schedule.training
    sharded = schedule.shards > 1
    network, members = schedule.data_par_net, schedule.data_par

    def time(operation: str) -> Seconds:
        return system.fabric.time(network, operation, weight, members)

    collective = np.where(sharded, time("reduce_scatter") + time("all_gather"), time("all_reduce"))
    link = np.where(active, schedule.blocks * collective, 0.0)
    overlapped = active & schedule.data_par_overlap
    none = np.zeros_like(link)
    exposed, chunk_bandwidth, tail_bandwidth = link, none, none
    if overlapped.any():
        scalars = system.fabric.scalars
        factor = np.where(
            sharded,
            scalars["reduce_scatter"][network] + scalars["all_gather"][network],
            scalars["all_reduce"][network],
        )
        window = _window(weight, collective, factor, sharded, backward, schedule, system)
        exposed = np.where(overlapped, edition.data_par_exposed(window), link)
        chunk, tail = edition.data_par_bandwidth(window)
        chunk_bandwidth = np.where(overlapped, chunk, 0.0)
        tail_bandwidth = np.where(overlapped, tail, 0.0)
    return GradientSync(
        message=np.where(active, weight, 0.0),
        link=link,
        exposed=exposed,
        chunk_bandwidth=chunk_bandwidth,
        tail_bandwidth=tail_bandwidth,
    )


def _window(
    weight: Bytes,
    collective: Seconds,
    factor: Array,
    sharded: Array,
    backward: BackwardPass,
    schedule: Schedule,
    system: System,
) -> DataParallelWindow:
    """Gather what overlapped traffic can hide behind: time that uses neither memory nor its network."""
    network = schedule.data_par_net
    slack = np.where(sharded, 0.0, backward.step - backward.step_memory)
    same_link = network == schedule.tensor_par_net

    def usable(whole: Seconds, tensor: Seconds) -> Seconds:
        return whole - backward.memory + slack - np.where(same_link, tensor, 0.0)

    return DataParallelWindow(
        collective=collective,
        base=usable(backward.base, backward.tensor_base),
        edge=usable(backward.edge, backward.tensor_edge),
        backward_base=backward.base,
        backward_edge=backward.edge,
        backward_chunk=schedule.chunk_sum(backward.base, backward.edge),
        compute=backward.arithmetic + np.where(sharded, 0.0, backward.step_arithmetic),
        slack=slack,
        p2p=backward.p2p,
        shares_pipeline_network=network == schedule.pipeline_par_net,
        usage=system.fabric.processor_usage[network],
        microbatches=schedule.microbatches,
        pipeline_par=schedule.pipeline_par,
        interleaving=schedule.interleaving,
        chunk_blocks=schedule.chunk_blocks,
        message=weight,
        traffic_factor=factor,
    )
