"""The stages of a pipeline: a stage of each kind, their data-parallel traffic, and the slowest stage."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from calculon.base.arrays import cached_property
from calculon.base.record_arrays import changed
from calculon.base.units import Array, Bytes, Count, Seconds
from calculon.cost.block_cost import BlockCost
from calculon.cost.data.data_collectives import reduced_bytes
from calculon.cost.data.stage_traffic import StageTraffic
from calculon.cost.data.strategies import STRATEGIES
from calculon.cost.data.synced import GradientSync
from calculon.cost.embedding_head import EmbeddingHeadTimes
from calculon.cost.mixture import BlockKinds
from calculon.cost.pipeline.transfers import mirrored_gradient
from calculon.cost.process_groups import CollectiveCost
from calculon.cost.stage import Stage
from calculon.cost.uneven import UnevenStages
from calculon.plan.schedule import Schedule


class PipelineStages:
    """The stages of executions, in the order of computation; each step runs when a column first needs it.

    Args:
        mean: A stage whose blocks are the mean of the model.
        kinds: Costs of each kind of block; None if all blocks are of one kind.
    """

    def __init__(self, mean: Stage, kinds: BlockKinds | None):
        self.mean, self._kinds = mean, kinds
        self.schedule = mean.schedule

    def with_blocks(self, counts: Count, chunks: Count | None = None) -> Stage:
        """Return a stage with these `counts` of blocks of each kind (first axis); it has the mean of its blocks.

        MTP modules send their hidden states in addition to those of the blocks: messages are the mean over `chunks`, by
        default those of a stage. Source: Megatron-LM, ``core/transformer/multi_token_prediction.py``,
        ``MultiTokenPredictionBlock.forward``, which concatenates the hidden states.
        """
        assert self._kinds is not None
        block, step = self._kinds.of_stage(counts)
        if modules := self.schedule.modules:
            chunks = self.schedule.interleaving if chunks is None else chunks
            more = np.where(counts[-1] > 0, modules / chunks, 0.0)
            block = changed(block, pipeline_message=(1 + more) * block.pipeline_message)
        return self.mean.of_blocks(block, step)

    def of_modules(self, quantity: Callable[[BlockCost], Array]) -> Array:
        """Return a quantity of the MTP modules that are blocks of a stage, for a microbatch: the sum over modules."""
        modules = self.schedule.modules
        return modules * quantity(self.of_kinds[-1].block) if modules else np.zeros(1)

    @cached_property
    def stages(self) -> list[Stage]:
        """A stage of each kind of the layout; a single one without a layout, when all stages are alike."""
        layout = self.schedule.layout
        if layout is None:
            return [self.mean]
        if self._kinds is None or layout.of_kind is None:
            return [self.mean] * len(layout.blocks)
        return [self.with_blocks(layout.of_kind[:, place]) for place in range(len(layout.blocks))]

    @cached_property
    def traffic(self) -> StageTraffic:
        """Data-parallel traffic of the stages."""
        cost = CollectiveCost(self.mean.system, self.schedule)
        return StageTraffic(self.stages, cost, self.mean.edition)

    @cached_property
    def stalled(self) -> list[Seconds]:
        """Time that a microbatch waits for data-parallel traffic, by kind of stage; 0 in the published model."""
        if STRATEGIES[self.schedule.choice.zero_stage].sharding is None:
            return [np.zeros(1)] * len(self.stages)
        return self.traffic.stalled

    @cached_property
    def uneven(self) -> UnevenStages | None:
        """Times of the stages of a layout; None without a layout."""
        if self.schedule.layout is None:
            return None
        given = self.stages, self.stalled, self.schedule, self.mean.embedding_head
        return UnevenStages(*given, self.of_kinds)

    @cached_property
    def of_kinds(self) -> list[Stage]:
        """A stage of each kind of block."""
        layout = self.schedule.layout
        if self._kinds is None or layout is None or layout.of_kind is None:
            return [self.mean]
        alone = np.ones(1)
        return [self.with_blocks(own[:, None], alone) for own in np.eye(len(layout.of_kind))]

    @cached_property
    def slowest(self) -> Stage:
        """The slowest stage with its own mix of blocks: the times of a batch are its times."""
        layout = self.schedule.layout
        if self._kinds is None or layout is None or layout.of_kind is None:
            return self.mean
        assert self.uneven is not None
        return self.with_blocks(np.stack([self.uneven.of_slowest(own) for own in layout.of_kind]))

    @cached_property
    def slowest_schedule(self) -> Schedule:
        """The schedule with the blocks of the slowest stage."""
        if self.uneven is None:
            return self.schedule
        pairs = self.uneven.pairs_of_slowest if self.schedule.choice.pairs_passes else None
        return self.schedule.with_blocks(self.uneven.blocks_of_slowest, pairs)

    @cached_property
    def embedding_head(self) -> EmbeddingHeadTimes | None:
        """Times of embedding and LM head, with the copies of the slowest stage."""
        return self._embedding_head(self.slowest)

    @cached_property
    def mean_embedding_head(self) -> EmbeddingHeadTimes | None:
        """Times of embedding and LM head, with the copies of the mean stage."""
        same = self.slowest is self.mean
        return self.embedding_head if same else self._embedding_head(self.mean)

    def _embedding_head(self, stage: Stage) -> EmbeddingHeadTimes | None:
        if stage.embedding_head is None:
            return None
        if self.uneven is not None:
            is_outer = self.uneven.slowest_is_outer
            return EmbeddingHeadTimes(stage.embedding_head, self.schedule, is_outer)
        added = None if stage.accumulation is None else stage.accumulation[1:]
        return EmbeddingHeadTimes(stage.embedding_head, self.schedule, added=added)

    @cached_property
    def mirrored_gradient(self) -> Bytes | None:
        """Bytes of gradients that two ranks with equal parts of the model reduce; None without such ranks."""
        return mirrored_gradient(self.stages, self.schedule)

    @cached_property
    def gradient_sync(self) -> GradientSync:
        """Data-parallel traffic of a batch; passes wait for the traffic of the slowest stage."""
        uneven, stalled = self.uneven, self.stalled
        result = self.traffic.sync(stalled[0] if uneven is None else uneven.of_slowest(stalled))
        if self._kinds is None:
            return result
        return replace(result, message=reduced_bytes(self.mean.synced[0], self.schedule))
