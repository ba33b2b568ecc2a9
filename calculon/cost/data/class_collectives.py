"""Collectives of one class of parameters: of those that replicas of the model share, or of routed experts.

Source: Liu et al., *MoE Parallel Folding*, arXiv 2504.14960, section 3.2; torchtitan, ``distributed/parallel_dims.py``
(meshes ``fsdp`` and ``efsdp``); Megatron-LM, ``core/distributed``, whose buffers of expert parameters are apart.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

import numpy as np

from calculon.base.arrays import derived
from calculon.base.units import Array, Bytes, Fraction
from calculon.cost.data.sharding import Sharding
from calculon.cost.data.synced import SyncedBlock
from calculon.cost.process_groups import (
    CollectiveCost,
    ProcessGroup,
    axis_group,
    data_group,
    expert_replicas,
)
from calculon.hardware.system import System
from calculon.plan.schedule import Schedule


class ClassCollectives:
    """Gathers and reductions of a class of parameters, in the unit of the cost function."""

    def __init__(self, sharding: Sharding, cost: CollectiveCost, *, experts: bool = False):
        self.sharding, self.cost, self.experts = sharding, cost, experts
        self.schedule, self.system = cost.schedule, cost.system

    @derived
    def all(self) -> ProcessGroup:
        """All replicas."""
        if self.experts:
            return expert_replicas(self.schedule, self.system, self.schedule.expert_data_par)
        return data_group(self.schedule, self.system, self.schedule.data_ranks)

    @derived
    def _sharing(self) -> ProcessGroup:
        """The replicas that share what is split."""
        return shard_group(self.sharding, self.schedule, self.system, experts=self.experts)

    def gather(self, weight: Bytes) -> Array:
        """Have weights whole again."""
        operation = "broadcast" if self.sharding.layer_wise else "all_gather"
        return self.cost(operation, weight, self._sharing)

    def reduce(self, gradient: Bytes) -> Array:
        """Add gradients up over all replicas: over those that share them, then over the copies."""
        if self.sharding.layer_wise:
            return self.cost("reduce", gradient, self.all)
        if not self.sharding.state:
            return self.cost("all_reduce", gradient, self.all)
        once = self.cost("reduce_scatter", gradient, self._sharing)
        copies = self.sharding.copies(self.schedule)
        if not np.any(copies > 1):
            return once
        group = copy_group(self.sharding, self.schedule, self.system, experts=self.experts)
        rest = self.cost("all_reduce", gradient / self._sharing.ranks, group)
        return once + np.where(copies > 1, rest, 0.0)


def shard_group(
    sharding: Sharding, schedule: Schedule, system: System, *, experts: bool = False
) -> ProcessGroup:
    """Return the groups of replicas that share what is split."""
    shards = sharding.shards(schedule)
    if experts:
        return expert_replicas(schedule, system, schedule.expert_shards(shards))
    return data_group(schedule, system, shards)


def copy_group(
    sharding: Sharding, schedule: Schedule, system: System, *, experts: bool = False
) -> ProcessGroup:
    """Return the groups of replicas that hold the same of what is split: of experts as many as of other weights."""
    shards, copies = sharding.shards(schedule), sharding.copies(schedule)
    if experts:
        apart = schedule.expert_shards(shards)
        return replace(expert_replicas(schedule, system, copies, apart), copies=True)
    return replace(data_group(schedule, system, copies, shards), copies=True)


def of_both(
    dense: Array, experts: Array, groups: tuple[ProcessGroup, ProcessGroup], cost: CollectiveCost
) -> Array:
    """Return what collectives of both classes take, each where its groups have several ranks.

    Bytes add up. So does time on a network that both use, one after the other; on different networks they run at the
    same time, and the longer counts.
    """
    one, other = groups
    dense, experts = np.where(one.ranks > 1, dense, 0.0), np.where(other.ranks > 1, experts, 0.0)
    total: Array = dense + experts
    if cost.bytes:
        return total
    return np.where(one.meets(other, cost.system), total, np.maximum(dense, experts))


def taken(groups: Sequence[ProcessGroup], system: System) -> Fraction:
    """Return the share of the compute engines that collectives of such groups take: the largest."""
    shares = [np.where(group.ranks > 1, group.usage(system), 0.0) for group in groups]
    return reduce(np.maximum, shares)


def groups_of(synced: SyncedBlock, schedule: Schedule, system: System) -> list[ProcessGroup]:
    """Return the groups of all replicas of each class."""
    groups = [data_group(schedule, system, schedule.data_ranks)]
    if synced.experts is not None:
        groups.append(expert_replicas(schedule, system, schedule.expert_data_par))
    return groups


def on_tensor_network(synced: SyncedBlock, schedule: Schedule, system: System) -> Array:
    """Return whether anything of replicas is on a network that tensor parallelism uses."""
    tensor = axis_group(schedule, system, "tp")
    return reduce(
        np.logical_or, (g.meets(tensor, system) for g in groups_of(synced, schedule, system))
    )


def reduced_bytes(synced: SyncedBlock, schedule: Schedule) -> Bytes:
    """Return the bytes of the gradients of a block that are reduced in a batch."""
    several = (schedule.data_ranks > 1) & schedule.training
    found = np.where(several, synced.dense.gradient, 0.0)
    if synced.experts is None:
        return found
    several = (schedule.expert_data_par > 1) & schedule.training
    return found + np.where(several, synced.experts.gradient, 0.0)
