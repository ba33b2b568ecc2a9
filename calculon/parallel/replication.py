"""Data parallelism in its natural forms: DDP, ZeRO, FSDP, and layers with owners.

Sources: Li et al., *PyTorch Distributed*, arXiv 2006.15704, section 3.2 (buckets); Rajbhandari et al., *ZeRO*, arXiv
1910.02054, section 7 (traffic); Zhao et al., *PyTorch FSDP*, arXiv 2304.11277, sections 3.2 and 3.3 (units, hybrid
sharding, prefetching).
"""

from collections.abc import Callable

import numpy as np

from calculon.hardware.system import System
from calculon.parallel.groups import Team, collective, data_team
from calculon.parallel.synced import Synced
from calculon.plan.replicas import Replicas
from calculon.plan.schedule import Schedule
from calculon.records import record
from calculon.units import Array, Bytes, Count, Fraction, Seconds


@record
class Windows:
    """What traffic can hide behind: time of a base block in which its network is free, and the head's backward pass."""

    forward: Seconds
    backward: Seconds
    head: Seconds


@record
class Synchronisation:
    """Time per batch on the link, and of it not hidden; `stalled` is what of that each microbatch waits for."""

    link: Seconds
    exposed: Seconds
    stalled: Seconds


def not_hidden(traffic: Seconds, window: Seconds, usage: Fraction) -> Seconds:
    r"""Return what traffic adds to the work that runs beside it.

    .. math:: \min(t, \max(t - w, u \, t))

    for traffic `t`, work `w` and the share `u` of the engines that traffic takes from it: the work is slowed to
    :math:`1 - u` of its rate while there is traffic, and traffic that is left then runs alone.
    """
    added: Seconds = np.minimum(traffic, np.maximum(traffic - window, usage * traffic))
    return added


