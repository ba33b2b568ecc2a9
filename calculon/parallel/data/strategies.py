"""The strategies of data parallelism, chosen by ``zero_stage``: the published laws, and what frameworks do.

A strategy says what replicas exchange in a batch, what of it is exposed, and what it means for memory. Executions that
share a choice share a strategy, so that each is plain code.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping

import numpy as np

from calculon.editions.edition import Edition
from calculon.parallel.data.exchanges import Exchanges
from calculon.parallel.data.published_laws import published_sync, published_traffic
from calculon.parallel.data.replication import Replication, Windows, units_held
from calculon.parallel.data.sharding import SHARDINGS, Sharding, bucket_bytes, unit_blocks
from calculon.parallel.data.synced import NOTHING, BackwardPass, GradientSync, Synced, SyncedEnds
from calculon.parallel.process_groups import CollectiveCost
from calculon.plan.schedule import Schedule
from calculon.records import apply, record
from calculon.units import Array, Bytes


@record
class GradientBuffers:
    """Bytes of a stage beside what stays: weights gathered of other ranks, gradients on their way to be reduced."""

    gathered: Bytes
    passing: Bytes


class Strategy(ABC):
    """One form of data parallelism.

    Attributes
    ----------
    sharding : Sharding or None
        What replicas share; None for the published model, where ``optimizer_sharding`` says it by execution.
    """

    sharding: Sharding | None = None

    @property
    def splits_weights(self) -> bool:
        """Whether a rank keeps its share of the weights only."""
        return self.sharding is not None and self.sharding.weights

    @abstractmethod
    def traffic(self, synced: Synced, ends: SyncedEnds | None, cost: CollectiveCost) -> Array:
        """Return what all collectives of a batch take, as a cost function counts it; `synced` is one block."""

    @abstractmethod
    def sync(
        self,
        synced: Synced,
        ends: SyncedEnds | None,
        backward: BackwardPass,
        cost: CollectiveCost,
        edition: Edition,
    ) -> GradientSync:
        """Time the synchronisation of replicas (section 5.6); `synced` is one block."""

    @abstractmethod
    def gradients(self, working: Bytes, waiting: Bytes, blocks: Array | int) -> Bytes:
        """Bytes of the weight gradients of so many blocks: `working` in the block at work, `waiting` in others."""

    @abstractmethod
    def buffers(
        self, schedule: Schedule, weight: Bytes, message: Bytes, waiting: Bytes, end: Synced | None
    ) -> GradientBuffers | None:
        """Return the buffers of a stage; None where there are none.

        Parameters
        ----------
        weight, message, waiting : array
            Bytes of the weights of a block, of its reduced gradients, and of its gradients until the step.
        end : Synced, optional
            Whole weights of embedding or head, and the gradient of their largest table.
        """


class Published(Strategy):
    """The published laws: gradients once per batch, optimizer state split as ``optimizer_sharding`` says."""

    def traffic(self, synced: Synced, ends: SyncedEnds | None, cost: CollectiveCost) -> Array:
        """Reduce gradients, and with a sharded optimizer gather weights."""
        return published_traffic(synced, ends, cost)

    def sync(
        self,
        synced: Synced,
        ends: SyncedEnds | None,
        backward: BackwardPass,
        cost: CollectiveCost,
        edition: Edition,
    ) -> GradientSync:
        """Hide traffic in the window that the edition knows."""
        return published_sync(synced, ends, backward, cost, edition)

    def gradients(self, working: Bytes, waiting: Bytes, blocks: Array | int) -> Bytes:
        """Whole and in 4 bytes in the block at work."""
        whole: Bytes = working + waiting * (blocks - 1)
        return whole

    def buffers(
        self, schedule: Schedule, weight: Bytes, message: Bytes, waiting: Bytes, end: Synced | None
    ) -> None:
        """Nothing beside what stays."""


class Natural(Strategy):
    """DDP, ZeRO, FSDP and owned layers, by what they split."""

    def __init__(self, sharding: Sharding):
        self.sharding: Sharding = sharding

    def exchanges(self, synced: Synced, ends: SyncedEnds | None, cost: CollectiveCost) -> Exchanges:
        """Return what replicas exchange."""
        piped = cost.schedule.pipeline_par > 1
        apart = (NOTHING, NOTHING) if ends is None else ends.apart(piped)
        return Exchanges(self.sharding, synced, apart, cost)

    def traffic(self, synced: Synced, ends: SyncedEnds | None, cost: CollectiveCost) -> Array:
        """Count everything that is exchanged in a batch."""
        return self.exchanges(synced, ends, cost).batch

    def sync(
        self,
        synced: Synced,
        ends: SyncedEnds | None,
        backward: BackwardPass,
        cost: CollectiveCost,
        edition: Edition,
    ) -> GradientSync:
        """Hide traffic behind the passes of base blocks."""
        schedule = cost.schedule
        active = (schedule.data_par > 1) & schedule.training
        same_link = schedule.networks["dp"] == schedule.networks["tp"]
        windows = Windows(
            forward=backward.forward - np.where(same_link, backward.tensor_forward, 0.0),
            backward=backward.base - np.where(same_link, backward.tensor_base, 0.0),
            head=backward.head,
        )
        windows = apply(lambda window: np.maximum(window, 0.0), [windows])
        found = Replication(self.exchanges(synced, ends, cost), windows).synchronisation()
        message = np.where(active, synced.gradient, 0.0)
        none = np.zeros_like(message)
        return GradientSync(
            message=message,
            link=np.where(active, found.link, none),
            exposed=np.where(active, found.exposed, none),
            chunk_bandwidth=none,
            tail_bandwidth=none,
            stalled=np.where(active, found.stalled, none),
        )

    def gradients(self, working: Bytes, waiting: Bytes, blocks: Array | int) -> Bytes:
        """Those that wait, of every block."""
        return waiting * blocks

    def buffers(
        self, schedule: Schedule, weight: Bytes, message: Bytes, waiting: Bytes, end: Synced | None
    ) -> GradientBuffers:
        """Weights that are gathered, and gradients that are whole until they are reduced.

        Weights are whole unit by unit (:func:`units_held`), those of embedding and head all the time. Split gradients
        are whole until they are reduced, a unit at a time; whole ones need a bucket where they are reduced in another
        type. Source: Zhao et al., arXiv 2304.11277, section 3.2.1; Rajbhandari et al., arXiv 1910.02054, section 5.2.
        """
        none = np.zeros_like(schedule.blocks)
        gathered, unit = none, message
        if self.sharding.weights:
            gathered = units_held(self.sharding, schedule) * weight
            unit = unit_blocks(schedule) * message
        if end is not None:
            if self.sharding.weights:
                gathered = gathered + end.weight
            unit = np.maximum(unit, end.gradient)
        if self.sharding.gradients:
            passing = unit
        else:
            bucket = bucket_bytes(schedule)
            full = np.minimum(bucket, schedule.blocks * message)
            passing = np.where(waiting == message, 0.0, np.where(bucket > 0, full, message))
        used = schedule.training & (schedule.data_par > 1)
        return GradientBuffers(
            gathered=none + gathered, passing=none + np.where(used, passing, 0.0)
        )


STRATEGIES: Mapping[str, Strategy] = {
    "auto": Published(),
    **{name: Natural(sharding) for name, sharding in SHARDINGS.items()},
}
"""The strategy of each value of ``zero_stage``."""


def data_traffic(synced: Synced, ends: SyncedEnds | None, cost: CollectiveCost) -> Array:
    """Return what all data-parallel collectives of a batch take; nothing for one replica, or in inference."""
    schedule = cost.schedule
    found = STRATEGIES[schedule.choice.zero_stage].traffic(synced, ends, cost)
    return np.where((schedule.data_par > 1) & schedule.training, found, 0.0)
