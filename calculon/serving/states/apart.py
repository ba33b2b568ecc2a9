"""Prefill in processors of its own: what it takes, and when caches are where they are decoded.

Source: Zhong et al., *DistServe*, arXiv 2401.09670; Patel et al., *Splitwise*, arXiv 2311.18677.
"""

import numpy as np

from calculon.base.frozen import dataclass
from calculon.base.units import Array, Count, Fraction, Seconds
from calculon.hardware.collectives.algorithm_times import AUTO, group_time
from calculon.hardware.collectives.placement import Group
from calculon.serving.caches.rank_memory import RankMemory, cached_bytes, rank_memory
from calculon.serving.passes.replica import Replica


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefilling:
    """What pools that prefill give; columns of shape ``(deployments,)``.

    Attributes:
        replica: What prefills.
        time: From the begin of a prompt to its first token; groups of ranks with prompts of their own begin together.
        busy: Time that a replica has for each prompt.
        moved: Time from the first token until the cache of the prompt is where it is decoded.
        replicas: Independent engines.
        memory: Of a rank.
        room: Prompts whose caches fit into the memory of one.
    """

    replica: Replica
    time: Seconds
    busy: Seconds
    moved: Seconds
    replicas: Count
    memory: RankMemory
    room: Count

    @property
    def rate(self) -> Array:
        """Most prompts in a second."""
        return self.replicas / self.busy


def prefilling(replica: Replica) -> Prefilling | None:
    """Return what the pools that prefill give; None where the replicas that decode do."""
    pool = replica.deployments.prefilling
    if pool is None:
        return None
    own = Replica(replica.model, replica.system, pool, replica.workload)
    w, together = replica.workload, pool.attn_data_par
    time, busy = own.prefill(together)
    memory = rank_memory(own, w.computed)
    each = cached_bytes(own, w.prompt)
    return Prefilling(
        replica=own,
        time=time,
        busy=busy / together,
        moved=_moved(replica, own, time),
        replicas=pool.replicas,
        memory=memory,
        room=np.floor(memory.room / each) * together,
    )


def _moved(replica: Replica, pool: Replica, prefill: Seconds) -> Seconds:
    """Return the time for which the cache of a prompt is under way beyond its prefill.

    Ranks of both pools send and receive their shares at once; the largest share takes the longest. Each block is sent
    as soon as it is there, so that what is left is the last, or what the network lacks of keeping up (Splitwise,
    section 4.2).
    """
    system, length = replica.system, replica.workload.prompt
    share = np.maximum(*(cached_bytes(one, length) for one in (replica, pool)))
    most = np.maximum(*(one.deployments.replica_procs for one in (replica, pool)))
    stride = np.asarray(most, np.int64)
    way = Group.in_mesh(system, np.full(stride.shape, 2), stride)
    time = group_time(system, "p2p", share, way, AUTO)
    return np.maximum(time / replica.model.num_blocks, time - prefill)


def balanced(prefill: Seconds, decode: Seconds, batch: Count, output: float) -> Fraction:
    """Return the replicas that prefill for each that decodes, so that neither waits.

    Source: DistServe, section 4: both pools pass on as many requests, ``1 / t_pf`` each here, ``B / ((o - 1) t_d)``
    there.
    """
    return prefill * batch / ((output - 1) * decode)
