"""Checkpoints: their bytes, how long a save stops the steps, and how often one can be taken."""

from functools import cache
from itertools import product

import numpy as np

from calculon.architecture.optimizer import MOMENT_BYTES, OPTIMIZERS, QUANTIZED_BYTES
from calculon.base.frozen import dataclass
from calculon.base.units import Array, Bytes, BytesPerSecond, Count, Seconds
from calculon.campaign.record import Checkpoints
from calculon.declarations.expression import Lookup
from calculon.declarations.named_values import DATATYPE_BYTES, MASTER_BYTES
from calculon.hardware.system import System


def bytes_per_param(datatype: str, lookup: Lookup) -> Array:
    """Return what a checkpoint has of each parameter: the weight, its master copy, the moments of the optimizer.

    Of bfloat16 weights under Adam 2 + 4 + 8 = 14. Source: Rajbhandari et al., *ZeRO*, arXiv:1910.02054, section 3.1.

    Args:
        datatype: Type of the weights.
        lookup: Columns of fields of executions by name: ``optimizer`` and ``optimizer_state_dtype``.
    """
    optimizer, moment = np.asarray(lookup("optimizer")), np.asarray(lookup("optimizer_state_dtype"))
    if not (optimizer.ndim or moment.ndim):
        return np.asarray(_bytes_of(datatype, str(optimizer), str(moment)))
    size = np.zeros(np.broadcast_shapes(optimizer.shape, moment.shape))
    for name, kind in product(np.unique(optimizer), np.unique(moment)):
        each = _bytes_of(datatype, str(name), str(kind))
        size = np.where((optimizer == name) & (moment == kind), each, size)
    return size


@cache
def _bytes_of(datatype: str, optimizer: str, moment: str) -> float:
    """Return what a checkpoint has of each parameter under one optimizer."""
    weight = DATATYPE_BYTES[datatype]
    master = MASTER_BYTES if weight < MASTER_BYTES else 0
    quantized = optimizer.endswith("8bit")
    each = QUANTIZED_BYTES if quantized else MOMENT_BYTES.get(moment, MOMENT_BYTES["float32"])
    return float(weight + master + OPTIMIZERS[optimizer].moments * each)


@dataclass(frozen=True, slots=True)
class Saving:
    """How checkpoints of a job are saved and loaded, as columns.

    Attributes:
        size: Bytes of a checkpoint.
        pause: Seconds that steps wait for a save.
        least_interval: Seconds that the storage needs for one, of which a new one waits for the last; 0 where steps
            wait for it.
        load: Seconds to load one.
        memory_pause: Seconds that steps wait for a copy in the memory of another node.
    """

    size: Bytes
    pause: Seconds
    least_interval: Seconds
    load: Seconds
    memory_pause: Seconds


def saving(
    checkpoints: Checkpoints, system: System, size: Bytes, num_procs: Count, nodes: Count
) -> Saving:
    """Return how checkpoints of some bytes are saved and loaded.

    Every rank saves its part: it copies it to its host, from where it goes to the storage.
    """
    share = size / num_procs
    copy = (
        system.mem2.time(share)
        if system.ext.host is None
        else system.ext.host.time(share, num_procs)
    )
    rate = storage_rate(checkpoints, nodes)
    write = size / rate
    waits = checkpoints.mode == "sync"
    to_peer = share / system.networks[-1].bandwidth
    return Saving(
        size=size,
        pause=checkpoints.pause + (write if waits else copy),
        least_interval=np.zeros_like(write) if waits else write,
        load=write if checkpoints.load_time is None else np.full_like(write, checkpoints.load_time),
        memory_pause=np.asarray(copy + to_peer),
    )


def storage_rate(checkpoints: Checkpoints, nodes: Count) -> BytesPerSecond:
    """Return the rate of the storage: of all nodes, at most what is stated for all together."""
    rate = np.asarray(nodes * checkpoints.bandwidth_per_node, float)
    if checkpoints.bandwidth is not None:
        rate = np.minimum(rate, checkpoints.bandwidth)
    return rate
