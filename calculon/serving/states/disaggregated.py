"""Disaggregated prefill: time of prefill on separate processors, and of the KV cache transfer to the decode pool.

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
class PrefillPool:
    """Pools that only prefill; columns of shape ``(deployments,)``.

    Attributes:
        replica: Replicas that prefill.
        time: Time from the start of a prompt to its first token; groups of ranks with separate prompts start together.
        busy: Time that a replica spends on each prompt.
        moved: Time from the first token until the KV cache of the prompt has reached the decode pool.
        replicas: Number of independent engines.
        memory: Memory of a rank.
        capacity: Prompts whose KV caches fit into the memory of a replica.
    """

    replica: Replica
    time: Seconds
    busy: Seconds
    moved: Seconds
    replicas: Count
    memory: RankMemory
    capacity: Count

    @property
    def rate(self) -> Array:
        """Maximum prompts per second."""
        return self.replicas / self.busy


def prefill_pool(replica: Replica) -> PrefillPool | None:
    """Return the pools that only prefill; None if the replicas that decode prefill too."""
    pool = replica.deployments.prefill_deployments
    if pool is None:
        return None
    prefiller = Replica(replica.model, replica.system, pool, replica.workload)
    w, together = replica.workload, pool.attn_data_par
    time, busy = prefiller.prefill(together)
    memory = rank_memory(prefiller, w.computed)
    each = cached_bytes(prefiller, w.prompt)
    return PrefillPool(
        replica=prefiller,
        time=time,
        busy=busy / together,
        moved=_exposed_transfer(replica, prefiller, time),
        replicas=pool.replicas,
        memory=memory,
        # each group of ranks holds its own prompts
        capacity=np.floor(memory.cache_capacity / each) * together,
    )


def _exposed_transfer(replica: Replica, pool: Replica, prefill: Seconds) -> Seconds:
    """Return the time of the KV cache transfer of a prompt that its prefill does not hide.

    Ranks of both pools send and receive their shares at the same time, and the largest share takes the longest. Each
    block is sent as soon as it is computed, so the exposed part is the last block, or the excess of the transfer over
    prefill if the network is slower (Splitwise, section 4.2).
    """
    system, length = replica.system, replica.workload.prompt
    share = np.maximum(*(cached_bytes(one, length) for one in (replica, pool)))
    most = np.maximum(*(one.deployments.replica_procs for one in (replica, pool)))
    # sender and receiver belong to neighboring replicas, as far apart as the larger of them has ranks
    stride = np.asarray(most, np.int64)
    path = Group.in_mesh(system, np.full(stride.shape, 2), stride)
    time = group_time(system, "p2p", share, path, AUTO)
    return np.maximum(time / replica.model.num_blocks, time - prefill)


def balanced(prefill: Seconds, decode: Seconds, batch: Count, output: float) -> Fraction:
    """Return the number of prefill replicas per decode replica with which neither pool waits for the other.

    Source: DistServe, section 4: both pools pass on equal rates of requests, ``1 / t_pf`` per prefill replica and
    ``B / ((o - 1) t_d)`` per decode replica.
    """
    return prefill * batch / ((output - 1) * decode)
