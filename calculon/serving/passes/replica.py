"""Replicas at work: times of their passes by the sequences that they have."""

from dataclasses import field, replace
from functools import cached_property
from typing import Any

import numpy as np

from calculon.base.frozen import dataclass
from calculon.base.units import Array, Count, Fraction, Seconds
from calculon.declarations.model import Model
from calculon.hardware.system import System
from calculon.plan.choices import distinct
from calculon.serving.passes.drafts import Draft, draft_of
from calculon.serving.passes.pass_rows import pass_rows
from calculon.serving.passes.pass_sizes import PassSizes
from calculon.serving.passes.row_times import (
    PassSpans,
    PassTimes,
    handed_on,
    pass_times,
    stage_time,
)
from calculon.serving.records.deployments import Deployments
from calculon.serving.records.load import PromptLength, Workload
from calculon.serving.records.number_types import NumberTypes
from calculon.serving.records.output_lengths import longest_output
from calculon.serving.states.steady import (
    Prompts,
    chunks,
    mixed_passes,
    mixture,
    own_passes,
    prompts_together,
)

MANY = 256
"""Passes among which it pays to look for those of the same sizes."""

STEPS = 16
"""Parts of an output in whose middle the decode passes of a static batch are timed: exact where time is linear."""


@dataclass(frozen=True)
class Replica:
    """A replica of each of several deployments, with its workload; all columns have shape ``(deployments,)``.

    Attributes:
        model, system, deployments, workload: The records.
        timed: Passes that were timed before, by their sizes.
    """

    model: Model
    system: System
    deployments: Deployments
    workload: Workload
    timed: dict[bytes, PassTimes] = field(default_factory=dict, repr=False, compare=False)

    def take(self, places: Any) -> "Replica":
        """Return those of the deployments at some places, in that order, with what is known of passes."""
        taken = replace(self, deployments=self.deployments.take(places))
        vars(taken)["draft"] = self.draft  # whose model was read once
        return taken

    def without_draft(self) -> "Replica":
        """Return the same without speculation."""
        plain = self.deployments.without_draft()
        return Replica(self.model, self.system, plain, self.workload)

    @cached_property
    def types(self) -> NumberTypes:
        """Types of numbers on the machine."""
        d = self.deployments.record
        weights = d.weights_dtype, d.of_experts, d.head_dtype
        return NumberTypes.of(self.system, *weights, d.kv_dtype, d.dispatch_dtype)

    @cached_property
    def draft(self) -> Draft:
        """What drafts tokens."""
        return draft_of(self.model, self.deployments.record)

    @property
    def rows(self) -> int:
        """Rows of a sequence in a pass that decodes: 1 without speculation."""
        return self.draft.speculation.rows

    @property
    def per_pass(self) -> float:
        """Tokens of a sequence that such a pass yields on average: 1 without speculation."""
        return self.draft.speculation.per_pass

    @cached_property
    def _spans(self) -> dict[bytes, PassSpans]:
        """Likewise without their rows."""
        return {}

    def passes(self, sizes: PassSizes) -> PassTimes:
        """Time passes through all stages, one after the other, with what they draft; the same sizes once."""
        if sizes.count >= MANY:
            return self._time(sizes)
        key = sizes.key
        if key not in self.timed:
            self.timed[key] = self._time(sizes)
        return self.timed[key]

    def spans(self, sizes: PassSizes) -> PassSpans:
        """Return the times of passes without their rows; of many each is timed that differs from all others."""
        if sizes.count < MANY:
            return self.passes(sizes).spans
        key = sizes.key
        if key not in self._spans:
            _, alike, first = distinct(sizes.columns)
            self._spans[key] = self._time(sizes.take(first)).spans.take(alike)
        return self._spans[key]

    def _time(self, sizes: PassSizes) -> PassTimes:
        """Time passes and what they draft."""
        d = self.deployments.record
        kinds: dict[str, Any] = {
            "shared_heads": d.shared_heads,
            "routing": d.routing,
            "overlap": d.overlap,
        }
        graphs = d.in_graphs(sizes.prompts)
        rows = pass_rows(self.model, self.types, sizes, **kinds)
        times = pass_times(self.model, self.system, rows, sizes, graphs=graphs, overlap=d.overlap)
        return self.draft.after(times, self.system, self.types, sizes, graphs=graphs, **kinds)

    def sizes(self, **columns: Array | float) -> PassSizes:
        """Return sizes of passes on a rank of each replica."""
        d = self.deployments
        return PassSizes.of(
            tensor_par=d.tensor_par,
            expert_par=d.expert_par,
            copies=d.redundant_experts,
            attn_data_par=d.attn_data_par,
            context_par=d.context_par,
            **columns,
        )

    def decode_pass(self, batch: Count, context: Count | float | None = None) -> PassTimes:
        """Time passes that decode: of all sequences, or with stages those of one of as many parts."""
        return self.passes(self._decoded(batch, context))

    def _decoded(self, batch: Count, context: Count | float | None = None) -> PassSizes:
        seen = self.workload.context if context is None else context
        return self.sizes(decoded=self._part(batch), verified=self.rows, context=seen)

    def _part(self, batch: Count) -> Count:
        """Return the sequences of a pass: with stages those of one of as many parts, one at least."""
        return np.maximum(batch / self.deployments.pipeline_par, np.minimum(batch, 1.0))

    def decode(self, batch: Count, context: Count | float | None = None) -> Seconds:
        """Return the time in which every sequence has a token, or with speculation those of a verification.

        Each of `p` stages is at a part of the sequences of its own; a token is back after all of them. Fewer sequences
        than stages go through them one after the other, and no stage waits for the slowest.
        """
        times = self.spans(self._decoded(batch, context))
        if not self.deployments.staged:
            return times.time
        stages, part = self.deployments.pipeline_par, self._part(batch)
        through = times.time + stages * self._handed(part * self.rows)
        in_turn = batch / part * self._slowest(times, part * self.rows)
        return np.where(stages > 1, np.maximum(through, in_turn), times.time)

    def _handed(self, tokens: Count) -> Seconds:
        """Return the time in which a stage hands so many rows to the next; 0 where there is one."""
        d = self.deployments
        moved = handed_on(self.model, self.system, tokens / d.attn_data_par, d.tensor_par)
        return np.where(d.pipeline_par > 1, moved, 0.0)

    def _slowest(self, times: PassSpans, tokens: Count) -> Seconds:
        """Return the time that the slowest stage is busy with a pass of so many tokens."""
        slowest = stage_time(times, self.model.num_blocks, self.deployments.pipeline_par)
        return slowest + self._handed(tokens)

    def prefill_pass(self, prompts: Count) -> PassTimes:
        """Time passes of whole prompts, as many at once as stated."""
        w = self.workload
        return self.passes(self.sizes(prompts=prompts, chunk=w.computed, cached=w.cached))

    def prefill(self, prompts: Count) -> tuple[Seconds, Seconds]:
        """Return the mean time of prompts through all stages, and that which the slowest of these is busy."""
        lengths = self.workload.lengths
        times = [self.prefill_of(prompts, one.computed, one.cached) for one in lengths]
        if len(lengths) == 1:
            return times[0]
        through = sum(one.share * time for one, (time, _) in zip(lengths, times, strict=True))
        busy = sum(one.share * time for one, (_, time) in zip(lengths, times, strict=True))
        return np.asarray(through), np.asarray(busy)

    def prefill_of(self, prompts: Count, computed: float, cached: float) -> tuple[Seconds, Seconds]:
        """Return the same of prompts of one length, of which the cache has some tokens."""
        times = self.spans(self.sizes(prompts=prompts, chunk=computed, cached=cached))
        if not self.deployments.staged:
            return times.time, times.time
        tokens = prompts * computed
        return self._through(times, tokens), self._slowest(times, tokens)

    def _through(self, times: PassSpans, tokens: Count) -> Seconds:
        """Return the time of a pass of so many tokens from the first stage to the last."""
        return times.time + (self.deployments.pipeline_par - 1) * self._handed(tokens)

    def prompts(
        self, batch: Count, decode: Seconds, lost: Fraction | float | None = None
    ) -> Prompts:
        """Return what prompts add to passes that decode so many sequences, on average over their lengths.

        Args:
            batch, decode: Sequences, and the time of a pass that decodes them.
            lost: Share of the requests whose prefix is no longer cached.
        """
        shares: list[Fraction | float] = []
        kinds: list[Prompts] = []
        w = self.workload
        present, absent = (1.0, 0.0) if lost is None else (1 - lost, lost)
        for share, lengths in ((present, w.lengths), (absent, w.lengths_without)):
            if np.any(share):
                shares += [share * one.share for one in lengths]
                kinds += [self.prompts_of(batch, decode, one) for one in lengths]
        return mixture(shares, kinds)

    def _abreast(self, batch: Count) -> Count:
        """Return the groups of ranks with sequences of their own that take prompts in the same passes.

        The exchange with experts makes all wait for the longest pass, so that schedulers let them take prompts
        together, as far as there are sequences. Source: TensorRT-LLM, ``attention_dp_config``, ``enable_balance``.
        """
        return np.minimum(self.deployments.attn_data_par, np.maximum(batch, 1.0))

    def prompts_of(self, batch: Count, decode: Seconds, length: PromptLength) -> Prompts:
        """Return what prompts of one length add."""
        computed = length.computed
        if not self.deployments.mixes:
            together = self._abreast(batch)
            whole, busy = self.prefill_of(together, computed, length.cached)
            return own_passes(whole, busy, decode, together)
        count, together = self._taken(batch, length)
        times = self._mixed_pass(batch, count, together, length, before=(count - 1) / 2)
        if not self.deployments.staged:
            return mixed_passes(count, together, times.time, decode, count * times.time)
        tokens = self._part(batch) * self.rows + together * computed / count
        latency = self._through(times, tokens) + (count - 1) * self._slowest(times, tokens)
        latency = np.where(self.deployments.pipeline_par > 1, latency, count * times.time)
        mixed = self._between(batch, decode, tokens, times)
        return mixed_passes(count, together, mixed, decode, latency)

    def _taken(self, batch: Count, length: PromptLength) -> tuple[Count, Count]:
        """Return in how many chunks mixed passes take prompts of a length, and of how many prompts at a time."""
        own = self._part(batch) / self.deployments.attn_data_par
        count = chunks(own * self.rows, self.deployments.token_budget, length.computed)
        several = prompts_together(own, count, self.workload.output, self.per_pass)
        return count, self._abreast(batch) * several

    def _between(self, batch: Count, decode: Seconds, tokens: Count, times: PassSpans) -> Seconds:
        """Return the time between two passes that decode, of which one is a mixed pass of so many tokens."""
        if not self.deployments.staged:
            return times.time
        part = self._part(batch) * self.rows
        plain = self._slowest(self.spans(self._decoded(batch)), part)
        several = self.deployments.pipeline_par > 1
        return np.where(several, decode + self._slowest(times, tokens) - plain, times.time)

    def more_chunks(self, places: Array, batch: Count) -> Count:
        """Return the next larger batch beside which a prompt is taken in one more chunk, of the deployment at a place.

        Chunks are smaller then, and hide better behind the reading of weights: times may fall.
        """
        d = self.deployments
        budget, shares = d.token_budget[places], (d.pipeline_par * d.attn_data_par)[places]
        own, found = batch / shares * self.rows, []
        for length in self.workload.lengths:
            count = chunks(own, budget, length.computed)
            room = (budget - length.computed / count) * shares / self.rows
            found.append(np.floor(room * (1 + 1e-12)) + 1)
        return np.maximum(np.min(found, axis=0), batch + 1)

    def longest_gap(self, batch: Count, decode: Seconds) -> Seconds:
        """Return the longest time between two passes that decode beside prompts: with the last of their chunks."""
        longest = decode
        for length in self.workload.lengths if self.deployments.mixes else ():
            count, together = self._taken(batch, length)
            last = self._mixed_pass(batch, count, together, length, before=count - 1)
            tokens = self._part(batch) * self.rows + together * length.computed / count
            longest = np.maximum(longest, self._between(batch, decode, tokens, last))
        return longest

    def _mixed_pass(
        self, batch: Count, count: Count, together: Count, length: PromptLength, before: Count
    ) -> PassSpans:
        """Time passes that decode all sequences and take a chunk of a prompt, or of several, of so many `before`."""
        chunk = length.computed / count
        return self.spans(
            self.sizes(
                decoded=self._part(batch),
                verified=self.rows,
                context=self.workload.context,
                prompts=together,
                chunk=chunk,
                cached=length.cached + before * chunk,
            )
        )

    def steps(self, batch: Count) -> Count:
        """Return the tokens of static batches until the longest output ends."""
        return longest_output(batch, self.workload.output, self.workload.output_cv)

    def mean_decode(self, batch: Count) -> Seconds:
        """Return the mean time of the decode passes of static batches, whose contexts grow together."""
        w = self.workload
        steps = min(STEPS, w.output - 1)
        shares = (np.arange(steps) + 0.5) / steps
        middles = w.prompt + 0.5 + (self.steps(batch)[:, None] - 1) * shares
        each = np.repeat(np.arange(len(batch)), steps)
        times = self.take(each).decode(batch[each], middles.ravel())
        return times.reshape(len(batch), steps).mean(axis=1)
