"""The time of a block of each kind."""

from typing import NamedTuple

import numpy as np

from calculon.cost.block_cost import BlockCost, Collectives
from calculon.cost.offload import Offload, exposed
from calculon.records import record
from calculon.spec.axes import FURTHER_AXES
from calculon.units import Seconds


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


def block_times(
    block: BlockCost, collectives: Collectives, sent_forward: Seconds, sent_backward: Seconds
) -> BlockTimes:
    """Add computation, exposed collectives and transfers up to the time of a block (section 5.4)."""
    forward = block.fw.time + collectives.fw_tp.time_exposed
    backward = (
        block.re.time
        + collectives.recomm.time_exposed
        + block.agrad.time
        + block.wgrad.time
        + collectives.agrad_tp.time_exposed
    )
    if FURTHER_AXES:
        more = axis_times(block)
        forward, backward = forward + more.forward, backward + more.backward
    return BlockTimes(
        forward_base=forward[0],
        forward_edge=forward[1] + sent_forward,
        backward_base=backward[0],
        backward_edge=backward[1] + sent_backward,
    )


class AxisPasses(NamedTuple):
    """Time of the collectives of further axes in the passes of a block; those repeated are in the backward pass."""

    forward: Seconds
    backward: Seconds


def axis_times(block: BlockCost) -> AxisPasses:
    """Add the times of the collectives of all further axes up."""
    forward, backward, repeated = block.axis_time.sum(axis=0)
    return AxisPasses(forward, backward + repeated)


def offload_times(
    times: BlockTimes, forward_memory: Seconds, backward_memory: Seconds, moved: Offload
) -> BlockTimes:
    """Return the exposed offload time of each kind of block and pass (section 5.4)."""
    return BlockTimes(
        forward_base=exposed(moved.forward, forward_memory, times.forward_base),
        forward_edge=exposed(moved.forward, forward_memory, times.forward_edge),
        backward_base=exposed(moved.backward, backward_memory, times.backward_base),
        backward_edge=exposed(moved.backward, backward_memory, times.backward_edge),
    )
