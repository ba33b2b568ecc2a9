"""The stretches of a run in which batch and length of sequences stay as they are."""

from itertools import pairwise

from calculon.campaign.record import Campaign, Phase
from calculon.errors import Problem, SpecError
from calculon.frozen import dataclass

_WHOLE = Phase(share=1.0)
"""The only phase of a run that states none."""


@dataclass(frozen=True, slots=True)
class Rung:
    """A part of a run.

    Attributes
    ----------
    phase : int
        Number of its phase.
    name : str
        What pages call it.
    tokens : float
        Its tokens.
    batch_size : int
        Global batch, in sequences.
    seq_size : int
        Tokens of a sequence.
    execution : str
        What runs it; empty for that of the command.
    """

    phase: int
    name: str
    tokens: float
    batch_size: int
    seq_size: int
    execution: str


def rungs(
    campaign: Campaign, tokens: float, parameters: float, batch_size: int, seq_size: int
) -> tuple[Rung, ...]:
    """Return the parts of a run, in their order.

    Parameters
    ----------
    tokens : float
        Tokens of the run; 0 where its phases state theirs.
    parameters : float
        Parameters of the model, of which tokens may be a multiple.
    batch_size, seq_size : int
        Batch and length where the campaign says nothing.

    Raises
    ------
    SpecError
        For ramps that do not rise, or that begin after the end.
    """
    phases = campaign.phases or (_WHOLE,)
    lengths = [_tokens_of(one, tokens, parameters) for one in phases]
    ends = [sum(lengths[: i + 1]) for i in range(len(lengths))]
    lengths_from = [(one.start.of(parameters), int(one.seq_size)) for one in campaign.seq_ramp]
    _check(lengths_from, "seq_ramp", ends[-1])
    batches_from: list[tuple[float, int]] = []
    if campaign.batch_ramp is not None:
        batches_from = campaign.batch_ramp.starts(batch_size, seq_size, "batch_ramp")
        _check(batches_from, "batch_ramp", ends[-1])
    inside = (start for start, _ in (*lengths_from, *batches_from) if start < ends[-1])
    cuts = sorted({0.0, *ends, *inside})
    found = []
    for low, high in pairwise(cuts):
        number = next(i for i, end in enumerate(ends) if low < end)
        phase = phases[number]
        length = _at(lengths_from, low, seq_size) if phase.seq_size is None else int(phase.seq_size)
        batch = (
            _at(batches_from, low, batch_size)
            if phase.batch is None
            else phase.batch.sequences(length, f"phases[{number}].batch")
        )
        name = phase.name or (f"phase {number + 1}" if len(phases) > 1 else "")
        found.append(Rung(number, name, high - low, batch, length, phase.execution or ""))
    return tuple(found)


def _tokens_of(phase: Phase, tokens: float, parameters: float) -> float:
    if phase.tokens is not None:
        return phase.tokens.of(parameters)
    assert phase.share is not None
    return phase.share * tokens


def _at(starts: list[tuple[float, int]], tokens: float, otherwise: int) -> int:
    """Return what a ramp has after some tokens; before it begins, and without one, the usual."""
    return next((value for start, value in reversed(starts) if start <= tokens), otherwise)


def _check(starts: list[tuple[float, int]], name: str, end: float) -> None:
    """Refuse a ramp that does not begin at 0, does not rise in tokens, or begins after the run."""
    problem = None
    if starts and starts[0][0] != 0:
        problem = Problem(f"{name}[0].from", "0: a ramp begins with the run", f"{starts[0][0]:g}")
    for i, ((one, _), (other, _)) in enumerate(pairwise(starts)):
        if other <= one:
            problem = Problem(f"{name}[{i + 1}].from", f"more than {one:g} tokens", f"{other:g}")
    if starts and starts[-1][0] >= end:
        hint = "shorten the ramp, or train longer"
        found = f"{starts[-1][0]:g}"
        problem = Problem(name, f"less than the {end:g} tokens of the run", found, hint)
    if problem is not None:
        raise SpecError("campaign", problem)
