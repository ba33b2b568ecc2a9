"""When each pass of a pipeline starts and ends: the execution of a schedule, event by event."""

from collections.abc import Callable, Sequence

from calculon.frozen import dataclass
from calculon.parallel.pipeline.orders import Kind, Pass

Duration = Callable[[Kind, int, int], float]
"""Seconds of a kind of pass, by stage and chunk."""


@dataclass(frozen=True, slots=True)
class Span:
    """One pass of a stage, from its start to its end in seconds."""

    stage: int
    work: Pass
    start: float
    end: float


def timeline(
    orders: Sequence[Sequence[Pass]], duration: Duration, delay: float = 0.0
) -> list[Span]:
    """Execute the passes of each stage in their order: each starts when its stage is free and its input is there.

    Parameters
    ----------
    orders : sequence of sequences of Pass
        What each stage does (:func:`~calculon.parallel.pipeline.orders.order`).
    duration : callable
        How long a pass takes. A transfer that the stage waits for is part of it.
    delay : float
        Time of a transfer between stages that happens beside the passes.

    Raises
    ------
    ValueError
        When the orders wait for each other.
    """
    stages = len(orders)
    chunks = 1 + max((one.chunk for own in orders for one in own), default=0)
    done: dict[tuple[Kind, int, int], float] = {}  # by kind, microbatch and place along the model
    spans: list[Span] = []
    free, place = [0.0] * stages, [0] * stages
    moved = True
    while moved:
        moved = False
        for stage, own in enumerate(orders):
            while place[stage] < len(own):
                work = own[place[stage]]
                along = work.chunk * stages + stage
                inputs = _inputs(work, along, stages * chunks - 1)
                if any(one not in done for one in inputs):
                    break
                there = [done[one] + (delay if one[2] != along else 0.0) for one in inputs]
                start = max([free[stage], *there])
                end = start + duration(work.kind, stage, work.chunk)
                done[work.kind, work.microbatch, along] = free[stage] = end
                spans.append(Span(stage, work, start, end))
                place[stage] += 1
                moved = True
    if len(spans) < sum(map(len, orders)):
        raise ValueError("the orders of the stages wait for each other")
    return spans


def _inputs(work: Pass, along: int, last: int) -> list[tuple[Kind, int, int]]:
    """Return the passes whose results a pass needs, as kind, microbatch and place along the model."""
    if work.kind == "forward":
        return [("forward", work.microbatch, along - 1)] if along else []
    if work.kind == "weight":
        return [("backward", work.microbatch, along)]
    own: list[tuple[Kind, int, int]] = [("forward", work.microbatch, along)]
    return own if along == last else [*own, ("backward", work.microbatch, along + 1)]
