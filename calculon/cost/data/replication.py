"""Exposed time of the explicit data-parallel strategies: DDP, ZeRO-n, FSDP and HSDP, layer-wise sharding.

Sources: Li et al., *PyTorch Distributed*, arXiv 2006.15704, section
3.2 (buckets); Zhao et al., *PyTorch FSDP*, arXiv 2304.11277, section 3.3 (prefetching).
"""

from functools import reduce

import numpy as np

from calculon.base.records import record
from calculon.base.units import Count, Fraction, Seconds
from calculon.cost.data.data_collectives import (
    Buckets,
    DataCollectives,
    Sharding,
    regathers,
    unit_blocks,
    unit_passes,
    units_ahead,
)
from calculon.cost.process_groups import exposed_time, slow_down
from calculon.plan.schedule import Schedule


@record
class Windows:
    """Windows for data-parallel traffic: passes of a base block without tensor-parallel traffic on the same network.

    ``head`` is the backward pass of the LM head.
    """

    forward: Seconds
    backward: Seconds
    head: Seconds


@record
class Synchronization:
    """Link and exposed time of a batch; ``stalled`` is the exposed time of each microbatch."""

    link: Seconds
    exposed: Seconds
    stalled: Seconds


class Replication:
    """Exposed data-parallel traffic, per execution.

    Args:
        collectives: Data-parallel collectives in seconds.
    """

    def __init__(self, collectives: DataCollectives, windows: Windows):
        self.collectives, self.windows = collectives, windows
        self.sharding, self.schedule = collectives.sharding, collectives.schedule
        usage = collectives.usage
        self.usage: Fraction = slow_down(usage, self.schedule.columns.data_par_slowdown)

    def synchronization(self) -> Synchronization:
        """Return the times of the traffic of a batch."""
        link = self.collectives.batch
        sharded = self.sharding.weights
        exposed, stalled = self._with_sharded_weights() if sharded else self._with_whole_weights()
        waits = self.collectives.waits_for_copies
        if sharded and waits.any():
            others = Replication(self.collectives.of_copies(copies=False), self.windows)
            between = self.collectives.of_copies(copies=True).of_microbatch
            each = others._of_units() + between
            exposed = np.where(waits, unit_passes(self.schedule) * each, exposed)
            stalled = np.where(waits & ~self.schedule.columns.sync_once, each, stalled)
        return Synchronization(link=link, exposed=exposed, stalled=stalled)

    def _with_whole_weights(self) -> tuple[Seconds, Seconds]:
        """DDP, ZeRO-1 and ZeRO-2: return the exposed time of a batch, and of each microbatch.

        All buckets but the last can be hidden by the backward pass until the last one is full. The last bucket, which
        has the embedding's gradient, is exposed.
        """
        exposed = reduce(np.maximum, map(self._exposed_buckets, self.collectives.buckets))
        times = self.collectives.times
        share = 1 / self.schedule.columns.grad_group  # microbatches of a group are reduced together
        each = self.sharding.reduces_each_microbatch(self.schedule)
        stalled = np.where(each, share * exposed, 0.0)
        exposed = times * exposed
        if self.sharding.state:
            exposed = exposed + self._gather_after_step()
        return exposed, stalled

    def _exposed_buckets(self, buckets: Buckets) -> Seconds:
        """Return the exposed time of reducing the gradients of a stage once."""
        window = buckets.before * self.windows.backward
        exposed = buckets.last + exposed_time(buckets.others, window, self.usage)
        return np.where(self.schedule.columns.data_par_overlap, exposed, buckets.all)

    def _gather_after_step(self) -> Seconds:
        """Return the exposed time of gathering new weights, which may overlap with the next forward pass.

        The weights of a block are gathered during the forward pass of the block before it. Those of the first block and
        of the embedding are always exposed.
        """
        one, embedding, head = self.collectives.update
        window, others = self.windows.forward, self.schedule.blocks - 1
        link = one + others * one + self._of_embedding_and_head(embedding, head)
        exposed = one + others * exposed_time(one, window, self.usage)
        exposed_head = exposed_time(head, window, self.usage)
        exposed = exposed + self._of_embedding_and_head(embedding, exposed_head)
        return np.where(self.schedule.columns.overlap_param_gather, exposed, link)

    def _of_embedding_and_head(self, embedding: Seconds, head: Seconds) -> Seconds:
        """Return the sum of the times of embedding and head, or the longer one if they are on different stages."""
        piped = self.schedule.separate_ends
        return np.where(piped, np.maximum(embedding, head), embedding + head)

    def _with_sharded_weights(self) -> tuple[Seconds, Seconds]:
        """ZeRO-3, FSDP and layer-wise sharding: return the exposed time of a batch, and of each microbatch."""
        once, each = self.schedule.columns.sync_once, self._of_units()
        return unit_passes(self.schedule) * each, np.where(once, 0.0, each)

    def _of_units(self) -> Seconds:
        """Return the exposed time of gathering and reducing all units of a stage once.

        While a unit is computed, the next one is gathered, and in the backward pass the previous one is reduced. The
        first gather and the last reduction of a chunk are exposed, and so is the embedding. Layer-wise sharding does
        not overlap. With ``sync_once`` all reductions follow the last backward pass, and nothing hides them.
        """
        schedule, usage, unit = self.schedule, self.usage, unit_blocks(self.schedule)
        count, gather, again, reduce, embedding, gathered, reduced = self.collectives.units
        forward, backward = unit * self.windows.forward, unit * self.windows.backward
        inner = exposed_time(gather, forward, usage) + exposed_time(again + reduce, backward, usage)
        exposed_blocks = gather + again + reduce + (count - 1) * inner
        exposed_blocks = schedule.interleaving * exposed_blocks
        # The head is gathered during the last unit's forward pass and reduced with the load of its backward pass. The
        # first gather of the backward pass overlaps with the backward pass of the head.
        at_head = exposed_time(gathered, forward, usage)
        load = again + reduce
        at_head = at_head + np.where(
            count > 1,
            exposed_time(load + reduced, backward, usage) - exposed_time(load, backward, usage),
            exposed_time(reduced, backward, usage),
        )
        at_head = at_head - (again - exposed_time(again, self.windows.head, usage))
        if np.any(once := schedule.columns.sync_once):
            inner = gather + (count - 1) * exposed_time(gather, forward, usage) + count * reduce
            exposed_blocks = np.where(once, schedule.interleaving * inner, exposed_blocks)
            at_head = np.where(once, exposed_time(gathered, forward, usage) + reduced, at_head)
        link = self.collectives.of_microbatch
        if self.sharding.layer_wise:
            return link
        overlapped = schedule.columns.data_par_overlap & (units_ahead(schedule) > 0)
        exposed_ends = self._of_embedding_and_head(embedding, at_head)
        exposed = np.where(overlapped, exposed_blocks + exposed_ends, link)
        return np.minimum(exposed, link)


def units_held(sharding: Sharding, schedule: Schedule) -> Count:
    """Return the blocks whose weights are gathered at a time: the unit at work and prefetched units.

    Without resharding after each forward pass, it is all blocks of a stage.
    """
    ahead = 0.0 if sharding.layer_wise else units_ahead(schedule)
    held: Count = np.minimum(unit_blocks(schedule) * (1 + ahead), schedule.blocks)
    return np.where(regathers(schedule), held, schedule.blocks)
