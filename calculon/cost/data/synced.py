"""Records of data parallelism: the bytes that replicas synchronize, the passes that can hide it, and its times.

Parameters are of two classes: dense ones, which all replicas of the model share, and routed experts, which may have
replica groups of their own.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from calculon.base.frozen import dataclass
from calculon.base.record_arrays import apply
from calculon.base.records import record
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
        """Return the bytes of the executions of a mask, and 0 for others."""
        return apply(lambda size: np.where(mask, size, 0.0), [self])


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncedBlock:
    """Bytes of a block that replicas synchronize, by class of parameters.

    Attributes:
        dense: Parameters that all replicas of the model share, with routed experts that have the same groups.
        experts: Routed experts with replica groups of their own; None without.
    """

    dense: SyncedBytes
    experts: SyncedBytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldBlock:
    """Bytes of a block's weights and gradients on a rank.

    Attributes:
        weight: Weights.
        gathered: Weights as they are gathered, which may be quantized.
        message: Gradients as they are reduced.
        waiting: Gradients that are kept until the optimizer step.
        copies: Quantized copies in addition to the gathered weights.
        experts: The part of routed experts with replica groups of their own; None without.
    """

    weight: Bytes
    gathered: Bytes
    message: Bytes
    waiting: Bytes
    copies: Bytes | float = 0.0
    experts: "HeldBlock | None" = None

    def whole_gradients(self, schedule: Schedule, shards: Count) -> Bytes:
        """Return the bytes of kept gradients before they are split over `shards` ranks (experts: over their own)."""
        if self.experts is None:
            return self.waiting * shards
        dense = (self.waiting - self.experts.waiting) * shards
        return dense + self.experts.waiting * schedule.expert_shards(shards)


NOTHING = SyncedBytes(weight=np.zeros(1), gradient=np.zeros(1))


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncedEmbeddingHead:
    """Synchronized bytes of the embedding (first stage), of the LM head (last stage), and of both on one stage.

    If ``tied``, embedding and head are one table, which counts once in ``both``.
    """

    first: SyncedBytes
    last: SyncedBytes
    both: SyncedBytes
    tied: bool

    def on_stage(self, schedule: Schedule, *, first: bool, last: bool) -> "SyncedEmbeddingHead":
        """Return the bytes on the `first`, the `last` or an inner kind of stage; a single stage has all of them.

        A rank of a folded schedule that has both ends is of the last kind.
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
        """Return the bytes of the executions in `kept`, and 0 for others."""
        first, last, both = (one.where(kept) for one in (self.first, self.last, self.both))
        return replace(self, first=first, last=last, both=both)

    def apart(self, piped: Array) -> tuple[SyncedBytes, SyncedBytes]:
        """Return embedding and head; a shared table on one stage is synchronized once, with the embedding."""
        if not self.tied:
            return self.first, self.last

        def first_or_both(first: Bytes, both: Bytes) -> Bytes:
            return np.where(piped, first, both)

        return apply(first_or_both, [self.first, self.both]), self.last.where(piped)


class SharedTable(NamedTuple):
    """Gradient of a table that several stages have: its bytes, and the number of these stages."""

    gradient: Bytes
    stages: int


@record
class GradientSync:
    """Data-parallel traffic of one batch.

    Attributes:
        message: Bytes of the gradients of a block that are reduced.
        link, exposed: Time on the network, and the part of it that computation waits for.
        chunk_bandwidth, tail_bandwidth: Network bandwidth that would hide the traffic of other chunks, and of the last.
        stalled: Time that each microbatch waits, a part of ``exposed``.
    """

    message: Bytes
    link: Seconds
    exposed: Seconds
    chunk_bandwidth: BytesPerSecond
    tail_bandwidth: BytesPerSecond
    stalled: Seconds | float = 0.0


@record
class BackwardPass:
    """Times of a block that can hide data-parallel traffic.

    Attributes:
        forward: Forward time of a base block.
        tensor_forward: Its time on the tensor-parallel link.
        head: Backward time of the LM head.
        base, edge: Backward time of a base and of an edge block, recomputation and exposed communication included.
        forward_waits_less, waits_less: Time by which an edge block waits less for offload traffic than a base block,
            forward and backward.
        p2p: Pipeline transfer of an edge block.
        memory: Time on tier-1 memory in the backward pass.
        tensor_base, tensor_edge: Time on the tensor-parallel link in the backward pass.
        arithmetic: Arithmetic time of the gradients and of recomputation.
        step, step_memory, step_arithmetic: Time of the optimizer step, and its memory and arithmetic time.
    """

    forward: Seconds
    tensor_forward: Seconds
    head: Seconds
    base: Seconds
    edge: Seconds
    forward_waits_less: Seconds
    waits_less: Seconds
    p2p: Seconds
    memory: Seconds
    tensor_base: Seconds
    tensor_edge: Seconds
    arithmetic: Seconds
    step: Seconds
    step_memory: Seconds
    step_arithmetic: Seconds


def synced_block(block: BlockCost, schedule: Schedule) -> SyncedBlock:
    """Return the gradient and parameter bytes that replicas synchronize of a block."""
    sent, gradient = block.forms.sent, block.gradient_message
    if not schedule.has_separate_experts:
        return SyncedBlock(dense=SyncedBytes(weight=sent, gradient=gradient))
    apart, reduced = schedule.separate_experts, gradient / block.weight
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
    if schedule.has_separate_experts:
        apart, reduced = schedule.separate_experts, block.gradient_message / block.weight
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
