"""The time of a block of each kind, for one microbatch."""

import numpy as np

from calculon.base.records import record
from calculon.base.units import Seconds
from calculon.cost.block_cost import BlockCost, Collectives
from calculon.cost.pipeline.transfers import Transfers
from calculon.plan.schedule import Schedule


@record
class BlockTimes:
    """Forward and backward time of a base and an edge block, before and with exposed offload traffic."""

    forward_base: Seconds
    forward_edge: Seconds
    backward_base: Seconds
    backward_edge: Seconds

    @property
    def shortest_forward(self) -> Seconds:
        """The shorter forward time of the two kinds of block."""
        return np.minimum(self.forward_base, self.forward_edge)

    @property
    def shortest_backward(self) -> Seconds:
        """The shorter backward time of the two kinds of block."""
        return np.minimum(self.backward_base, self.backward_edge)


def times_alone(
    block: BlockCost,
    collectives: Collectives,
    sent: Transfers,
    schedule: Schedule,
    *,
    exchanges: bool,
) -> BlockTimes:
    """Return the times of a block without offloading: computation, exposed collectives and transfers (section 5.4)."""
    overlapped = schedule.columns.p2p_overlap
    after_forward, after_backward = sent.forward, sent.backward
    if overlapped.any():
        after_forward, after_backward = (
            np.where(overlapped, 0.0, time) for time in (after_forward, after_backward)
        )
    forward, backward = block_passes(block, collectives, exchanges=exchanges)
    return BlockTimes(
        forward_base=forward[0],
        forward_edge=forward[1] + after_forward,
        backward_base=backward[0],
        backward_edge=backward[1] + after_backward,
    )


def block_passes(
    block: BlockCost, collectives: Collectives, *, exchanges: bool
) -> tuple[Seconds, Seconds]:
    """Return forward and backward time of a block without transfers and offloading; the first axis is the kind.

    Nothing is looked up of collectives of further axes where no block `exchanges` anything along them.
    """
    forward = block.fw.time + collectives.fw_tp.time_exposed
    backward = (
        block.re.time
        + collectives.recomm.time_exposed
        + block.agrad.time
        + block.wgrad.time
        + collectives.agrad_tp.time_exposed
    )
    if exchanges:  # collectives that are repeated are in the backward pass
        first, second, repeated = block.axis_exposed.sum(axis=0)
        forward, backward = forward + first, backward + (second + repeated)
    return forward, backward
