"""Passes of replicas: decode, prefill and mixed passes, and their times by the number of running sequences."""

from dataclasses import field, replace
from functools import cached_property
from typing import Any

import numpy as np

from calculon.base.distinct_rows import distinct
from calculon.base.frozen import dataclass
from calculon.base.units import Array, Count, Fraction, Seconds
from calculon.declarations.model import Model
from calculon.hardware.system import System
from calculon.serving.passes.drafts import Draft, draft_of
from calculon.serving.passes.host_time import StepHost
from calculon.serving.passes.pass_rows import pass_rows
from calculon.serving.passes.pass_sizes import PassSizes
from calculon.serving.passes.row_times import (
    PassSpans,
    PassTimes,
    pass_times,
    stage_time,
    stage_transfer,
)
from calculon.serving.records.deployments import Deployments
from calculon.serving.records.load import PromptLength, Workload
from calculon.serving.records.number_types import NumberTypes
from calculon.serving.records.output_lengths import longest_output
from calculon.serving.states.steady import (
    PrefillEffect,
    chunked_prefill,
    chunks,
    mixture,
    prompts_together,
    separate_prefill,
)

MANY = 256
"""Number of passes from which it pays to look for passes of equal sizes."""

STEPS = 16
"""Parts of an output at whose middle the decode passes of a static batch are timed: exact if time is linear."""


