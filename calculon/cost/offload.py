"""Offloading to tier-2 memory: bytes moved, transfer time, and exposed time."""

import numpy as np

from calculon.arrays import rate
from calculon.editions.edition import Edition
from calculon.hardware.system import System
from calculon.plan.schedule import Schedule
from calculon.records import record
from calculon.statistics import OffloadBandwidth
from calculon.units import Array, Bytes, Seconds


@record
class Offload:
    """Bytes moved per block and pass, and the time that takes."""

    forward_size: Bytes
    backward_size: Bytes
    forward: Seconds
    backward: Seconds


def offload(
    weight: Bytes,
    activation: Bytes,
    state: Bytes,
    schedule: Schedule,
    system: System,
    edition: Edition,
) -> Offload:
    """Time the tier-2 traffic of a block (section 5.4)."""
    forward, backward = edition.offload_bytes(
        np.where(schedule.columns.weight_offload, weight, 0.0),
        np.where(schedule.columns.activations_offload, activation, 0.0),
        np.where(schedule.columns.optimizer_offload, state, 0.0),
    )
    if not schedule.training:
        backward = np.zeros_like(backward)
    return Offload(
        forward_size=forward,
        backward_size=backward,
        forward=system.mem2.time(forward),
        backward=system.mem2.time(backward),
    )


def exposed(transfer: Seconds, memory: Seconds, busy: Seconds) -> Seconds:
    """Time of a transfer that a block does not hide: it uses the memory when the block does not."""
    hidden: Array = transfer + memory - busy
    return np.maximum(0.0, hidden)


def offload_bandwidth(
    moved: Offload,
    weight: Bytes,
    activation: Bytes,
    optimizer: Bytes,
    forward_window: Seconds,
    backward_window: Seconds,
    *,
    training: bool,
) -> OffloadBandwidth:
    """Tier-2 bandwidth that would hide each kind of traffic, and all that moves (section 5.9)."""
    forward = rate(moved.forward_size, forward_window)
    if not training:
        none = np.zeros_like(forward)
        return OffloadBandwidth(
            act_offload_bw_req=rate(activation, forward_window),
            weight_offload_bw_req=rate(weight, forward_window),
            optim_offload_bw_req=none,
            offload_mem_bw_req=forward,
        )
    return OffloadBandwidth(
        act_offload_bw_req=rate(activation, forward_window),
        weight_offload_bw_req=rate(weight, forward_window),
        optim_offload_bw_req=rate(optimizer, backward_window),
        offload_mem_bw_req=np.maximum(forward, rate(moved.backward_size, backward_window)),
    )
