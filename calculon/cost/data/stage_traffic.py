"""Data-parallel traffic of the stages of a pipeline: of each kind, and of those that a batch waits for."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce
from typing import Protocol, TypeVar

import numpy as np

from calculon.base.arrays import derived
from calculon.base.records import apply
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
    """What replicas synchronise of a block and of both ends of a model, and the passes that can hide it."""

    @property
    def synced(self) -> tuple[SyncedBlock, SyncedEmbeddingHead | None]:
        """Bytes of a block, and of embedding and LM head."""

    @property
    def backward_pass(self) -> BackwardPass:
        """Times of a block."""


class StageTraffic:
    """Data-parallel traffic of the stages of executions.

    Args:
        stages: What each kind of stage of the layout synchronises; one alone where there is no layout: all stages are
            alike.
        cost: What collectives take, in seconds.
    """

    def __init__(self, stages: Sequence[SyncedStage], cost: CollectiveCost, edition: Edition):
        self._stages, self._cost, self._edition = stages, cost, edition
        self._schedule = cost.schedule
        self._strategy = STRATEGIES[self._schedule.choice.zero_stage]

    @property
    def _there(self) -> list[Array]:
        """Whether there are stages of each kind."""
        layout = self._schedule.layout
        return [np.array(True)] if layout is None else [count > 0 for count in layout.count]

    @derived
    def stalled(self) -> list[Seconds]:
        """How long each microbatch waits for its traffic, by kind of stage."""
        return [np.asarray(sync.stalled) for sync in self._syncs]

    def sync(self, stalled: Seconds) -> GradientSync:
        """Return the traffic of a batch (section 5.6) whose slowest stage is `stalled` for so long by each microbatch.

        All else is that of the stage where it takes longest: what is exchanged once per batch begins on all stages when
        they have done their passes.
        """
        if self._schedule.layout is None:
            return self._syncs[0]
        microbatches = self._schedule.microbatches
        once = [one.exposed - microbatches * one.stalled for one in self._syncs]
        most: GradientSync = apply(lambda *values: self._most(values), self._syncs)
        return replace(most, exposed=microbatches * stalled + self._most(once), stalled=stalled)

    @property
    def least_exposed(self) -> Seconds:
        """The least exposed time of a batch, whichever stage is the slowest."""
        here = zip(self._there, self.stalled, strict=True)
        least = reduce(np.minimum, [np.where(there, time, np.inf) for there, time in here])
        return np.asarray(self.sync(least).exposed)

    def _most(self, values: Sequence[Array]) -> Array:
        """Return the largest value of the stages that there are."""
        here = zip(self._there, values, strict=True)
        return reduce(np.maximum, [np.where(there, value, 0.0) for there, value in here])

    def total(self, cost: CollectiveCost) -> Array:
        """Return what all collectives of a batch take, as a cost function counts it, where they take longest.

        Nothing for one replica, or in inference.
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
            for there, (count, time) in zip(self._there, self._each(both), strict=True):
                longer = there & (time > longest)
                most, longest = np.where(longer, count, most), np.where(longer, time, longest)
        return np.where(schedule.reduces & schedule.training, most, 0.0)

    @derived
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
        """Measure a stage of each kind, once for those of which blocks and ends are the same.

        A kind of which there is no stage has the blocks of the last one, as none would have no sizes.
        """
        schedule, layout = self._schedule, self._schedule.layout
        if layout is None:
            (stage,) = self._stages
            return [measure(stage, schedule, stage.synced[1])]
        known: dict[tuple[object, ...], T] = {}
        found, last = [], len(self._stages) - 1
        for place, (stage, there) in enumerate(zip(self._stages, self._there, strict=True)):
            ends, outer = stage.synced[1], (place == FIRST, place == last)
            blocks = np.where(there, layout.blocks[place], layout.blocks[LAST])
            key = id(stage), blocks.tobytes(), outer
            if key not in known:
                if ends is not None:
                    ends = ends.on_stage(schedule, first=outer[0], last=outer[1])
                known[key] = measure(stage, schedule.with_blocks(blocks), ends)
            found.append(known[key])
        return found
