"""Gradient and parameter bytes that replicas synchronise, the backward pass that can hide it, and the times."""

from dataclasses import replace

import numpy as np

from calculon.base.frozen import dataclass
from calculon.base.records import apply, record
from calculon.base.units import Array, Bytes, BytesPerSecond, Count, Seconds
from calculon.cost.block_cost import BlockCost
from calculon.cost.optimizer_step import OptimizerCost
from calculon.plan.schedule import Schedule


@record
class SyncedBytes:
    """Parameter bytes, and bytes of the gradients that are reduced for them."""

    weight: Bytes
    gradient: Bytes

    def where(self, mask: Array) -> "SyncedBytes":
        """Return the same where a mask holds, and nothing elsewhere."""
        return apply(lambda size: np.where(mask, size, 0.0), [self])


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncedBlock:
    """What replicas synchronise of a block, by class of parameters.

    Attributes:
        dense: Weights of which every replica of the model has the same, experts among them where their groups are the
            same.
        experts: Routed experts, where they have groups of their own; None where they have not, or there are none.
    """

    dense: SyncedBytes
    experts: SyncedBytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldBlock:
    """Bytes of the weights of a block, of its gradients as they are reduced, and of those that wait for the step.

    ``gathered`` is bytes of the weights as they are gathered, and ``copies`` what a recipe makes of them then.
    ``experts`` are those of routed experts among them, where they have groups of their own.
    """

    weight: Bytes
    gathered: Bytes
    message: Bytes
    waiting: Bytes
    copies: Bytes | float = 0.0
    experts: "HeldBlock | None" = None

    def whole_gradients(self, schedule: Schedule, shards: Count) -> Bytes:
        """Return the bytes of gradients that wait before they are split over so many replicas."""
        if self.experts is None:
            return self.waiting * shards
        dense = (self.waiting - self.experts.waiting) * shards
        return dense + self.experts.waiting * schedule.expert_shards(shards)


NOTHING = SyncedBytes(weight=np.zeros(1), gradient=np.zeros(1))


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncedEmbeddingHead:
    """Gradient and parameter bytes of embedding (first stage), LM head (last stage), and of both on one stage."""

    first: SyncedBytes
    last: SyncedBytes
    both: SyncedBytes
    tied: bool

    def on_stage(self, schedule: Schedule, *, first: bool, last: bool) -> "SyncedEmbeddingHead":
        """Return what the `first`, the `last` or another kind of stage has; of a single stage all of it.

        Where a rank has both ends, it is that of the last kind.
        """
        piped = schedule.pipeline_par > 1
        if schedule.choice.folded:
            return self if last else self._nowhere(~piped)
        return replace(
            self,
            first=self.first if first else self.first.where(~piped),
            last=self.last if last else self.last.where(~piped),
        )

    def _nowhere(self, kept: Array) -> "SyncedEmbeddingHead":
        """Return the same, of which nothing is there but where it is `kept`."""
        first, last, both = (one.where(kept) for one in (self.first, self.last, self.both))
        return replace(self, first=first, last=last, both=both)

    def apart(self, piped: Array) -> tuple[SyncedBytes, SyncedBytes]:
        """Return embedding and head; a shared table on one stage is synchronised once, with the embedding."""
        if not self.tied:
            return self.first, self.last

        def first_or_both(first: Bytes, both: Bytes) -> Bytes:
            return np.where(piped, first, both)

        return apply(first_or_both, [self.first, self.both]), self.last.where(piped)


@record
class GradientSync:
    """Data-parallel traffic of one batch; ``stalled`` is the exposed part that each microbatch waits for."""

    message: Bytes
    link: Seconds
    exposed: Seconds
    chunk_bandwidth: BytesPerSecond
    tail_bandwidth: BytesPerSecond
    stalled: Seconds | float = 0.0


@record
class BackwardPass:
    """Times of a block that data-parallel traffic can hide behind.

    ``forward`` is the forward time of a base block, ``tensor_forward`` its part on the tensor-parallel link,
    ``head`` the backward time of the output head. ``base`` and ``edge`` are the whole backward times, ``p2p`` the
    transfer in an edge block. ``memory`` is time on tier-1 memory, ``tensor_base`` and ``tensor_edge`` time on the
    tensor-parallel link, ``arithmetic`` that of the gradient passes and of recomputation; ``step_memory``,
    ``step_arithmetic`` and ``step`` belong to the optimizer.
    """

    forward: Seconds
    tensor_forward: Seconds
    head: Seconds
    base: Seconds
    edge: Seconds
    p2p: Seconds
    memory: Seconds
    tensor_base: Seconds
    tensor_edge: Seconds
    arithmetic: Seconds
    step: Seconds
    step_memory: Seconds
    step_arithmetic: Seconds


def synced_block(block: BlockCost, schedule: Schedule) -> SyncedBlock:
    """Return the gradient and parameter bytes that replicas synchronise of a block."""
    sent, gradient = block.forms.sent, block.gradient_message
    if not schedule.has_experts_apart:
        return SyncedBlock(dense=SyncedBytes(weight=sent, gradient=gradient))
    apart, reduced = schedule.experts_apart, gradient / block.weight
    of_experts = np.where(apart, block.forms.sent_experts, 0.0)
    experts = SyncedBytes(
        weight=of_experts, gradient=np.where(apart, block.expert_weight, 0.0) * reduced
    )
    return SyncedBlock(
        dense=SyncedBytes(weight=sent - of_experts, gradient=gradient - experts.gradient),
        experts=experts,
    )


def held_block(block: BlockCost, optimizer: OptimizerCost, schedule: Schedule) -> HeldBlock:
    """Return the bytes of weights and gradients that a rank holds of a block."""
    experts = None
    if schedule.has_experts_apart:
        apart, reduced = schedule.experts_apart, block.gradient_message / block.weight
        weight = np.where(apart, block.expert_weight, 0.0)
        waiting = np.where(apart, optimizer.expert_weight_grad, 0.0)
        experts = HeldBlock(
            weight=weight,
            gathered=np.where(apart, block.forms.sent_experts, 0.0),
            message=weight * reduced,
            waiting=waiting,
        )
    return HeldBlock(
        weight=block.weight,
        gathered=block.forms.sent,
        copies=block.forms.further,
        message=block.gradient_message,
        waiting=optimizer.weight_grad,
        experts=experts,
    )
