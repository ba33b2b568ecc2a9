"""Sharding of optimizer state, gradients and weights over replicas: ZeRO-n, FSDP and HSDP, layer-wise."""

from collections.abc import Mapping

import numpy as np

from calculon.base.frozen import dataclass
from calculon.base.units import MIB, Array, Bytes, Count
from calculon.plan.schedule import Schedule


@dataclass(frozen=True, slots=True)
class Sharding:
    """Kinds of tensors that are split over replicas. Source: Rajbhandari et al., *ZeRO*, arXiv 1910.02054, section 5.

    Attributes:
        state, gradients, weights: What is split.
        layer_wise: They are split by whole layers, each owned by one rank.
        buffered: Collectives have buffers of their own, into and out of which weights and gradients are copied.
    """

    state: bool = False
    gradients: bool = False
    weights: bool = False
    layer_wise: bool = False
    buffered: bool = False

    def shards(self, schedule: Schedule) -> Count:
        """Return how many ranks share what is split."""
        if not self.state:
            return np.ones_like(schedule.data_ranks)
        stated = schedule.columns.dp_shard
        return np.where(stated > 0, stated, schedule.data_ranks)

    def copies(self, schedule: Schedule) -> Count:
        """Return how many groups of such ranks hold the same."""
        return schedule.data_ranks / self.shards(schedule)

    def every(self, schedule: Schedule) -> Array:
        """Whether gradients are reduced after every microbatch."""
        return np.array(True) if self.gradients else ~schedule.columns.no_sync


SHARDINGS: Mapping[str, Sharding] = {
    "0": Sharding(),
    "1": Sharding(state=True),
    "2": Sharding(state=True, gradients=True),
    "3": Sharding(state=True, gradients=True, weights=True),
    "fsdp": Sharding(state=True, gradients=True, weights=True, buffered=True),
    "owner": Sharding(state=True, gradients=True, weights=True, layer_wise=True),
}
"""Sharding of each value of ``zero_stage``; ``auto`` is the published model, which has laws of its own."""


def unit_blocks(schedule: Schedule) -> Count:
    """Return the blocks whose weights are gathered together."""
    return schedule.columns.fsdp_unit.astype(float)


def units_ahead(schedule: Schedule) -> Count:
    """Return the units that are gathered ahead of their computation."""
    return schedule.columns.fsdp_prefetch.astype(float)


def bucket_bytes(schedule: Schedule) -> Bytes:
    """Return the bytes of gradients that are reduced together; 0 for those of a block."""
    return schedule.columns.ddp_bucket_mib * MIB
