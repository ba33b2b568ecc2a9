"""The collectives of data parallelism in its natural forms: which there are, how often, and what they take together.

Everything is counted with a :class:`~calculon.parallel.process_groups.Meter`, in seconds or in bytes.

Sources: Li et al., *PyTorch Distributed*, arXiv 2006.15704, section 3.2 (buckets); Rajbhandari et al., *ZeRO*, arXiv
1910.02054, section 7 (traffic); Zhao et al., *PyTorch FSDP*, arXiv 2304.11277, sections 3.2 and 3.3 (units, hybrid
sharding, prefetching).
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from calculon.hardware.system import System
from calculon.parallel.data.synced import Synced
from calculon.parallel.process_groups import Meter, Team, data_team
from calculon.plan.replicas import Replicas
from calculon.plan.schedule import Schedule
from calculon.units import Array, Bytes, Count


class Buckets(NamedTuple):
    """To reduce the gradients of a stage once, the last bucket apart; it is full after `before` backward passes."""

    others: Array
    last: Array
    before: Count

    @property
    def all(self) -> Array:
        """All buckets."""
        return self.others + self.last


class Update(NamedTuple):
    """To gather new weights after the step: of a block, of embedding and head."""

    block: Array
    embedding: Array
    head: Array


class Units(NamedTuple):
    """To gather, gather again and reduce a unit of a chunk; the same of the ends, the head's apart."""

    number: Count
    gather: Array
    again: Array
    reduce: Array
    embedding: Array
    head_gather: Array
    head_reduce: Array


