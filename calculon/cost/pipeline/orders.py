"""In which order each pipeline stage does its passes: the one definition of every schedule.

Pictures are drawn from these orders, :mod:`calculon.cost.pipeline.simulation` executes them where no closed form is
exact, and tests compare the closed forms of :mod:`calculon.cost.pipeline.schedules` with their execution, event by
event.
"""

import itertools
from collections.abc import Iterator
from typing import Literal, NamedTuple

import numpy as np

from calculon.base.units import Array
from calculon.declarations.named_values import SIMULATED_SCHEDULES, TURNING_SCHEDULES

Kind = Literal["forward", "backward", "inputs", "weight"]

KINDS: tuple[Kind, ...] = ("forward", "backward", "inputs", "weight")
"""Kinds of pass; the number of one is its place here."""

FORWARD, BACKWARD, INPUTS, WEIGHT = range(len(KINDS))


class Pass(NamedTuple):
    """What a stage does for one microbatch and chunk.

    ``backward`` is the whole backward pass, ``inputs`` the gradients of the inputs alone, which the stage before waits
    for as it does for the whole, and ``weight`` the gradients of the weights, for which nobody waits. A backward pass
    that is `paired` runs beside the forward pass before it; where that is, too, both begin and end together.
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
    """A pass of the pattern of a phase; the microbatch follows by counting, the chunk of ``weight`` as well."""

    kind: int
    chunk: int = 0
    paired: bool = False


Phase = tuple[int, tuple[Step, ...]]
"""A pattern, and how often a stage repeats it."""


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

    In `pairs`, a forward and a backward pass run beside each other, of different microbatches: the forward pass of a
    chunk more has to be ahead. DualPipe has pairs of its own.

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
    alternating = _alternating(padded, stages, chunks, ahead, late)
    if schedule == "forward":
        alternating = (one for one in alternating if one.kind == "forward")
    found = [one for one in alternating if one.microbatch < microbatches]
    if not pairs:
        return found
    forward = [one for one in found if one.kind == "forward"]
    beside = set(forward[ahead:])
    return [
        one._replace(paired=one.kind == "backward" and last in beside)
        for one, last in zip(found, [None, *found], strict=False)
    ]


def place(schedule: str, stage: int, stages: int, chunk: int) -> int:
    """Return which part of the model a chunk of a stage is, counted from its first.

    Chunks follow each other over all stages. In a V the second chunk is the way back; of two directions it is where
    microbatches of the other one are.
    """
    if schedule == "dualpipe":
        return stages - 1 - stage if chunk else stage
    if schedule in TURNING_SCHEDULES:
        return 2 * stages - 1 - stage if chunk else stage
    return chunk * stages + stage


def forwards_ahead(
    schedule: str, stage: int, stages: int, microbatches: int, chunks: int = 1
) -> int:
    """Return how many forward passes a stage does before the first that a backward pass follows."""
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

    With `late`, gradients of the weights are passes of their own, `late` backward passes later: ZB-H1 leaves those of
    later stages to the end, where they fill the drain, and every stage holds as much as the first.
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

    The microbatches of each chunk follow each other, forward and backward, and gradients of weights follow in the order
    of those of inputs. Schedules whose phases need more microbatches than there are keep the places of the missing.
    """
    directions = 2 if schedule == "dualpipe" else 1
    each = -(
        -microbatches // directions
    )  # of a direction, of which the other one may have one less
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
    # gradients of weights that wait are a queue
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
    """Return what a stage of ZB-H2 or a folded schedule repeats, and how often, first to last.

    Of DualPipe `microbatches` are those of one direction; its second half of the ranks is the mirror image of the
    first, with directions swapped, and DualPipeV its first half alone: what goes on to the other half there turns
    around.

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
    """Return those of ZB-H2: all of its stages hold as much as the first, 2 p - 1 microbatches."""
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
    """Return those of ZBV, which gives each pass of a chunk, forward and of either gradient, the same time."""
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
    """Return those of DualPipeV, or of the first half of the ranks of DualPipe: the chunk `first` begins."""
    one, other = first, 1 - first
    beside = (
        Step(FORWARD, one, paired=True),
        Step(BACKWARD, other, paired=True),
        Step(FORWARD, other, paired=True),
        Step(BACKWARD, one, paired=True),
    )
    middle, above = rank == ranks - 1, ranks - 1 - rank
    main = microbatches - 2 * ranks + rank + 1
    # of the backward passes that drain, the second half leaves gradients of weights to the end
    drain = [Step(BACKWARD, other), Step(BACKWARD, one)] * (rank + 1)
    drain[rank + 1 :] = [Step(INPUTS, step.chunk) for step in drain[rank + 1 :]]
    return [
        (2 * above, (Step(FORWARD, one),)),
        (rank + 1, (Step(FORWARD, one), Step(FORWARD, other))),
        (above, (Step(INPUTS, other), Step(WEIGHT), Step(FORWARD, other))),
        (int(middle), (Step(FORWARD, one), Step(BACKWARD, other), *beside[2:])),
        (main - middle, beside),
        (above, (Step(BACKWARD, other), *beside[2:])),
        (1, tuple(drain)),
        (above, (Step(WEIGHT), Step(INPUTS, one))),
        (rank + 1, (Step(WEIGHT),)),
    ]
