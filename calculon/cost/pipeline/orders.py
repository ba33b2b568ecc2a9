"""Order of the passes on each pipeline stage, for every pipeline schedule.

The schedules are GPipe, 1F1B, the interleaved schedule, zero bubble (ZB-H1, ZB-H2, ZBV), DualPipe and DualPipeV. This
is their only definition: charts show these orders, :mod:`calculon.cost.pipeline.simulation` executes them if no closed
form is exact, and tests compare the closed forms of :mod:`calculon.cost.pipeline.schedules` with their execution, event
by event.
"""

import itertools
from collections.abc import Iterator
from typing import Literal, NamedTuple

import numpy as np

from calculon.base.units import Array
from calculon.declarations.named_values import SIMULATED_SCHEDULES, TURNING_SCHEDULES

Kind = Literal["forward", "backward", "inputs", "weight"]

KINDS: tuple[Kind, ...] = ("forward", "backward", "inputs", "weight")
"""Kinds of pass; arrays have the index of a kind."""

FORWARD, BACKWARD, INPUTS, WEIGHT = range(len(KINDS))


class Pass(NamedTuple):
    """A pass of a stage for one microbatch and chunk.

    Attributes:
        kind: ``backward`` is the whole backward pass, ``inputs`` the gradients of the inputs alone, and ``weight`` the
            gradients of the weights. The previous stage waits for ``backward`` or ``inputs``, none for ``weight``.
        paired: A paired backward pass overlaps with the forward pass before it. If that is paired as well, both begin
            and end together.
    """

    kind: Kind
    microbatch: int
    chunk: int = 0
    paired: bool = False


class Numbers(NamedTuple):
    """The passes of a stage as arrays, first to last: kind, microbatch, chunk, and whether it is paired."""

    kind: Array
    microbatch: Array
    chunk: Array
    paired: Array


class Step(NamedTuple):
    """A pass in the pattern of a phase; its microbatch is found by counting, and so is the chunk of ``weight``."""

    kind: int
    chunk: int = 0
    paired: bool = False


Phase = tuple[int, tuple[Step, ...]]
"""Number of repetitions of a pattern by a stage, and the pattern."""


