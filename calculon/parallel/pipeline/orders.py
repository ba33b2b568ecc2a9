"""In which order each pipeline stage does its passes: the one definition of every schedule.

Pictures are drawn from these orders, and tests compare the closed forms of
:mod:`calculon.parallel.pipeline.schedules` with their execution, event by event.
"""

from collections.abc import Iterator
from typing import Literal, NamedTuple

Kind = Literal["forward", "backward", "weight"]

SCHEDULES = ("1f1b", "gpipe", "zb_h1", "forward")
"""Schedules whose order is known; ``1f1b`` with several chunks is the interleaved one."""


class Pass(NamedTuple):
    """What a stage does for one microbatch and chunk.

    ``backward`` is the whole backward pass, or where the schedule splits it the gradients of the inputs alone, which
    the stage before waits for; ``weight`` is then that of the weights, for which nobody waits.
    """

    kind: Kind
    microbatch: int
    chunk: int = 0


def order(schedule: str, stage: int, stages: int, microbatches: int, chunks: int = 1) -> list[Pass]:
    """Return the passes of a stage, first to last.

    Source: Huang et al., *GPipe*, arXiv 1811.06965, section 2.3; Narayanan et al., arXiv 2104.04473, section 2.2 (1F1B,
    and interleaved with chunks); Qi et al., *Zero Bubble Pipeline Parallelism*, arXiv 2401.10241, section 2.2 (ZB-H1).
    """
    ahead = forwards_ahead(schedule, stage, stages, microbatches, chunks)
    # the last of the groups that go through the chunks together may be short: it keeps the places of a full one
    padded = -(-microbatches // stages) * stages if chunks > 1 else microbatches
    late = stage if schedule == "zb_h1" else None
    passes = _alternating(padded, stages, chunks, ahead, late)
    if schedule == "forward":
        passes = (one for one in passes if one.kind == "forward")
    return [one for one in passes if one.microbatch < microbatches]


def forwards_ahead(
    schedule: str, stage: int, stages: int, microbatches: int, chunks: int = 1
) -> int:
    """Return how many forward passes a stage does before the first that a backward pass follows."""
    if schedule in ("gpipe", "forward"):
        return microbatches
    below = stages - 1 - stage
    return below if chunks == 1 else 2 * below + (chunks - 1) * stages


def _alternating(
    microbatches: int, stages: int, chunks: int, ahead: int, late: int | None
) -> Iterator[Pass]:
    """Yield forward passes, then one forward and one backward pass at a time, then backward passes.

    With `late`, gradients of the weights are passes of their own, `late` backward passes later: ZB-H1 leaves those of
    later stages to the end, where they fill the drain, and every stage holds as much as the first.
    """
    count = microbatches * chunks
    for step in range(count + ahead):
        if step < count:
            yield _pass("forward", step, stages, chunks)
        done = step - ahead
        if done >= 0:
            yield _pass("backward", done, stages, chunks)
        if late is not None and done >= late:
            yield Pass("weight", done - late)
    if late is not None:
        for microbatch in range(max(0, count - late), count):
            yield Pass("weight", microbatch)


def _pass(kind: Kind, number: int, stages: int, chunks: int) -> Pass:
    """Return a pass by its number: groups of as many microbatches as stages go through one chunk after another."""
    if chunks == 1:
        return Pass(kind, number)
    group, within = divmod(number, stages * chunks)
    chunk, member = divmod(within, stages)
    return Pass(kind, group * stages + member, chunk if kind == "forward" else chunks - 1 - chunk)
