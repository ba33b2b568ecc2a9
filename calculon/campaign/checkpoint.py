"""Checkpointing: size of a checkpoint, time that a save blocks training, and minimum time between saves."""

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
    """Return the checkpoint size per parameter: weight, master copy and optimizer moments.

    With bfloat16 weights and Adam: 2 + 4 + 8 = 14 bytes. Source: Rajbhandari et al., *ZeRO*, arXiv:1910.02054, section
    3.1.

    Args:
        datatype: Type of the weights.
        lookup: Returns a column of an execution field by name; ``optimizer`` and ``optimizer_state_dtype`` are read.
    """
    optimizer, moment = np.asarray(lookup("optimizer")), np.asarray(lookup("optimizer_state_dtype"))
    if not (optimizer.ndim or moment.ndim):
        return np.asarray(_bytes_of(datatype, str(optimizer), str(moment)))
    # Rows of a search share a few optimizers: one lookup per combination replaces a loop over rows.
    size = np.zeros(np.broadcast_shapes(optimizer.shape, moment.shape))
    for name, kind in product(np.unique(optimizer), np.unique(moment)):
        each = _bytes_of(datatype, str(name), str(kind))
        size = np.where((optimizer == name) & (moment == kind), each, size)
    return size


@cache
def _bytes_of(datatype: str, optimizer: str, moment: str) -> float:
    """Return the checkpoint size per parameter for one optimizer and one type of its state."""
    weight = DATATYPE_BYTES[datatype]
    # float32 weights are their own master copy
    master = MASTER_BYTES if weight < MASTER_BYTES else 0
    quantized = optimizer.endswith("8bit")
    each = QUANTIZED_BYTES if quantized else MOMENT_BYTES.get(moment, MOMENT_BYTES["float32"])
    return float(weight + master + OPTIMIZERS[optimizer].moments * each)


@dataclass(frozen=True, slots=True)
class SaveCost:
    """Cost of saving and loading the checkpoints of a job, as columns.

    Attributes:
        size: Bytes of a checkpoint.
        pause: Seconds that a save blocks training.
        least_interval: Seconds in which storage writes one checkpoint; an asynchronous save cannot start before the
            previous one has been written. 0 for synchronous saves.
        load: Seconds to load a checkpoint.
        memory_pause: Seconds that training is blocked by a copy to the memory of another node.
    """

    size: Bytes
    pause: Seconds
    least_interval: Seconds
    load: Seconds
    memory_pause: Seconds


def save_cost(
    checkpoints: Checkpoints, system: System, size: Bytes, num_procs: Count, nodes: Count
) -> SaveCost:
    """Return the cost of saving and loading checkpoints of a given size.

    Every rank saves its own shard: it copies the shard to host memory, and the host writes it to storage.
    """
    share = size / num_procs
    # a system that does not state its link to the host is assumed to copy at the rate of its second memory tier
    copy = (
        system.mem2.time(share)
        if system.ext.host is None
        else system.ext.host.time(share, num_procs)
    )
    rate = storage_rate(checkpoints, nodes)
    write = size / rate
    waits = checkpoints.mode == "sync"
    to_peer = share / system.networks[-1].bandwidth
    return SaveCost(
        size=size,
        pause=checkpoints.pause + (write if waits else copy),
        least_interval=np.zeros_like(write) if waits else write,
        load=write if checkpoints.load_time is None else np.full_like(write, checkpoints.load_time),
        memory_pause=np.asarray(copy + to_peer),
    )


def storage_rate(checkpoints: Checkpoints, nodes: Count) -> BytesPerSecond:
    """Return the bandwidth of the checkpoint storage: the sum over all nodes, capped by the stated total."""
    rate = np.asarray(nodes * checkpoints.bandwidth_per_node, float)
    if checkpoints.bandwidth is not None:
        rate = np.minimum(rate, checkpoints.bandwidth)
    return rate