@dataclass(frozen=True)
class Replica:
    """A replica of each of several deployments, with its workload; all columns have shape ``(deployments,)``.

    Attributes:
        model, system, deployments, workload: The records.
        timed: Cache of pass times by the sizes of the passes.
    """

    model: Model
    system: System
    deployments: Deployments
    workload: Workload
    timed: dict[bytes, PassTimes] = field(default_factory=dict, repr=False, compare=False)

    def take(self, places: Any) -> "Replica":
        """Return the deployments at some indices, in that order, with the cached draft."""
        taken = replace(self, deployments=self.deployments.take(places))
        # reading the file of a draft model again would dominate a search; a new machine would have no cached values
        vars(taken).update(draft=self.draft, machine=self.machine)
        return taken

    def without_draft(self) -> "Replica":
        """Return the replica without speculative decoding."""
        plain = self.deployments.without_draft()
        return Replica(self.model, self.system, plain, self.workload)

    @cached_property
    def types(self) -> NumberTypes:
        """Data types on the machine."""
        d = self.deployments.record
        weights = d.weights_dtype, d.of_experts, d.head_dtype
        return NumberTypes.of(self.system, *weights, d.kv_dtype, d.dispatch_dtype)

    @cached_property
    def machine(self) -> System:
        """The machine, with the kernels of expert layers that the engine runs."""
        ext = self.system.ext
        serving = ext.serving.with_kernels(self.deployments.record.expert_kernels)
        if serving is ext.serving:
            return self.system
        return replace(self.system, ext=replace(ext, serving=serving))

    @cached_property
    def draft(self) -> Draft:
        """Source of drafted tokens."""
        return draft_of(self.model, self.deployments.record)

    @property
    def rows(self) -> int:
        """Rows per sequence in a decode pass: 1 without speculation."""
        return self.draft.speculation.rows

    @property
    def per_pass(self) -> float:
        """Mean tokens per sequence and decode pass: 1 without speculation."""
        return self.draft.speculation.per_pass

    @cached_property
    def _spans(self) -> dict[bytes, PassSpans]:
        """Cache of pass times without rows, by the sizes of the passes."""
        return {}

    def passes(self, sizes: PassSizes) -> PassTimes:
        """Return the times of passes through all stages in turn, including drafts; equal sizes are cached."""
        # the rows of a large column take too much memory to keep; `spans` caches their sums instead
        if sizes.count >= MANY:
            return self._time(sizes)
        key = sizes.key
        if key not in self.timed:
            self.timed[key] = self._time(sizes)
        return self.timed[key]

    def spans(self, sizes: PassSizes) -> PassSpans:
        """Return the times of passes without their rows; of many passes, each distinct one is timed once."""
        if sizes.count < MANY:
            return self.passes(sizes).spans
        key = sizes.key
        if key not in self._spans:
            _, numbers, first = distinct(sizes.columns)
            self._spans[key] = self._time(sizes.take(first)).spans.take(numbers)
        return self._spans[key]

    def _time(self, sizes: PassSizes) -> PassTimes:
        """Return the times of passes and their drafts."""
        d = self.deployments.record
        choices: dict[str, Any] = {
            "shared_heads": d.shared_heads,
            "routing": d.routing,
            "exchange": d.exchange,
            "overlap": d.overlap,
        }
        tokens = 0.0 if d.graph_tokens is None else sizes.of_group.tokens
        graphs = d.in_graphs(sizes.prompts, tokens)
        rows = pass_rows(self.model, self.types, sizes, **choices)
        host = StepHost(per_pass=d.pass_host, per_sequence=d.sequence_host, overlaps=d.async_host)
        launched: dict[str, Any] = {"graphs": graphs, "overlap": d.overlap, "host": host}
        times = pass_times(self.model, self.machine, rows, sizes, **launched)
        return self.draft.after(times, self.machine, self.types, sizes, graphs=graphs, **choices)

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
        """Return the times of decode passes: of all sequences, or with pipeline stages of the part of one stage."""
        return self.passes(self._decoded(batch, context))

    def _decoded(self, batch: Count, context: Count | float | None = None) -> PassSizes:
        seen = self.workload.context if context is None else context
        return self.sizes(decoded=self._part(batch), verified=self.rows, context=seen)

    def _part(self, batch: Count) -> Count:
        """Return the sequences of a pass: with pipeline stages an equal part per stage, at least one sequence."""
        return np.maximum(batch / self.deployments.pipeline_par, np.minimum(batch, 1.0))

    def decode(self, batch: Count, context: Count | float | None = None) -> Seconds:
        """Return the time in which every sequence gets a token, or with speculation the tokens of a verification.

        Each of `p` stages works on its own part of the sequences, and a token returns after all stages. With fewer
        sequences than stages, the sequences pass through the stages one after the other, and no stage waits for the
        slowest.
        """
        times = self.spans(self._decoded(batch, context))
        if not self.deployments.staged:
            return times.time
        stages, part = self.deployments.pipeline_par, self._part(batch)
        through = times.time + stages * self._stage_transfer(part * self.rows)
        # parts follow each other at the pace of the slowest stage, which all parts have to pass
        in_turn = batch / part * self._slowest(times, part * self.rows)
        return np.where(stages > 1, np.maximum(through, in_turn), times.time)

    def _stage_transfer(self, tokens: Count) -> Seconds:
        """Return the time in which a stage sends a number of rows to the next; 0 with a single stage."""
        d = self.deployments
        moved = stage_transfer(self.model, self.system, tokens / d.attn_data_par, d.tensor_par)
        return np.where(d.pipeline_par > 1, moved, 0.0)

    def _slowest(self, times: PassSpans, tokens: Count) -> Seconds:
        """Return the time that the slowest stage is busy with a pass of a number of tokens."""
        slowest = stage_time(times, self.model.num_blocks, self.deployments.pipeline_par)
        return slowest + self._stage_transfer(tokens)

    def prefill_pass(self, prompts: Count) -> PassTimes:
        """Return the times of passes of whole prompts, a given number at once."""
        w = self.workload
        return self.passes(self.sizes(prompts=prompts, chunk=w.computed, cached=w.cached))

    def prefill(self, prompts: Count) -> tuple[Seconds, Seconds]:
        """Return the mean time of prompts through all stages, and the mean time that the slowest stage is busy."""
        lengths = self.workload.lengths
        times = [self.prefill_of(prompts, one.computed, one.cached) for one in lengths]
        if len(lengths) == 1:
            return times[0]
        through = sum(one.share * time for one, (time, _) in zip(lengths, times, strict=True))
        busy = sum(one.share * time for one, (_, time) in zip(lengths, times, strict=True))
        return np.asarray(through), np.asarray(busy)

    def prefill_of(self, prompts: Count, computed: float, cached: float) -> tuple[Seconds, Seconds]:
        """Return both times for prompts of one length with a number of cached tokens; see :meth:`prefill`."""
        times = self.spans(self.sizes(prompts=prompts, chunk=computed, cached=cached))
        if not self.deployments.staged:
            # without pipeline stages the replica is busy for the whole pass
            return times.time, times.time
        tokens = prompts * computed
        return self._through(times, tokens), self._slowest(times, tokens)

    def _through(self, times: PassSpans, tokens: Count) -> Seconds:
        """Return the time of a pass of a number of tokens from the first stage to the last."""
        return times.time + (self.deployments.pipeline_par - 1) * self._stage_transfer(tokens)

    def prompts(
        self, batch: Count, decode: Seconds, lost: Fraction | float | None = None
    ) -> PrefillEffect:
        """Return the effect of prefill on passes that decode a number of sequences, averaged over prompt lengths.

        Args:
            batch, decode: Sequences, and the time of a pass that decodes them.
            lost: Share of the requests whose prefix is no longer cached.
        """
        shares: list[Fraction | float] = []
        effects: list[PrefillEffect] = []
        w = self.workload
        present, absent = (1.0, 0.0) if lost is None else (1 - lost, lost)
        for share, lengths in ((present, w.lengths), (absent, w.lengths_without)):
            if np.any(share):
                shares += [share * one.share for one in lengths]
                effects += [self.prompts_of(batch, decode, one) for one in lengths]
        return mixture(shares, effects)

    def _groups_in_prefill(self, batch: Count, count: Count | float) -> Count:
        r"""Return the mean number of groups of ranks with separate sequences that take prompts in the same pass.

        The exchange with experts makes all groups wait for the longest pass. Schedulers that balance let groups take
        prompts together, as far as there are sequences. Otherwise each of g groups has a chunk in a pass with a
        probability q, and passes with any chunk have those of :math:`g q / (1 - (1 - q)^g)` groups in the mean.
        Source: TensorRT-LLM, tech blog 10, *ADP Balance Strategy*.

        Args:
            batch: Sequences of a stage.
            count: Passes that take a chunk of each prompt.
        """
        groups = np.minimum(self.deployments.attn_data_par, np.maximum(batch, 1.0))
        if self.deployments.record.balanced_prompts or np.all(groups == 1):
            return groups
        chunks_of_pass = count * batch / groups * self.per_pass / (self.workload.output - 1)
        # a probability just below 1 keeps its logarithm finite
        chance = np.minimum(chunks_of_pass, 1 - 1e-12)
        return groups * chance / -np.expm1(groups * np.log1p(-chance))

    def prompts_of(self, batch: Count, decode: Seconds, length: PromptLength) -> PrefillEffect:
        """Return the effect of prefill of prompts of one length."""
        computed = length.computed
        if not self.deployments.mixes:
            together = self._groups_in_prefill(self._part(batch), 1.0)
            latency, busy = self.prefill_of(together, computed, length.cached)
            return separate_prefill(latency, busy, decode, together)
        count, together = self._chunking(batch, length)
        # timed at the mean position of a chunk: attention grows linearly with the tokens before it
        times = self._mixed_pass(batch, count, together, length, before=(count - 1) / 2)
        if not self.deployments.staged:
            return chunked_prefill(count, together, times.time, decode, count * times.time)
        tokens = self._part(batch) * self.rows + together * computed / count
        latency = self._through(times, tokens) + (count - 1) * self._slowest(times, tokens)
        latency = np.where(self.deployments.pipeline_par > 1, latency, count * times.time)
        mixed = self._time_between_decodes(batch, decode, tokens, times)
        return chunked_prefill(count, together, mixed, decode, latency)

    def _chunking(self, batch: Count, length: PromptLength) -> tuple[Count, Count]:
        """Return the number of chunks of a prompt of a length in mixed passes, and the number of prompts per pass."""
        sequences = self._part(batch) / self.deployments.attn_data_par
        count = chunks(sequences * self.rows, self.deployments.token_budget, length.computed)
        several = prompts_together(sequences, count, self.workload.output, self.per_pass)
        return count, self._groups_in_prefill(self._part(batch), count) * several

    def _time_between_decodes(
        self, batch: Count, decode: Seconds, tokens: Count, times: PassSpans
    ) -> Seconds:
        """Return the time between two decode passes, one of which is a mixed pass of a number of tokens."""
        if not self.deployments.staged:
            return times.time
        part = self._part(batch) * self.rows
        # with stages, one of the passes in flight is replaced by the mixed pass; the others stay decode passes
        plain = self._slowest(self.spans(self._decoded(batch)), part)
        several = self.deployments.pipeline_par > 1
        return np.where(several, decode + self._slowest(times, tokens) - plain, times.time)

    def more_chunks(self, places: Array, batch: Count) -> Count:
        """Return the next larger batch with which prompts need one more chunk, for the deployment at an index.

        The chunks are smaller then, and overlap better with the reading of weights: times may fall.
        """
        d = self.deployments
        budget, shares = d.token_budget[places], (d.pipeline_par * d.attn_data_par)[places]
        rows, next_batches = batch / shares * self.rows, []
        for length in self.workload.lengths:
            count = chunks(rows, budget, length.computed)
            rows_left = (budget - length.computed / count) * shares / self.rows
            # the factor avoids that rounding errors turn an integer into the next smaller one
            next_batches.append(np.floor(rows_left * (1 + 1e-12)) + 1)
        return np.maximum(np.min(next_batches, axis=0), batch + 1)

    def longest_gap(self, batch: Count, decode: Seconds) -> Seconds:
        """Return the longest time between two decode passes while prompts are prefilled: with their last chunk."""
        longest = decode
        for length in self.workload.lengths if self.deployments.mixes else ():
            count, together = self._chunking(batch, length)
            last = self._mixed_pass(batch, count, together, length, before=count - 1)
            tokens = self._part(batch) * self.rows + together * length.computed / count
            longest = np.maximum(longest, self._time_between_decodes(batch, decode, tokens, last))
        return longest

    def _mixed_pass(
        self, batch: Count, count: Count, together: Count, length: PromptLength, before: Count
    ) -> PassSpans:
        """Return the times of passes that decode all sequences and take the chunk after `before` of `count` chunks."""
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
        """Return the tokens of a static batch until its longest output ends."""
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
