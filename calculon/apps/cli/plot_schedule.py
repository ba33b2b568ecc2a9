"""``calculon plot schedule``: the passes of each pipeline stage over time, for the first microbatches of a batch."""

import argparse

from calculon.apps.cli.options import check_inputs, naming
from calculon.apps.cli.result_files import short_name
from calculon.apps.report.pictures.gantt import Gantt, Piece
from calculon.cost.batch import Batch
from calculon.editions import EDITIONS
from calculon.errors import Problem, SpecError
from calculon.estimate import Estimate, estimate
from calculon.evaluate import evaluate_rows
from calculon.inspect.stages import execute, schedule_of
from calculon.plan.plan import Plan

TITLES = {"forward": "forward only", "1f1b": "1F1B", "gpipe": "GPipe", "zb_h1": "ZB-H1"}


def gantt(arguments: argparse.Namespace) -> Gantt:
    """Return the passes of each stage, as the estimate of an execution has them."""
    specs = [arguments.application, arguments.execution, arguments.system]
    check_inputs(specs)
    with naming(specs[1]):
        found = estimate(
            specs[0], specs[1], specs[2], edition=arguments.edition, preset=arguments.preset
        )
    execution = found.execution
    stages, chunks = execution.pipeline_par, execution.pipeline_interleaving
    batch = execution.batch_size // execution.data_par // execution.microbatch_size
    shown = min(batch, 2 * stages) if arguments.microbatches is None else arguments.microbatches
    if shown > batch:
        wanted = f"at most the {batch:,} of a pipeline's batch"
        raise SpecError("--microbatches", Problem("", wanted, f"{shown:,}"))
    one = _batch(found)
    words = [f"{TITLES[schedule_of(one)]}{f' interleaved, {chunks} chunks' if chunks > 1 else ''}"]
    words.append(f"{stages:,} stages" if stages > 1 else "1 stage")
    words.append(f"{shown:,} of {batch:,} microbatches")
    time, bubble = found.stats["total_time"], found.stats["bubble_time"]
    assert time is not None
    assert bubble is not None
    words.append(f"bubble {100 * bubble / time:.1f} % of the iteration")
    names = [short_name(source) for source in specs]
    return Gantt(
        title=f"{names[0]}, {names[1]}, {names[2]}\n{', '.join(words)}",
        stages=stages,
        pieces=[
            Piece(p.stage, p.work.kind, p.work.microbatch, p.work.chunk, p.start, p.end)
            for p in execute(one, shown)
        ],
        edition=found.edition,
    )


def _batch(found: Estimate) -> Batch:
    """Return the estimated execution with its parts."""
    edition = EDITIONS[found.edition]
    _, batch = next(evaluate_rows(found.model, found.system, Plan.of(found.execution), edition))
    return batch
