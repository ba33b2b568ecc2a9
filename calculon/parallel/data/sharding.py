"""What the replicas of a rank share: optimizer state, gradients, weights."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from calculon.plan.schedule import Schedule
from calculon.units import MIB, Array, Bytes, Count


@dataclass(frozen=True, slots=True)
class Sharding:
    """What is split over replicas. Source: Rajbhandari et al., *ZeRO*, arXiv 1910.02054, section 5.

    Attributes
    ----------
    state, gradients, weights : bool
        What is split.
    owned : bool
        What is split is split by whole layers, each on one rank.
    """

    state: bool = False
    gradients: bool = False
    weights: bool = False
    owned: bool = False

    def shards(self, schedule: Schedule) -> Count:
        """Return how many ranks share what is split."""
        if not self.state:
            return np.ones_like(schedule.data_par)
        stated = schedule.columns.dp_shard
        return np.where(stated > 0, stated, schedule.data_par)

    def copies(self, schedule: Schedule) -> Count:
        """Return how many groups of such ranks hold the same."""
        copies: Count = schedule.data_par / self.shards(schedule)
        return copies

    def every(self, schedule: Schedule) -> Array:
        """Whether gradients are reduced after every microbatch."""
        return np.array(True) if self.gradients else ~schedule.columns.no_sync


SHARDINGS: Mapping[str, Sharding] = {
    "0": Sharding(),
    "1": Sharding(state=True),
    "2": Sharding(state=True, gradients=True),
    "3": Sharding(state=True, gradients=True, weights=True),
    "fsdp": Sharding(state=True, gradients=True, weights=True),
    "owner": Sharding(state=True, gradients=True, weights=True, owned=True),
}
"""What each value of ``zero_stage`` splits; ``auto`` is the published model, which has laws of its own."""


def unit_blocks(schedule: Schedule) -> Count:
    """Return the blocks whose weights are gathered together."""
    return schedule.columns.fsdp_unit.astype(float)


def units_ahead(schedule: Schedule) -> Count:
    """Return the units that are gathered ahead of their computation."""
    return schedule.columns.fsdp_prefetch.astype(float)


def bucket_bytes(schedule: Schedule) -> Bytes:
    """Return the bytes of gradients that are reduced together; 0 for those of a block."""
    return schedule.columns.ddp_bucket_mib * MIB