class Replication:
    """The traffic of replicas, per execution.

    Parameters
    ----------
    block : Synced
        What one block synchronises.
    ends : pair of Synced
        The same of embedding and head; 0 without a vocabulary.
    """

    def __init__(
        self,
        block: Synced,
        ends: tuple[Synced, Synced],
        windows: Windows,
        schedule: Schedule,
        system: System,
    ):
        assert schedule.replicas is not None
        self.form: Replicas = schedule.replicas
        self.block, (self.embedding, self.head) = block, ends
        self.windows, self.schedule, self.system = windows, schedule, system
        self.usage = system.fabric.processor_usage[schedule.data_par_net]

    # -- collectives --------------------------------------------------------------------------------------------------

    def _time(self, operation: str, size: Bytes, team: Team) -> Seconds:
        return collective(self.system, operation, size, team, self.schedule)

    def gather(self, weight: Bytes) -> Seconds:
        """Time to have weights whole again."""
        shared = data_team(self.schedule, self.system, self.form.shards)
        return _either(
            self.form.owned,
            lambda: self._time("broadcast", weight, shared),
            lambda: self._time("all_gather", weight, shared),
        )

    def reduce(self, gradient: Bytes) -> Seconds:
        """Time to add gradients up over all replicas: over those that share them, then over the copies."""
        form, schedule, system = self.form, self.schedule, self.system

        def split() -> Seconds:
            shared = data_team(schedule, system, form.shards)
            time = self._time("reduce_scatter", gradient, shared)
            if not np.any(form.copies > 1):
                return time
            apart = data_team(schedule, system, form.copies, form.shards)
            rest = self._time("all_reduce", gradient / form.shards, apart)
            return time + np.where(form.copies > 1, rest, 0.0)

        whole = data_team(schedule, system, schedule.data_par)
        return _either(
            form.owned,
            lambda: self._time("reduce", gradient, whole),
            lambda: _either(
                form.splits_state, split, lambda: self._time("all_reduce", gradient, whole)
            ),
        )

    # -- forms --------------------------------------------------------------------------------------------------------

    def synchronisation(self) -> Synchronisation:
        """Time the traffic of a batch."""
        return _records(self.form.splits_weights, self._of_split_weights, self._of_whole_weights)

    def _of_whole_weights(self) -> Synchronisation:
        """DDP, ZeRO-1 and ZeRO-2: gradients are reduced in buckets, and a split step is followed by a gather."""
        form, schedule = self.form, self.schedule
        times = np.where(form.every, schedule.microbatches, 1.0)
        first, last = self._ends()
        parts = [self._buckets(*first)]
        if last is not None:
            parts.append(self._buckets(*last))
        link, exposed = (np.maximum.reduce(several) for several in zip(*parts, strict=True))
        stalled = np.where(form.every, exposed, 0.0)
        link, exposed = times * link, times * exposed
        if np.any(form.splits_state):
            gathered, waited = self._gather_after_step()
            link = link + np.where(form.splits_state, gathered, 0.0)
            exposed = exposed + np.where(form.splits_state, waited, 0.0)
        return Synchronisation(link=link, exposed=exposed, stalled=stalled)

    def _ends(self) -> tuple[tuple[Synced, Synced], tuple[Synced, Synced] | None]:
        """Return embedding and head of the first stage and, where it is another one, of the last."""
        if not np.any(self.schedule.pipeline_par > 1):
            return (self.embedding, self.head), None
        alone = self.schedule.pipeline_par == 1
        return (self.embedding, self.head.where(alone)), (self.embedding.where(alone), self.head)

    def _buckets(self, embedding: Synced, head: Synced) -> tuple[Seconds, Seconds]:
        """Return link and exposed time to reduce the gradients of a stage once, the head's first.

        All buckets but the last can hide behind the backward pass before the last is full; the embedding's gradient,
        which comes last, is never before that.
        """
        block, blocks, bucket = self.block.gradient, self.schedule.blocks, self.form.bucket
        one = self.reduce(block)
        others = (blocks - 1) * one + self._part(self.reduce, head.gradient)
        last = one + self._part(self.reduce, embedding.gradient)
        before = (blocks - 1) * np.ones_like(one)
        if np.any(bucket > 0):
            whole = blocks * block + embedding.gradient + head.gradient
            full = np.maximum(np.where(bucket > 0, bucket, whole), 1.0)
            rest = whole - (np.ceil(whole / full) - 1) * full
            rest = np.minimum(whole, np.maximum(rest, embedding.gradient))
            count = np.ceil((whole - rest) / full)
            each = self.reduce((whole - rest) / np.maximum(count, 1.0))
            others = np.where(bucket > 0, count * each, others)
            last = np.where(bucket > 0, self.reduce(rest), last)
            before = np.where(bucket > 0, blocks * (1 - rest / whole), before)
        link = others + last
        hidden = last + not_hidden(others, before * self.windows.backward, self.usage)
        return link, np.where(self.schedule.data_par_overlap, hidden, link)

    def _part(self, time: Callable[[Bytes], Seconds], size: Bytes) -> Seconds:
        """Time of a collective that there may be nothing for."""
        return np.where(size > 0, time(size), 0.0) if np.any(size > 0) else np.zeros(1)

    def _gather_after_step(self) -> tuple[Seconds, Seconds]:
        """Return link and exposed time to gather new weights, beside the next forward pass if that is asked for."""
        blocks, form = self.schedule.blocks, self.form
        one = self.gather(self.block.weight)
        embedding = self._part(self.gather, self.embedding.weight)
        head = self._part(self.gather, self.head.weight)
        window = self.windows.forward
        inner, inner_waits = (blocks - 1) * one, (blocks - 1) * not_hidden(one, window, self.usage)
        link = one + inner + self._of_ends(embedding, head)
        waits = one + inner_waits + self._of_ends(embedding, not_hidden(head, window, self.usage))
        return link, np.where(form.late_gather, waits, link)

    def _of_ends(self, embedding: Seconds, head: Seconds) -> Seconds:
        """Return a time of both ends, or of the longer where they are on different stages."""
        piped = self.schedule.pipeline_par > 1
        return np.where(piped, np.maximum(embedding, head), embedding + head)

    def _of_split_weights(self) -> Synchronisation:
        """ZeRO-3, FSDP and owners: weights are gathered for each pass of each microbatch, unit after unit.

        While one unit is computed the next is gathered, and in the backward pass the one before reduced; the first
        gather and the last reduction have nothing to hide behind, nor has the embedding. The head is kept from its
        forward to its backward pass.
        """
        form, schedule, usage = self.form, self.schedule, self.usage
        units = schedule.chunk_blocks / form.unit
        gather = self.gather(form.unit * self.block.weight)
        reduce = self.reduce(form.unit * self.block.gradient)
        again = np.where(form.regathers, gather, 0.0)
        link = schedule.interleaving * units * (gather + again + reduce)
        forward, backward = form.unit * self.windows.forward, form.unit * self.windows.backward
        inner = not_hidden(gather, forward, usage) + not_hidden(again + reduce, backward, usage)
        waits = gather + again + reduce + (units - 1) * inner
        waits = schedule.interleaving * waits
        embedding = self._part(self.gather, self.embedding.weight)
        embedding = embedding + self._part(self.reduce, self.embedding.gradient)
        gathered = self._part(self.gather, self.head.weight)
        reduced = self._part(self.reduce, self.head.gradient)
        at_head = not_hidden(gathered, forward, usage)
        load = again + reduce
        at_head = at_head + np.where(
            units > 1,
            not_hidden(load + reduced, backward, usage) - not_hidden(load, backward, usage),
            not_hidden(reduced, backward, usage),
        )
        at_head = at_head - (again - not_hidden(again, self.windows.head, usage))
        overlapped = schedule.data_par_overlap & (form.ahead > 0) & ~form.owned
        of_link = self._of_ends(embedding, gathered + reduced)
        link = link + of_link
        stalled = np.where(overlapped, waits + self._of_ends(embedding, at_head), link)
        stalled = np.minimum(stalled, link)
        batch = schedule.microbatches
        return Synchronisation(link=batch * link, exposed=batch * stalled, stalled=stalled)


def _either(mask: Array, yes: Callable[[], Array], no: Callable[[], Array]) -> Array:
    """Choose by a mask, and compute only what is chosen somewhere."""
    if np.all(mask):
        return yes()
    return np.where(mask, yes(), no()) if np.any(mask) else no()


def _records(
    mask: Array, yes: Callable[[], Synchronisation], no: Callable[[], Synchronisation]
) -> Synchronisation:
    """Choose records by a mask, and compute only what is chosen somewhere."""
    if np.all(mask):
        return yes()
    if not np.any(mask):
        return no()
    one, other = yes(), no()
    return Synchronisation(
        link=np.where(mask, one.link, other.link),
        exposed=np.where(mask, one.exposed, other.exposed),
        stalled=np.where(mask, one.stalled, other.stalled),
    )


def units_held(form: Replicas, blocks: Count) -> Count:
    """Return blocks whose weights are whole at a time: the unit at work and those ahead, or all until they are used."""
    ahead = np.where(form.owned, 0.0, form.ahead)
    held: Count = np.minimum(form.unit * (1 + ahead), blocks)
    return np.where(form.regathers, held, blocks)