class Exchanges:
    """What replicas exchange in a batch, per execution; quantities are what the meter counts.

    Parameters
    ----------
    block : Synced
        What one block synchronises.
    ends : pair of Synced
        The same of embedding and head; 0 without a vocabulary.
    """

    def __init__(self, block: Synced, ends: tuple[Synced, Synced], meter: Meter):
        form = meter.schedule.replicas
        assert form is not None
        self.form: Replicas = form
        self.block, self.ends = block, ends
        self.embedding, self.head = ends
        self.meter, self.schedule = meter, meter.schedule

    # -- collectives --------------------------------------------------------------------------------------------------

    def gather(self, weight: Bytes) -> Array:
        """Have weights whole again."""
        shared = shard_team(self.schedule, self.meter.system)
        return either(
            self.form.owned,
            lambda: self.meter("broadcast", weight, shared),
            lambda: self.meter("all_gather", weight, shared),
        )

    def reduce(self, gradient: Bytes) -> Array:
        """Add gradients up over all replicas: over those that share them, then over the copies."""
        form, schedule, meter = self.form, self.schedule, self.meter

        def split() -> Array:
            once = meter("reduce_scatter", gradient, shard_team(schedule, meter.system))
            if not np.any(form.copies > 1):
                return once
            rest = meter("all_reduce", gradient / form.shards, copy_team(schedule, meter.system))
            return once + np.where(form.copies > 1, rest, 0.0)

        whole = data_team(schedule, meter.system, schedule.data_par)
        return either(
            form.owned,
            lambda: meter("reduce", gradient, whole),
            lambda: either(form.splits_state, split, lambda: meter("all_reduce", gradient, whole)),
        )

    # -- forms --------------------------------------------------------------------------------------------------------

    @cached_property
    def batch(self) -> Array:
        """Everything in a batch, on the stage where it takes longest."""
        return either(
            self.form.splits_weights,
            lambda: self.schedule.microbatches * self.of_microbatch,
            lambda: self._whole_weights,
        )

    @property
    def _whole_weights(self) -> Array:
        """DDP, ZeRO-1 and ZeRO-2: gradients are reduced in buckets, and a split step is followed by a gather."""
        reduced = self.times * self._of_longer(_stages)
        if not np.any(self.form.splits_state):
            return reduced
        update = self.update
        gathered = update.block + (self.schedule.blocks - 1) * update.block
        gathered = gathered + self.of_ends(lambda some: (some.update.embedding, some.update.head))
        return reduced + np.where(self.form.splits_state, gathered, 0.0)

    @property
    def times(self) -> Count:
        """How often whole gradients are reduced in a batch."""
        return np.where(self.form.every, self.schedule.microbatches, 1.0)

    @cached_property
    def buckets(self) -> tuple[Buckets, ...]:
        """Gradients of the first stage and, where it is another one, of the last."""
        if not np.any(self.schedule.pipeline_par > 1):
            return (self._buckets(self.embedding, self.head),)
        alone = self.schedule.pipeline_par == 1
        first = self._buckets(self.embedding, self.head.where(alone))
        return first, self._buckets(self.embedding.where(alone), self.head)

    def _buckets(self, embedding: Synced, head: Synced) -> Buckets:
        """Reduce the gradients of a stage once, the head's first and the embedding's last."""
        block, blocks, bucket = self.block.gradient, self.schedule.blocks, self.form.bucket
        one = self.reduce(block)
        others = (blocks - 1) * one + self._part(self.reduce, head.gradient)
        last = one + self._part(self.reduce, embedding.gradient)
        before: Count = (blocks - 1) * np.ones_like(block * blocks)
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
        return Buckets(others, last, before)

    @cached_property
    def update(self) -> Update:
        """New weights, gathered after the step."""
        return Update(
            self.gather(self.block.weight),
            self._part(self.gather, self.embedding.weight),
            self._part(self.gather, self.head.weight),
        )

    @cached_property
    def units(self) -> Units:
        """ZeRO-3, FSDP and owners: weights are gathered for each pass of each microbatch, unit after unit.

        The head is kept from its forward to its backward pass.
        """
        form = self.form
        gather = self.gather(form.unit * self.block.weight)
        embedding = self._part(self.gather, self.embedding.weight)
        return Units(
            number=self.schedule.chunk_blocks / form.unit,
            gather=gather,
            again=np.where(form.regathers, gather, 0.0),
            reduce=self.reduce(form.unit * self.block.gradient),
            embedding=embedding + self._part(self.reduce, self.embedding.gradient),
            head_gather=self._part(self.gather, self.head.weight),
            head_reduce=self._part(self.reduce, self.head.gradient),
        )

    @cached_property
    def of_microbatch(self) -> Array:
        """Everything that each microbatch exchanges in these forms."""
        units = self.units
        each = units.gather + units.again + units.reduce
        ends = self.of_ends(
            lambda some: (some.units.embedding, some.units.head_gather + some.units.head_reduce)
        )
        found: Array = self.schedule.interleaving * units.number * each + ends
        return found

    # -- stages -------------------------------------------------------------------------------------------------------

    def of_ends(self, ends: Callable[["Exchanges"], tuple[Array, Array]]) -> Array:
        """Return a quantity of both ends, or of the longer where they are on different stages."""
        embedding, head = ends(self)
        piped = self.schedule.pipeline_par > 1
        return np.where(piped, self._of_longer(ends), embedding + head)

    def _of_longer(self, stages: Callable[["Exchanges"], tuple[Array, Array]]) -> Array:
        """Return the quantity of the stage on which it takes longer."""

        def both(meter: Meter) -> tuple[Array, Array]:
            same = meter is self.meter
            return stages(self if same else Exchanges(self.block, self.ends, meter))

        return self.meter.of_longer(both)

    def _part(self, measure: Callable[[Bytes], Array], size: Bytes) -> Array:
        """Measure a collective that there may be nothing for."""
        return np.where(size > 0, measure(size), 0.0) if np.any(size > 0) else np.zeros(1)


def shard_team(schedule: Schedule, system: System) -> Team:
    """Return the groups of replicas that share what is split."""
    assert schedule.replicas is not None
    return data_team(schedule, system, schedule.replicas.shards)


def copy_team(schedule: Schedule, system: System) -> Team:
    """Return the groups of replicas that hold the same of what is split."""
    form = schedule.replicas
    assert form is not None
    return replace(data_team(schedule, system, form.copies, form.shards), copies=True)


def either(mask: Array, yes: Callable[[], Array], no: Callable[[], Array]) -> Array:
    """Choose by a mask, and compute only what is chosen somewhere."""
    if np.all(mask):
        return yes()
    found: Array = np.where(mask, yes(), no()) if np.any(mask) else no()
    return found


def _stages(some: Exchanges) -> tuple[Array, Array]:
    """Return what it takes to reduce the gradients of the first and the last stage."""
    return some.buckets[0].all, some.buckets[-1].all
