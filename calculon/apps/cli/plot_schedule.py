"""``calculon plot schedule``: the passes of each pipeline stage over time, for the first microbatches of a batch."""

import argparse
from collections.abc import Sequence
from dataclasses import replace

from calculon.apps.cli.changes import with_changes
from calculon.apps.cli.options import check_inputs, naming
from calculon.apps.report.pictures.gantt import Gantt, Piece
from calculon.cost.batch import Batch
from calculon.editions import EDITIONS
from calculon.errors import Problem, SpecError
from calculon.estimate import Estimate, estimate
from calculon.evaluate import evaluate_rows
from calculon.inputs import Source, sources_in
from calculon.inspect.stages import execute, schedule_of
from calculon.parallel.pipeline.timeline import Span
from calculon.plan.plan import Plan
from calculon.spec import catalog
from calculon.spec.named_values import SCHEDULE_NAMES
from calculon.spec.origin import titled
from calculon.spec.result_selection import split

TITLES = {"forward": "forward only", **SCHEDULE_NAMES}


def gantt(arguments: argparse.Namespace) -> Gantt:
    """Return the passes of each stage, as the estimate of an execution has them."""
    specs = _specs(arguments.specs)
    check_inputs([one for one in specs.values() if isinstance(one, str)])
    with naming(str(specs["execution"])):
        found = estimate(
            **with_changes(arguments.changes, **specs),
            edition=arguments.edition,
            preset=arguments.preset,
        )
    execution = found.execution
    stages, chunks = execution.pipeline_par, execution.pipeline_interleaving
    batch = execution.batch_size // execution.data_par // execution.microbatch_size
    shown = min(batch, 2 * stages) if arguments.microbatches is None else arguments.microbatches
    if shown > batch:
        wanted = f"at most the {batch:,} of a pipeline's batch"
        raise SpecError("--microbatches", Problem("", wanted, f"{shown:,}"))
    one = _batch(found)
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
    time, bubble = found.stats["total_time"], found.stats["bubble_time"]
    assert time is not None
    assert bubble is not None
    words.append(f"bubble {100 * bubble / time:.1f} % of the iteration")
    known = found.origin
    plan = titled(known.name, known.changes) if known else ""
    names = (found.model.name, plan, found.system.name)
    return Gantt(
        title=f"{', '.join(names)}\n{', '.join(words)}",
        stages=stages,
        pieces=_pieces(execute(one, shown), together=choice.pairs_passes),
        edition=found.terms,
        row="Rank" if choice.folded else "Stage",
        second="other direction" if choice.mirrored else "second chunk",
    )


def _pieces(spans: Sequence[Span], *, together: bool) -> list[Piece]:
    """Return what is drawn of the passes; those of a pair that run `together` have its whole time, above each other."""
    pieces: list[Piece] = []
    last: dict[int, int] = {}  # place of the last pass of each stage
    for span in spans:
        work, begin, half = span.work, span.start, 0
        if together and work.paired and work.kind == "backward":
            before = pieces[last[span.stage]]
            if before.end == span.start:  # else it had to wait, and the forward pass was over
                begin, half = before.start, 1
                pieces[last[span.stage]] = replace(before, end=span.end, half=-1)
        last[span.stage] = len(pieces)
        one = Piece(span.stage, work.kind, work.microbatch, work.chunk, begin, span.end, half)
        pieces.append(one)
    return pieces


def _specs(texts: Sequence[str]) -> dict[str, Source]:
    """Return model, execution and system: the three, or those of a result."""
    if len(texts) == 3:
        return dict(zip(("model", "execution", "system"), texts, strict=True))
    if len(texts) != 1:
        raise SpecError(
            "plot schedule",
            Problem("", "APP EXE SYS, or one result of loe or llm", " ".join(texts)),
        )
    _, _, question = catalog.read("execution", texts[0])
    specs = sources_in(question, split(texts[0])[0])
    if missing := [kind for kind in ("model", "system") if kind not in specs]:
        wanted = f"a result that says its {' and '.join(missing)}, and where to find them"
        hint = "give three: APP EXE SYS"
        raise SpecError(texts[0], Problem("", wanted, "one that does not", hint))
    return {"model": specs["model"], "execution": texts[0], "system": specs["system"]}


def _batch(found: Estimate) -> Batch:
    """Return the estimated execution with its parts."""
    edition = EDITIONS[found.edition]
    _, batch = next(evaluate_rows(found.model, found.system, Plan.of(found.execution), edition))
    return batch
