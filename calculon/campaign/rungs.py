"""The stretches of a run in which batch and length of sequences stay as they are."""

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
"""Tokens of a run, and what there is from them on."""

_WHOLE = Phase(share=1.0)
"""The only phase of a run that states none."""


@dataclass(frozen=True, slots=True)
class Rung:
    """A part of a run.

    Attributes:
        phase: Number of its phase.
        name: What pages call it.
        tokens: Its tokens.
        batch_size: Global batch, in sequences.
        seq_size: Tokens of a sequence.
        execution: What runs it; None: that of the command.
        document_mean: Mean tokens of the documents that fill its sequences; None where the execution says how they are
            packed.
        rollout: What is generated before each step.
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
        """Tokens of a step."""
        return self.batch_size * self.seq_size


def rungs(
    campaign: Campaign,
    tokens: float,
    parameters: float,
    batch_size: int,
    seq_size: int,
    own: Mapping[int, tuple[int, int]] | None = None,
) -> tuple[Rung, ...]:
    """Return the parts of a run, in their order.

    Args:
        tokens: Tokens of the run; 0 where its phases state theirs.
        parameters: Parameters of the model, of which tokens may be a multiple.
        batch_size, seq_size: Batch and length where the campaign says nothing.
        own: Batch and length that the execution of a phase has, by the number of the phase.

    Raises:
        SpecError: For a run or a phase without tokens, ramps that do not rise, or that begin after the end.
    """
    phases, own = campaign.phases or (_WHOLE,), own or {}
    ends = _ends(phases, tokens, parameters)
    lengths: Ramp = [(one.start.of(parameters), int(one.seq_size)) for one in campaign.seq_ramp]
    batches: list[tuple[float, BatchGoal | int]] = []
    if campaign.batch_ramp is not None:
        batches = campaign.batch_ramp.starts(batch_size, parameters, "batch_ramp")

    def usual(tokens: float) -> tuple[int, int]:
        """Return batch and length after some tokens where a phase states neither."""
        length = _at(lengths, tokens, seq_size)
        batch = _at(batches, tokens, batch_size)
        if isinstance(batch, BatchGoal):
            batch = batch.sequences(length, "batch_ramp")
        return batch, length

    _check("seq_ramp", lengths, ends[-1])
    sizes = [(start, math.prod(usual(start))) for start, _ in batches]
    _check("batch_ramp", sizes, ends[-1], " tokens in a batch")
    inside = (start for start, _ in (*lengths, *batches) if start < ends[-1])
    found = []
    for low, high in pairwise(sorted({0.0, *ends, *inside})):
        number = next(i for i, end in enumerate(ends) if low < end)
        phase = phases[number]
        batch, length = own.get(number) or usual(low)
        length = length if phase.seq_size is None else int(phase.seq_size)
        if phase.batch is not None:
            batch = phase.batch.sequences(length, f"phases[{number}].batch")
        name = phase.name or (f"phase {number + 1}" if len(phases) > 1 else "")
        what = phase.execution, phase.document_mean, phase.rollout
        found.append(Rung(number, name, high - low, batch, length, *what))
    return tuple(found)


def _ends(phases: Sequence[Phase], tokens: float, parameters: float) -> list[float]:
    """Return the tokens of the run after each of its phases: whole numbers, so that shares end where ramps begin."""
    ends = []
    past = 0.0
    for i, phase in enumerate(phases):
        assert phase.tokens is not None or phase.share is not None
        own = (phase.share or 0) * tokens if phase.tokens is None else phase.tokens.of(parameters)
        if round(past + own) <= round(past):
            place = f"phases[{i}].tokens" if len(phases) > 1 else "tokens"
            raise SpecError("campaign", Problem(place, "at least one token", f"{own:g}"))
        past += own
        ends.append(float(round(past)))
    return ends


def _at(starts: Sequence[tuple[float, V]], tokens: float, otherwise: V) -> V:
    """Return what a ramp has after some tokens; before it begins, and without one, the usual."""
    return next((value for start, value in reversed(starts) if start <= tokens), otherwise)


def _check(name: str, starts: Ramp, end: float, unit: str = "") -> None:
    """Refuse a ramp that does not begin at 0, does not rise, or begins after the run."""
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
