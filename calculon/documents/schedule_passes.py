"""Passes of each pipeline stage over time, for the first microbatches of a batch."""

from collections.abc import Sequence
from dataclasses import replace

from calculon.base.errors import Problem, SpecError
from calculon.cost.batch import Batch
from calculon.cost.pipeline.timeline import Span
from calculon.declarations.named_values import SCHEDULE_NAMES
from calculon.declarations.origin import titled
from calculon.documents.charts.schedule_chart import Gantt, Piece
from calculon.editions import EDITIONS
from calculon.estimate.estimate import Estimate
from calculon.estimate.evaluate import evaluate_rows
from calculon.estimate.stages import execute, schedule_of, stage_passes
from calculon.plan.plan import Plan

TITLES = {"forward": "forward only", **SCHEDULE_NAMES}


def passes(
    plan_estimate: Estimate, microbatches: int | None = None, argument: str = "microbatches"
) -> Gantt:
    """Return the passes of each stage of an estimated execution.

    Args:
        plan_estimate: The execution.
        microbatches: Number of microbatches shown; by default twice the number of stages.
        argument: Name of this number in messages.

    Raises:
        SpecError: If the batch of a pipeline has fewer microbatches.
    """
    execution = plan_estimate.execution
    stages, chunks = execution.pipeline_par, execution.pipeline_interleaving
    batch = execution.batch_size // execution.data_par // execution.microbatch_size
    shown = min(batch, 2 * stages) if microbatches is None else microbatches
    if shown > batch:
        wanted = f"at most the {batch:,} of a pipeline's batch"
        raise SpecError(argument, Problem("", wanted, f"{shown:,}"))
    one = _batch(plan_estimate)
    choice, name = one.schedule.choice, TITLES[schedule_of(one)]
    if choice.folded:
        both = "stages, one of each direction" if choice.mirrored else "chunks"
        words = [name, f"{stages:,} ranks of two {both}"]
    else:
        words = [f"{name} interleaved, {chunks} chunks" if chunks > 1 else name]
        words.append(f"{stages:,} stages" if stages > 1 else "1 stage")
    if choice.pairs_passes:
        words.append("pairs of passes above each other")
    words.append(f"{shown:,} of {batch:,} microbatches")
    time, bubble = plan_estimate.stats["total_time"], plan_estimate.stats["bubble_time"]
    assert time is not None
    assert bubble is not None
    words.append(f"bubble {100 * bubble / time:.1f} % of the iteration")
    known = plan_estimate.origin
    plan = titled(known.name, known.changes) if known else ""
    names = (plan_estimate.model.name, plan, plan_estimate.system.name)
    return Gantt(
        title=", ".join(filter(None, names)),
        subtitle=", ".join(words),
        stages=stages,
        pieces=_pieces(execute(one, shown), together=choice.pairs_passes),
        edition=plan_estimate.terms,
        row="Rank" if choice.folded else "Stage",
        second="other direction" if choice.mirrored else "second chunk",
        again=stage_passes(one).again.tolist(),
    )


def _pieces(spans: Sequence[Span], *, together: bool) -> list[Piece]:
    """Return the drawn passes; pairs that run `together` are drawn one above the other, over their total time."""
    pieces: list[Piece] = []
    last: dict[int, int] = {}  # place of the last pass of each stage
    for span in spans:
        work, begin, half = span.work, span.start, 0
        if together and work.paired and work.kind == "backward":
            before = pieces[last[span.stage]]
            if before.end == span.start:  # otherwise it waited, and the forward pass had ended
                begin, half = before.start, 1
                pieces[last[span.stage]] = replace(before, end=span.end, half=-1)
        last[span.stage] = len(pieces)
        one = Piece(span.stage, work.kind, work.microbatch, work.chunk, begin, span.end, half)
        pieces.append(one)
    return pieces


def _batch(plan_estimate: Estimate) -> Batch:
    """Return the estimated execution with its parts."""
    edition = EDITIONS[plan_estimate.edition]
    _, batch = next(
        evaluate_rows(
            plan_estimate.model, plan_estimate.system, Plan.of(plan_estimate.execution), edition
        )
    )
    return batch
