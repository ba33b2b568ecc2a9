"""A replica at work: times of its passes by the sequences that it has, and the steady state that follows."""

from functools import cached_property

import numpy as np

from calculon.frozen import dataclass
from calculon.hardware.system import System
from calculon.serving.deployment import Deployment
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
    """One engine of a deployment with its workload; batches are columns of shape ``(batches,)``."""

    model: Model
    system: System
    deployment: Deployment
    workload: Workload

    @cached_property
    def types(self) -> NumberTypes:
        """Types of numbers on the machine."""
        d = self.deployment
        return NumberTypes.of(self.system, d.weights_dtype, d.of_experts, d.head_dtype, d.kv_dtype)

    @cached_property
    def _timed(self) -> dict[bytes, PassTimes]:
        """Passes that were timed before, by their sizes."""
        return {}

    def passes(self, sizes: PassSizes) -> PassTimes:
        """Time passes through all stages, one after the other; the same sizes once."""
        key = b" ".join(column.tobytes() for column in sizes.columns)
        if key not in self._timed:
            shared = self.deployment.shared_heads
            rows = pass_rows(self.model, self.types, sizes, shared_heads=shared)
            graphs = self.deployment.graphs
            self._timed[key] = pass_times(self.model, self.system, rows, sizes, graphs=graphs)
        return self._timed[key]

    def sizes(self, **columns: Array | float) -> PassSizes:
        """Return sizes of passes on a rank of this replica."""
        d = self.deployment
        return PassSizes.of(tensor_par=d.tensor_par, expert_par=d.expert_par, **columns)

    def decode_pass(self, batch: Count, context: Count | float | None = None) -> PassTimes:
        """Time passes that decode: of all sequences, or with stages those of one of as many parts."""
        seen = self.workload.context if context is None else context
        return self.passes(self.sizes(decoded=self._part(batch), context=seen))

    def _part(self, batch: Count) -> Count:
        """Return the sequences of a pass: with stages those of one of as many parts, one at least."""
        return np.maximum(batch / self.deployment.pipeline_par, np.minimum(batch, 1.0))

    def decode(self, batch: Count, context: Count | float | None = None) -> Seconds:
        """Return the time in which every sequence has a token.

        Each of `p` stages is at a part of the sequences of its own; a token is back after all of them. Fewer sequences
        than stages go through them one after the other, and no stage waits for the slowest.
        """
        times = self.decode_pass(batch, context)
        stages = self.deployment.pipeline_par
        if stages == 1:
            return times.time
        part = self._part(batch)
        slowest = stage_time(times, self.model.num_blocks, np.full_like(times.time, stages))
        moved = self._handed(part)
        return np.maximum(times.time + stages * moved, batch / part * (slowest + moved))

    def _handed(self, tokens: Count) -> Seconds:
        split = np.full(np.shape(tokens), self.deployment.tensor_par)
        return handed_on(self.model, self.system, tokens, split)

    def prefill_pass(self, prompts: Count) -> PassTimes:
        """Time passes of whole prompts, as many at once as stated."""
        w = self.workload
        return self.passes(self.sizes(prompts=prompts, chunk=w.computed, cached=w.cached))

    def prefill(self, prompts: Count) -> tuple[Seconds, Seconds]:
        """Return the time of prompts through all stages, and that which the slowest of these is busy."""
        times, stages = self.prefill_pass(prompts), self.deployment.pipeline_par
        if stages == 1:
            return times.time, times.time
        moved = self._handed(prompts * self.workload.computed)
        slowest = stage_time(times, self.model.num_blocks, np.full_like(times.time, stages))
        return times.time + (stages - 1) * moved, slowest + moved

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
        w = self.workload
        count = chunks(batch, self.deployment.token_budget, w.computed)
        return count, prompts_together(batch, count, w.output)

    def prompts(self, batch: Count, decode: Seconds) -> Prompts:
        """Return what prompts add to passes that decode so many sequences."""
        stages = self.deployment.pipeline_par
        if not self.deployment.mixes:
            whole, busy = self.prefill(np.ones_like(batch))
            return own_passes(whole, busy, decode)
        count, together = self._chunks(batch)
        times = self.mixed_pass(batch)
        mixed, latency = times.time, count * times.time
        if stages > 1:
            parts = self.decode_pass(batch)
            most = np.full_like(mixed, stages)
            tokens = self._part(batch) + together * self.workload.computed / count
            slow = stage_time(times, self.model.num_blocks, most) + self._handed(tokens)
            plain = stage_time(parts, self.model.num_blocks, most) + self._handed(self._part(batch))
            through = times.time + (stages - 1) * self._handed(tokens)
            latency = through + (count - 1) * slow
            mixed = decode + slow - plain
        return mixed_passes(count, together, mixed, decode, latency)

    def mean_decode(self, batch: Count) -> Seconds:
        """Return the mean time of the decode passes of a static batch, whose contexts grow together."""
        w = self.workload
        steps = min(STEPS, w.output - 1)
        middles = w.prompt + 0.5 + (w.output - 1) * (np.arange(steps) + 0.5) / steps
        wide = np.repeat(batch, steps)
        times = self.decode(wide, np.tile(middles, len(batch)))
        return times.reshape(len(batch), steps).mean(axis=1)
