"""Segments of a run: parts with a constant batch size and sequence length, from its phases and ramps."""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TypeVar

from calculon.base.errors import Problem, SpecError
from calculon.base.frozen import dataclass
from calculon.campaign.goals import BatchGoal
from calculon.campaign.phases import PhaseExecution, Rollout
from calculon.campaign.record import Campaign, Phase

V = TypeVar("V")

Ramp = list[tuple[float, int]]
"""Pairs of tokens of a run and the value from there on."""

_SINGLE_PHASE = Phase(share=1.0)
"""The only phase of a run that states none."""


@dataclass(frozen=True, slots=True)
class RunSegment:
    """A part of a run with constant batch and sequence length.

    Attributes:
        phase: Index of its phase.
        name: Label on pages.
        tokens: Tokens of the segment.
        batch_size: Global batch, in sequences.
        seq_size: Sequence length in tokens.
        execution: Execution of the segment; None for the execution of the command.
        document_mean: Mean tokens of the documents packed into a sequence; None if the execution states the packing.
        rollout: Generation before each step.
    """

    phase: int
    name: str
    tokens: float
    batch_size: int
    seq_size: int
    execution: PhaseExecution | None = None
    document_mean: float | None = None
    rollout: Rollout | None = None

    @property
    def tokens_per_step(self) -> int:
        """Tokens per step."""
        return self.batch_size * self.seq_size


def run_segments(
    campaign: Campaign,
    tokens: float,
    parameters: float,
    batch_size: int,
    seq_size: int,
    phase_sizes: Mapping[int, tuple[int, int]] | None = None,
) -> tuple[RunSegment, ...]:
    """Return the segments of a run, in order.

    Args:
        tokens: Tokens of the run; 0 if its phases state their own.
        parameters: Parameters of the model, for tokens stated as a multiple of them.
        batch_size, seq_size: Batch and sequence length if the campaign states none.
        phase_sizes: Batch and sequence length of the executions that phases state, by index of the phase.

    Raises:
        SpecError: For a run or a phase without tokens, and for ramps that fall or begin after the end.
    """
    phases, phase_sizes = campaign.phases or (_SINGLE_PHASE,), phase_sizes or {}
    ends = _ends(phases, tokens, parameters)
    lengths: Ramp = [(one.start.of(parameters), int(one.seq_size)) for one in campaign.seq_ramp]
    batches: list[tuple[float, BatchGoal | int]] = []
    if campaign.batch_ramp is not None:
        batches = campaign.batch_ramp.starts(batch_size, parameters, "batch_ramp")

    def usual(tokens: float) -> tuple[int, int]:
        """Return batch and length after some tokens if the phase states neither."""
        length = _at(lengths, tokens, seq_size)
        batch = _at(batches, tokens, batch_size)
        if isinstance(batch, BatchGoal):
            batch = batch.sequences(length, "batch_ramp")
        return batch, length

    _check("seq_ramp", lengths, ends[-1])
    sizes = [(start, math.prod(usual(start))) for start, _ in batches]
    _check("batch_ramp", sizes, ends[-1], " tokens in a batch")
    # a segment ends at the end of a phase or at the next value of a ramp; the set removes coinciding ends
    inside = (start for start, _ in (*lengths, *batches) if start < ends[-1])
    segments = []
    for low, high in pairwise(sorted({0.0, *ends, *inside})):
        number = next(i for i, end in enumerate(ends) if low < end)
        phase = phases[number]
        batch, length = phase_sizes.get(number) or usual(low)
        length = length if phase.seq_size is None else int(phase.seq_size)
        if phase.batch is not None:
            batch = phase.batch.sequences(length, f"phases[{number}].batch")
        name = phase.name or (f"phase {number + 1}" if len(phases) > 1 else "")
        choices = phase.execution, phase.document_mean, phase.rollout
        segments.append(RunSegment(number, name, high - low, batch, length, *choices))
    return tuple(segments)


def _ends(phases: Sequence[Phase], tokens: float, parameters: float) -> list[float]:
    """Return the tokens of the run after each phase: integers, so that shares end exactly where ramps begin."""
    ends = []
    past = 0.0
    for i, phase in enumerate(phases):
        assert phase.tokens is not None or phase.share is not None
        count = (phase.share or 0) * tokens if phase.tokens is None else phase.tokens.of(parameters)
        if round(past + count) <= round(past):
            place = f"phases[{i}].tokens" if len(phases) > 1 else "tokens"
            raise SpecError("campaign", Problem(place, "at least one token", f"{count:g}"))
        past += count
        ends.append(float(round(past)))
    return ends


def _at(starts: Sequence[tuple[float, V]], tokens: float, otherwise: V) -> V:
    """Return the value of a ramp after some tokens, or the given value before it begins or without a ramp."""
    return next((value for start, value in reversed(starts) if start <= tokens), otherwise)


def _check(name: str, starts: Ramp, end: float, unit: str = "") -> None:
    """Refuse a ramp that does not begin at 0, falls, or begins after the end of the run."""
    problem = None
    if starts and starts[0][0] != 0:
        problem = Problem(f"{name}[0].from", "0: a ramp begins with the run", f"{starts[0][0]:g}")
    for i, ((one, value), (other, larger)) in enumerate(pairwise(starts), 1):
        if other <= one:
            problem = Problem(f"{name}[{i}].from", f"more than {one:g} tokens", f"{other:g}")
        elif larger < value:
            wanted = f"at least {value:,}{unit}: a ramp rises"
            problem = Problem(f"{name}[{i}]", wanted, f"{larger:,}{unit}")
    if starts and starts[-1][0] >= end:
        hint = "shorten the ramp, or train longer"
        found = f"{starts[-1][0]:g}"
        problem = Problem(name, f"less than the {end:g} tokens of the run", found, hint)
    if problem is not None:
        raise SpecError("campaign", problem)
