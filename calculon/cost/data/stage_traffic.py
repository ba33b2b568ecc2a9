"""Data-parallel traffic of the stages of a pipeline: of each kind of stage, and of the stage that a batch waits for."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce
from typing import Protocol, TypeVar

import numpy as np

from calculon.base.arrays import cached_property
from calculon.base.record_arrays import apply
from calculon.base.units import Array, Seconds
from calculon.cost.data.strategies import STRATEGIES
from calculon.cost.data.synced import (
    BackwardPass,
    GradientSync,
    SyncedBlock,
    SyncedEmbeddingHead,
)
from calculon.cost.process_groups import CollectiveCost
from calculon.editions.edition import Edition
from calculon.plan.schedule import Schedule
from calculon.plan.stage_layout import FIRST, LAST

T = TypeVar("T")


class SyncedStage(Protocol):
    """A stage as data parallelism needs it: the bytes that replicas synchronize, and the passes that can hide them."""

    @property
    def synced(self) -> tuple[SyncedBlock, SyncedEmbeddingHead | None]:
        """Bytes of a block, and of embedding and LM head."""

    @property
    def backward_pass(self) -> BackwardPass:
        """Times of a block."""


class StageTraffic:
    """Data-parallel traffic of the stages of executions.

    Args:
        stages: A stage of each kind of the layout; a single one if there is no layout, when all stages are alike.
        cost: Cost function of collectives, in seconds.
    """

    def __init__(self, stages: Sequence[SyncedStage], cost: CollectiveCost, edition: Edition):
        self._stages, self._cost, self._edition = stages, cost, edition
        self._schedule = cost.schedule
        self._strategy = STRATEGIES[self._schedule.choice.zero_stage]

    @property
    def _present(self) -> list[Array]:
        """Masks of the executions that have stages of each kind."""
        layout = self._schedule.layout
        return [np.array(True)] if layout is None else [count > 0 for count in layout.count]

    @cached_property
    def stalled(self) -> list[Seconds]:
        """Time that each microbatch waits for its traffic, by kind of stage."""
        return [np.asarray(sync.stalled) for sync in self._syncs]

    def sync(self, stalled: Seconds) -> GradientSync:
        """Return the traffic of a batch (section 5.6); each microbatch stalls the slowest stage for `stalled` seconds.

        Traffic once per batch counts on the stage where it takes longest, since it begins on all stages after their
        passes.
        """
        if self._schedule.layout is None:
            return self._syncs[0]
        microbatches = self._schedule.microbatches
        once = [one.exposed - microbatches * one.stalled for one in self._syncs]
        most: GradientSync = apply(lambda *values: self._most(values), self._syncs)
        return replace(most, exposed=microbatches * stalled + self._most(once), stalled=stalled)

    @property
    def least_exposed(self) -> Seconds:
        """Lower bound of the exposed time of a batch, whichever stage is the slowest."""
        stages = zip(self._present, self.stalled, strict=True)
        least = reduce(np.minimum, [np.where(present, time, np.inf) for present, time in stages])
        return np.asarray(self.sync(least).exposed)

    def _most(self, values: Sequence[Array]) -> Array:
        """Return the largest value among the kinds of stage that are present."""
        stages = zip(self._present, values, strict=True)
        return reduce(np.maximum, [np.where(present, value, 0.0) for present, value in stages])

    def total(self, cost: CollectiveCost) -> Array:
        """Return the cost of all collectives of a batch, in the unit of `cost`, on the stage where they take longest.

        It is 0 for one replica and for inference.
        """
        schedule = self._schedule

        def both(
            stage: SyncedStage, here: Schedule, ends: SyncedEmbeddingHead | None
        ) -> tuple[Array, Array]:
            count, time = (
                self._strategy.stage_traffic(stage.synced[0], ends, replace(one, schedule=here))
                for one in (cost, CollectiveCost(cost.system, schedule))
            )
            return count, time

        if schedule.layout is None:
            stage = self._stages[0]
            most = self._strategy.stage_traffic(*stage.synced, replace(cost, schedule=schedule))
        else:
            most, longest = np.zeros(1), np.full(1, -1.0)
            for present, (count, time) in zip(self._present, self._each(both), strict=True):
                longer = present & (time > longest)
                most, longest = np.where(longer, count, most), np.where(longer, time, longest)
        return np.where(schedule.reduces & schedule.training, most, 0.0)

    @cached_property
    def _syncs(self) -> list[GradientSync]:
        """Traffic of a batch, by kind of stage."""
        known: dict[tuple[object, ...], Array] | None = {} if len(self._stages) > 1 else None

        def sync(
            stage: SyncedStage, here: Schedule, ends: SyncedEmbeddingHead | None
        ) -> GradientSync:
            cost = replace(self._cost, schedule=here, known=known)
            block = stage.synced[0]
            return self._strategy.stage_sync(block, ends, stage.backward_pass, cost, self._edition)

        return self._each(sync)

    def _each(
        self, measure: Callable[[SyncedStage, Schedule, SyncedEmbeddingHead | None], T]
    ) -> list[T]:
        """Return a quantity of a stage of each kind, computed once for kinds with equal blocks and ends.

        Kinds without a stage get the blocks of the last kind, so that no message is of 0 bytes.
        """
        schedule, layout = self._schedule, self._schedule.layout
        if layout is None:
            (stage,) = self._stages
            return [measure(stage, schedule, stage.synced[1])]
        known: dict[tuple[object, ...], T] = {}
        result, last = [], len(self._stages) - 1
        for place, (stage, present) in enumerate(zip(self._stages, self._present, strict=True)):
            ends, outer = stage.synced[1], (place == FIRST, place == last)
            blocks = np.where(present, layout.blocks[place], layout.blocks[LAST])
            key = id(stage), blocks.tobytes(), outer
            if key not in known:
                if ends is not None:
                    ends = ends.on_stage(schedule, first=outer[0], last=outer[1])
                known[key] = measure(stage, schedule.with_blocks(blocks), ends)
            result.append(known[key])
        return result
