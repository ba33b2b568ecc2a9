"""Replicas at work: times of their passes by the sequences that they have."""

from functools import cached_property
from typing import Any

import numpy as np

from calculon.frozen import dataclass
from calculon.hardware.system import System
from calculon.serving.deployments import Deployments
from calculon.serving.load import Workload
from calculon.serving.number_types import NumberTypes
from calculon.serving.pass_rows import pass_rows
from calculon.serving.pass_sizes import PassSizes
from calculon.serving.row_times import PassTimes, handed_on, pass_times, stage_time
from calculon.serving.steady import (
    Prompts,
    chunks,
    mixed_passes,
    own_passes,
    prompts_together,
)
from calculon.spec.model import Model
from calculon.units import Array, Count, Seconds

STEPS = 16
"""Parts of an output in whose middle the decode passes of a static batch are timed: exact where time is linear."""


@dataclass(frozen=True)
class Replica:
    """A replica of each of several deployments, with its workload; all columns have shape ``(deployments,)``."""

    model: Model
    system: System
    deployments: Deployments
    workload: Workload

    def take(self, places: Any) -> "Replica":
        """Return those of the deployments at some places, in that order."""
        return Replica(self.model, self.system, self.deployments.take(places), self.workload)

    @cached_property
    def types(self) -> NumberTypes:
        """Types of numbers on the machine."""
        d = self.deployments.record
        return NumberTypes.of(self.system, d.weights_dtype, d.of_experts, d.head_dtype, d.kv_dtype)

    @cached_property
    def _timed(self) -> dict[bytes, PassTimes]:
        """Passes that were timed before, by their sizes."""
        return {}

    def passes(self, sizes: PassSizes) -> PassTimes:
        """Time passes through all stages, one after the other; the same sizes once."""
        key = b" ".join(column.tobytes() for column in sizes.columns)
        if key not in self._timed:
            d = self.deployments.record
            rows = pass_rows(self.model, self.types, sizes, shared_heads=d.shared_heads)
            graphs = d.in_graphs(sizes.prompts)
            self._timed[key] = pass_times(self.model, self.system, rows, sizes, graphs=graphs)
        return self._timed[key]

    def sizes(self, **columns: Array | float) -> PassSizes:
        """Return sizes of passes on a rank of each replica."""
        d = self.deployments
        return PassSizes.of(tensor_par=d.tensor_par, expert_par=d.expert_par, **columns)

    def decode_pass(self, batch: Count, context: Count | float | None = None) -> PassTimes:
        """Time passes that decode: of all sequences, or with stages those of one of as many parts."""
        seen = self.workload.context if context is None else context
        return self.passes(self.sizes(decoded=self._part(batch), context=seen))

    def _part(self, batch: Count) -> Count:
        """Return the sequences of a pass: with stages those of one of as many parts, one at least."""
        return np.maximum(batch / self.deployments.pipeline_par, np.minimum(batch, 1.0))

    def decode(self, batch: Count, context: Count | float | None = None) -> Seconds:
        """Return the time in which every sequence has a token.

        Each of `p` stages is at a part of the sequences of its own; a token is back after all of them. Fewer sequences
        than stages go through them one after the other, and no stage waits for the slowest.
        """
        times = self.decode_pass(batch, context)
        if not self.deployments.staged:
            return times.time
        stages, part = self.deployments.pipeline_par, self._part(batch)
        through = times.time + stages * self._handed(part)
        in_turn = batch / part * self._slowest(times, part)
        return np.where(stages > 1, np.maximum(through, in_turn), times.time)

    def _handed(self, tokens: Count) -> Seconds:
        """Return the time in which a stage hands so many rows to the next; 0 where there is one."""
        d = self.deployments
        moved = handed_on(self.model, self.system, tokens, d.tensor_par)
        return np.where(d.pipeline_par > 1, moved, 0.0)

    def _slowest(self, times: PassTimes, tokens: Count) -> Seconds:
        """Return the time that the slowest stage is busy with a pass of so many tokens."""
        slowest = stage_time(times, self.model.num_blocks, self.deployments.pipeline_par)
        return slowest + self._handed(tokens)

    def prefill_pass(self, prompts: Count) -> PassTimes:
        """Time passes of whole prompts, as many at once as stated."""
        w = self.workload
        return self.passes(self.sizes(prompts=prompts, chunk=w.computed, cached=w.cached))

    def prefill(self, prompts: Count) -> tuple[Seconds, Seconds]:
        """Return the time of prompts through all stages, and that which the slowest of these is busy."""
        times = self.prefill_pass(prompts)
        if not self.deployments.staged:
            return times.time, times.time
        tokens = prompts * self.workload.computed
        return self._through(times, tokens), self._slowest(times, tokens)

    def _through(self, times: PassTimes, tokens: Count) -> Seconds:
        """Return the time of a pass of so many tokens from the first stage to the last."""
        return times.time + (self.deployments.pipeline_par - 1) * self._handed(tokens)

    def mixed_pass(self, batch: Count) -> PassTimes:
        """Time passes that decode all sequences and take a chunk of a prompt, or of several."""
        count, together = self._chunks(batch)
        w = self.workload
        chunk = w.computed / count
        return self.passes(
            self.sizes(
                decoded=self._part(batch),
                context=w.context,
                prompts=together,
                chunk=chunk,
                cached=w.cached + (count - 1) / 2 * chunk,
            )
        )

    def _chunks(self, batch: Count) -> tuple[Count, Count]:
        """Return the chunks of a prompt, and the prompts of which a pass takes one."""
        w, part = self.workload, self._part(batch)
        count = chunks(part, self.deployments.token_budget, w.computed)
        return count, prompts_together(part, count, w.output)

    def prompts(self, batch: Count, decode: Seconds) -> Prompts:
        """Return what prompts add to passes that decode so many sequences."""
        if not self.deployments.mixes:
            whole, busy = self.prefill(np.ones_like(batch))
            return own_passes(whole, busy, decode)
        count, together = self._chunks(batch)
        times = self.mixed_pass(batch)
        if not self.deployments.staged:
            return mixed_passes(count, together, times.time, decode, count * times.time)
        part = self._part(batch)
        tokens = part + together * self.workload.computed / count
        slow = self._slowest(times, tokens)
        latency = self._through(times, tokens) + (count - 1) * slow
        mixed = decode + slow - self._slowest(self.decode_pass(batch), part)
        return mixed_passes(count, together, mixed, decode, latency)

    def mean_decode(self, batch: Count) -> Seconds:
        """Return the mean time of the decode passes of static batches, whose contexts grow together."""
        w = self.workload
        steps = min(STEPS, w.output - 1)
        middles = w.prompt + 0.5 + (w.output - 1) * (np.arange(steps) + 0.5) / steps
        each = np.repeat(np.arange(len(batch)), steps)
        times = self.take(each).decode(batch[each], np.tile(middles, len(batch)))
        return times.reshape(len(batch), steps).mean(axis=1)
