"""Figures that people quote: rates, utilisation, and what the ends of the model cost."""

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property

import numpy as np

from calculon.architecture.model_flops import model_flops_per_token
from calculon.architecture.parameters import parameter_count
from calculon.cost.iteration_times import IterationTimes
from calculon.cost.stage import Stage
from calculon.spec.model import Model
from calculon.units import (
    Array,
    Bytes,
    Count,
    Flops,
    FlopsPerSecond,
    Fraction,
    Seconds,
    TokensPerSecond,
)


class QuotedFigures:
    """The attributes are those of :class:`~calculon.statistics.Figures`, each computed when it is asked for."""

    def __init__(self, model: Model, stage: Stage, times: IterationTimes):
        self._model, self._stage, self._times = model, stage, times

    @cached_property
    def parameters(self) -> Count:
        """Parameters of the model."""
        return self._of_model(lambda model: float(parameter_count(model)))

    def _of_model(self, quantity: Callable[[Model], float]) -> Array:
        """Return a quantity of the model, with one key/value head where executions have multiquery attention."""
        own, single = quantity(self._model), quantity(replace(self._model, kv_heads=1))
        return np.where(self._stage.schedule.multiquery, single, own)

    @cached_property
    def _processors(self) -> Count:
        return self._stage.schedule.processors

    @cached_property
    def tokens_per_second(self) -> TokensPerSecond:
        """Tokens of a batch over its time."""
        schedule = self._stage.schedule
        return schedule.batch_size * self._model.seq_size / self._times.total_time

    @cached_property
    def tokens_per_second_per_proc(self) -> TokensPerSecond:
        """The rate of one processor."""
        return self.tokens_per_second / self._processors

    def _per_token(self, *, causal: bool) -> Flops:
        """Model FLOP per token of executions that train or not."""

        def flops(training: bool) -> Flops:
            return self._of_model(
                lambda model: model_flops_per_token(model, training=training, causal=causal)
            )

        return np.where(self._stage.schedule.training, flops(True), flops(False))

    @cached_property
    def model_flops_per_token(self) -> Flops:
        """Arithmetic with full attention."""
        return self._per_token(causal=False)

    @cached_property
    def model_flops_per_second_per_proc(self) -> FlopsPerSecond:
        """Arithmetic with full attention, per time and processor."""
        return self.model_flops_per_token * self.tokens_per_second_per_proc

    @cached_property
    def mfu(self) -> Fraction:
        """Model FLOP utilisation. Source: Chowdhery et al., *PaLM*, arXiv 2204.02311, section 4.1."""
        return self.model_flops_per_second_per_proc / self._stage.block.matrix_peak

    @cached_property
    def mfu_causal(self) -> Fraction:
        """The same with the keys that a causal query attends to."""
        flops = self._per_token(causal=True) * self.tokens_per_second_per_proc
        return flops / self._stage.block.matrix_peak

    @cached_property
    def hfu(self) -> Fraction:
        """Hardware FLOP utilisation, the mean over stages (Korthikanti et al., arXiv 2205.05198, section 6.3)."""
        stage = self._stage
        schedule, ends = stage.schedule, stage.ends
        executed = self._model.num_blocks / schedule.pipeline_par * stage.block.matrix_flops
        if ends is not None:
            at_ends = ends.cost.embedding.matrix_flops + ends.cost.head.matrix_flops
            executed = executed + at_ends / schedule.pipeline_par
        rate = schedule.microbatches * executed / self._times.total_time
        share: Fraction = rate / stage.block.matrix_peak
        return share

    @cached_property
    def act_bytes_per_token(self) -> Bytes:
        """What a block stores for the backward pass, by tokens of the microbatch."""
        schedule = self._stage.schedule
        tokens = schedule.microbatch_size * self._model.seq_size
        each: Bytes = self._stage.stored_activation / tokens
        return each

    def _of_batch(self, name: str) -> Seconds:
        ends, microbatches = self._stage.end_times, self._stage.schedule.microbatches
        one: Array = getattr(ends, name) if ends else np.zeros(1)
        time: Seconds = microbatches * one
        return time

    @cached_property
    def embedding_time(self) -> Seconds:
        """Time of the embedding, on the first stage."""
        return self._of_batch("embedding")

    @cached_property
    def host_time(self) -> Seconds:
        """Work of the host in a step."""
        return np.full_like(self._times.total_time, self._times.host_time)

    @cached_property
    def head_time(self) -> Seconds:
        """Time of head and loss, on the last stage."""
        return self._of_batch("head")
