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
    unit_blocks,
    units_ahead,
)
from calculon.cost.process_groups import exposed_time, slow_down
from calculon.plan.schedule import Schedule


@record
class Windows:
    """Windows for traffic: time of a base block in which its network is free, and the LM head's backward pass."""

    forward: Seconds
    backward: Seconds
    head: Seconds


@record
class Synchronisation:
    """Link time and exposed time of a batch; `stalled` is the part of the latter that each microbatch waits for."""

    link: Seconds
    exposed: Seconds
    stalled: Seconds


class Replication:
    """Hidden and exposed traffic between replicas, per execution.

    Args:
        collectives: Those between replicas, in seconds.
    """

    def __init__(self, collectives: DataCollectives, windows: Windows):
        self.collectives, self.windows = collectives, windows
        self.sharding, self.schedule = collectives.sharding, collectives.schedule
        usage = collectives.usage
        self.usage: Fraction = slow_down(usage, self.schedule.columns.data_par_slowdown)

    def synchronisation(self) -> Synchronisation:
        """Time the traffic of a batch."""
        link = self.collectives.batch
        split = self.sharding.weights
        exposed, stalled = self._of_split_weights() if split else self._of_whole_weights()
        return Synchronisation(link=link, exposed=exposed, stalled=stalled)

    def _of_whole_weights(self) -> tuple[Seconds, Seconds]:
        """DDP, ZeRO-1 and ZeRO-2: return what is exposed in a batch, and what stalls each microbatch.

        All buckets but the last can hide behind the backward pass before the last is full; the embedding's gradient,
        which comes last, is never before that.
        """
        exposed = reduce(np.maximum, map(self._waits, self.collectives.buckets))
        times = self.collectives.times
        share = 1 / self.schedule.columns.grad_group  # of a microbatch of a group reduced at once
        stalled = np.where(self.sharding.every(self.schedule), share * exposed, 0.0)
        exposed = times * exposed
        if self.sharding.state:
            exposed = exposed + self._gather_after_step()
        return exposed, stalled

    def _waits(self, buckets: Buckets) -> Seconds:
        """Exposed time to reduce the gradients of a stage once."""
        window = buckets.before * self.windows.backward
        hidden = buckets.last + exposed_time(buckets.others, window, self.usage)
        return np.where(self.schedule.columns.data_par_overlap, hidden, buckets.all)

    def _gather_after_step(self) -> Seconds:
        """Exposed time to gather new weights, beside the next forward pass if that is asked for."""
        one, embedding, head = self.collectives.update
        window, others = self.windows.forward, self.schedule.blocks - 1
        link = one + others * one + self._of_embedding_and_head(embedding, head)
        waits = one + others * exposed_time(one, window, self.usage)
        waits = waits + self._of_embedding_and_head(
            embedding, exposed_time(head, window, self.usage)
        )
        return np.where(self.schedule.columns.overlap_param_gather, waits, link)

    def _of_embedding_and_head(self, embedding: Seconds, head: Seconds) -> Seconds:
        """Return a time of embedding and head, or of the longer where they are on different stages."""
        piped = self.schedule.ends_apart
        return np.where(piped, np.maximum(embedding, head), embedding + head)

    def _of_split_weights(self) -> tuple[Seconds, Seconds]:
        """ZeRO-3, FSDP and layer-wise sharding: return what is exposed in a batch, and what stalls each microbatch.

        While one unit is computed the next is gathered, and in the backward pass the one before reduced; the first
        gather and the last reduction have nothing to hide behind, nor has the embedding.
        """
        schedule, usage, unit = self.schedule, self.usage, unit_blocks(self.schedule)
        count, gather, again, reduce, embedding, gathered, reduced = self.collectives.units
        forward, backward = unit * self.windows.forward, unit * self.windows.backward
        inner = exposed_time(gather, forward, usage) + exposed_time(again + reduce, backward, usage)
        waits = gather + again + reduce + (count - 1) * inner
        waits = schedule.interleaving * waits
        at_head = exposed_time(gathered, forward, usage)
        load = again + reduce
        at_head = at_head + np.where(
            count > 1,
            exposed_time(load + reduced, backward, usage) - exposed_time(load, backward, usage),
            exposed_time(reduced, backward, usage),
        )
        at_head = at_head - (again - exposed_time(again, self.windows.head, usage))
        link = self.collectives.of_microbatch
        if self.sharding.layer_wise:
            return schedule.microbatches * link, link
        overlapped = schedule.columns.data_par_overlap & (units_ahead(schedule) > 0)
        stalled = np.where(
            overlapped, waits + self._of_embedding_and_head(embedding, at_head), link
        )
        stalled = np.minimum(stalled, link)
        exposed: Seconds = schedule.microbatches * stalled
        return exposed, stalled


def units_held(sharding: Sharding, schedule: Schedule) -> Count:
    """Return blocks whose weights are whole at a time: the unit at work and those ahead, or all until they are used."""
    ahead = 0.0 if sharding.layer_wise else units_ahead(schedule)
    held: Count = np.minimum(unit_blocks(schedule) * (1 + ahead), schedule.blocks)
    return np.where(schedule.columns.reshard_after_forward, held, schedule.blocks)