def order(
    schedule: str,
    stage: int,
    stages: int,
    microbatches: int,
    chunks: int = 1,
    *,
    pairs: bool = False,
) -> list[Pass]:
    """Return the passes of a stage, first to last.

    With `pairs`, a forward and a backward pass of different microbatches overlap, which needs one more forward chunk
    ahead. DualPipe has its own pairs.

    Source: Huang et al., *GPipe*, arXiv 1811.06965, section 2.3; Narayanan et al., arXiv 2104.04473, section 2.2 (1F1B,
    and interleaved with chunks); Qi et al., *Zero Bubble Pipeline Parallelism*, arXiv 2401.10241, section 2.2 (ZB-H1);
    others as :func:`phases`.
    """
    if schedule in SIMULATED_SCHEDULES:
        passes = zip(
            *(values.tolist() for values in numbers(schedule, stage, stages, microbatches)),
            strict=False,
        )
        return [Pass(KINDS[kind], *rest) for kind, *rest in passes]
    ahead = forwards_ahead(schedule, stage, stages, microbatches, chunks) + pairs
    # the last of the groups that go through the chunks together may be short: it keeps the places of a full one
    padded = -(-microbatches // stages) * stages if chunks > 1 else microbatches
    late = stage if schedule == "zb_h1" else None
    alternating = list(_alternating(padded, stages, chunks, ahead, late))
    forward = [one for one in alternating if one.kind == "forward"]
    every = forward if schedule == "forward" else alternating
    result = [one for one in every if one.microbatch < microbatches]
    if not pairs:
        return result
    paired = set(forward[ahead:])
    return [
        one._replace(paired=one.kind == "backward" and last in paired)
        for one, last in zip(result, [None, *result], strict=False)
    ]


def place(schedule: str, stage: int, stages: int, chunk: int) -> int:
    """Return the index of the part of the model that a chunk of a stage has.

    Chunks are dealt round-robin over the stages. In a V (ZBV, DualPipeV), the second chunk is on the way back. In
    DualPipe, it is the part for microbatches of the other direction.
    """
    if schedule == "dualpipe":
        return stages - 1 - stage if chunk else stage
    if schedule in TURNING_SCHEDULES:
        return 2 * stages - 1 - stage if chunk else stage
    return chunk * stages + stage


def forwards_ahead(
    schedule: str, stage: int, stages: int, microbatches: int, chunks: int = 1
) -> int:
    """Return the forward passes of a stage before the first one that a backward pass follows (warm-up)."""
    if schedule in ("gpipe", "forward"):
        return microbatches
    below = stages - 1 - stage
    if schedule == "zb_h2":
        return 2 * below
    return below if chunks == 1 else 2 * below + (chunks - 1) * stages


def _alternating(
    microbatches: int, stages: int, chunks: int, ahead: int, late: int | None
) -> Iterator[Pass]:
    """Yield forward passes, then one forward and one backward pass at a time, then backward passes.

    With `late`, weight gradients are separate passes, `late` backward passes later. In ZB-H1, later stages delay them
    more, so that they fill the drain; then every stage holds as many microbatches as the first.
    """
    count = microbatches * chunks
    backward: Kind = "backward" if late is None else "inputs"
    for step in range(count + ahead):
        if step < count:
            yield _pass("forward", step, stages, chunks)
        done = step - ahead
        if done >= 0:
            yield _pass(backward, done, stages, chunks)
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


# -- schedules that are made of phases --------------------------------------------------------------------------------


def numbers(schedule: str, stage: int, stages: int, microbatches: int) -> Numbers:
    """Return the passes of a stage of ZB-H2 or a folded schedule as arrays, each of shape (passes,).

    Each chunk takes microbatches in order, forward and backward; weight gradients follow in the order of the input
    gradients. Phases may need more microbatches than there are: the missing ones leave their slots empty.
    """
    directions = 2 if schedule == "dualpipe" else 1
    each = -(-microbatches // directions)  # of the first direction; the other one may have one less
    ranks = stages // directions
    least = {"zb_h2": 0, "zbv": 2 * stages - 1}.get(schedule, 2 * ranks)
    steps = [
        np.tile(np.array(pattern, dtype=np.int64), (repeats, 1))
        for repeats, pattern in phases(schedule, stage, stages, max(each, least))
        if repeats > 0
    ]
    kind, chunk, paired = np.concatenate(steps).T
    microbatch = np.zeros_like(kind)
    back = (kind == BACKWARD) | (kind == INPUTS)
    for own in (0, 1):
        for chosen in (kind == FORWARD, back):
            here = chosen & (chunk == own)
            microbatch[here] = np.arange(here.sum())
    # weight gradients are a queue: first in, first out
    chunk[kind == WEIGHT] = chunk[kind == INPUTS]
    microbatch[kind == WEIGHT] = microbatch[kind == INPUTS]
    of_direction = np.where(chunk == 1, microbatches // directions, each)
    kept = microbatch < of_direction if directions > 1 else microbatch < microbatches
    if directions > 1:
        microbatch = microbatch + np.where(chunk == 1, each, 0)
    # a pass whose partner is missing runs alone
    partner = np.where(kind == FORWARD, np.roll(kept, -1), np.roll(kept, 1))
    paired = (paired > 0) & partner
    return Numbers(kind[kept], microbatch[kept], chunk[kept], paired[kept])


def phases(schedule: str, stage: int, stages: int, microbatches: int) -> list[Phase]:
    """Return the phases of a stage of ZB-H2 or of a folded schedule, first to last.

    DualPipe counts the `microbatches` of one direction. The second half of its ranks mirrors the first half, with
    directions swapped. DualPipeV is the first half alone, at whose end microbatches turn around.

    Source: Qi et al., arXiv 2401.10241, section 2.3 (ZB-H2: forward passes fill what 1F1B leaves idle before the first
    backward pass); Qi et al., *Pipeline Parallelism with Controllable Memory*, arXiv 2405.15362, section 4 (V-schedule
    without bubbles); DeepSeek-AI, *DeepSeek-V3*, arXiv 2412.19437, section 3.2.1 and figure 5, and the eight steps of
    ``deepseek-ai/DualPipe`` (DualPipe; DualPipeV is by Sea AI Lab, "cut-in-half").
    """
    if schedule == "zb_h2":
        return _zb_h2(stage, stages, microbatches)
    if schedule == "zbv":
        return _zbv(stage, stages, microbatches)
    if schedule == "dualpipev":
        return _dualpipe(stage, stages, microbatches)
    first_half = stage < stages // 2
    rank = stage if first_half else stages - 1 - stage
    return _dualpipe(rank, stages // 2, microbatches, first=0 if first_half else 1)


def _zb_h2(stage: int, stages: int, microbatches: int) -> list[Phase]:
    """Return the phases of ZB-H2, whose stages all hold 2 p - 1 microbatches, as the first does."""
    ahead, late = 2 * (stages - 1 - stage), 2 * stage
    bounds = sorted({0, ahead, ahead + late, microbatches, microbatches + ahead})
    found = []
    for begin, end in itertools.pairwise(bounds):
        pattern = [Step(FORWARD)] if begin < microbatches else []
        if ahead <= begin < microbatches + ahead:
            pattern.append(Step(INPUTS))
            if begin >= ahead + late:
                pattern.append(Step(WEIGHT))
        if pattern:
            found.append((end - begin, tuple(pattern)))
    return [*found, (min(late, microbatches), (Step(WEIGHT),))]


def _zbv(rank: int, ranks: int, microbatches: int) -> list[Phase]:
    """Return the phases of ZBV, which assumes equal times of forward pass, input gradients and weight gradients."""
    go, back = 0, 1
    split = Step(INPUTS, go), Step(WEIGHT), Step(FORWARD, back), Step(INPUTS, back), Step(WEIGHT)
    below = ranks - rank
    return [
        (2 * below - 1, (Step(FORWARD, go),)),
        (rank, (Step(FORWARD, back), Step(FORWARD, go))),
        (below, split[2:]),
        (microbatches - 2 * ranks + rank + 1, (Step(FORWARD, go), *split)),
        (below - 1, split),
        (rank, (Step(INPUTS, go), Step(INPUTS, back))),
        (below, (Step(INPUTS, go), Step(WEIGHT))),
        (2 * rank, (Step(WEIGHT),)),
    ]


def _dualpipe(rank: int, ranks: int, microbatches: int, first: int = 0) -> list[Phase]:
    """Return the phases of DualPipeV, or of the first half of the ranks of DualPipe; the chunk `first` begins."""
    one, other = first, 1 - first
    pairs = (
        Step(FORWARD, one, paired=True),
        Step(BACKWARD, other, paired=True),
        Step(FORWARD, other, paired=True),
        Step(BACKWARD, one, paired=True),
    )
    middle, above = rank == ranks - 1, ranks - 1 - rank
    main = microbatches - 2 * ranks + rank + 1
    # the second half of the backward passes in the drain leaves weight gradients to the end
    drain = [Step(BACKWARD, other), Step(BACKWARD, one)] * (rank + 1)
    drain[rank + 1 :] = [Step(INPUTS, step.chunk) for step in drain[rank + 1 :]]
    return [
        (2 * above, (Step(FORWARD, one),)),
        (rank + 1, (Step(FORWARD, one), Step(FORWARD, other))),
        (above, (Step(INPUTS, other), Step(WEIGHT), Step(FORWARD, other))),
        (int(middle), (Step(FORWARD, one), Step(BACKWARD, other), *pairs[2:])),
        (main - middle, pairs),
        (above, (Step(BACKWARD, other), *pairs[2:])),
        (1, tuple(drain)),
        (above, (Step(WEIGHT), Step(INPUTS, one))),
        (rank + 1, (Step(WEIGHT),)),
    ]
