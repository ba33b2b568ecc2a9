"""Execution of a pipeline schedule, event by event: start and end of each pass. For charts, and as a test reference."""

from collections.abc import Callable, Sequence

from calculon.base.frozen import dataclass
from calculon.cost.pipeline.orders import Kind, Pass, place
from calculon.declarations.named_values import TURNING_SCHEDULES

_NEVER = float("inf")

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
    orders: Sequence[Sequence[Pass]],
    duration: Duration,
    delay: float = 0.0,
    hidden: Callable[[int, int, int], float] | None = None,
    schedule: str = "1f1b",
) -> list[Span]:
    """Execute the passes of each stage in their order: each starts when its stage is free and its input is there.

    Args:
        orders: Passes of each stage (:func:`~calculon.cost.pipeline.orders.order`).
        duration: Time of a pass, with a transfer that the stage waits for.
        delay: Time of a transfer between stages that overlaps with passes.
        hidden: Time that a pair of passes saves, by stage and the chunks of both passes.
        schedule: Schedule, which decides the chunks' parts of the model (:func:`~calculon.cost.pipeline.orders.place`).

    Raises:
        ValueError: When the orders wait for each other.
    """
    clock = _Clock(schedule, orders, delay)
    at = [0] * len(orders)
    moved = True
    while moved:
        moved = False
        for stage, own in enumerate(orders):
            while at[stage] < len(own):
                work = own[at[stage]]
                together = [work]
                if work.paired and work.kind == "forward":
                    together.append(own[at[stage] + 1])
                begin = clock.begin(stage, together)
                if begin == _NEVER:
                    break
                clock.run(stage, together, begin, duration, hidden)
                at[stage] += len(together)
                moved = True
    if len(clock.spans) < sum(map(len, orders)):
        raise ValueError("the orders of the stages wait for each other")
    return clock.spans


class _Clock:
    """End of each pass that has been done, by kind, microbatch and part of the model, and when each stage is free."""

    def __init__(self, schedule: str, orders: Sequence[Sequence[Pass]], delay: float) -> None:
        self.schedule, self.delay, self.stages = schedule, delay, len(orders)
        self.spans: list[Span] = []
        self.free = [0.0] * self.stages
        self._before = [0] * self.stages  # chunk of the pass before
        self._done: dict[tuple[Kind, int, int], float] = {}
        chunks = 1 + max((one.chunk for own in orders for one in own), default=0)
        self._last = max(
            self._place(stage, chunk) for stage in range(self.stages) for chunk in range(chunks)
        )

    def _place(self, stage: int, chunk: int) -> int:
        return place(self.schedule, stage, self.stages, chunk)

    def begin(self, stage: int, together: Sequence[Pass]) -> float:
        """Return when a stage is free and has all inputs of passes that begin together; infinity if one is missing."""
        begin = self.free[stage]
        for one in together:
            along = self._place(stage, one.chunk)
            here = [along]
            if self.schedule in TURNING_SCHEDULES:
                here.append(self._place(stage, 1 - one.chunk))
            for needed in _inputs(one, along, self._last):
                there = self._done.get(needed, _NEVER)
                begin = max(begin, there + (0.0 if needed[2] in here else self.delay))
        return begin

    def run(
        self,
        stage: int,
        together: Sequence[Pass],
        begin: float,
        duration: Duration,
        hidden: Callable[[int, int, int], float] | None,
    ) -> None:
        """Run passes one after the other from a time on; all results are available at the end of the last pass."""
        now = begin
        for one in together:
            start, now = now, now + duration(one.kind, stage, one.chunk)
            if one.paired and one.kind == "backward" and hidden is not None:
                now -= hidden(stage, self._before[stage], one.chunk)
            self._before[stage] = one.chunk
            self.spans.append(Span(stage, one, start, now))
        for one in together:
            kind: Kind = "backward" if one.kind == "inputs" else one.kind
            self._done[kind, one.microbatch, self._place(stage, one.chunk)] = now
        self.free[stage] = now


def _inputs(work: Pass, along: int, last: int) -> list[tuple[Kind, int, int]]:
    """Return the passes whose results a pass needs, as kind, microbatch and part of the model.

    Input gradients, with or without weight gradients, are recorded as ``backward``.
    """
    if work.kind == "forward":
        return [("forward", work.microbatch, along - 1)] if along else []
    if work.kind == "weight":
        return [("backward", work.microbatch, along)]
    own: list[tuple[Kind, int, int]] = [("forward", work.microbatch, along)]
    return own if along == last else [*own, ("backward", work.microbatch, along + 1)]
